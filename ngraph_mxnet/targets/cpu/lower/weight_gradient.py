"""Weight gradients of 3x3 convolutions by Winograd's algorithm, transposed.

Where a result is A^T [(G w G^T) * (B^T d B)] A, the gradient by w is G^T [(A h A^T) * (B^T d B)] G, summed over the
tiles. The sums are products of matrices over tiles, `(tile + 2)^2` of them: the weight gradient kernel computes them as
a 1x1 convolution's, with a copy of sums for each. As forward, strips of tiles follow each other in the same memory;
each adds to the sums of those before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.types import TensorType, f32
from ngraph_mxnet.targets.cpu.lower.context import Lowering, keep_zeros, lowers, require_border
from ngraph_mxnet.targets.cpu.lower.contraction import block_bytes, byte_plane
from ngraph_mxnet.targets.cpu.microkernels.params import BF16_WEIGHT_GRADIENTS, DEPTHWISE_GRADIENTS, WEIGHT_GRADIENT
from ngraph_mxnet.targets.cpu.microkernels.tables import Plane
from ngraph_mxnet.targets.cpu.params import Params
from ngraph_mxnet.targets.cpu.params.layout import GATHER, GATHER_WEIGHT_GRADIENT, INPUT
from ngraph_mxnet.targets.cpu.params.record import PIXEL, by_name
from ngraph_mxnet.targets.cpu.planning import algorithm
from ngraph_mxnet.targets.cpu.planning.algorithm import Strip, cut, weight_matrix
from ngraph_mxnet.targets.cpu.planning.gradients import Pairing, in_pairs, slices_met, without_kernel
from ngraph_mxnet.targets.cpu.planning.layout import gradient_halo
from ngraph_mxnet.targets.cpu.planning.view import (
    BF16,
    BLOCK,
    BlockedView,
    PlainView,
    View,
    pair,
    plain_view,
    spatial,
    sub_images,
)

_CACHE = 4 << 20
"""Bytes of a strip's matrices. No number of threads changes it, nor what is added in which order."""
_FEWEST_TILES = 96
"""In a strip, so that the sums are read seldom."""
_CHUNK_TILES = 96
"""The most tiles in a chunk of the kernel; see `_products`."""
_MOST_BLOCKS = 16
_SUMS = 256 * 1024


def choose_tile(ctx: Lowering, node: Node) -> int:
    """The tile of F(tile x tile, 3x3) that suits a weight gradient, 0 for none: of 3x3 without strides, dilations and
    groups, of 16 channels or more. The work is a convolution's whose weights change."""
    (data, head), attrs = node.inputs, node.attrs
    if not ctx.settings.winograd or _in_bf16(ctx, node) or attrs["groups"] != 1 or tuple(attrs["kernel"]) != (3, 3):
        return 0
    if any(step > 1 for step in (*attrs["strides"], *attrs["dilations"])) or min(data.shape[1], head.shape[1]) < BLOCK:
        return 0
    images, outputs, height, width = head.shape
    layer = algorithm.Layer(images, data.shape[1], outputs, height, width, prepared=False)
    return algorithm.choose_tile(layer, ctx.settings.isa, 1, ctx.settings.halves)


