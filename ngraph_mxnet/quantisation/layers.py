"""The layers of a graph, which are its convolutions and matrix products: the axes of their channels, and which layers
of two graphs are the same ones, by what they are and where they stand, never by their names.

The names of a framework are for people: MXNet numbers them anew for a second instance, and nothing keeps two models
from sharing them. So a recipe holds an `Outline` of the graph that it was made of: its layers and the joins between
them, each with what it reads, and what is done on the way. Of a graph at hand the same is made, and `matched` lays the
two on each other. Batches, sizes of images and names are not in it, nor what passes may leave out for the sake of a
weight's content, such as a bias of zeros.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ngraph_mxnet.ir.graph import Graph, Node, Value, reached
from ngraph_mxnet.ir.module import Changes, Derivation


def data_axis(node: Node) -> int:
    """The axis of operand 0 along which the input channels are."""
    return 1 if node.op.kind == "convolution" else node.inputs[0].type.rank - 1


def result_axis(node: Node) -> int:
    """The axis of the result along which the output channels are."""
    return 1 if node.op.kind == "convolution" else node.outputs[0].type.rank - 1


def weight_axes(node: Node) -> tuple[int, int]:
    """The axes of operand 1 along which the output channels are, and the input channels of one group."""
    rank = node.inputs[1].type.rank
    if node.op.kind == "convolution":
        return 0, 1
    return (rank - 2, rank - 1) if node.attrs["transpose_b"] else (rank - 1, rank - 2)


def bound_names(output: Value) -> tuple[str, str]:
    """The names of the attributes that bound an output."""
    return ("lower2", "upper2") if output.index else ("lower", "upper")


def is_depthwise(node: Node) -> bool:
    """True if each weight of an output channel meets the same input channel."""
    return node.op.kind == "convolution" and node.inputs[1].shape[1] == 1


def by_input(node: Node, vector: np.ndarray) -> np.ndarray:
    """Numbers [I], one for each input channel, in a shape that broadcasts against the weights: each weight meets that
    of its channel."""
    outer, inner = weight_axes(node)
    rows = by_group(vector, node.inputs[1].shape[outer], node.attrs.get("groups", 1))
    shape = [1] * node.inputs[1].type.rank
    shape[outer], shape[inner] = rows.shape
    return rows.reshape(shape)


def by_group(vector: np.ndarray, outputs: int, groups: int) -> np.ndarray:
    """Numbers [I], one for each input channel, as [O, I / groups], or [1, I] where there is one group."""
    return vector[None] if groups == 1 else np.repeat(vector.reshape(groups, -1), outputs // groups, axis=0)


def input_ranges(node: Node, weights: np.ndarray) -> np.ndarray:
    """float [I], the largest magnitude of the weights that meet each input channel."""
    outer, inner = weight_axes(node)
    rows = np.abs(np.moveaxis(weights, (outer, inner), (0, 1)))
    groups = node.attrs.get("groups", 1)
    return rows.reshape(groups, rows.shape[0] // groups, rows.shape[1], -1).max(axis=(1, 3), initial=0).reshape(-1)


INPUT = -1
"""The number of what no vertex makes: an input of the graph."""
_RADII = (8, 4, 2)
"""How far around vertices one looks, where graphs as a whole are not the same."""


class Read(NamedTuple):
    """`path`: what is done between. `source`: the number of the vertex that makes it, or `INPUT`."""

    path: str
    source: int


@dataclass(frozen=True)
class Vertex:
    """A layer, or a join of several values. `name`: of a layer, in the graph's framework; empty of a join."""

    name: str
    what: str
    reads: tuple[Read, ...]


@dataclass(frozen=True)
class Outline:
    """`vertices`: each behind those that it reads, as a walk from the results meets them. `results`: of the graph."""

    vertices: tuple[Vertex, ...]
    results: tuple[Read, ...]

    @cached_property
    def readers(self) -> list[list[tuple[str, int, int]]]:
        """The readers of each vertex: the path, the number of the reader, and at which of its operands. The graph's
        results have the number `INPUT`."""
        found: list[list[tuple[str, int, int]]] = [[] for _ in self.vertices]
        for number, vertex in enumerate(self.vertices):
            for place, read in enumerate(vertex.reads):
                if read.source != INPUT:
                    found[read.source].append((read.path, number, place))
        for place, read in enumerate(self.results):
            if read.source != INPUT:
                found[read.source].append((read.path, INPUT, place))
        return found

    def rows(self) -> dict[str, Any]:
        """Return the outline as plain data of JSON."""
        return {"layers": [[one.name, one.what, [list(read) for read in one.reads]] for one in self.vertices],
                "results": [list(read) for read in self.results]}

    @staticmethod
    def of_rows(found: Any) -> Outline:
        """Return the outline that gave these rows. Raise ValueError, TypeError or LookupError where none did."""
        vertices: list[Vertex] = []
        for name, what, reads in found["layers"]:
            if not (isinstance(name, str) and isinstance(what, str)):
                raise TypeError("a layer without name or kind")
            vertices.append(Vertex(name, what, _reads(reads, len(vertices))))
        return Outline(tuple(vertices), _reads(found["results"], len(vertices)))


