"""Numbers of 8 bits: quantised convolutions and matrix products on the contractions of u8, and conversions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.types import TensorType, f32, u8
from ngraph_mxnet.ops.quantization import BYTES
from ngraph_mxnet.targets.cpu.lower import movement
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers, require_border, write_fill
from ngraph_mxnet.targets.cpu.lower.contraction import (
    NO_ACTIVATION,
    Epilogue,
    Geometry,
    Input,
    Packing,
    block_bytes,
    byte_plane,
    check_depth,
    contract,
    with_activation,
)
from ngraph_mxnet.targets.cpu.lower.convolution import depth_padding, has_depth, volume_convolution
from ngraph_mxnet.targets.cpu.microkernels.params import super_groups
from ngraph_mxnet.targets.cpu.microkernels.tables import Plane
from ngraph_mxnet.targets.cpu.planning.layout import convolution_halo
from ngraph_mxnet.targets.cpu.planning.precision import FOUR, Affine, affine_of
from ngraph_mxnet.targets.cpu.planning.view import (
    BLOCK,
    BlockedView,
    Halo,
    PlainView,
    View,
    as_blocked,
    contiguous_strides,
    plain_view,
    sub_images,
)

_MOST_TAPS = (1 << 24) // (255 * 128)
"""The most taps of a depthwise convolution, whose sums are in float32."""


def _check_convolution(node: Node) -> str | None:
    if any(step > 1 for step in node.attrs["data_dilations"]):
        return f"{node.op.name} with data_dilations has no CPU kernel"
    return check_depth(node)


@lowers("quantized_convolution", check=_check_convolution)
def convolution(ctx: Lowering, node: Node) -> None:
    """1-D to 3-D. A result that is only read as u8 is stored so."""
    results, activation = node.outputs, NO_ACTIVATION
    if node in ctx.activations:
        results, activation = with_activation(ctx, node)
    stored = [ctx.stores.get(value) for value in results]
    residual = node.epilogue.get("residual")
    kept, affine = _residual(ctx, residual) if residual is not None else (None, None)
    epilogue = Epilogue.of(node, activation=activation, residual_affine=affine,
                           stored=tuple(each[1] if each else None for each in stored))
    values = [each[0] if each else value for each, value in zip(stored, results, strict=True)]
    outputs = [ctx.new_blocked(value) for value in values]
    geometry = Geometry.of(node)
    if node.inputs[0] in ctx.fours:
        source, packing, geometry = _convolution_of_fours(ctx, node, geometry)
    else:
        source, packing = _input(ctx, node, geometry), Packing.of_convolution(ctx, node.inputs[1], geometry.groups)
    if has_depth(node):
        volume_convolution(ctx, node, source, packing, geometry, outputs, epilogue, kept, is_padded=True)
    else:
        contract(ctx, source, packing, geometry, outputs, epilogue, kept)
    ctx.set_views(values, outputs)


@lowers("quantized_matmul", check=check_depth)
def matmul(ctx: Lowering, node: Node) -> None:
    """All rows of all matrices are the pixels of one row of an image, for they share the weights."""
    data, weights = node.inputs[:2]
    value, affine = ctx.stores.get(node.output, (node.output, None))
    *batch, channels = node.output.shape
    rows, pitch = prod(batch), -(-channels // BLOCK) * BLOCK
    depth = data.shape[-1]
    buffer = ctx.builder.arena(rows * pitch * value.type.element.size)
    out = BlockedView(TensorType(value.type.element, (rows, channels)), buffer, 0, image=pitch, block=BLOCK, row=BLOCK)
    line = replace(out, type=out.type.with_shape((1, channels, rows)), pixel=pitch)
    source = _rows(ctx, data, rows, depth)
    strides = (depth, 1, 0, 0) if node.attrs["transpose_b"] else (1, channels, 0, 0)
    contract(ctx, Input("k16", source, Plane(0, source.image * source.type.element.size), source.blocks,
                        block_bytes(source), 0, 1, node.attrs["short_sums"]),
             Packing(weights, (channels, depth, 1, 1), strides, 1), Geometry(), [line],
             Epilogue.of(node, stored=(affine,)), None)
    plain = (*contiguous_strides((*batch, pitch))[:-1], 1)
    ctx.set_plain(value, PlainView(value.type, buffer, 0, out.writers, plain))
    if value.type.rank == 2:
        ctx.set_blocked(value, out)


def _rows(ctx: Lowering, data: Value, rows: int, depth: int) -> BlockedView:
    """The matrices' rows, each of whole blocks; what stands behind `depth` meets weights of zero."""
    view = ctx.contiguous(data)
    flat = view.seen(view.type.with_shape((rows, depth)), (depth, 1))
    return as_blocked(flat) or ctx.copy(flat, ctx.new_rows(flat.type)).in_blocks()


def _residual(ctx: Lowering, value: Value) -> tuple[BlockedView, Affine | None]:
    """The residual as it is stored: as u8, where it is only quantised numbers widened."""
    if value in ctx.quantized and not ctx.has_blocked(value):
        source, affine = ctx.quantized[value]
        return ctx.blocked(source), affine
    return ctx.blocked(value), None


