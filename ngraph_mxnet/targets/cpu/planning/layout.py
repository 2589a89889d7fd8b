"""A convolution of data with zeros between its elements, cut into an ordinary one for each phase of its result.

Output y meets the data where `y + tap * dilation - pad` is a multiple of the data's dilation s. Outputs of one phase
y mod s meet it with the same taps, in steps of one element: a convolution of stride 1 with those taps alone. Nothing is
multiplied with the zeros (Shi et al., "Is the deconvolution layer the same as a convolutional layer?", 2016).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import product
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from ngraph_mxnet.ir.graph import Graph, Node, Value, constant_of
from ngraph_mxnet.ir.sizes import are_same, are_same_shape, is_one, is_symbolic, is_zero
from ngraph_mxnet.ir.types import f32
from ngraph_mxnet.targets.cpu.microkernels.variants import ACTIVATIONS, FIRST_CALLED
from ngraph_mxnet.targets.cpu.planning.view import BLOCK, Halo, pair


@dataclass(frozen=True)
class AxisPhase:
    """Outputs `first`, `first + s`, ... (`count` of them) on one axis.

    They are the convolution with the `taps` taps `tap`, `tap + tap_step`, ... that lie `dilation` elements apart in the
    data, padded with `pad` elements at the beginning; a negative `pad` skips elements. Where strides leave out places
    that no tap reaches, as those of 1x1 do, there are 0 taps.
    """

    first: int
    count: int
    tap: int
    tap_step: int
    taps: int
    dilation: int
    pad: int

    def reach(self) -> int:
        """One past the last element that is read."""
        if self.taps == 0:
            return 0
        return self.count + (self.taps - 1) * self.dilation - self.pad


class Phases(NamedTuple):
    """All phases in two dimensions, the zero border of the data that serves them all, and the data's dilations."""

    pairs: tuple[tuple[AxisPhase, AxisPhase], ...]
    halo: Halo
    steps: tuple[int, int]


