"""A joint graph as two: the forward one, which runs first, and the backward one, which reads what that saved.

What is saved is a minimum cut: Dinic, Algorithm for solution of a problem of maximum flow in networks with power
estimation, 1970. The networks here are a forest of small ones, which takes few rounds. (To import networkx takes longer
than that.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf
from typing import Any

from ngraph_mxnet.autodiff.reverse import Joint
from ngraph_mxnet.ir.graph import Builder, Graph, Node, Value, extract, make_node
from ngraph_mxnet.ir.opdef import Rates
from ngraph_mxnet.ir.sizes import at_hand
from ngraph_mxnet.ir.types import TensorType, f32

Vertex = Hashable


class Network:
    """Edges with capacities: whole numbers or infinity."""

    def __init__(self) -> None:
        self._left: dict[Vertex, dict[Vertex, float]] = defaultdict(dict)
        """For each vertex, what may still flow to its neighbours, against the edges too."""

    def add(self, tail: Vertex, head: Vertex, capacity: float) -> None:
        """An edge; beside one that there is, one more."""
        self._left[tail][head] = self._left[tail].get(head, 0) + capacity
        self._left[head].setdefault(tail, 0)

    def near_side(self, source: Vertex, sink: Vertex) -> set[Vertex]:
        """The source's side of a minimum cut: of several cuts that with the fewest vertices there. Raises ValueError:
        no cut is finite."""
        while sink in (far := self._distances(source)):
            self._fill(source, sink, far)
        return set(far)

    def _distances(self, source: Vertex) -> dict[Vertex, int]:
        """How far each vertex that flow still reaches is from the source."""
        far, front = {source: 0}, [source]
        while front:
            following = []
            for vertex in front:
                for head, left in self._left[vertex].items():
                    if left > 0 and head not in far:
                        far[head] = far[vertex] + 1
                        following.append(head)
            front = following
        return far

    def _fill(self, source: Vertex, sink: Vertex, far: dict[Vertex, int]) -> None:
        """Let all flow that goes away from the source with each edge."""
        heads = {vertex: [h for h in self._left[vertex] if far.get(h) == far[vertex] + 1] for vertex in far}
        path = [source]
        while path:
            if path[-1] == sink:
                edges = list(pairwise(path))
                flow = min(self._left[tail][head] for tail, head in edges)
                if flow == inf:
                    raise ValueError("no cut is finite")
                for tail, head in edges:
                    self._left[tail][head] -= flow
                    self._left[head][tail] += flow
                path = path[:next(at for at, (tail, head) in enumerate(edges) if not self._left[tail][head]) + 1]
            onward = heads[path[-1]]
            while onward and not self._left[path[-1]][onward[-1]]:
                onward.pop()
            if onward:
                path.append(onward[-1])
            else:
                path.pop()
                if path:
                    heads[path[-1]].pop()


_PRICE = 0.4
"""Bytes saved that one byte moved to compute again is worth. A value is saved by a write and maybe a copy, and is read
later; to compute it again of what is there takes a read and a write: about the same time, for no memory."""
_MOVED_BY = {"simple": 0.1, "move": 0.1, "divide": 0.5, "gather": 1.0, "transcendental": 2.0, "sort": 8.0,
             "unknown": inf}
"""Bytes that memory moves in the time of an operation of a class."""
_SOURCE, _SINK = "source", "sink"
_CHEAP = ("comparison", "logical", "choice", "copy", "movement", "constant")
_SMALL = 1 / 4096
"""Share of all that is saved below which a value is left alone: statistics, masks of small layers."""
_SEGMENTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of segments between checkpoints that are tried."""


@dataclass(frozen=True)
class Halves:
    """A joint graph that is to be cut.

    Attributes:
        first: the nodes that the forward half needs.
        results: those that the backward half computes.
        affine: nodes that compute one affine function for each channel, which no pass folds into others.
    """

    graph: Graph
    first: Collection[Node]
    results: Sequence[Value]
    affine: Collection[Node] = ()

    def needed(self) -> list[Value]:
        """Return the parameters and the values of the forward half that the backward half reads, in order of the
        graph."""
        read = dict.fromkeys(value for node in self.graph.nodes if node not in self.first for value in node.inputs)
        read |= dict.fromkeys(self.results)
        values = [value for node in self.graph.nodes if node in self.first for value in node.outputs]
        return [value for value in (*self.graph.parameters, *values) if value in read]


