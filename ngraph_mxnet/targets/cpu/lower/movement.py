"""Ops that move elements: mostly views, else strided copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from operator import mul

import numpy as np

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.sizes import are_same, are_same_shape, is_one, is_zero
from ngraph_mxnet.ir.types import Shape, TensorType, f32
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.targets.cpu.params.strided import SIZE_SUFFIX, merged_dims
from ngraph_mxnet.targets.cpu.planning.view import BLOCK, BlockedView, PlainView, contiguous_strides, plain_view


@lowers("constant")
def constant(ctx: Lowering, node: Node) -> None:
    """Nothing: it is stored in the Program that reads it, when that is lowered."""


@lowers("identity", "dropout")
def identity(ctx: Lowering, node: Node) -> None:
    """The same memory."""
    ctx.alias(node.output, node.inputs[0])


@lowers("reshape")
def reshape(ctx: Lowering, node: Node) -> None:
    """The same memory, if strides can say so or the operand has no gaps."""
    if _cuts_blocks(ctx, node) or _joins_blocks(ctx, node):
        return
    source = ctx.plain(node.inputs[0])
    strides = moved_strides(source.type.shape, source.strides, node.output.shape)
    if strides is None:
        source = ctx.contiguous(node.inputs[0])
        strides = contiguous_strides(node.output.shape)
    ctx.set_plain(node.output, _see(source, node.output.type, strides))


def _cuts_blocks(ctx: Lowering, node: Node) -> bool:
    """[N, C, ..] as [N, C / 16, 16, ..], of what lies in the blocked layout."""
    value, shape = node.inputs[0], node.inputs[0].shape
    if not ctx.has_blocked(value) or len(shape) not in (3, 4) or shape[1] % BLOCK:
        return False
    if not are_same_shape(node.output.shape, (shape[0], shape[1] // BLOCK, BLOCK, *shape[2:])):
        return False
    view = ctx.blocked(value)
    strides = (view.image, view.block, 1, *(view.row, view.pixel)[4 - len(shape):])
    ctx.set_plain(node.output, PlainView(node.output.type, view.buffer, view.offset, view.writers, strides))
    return True


def _joins_blocks(ctx: Lowering, node: Node) -> bool:
    """The way back: [N, C / 16, 16, ..], where 16 channels are neighbours, as [N, C, ..] in the blocked layout."""
    value, shape = node.inputs[0], node.inputs[0].shape
    if len(shape) not in (4, 5) or not are_same_shape(node.output.shape, (shape[0], shape[1] * BLOCK, *shape[3:])):
        return False
    if shape[2] != BLOCK or value.type.element is not f32 or ctx.has_blocked(value):
        return False
    source = ctx.plain(value)
    if source.strides[2] != 1 or source.strides[-1] != BLOCK:
        return False
    row = source.strides[3] if len(shape) == 5 else shape[3] * BLOCK
    view = BlockedView(node.output.type, source.buffer, source.offset, source.writers, source.strides[0],
                       source.strides[1], row)
    if ctx.layout.halo.get(node.output) or node.output in ctx.layout.placement:
        view = ctx.converted(view, ctx.new_blocked(node.output, narrow=True))
    ctx.set_blocked(node.output, view)
    return True


def moved_strides(shape: Shape, strides: Sequence[int], wanted: Shape) -> tuple[int, ...] | None:
    """Strides over `wanted`, of the same elements in the same order, or None where one stride an axis can't say it.

    >>> moved_strides((4, 6), (1, 4), (4, 2, 3)), moved_strides((4, 6), (1, 4), (24,))
    ((1, 12, 4), None)
    """
    if 0 in shape:
        return contiguous_strides(wanted)
    runs = merged_dims(shape, [strides])[::-1]
    result, inner = [], 1
    for size in reversed(wanted):
        if is_one(size):
            result.append(1)
            continue
        while runs and are_same(inner, runs[0][0]):
            runs, inner = runs[1:], 1
        if not runs or not is_zero(runs[0][0] % (inner * size)):
            return None
        result.append(inner * runs[0][1][0])
        inner *= size
    return tuple(reversed(result))


@lowers("bitcast")
def bitcast(ctx: Lowering, node: Node) -> None:
    """The same memory."""
    source = ctx.plain(node.inputs[0])
    ctx.set_plain(node.output, _see(source, node.output.type, source.strides))


@lowers("transpose")
def transpose(ctx: Lowering, node: Node) -> None:
    """A view; whoever needs contiguous memory copies."""
    source = ctx.plain(node.inputs[0])
    ctx.set_plain(node.output, _see(source, node.output.type, tuple(source.strides[i] for i in node.attrs["order"])))


@lowers("broadcast")
def broadcast(ctx: Lowering, node: Node) -> None:
    """A view with strides of 0."""
    source = ctx.plain(node.inputs[0])
    ctx.set_plain(node.output, _see(source, node.output.type, broadcast_strides(source, node.output.shape)))


def broadcast_strides(view: PlainView, shape: Shape) -> tuple[int, ...]:
    """The view's strides over `shape`, to which it broadcasts as in NumPy."""
    missing = len(shape) - view.type.rank
    own = [s if are_same(d, target) or d != 1 else 0
           for d, s, target in zip(view.type.shape, view.strides, shape[missing:], strict=True)]
    return (0,) * missing + tuple(own)


