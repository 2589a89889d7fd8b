"""The layers of a graph, its convolutions and matrix products, and corrections of what quantising does to them.

The names of a framework are for people: MXNet numbers them anew for a second instance, and nothing keeps two models
from sharing them. So a recipe holds an `Outline` of the graph that it was made of: its layers and the joins between
them, each with what it reads, and what is done on the way. Of a graph at hand the same is made, and `matched` lays the
two on each other. Batches, sizes of images and names are not in it, nor what passes may leave out for the sake of a
weight's content, such as a bias of zeros.

Corrections are of biases, weights and data, each with the maker of the nodes that apply it. `division.py` chooses which
layers' data is divided, and by what, and applies it.

* Nagel et al. 2019, "Data-free quantization through weight equalization and bias correction", arXiv:1906.04721.
* Xiao et al. 2022, "SmoothQuant: accurate and efficient post-training quantization for large language models",
  arXiv:2211.10438.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ngraph_mxnet.base.errors import CalibrationError, ConfigError
from ngraph_mxnet.ir.graph import Graph, Node, Value, make_folded, make_node, reached
from ngraph_mxnet.ir.module import Changes, Derivation
from ngraph_mxnet.ir.opdef import present_name
from ngraph_mxnet.quantisation.calibration import LEAST_SCALE

QUANTIZED = {"convolution": "quantized_convolution", "product": "quantized_matmul"}
"""By kind, the op that multiplies bytes."""


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


class Vertex(NamedTuple):
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
            vertices.append(Vertex(name, present_name(what), _reads(reads, len(vertices))))
        return Outline(tuple(vertices), _reads(found["results"], len(vertices)))


def _reads(rows: Any, count: int) -> tuple[Read, ...]:
    found = tuple(Read(path, source) for path, source in rows)
    for read in found:
        if not (isinstance(read.path, str) and type(read.source) is int and INPUT <= read.source < count):
            raise ValueError("a layer reads one that is not before it")
    return tuple(Read(" ".join(map(present_name, read.path.split(" "))), read.source) for read in found)


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
            made.update({value: Read(_and(before.path, _and(_path_name(node), _ending(value))), before.source)
                         for value in node.outputs})
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
            if (INPUT not in (one.source, two.source) and one.path == two.path
                    and self._ours.vertices[one.source].what == self._theirs.vertices[two.source].what):
                yield one.source, two.source
        ours, theirs = (self._by_way(of, number) for of, number in ((self._ours, own), (self._theirs, other)))
        for way, readers in ours.items():
            if len(readers) == len(theirs.get(way, ())) == 1:
                yield readers[0], theirs[way][0]

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


class Maker:
    """Makes nodes that stand for `node`, at the end of `nodes`; what is known is computed at once."""

    def __init__(self, node: Node, nodes: list[Node]) -> None:
        self._node, self._nodes = node, nodes

    def __call__(self, op: str, *inputs: Value, **attrs: object) -> Value:
        made = make_folded(op, inputs, attrs, self._node.origin)
        self._nodes.append(made)
        return made.outputs[0]

    def kept(self, op: str, *inputs: Value, **attrs: object) -> Value:
        """Also where it follows from constants."""
        self._nodes.append(make_node(op, list(inputs), attrs, self._node.origin))
        return self._nodes[-1].outputs[0]

    def constant(self, array: np.ndarray | np.generic) -> Value:
        return self("constant", value=np.asarray(array))


BIAS, EQUALISATION, SMOOTHING = "bias", "equalisation", "smoothing"
DIVIDING = (SMOOTHING, EQUALISATION)
"""The corrections that divide data by factors."""
CORRECTIONS = (*DIVIDING, BIAS)
"""In the order in which they are tried."""
_MOST_SCALE = float(np.finfo(np.float32).max)
_PARTS = 1 << 10
"""Parts of a step, in which errors of rounding are counted: half of them at most."""
_MOST_SUM = 2 ** 31 // (_PARTS // 2) - 1
"""The largest sum of means: times the largest error it fits i32."""


def bias_correction(made: Maker, node: Node, whole: Value, steps: Value, means: np.ndarray) -> Value:
    """f32[O], what is added to the bias so that results have the mean that they have with float weights: nodes that
    depend on the weights, or the constant that they give.

    Nagel et al., section 4.2: with weights W and W' = W + e the results' means differ by e E[x], which is taken off
    again. Of a convolution e is summed over the kernel; so pixels of padding count as if they had the mean, too.

    Sums are of integers, and so the same in any order: e in 1/1024 of a step, means in parts of what the largest sum
    allows.

    Args:
        node: the product, whose operand 1 is W.
        whole: i8, as W, what they are rounded to.
        steps: f32[O], of each output channel: W' is whole * steps.
        means: float [I], of each input channel over samples, and pixels: finite.

    Raises:
        CalibrationError: the number of means is another.
    """
    weights, axes = node.inputs[1], weight_axes(node)
    channels = weights.shape[axes[1]] * node.attrs.get("groups", 1)
    if means.shape != (channels,):
        raise CalibrationError(f"recipe: found {means.size} means of the data of {node}, expected {channels}: it is of "
                               "another model")
    others = tuple(at for at in range(weights.type.rank) if at != axes[0])
    each = by_input(node, means.astype(np.float64))
    kernel = weights.type.size // (weights.shape[axes[0]] * weights.shape[axes[1]])
    largest = np.abs(each).sum(axis=others).max(initial=0) * kernel
    unit = max(largest / _MOST_SUM, LEAST_SCALE)
    rows = made("reshape", steps, shape=tuple(size if at == axes[0] else 1 for at, size in enumerate(weights.shape)))
    rest = made("subtract", made("convert", whole, element="f32"), made("divide", weights, rows))
    parts = made("convert", made("round", made("multiply", rest, made.constant(np.float32(_PARTS)))), element="i32")
    weighted = made("multiply", parts, made.constant(np.trunc(each / unit).astype(np.int32)))
    sums = made("convert", made("reduce_sum", weighted, axes=others), element="f32")
    return made("multiply", made("multiply", sums, made.constant(np.float32(-unit / _PARTS))), steps)


def equalisation_scales(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """float32[C], the scales s by which two layers, one behind the other, have equal ranges per channel.

    Nagel et al., section 4.1: s = sqrt(r1 r2) / r2. The first layer's output channels, weights and bias, are divided by
    s, the second layer's input channels multiplied, which changes no result where what is between the two commutes with
    a positive factor (ReLU, PReLU, max and mean pooling, nothing). Both ranges are sqrt(r1 r2) then.

    Where the first layer's weights have one scale for all channels, r1 is their range, as in the paper. Where they have
    a scale for each, which takes s up, r1 is the range of its results, which have one scale for all.

    A channel is dead where either range is 0: no weights make it, or none read it. Its scale is 1.

    Args:
        first: float [C], r1, the largest magnitude of the first layer's weights, or results, by output channel.
        second: float [C], r2, that of the second layer's weights by input channel.

    Raises:
        ConfigError: the shapes differ, or a range is negative or not finite.
    """
    _check("ranges", first, second)
    r1, r2 = first.astype(np.float64), second.astype(np.float64)
    alive = (r1 > 0) & (r2 > 0)
    return _positive(np.sqrt(r1, where=alive, out=np.ones_like(r1)) / np.sqrt(r2, where=alive, out=np.ones_like(r2)))


def smoothing_factors(activations: np.ndarray, weights: np.ndarray, alpha: float = 0.5) -> np.ndarray:
    """float32[I], the factors s by which outliers of activations move into the weights of a product.

    Xiao et al., equation 4: s_j = max|X_j|**alpha / max|W_j|**(1 - alpha). Activations are divided by s, by input
    channel, and the weights that they are multiplied with multiplied, which changes no result. With alpha 1 all of it
    moves to the weights, with 0 all to the activations; the paper takes 0.5, and 0.75 where outliers are larger.

    A channel is dead where either magnitude is 0. Its factor is 1.

    Args:
        activations: float [I], the largest magnitude of each input channel over samples.
        weights: float [I], that of the weights by input channel.

    Raises:
        ConfigError: the shapes differ, a magnitude is negative or not finite, or alpha is not from 0 to 1.
    """
    if not 0 <= alpha <= 1:
        raise ConfigError(f"found alpha {alpha} to smooth with, expected one from 0 to 1")
    _check("magnitudes of activations and weights", activations, weights)
    x, w = activations.astype(np.float64), weights.astype(np.float64)
    alive = (x > 0) & (w > 0)
    return _positive(np.where(alive, x, 1.0) ** alpha / np.where(alive, w, 1.0) ** (1 - alpha))


def _check(what: str, first: np.ndarray, second: np.ndarray) -> None:
    if first.ndim != 1 or first.shape != second.shape:
        raise ConfigError(f"found {what} of shapes {list(first.shape)} and {list(second.shape)}, expected one number "
                          "for each channel in both")
    for array in (first, second):
        bad = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
        if bad.size:
            raise ConfigError(f"found {what} of {array[bad[0]]} in channel {bad[0]}, expected finite ones from 0 on")


def _positive(scales: np.ndarray) -> np.ndarray:
    """Clip the scales to positive normal numbers of float32, by which one can divide."""
    return np.clip(scales, LEAST_SCALE, _MOST_SCALE).astype(np.float32)