def saved_values(halves: Halves, share: float | None = 0.0) -> list[Value]:
    """The values of nodes to save, in order of the graph; constants are none of them. What is saved with a share
    is saved with each lower one.

    Args:
        share: of the bytes that the cut would save, how much to drop, from 0, which costs no time, to 1. None: all that
            the backward half reads is saved, without a cut.
    """
    chosen = set(halves.needed()) if share is None else _cut(halves)
    saved = [value for node in halves.graph.nodes if node.op.kind != "constant" for value in node.outputs
             if value in chosen]
    if not share or not saved:
        return saved
    droppable = _droppable(halves, saved)
    wanted, dropped = share * sum(map(_bytes, droppable)), set()
    for value in droppable:
        if wanted <= 0:
            break
        dropped.add(value)
        wanted -= _bytes(value)
    return [value for value in saved if value not in dropped]


def _cost(node: Node) -> float:
    """Bytes moved, or what could be in that time, to compute the node again."""
    if node.op.kind == "constant":
        return 0.0
    moved = sum(map(_bytes, (*dict.fromkeys(node.inputs), *node.outputs)))
    return moved + sum(_MOVED_BY[name] * count for name, count in _rates(node).items())


def _rates(node: Node) -> Rates:
    if node.op.work is None:
        return {"unknown": 1.0}
    return node.op.work(_shapes(node.inputs), _shapes(node.outputs), node.attrs)


def _shapes(values: Sequence[Value]) -> list[tuple[int, ...]]:
    return [tuple(map(at_hand, value.type.shape)) for value in values]


def _bytes(value: Value) -> int:
    """At the sizes at hand: what is saved may be anything, so nothing is assumed of others."""
    return at_hand(value.type.bytes)


def _cut(halves: Halves) -> set[Value]:
    """Return the values that a minimum cut saves. On the sink's side of the cut are the values that the backward half
    has, and the nodes that it computes again."""
    network, needed = Network(), halves.needed()
    readers = halves.graph.readers()
    stack, met = list(needed), set(needed)
    nodes: set[Node] = set()
    for value in needed:
        network.add(value, _SINK, inf)
    while stack:
        value = stack.pop()
        node, size = value.node, _bytes(value)
        if node is None:
            continue
        price = 1 if _rides(node, readers) else round(_PRICE * _cost(node)) if _cheap(node, halves) else inf
        if price and price >= sum(map(_bytes, node.outputs)):
            network.add(_SOURCE, value, size)  # to save all outputs costs no more
            continue
        network.add(node, value, size)
        if node not in nodes:
            nodes.add(node)
            network.add(_SOURCE, node, price)
            for operand in node.inputs:
                network.add(operand, node, inf)
                if operand not in met:
                    met.add(operand)
                    stack.append(operand)
    near = network.near_side(_SOURCE, _SINK)
    return {value for value in met - near if value.node and (value.node in near or value.node not in nodes)}


def _cheap(node: Node, halves: Halves) -> bool:
    """True if the node moves or compares elements, is one simple function of each element, or is affine
    (`halves.affine`). Passes fold other arithmetic into the nodes around it, so that it would round otherwise in the
    backward half. Sums over many elements are saved."""
    if node.op.kind in _CHEAP or node in halves.affine:
        return True
    return node.op.kind == "arithmetic" and len(node.inputs) == 1 and set(_rates(node)) <= {"simple"}


def _rides(node: Node, readers: Mapping[Value, Sequence[tuple[Node, int]]]) -> bool:
    """True if the node runs with the one before it: one simple function of a value that nothing else reads."""
    return (node.op.kind == "arithmetic" and len(node.inputs) == 1 and set(_rates(node)) <= {"simple"}
            and node.inputs[0].node is not None and len(readers[node.inputs[0]]) == 1)


def _droppable(halves: Halves, saved: Sequence[Value]) -> list[Value]:
    """Return the values that may be computed again from checkpoints and parameters, the cheapest for its bytes first.

    The results of softmax are left out: where nothing else reads them, targets compute softmax within attention, with
    other bits.
    """
    least = _SMALL * sum(map(_bytes, saved))
    kept = _checkpoints(halves, saved)
    values = [value for value in saved
              if value not in kept and _bytes(value) >= least and value.node and value.node.op.kind != "row"]
    stops = set(saved)
    rates = {value: _again(value, stops) / _bytes(value) for value in values}
    return sorted((value for value in values if rates[value] < inf), key=rates.__getitem__)


def _again(value: Value, stops: Collection[Value]) -> float:
    """Return the cost to compute the value from saved values."""
    nodes: set[Node] = set()
    stack = [value.node]
    while stack:
        node = stack.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            stack += [operand.node for operand in node.inputs if operand not in stops]
    return sum(_cost(node) for node in nodes)