def winograd_weight_gradient(ctx: Lowering, tile: int, node: Node) -> None:
    """Two-dimensional images."""
    data, head, halo = ctx.blocked(node.inputs[0]), ctx.blocked(node.inputs[1]), gradient_halo(node)
    matrices, blocks = (tile + 2) ** 2, data.blocks + head.blocks
    most = max(_FEWEST_TILES, _CACHE // (matrices * blocks * PIXEL))
    strips = cut(head.images, head.height, head.width, tile, most).strips()
    whole = strips[0].tiles
    inputs, heads = (_buffer(ctx, matrices * view.blocks * whole * BLOCK) for view in (data, head))
    sums = _buffer(ctx, matrices * head.blocks * data.blocks * BLOCK * BLOCK)
    outputs, channels = node.output.shape[:2]
    padding = -halo.top * data.row - halo.left * BLOCK
    after: list[View] = []
    for number, strip in enumerate(strips):
        share = strip.count / (head.images * strip.tile_rows)
        # Each strip has views of its own: what it waits for are the strip before, and what itself writes.
        own_inputs, own_heads, own_sums = (View(view.type, view.buffer, 0) for view in (inputs, heads, sums))
        for kernel, source, more, origin, target in ((f"winograd_input_{tile}", data, 2, padding, own_inputs),
                                                     (f"winograd_head_{tile}", head, 0, 0, own_heads)):
            params = _transform(strip, source, (head.height + more, head.width + more), origin, whole)
            ctx.emit(kernel, params, image=source, matrices=target, after=after,
                     bytes=int(share * source.type.bytes) + matrices * source.blocks * strip.tiles * PIXEL)
        params = _products(strip, matrices, data.blocks, head.blocks, whole, channels, adds=number > 0)
        ctx.emit("weight_gradient", params, data=own_inputs, head=own_heads, sums=own_sums,
                 operations=share * 18 * head.type.size * channels,
                 bytes=matrices * blocks * strip.tiles * PIXEL + sums.type.bytes)
        after = [own_sums]
    out = ctx.new_plain(node.output.type)
    gather = GATHER(outputs=outputs, channels=channels, side=tile + 2)
    ctx.emit("gather_winograd", gather.followed_by(floats=weight_matrix(tile).ravel().tolist()), sums=after[0],
             output=out, exact=True)
    ctx.set_plain(node.output, out)


def _buffer(ctx: Lowering, numbers: int) -> View:
    return View(TensorType(f32, (numbers,)), ctx.builder.arena(4 * numbers), 0)


def _transform(strip: Strip, source: BlockedView, size: tuple[int, int], origin: int, tiles: int) -> Params:
    """Return the parameters that transform a strip to matrices that have room for `tiles` tiles."""
    return INPUT(
        **strip.numbers, blocks=source.blocks, **by_name("rows columns", size), origin=origin, step=(1, 1),
        image=source.strides[:3], matrices=(source.blocks * tiles * BLOCK, tiles * BLOCK))


def _products(strip: Strip, matrices: int, data_blocks: int, head_blocks: int, tiles: int, channels: int, *,
              adds: bool) -> Params:
    """A matrix counts as an image, whose tiles are cut into rows without gaps, and its sums are a copy."""
    width = max(size for size in range(1, _CHUNK_TILES + 1) if strip.tiles % size == 0)
    height, row_chunk = strip.tiles // width, _CHUNK_TILES // width
    head_group = _even(head_blocks, _MOST_BLOCKS)
    data_group = _even(data_blocks, max(1, min(_MOST_BLOCKS, _SUMS // (head_group * BLOCK * PIXEL))))
    return WEIGHT_GRADIENT(
        copies=matrices, copy_chunks=-(-height // min(height, row_chunk)), images=matrices, height=height, width=width,
        image_chunk=1, row_chunk=min(height, row_chunk), blocks=(data_blocks, head_blocks),
        group=(data_group, head_group), taps=(1, 1), lanes=BLOCK, last_lanes=channels - (data_blocks - 1) * BLOCK,
        first=0, data=(data_blocks * tiles * PIXEL, tiles * PIXEL, width * PIXEL, PIXEL),
        head=(head_blocks * tiles * PIXEL, tiles * PIXEL, width * PIXEL), tap=(0, 0), adds=adds, batches=1,
        batch=(0, 0))


def _even(count: int, most: int) -> int:
    """The size of parts that differ little, none above `most`."""
    return -(-count // -(-count // most))


_CHUNK_PIXELS = 96
"""Pixels of a chunk, about: 6 KB a block. Four blocks of the head gradient stay in L1 with one of the data."""
_CHUNK_PAIRED, _CHUNK_TILED = 128, 512
"""The same in bf16: 4 KB a block. In AMX's tiles sums are read and written by each chunk, so that it is larger."""

_LEAST_TASKS = 32
"""Below so many, the pixels are cut into copies: a number that does not depend on the threads, as the sums do not."""
_COPIES_SHARE = 4
"""All copies together take at most the bytes of both operands by this."""


@dataclass(frozen=True)
class _Source:
    """The data as a kernel reads it, and what its sums are.

    `first` is where the first tap begins. `lanes` are the channels of a block times the taps that follow them in
    memory, of which `taps` are the others.
    """

    view: View
    plane: Plane
    first: int
    block_stride: int
    blocks: int
    lanes: int
    last_lanes: int
    inner: int
    taps: tuple[int, int]
    batches: int = 1
    batch: int = 0
    """How many times there are as many images, and the bytes between."""
    paired: Pairing | None = None
    """How it is read in bf16, if it is."""


@dataclass(frozen=True)
class _Cut:
    """Chunks and copies; see `microkernels/params.py`. Of rows without gaps an image may be one."""

    images: int
    height: int
    width: int
    image_chunk: int
    row_chunk: int
    data_group: int
    head_group: int
    copies: int
    copy_chunks: int
    paired: Pairing | None = None

    @staticmethod
    def of(head: BlockedView, source: _Source, strides: tuple[int, int], size: int) -> _Cut:
        """`size`: bytes of both operands."""
        images, height, width = head.images, head.height, head.width
        paired, most_pixels = source.paired, _CHUNK_PIXELS
        if paired:
            most_pixels = _CHUNK_TILED if paired.tiled else _CHUNK_PAIRED
        gaps = head.row != width * BLOCK or strides[0] * source.plane.row != width * strides[1] * source.plane.pixel
        if not gaps and height * width <= most_pixels:
            merged = paired and paired.of_size(1, height * width)
            if merged is None or merged.fits(1, 1):
                height, width, paired = 1, height * width, merged
        rows = max(1, min(height, most_pixels // width))
        rows = _even(height, rows)
        together = max(1, min(images, most_pixels // (height * width))) if rows == height else 1
        while paired and not paired.fits(together, rows):
            together, rows = (together - 1, rows) if together > 1 else (1, rows - 1)
        pair = prod(source.taps) * source.lanes * PIXEL
        if source.inner == 1:
            head_group = data_group = 1
        else:
            most_heads = paired.heads(together, rows) if paired else _MOST_BLOCKS
            head_group = _even(head.blocks, min(_MOST_BLOCKS, most_heads))
            data_group = _even(source.blocks, max(1, min(_MOST_BLOCKS, _SUMS // (head_group * pair))))
        tasks = -(-head.blocks // head_group) * -(-source.blocks // data_group)
        chunks = source.batches * -(-images // together) * -(-height // rows)
        most = size // _COPIES_SHARE // (head.blocks * source.blocks * pair)
        copy_chunks = -(-chunks // max(1, min(chunks, most, -(-_LEAST_TASKS // tasks))))
        return _Cut(images, height, width, together, rows, data_group, head_group, -(-chunks // copy_chunks),
                    copy_chunks, paired)


@lowers("convolution_weight_gradient", check=without_kernel)
def weight_gradient(ctx: Lowering, node: Node) -> None:
    """1-D as rows of height 1, to 3-D, where each tap of the depth axis is a gradient over the slices that it meets.

    Groups are 1, or depthwise with taps that have a kernel.
    """
    data, head_value = node.inputs
    tile = choose_tile(ctx, node)
    if tile:
        winograd_weight_gradient(ctx, tile, node)
        return
    in_bf16 = _in_bf16(ctx, node)
    # The data gradient's convolution wants the head gradient in bf16, too.
    head, dilations = (ctx.narrow if in_bf16 else ctx.blocked)(head_value), _pair(node, "dilations")
    few = data.shape[1] < BLOCK and dilations[1] == 1 and node.attrs["groups"] == 1 and not ctx.has_blocked(data)
    source = _packed_pixels(ctx, node) if few else _blocked_source(ctx, node, in_bf16=in_bf16)
    out = ctx.new_plain(node.output.type)
    if data.type.rank < 5:
        _slices(ctx, node, source, head, out)
    else:
        _each_depth_tap(ctx, node, source, head, out)
    ctx.set_plain(node.output, out)


def _in_bf16(ctx: Lowering, node: Node) -> bool:
    return ctx.bf16 and in_pairs(node, tiled=ctx.settings.amx)


def _each_depth_tap(ctx: Lowering, node: Node, source: _Source, head: BlockedView, out: PlainView) -> None:
    (data, head_value), attrs = node.inputs, node.attrs
    stride, dilation, pad = (attrs[name][0] for name in ("strides", "dilations", "pads_begin"))
    slice_ = source.plane.image
    source = replace(source, batches=data.shape[0], batch=data.shape[2] * slice_,
                     plane=source.plane._replace(image=stride * slice_))
    taps = prod(attrs["kernel"][1:])
    for tap, met in enumerate(slices_met(node)):
        front = met.start * stride + tap * dilation - pad
        slices = sub_images(head, (len(met), *head_value.shape[1:2], *head_value.shape[3:]), met.start)
        _slices(ctx, node, replace(source, first=source.first + front * slice_), slices, out.moved(tap * taps * 4),
                head_batch=head_value.shape[2] * byte_plane(head).image)


def _slices(ctx: Lowering, node: Node, source: _Source, head: BlockedView, out: PlainView, *,
            head_batch: int = 0) -> None:
    """Emit the gradient by the taps of height and width; `out` points at the first."""
    strides, dilations, depthwise = _pair(node, "strides"), _pair(node, "dilations"), node.attrs["groups"] > 1
    if source.paired and source.paired.by_rows:
        for row in range(source.taps[0]):
            part = replace(source, first=source.first + row * dilations[0] * source.plane.row,
                           taps=(1, source.taps[1]), paired=source.paired.of_row())
            _slices(ctx, node, part, head, out.moved(4 * row * source.taps[1]), head_batch=head_batch)
        return
    size = node.inputs[0].type.bytes + node.inputs[1].type.bytes
    cut = _Cut.of(head, source, strides, size)
    numbers = {
        **{name: getattr(cut, name) for name in "copies copy_chunks images height width image_chunk row_chunk".split()},
        "first": source.first, "data": (source.plane.image, source.block_stride, strides[0] * source.plane.row,
                                        strides[1] * source.plane.pixel),
        "head": (byte_plane(head).image, block_bytes(head), byte_plane(head).row),
    }
    tap = dilations[0] * source.plane.row, dilations[1] * source.plane.pixel
    sums = cut.copies * head.blocks * source.blocks * prod(source.taps) * source.lanes * BLOCK
    made = ctx.new_plain(TensorType(f32, (sums,)))
    if depthwise:
        side = source.taps[0]
        kernel, params = f"weight_gradient_depthwise_{side}", DEPTHWISE_GRADIENTS[side](
            **numbers, blocks=head.blocks, tap=tap[:1])
    else:
        numbers |= {
            "blocks": (source.blocks, head.blocks), "group": (cut.data_group, cut.head_group), "taps": source.taps,
            "lanes": source.lanes, "last_lanes": source.last_lanes, "tap": tap, "adds": False,
            "batches": source.batches, "batch": (source.batch, head_batch)}
        if cut.paired is None:
            kernel, params = "weight_gradient", WEIGHT_GRADIENT(**numbers)
        else:
            tiled = cut.paired.tiled
            kernel, params = "weight_gradient_bf16" + "_amx" * tiled, BF16_WEIGHT_GRADIENTS[tiled](
                **numbers, phases=cut.paired.phases, shift=cut.paired.shift,
                lines=(*cut.paired.lines, cut.paired.step * source.plane.row),
                narrow=[view.type.element is BF16 for view in (source.view, head)])
    pixels = source.batches * head.images * head.height * head.width
    ctx.emit(kernel, params, data=source.view, head=head, sums=made,
             operations=2 * pixels * prod(node.output.shape[:2]) * prod(source.taps) * source.lanes // source.inner,
             bytes=size + made.type.bytes)
    ctx.emit("gather_weight_gradient", _gather(node, cut, head, source), sums=made, output=out, exact=True)


def _gather(node: Node, cut: _Cut, head: BlockedView, source: _Source) -> Params:
    outputs, channels, *kernel = node.output.shape
    return GATHER_WEIGHT_GRADIENT(
        copies=cut.copies, head_blocks=head.blocks, data_blocks=source.blocks, taps=prod(source.taps),
        lanes=source.lanes, inner=source.inner, outputs=outputs, channels=channels, row=prod(kernel))


def _blocked_source(ctx: Lowering, node: Node, *, in_bf16: bool) -> _Source:
    data, pads = (ctx.stored if in_bf16 else ctx.blocked)(node.inputs[0]), gradient_halo(node)
    require_border(ctx, data, pads)
    channels = node.output.shape[1]
    lanes = min(channels, BLOCK)  # of a depthwise convolution each channel has one
    blocks = -(-channels // BLOCK)
    plane = byte_plane(data)
    return _Source(data, plane, -(pads.top * plane.row + pads.left * plane.pixel), block_bytes(data), blocks, lanes,
                   channels - (blocks - 1) * lanes, lanes, _pair(node, "kernel"),
                   paired=Pairing.of(node, tiled=ctx.settings.amx) if in_bf16 else None)


def _packed_pixels(ctx: Lowering, node: Node) -> _Source:
    """Few channels (the stem): a copy inside a zero border, in which the channels of the taps of a row are neighbours.

    See `_plain_input` of convolutions for the border.
    """
    value, halo, (rows, columns) = node.inputs[0], gradient_halo(node), _pair(node, "kernel")
    source = ctx.contiguous(value)
    (images, channels, *_), (height, width) = value.shape, spatial(value.shape)
    depth = value.shape[2] if value.type.rank == 5 else 1
    pitch = width + halo.left + halo.right
    image = (height + halo.top + halo.bottom) * pitch * channels
    type_ = TensorType(f32, (images * depth * image,))
    border = plain_view(type_, ctx.builder.arena(type_.bytes, ("pixels", value.shape, halo)))
    keep_zeros(ctx.settings.symbol("zero_halo"), border, halo, planes=images * depth, height=height, width=width,
               words=channels)
    shape = (images, depth, height, width, channels)
    strides = (depth * image, image, pitch * channels, channels, 1)
    inside = border.seen(TensorType(f32, shape), strides, (halo.top * pitch + halo.left) * channels)
    plane = height * width
    ctx.strided("copy_4", shape, [(source, (channels * depth * plane, plane, width, 1, depth * plane))], inside)
    return _Source(border, Plane(pitch * channels * 4, channels * 4, image * 4), 0, 0, 1, columns * channels,
                   columns * channels, channels, (rows, 1))


def _pair(node: Node, name: str) -> tuple[int, int]:
    """An attribute in two dimensions."""
    return pair(node.attrs[name], 1)
