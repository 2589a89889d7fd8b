"""Ops that always write the blocked layout: pools, scale and shift, concatenation of whole blocks."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from ngraph_mxnet.cpu import abi
from ngraph_mxnet.cpu.layout import is_blocked_concat
from ngraph_mxnet.cpu.lower.context import Lowering, blocked_dims, blocked_strides, lowers, moving_kernel
from ngraph_mxnet.cpu.lower.contraction import check_rank
from ngraph_mxnet.cpu.lower.movement import plain_concat
from ngraph_mxnet.cpu.view import (
    BF16,
    BLOCK,
    Halo,
    PlainView,
    View,
    blocked_bytes,
    blocked_view,
    sub_blocks,
)
from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.types import TensorType, f32


@lowers("max_pool", "avg_pool", check=check_rank)
def pool(ctx: Lowering, node: Node) -> None:
    """1-D to 3-D. Windows are clipped to the image, so the halo is not read."""
    out = ctx.new_blocked(node.output)
    source = ctx.narrow(node.inputs[0]) if out.type.element is BF16 else ctx.stored(node.inputs[0])
    fills = {"kernel": 1, "strides": 1, "pads_begin": 0, "pads_end": 0}
    axes = {name: (fill, fill, *node.attrs[name])[-3:] for name, fill in fills.items()}
    ints = abi.pool_ints(source, out, **axes, include_pad=node.attrs.get("include_pad", False))
    ctx.emit(f"{node.op.name}_blocked" + _suffix(source, out), [source], out, ints)
    ctx.set_blocked(node.output, out)


def _suffix(source: View, out: View) -> str:
    """Of the kernel's name, by how its operands are stored."""
    if source.type.element is not BF16:
        return ""
    return "_bf16" if out.type.element is BF16 else "_bf16_f32"


@lowers("scale_shift", check=check_rank)
def scale_shift(ctx: Lowering, node: Node) -> None:
    """Per channel, then a clamp."""
    data, scale, shift = node.inputs
    if data.shape[1] < BLOCK and not ctx.has_blocked(data):
        _plain_scale_shift(ctx, node)
        return
    out = ctx.new_blocked(node.output)
    source = ctx.narrow(data) if out.type.element is BF16 else ctx.blocked(data)
    vectors = [_channel_vector(ctx, value) for value in (scale, shift)]
    ctx.emit("scale_shift_blocked" + _suffix(source, out), [source, *vectors], out, abi.scale_shift_ints(source, out),
             [node.attrs["lower"], node.attrs["upper"]])
    ctx.set_blocked(node.output, out)


def _plain_scale_shift(ctx: Lowering, node: Node) -> None:
    """Few channels (the images themselves): plain is what the first convolution reads."""
    data, scale, shift = node.inputs
    shape, out = node.output.shape, ctx.new_plain(node.output.type)
    per_channel = (0, 1) + (0,) * (len(shape) - 2)
    target = (out, out.strides)
    source = ctx.plain(data)
    ctx.strided("multiply", shape, [(source, source.strides), (ctx.contiguous(scale), per_channel)], target)
    ctx.strided("add", shape, [target, (ctx.contiguous(shift), per_channel)], target)
    if node.attrs["lower"] != -inf or node.attrs["upper"] != inf:
        ctx.strided("clamp", shape, [target], target, [node.attrs["lower"], node.attrs["upper"]])
    ctx.set_plain(node.output, out)


def global_mean(ctx: Lowering, node: Node) -> None:
    """reduce_mean over all spatial axes of a blocked tensor: an average pool of one window."""
    source = ctx.stored(node.inputs[0])
    depth = source.images // source.type.shape[0]
    shape = (*source.type.shape[:2], *(1,) * max(2, node.inputs[0].type.rank - 2))
    type_ = TensorType(f32, shape)
    out = blocked_view(type_, ctx.builder.arena(blocked_bytes(type_, Halo())), Halo())
    window, nothing = (depth, source.height, source.width), (0, 0, 0)
    ints = abi.pool_ints(source, out, kernel=window, strides=(1, 1, 1), pads_begin=nothing, pads_end=nothing)
    ctx.emit("avg_pool_blocked" + _suffix(source, out), [source], out, ints)
    ctx.set_blocked(node.output, replace(out, type=node.output.type))


def _channel_vector(ctx: Lowering, value: Value) -> View:
    """A vector [C], padded with zeros to whole blocks."""
    (channels,) = value.shape
    ints = abi.pack_channels_ints(channels, groups=1, oc_tile=BLOCK)

    def emit(context: Lowering, source: PlainView, destination: View) -> None:
        context.emit("pack_channels", [source], destination, ints)

    return ctx.packed(value, ("channels", *ints), -(-channels // BLOCK) * BLOCK * 4, emit)


@lowers("concat")
def concat(ctx: Lowering, node: Node) -> None:
    """Whole channel blocks: the producers wrote them in place where the layout plan could arrange it."""
    if not is_blocked_concat(node):
        plain_concat(ctx, node)
        return
    out = ctx.blocked_destination(node.output)
    first = 0
    for position, value in enumerate(node.inputs):
        placed = ctx.layout.placement.get(value) == (node.output, first) and value not in node.inputs[:position]
        part = ctx.stored(value)
        if placed:
            out.writers.extend(part.writers)
        else:
            place = sub_blocks(out, value.shape, first)
            ctx.strided(moving_kernel(part, place), blocked_dims(part), [(part, blocked_strides(part))],
                        (place, blocked_strides(place)))
            out.writers.extend(place.writers)
        first += part.blocks
    ctx.set_blocked(node.output, out)
