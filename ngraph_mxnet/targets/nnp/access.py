"""Boxes: the part of a tensor that an engine or an instruction computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, NamedTuple

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.types import Shape


class Box(NamedTuple):
    """The elements from index `begin` on, `shape` of them along each axis."""

    begin: Shape
    shape: Shape

    @property
    def size(self) -> int:
        return prod(self.shape)

    def contains(self, other: Box) -> bool:
        sides = zip(self.begin, self.shape, other.begin, other.shape, strict=True)
        return all(a <= b and b + m <= a + n for a, n, b, m in sides)

    def overlaps(self, other: Box) -> bool:
        """True if the two boxes share an index."""
        sides = zip(self.begin, self.shape, other.begin, other.shape, strict=True)
        return all(a < b + m and b < a + n for a, n, b, m in sides)

    def meet(self, other: Box) -> Box | None:
        """Return the intersection of the two boxes; None if it is empty."""
        begin = tuple(map(max, self.begin, other.begin))
        end = (min(a + n, b + m) for a, n, b, m in zip(self.begin, self.shape, other.begin, other.shape, strict=True))
        shape = tuple(e - b for b, e in zip(begin, end, strict=True))
        return Box(begin, shape) if all(n > 0 for n in shape) else None

    def along(self, axis: int, begin: int, size: int) -> Box:
        """The box with another range on `axis`."""
        return Box(_put(self.begin, axis, begin), _put(self.shape, axis, size))

    def shifted(self, origin: Shape) -> Box:
        """The box as seen from `origin`."""
        return Box(tuple(b - o for b, o in zip(self.begin, origin, strict=True)), self.shape)


def _put(values: Shape, axis: int, value: int) -> Shape:
    return (*values[:axis], value, *values[axis + 1 :])


def full(shape: Shape) -> Box:
    return Box((0,) * len(shape), tuple(shape))


def even(size: int, parts: int, multiple: int = 1) -> list[tuple[int, int]]:
    """[0, size) in at most `parts` ranges (begin, size), as even as multiples of `multiple` can be."""
    step = -(-size // parts)
    step = -(-step // multiple) * multiple
    return [(begin, min(step, size - begin)) for begin in range(0, size, step)] or [(0, size)]


def cut(box: Box, parts: Mapping[int, int], multiples: Mapping[int, int] | None = None) -> Iterator[Box]:
    """The boxes that `parts` cuts along each of its axes make of `box`; the first axis named varies slowest."""
    multiples = multiples or {}
    ranges = [even(box.shape[axis], count, multiples.get(axis, 1)) for axis, count in parts.items()]
    for choice in product(*ranges):
        piece = box
        for axis, (begin, size) in zip(parts, choice, strict=True):
            piece = piece.along(axis, box.begin[axis] + begin, size)
        yield piece


@dataclass(frozen=True)
class Read:
    """The boxes of the operands and of the outputs, and the attributes for these."""

    inputs: list[Box]
    outputs: list[Box]
    attrs: Mapping[str, Any]

    @property
    def shapes(self) -> tuple[list[Shape], list[Shape]]:
        """Those of the operands and of the outputs."""
        return [box.shape for box in self.inputs], [box.shape for box in self.outputs]


@dataclass(frozen=True)
class Way:
    """One axis to cut along: its number in each output and operand, None where that is needed whole.

    An operand whose size there is 1 is broadcast.
    """

    outputs: tuple[int | None, ...]
    inputs: tuple[int | None, ...]


def ways(node: Node) -> dict[int, Way]:
    """By axis of the first output: how the node is cut along it. What a cut does to windows and groups `read` says."""
    rule = _right_aligned if node.op.elementwise else _BY_KIND.get(node.op.kind) or _BY_NAME.get(node.op.name)
    found = rule(node) if rule is not None else {}
    return {axis: way for axis, way in found.items() if node.outputs[0].shape[axis] > 1}


def read(node: Node, box: Box) -> Read:
    """Return the boxes that the node reads and writes for `box` of its first output, and its attributes for `box`.

    `box` is cut only along axes of `ways`.
    """
    table = ways(node)
    inputs = [full(value.shape) for value in node.inputs]
    outputs = [full(value.shape) for value in node.outputs]
    attrs = dict(node.attrs)
    for axis, way in table.items():
        begin, size = box.begin[axis], box.shape[axis]
        for boxes, axes in ((outputs, way.outputs), (inputs, way.inputs)):
            for position, own in enumerate(axes):
                if own is not None and boxes[position].shape[own] > 1:
                    boxes[position] = boxes[position].along(own, begin, size)
    if node.op.name == "broadcast":
        attrs["shape"] = box.shape
    elif node.op.name == "slice":
        attrs["end"] = tuple(inputs[0].shape[axis] if axis in table else end
                             for axis, end in enumerate(node.attrs["end"]))
    if node.op.kind == "convolution":
        _convolution(node, box, inputs, attrs)
    elif node.op.kind == "pool":
        for axis in range(len(node.attrs["kernel"])):
            if box.shape[2 + axis] != node.outputs[0].shape[2 + axis]:
                _window(node, box, axis, node.attrs["kernel"][axis], inputs, attrs)
    return Read(inputs, outputs, attrs)


def _convolution(node: Node, box: Box, inputs: list[Box], attrs: dict[str, Any]) -> None:
    weights = node.inputs[1].shape
    for axis, kernel in enumerate(weights[2:]):
        if box.shape[2 + axis] != node.outputs[0].shape[2 + axis]:
            _window(node, box, axis, (kernel - 1) * node.attrs["dilations"][axis] + 1, inputs, attrs)
    groups, outputs = node.attrs["groups"], weights[0]
    if groups > 1 and box.shape[1] != outputs:
        each = outputs // groups
        first, last = box.begin[1] // each, (box.begin[1] + box.shape[1] - 1) // each
        attrs["groups"] = last - first + 1
        inputs[0] = inputs[0].along(1, first * weights[1], (last - first + 1) * weights[1])


def _window(node: Node, box: Box, axis: int, reach: int, inputs: list[Box], attrs: dict[str, Any]) -> None:
    """The rows under the windows of the box's rows, and the padding that is left at either end."""
    size, stride = node.inputs[0].shape[2 + axis], node.attrs["strides"][axis]
    first = box.begin[2 + axis] * stride - node.attrs["pads_begin"][axis]
    stop = first + (box.shape[2 + axis] - 1) * stride + reach
    last = box.begin[2 + axis] + box.shape[2 + axis] == node.outputs[0].shape[2 + axis]
    pads = {"pads_begin": max(-first, 0), "pads_end": node.attrs["pads_end"][axis] if last else max(stop - size, 0)}
    begin, end = max(first, 0), size if last else min(stop, size)
    inputs[0] = inputs[0].along(2 + axis, begin, end - begin)
    for name, value in pads.items():
        attrs[name] = tuple(value if position == axis else old for position, old in enumerate(attrs[name]))


