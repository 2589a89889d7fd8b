"""Ops that always write the blocked layout: pools, scale and shift, concatenation of whole blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.types import u8
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers, name_end, named_strides
from ngraph_mxnet.targets.cpu.lower.contraction import Linear, channel_blocks, check_depth, check_rank
from ngraph_mxnet.targets.cpu.lower.movement import plain_concat
from ngraph_mxnet.targets.cpu.params import Kernels
from ngraph_mxnet.targets.cpu.params.layout import SHUFFLE
from ngraph_mxnet.targets.cpu.params.reduction import (
    MAX_POOL_GRADIENT,
    MEANS_OF_BYTES,
    POOLS,
    SCALE_SHIFTS,
)
from ngraph_mxnet.targets.cpu.planning.gradients import pool_gradient_without_kernel
from ngraph_mxnet.targets.cpu.planning.layout import is_blocked_concat
from ngraph_mxnet.targets.cpu.planning.precision import Affine
from ngraph_mxnet.targets.cpu.planning.view import BF16, BLOCK, BlockedView, sub_blocks


def _check_pool(node: Node) -> str | None:
    """A maximum of u8 is one of bytes."""
    if node.op.name == "max_pool" and node.inputs[0].type.element is u8 and node.inputs[0].type.rank <= 5:
        return check_depth(node)
    return check_rank(node)


@lowers("max_pool", "avg_pool", check=_check_pool)
def pool(ctx: Lowering, node: Node) -> None:
    """1-D to 3-D. Windows are clipped to the image, so the halo is not read."""
    value, affine = ctx.stores.get(node.output, (node.output, None))
    out = ctx.new_blocked(value, narrow=True)
    window = _Window.of(node)
    if node.op.name == "avg_pool":
        _average(ctx, node.inputs[0], out, affine, window)
    else:
        source = ctx.narrow(node.inputs[0]) if out.type.element is BF16 else ctx.stored(node.inputs[0])
        _emit_pool(ctx, "max_pool_blocked", POOLS, source, out, window)
    ctx.set_blocked(value, out)


class _Window(NamedTuple):
    """A pool's; three numbers each, for D, H and W."""

    kernel: Sequence[int]
    strides: Sequence[int] = (1, 1, 1)
    pads_begin: Sequence[int] = (0, 0, 0)
    pads_end: Sequence[int] = (0, 0, 0)
    include_pad: bool = False

    @staticmethod
    def of(node: Node) -> _Window:
        fills = {"kernel": 1, "strides": 1, "pads_begin": 0, "pads_end": 0}
        return _Window(**{name: (fill, fill, *node.attrs[name])[-3:] for name, fill in fills.items()},
                       include_pad=node.attrs.get("include_pad", False))


def _average(ctx: Lowering, data: Value, out: BlockedView, affine: Affine | None, window: _Window) -> None:
    """Means of `data` as it is stored. `affine`: how `out` is stored as u8."""
    numbers: dict[str, float] = {}
    if data in ctx.quantized and out.type.element is not BF16:
        bytes_, read = ctx.quantized[data]
        source = ctx.blocked(bytes_)
        numbers = {"scale": read.scale, "zero_point": float(read.zero_point), "out_zero_point": 0.0}
    elif affine is not None:
        source, numbers = ctx.blocked(data), {"scale": 1.0, "zero_point": 0.0}
    else:
        source = ctx.narrow(data) if out.type.element is BF16 else ctx.stored(data)
    if affine is not None:
        numbers |= {"scale": numbers["scale"] / affine.scale, "out_zero_point": float(affine.zero_point)}
    _emit_pool(ctx, "avg_pool_blocked", MEANS_OF_BYTES if numbers else POOLS, source, out, window, **numbers)


def _emit_pool(ctx: Lowering, kernel: str, records: Mapping[str, Kernels], source: BlockedView, out: BlockedView,
               window: _Window, **floats: float) -> None:
    """`records` and the kernels by their names' ends."""
    suffix = name_end(source, out)
    params = records[suffix](
        n=source.type.shape[0], c16=source.blocks, d=_depth(source), h=source.height, w=source.width,
        windows=(_depth(out), out.height, out.width), kernel=window.kernel, stride=window.strides, dilation=(1, 1),
        pad=(*window.pads_begin, *window.pads_end), include_pad=window.include_pad, input=_slice_strides(source),
        output=_slice_strides(out), **floats)
    ctx.emit(kernel + suffix, params, input=source, output=out)


