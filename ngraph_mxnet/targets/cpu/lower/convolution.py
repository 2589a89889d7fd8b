"""Convolutions: which algorithm computes them, and in which layout they read their data."""

from __future__ import annotations

from math import prod

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.types import TensorType, f32
from ngraph_mxnet.targets.cpu.lower import depthwise, phased, volume, winograd
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.targets.cpu.lower.contraction import (
    Epilogue,
    Geometry,
    Input,
    Packing,
    block_bytes,
    byte_plane,
    channel_vector,
    check_rank,
    clamps,
    contract,
    slopes_of,
    with_activation,
    zeros,
)
from ngraph_mxnet.targets.cpu.lower.halo import keep_zeros
from ngraph_mxnet.targets.cpu.lower.promised import require_border
from ngraph_mxnet.targets.cpu.lower.storing import NO_ACTIVATION
from ngraph_mxnet.targets.cpu.microkernels.packing import super_groups
from ngraph_mxnet.targets.cpu.microkernels.tables import Plane
from ngraph_mxnet.targets.cpu.microkernels.variants import variants
from ngraph_mxnet.targets.cpu.planning.layout import phases_of
from ngraph_mxnet.targets.cpu.planning.view import (
    BLOCK,
    BlockedView,
    PlainView,
    contiguous_strides,
    plain_view,
    spatial,
)

_DENSE = 0.75
"""Share of multiply-adds that are not with padding, at or below which a contraction takes single channels: these
kernels reach about three quarters of the others' rate."""
_MOST_SINGLE = 1024
"""Single channels times taps: 64 KB of weights of one tile of output channels."""


def _check(node: Node) -> str | None:
    reason = check_rank(node)
    if reason is None and any(step > 1 for step in node.attrs["data_dilations"]) and phases_of(node) is None:
        reason = (f"{node.op.name} with data_dilations={list(node.attrs['data_dilations'])} has no CPU kernel but for "
                  "strides of 1")
    return reason


@lowers("convolution", "convolution_bias", "convolution_bias_add", "convolution_bias_add_scale_shift", check=_check)
def convolution(ctx: Lowering, node: Node) -> None:
    """1-D to 3-D, any stride, dilation, padding and groups."""
    geometry = Geometry.of(node)
    data, weights = node.inputs[:2]
    bias, residual, scale, shift = (*node.inputs[2:], None, None, None, None)[:4]
    tiles = {0: True} if phases_of(node) or volume.has_depth(node) else winograd.tiles(ctx, node, geometry)
    results, activation = node.outputs, NO_ACTIVATION
    if node in ctx.activations and tiles.keys() == {0}:
        results, activation = with_activation(ctx, node)
    epilogue = Epilogue(bias, residual, scale, shift, **clamps(node), activation=activation)
    outputs = [ctx.new_blocked(value, narrow=True) for value in results]
    for value in (data, residual) if len(tiles) > 1 else ():
        if value is not None:
            ctx.blocked(value)  # which both read, whichever runs
    for tile, holds in tiles.items():
        with ctx.builder.only_if(holds):
            if tile:
                winograd.convolution(ctx, tile, data, weights, geometry, outputs, epilogue)
            else:
                _direct(ctx, node, geometry, outputs, epilogue)
    for value, view in zip(results, outputs, strict=True):
        ctx.set_blocked(value, view)


def _direct(ctx: Lowering, node: Node, geometry: Geometry, outputs: list[BlockedView], epilogue: Epilogue) -> None:
    """Emit a convolution as a contraction, or as several."""
    data, weights = node.inputs[:2]
    phases = phases_of(node)
    source = _input(ctx, data, weights, geometry)
    packing = Packing.of_convolution(ctx, weights, geometry.groups)
    require_border(ctx, source.view, geometry.halo)
    kept = ctx.stored(epilogue.residual) if epilogue.residual is not None else None
    if volume.has_depth(node) or (node.outputs[0].type.rank == 5 and source.kind == "k1"):
        volume.convolution(ctx, node, source, packing, geometry, outputs, epilogue, kept)
    elif phases:
        phased.convolution(ctx, phases, source, packing, geometry, outputs, epilogue, kept)
    elif source.kind != "depthwise" or not _by_rows(ctx, source, packing, geometry, outputs, epilogue):
        contract(ctx, source, packing, geometry, outputs, epilogue, kept)