def _reads(rows: Any, count: int) -> tuple[Read, ...]:
    found = tuple(Read(path, source) for path, source in rows)
    for read in found:
        if not (isinstance(read.path, str) and type(read.source) is int and INPUT <= read.source < count):
            raise ValueError("a layer reads one that is not before it")
    return found


def outline(graph: Graph, names: Mapping[Node, str]) -> Outline:
    """That of an optimised graph; `names`: of its layers."""
    derivation, vertices = Derivation(), list[Vertex]()
    made: dict[Value, Read] = {}

    def read(value: Value) -> Read:
        return made.get(value, Read("", INPUT))

    for node in reached(graph)[0]:
        reads = [read(value) for value in node.inputs if derivation.of(value) is Changes.WITH_CALLS]
        if not reads:
            continue
        if node in names or len(reads) > 1:
            what = _what(node) if node in names else node.op.name
            vertices.append(Vertex(names.get(node, ""), what, tuple(reads)))
            made.update({value: Read(_ending(value), len(vertices) - 1) for value in node.outputs})
        else:
            (before,) = reads
            made.update({value: Read(_and(before.path, _told(value)), before.source) for value in node.outputs})
    return Outline(tuple(vertices), tuple(map(read, graph.results)))


def _what(layer: Node) -> str:
    """Its kind and the sizes of its weights, in whatever layout: a convolution's with those of its taps."""
    weights, (outer, inner) = layer.inputs[1].type, weight_axes(layer)
    taps = [size for axis, size in enumerate(weights.shape) if axis not in (outer, inner)]
    told = {name: list(layer.attrs[name]) for name in ("strides", "dilations") if set(layer.attrs.get(name, ())) - {1}}
    if (groups := layer.attrs.get("groups", 1)) != 1:
        told["groups"] = groups
    sizes = " ".join(map(str, (weights.shape[outer], weights.shape[inner], *taps)))
    return " ".join([layer.op.kind or layer.op.name, sizes, *(f"{name} {told[name]}" for name in sorted(told))])


def _ending(value: Value) -> str:
    """Describe the end of a layer or a join: the bounds of its result, and which of several results it is."""
    node = value.node
    assert node is not None
    ends = zip(bound_names(value), (-math.inf, math.inf), strict=True)
    low, high = (float(node.attrs.get(name, end)) for name, end in ends)
    bounds = "" if (low, high) == (-math.inf, math.inf) else "relu" if (low, high) == (0, math.inf) else f"{low}:{high}"
    return _and(f"#{value.index}" if value.index else "", bounds)


def _told(value: Value) -> str:
    node = value.node
    assert node is not None
    return _and(_path_name(node), _ending(value))


def _path_name(node: Node) -> str:
    """Return the name that a path has for an op, one of whose operands changes with calls. Ops that move or scale have
    none, as they may fold away. Two ops have one name for an average over everything: sizes decide which of them it
    becomes."""
    op = node.op
    if op.kind in ("movement", "copy") or (op.kind == "arithmetic" and len(node.inputs) > 1):
        return ""
    if op.kind in ("pool", "reduction"):
        return "mean" if op.name in ("avg_pool", "reduce_mean") else op.name.replace("_pool", "").replace("reduce_", "")
    return op.name


def _and(first: str, second: str) -> str:
    return f"{first} {second}" if first and second else first or second


# ---- two outlines ----------------------------------------------------------------------------------------------


def matched(ours: Outline, theirs: Outline) -> dict[str, str]:
    """The layers of `ours` that are in `theirs`, by name, with their names there.

    Where the graphs are the same, all are. Where one has more in front, behind or between, those are whose surroundings
    are the same and which are in both as often, and from these on all that are read by, or read, such as match. Of a
    part that might as well be another one nothing matches: nothing is guessed.
    """
    found = _Matching(ours, theirs)
    found.by(_whole(ours), _whole(theirs))
    for radius in _RADII:
        found.by(_around(ours, radius), _around(theirs, radius))
    found.by_kind()
    return {ours.vertices[own].name: theirs.vertices[other].name for own, other in found.pairs.items()
            if ours.vertices[own].name}


Colours = Sequence[Hashable]
"""A colour for each vertex, which tells it from others."""