def _bordered(ctx: Lowering, node: Node) -> BlockedView:
    """The data, with a border of what the node wants it to be: a copy, if another reader wants something else."""
    data, halo, fill = node.inputs[0], convolution_halo(node), node.attrs["pad_value"]
    view = ctx.blocked(data)
    front, back = depth_padding(node)
    if front or back:
        view = _with_slices(ctx, view, front, back, halo, fill)
    elif halo and ctx.layout.fill.get(data, 0) != fill:
        view = ctx.converted(view, ctx.framed(data.type, halo, fill))
    require_border(ctx, view, halo, fill)
    return view


def _with_slices(ctx: Lowering, view: BlockedView, front: int, back: int, halo: Halo, fill: int) -> BlockedView:
    """A copy with so many slices of `fill` before and behind those of each element of the batch."""
    batch, channels, depth, *plane = view.type.shape
    whole = ctx.framed(view.type.with_shape((batch, channels, front + depth + back, *plane)), halo, fill)
    value = plain_view(view.type.with_shape(()), ctx.builder.constant(np.array(fill, np.uint8)))
    for n in range(batch):
        first = n * (front + depth + back)
        for count, at in ((front, first), (back, first + front + depth)):
            if count:
                part = sub_images(whole, (count, channels, *plane), at)
                ctx.strided("copy_1", part.dims, [(value, (0,) * 5)], part)
        source = sub_images(view, (depth, channels, *plane), n * depth)
        ctx.converted(source, sub_images(whole, source.type.shape, first + front))
    return whole