def _checkpoints(halves: Halves, saved: Sequence[Value]) -> set[Value]:
    """Return the values that are saved whatever the share. The forward half is cut into segments of about the same
    bytes, where few bytes are alive. The number of segments is the one for which checkpoints and the largest segment
    take the fewest bytes. That segment is computed again as a whole."""
    nodes = [node for node in halves.graph.nodes if node in halves.first]
    among, alive = set(saved), _alive(nodes)
    widths = [sum(map(_bytes, values)) for values in alive]
    before = list(accumulate(sum(_bytes(value) for value in node.outputs if value in among) for node in nodes))
    best: tuple[float, set[Value]] = (inf, set())
    for segments in _SEGMENTS:
        size = before[-1] / segments
        ends = [min(window, key=widths.__getitem__) for number in range(1, segments)
                if (window := range(bisect_left(before, (number - 0.5) * size),
                                    bisect_left(before, (number + 0.5) * size)))]
        kept = _made_of((value for end in ends for value in alive[end]), among)
        largest = max(later - sooner for sooner, later in pairwise([0, *(before[end] for end in ends), before[-1]]))
        total = largest + sum(map(_bytes, kept))
        if total < best[0]:
            best = total, kept
    return best[1]


def _alive(nodes: Sequence[Node]) -> list[frozenset[Value]]:
    """For each node the values that it or a node before it makes and a node behind it reads."""
    last = {value: place for place, node in enumerate(nodes) for value in node.inputs}
    ending: dict[int, list[Value]] = defaultdict(list)
    for value, place in last.items():
        ending[place].append(value)
    found, alive = [], set[Value]()
    for place, node in enumerate(nodes):
        if node.op.kind != "constant":
            alive.update(value for value in node.outputs if value in last)
        alive.difference_update(ending[place])
        found.append(frozenset(alive))
    return found


def _made_of(values: Iterable[Value], among: Collection[Value]) -> set[Value]:
    """Return the members of `among` that the values are, or are computed from."""
    found: set[Value] = set()
    met, stack = set[Value](), list(values)
    while stack:
        value = stack.pop()
        if value in met:
            continue
        met.add(value)
        if value in among:
            found.add(value)
        elif value.node is not None:
            stack += value.node.inputs
    return found


@dataclass(frozen=True)
class Split:
    """The halves of a joint graph.

    Attributes:
        forward: its parameters are some of the joint graph's; its results are the first ones of the joint graph, then
            those that are saved.
        backward: its parameters are what is saved, by the names of `saved`, and some of the joint graph's; its results
            are the other ones of the joint graph.
        saved: names, in the order of the forward graph's last results.
    """

    forward: Graph
    backward: Graph
    saved: tuple[str, ...]

    @property
    def saved_bytes(self) -> int:
        """Bytes of the values that the forward half saves for the backward half."""
        return sum(p.type.bytes for p in self.backward.parameters if p.name in self.saved)


def split(joint: Joint, early: int, *, blocks: int = 1, share: float | None = 0.0) -> Split:
    """The forward graph has the first `early` results. Of what both halves need, `saved_values` are saved, and the
    backward graph computes the others again, each right before its first reader; numbers of rank 0 are saved as [1],
    which every framework's arrays can be.

    Args:
        blocks: images [N, C, *S] are saved as [N, C / blocks, *S, blocks] where blocks divide C: the layout of a
            target that computes in such blocks of channels, which then moves nothing.
        share: see `saved_values`.
    """
    whole = joint.graph.clone()
    # What goes back instead of a derivative is made where it is read: going forth these are their first operands.
    whole.replace({node.output: node.inputs[0] for node in whole.nodes if node.op.name == "own_gradient"})
    whole.remove_dead()
    affine = _take_apart(whole, blocks)
    first = _needed(whole.results[:early])
    halves = Halves(whole, first, whole.results[early:], affine)
    stops = [*saved_values(halves, share), *whole.parameters]
    backward = Graph(whole.name)
    backward.parameters, backward.results = whole.parameters, whole.results
    backward.nodes = _just_in_time(halves, set(stops))
    later = extract(backward, halves.results, stops, name=f"{whole.name}.backward",
                    label=lambda value, number: f"saved.{number}")
    pairs = list(zip(later.inputs, later.graph.parameters, strict=True))
    saved = [(value, parameter) for value, parameter in pairs if value.node is not None]
    sooner = extract(whole, [*whole.results[:early], *(value for value, _ in saved)], whole.parameters,
                     name=f"{whole.name}.forward", label=lambda value, number: "")
    images = _images(whole.nodes) if blocks > 1 else set()
    ways: dict[Value, Way] = {}
    for place, (value, parameter) in enumerate(saved, early):
        way = _way(value.type.shape, blocks if value in images else 1)
        if way is not None:
            ways[parameter] = way
            sooner.graph.nodes += (nodes := _chain(sooner.graph.results[place], way.there))
            sooner.graph.results[place] = nodes[-1].output
    _read_as(later.graph, ways)
    return Split(sooner.graph, later.graph, tuple(parameter.name for _, parameter in saved))


