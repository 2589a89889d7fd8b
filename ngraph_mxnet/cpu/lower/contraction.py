"""Convolutions, on the contraction microkernels."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod
from typing import Any

import numpy as np

from ngraph_mxnet.cpu.abi import pack_channels_ints, pack_contraction_ints, pack_depthwise_ints
from ngraph_mxnet.cpu.layout import convolution_halo
from ngraph_mxnet.cpu.lower import depthwise, winograd
from ngraph_mxnet.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.cpu.microkernels.packing import super_groups
from ngraph_mxnet.cpu.microkernels.params import (
    FLAG_OUTPUT2,
    FLAG_OUTPUT2_BF16,
    FLAG_OUTPUT_BF16,
    FLAG_RESIDUAL,
    FLAG_RESIDUAL_BF16,
    ContractionParams,
)
from ngraph_mxnet.cpu.microkernels.tables import Plane, pixel_table, step_table
from ngraph_mxnet.cpu.microkernels.tiles import choose_tiles
from ngraph_mxnet.cpu.microkernels.variants import Kind, variants
from ngraph_mxnet.cpu.view import (
    BF16,
    BLOCK,
    BlockedView,
    Halo,
    PlainView,
    View,
    contiguous_strides,
    plain_view,
    spatial,
)
from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.types import TensorType, f32

_DENSE = 0.85
"""Share of multiply-adds that are not with padding, at or below which a contraction takes single channels."""
_MOST_SINGLE = 1024
"""Single channels times taps: 64 KB of weights of one tile of output channels."""


@dataclass(frozen=True)
class Geometry:
    """A convolution's shape parameters in two spatial dimensions."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    groups: int
    halo: Halo

    @staticmethod
    def of(node: Node) -> Geometry:
        """From a 1-D (its height is 1) or 2-D convolution."""

        def pair(values: tuple[int, ...], fill: int) -> tuple[int, int]:
            return (fill, *values)[-2:]  # type: ignore[return-value]

        attrs, weights = node.attrs, node.inputs[1]
        return Geometry(pair(weights.shape[2:], 1), pair(attrs["strides"], 1), pair(attrs["dilations"], 1),
                        attrs["groups"], convolution_halo(node))

    @property
    def padding(self) -> tuple[int, int]:
        return self.halo.top, self.halo.left


@dataclass(frozen=True)
class Input:
    """What a contraction reads: a view, its geometry in bytes, and how its channels are walked."""

    kind: Kind
    view: View
    plane: Plane
    channels: int
    """Steps per kernel tap: channel blocks of a group (k16), channels (k1), or 1 (depthwise)."""
    channel_stride: int
    """Between channel blocks; of a plain input, between channels."""
    group_stride: int
    groups: int

    @property
    def in_pairs(self) -> bool:
        """The weights are bf16, in pairs of input channels."""
        return self.kind == "k16" and self.view.type.element is BF16


def _byte_plane(view: BlockedView) -> Plane:
    size = view.type.element.size
    return Plane(view.row * size, BLOCK * size, view.image * size)


def _block_bytes(view: BlockedView | None) -> int:
    """Between channel blocks."""
    return view.block * view.type.element.size if view is not None else 0


@dataclass(frozen=True)
class Epilogue:
    """What happens to the sums before they are stored."""

    bias: Value | None = None
    residual: Value | None = None
    scale: Value | None = None
    shift: Value | None = None
    lower: float = -inf
    upper: float = inf
    lower2: float = -inf
    upper2: float = inf


def clamps(node: Node) -> dict[str, Any]:
    return {key: node.attrs[key] for key in ("lower", "upper", "lower2", "upper2") if key in node.attrs}


def check_rank(node: Node) -> str | None:
    """The blocked layout has at most two spatial axes, and is float32."""
    if node.inputs[0].type.rank > 4:
        return f"{node.op.name} over three spatial axes has no CPU kernel yet"
    found = {v.type.element.name for v in node.inputs}
    if found != {"f32"}:
        return f"{node.op.name} of {', '.join(sorted(found))} has no CPU kernel, only f32"
    return check_depth(node)