def _input(ctx: Lowering, node: Node, geometry: Geometry) -> Input:
    data, weights = node.inputs[:2]
    channels, outputs, view = data.shape[1], weights.shape[0], _bordered(ctx, node)
    if geometry.groups == channels == outputs and channels > 1 and geometry.taps <= _MOST_TAPS:
        return Input("depthwise", view, byte_plane(view), 1, 0, block_bytes(view), view.blocks)
    groups = super_groups(geometry.groups, channels, outputs)
    blocks = -(-channels // groups // BLOCK)
    return Input("k16", view, byte_plane(view), blocks, block_bytes(view), blocks * block_bytes(view), groups,
                 node.attrs["short_sums"])


@lowers("quantize")
def quantize(ctx: Lowering, node: Node) -> None:
    """Quantize the data, unless the producer has already stored the result."""
    if ctx.views(node.output):
        return
    data, affine = node.inputs[0], affine_of(node)
    element = node.output.type.element
    kernel = f"quantize_{element}"
    if affine is None:
        ratio = _by_channel(ctx, "divide", node, ctx.plain(data), ctx.contiguous(node.inputs[1]))
        rounded = ctx.computed("round", [ratio], ratio.type)
        whole = _by_channel(ctx, "add", node, rounded, movement.read(ctx, node.inputs[2], f32))
        ctx.set_plain(node.output, ctx.computed(kernel, [whole], node.output.type, (1.0, 0.0)))
    elif node.output in ctx.in_fours:
        _quantize_in_fours(ctx, data, node.output, affine)
    elif element is u8 and node.output in ctx.images:
        source, target = ctx.blocked(data), ctx.new_blocked(node.output)
        ctx.strided(kernel, target.dims, [source], target, affine.floats)
        ctx.set_blocked(node.output, target)
    else:
        ctx.set_plain(node.output, ctx.computed(kernel, [ctx.plain(data)], node.output.type, affine.floats))


def _by_channel(ctx: Lowering, kernel: str, node: Node, view: PlainView, vector: PlainView) -> PlainView:
    """`kernel` of numbers and what there is of each index of the node's axis."""
    rank, axis = view.type.rank, node.attrs["axis"] % max(view.type.rank, 1)
    if vector.type.rank:
        shape = tuple(size if at == axis else 1 for at, size in enumerate(view.type.shape))
        vector = vector.seen(vector.type.with_shape(shape), [int(at == axis) for at in range(rank)])
    return ctx.computed(kernel, [view, vector], view.type)


@lowers("lookup")
def lookup(ctx: Lowering, node: Node) -> None:
    """In whichever layout the bytes are."""
    data, table = node.inputs
    by_channel = table.type.rank == 2
    if ctx.has_blocked(data):
        source, target = ctx.blocked(data), ctx.new_blocked(node.output)
        rows = ctx.contiguous(table) if not by_channel else _whole_blocks(ctx, table)
        steps = (0, BLOCK * BYTES, 0, 0, BYTES) if by_channel else (0,) * 5
        ctx.strided("lookup", target.dims, [source, (rows, steps)], target)
        ctx.set_blocked(node.output, target)
        return
    view, out = ctx.plain(data), ctx.new_plain(node.output.type)
    places = tuple(BYTES * (by_channel and axis == 1) for axis in range(data.type.rank))
    ctx.strided("lookup", out.type.shape, [view, (ctx.contiguous(table), places)], out)
    ctx.set_plain(node.output, out)


def _whole_blocks(ctx: Lowering, table: Value) -> View:
    """A table with rows of zeros for the channels that the last block lacks."""
    channels = table.shape[0]
    if channels % BLOCK == 0:
        return ctx.contiguous(table)

    def emit(context: Lowering, rows: PlainView, whole: View) -> None:
        size = -(-channels // BLOCK) * BLOCK * BYTES
        flat = PlainView(TensorType(u8, (size,)), whole.buffer, whole.offset, whole.writers, (1,))
        context.strided("fill_1", (size - rows.type.size,), [], (flat.moved(rows.type.size), (1,)), [0.0])
        context.strided("copy_1", (rows.type.size,), [(rows, (1,))], (flat, (1,)))

    return ctx.packed(table, ("lookup",), -(-channels // BLOCK) * BLOCK * BYTES, emit)


@lowers("dequantize")
def dequantize(ctx: Lowering, node: Node) -> None:
    """Who reads it may take the u8 numbers; others have them widened."""
    affine = affine_of(node)
    data = node.inputs[0]
    if affine is not None and data.type.element is u8 and ctx.has_blocked(data):
        ctx.quantized[node.output] = data, affine
        return
    source = ctx.plain(data)
    if affine is not None:
        out = ctx.computed(f"dequantize_{data.type.element}", [source], node.output.type, affine.floats)
    else:
        numbers = movement.converted(ctx, source, f32)
        centred = _by_channel(ctx, "subtract", node, numbers, movement.read(ctx, node.inputs[2], f32))
        out = _by_channel(ctx, "multiply", node, centred, ctx.contiguous(node.inputs[1]))
    ctx.set_plain(node.output, out)


# ---- few channels (the stem): a pixel is four bytes, and a step of the contraction takes four columns of the kernel at
# once, as if they were sixteen channels


def _quantize_in_fours(ctx: Lowering, data: Value, target: Value, affine: Affine) -> None:
    """Store `data` as the u8 value `target` in pixels of four bytes, inside the border that its readers want."""
    batch, _, height, width = data.shape
    halo, fill = ctx.layout.halo.get(target, Halo()), ctx.layout.fill.get(target, 0)
    rows, pitch = height + halo.top + halo.bottom, width + halo.left + halo.right
    memory = plain_view(TensorType(u8, (batch * rows * pitch * FOUR,)), ctx.builder.arena(
        batch * rows * pitch * FOUR))
    if halo:
        write_fill(ctx.emit, memory, halo, fill, planes=batch, height=height, width=width, words=1)
    strides = (rows * pitch * FOUR, 1, pitch * FOUR, FOUR)
    first = (halo.top * pitch + halo.left) * FOUR
    inside = memory.seen(target.type, strides, first)
    ctx.strided("quantize_u8", data.shape, [ctx.plain(data)], inside, affine.floats)
    ctx.fours[target] = inside


def _convolution_of_fours(ctx: Lowering, node: Node, geometry: Geometry) -> tuple[Input, Packing, Geometry]:
    """Return what the contraction reads in place of the node's data, weights and geometry."""
    data, weights = node.inputs[:2]
    view = ctx.fours[data]
    image, _, row, pixel = view.strides
    columns = -(-geometry.kernel[1] // FOUR)
    outputs = weights.shape[0]
    packing = _Columns(weights, (outputs, BLOCK, geometry.kernel[0], columns),
                       (BLOCK * geometry.kernel[0] * columns, geometry.kernel[0] * columns, columns, 1), 1)
    source = Input("k16", view, Plane(row, pixel, image), 1, 0, 0, 1, node.attrs["short_sums"])
    return source, packing, geometry._replace(kernel=(geometry.kernel[0], columns),
                                              dilations=(geometry.dilations[0], FOUR))


@dataclass(frozen=True)
class _Columns(Packing):
    """Weights i8 [O][C][KH][KW] as [O][4 columns of 4 channels][KH][KW / 4], with zeros where there is nothing."""

    def pack(self, ctx: Lowering, source: Input, oc_tile: int, *, is_wide: bool = False) -> View:
        outputs, channels, rows, width = self.value.shape

        def arrange(context: Lowering, view: PlainView) -> PlainView:
            shape = (outputs, *self.shape[1:])  # of all, where this is a part of them
            whole = context.new_plain(TensorType(view.type.element, shape))
            context.strided("fill_1", (prod(shape),), [], (replace(whole, type=TensorType(
                view.type.element, (prod(shape),))), (1,)), [0.0])
            o, c, k, x = view.strides
            to_o, to_c, to_k, _ = self.strides
            for four in range(self.shape[3]):
                count = min(FOUR, width - FOUR * four)
                part = replace(view, offset=view.offset + FOUR * four * x)
                target = replace(whole, offset=whole.offset + four)
                context.strided("copy_1", (outputs, channels, rows, count), [(part, (o, c, k, x))],
                                (target, (to_o, to_c, to_k, FOUR * to_c)), after=[whole])
            return whole

        return self.packed(ctx, source, oc_tile, is_wide, arrange)
