"""The best placement on two devices for serial execution, as a minimum cut; on more, one that no two of them better.

Vertices are the items, the source stands for the first device, the sink for the second; an item is placed on the device
on whose side of the cut it is. Each term of `Problem.serial_seconds` is the capacity of the edges that its case cuts:

* an item on a device: an edge from or to the terminal of the *other* device;
* a tensor brought to a device, once for all its readers there: an edge between its producer and a vertex of its own,
  which edges without limit keep on the side of those readers. One reader is that vertex itself;
* the launch of a device in use: the same, with the items for readers and the other terminal for producer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from operator import mul

import networkx

from ngraph_mxnet.placement.problem import HOST, Problem, Seconds, Tensor

_UNITS = 1e15
"""Capacities are integers, of femtoseconds: sums of them are exact, and the algorithm ends."""

_TERMINALS = ("source", "sink")
"""Which stand for the first device, the host, and the second."""

_ROUNDING = 1 - 1e-12
"""What is less by so little is as much."""


def serial_placement(problem: Problem, weights: Seconds | None = None) -> list[int]:
    """The device of each item, so that `problem.serial_seconds` is least, to a femtosecond a term; what is equal
    stays with the host. Of more than two devices: so that no change between two of them alone makes it less.

    Args:
        weights: factors of the items' seconds on each device. Others than 1 move the balance between the devices:
            starting points for a search that counts with all working at once.

    Raises:
        ValueError: no device can run some item.
    """
    count = len(problem.launch)
    weights = weights or (1.0,) * count
    for number, item in enumerate(problem.items):
        if not problem.choices(number):
            raise ValueError(f"no device can run {item.name}")
    best = [problem.choices(number)[0] for number in range(len(problem.items))]
    weighed = replace(problem, items=tuple(
        replace(item, seconds=tuple(map(mul, item.seconds, weights))) for item in problem.items))
    least, improved = math.inf, True
    while improved:
        improved = False
        for pair in itertools.combinations(range(count), 2):
            placement = _between(weighed, best, pair)
            seconds = weighed.serial_seconds(placement)
            if seconds < least * _ROUNDING:
                best, least, improved = placement, seconds, count > 2
    return best


def _between(problem: Problem, placement: Sequence[int], pair: tuple[int, int]) -> list[int]:
    """The best placement in which items of the two devices may be on either of them, and the others stay."""
    edges = _Edges()
    mine = [number for number, device in enumerate(placement) if device in pair]
    for number in mine:
        for side in (0, 1):
            edges.charge(number, _TERMINALS[1 - side], side, problem.items[number].seconds[pair[side]])
    for name, tensor in enumerate(problem.tensors):
        _charge_tensor(edges, name, tensor, placement, pair)
    for side in (0, 1):
        edges.charge_any(("launch", side), mine, _TERMINALS[1 - side], side, problem.launch[pair[side]])
    far = edges.far_side()
    return [pair[number in far] if device in pair else device for number, device in enumerate(placement)]


def _charge_tensor(edges: _Edges, name: int, tensor: Tensor, placement: Sequence[int], pair: tuple[int, int]) -> None:
    """What it costs to bring it where it is read. Readers elsewhere than on the two devices stay there."""
    here = HOST if tensor.producer is None else placement[tensor.producer]
    fixed = {placement[reader] for reader in tensor.readers if placement[reader] not in pair}
    if tensor.result and HOST not in pair:
        fixed.add(HOST)
    producer: Hashable = tensor.producer
    if tensor.producer is None and here in pair:
        producer = _TERMINALS[pair.index(here)]
    for side in (0, 1):
        readers: list[Hashable] = [reader for reader in tensor.readers if placement[reader] in pair]
        if tensor.result and pair[side] == HOST:
            readers = [_TERMINALS[side]]
        other = producer if here in pair else _TERMINALS[1 - side]
        source = pair[1 - side] if here in pair else here
        edges.charge_any(("tensor", name, side), readers, other, side, tensor.seconds(source, pair[side]))
        if here in pair:
            edges.charge(producer, _TERMINALS[1 - side], side, sum(tensor.seconds(pair[side], to) for to in fixed))


class _Edges:
    """The graph to cut."""

    def __init__(self) -> None:
        self._graph = networkx.DiGraph()
        self._graph.add_nodes_from(_TERMINALS)

    def charge(self, vertex: Hashable, other: Hashable, device: int, seconds: float) -> None:
        """`seconds` if `vertex` is on the side of `device`, and `other` on the other one."""
        ends = (vertex, other) if device == 0 else (other, vertex)
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
        """The sink's side of a minimum cut: of several cuts the one with the fewest vertices there."""
        _, (_, far) = networkx.minimum_cut(self._graph, *_TERMINALS)
        return far