def axis_phases(out: int, kernel: int, dilation: int, step: int, pad: int) -> list[AxisPhase]:
    """The phases of an axis of `out` outputs."""
    result = []
    tap_step = step // gcd(step, dilation)
    for first in range(min(step, out)):
        met = [tap for tap in range(kernel) if (first + tap * dilation - pad) % step == 0]
        count = -(-(out - first) // step)
        if not met:
            result.append(AxisPhase(first, count, 0, tap_step, 0, 1, 0))
            continue
        result.append(AxisPhase(first, count, met[0], tap_step, len(met), tap_step * dilation // step,
                                -((first + met[0] * dilation - pad) // step)))
    return result


def cut(size: tuple[int, int], out: tuple[int, int], kernel: tuple[int, int], dilations: tuple[int, int],
        steps: tuple[int, int], pads: tuple[int, int]) -> Phases:
    """The phases of a convolution of stride 1; each argument is of height and width."""
    rows, columns = (axis_phases(*row) for row in zip(out, kernel, dilations, steps, pads, strict=True))
    before = [max(0, *(phase.pad for phase in axis)) for axis in (rows, columns)]
    after = [max(0, *(phase.reach() - length for phase in axis))
             for axis, length in zip((rows, columns), size, strict=True)]
    return Phases(tuple(product(rows, columns)), Halo(before[0], after[0], before[1], after[1]), steps)


class LayoutPlan(NamedTuple):
    """`halo`: the border each blocked value needs, of zeros or what `fill` says; a reader that wants another `fill`
    makes a copy. `placement`: value -> (concat output, first block)."""

    halo: dict[Value, Halo]
    placement: dict[Value, tuple[Value, int]]
    fill: dict[Value, int]


def plan_layout(graph: Graph, narrow: Collection[Value] = (), *, in_place: bool = True) -> LayoutPlan:
    """Decide for every value of `graph` which halo it has and in which concat's place it is made.

    Whoever makes it does so there: its producer, or else the conversion to the blocked layout that the concat asks for.
    Only values stored like the concat's are; `narrow` are those stored in bf16. A value has one place, and
    none without `in_place`.
    """
    halo: dict[Value, Halo] = {}
    placement: dict[Value, tuple[Value, int]] = {}
    fill: dict[Value, int] = {}
    for node in graph.nodes:
        if node.op.kind == "convolution":
            data = node.inputs[0]
            halo[data] = halo.get(data, Halo()).cover(convolution_halo(node))
            if convolution_halo(node):
                fill.setdefault(data, node.attrs.get("pad_value", 0))
        if node.op.name == "convolution_weight_gradient":
            data = node.inputs[0]
            halo[data] = halo.get(data, Halo()).cover(gradient_halo(node))
        if in_place and is_blocked_concat(node):
            first = 0
            for operand in node.inputs:
                if (operand in narrow) == (node.output in narrow) and operand not in placement:
                    placement[operand] = (node.output, first)
                first += operand.shape[1] // BLOCK
    for value in placement:  # a child comes before its parent: what any of them needs reaches the root,
        parent = placement[value][0]
        halo[parent] = halo.get(parent, Halo()).cover(halo.get(value, Halo()))
        if value in fill:
            fill.setdefault(parent, fill[value])
    for value in reversed(placement):  # and the root's halo is everyone's
        halo[value] = halo[placement[value][0]]
        fill[value] = fill.get(placement[value][0], 0)
    return LayoutPlan(halo, placement, fill)


def plan_activations(graph: Graph, *, narrow: bool = False) -> dict[Node, Node]:
    """For convolutions the activation that they compute too: the only reader of their only result, which is no result
    of the graph. Those that are of what is stored are not of bytes, nor of bf16 (`narrow`)."""
    readers, results, found = graph.readers(), set(graph.results), {}
    for node in graph.nodes:
        if node.op.kind != "convolution" or len(node.outputs) != 1 or node.outputs[0] in results:
            continue
        value, = node.outputs
        if len(readers[value]) == 1 and _follows(value, readers[value][0][0], narrow or node.op.multiplies_bytes):
            found[node] = readers[value][0][0]
    return found


def _follows(value: Value, reader: Node, inline: bool) -> bool:
    """True if a convolution's kernel computes the reader of its result. `inline`: before that result is stored."""
    name = reader.op.name
    if name == "prelu":
        slopes = reader.inputs[1]
        if reader.inputs[0] is not value or not (slopes.node is None or constant_of(slopes) is not None):
            return False
        padded = (*(1,) * (value.type.rank - slopes.type.rank), *slopes.shape)
        return all(is_one(size) or (axis == 1 and are_same(size, value.shape[1])) for axis, size in enumerate(padded))
    number = ACTIVATIONS.get("prelu" if name == "leaky_relu" else name, 0)
    return number > 0 and (number < FIRST_CALLED or not inline)


def convolution_halo(node: Node) -> Halo:
    """The zero border of a convolution's data, in height and width."""
    phases = phases_of(node)
    if phases:
        return phases.halo
    return gradient_halo(node)


def gradient_halo(node: Node) -> Halo:
    """Return the halo that a weight gradient wants around its data: the convolution's padding."""
    begin, end = pair(node.attrs["pads_begin"], 0), pair(node.attrs["pads_end"], 0)
    return Halo(begin[0], end[0], begin[1], end[1])


def phases_of(node: Node) -> Phases | None:
    """How a convolution of data with zeros between its elements is cut; None for others, and where it can't be."""
    attrs, size = node.attrs, node.inputs[0].shape
    if len(size) > 5 or any(step > 1 for step in attrs["strides"]) or all(s == 1 for s in attrs["data_dilations"]):
        return None
    return cut(pair(size[2:], 1), pair(node.outputs[0].shape[2:], 1), pair(node.inputs[1].shape[2:], 1),
               pair(attrs["dilations"], 1), pair(attrs["data_dilations"], 1), pair(attrs["pads_begin"], 0))


def read_as_images(graph: Graph) -> frozenset[Value]:
    """The values that a convolution or pool reads as its data, or a concat of images."""
    images = (value for node in graph.nodes if node.op.kind in ("convolution", "pool") for value in node.inputs[:1])
    return frozenset((*images, *(v for node in graph.nodes if is_blocked_concat(node) for v in node.inputs)))


def plan_shuffles(graph: Graph) -> tuple[dict[Node, tuple[Value, list[int]]], set[Node]]:
    """The shuffles of channels between convolutions. For the node that ends one: the image, and its channel for each
    channel of the result. And the nodes within, which need not be computed."""
    readers, results = graph.readers(), set(graph.results)
    ends: dict[Node, tuple[Value, list[int]]] = {}
    within: set[Node] = set()
    for node in graph.nodes:
        found = _shuffle(node)
        if found is None or node.output in results:
            continue
        first, second = node.inputs[0], node.inputs[0].node.inputs[0]  # type: ignore[union-attr]
        source, read = found[0], readers[node.output]
        if all(value not in results and len(readers[value]) == 1 for value in (first, second)) and (
                source.node is not None and source.node.op.kind == "convolution"
                and any(reader.op.kind == "convolution" and place == 0 for reader, place in read)):
            ends[node] = found
            within.update(value.node for value in (first, second) if value.node is not None)
    return ends, within


def _shuffle(node: Node) -> tuple[Value, list[int]] | None:
    """The image of float32 whose channels the node's result has in another order: a reshape parts them, a transpose
    turns the parts, and the node joins them."""
    if node.op.name != "reshape" or node.output.type.rank not in (3, 4, 5) or node.output.type.element is not f32:
        return None
    transpose = node.inputs[0].node
    parting = transpose.inputs[0].node if transpose is not None and transpose.op.name == "transpose" else None
    if transpose is None or parting is None or parting.op.name != "reshape":
        return None
    (source,), parts, order = parting.inputs, parting.output.shape, transpose.attrs["order"]
    channels = source.shape[1] if source.type.rank > 1 else 0
    if is_symbolic(channels) or not are_same_shape(source.shape, node.output.shape) or not are_same(
            parts[0], source.shape[0]):
        return None
    last = 1
    while last < len(parts) and not is_symbolic(parts[last]) and prod(parts[1:last + 1]) < channels:
        last += 1
    inner, turned = parts[1:last + 1], order[1:last + 1]
    unturned = [axis for axis, of in enumerate(order) if axis == of]
    if any(map(is_symbolic, inner)) or prod(inner) != channels or sorted(turned) != list(range(1, last + 1)) or not (
            {0, *range(last + 1, len(parts))}.issubset(unturned)):
        return None
    places = np.arange(channels).reshape(inner).transpose([axis - 1 for axis in turned])
    return source, [int(place) for place in places.ravel()]


def is_global(node: Node, op: str) -> bool:
    """A reduction of this name over all axes but images and channels."""
    rank = node.inputs[0].type.rank if node.op.name == op else 0
    return rank > 2 and sorted(axis % rank for axis in node.attrs["axes"]) == list(range(2, rank))


def is_blocked_concat(node: Node) -> bool:
    """A concat of whole channel blocks of images. An axis 1 that changes counts steps, not channels."""
    if node.op.name != "concat" or node.attrs["axis"] != 1 or node.output.type.rank not in (3, 4, 5):
        return False
    return node.output.type.element.name in ("f32", "u8") and all(is_zero(v.shape[1] % BLOCK) for v in node.inputs)