def check_depth(node: Node) -> str | None:
    """A sum over nothing has no kernel."""
    if node.outputs[0].type.size and any(v.type.size == 0 for v in node.inputs):
        return f"{node.op.name} over no elements has no CPU kernel"
    return None


@lowers("convolution", "convolution_bias", "convolution_bias_add", "convolution_bias_add_scale_shift",
        check=check_rank)
def convolution(ctx: Lowering, node: Node) -> None:
    """1-D and 2-D, any stride, dilation, padding and groups."""
    geometry = Geometry.of(node)
    data, weights = node.inputs[:2]
    bias, residual, scale, shift = (*node.inputs[2:], None, None, None, None)[:4]
    epilogue = Epilogue(bias, residual, scale, shift, **clamps(node))
    outputs = [ctx.new_blocked(value) for value in node.outputs]
    tile = winograd.choose_tile(ctx, node, geometry)
    if tile:
        winograd.convolution(ctx, tile, data, weights, geometry.halo, outputs, epilogue)
    else:
        source = _convolution_input(ctx, data, weights, geometry)
        if source.kind == "depthwise" and _by_rows(ctx, source, weights, geometry, outputs, epilogue):
            ctx.set_blocked(node.output, outputs[0])
            return
        _contract(ctx, source, Packing.of_convolution(weights, geometry.groups), geometry, outputs, epilogue)
    for value, view in zip(node.outputs, outputs, strict=True):
        ctx.set_blocked(value, view)