def granule(node: Node, axis: int) -> int:
    """Return the number that a cut of `axis` must be a multiple of.

    Channels of a grouped convolution are cut into whole groups; the number is 1 otherwise.
    """
    if node.op.kind == "convolution" and axis == 1 and node.attrs["groups"] > 1:
        return node.inputs[1].shape[0] // node.attrs["groups"]
    return 1


# ---- the table ------------------------------------------------------------------------------------------

Rule = Callable[[Node], dict[int, Way]]


def _right_aligned(node: Node) -> dict[int, Way]:
    rank = len(node.outputs[0].shape)
    return {axis: Way((axis,), tuple(_aligned(axis, rank, v.shape, node.outputs[0].shape) for v in node.inputs))
            for axis in range(rank)}


def _aligned(axis: int, rank: int, shape: Shape, result: Shape) -> int | None:
    own = axis - (rank - len(shape))
    return own if own >= 0 and shape[own] == result[axis] else None


def _except(node: Node) -> dict[int, Way]:
    """Cuts along every axis but `axis`, along which the operands of rank 1 (gamma, beta) lie: these are read whole."""
    shape = node.outputs[0].shape
    return {axis: Way((axis,), (axis, *(None for _ in node.inputs[1:]))) for axis in range(len(shape))
            if axis != node.attrs["axis"] % len(shape)}


def _kept(axes: tuple[int, ...], keep: bool) -> Callable[[Node], dict[int, Way]]:
    def rule(node: Node) -> dict[int, Way]:
        rank = len(node.inputs[0].shape)
        gone = {axis % rank for axis in axes}
        left = [axis for axis in range(rank) if axis not in gone]
        return {axis if keep else position: Way((axis if keep else position,), (axis,))
                for position, axis in enumerate(left)}

    return rule


def _reduction(node: Node) -> dict[int, Way]:
    return _kept(node.attrs["axes"], node.attrs["keep_dims"])(node)


def _choice(node: Node) -> dict[int, Way]:
    return _kept((node.attrs["axis"],), node.attrs["keep_dims"])(node)


def _rows(count: int) -> Rule:
    """The first `count` axes of operand 0; operands 1 and up are vectors along axis 1."""

    def rule(node: Node) -> dict[int, Way]:
        outputs = len(node.outputs)
        return {axis: Way((axis,) * outputs, (axis, *(0 if axis == 1 else None for _ in node.inputs[1:])))
                for axis in range(min(count, len(node.outputs[0].shape)))}

    return rule


def _channels(node: Node) -> dict[int, Way]:
    return _rows(len(node.outputs[0].shape))(node)


def _convolution_ways(node: Node) -> dict[int, Way]:
    more = len(node.inputs) - 2
    table = {0: Way((0,), (0, None, None, 0)[: 2 + more]), 1: Way((1,), (None, 0, 0, 1)[: 2 + more])}
    if all(step == 1 for step in node.attrs["data_dilations"]):
        table[2] = Way((2,), (None, None, None, 2)[: 2 + more])
    return table


