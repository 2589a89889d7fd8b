"""Weight gradients of 3x3 convolutions by Winograd's algorithm, transposed.

Where a result is A^T [(G w G^T) * (B^T d B)] A, the gradient by w is G^T [(A h A^T) * (B^T d B)] G, summed over the
tiles. The sums are products of matrices over tiles, `(tile + 2)^2` of them: the weight gradient kernel computes them as
a 1x1 convolution's, with a copy of sums for each. As forward, strips of tiles follow each other in the same memory;
each adds to the sums of those before.
"""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.types import TensorType, f32
from ngraph_mxnet.targets.cpu.lower.context import Lowering
from ngraph_mxnet.targets.cpu.lower.layouts import blocked_strides
from ngraph_mxnet.targets.cpu.microkernels.weight_gradient_params import WEIGHT_GRADIENT
from ngraph_mxnet.targets.cpu.params import Params
from ngraph_mxnet.targets.cpu.params.record import by_name
from ngraph_mxnet.targets.cpu.params.winograd import GATHER, INPUT
from ngraph_mxnet.targets.cpu.planning import algorithm
from ngraph_mxnet.targets.cpu.planning.layout import gradient_halo
from ngraph_mxnet.targets.cpu.planning.view import BLOCK, BlockedView, View
from ngraph_mxnet.targets.cpu.planning.winograd import Strip, cut, weight_matrix

_CACHE = 4 << 20
"""Bytes of a strip's matrices. No number of threads changes it, nor what is added in which order."""
_FEWEST_TILES = 96
"""In a strip, so that the sums are read seldom."""
_CHUNK_TILES = 96
"""Of a chunk of the kernel at most; see `lower/weight_gradient.py`."""
_MOST_BLOCKS = 16
_SUMS = 256 * 1024
_PIXEL = 4 * BLOCK


def choose_tile(ctx: Lowering, node: Node) -> int:
    """The tile of F(tile x tile, 3x3) that suits a weight gradient, 0 for none: of 3x3 without strides, dilations and
    groups, of 16 channels or more. The work is a convolution's whose weights change."""
    (data, head), attrs = node.inputs, node.attrs
    if not ctx.settings.winograd or ctx.bf16 or attrs["groups"] != 1 or tuple(attrs["kernel"]) != (3, 3):
        return 0
    if any(step > 1 for step in (*attrs["strides"], *attrs["dilations"])) or min(data.shape[1], head.shape[1]) < BLOCK:
        return 0
    images, outputs, height, width = head.shape
    layer = algorithm.Layer(images, data.shape[1], outputs, height, width, prepared=False)
    return algorithm.choose_tile(layer, ctx.settings.isa, 1, ctx.settings.halves)


def weight_gradient(ctx: Lowering, tile: int, node: Node) -> None:
    """Two-dimensional images."""
    data, head, halo = ctx.blocked(node.inputs[0]), ctx.blocked(node.inputs[1]), gradient_halo(node)
    matrices, blocks = (tile + 2) ** 2, data.blocks + head.blocks
    most = max(_FEWEST_TILES, _CACHE // (matrices * blocks * _PIXEL))
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
                     bytes=int(share * source.type.bytes) + matrices * source.blocks * strip.tiles * _PIXEL)
        params = _products(strip, matrices, data.blocks, head.blocks, whole, channels, adds=number > 0)
        ctx.emit("weight_gradient", params, data=own_inputs, head=own_heads, sums=own_sums,
                 operations=share * 18 * head.type.size * channels,
                 bytes=matrices * blocks * strip.tiles * _PIXEL + sums.type.bytes)
        after = [own_sums]
    out = ctx.new_plain(node.output.type)
    gather = GATHER(outputs=outputs, channels=channels, side=tile + 2)
    ctx.emit("gather_winograd", gather.followed_by(floats=weight_matrix(tile).ravel().tolist()), sums=after[0],
             output=out, exact=True)
    ctx.set_plain(node.output, out)


def _buffer(ctx: Lowering, numbers: int) -> View:
    return View(TensorType(f32, (numbers,)), ctx.builder.arena(4 * numbers), 0)


def _transform(strip: Strip, source: BlockedView, size: tuple[int, int], origin: int, tiles: int) -> Params:
    """Of a strip to matrices that have room for so many tiles."""
    return INPUT(
        strip_rows=strip.count, tile_rows=strip.tile_rows, tile_columns=strip.tile_columns, first_row=strip.first,
        blocks=source.blocks, **by_name("rows columns", size), origin=origin, row_step=1, column_step=1,
        **by_name("in_n in_c in_row", blocked_strides(source)[:3]), out_matrix=source.blocks * tiles * BLOCK,
        out_c=tiles * BLOCK)


def _products(strip: Strip, matrices: int, data_blocks: int, head_blocks: int, tiles: int, channels: int, *,
              adds: bool) -> Params:
    """A matrix counts as an image, whose tiles are cut into rows without gaps, and its sums are a copy."""
    width = max(size for size in range(1, _CHUNK_TILES + 1) if strip.tiles % size == 0)
    height, row_chunk = strip.tiles // width, _CHUNK_TILES // width
    head_group = _even(head_blocks, _MOST_BLOCKS)
    data_group = _even(data_blocks, max(1, min(_MOST_BLOCKS, _SUMS // (head_group * BLOCK * _PIXEL))))
    return WEIGHT_GRADIENT(
        copies=matrices, copy_chunks=-(-height // min(height, row_chunk)), images=matrices, height=height, width=width,
        image_chunk=1, row_chunk=min(height, row_chunk), data_blocks=data_blocks, head_blocks=head_blocks,
        data_group=data_group, head_group=head_group, taps_h=1, taps_w=1, lanes=BLOCK,
        last_lanes=channels - (data_blocks - 1) * BLOCK, first=0, data_image=data_blocks * tiles * _PIXEL,
        data_block=tiles * _PIXEL, data_row=width * _PIXEL, data_pixel=_PIXEL,
        head_image=head_blocks * tiles * _PIXEL, head_block=tiles * _PIXEL, head_row=width * _PIXEL, tap_row=0,
        tap_column=0, adds=adds, batches=1, data_batch=0, head_batch=0)


def _even(count: int, most: int) -> int:
    """The size of parts that differ little, none above `most`."""
    return -(-count // -(-count // most))