def _convolution_input(ctx: Lowering, data: Value, weights: Value, geometry: Geometry) -> Input:
    channels, outputs = data.shape[1], weights.shape[0]
    if geometry.groups == channels == outputs and channels > 1:
        view = ctx.narrow(data) if ctx.bf16 else ctx.blocked(data)
        return Input("depthwise", view, _byte_plane(view), 1, 0, _block_bytes(view), view.blocks)
    if channels < BLOCK and not ctx.has_blocked(data):
        return _plain_input(ctx, data, geometry)
    view = ctx.narrow(data) if ctx.bf16 else ctx.blocked(data)
    groups = super_groups(geometry.groups, channels, outputs)
    blocks = -(-channels // groups // BLOCK)
    if geometry.groups == 1 and not ctx.bf16 and _is_narrow(ctx, channels, outputs, prod(geometry.kernel)):
        return Input("k1", view, _byte_plane(view), channels, _block_bytes(view), 0, 1)
    return Input("k16", view, _byte_plane(view), blocks, _block_bytes(view), blocks * _block_bytes(view), groups)


def _is_narrow(ctx: Lowering, channels: int, outputs: int, taps: int) -> bool:
    """So much of the last blocks is padding that k1, which skips it, is faster than k16.

    Its sums are not split, so that the weights of one tile must be few.
    """
    finest = min(variant.oc_tile for variant in variants(ctx.target.isa) if variant.kind == "k1")
    needed = channels * -(-outputs // finest) * finest
    whole = -(-channels // BLOCK) * BLOCK * -(-outputs // BLOCK) * BLOCK
    return needed <= _DENSE * whole and channels * taps <= _MOST_SINGLE


def _plain_input(ctx: Lowering, data: Value, geometry: Geometry) -> Input:
    """Few channels (the stem): the plain image, copied into a zero border if the convolution pads.

    The border is zero as the arena was at first, and shares memory only with others of its kind.
    """
    source, halo = ctx.contiguous(data), geometry.halo
    images, channels = data.shape[:2]
    height, width = spatial(data.shape)
    pitch = width + halo.left + halo.right
    plane_size = (height + halo.top + halo.bottom) * pitch
    if halo:
        shape = (images, channels, height, width)
        type_ = TensorType(f32, (images * channels * plane_size,))
        border = plain_view(type_, ctx.builder.arena(type_.bytes, ("border", shape, halo)))
        strides = (channels * plane_size, plane_size, pitch, 1)
        inside = PlainView(TensorType(f32, shape), border.buffer, (halo.top * pitch + halo.left) * 4, strides=strides)
        ctx.strided("copy_4", shape, [(source, contiguous_strides(shape))], (inside, strides))
        source = inside
    plane = Plane(pitch * 4, 4, channels * plane_size * 4)
    return Input("k1", source, plane, channels, plane_size * 4, 0, 1)


def _contract(ctx: Lowering, source: Input, weights: Packing, geometry: Geometry, outputs: list[BlockedView],
              epilogue: Epilogue) -> None:
    """Emit one contraction: `outputs` is the result and, with scale and shift, the second one."""
    out, second = outputs[0], outputs[1] if len(outputs) > 1 else None
    if out.type.size == 0:
        return
    taps = prod(geometry.kernel)
    group_blocks = out.blocks // source.groups if source.groups > 1 else out.blocks
    choice = choose_tiles(
        ctx.target.isa, source.kind, images=out.images, out_h=out.height, out_w=out.width, out_blocks=group_blocks,
        steps=source.channels * taps, groups=source.groups, taps=taps, stride=prod(geometry.strides),
        flat_input=_is_flat(source, out, geometry), channels=out.type.shape[1] if source.groups == 1 else None,
        threads=ctx.target.threads,
        bf16=ctx.bf16, splits=out.type.element is not BF16,
    )
    residual = ctx.stored(epilogue.residual) if epilogue.residual is not None else None
    planes = {name: _byte_plane(view) for name, view in (("residual", residual), ("output2", second)) if view}
    pixels = pixel_table(
        out.height, out.width, inputs=source.plane, output=_byte_plane(out), stride=geometry.strides,
        padding=geometry.padding, images=out.images if choice.fold_images else 1, **planes,
    )
    single = source.kind == "k1" and isinstance(source.view, BlockedView)
    steps = step_table(source.plane, channels=source.channels, channel_stride=source.channel_stride,
                       lanes=BLOCK if single else 1, kernel=geometry.kernel, dilation=geometry.dilations)
    params = ContractionParams(
        **choice.fields(), steps=steps.size,
        flags=_flags(out, residual, second),
        pixel_stride=geometry.strides[1] * source.plane.pixel,
        in_image_stride=source.plane.image, in_group_stride=source.group_stride,
        out_image_stride=_byte_plane(out).image, out_block_stride=_block_bytes(out),
        res_image_stride=planes["residual"].image if residual else 0, res_block_stride=_block_bytes(residual),
        out2_image_stride=planes["output2"].image if second else 0, out2_block_stride=_block_bytes(second),
        lower=epilogue.lower, upper=epilogue.upper, lower2=epilogue.lower2, upper2=epilogue.upper2,
    )
    packed = weights.pack(ctx, source, choice.oc_tile)
    bias, scale, shift = (
        _channels(ctx, value, out.type.shape[1], source, choice.oc_tile)
        for value in (epilogue.bias, epilogue.scale, epilogue.shift)
    )
    unused = source.view
    views = [source.view, packed, bias or _zeros(ctx, out, source, choice.oc_tile), out, residual or unused]
    constants = [(ctx.builder.constant(table), 0) for table in (pixels, steps)]
    tail = [second or unused, scale or unused, shift or unused]
    operands = [v.operand for v in views] + constants + [v.operand for v in tail]
    reads = [source.view, packed, *(v for v in (bias, residual, scale, shift) if v)]
    touched = prod(weights.shape) * (2 if source.in_pairs else 4)
    touched += sum(view.type.bytes for view in (source.view, out, residual, second) if view)
    ctx.builder.emit(choice.symbol, operands, params.ints(), params.floats(), params.tasks, reads=reads, writes=out,
                     origin=ctx.origin, operations=2 * out.type.size * prod(weights.shape[1:]), bytes=touched)
    if second is not None:
        second.writers.append(out.writers[-1])


def _flags(out: View, residual: View | None, second: View | None) -> int:
    """Which operands there are, and which are bf16."""
    flags = FLAG_OUTPUT_BF16 * (out.type.element is BF16)
    if residual is not None:
        flags |= FLAG_RESIDUAL | FLAG_RESIDUAL_BF16 * (residual.type.element is BF16)
    if second is not None:
        flags |= FLAG_OUTPUT2 | FLAG_OUTPUT2_BF16 * (second.type.element is BF16)
    return flags


def _by_rows(ctx: Lowering, source: Input, weights: Value, geometry: Geometry, outputs: list[BlockedView],
             epilogue: Epilogue) -> bool:
    """Emit a depthwise convolution on its row kernel, if that has what it needs."""
    plain = epilogue.residual is None and len(outputs) == 1 and outputs[0].type.size
    floats = source.view.type.element is f32 and outputs[0].type.element is f32
    if not (plain and floats) or not depthwise.has_row_kernel(geometry.kernel, geometry.strides, geometry.dilations):
        return False
    out = outputs[0]
    assert isinstance(source.view, BlockedView)
    bias = _channels(ctx, epilogue.bias, out.type.shape[1], source, BLOCK) or _zeros(ctx, out, source, BLOCK)
    packed = Packing.of_convolution(weights, geometry.groups).pack(ctx, source, BLOCK)
    depthwise.convolution(ctx, source.view, packed, bias, out, stride=geometry.strides[0], padding=geometry.halo,
                          bounds=(epilogue.lower, epilogue.upper))
    return True


def _is_flat(source: Input, out: BlockedView, geometry: Geometry) -> bool:
    """All output pixels of an image lie at one input stride."""
    if geometry.kernel != (1, 1) or out.height == 1:
        return out.height == 1
    return geometry.strides == (1, 1) and source.plane.row == out.width * source.plane.pixel


def _channels(ctx: Lowering, value: Value | None, channels: int, source: Input, oc_tile: int) -> View | None:
    """A per-channel vector in the order of the packed weights."""
    if value is None:
        return None
    ints = pack_channels_ints(channels, groups=1 if source.kind == "depthwise" else source.groups, oc_tile=oc_tile)
    size = _channel_bytes(channels, source, oc_tile)

    def emit(context: Lowering, vector: PlainView, destination: View) -> None:
        context.emit("pack_channels", [vector], destination, ints)

    return ctx.packed(value, ("channels", *ints), size, emit)


def _channel_bytes(channels: int, source: Input, oc_tile: int) -> int:
    groups = 1 if source.kind == "depthwise" else source.groups
    return groups * -(-channels // groups // oc_tile) * oc_tile * 4


def _zeros(ctx: Lowering, out: BlockedView, source: Input, oc_tile: int) -> View:
    size = _channel_bytes(out.type.shape[1], source, oc_tile)
    return View(out.type, ctx.builder.constant(np.zeros(size // 4, np.float32)), 0)


@dataclass(frozen=True)
class Packing:
    """Weights `value`, seen as [out channels][in channels / groups][KH][KW] at element `strides`."""

    value: Value
    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]
    groups: int

    @staticmethod
    def of_convolution(weights: Value, groups: int) -> Packing:
        outputs, inputs, *kernel = weights.shape
        shape = (outputs, inputs, *(1, *kernel)[-2:])
        return Packing(weights, shape, contiguous_strides(shape), groups)  # type: ignore[arg-type]

    def pack(self, ctx: Lowering, source: Input, oc_tile: int) -> View:
        """The packed weights: made at prepare time if the weights are cacheable."""
        lanes = 1 if source.kind == "k1" else BLOCK
        if source.kind == "depthwise":
            kernel, ints = "pack_depthwise", pack_depthwise_ints(self.shape)
            size = source.groups * prod(self.shape[2:]) * BLOCK * 4
        else:
            kernel = "pack_contraction_bf16" if source.in_pairs else "pack_contraction"
            ints = pack_contraction_ints(self.shape, self.strides, groups=self.groups, supers=source.groups,
                                         oc_tile=oc_tile, lanes=lanes)
            tiles = source.groups * -(-self.shape[0] // source.groups // oc_tile)
            size = tiles * source.channels * prod(self.shape[2:]) * lanes * oc_tile * (2 if source.in_pairs else 4)

        def emit(context: Lowering, view: PlainView, destination: View) -> None:
            context.emit(kernel, [view], destination, ints)

        return ctx.packed(self.value, (kernel, *ints), size, emit)
