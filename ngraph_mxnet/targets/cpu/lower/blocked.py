"""Ops that always write the blocked layout: pools, scale and shift, concatenation of whole blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.types import TensorType, f32, u8
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.targets.cpu.lower.contraction import channel_blocks, check_depth, check_rank
from ngraph_mxnet.targets.cpu.lower.layouts import blocked_strides, named_strides
from ngraph_mxnet.targets.cpu.lower.movement import plain_concat
from ngraph_mxnet.targets.cpu.params import Params
from ngraph_mxnet.targets.cpu.params.pooling import MAX_POOL_GRADIENT, POOLS, SCALE_SHIFT, SCALE_SHIFT_U8
from ngraph_mxnet.targets.cpu.params.record import by_name
from ngraph_mxnet.targets.cpu.planning.gradients import pool_gradient_without_kernel
from ngraph_mxnet.targets.cpu.planning.layout import is_blocked_concat
from ngraph_mxnet.targets.cpu.planning.view import (
    BF16,
    BLOCK,
    BlockedView,
    Halo,
    View,
    blocked_bytes,
    blocked_view,
    sub_blocks,
)


def _check_pool(node: Node) -> str | None:
    """A maximum of u8 is one of bytes."""
    if node.op.name == "max_pool" and node.inputs[0].type.element is u8 and node.inputs[0].type.rank <= 5:
        return check_depth(node)
    return check_rank(node)


@lowers("max_pool", "avg_pool", check=_check_pool)
def pool(ctx: Lowering, node: Node) -> None:
    """1-D to 3-D. Windows are clipped to the image, so the halo is not read."""
    out = ctx.new_blocked(node.output)
    source = ctx.narrow(node.inputs[0]) if out.type.element is BF16 else ctx.stored(node.inputs[0])
    fills = {"kernel": 1, "strides": 1, "pads_begin": 0, "pads_end": 0}
    axes = {name: (fill, fill, *node.attrs[name])[-3:] for name, fill in fills.items()}
    params = _pool_params(source, out, **axes, include_pad=node.attrs.get("include_pad", False))
    ctx.emit(f"{node.op.name}_blocked" + _suffix(source, out), params, input=source, output=out)
    ctx.set_blocked(node.output, out)


def _pool_params(source: BlockedView, out: BlockedView, *, kernel: Sequence[int], strides: Sequence[int],
                 pads_begin: Sequence[int], pads_end: Sequence[int], include_pad: bool = False) -> Params:
    """Every list has three entries, for D, H and W."""
    depth, out_depth = (view.type.shape[2] if view.type.rank == 5 else 1 for view in (source, out))
    return POOLS[_suffix(source, out)](
        n=source.type.shape[0], c16=source.blocks, h=source.height, w=source.width, out_h=out.height, out_w=out.width,
        **by_name("kernel_d kernel_h kernel_w", kernel), **by_name("stride_d stride_h stride_w", strides),
        dilation_h=1, dilation_w=1, **by_name("pad_front pad_top pad_left", pads_begin),
        **by_name("pad_back pad_bottom pad_right", pads_end), include_pad=include_pad,
        in_n=source.image * depth, **by_name("in_c16 in_row in_pixel", blocked_strides(source)[1:4]),
        out_n=out.image * out_depth, **by_name("out_c16 out_row out_pixel", blocked_strides(out)[1:4]),
        d=depth, out_d=out_depth, in_slice=source.image, out_slice=out.image)


@lowers("max_pool_gradient", check=pool_gradient_without_kernel)
def max_pool_gradient(ctx: Lowering, node: Node) -> None:
    """1-D and 2-D. A task is a plane, to which overlapping windows add."""
    data, head = map(ctx.blocked, node.inputs)
    out = ctx.new_blocked(node.output)
    pairs = {name: (fill, *node.attrs[name])[-2:] for name, fill in
             {"kernel": 1, "strides": 1, "pads_begin": 0}.items()}
    params = MAX_POOL_GRADIENT(
        n=data.images, c16=data.blocks, h=data.height, w=data.width, out_h=head.height, out_w=head.width,
        **by_name("kernel_h kernel_w", pairs["kernel"]), **by_name("stride_h stride_w", pairs["strides"]),
        **by_name("pad_top pad_left", pairs["pads_begin"]),
        **named_strides(data=data, head=head, output=out))
    ctx.emit("max_pool_gradient_blocked", params, data=data, head=head, output=out)
    ctx.set_blocked(node.output, out)


def _suffix(source: View, out: View) -> str:
    """The end of the kernel's name, which tells how its operands are stored."""
    if source.type.element is u8:
        return "_u8"
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
    value, affine = ctx.stores.get(node.output, (node.output, None))
    out = ctx.new_blocked(value)
    source = ctx.narrow(data) if out.type.element is BF16 else ctx.blocked(data)
    record, suffix, more = SCALE_SHIFT, _suffix(source, out), {}
    if affine is not None:
        record, suffix = SCALE_SHIFT_U8, "_f32_u8"
        more = {"inverse": 1 / affine.scale, "zero_point": float(affine.zero_point)}
    params = record(
        n=source.images, c16=source.blocks, h=source.height, w=source.width,
        **by_name("in_n in_c16 in_row in_pixel", blocked_strides(source)[:4]),
        **by_name("out_n out_c16 out_row out_pixel", blocked_strides(out)[:4]),
        lower=node.attrs["lower"], upper=node.attrs["upper"], **more)
    ctx.emit("scale_shift_blocked" + suffix, params, x=source, scale=channel_blocks(ctx, scale),
             shift=channel_blocks(ctx, shift), output=out)
    ctx.set_blocked(value, out)


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
    params = _pool_params(source, out, kernel=window, strides=(1, 1, 1), pads_begin=nothing, pads_end=nothing)
    ctx.emit("avg_pool_blocked" + _suffix(source, out), params, input=source, output=out)
    ctx.set_blocked(node.output, replace(out, type=node.output.type))


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
            ctx.converted(part, place)
            out.writers.extend(place.writers)
        first += part.blocks
    ctx.set_blocked(node.output, out)