@lowers("max_pool_gradient", check=pool_gradient_without_kernel)
def max_pool_gradient(ctx: Lowering, node: Node) -> None:
    """1-D to 3-D. A task is what a block has of an image, to which overlapping windows add."""
    data, head = map(ctx.blocked, node.inputs)
    out = ctx.new_blocked(node.output)
    window = _Window.of(node)
    params = MAX_POOL_GRADIENT(
        n=data.type.shape[0], c16=data.blocks, d=_depth(data), h=data.height, w=data.width,
        windows=(_depth(head), head.height, head.width), kernel=window.kernel, stride=window.strides,
        pad=window.pads_begin, data=_slice_strides(data), head=_slice_strides(head), output=_slice_strides(out))
    ctx.emit("max_pool_gradient_blocked", params, data=data, head=head, output=out)
    ctx.set_blocked(node.output, out)


def _depth(view: BlockedView) -> int:
    """How many slices an image has."""
    return view.type.shape[2] if view.type.rank == 5 else 1


def _slice_strides(view: BlockedView) -> tuple[int, ...]:
    """Strides over (image, block, slice, row, pixel)."""
    slice_, block, row, pixel, _ = view.strides
    return slice_ * _depth(view), block, slice_, row, pixel


@lowers("scale_shift", check=check_rank)
def scale_shift(ctx: Lowering, node: Node) -> None:
    """Per channel, then a clamp."""
    data, scale, shift = node.inputs
    if data.shape[1] < BLOCK and not ctx.has_blocked(data):
        _plain_scale_shift(ctx, node)
        return
    value, affine = ctx.stores.get(node.output, (node.output, None))
    out = ctx.new_blocked(value, narrow=True)
    source = ctx.stored(data) if out.type.element is BF16 else ctx.blocked(data)
    end, unit, more = name_end(source, out), 1.0, {}
    if affine is not None:
        unit, more = affine.scale, {"zero_point": float(affine.zero_point)}
    params = SCALE_SHIFTS[end](
        n=source.images, c16=source.blocks, h=source.height, w=source.width,
        **named_strides(x=source, output=out),
        lower=node.attrs["lower"] / unit, upper=node.attrs["upper"] / unit, **more)
    becomes = Linear(1 / unit)
    ctx.emit(f"scale_shift_blocked{end}", params, x=source, scale=channel_blocks(ctx, scale, becomes),
             shift=channel_blocks(ctx, shift, becomes), output=out)
    ctx.set_blocked(value, out)


def _plain_scale_shift(ctx: Lowering, node: Node) -> None:
    """Few channels (the images themselves): plain is what the first convolution reads."""
    data, scale, shift = node.inputs
    shape, out = node.output.shape, ctx.new_plain(node.output.type)
    per_channel = (0, 1) + (0,) * (len(shape) - 2)
    ctx.strided("multiply", shape, [ctx.plain(data), (ctx.contiguous(scale), per_channel)], out)
    ctx.strided("add", shape, [out, (ctx.contiguous(shift), per_channel)], out)
    if node.attrs["lower"] != -inf or node.attrs["upper"] != inf:
        ctx.strided("clamp", shape, [out], out, [node.attrs["lower"], node.attrs["upper"]])
    ctx.set_plain(node.output, out)


def global_mean(ctx: Lowering, node: Node) -> None:
    """reduce_mean over all spatial axes of a blocked tensor: an average pool of one window."""
    value, affine = ctx.stores.get(node.output, (node.output, None))
    data = node.inputs[0]
    out = ctx.new_blocked(value)
    size = (1, 1, *data.shape[2:])[-3:]
    _average(ctx, data, out, affine, _Window(size))
    ctx.set_blocked(value, out)


def global_max(ctx: Lowering, node: Node) -> None:
    """reduce_max over all spatial axes of a blocked tensor: a max pool of one window."""
    source, out = ctx.blocked(node.inputs[0]), ctx.new_blocked(node.output)
    _emit_pool(ctx, "max_pool_blocked", POOLS, source, out, _Window((1, 1, *node.inputs[0].shape[2:])[-3:]))
    ctx.set_blocked(node.output, out)


def shuffle(ctx: Lowering, node: Node) -> None:
    """The channels of an image in the order of the plan."""
    value, order = ctx.shuffles[node]
    source, out = ctx.blocked(value), ctx.new_blocked(node.output)
    params = SHUFFLE(n=out.images, c=len(order), h=out.height, w=out.width,
                     input=source.strides[:3], output=out.strides[:3])
    ctx.emit("shuffle_blocked", params, input=source, places=ctx.table(np.array(order, np.int32)), output=out)
    ctx.set_blocked(node.output, out)


@lowers("concat")
def concat(ctx: Lowering, node: Node) -> None:
    """Whole channel blocks: those that were made in their place, as the layout plan wants it, stay there."""
    if not is_blocked_concat(node):
        plain_concat(ctx, node)
        return
    parts, out = [ctx.stored(value) for value in node.inputs], ctx.destination(node.output)
    writers, first = [*out.writers], 0
    for part in parts:
        place = sub_blocks(out, part.type.shape, first)
        writers += (part if part.is_in(place) else ctx.converted(part, place)).writers
        first += part.blocks
    out.writers[:] = dict.fromkeys(writers)