def _take_apart(graph: Graph, blocks: int) -> set[Node]:
    """A batch norm of images is its statistics, factors for each channel, and a `scale_shift`, as targets compute it.
    The last two, which are returned, are cheap to compute again of saved statistics. With fewer channels than `blocks`
    a target's layout, and so its kernel, may differ from half to half. A norm of one value a channel stays whole: what
    it gives is beta, which a rounded shift would hide."""
    found: dict[Value, Value] = {}
    affine: set[Node] = set()
    builder = Builder(graph)
    nodes, graph.nodes = graph.nodes, []
    for node in nodes:
        x = node.inputs[0] if node.inputs else None
        if x is None or node.op.name != "batch_norm_training" or x.type.element is not f32 or x.shape[1] < blocks \
                or not 3 <= x.type.rank <= 5 or x.type.size in (0, x.shape[1]):
            graph.nodes.append(node)
            continue
        builder.origin = node.origin
        mean, variance = builder.node("batch_norm_statistics", [x], {}).outputs
        factors = builder.node("batch_norm_factors", [*node.inputs[1:], mean, variance],
                               {"epsilon": node.attrs["epsilon"]})
        y = builder.scale_shift(x, *factors.outputs)
        affine |= {factors, y.node}
        found |= dict(zip(node.outputs, (y, mean, variance), strict=True))
    graph.replace(found)
    return affine


def _just_in_time(halves: Halves, stops: Collection[Value]) -> list[Node]:
    """Return the nodes of the backward half, in order. Nodes of the first half that it computes again stand right
    before their values are read."""
    place = {node: number for number, node in enumerate(halves.graph.nodes)}
    order: dict[Node, None] = {}

    def compute(values: Iterable[Value]) -> None:
        again: set[Node] = set()
        stack = list(values)
        while stack:
            value = stack.pop()
            node = value.node
            if node is None or node not in halves.first or value in stops:
                continue
            if node not in again and node not in order:
                again.add(node)
                stack += node.inputs
        order.update(dict.fromkeys(sorted(again, key=place.__getitem__)))

    for node in halves.graph.nodes:
        if node not in halves.first:
            compute(node.inputs)
            order[node] = None
    compute(halves.results)
    return list(order)


Ops = list[tuple[str, dict[str, Any]]]


@dataclass(frozen=True)
class Way:
    """How a value is saved otherwise: its shape then, the ops that lead there and those back."""

    shape: tuple[int, ...]
    there: Ops
    back: Ops


def _way(shape: tuple[int, ...], blocks: int) -> Way | None:
    """Return the way in which a value of this shape is saved; None where the value is saved as it is."""
    if not shape:
        return Way((1,), [("reshape", {"shape": (1,)})], [("reshape", {"shape": ()})])
    if blocks == 1 or not 3 <= len(shape) <= 4 or shape[1] % blocks:
        return None
    cut, axes = (shape[0], shape[1] // blocks, blocks, *shape[2:]), range(3, len(shape) + 1)
    order, back = (0, 1, *axes, 2), (0, 1, len(shape), *(axis - 1 for axis in axes))
    return Way(tuple(cut[axis] for axis in order), [("reshape", {"shape": cut}), ("transpose", {"order": order})],
               [("transpose", {"order": back}), ("reshape", {"shape": shape})])


def _images(nodes: list[Node]) -> set[Value]:
    """Return the results of convolutions, pools and batch norms, and of elementwise ops and concatenations of such
    results."""
    found: set[Value] = set()
    for node in nodes:
        made = node.op.kind in ("convolution", "pool") or node.op.name == "batch_norm_training"
        keeps = node.op.elementwise or node.op.name == "concat" or (
            bool(node.inputs) and node.inputs[0].type == node.outputs[0].type)
        if made or (keeps and found & set(node.inputs)):
            found.update(node.outputs)
    return found


def _needed(results: list[Value]) -> set[Node]:
    found: set[Node] = set()
    stack = [value.node for value in results]
    while stack:
        node = stack.pop()
        if node is not None and node not in found:
            found.add(node)
            stack.extend(value.node for value in node.inputs)
    return found


def _chain(value: Value, ops: Ops) -> list[Node]:
    nodes: list[Node] = []
    for op, attrs in ops:
        nodes.append(make_node(op, [nodes[-1].output if nodes else value], attrs))
    return nodes


def _read_as(graph: Graph, ways: Mapping[Value, Way]) -> None:
    """These parameters come otherwise; the ops that lead back stand first."""
    back: list[Node] = []
    found: dict[Value, Value] = {}
    for number, parameter in enumerate(graph.parameters):
        way = ways.get(parameter)
        if way is not None:
            wide = Value(TensorType(parameter.type.element, way.shape), name=parameter.name, role=parameter.role)
            back += (nodes := _chain(wide, way.back))
            found[parameter] = nodes[-1].output
            graph.parameters[number] = wide
    graph.replace(found)
    graph.nodes[:0] = back