def _product_ways(node: Node) -> dict[int, Way]:
    rank = len(node.outputs[0].shape)
    a, b = (value.shape for value in node.inputs[:2])
    bias = (None,) * (len(node.inputs) - 2)
    table = {}
    for axis in range(rank - 2):
        own = tuple(axis - (rank - len(shape)) for shape in (a, b))
        table[axis] = Way((axis,), (*(at if at >= 0 else None for at in own), *bias))
    rows = len(a) - (1 if node.attrs["transpose_a"] else 2)
    columns = len(b) - (2 if node.attrs["transpose_b"] else 1)
    table[rank - 2] = Way((rank - 2,), (rows, None, *bias))
    table[rank - 1] = Way((rank - 1,), (None, columns, *(0 for _ in bias)))
    return table


def _attention(node: Node) -> dict[int, Way]:
    rank = len(node.outputs[0].shape)
    masks = [value.shape for value in node.inputs[3:]]

    def mask(axis: int) -> tuple[int | None, ...]:
        return tuple(axis - (rank - len(m)) if axis >= rank - len(m) else None for m in masks)

    table = {axis: Way((axis,), (axis, axis, axis, *mask(axis))) for axis in range(rank - 2)}
    table[rank - 2] = Way((rank - 2,), (rank - 2, None, None, *mask(rank - 2)))
    return table


def _concat(node: Node) -> dict[int, Way]:
    rank = len(node.outputs[0].shape)
    return {axis: Way((axis,), (axis,) * len(node.inputs)) for axis in range(rank) if axis != node.attrs["axis"] % rank}


def _pad(node: Node) -> dict[int, Way]:
    pads = zip(node.attrs["pads_begin"], node.attrs["pads_end"], strict=True)
    return {axis: Way((axis,), (axis,)) for axis, both in enumerate(pads) if both == (0, 0)}


def _slice(node: Node) -> dict[int, Way]:
    sizes = node.inputs[0].shape
    bounds = zip(node.attrs["begin"], node.attrs["end"], node.attrs["strides"], sizes, strict=True)
    return {axis: Way((axis,), (axis,)) for axis, (b, e, s, size) in enumerate(bounds) if (b, e, s) == (0, size, 1)}


def _transpose(node: Node) -> dict[int, Way]:
    return {axis: Way((axis,), (own,)) for axis, own in enumerate(node.attrs["order"])}


def _gather(node: Node) -> dict[int, Way]:
    """Cuts along the axes of the indices, and along those of the data that are not indexed."""
    data, indices = (value.shape for value in node.inputs)
    at = node.attrs["axis"] % len(data)
    table: dict[int, Way] = {axis: Way((axis,), (axis, None)) for axis in range(at)}
    table |= {at + axis: Way((at + axis,), (None, axis)) for axis in range(len(indices))}
    behind = len(indices) - 1
    table |= {axis + behind: Way((axis + behind,), (axis, None)) for axis in range(at + 1, len(data))}
    return table


def _gather_elements(node: Node) -> dict[int, Way]:
    shape = node.outputs[0].shape
    at = node.attrs["axis"] % len(shape)
    return {axis: Way((axis,), (None if axis == at else axis, axis)) for axis in range(len(shape))}


def _first(node: Node) -> dict[int, Way]:
    """Cuts along the first axis of all operands and outputs."""
    return {0: Way((0,) * len(node.outputs), (0,) * len(node.inputs))}


def _first_two(node: Node) -> dict[int, Way]:
    return {axis: Way((axis,), (axis,)) for axis in (0, 1)}


def _regions(node: Node) -> dict[int, Way]:
    """Cuts along the regions, which need all images, and along the channels."""
    return {0: Way((0,), (None, 0)), 1: Way((1,), (1, None))}


def _pool(node: Node) -> dict[int, Way]:
    return {axis: Way((axis,), (axis if axis < 2 else None,)) for axis in (0, 1, 2)}


def _steps(node: Node) -> dict[int, Way]:
    """Cuts along the batch of a recurrent layer."""
    states = {4: (1, None, None, 0), 5: (1, None, None, 0, 0), 6: (1, None, None, 0, 0, None)}[len(node.inputs)]
    return {1: Way((1, *(0 for _ in node.outputs[1:])), states)}


_BY_KIND: dict[str, Rule] = {
    "reduction": _reduction, "row": _except, "convolution": _convolution_ways, "product": _product_ways, "pool": _pool,
}
_BY_NAME: dict[str, Rule] = {
    **dict.fromkeys(("argmax", "argmin"), _choice),
    **dict.fromkeys(("scale_shift", "batch_norm"), _channels),
    **dict.fromkeys(("adaptive_avg_pool", "adaptive_avg_pool_gradient", "resize", "resize_gradient"), _first_two),
    **dict.fromkeys(("lstm_cell", "gru_cell", "batch_norm_factors", "bilinear_sample", "box_nms", "lrn"), _first),
    **dict.fromkeys(("argsort", "cumsum"), _except),
    "attention": _attention,
    "broadcast": _right_aligned,
    "concat": _concat,
    "gather": _gather,
    "gather_elements": _gather_elements,
    "pad": _pad,
    "slice": _slice,
    "transpose": _transpose,
    "rnn": _steps,
    "gru_reset_first": lambda node: {1: Way((1, 0), (1, None, None, None, None, 0))},
    "roi_align": _regions,
    "roi_max_pool": _regions,
}