def _input(ctx: Lowering, data: Value, weights: Value, geometry: Geometry) -> Input:
    channels, outputs = data.shape[1], weights.shape[0]
    if geometry.groups == channels == outputs and channels > 1:
        view = ctx.narrow(data) if ctx.bf16 else ctx.blocked(data)
        return Input("depthwise", view, byte_plane(view), 1, 0, block_bytes(view), view.blocks)
    if channels < BLOCK and not ctx.has_blocked(data):
        return _plain_input(ctx, data, geometry)
    view = ctx.narrow(data) if ctx.bf16 else ctx.blocked(data)
    groups = super_groups(geometry.groups, channels, outputs)
    blocks = -(-channels // groups // BLOCK)
    if geometry.groups == 1 and not ctx.bf16 and _is_narrow(ctx, channels, outputs, prod(weights.shape[2:])):
        return Input("k1", view, byte_plane(view), channels, block_bytes(view), 0, 1)
    return Input("k16", view, byte_plane(view), blocks, block_bytes(view), blocks * block_bytes(view), groups)


def _is_narrow(ctx: Lowering, channels: int, outputs: int, taps: int) -> bool:
    """So much of the last blocks is padding that k1, which skips it, is faster than k16.

    Its sums are not split, so that the weights of one tile must be few.
    """
    finest = min(variant.oc_tile for variant in variants(ctx.settings.isa) if variant.kind == "k1")
    needed = channels * -(-outputs // finest) * finest
    whole = -(-channels // BLOCK) * BLOCK * -(-outputs // BLOCK) * BLOCK
    return needed <= _DENSE * whole and channels * taps <= _MOST_SINGLE


def _plain_input(ctx: Lowering, data: Value, geometry: Geometry) -> Input:
    """Few channels (the stem): the plain image, copied into a zero border if the convolution pads.

    The border is zero as the arena was at first, and shares memory only with others of its kind. In three dimensions an
    image of the input is a slice.
    """
    source, halo = ctx.contiguous(data), geometry.halo
    images, channels = data.shape[:2]
    depth = data.shape[2] if data.type.rank == 5 else 1
    height, width = spatial(data.shape)
    pitch = width + halo.left + halo.right
    plane_size = (height + halo.top + halo.bottom) * pitch
    if halo:
        shape = (images * channels * depth, height, width)
        type_ = TensorType(f32, (shape[0] * plane_size,))
        border = plain_view(type_, ctx.builder.arena(type_.bytes, ("border", shape, halo)))
        keep_zeros(ctx.settings.symbol("zero_halo"), border, halo, planes=shape[0], height=height, width=width,
                   words=1)
        strides = (plane_size, pitch, 1)
        inside = PlainView(TensorType(f32, shape), border.buffer, (halo.top * pitch + halo.left) * 4, strides=strides)
        ctx.strided("copy_4", shape, [(source, contiguous_strides(shape))], (inside, strides))
        source = inside
    image = plane_size * (channels if data.type.rank < 5 else 1)
    return Input("k1", source, Plane(pitch * 4, 4, image * 4), channels, depth * plane_size * 4, 0, 1)


def _by_rows(ctx: Lowering, source: Input, packing: Packing, geometry: Geometry, outputs: list[BlockedView],
             epilogue: Epilogue) -> bool:
    """Emit a depthwise convolution on its row kernel, if that has what it needs."""
    plain = epilogue.residual is None and len(outputs) == 1 and outputs[0].type.size
    floats = source.view.type.element is f32 and outputs[0].type.element is f32
    if not (plain and floats) or not depthwise.has_row_kernel(geometry.kernel, geometry.strides, geometry.dilations):
        return False
    out = outputs[0]
    assert isinstance(source.view, BlockedView)
    bias = channel_vector(ctx, epilogue.bias, out.type.shape[1], source, BLOCK) or zeros(ctx, out, source, BLOCK)
    packed = packing.pack(ctx, source, BLOCK)
    depthwise.convolution(ctx, source.view, packed, bias, out, stride=geometry.strides[0], padding=geometry.halo,
                          bounds=(epilogue.lower, epilogue.upper), activation=epilogue.activation,
                          slopes=slopes_of(ctx, epilogue.activation, out, source, BLOCK))
    return True
