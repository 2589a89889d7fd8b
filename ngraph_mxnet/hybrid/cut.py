"""The best placement for serial execution, as a minimum cut.

Vertices are the items, the source stands for the host, the sink for device 1; an item is placed on the device on whose
side of the cut it is. Each term of `Problem.serial_seconds` is the capacity of the edges that its case cuts:

* an item on a device: an edge from or to the terminal of the *other* device;
* a tensor brought to a device, once for all its readers there: an edge between its producer and a vertex of its own,
  which edges without limit keep on the side of those readers. One reader is that vertex itself;
* the launch of a device in use: the same, with the items for readers and the other terminal for producer.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable

import networkx

from ngraph_mxnet.hybrid.problem import HOST, Pair, Problem

_UNITS = 1e15
"""Capacities are integers, of femtoseconds: sums of them are exact, and the algorithm ends."""

_TERMINALS = ("source", "sink")
"""Which stand for device 0, the host, and device 1."""


def serial_placement(problem: Problem, weights: Pair = (1.0, 1.0)) -> list[int]:
    """The device of each item, so that `problem.serial_seconds` is least, to a femtosecond a term; what is equal
    stays with the host.

    Args:
        weights: factors of the items' seconds on each device. Others than 1 move the balance between the devices:
            starting points for a search that counts with both working at once.

    Raises:
        ValueError: no device can run some item.
    """
    edges = _Edges()
    for number, item in enumerate(problem.items):
        if not any(map(math.isfinite, item.seconds)):
            raise ValueError(f"no device can run {item.name}")
        for device in (0, 1):
            edges.charge(number, _TERMINALS[1 - device], device, item.seconds[device] * weights[device])
    for name, tensor in enumerate(problem.tensors):
        producer: Hashable = _TERMINALS[HOST] if tensor.producer is None else tensor.producer
        for device in (0, 1):
            readers: list[Hashable] = list(tensor.readers)
            if tensor.result and device == HOST:
                readers = [_TERMINALS[HOST]]
            edges.charge_any(("tensor", name, device), readers, producer, device, tensor.crossing[device])
    for device in (0, 1):
        edges.charge_any(("launch", device), range(len(problem.items)), _TERMINALS[1 - device], device,
                         problem.launch[device])
    far = edges.far_side()
    return [int(number in far) for number in range(len(problem.items))]


class _Edges:
    """The graph to cut."""

    def __init__(self) -> None:
        self._graph = networkx.DiGraph()
        self._graph.add_nodes_from(_TERMINALS)

    def charge(self, vertex: Hashable, other: Hashable, device: int, seconds: float) -> None:
        """`seconds` if `vertex` is on the side of `device`, and `other` on the other one."""
        ends = (vertex, other) if device == HOST else (other, vertex)
        if ends[0] == ends[1] or seconds == 0:
            return
        if math.isinf(seconds):
            self._graph.add_edge(*ends)  # an edge without a capacity has no limit
            self._graph.edges[ends].pop("capacity", None)
            return
        edge = self._graph.get_edge_data(*ends)
        if edge is None:
            self._graph.add_edge(*ends, capacity=round(seconds * _UNITS))
        elif "capacity" in edge:
            edge["capacity"] += round(seconds * _UNITS)

    def charge_any(self, name: Hashable, vertices: Iterable[Hashable], other: Hashable, device: int,
                   seconds: float) -> None:
        """`seconds`, once, if any of `vertices` is on the side of `device`, and `other` on the other one."""
        vertices = list(vertices)
        if len(vertices) == 1:
            self.charge(vertices[0], other, device, seconds)
        elif vertices and seconds:
            self.charge(name, other, device, seconds)
            for vertex in vertices:
                self.charge(vertex, name, device, math.inf)

    def far_side(self) -> set[Hashable]:
        """Of the minimum cuts that with the fewest vertices beside the sink."""
        _, (_, far) = networkx.minimum_cut(self._graph, *_TERMINALS)
        return far