def _whole(of: Outline) -> Colours:
    """All that a vertex depends on, and all that depends on it."""
    up: list[int] = []
    for vertex in of.vertices:
        up.append(hash((vertex.what, tuple((path, up[source] if source != INPUT else 0)
                                           for path, source in vertex.reads))))
    down = [0] * len(of.vertices)
    for number in reversed(range(len(of.vertices))):
        readers = sorted((path, place, down[reader] if reader != INPUT else 0)
                         for path, reader, place in of.readers[number])
        down[number] = hash((of.vertices[number].what, tuple(readers)))
    return list(zip(up, down, strict=True))


def _around(of: Outline, radius: int) -> Colours:
    """Colour each vertex by the vertices up to `radius` steps before and behind it."""
    colours = [hash(vertex.what) for vertex in of.vertices]
    for _ in range(radius):
        colours = [hash((colour, tuple((path, colours[source] if source != INPUT else 0)
                                       for path, source in vertex.reads),
                         tuple(sorted((path, place, colours[reader] if reader != INPUT else 0)
                                      for path, reader, place in readers))))
                   for colour, vertex, readers in zip(colours, of.vertices, of.readers, strict=True)]
    return colours


class _Matching:
    """`pairs`: the numbers of vertices of `ours`, with those that are the same in `theirs`."""

    def __init__(self, ours: Outline, theirs: Outline) -> None:
        self._ours, self._theirs = ours, theirs
        self.pairs: dict[int, int] = {}
        self._taken: set[int] = set()

    def by(self, ours: Colours, theirs: Colours) -> None:
        """Pair the vertices of each colour of which both outlines have equally many left, in order. Then pair what
        follows from each pair."""
        other = self._left(theirs, self._taken)
        for colour, numbers in self._left(ours, self.pairs).items():
            if len(numbers) == len(other.get(colour, ())):
                for pair in zip(numbers, other[colour], strict=True):
                    self._take(*pair)
        self._spread(list(self.pairs.items()))

    def by_kind(self) -> None:
        """Layers of a kind of which one is left in both, with nothing beside them that differs."""
        kinds = [[vertex.what if vertex.name else "" for vertex in of.vertices] for of in (self._ours, self._theirs)]
        other = self._left(kinds[1], self._taken)
        for kind, numbers in self._left(kinds[0], self.pairs).items():
            if kind and len(numbers) == len(other.get(kind, ())) == 1 and self._may_be(numbers[0], other[kind][0]):
                self._take(numbers[0], other[kind][0])
        self._spread(list(self.pairs.items()))

    @staticmethod
    def _left(colours: Colours, taken: Any) -> dict[Hashable, list[int]]:
        found: dict[Hashable, list[int]] = defaultdict(list)
        for number, colour in enumerate(colours):
            if number not in taken:
                found[colour].append(number)
        return found

    def _take(self, own: int, other: int) -> bool:
        """Pair two vertices. Return True if both were free; a vertex that is in a pair already stays there."""
        if own in self.pairs or other in self._taken:
            return False
        self.pairs[own] = other
        self._taken.add(other)
        return True

    def _spread(self, waiting: Sequence[tuple[int, int]]) -> None:
        """From pairs to what they read, and to what reads them."""
        queue = deque(waiting)
        while queue:
            queue.extend(pair for pair in self._beside(*queue.popleft()) if self._take(*pair))

    def _beside(self, own: int, other: int) -> Iterator[tuple[int, int]]:
        reads = [of.vertices[number].reads for of, number in ((self._ours, own), (self._theirs, other))]
        for one, two in zip(*reads, strict=False):
            if INPUT not in (one.source, two.source) and one.path == two.path:
                yield from self._alike(one.source, two.source)
        ours, theirs = (self._by_way(of, number) for of, number in ((self._ours, own), (self._theirs, other)))
        for way, readers in ours.items():
            if len(readers) == len(theirs.get(way, ())) == 1:
                yield readers[0], theirs[way][0]

    def _alike(self, own: int, other: int) -> Iterator[tuple[int, int]]:
        if self._ours.vertices[own].what == self._theirs.vertices[other].what:
            yield own, other

    @staticmethod
    def _by_way(of: Outline, number: int) -> dict[Hashable, list[int]]:
        """The readers of a vertex by path, operand and kind."""
        found: dict[Hashable, list[int]] = defaultdict(list)
        for path, reader, place in of.readers[number]:
            if reader != INPUT:
                found[path, place, of.vertices[reader].what].append(reader)
        return found

    def _may_be(self, own: int, other: int) -> bool:
        """True if what both vertices read, and what reads both, is of the same kind, or cut off."""
        for one, two in zip(self._ours.vertices[own].reads, self._theirs.vertices[other].reads, strict=False):
            kinds = {of.vertices[read.source].what for of, read in ((self._ours, one), (self._theirs, two))
                     if read.source != INPUT}
            if len(kinds) > 1:
                return False
        ours, theirs = (self._by_way(of, number) for of, number in ((self._ours, own), (self._theirs, other)))
        return not ours or not theirs or ours.keys() == theirs.keys()