@lowers("slice")
def slice_(ctx: Lowering, node: Node) -> None:
    """A view, also for negative steps."""
    source = ctx.plain(node.inputs[0])
    begin, steps = node.attrs["begin"], node.attrs["strides"]
    offset = sum(b * s for b, s in zip(begin, source.strides, strict=True)) if node.output.type.size else 0
    strides = tuple(step * s for step, s in zip(steps, source.strides, strict=True))
    ctx.set_plain(node.output, _see(source, node.output.type, strides, offset))


def _see(view: PlainView, type_: TensorType, strides: tuple[int, ...], first: int = 0) -> PlainView:
    """The same memory with another shape and strides, starting `first` elements further."""
    return PlainView(type_, view.buffer, view.offset + first * type_.element.size, view.writers, strides)


def plain_concat(ctx: Lowering, node: Node) -> None:
    """One strided copy an operand."""
    out, axis = ctx.new_plain(node.output.type), node.attrs["axis"]
    first = 0
    for value in node.inputs:
        part = PlainView(value.type, out.buffer, out.offset + first * out.strides[axis] * value.type.element.size,
                         out.writers, out.strides)
        ctx.copy(ctx.plain(value), part)
        first += value.shape[axis]
    ctx.set_plain(node.output, out)


@lowers("pad")
def pad(ctx: Lowering, node: Node) -> None:
    """The value everywhere, then a copy inside; edges and mirror images are copies too."""
    if node.attrs["mode"] != "constant":
        _pad_with_elements(ctx, node)
        return
    source, out = ctx.plain(node.inputs[0]), ctx.new_plain(node.output.type)
    size = node.output.type.element.size
    with np.errstate(all="ignore"):
        array = np.asarray(node.attrs["value"]).astype(node.output.type.element.numpy)
    value = plain_view(node.output.type.with_shape(()), ctx.builder.constant(array))
    ctx.strided(f"copy_{SIZE_SUFFIX[size]}", out.type.shape, [(value, (0,) * out.type.rank)], (out, out.strides))
    first = sum(p * s for p, s in zip(node.attrs["pads_begin"], out.strides, strict=True))
    inside = PlainView(source.type, out.buffer, first * size, strides=out.strides)
    ctx.strided(f"copy_{SIZE_SUFFIX[size]}", source.type.shape, [(source, source.strides)],
                (inside, inside.strides), after=[out])
    ctx.set_plain(node.output, PlainView(out.type, out.buffer, 0, [*out.writers, *inside.writers], out.strides))


def _pad_with_elements(ctx: Lowering, node: Node) -> None:
    """One copy for each combination of the parts of the axes."""
    source, out, size = ctx.plain(node.inputs[0]), ctx.new_plain(node.output.type), node.output.type.element.size
    pads = zip(source.type.shape, node.attrs["pads_begin"], node.attrs["pads_end"], strict=True)
    for parts in product(*(_padded_parts(*sizes, node.attrs["mode"]) for sizes in pads)):
        targets, firsts, steps, counts = zip(*parts, strict=True)
        type_ = source.type.with_shape(counts)
        strides = tuple(step * stride for step, stride in zip(steps, source.strides, strict=True))
        read = _see(source, type_, strides, sum(map(mul, firsts, source.strides)))
        ctx.copy(read, PlainView(type_, out.buffer, out.offset + sum(map(mul, targets, out.strides)) * size,
                                 out.writers, out.strides))
    ctx.set_plain(node.output, out)


def _padded_parts(size: int, begin: int, end: int, mode: str) -> Iterator[tuple[int, int, int, int]]:
    """A padded axis in parts that read with a constant step: place in the result, first element, step and count."""
    places = [int(place) for place in np.pad(np.arange(size), (begin, end), mode)]  # type: ignore[call-overload]
    for at, stop in ((0, begin), (begin, begin + size), (begin + size, begin + size + end)):
        while at < stop:
            step = places[at + 1] - places[at] if at + 1 < stop else 1
            count = next((i for i in range(1, stop - at) if places[at + i] != places[at] + i * step), stop - at)
            yield at, places[at], step, count
            at += count
