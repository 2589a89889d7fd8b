"""3x3 convolutions by Winograd's algorithm: input transform, matrix products, output transform with the epilogue.

A dilated convolution is one without dilation of each phase, of the pixels that lie a multiple of the dilation apart.
The images, or phases of images, are cut into strips of tile rows whose matrices stay in cache, done one after the other
in the same memory. A strip's matrices are `[S * S][channel blocks][tiles][16]`: one contraction computes all products,
with a channel group for each matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ngraph_mxnet.cpu import abi, algorithm
from ngraph_mxnet.cpu.lower.context import Lowering
from ngraph_mxnet.cpu.microkernels.params import ContractionParams
from ngraph_mxnet.cpu.microkernels.tables import Plane, pixel_table, step_table
from ngraph_mxnet.cpu.microkernels.tiles import TileChoice, choose_tiles
from ngraph_mxnet.cpu.view import BLOCK, BlockedView, Buffer, PlainView, View, images_of
from ngraph_mxnet.cpu.winograd import cut, weight_matrix
from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.types import TensorType, f32

if TYPE_CHECKING:
    from ngraph_mxnet.cpu.lower.contraction import Epilogue, Geometry

_CACHE = 2 << 20
"""Bytes of a strip's matrices a thread: about what a core has of L2 and L3."""
_FEWEST_TILES = 96
"""In a strip: each weight is read once a strip, and meets so many tiles."""


def choose_tile(ctx: Lowering, node: Node, geometry: Geometry) -> int:
    """The output tile of the Winograd algorithm that suits the convolution `node`, 0 for none.

    3x3 of stride 1 without groups, from 16 channels to 16 or more, and weights that are transformed once: at prepare
    time.
    """
    data, weights = node.inputs[:2]
    outputs, size = node.outputs[0].shape[1], node.outputs[0].shape[-2:]
    if ctx.bf16 or not ctx.target.winograd:
        return 0
    if geometry.groups != 1 or geometry.kernel != (3, 3) or node.outputs[0].type.size == 0:
        return 0
    if geometry.strides != (1, 1) or min(data.shape[1], outputs) < BLOCK:
        return 0
    if not ctx.is_prepared(weights):
        return 0
    phases, height, width = _phases(images_of(node.outputs[0].shape), size, geometry.dilations)
    layer = algorithm.Layer(phases, data.shape[1], outputs, height, width)
    return algorithm.choose_tile(layer, ctx.target.isa, ctx.target.threads)


def _phases(images: int, size: tuple[int, ...], dilations: tuple[int, int]) -> tuple[int, int, int]:
    """How many phases there are of all images, and the height and width of the largest."""
    (height, width), (down, right) = size, dilations
    return images * down * right, -(-height // down), -(-width // right)


def convolution(ctx: Lowering, tile: int, data: Value, weights: Value, geometry: Geometry, outputs: list[BlockedView],
                epilogue: Epilogue) -> None:
    """Emit a 3x3 convolution of stride 1 without groups as F(tile x tile, 3x3)."""
    source, out, second = ctx.blocked(data), outputs[0], outputs[1] if len(outputs) > 1 else None
    residual = ctx.blocked(epilogue.residual) if epilogue.residual is not None else None
    bias, scale, shift = (_channels(ctx, value) for value in (epilogue.bias, epilogue.scale, epilogue.shift))
    bias = bias or View(out.type, ctx.builder.constant(np.zeros(out.blocks * BLOCK, np.float32)), 0)
    tile_bytes = (tile + 2) ** 2 * (source.blocks + out.blocks) * BLOCK * 4
    most = max(_FEWEST_TILES, _CACHE * max(2, ctx.target.threads) // tile_bytes)
    phases, height, width = _phases(out.images, (out.height, out.width), geometry.dilations)
    strips = cut(phases, height, width, tile, most)
    products = _Products.of(ctx, tile, source.blocks, out.blocks, strips[0].tiles)
    packed = _pack(ctx, weights, tile, products.choice.oc_tile)
    before: list[View] = []
    for strip in strips:
        share = strip.count / (phases * strip.tile_rows)
        matrices, results = products.views()
        ints = abi.winograd_input_ints(
            source, strip, products.in_stride, products.block, padding=geometry.padding, dilation=geometry.dilations,
            rows=out.height + 2 * geometry.dilations[0], columns=out.width + 2 * geometry.dilations[1])
        ctx.emit(f"winograd_input_{tile}", [source], matrices, ints, after=before,
                 bytes=int(share * source.type.bytes) + matrices.type.bytes)
        products.emit(ctx, matrices, packed, results, operations=share * 18 * data.shape[1] * out.type.size)
        ints = abi.winograd_output_ints(out, strip, products.out_stride, products.block, residual=residual,
                                        second=second, dilation=geometry.dilations)
        images = [view for view in (out, residual, second) if view]
        ctx.emit(f"winograd_output_{tile}",
                 [results, bias, residual or results, second or results, scale or results, shift or results], out, ints,
                 [epilogue.lower, epilogue.upper, epilogue.lower2, epilogue.upper2],
                 bytes=results.type.bytes + int(share * sum(view.type.bytes for view in images)))
        if second is not None:
            second.writers.append(out.writers[-1])
        # The next strip takes the same memory.
        before = [View(out.type, out.buffer, 0, out.writers[-1:])]


class _Products:
    """The matrix products of a strip, and where their operands lie; strides are in elements."""

    def __init__(self, ctx: Lowering, matrices: int, blocks: int, tiles: int, choice: TileChoice) -> None:
        self.choice = choice
        self.matrices, self.blocks, self.tiles = matrices, blocks, tiles
        self.block = tiles * BLOCK
        self.in_stride, self.out_stride = blocks * self.block, choice.out_blocks * self.block
        self._input = ctx.builder.arena(matrices * self.in_stride * 4)
        self._output = ctx.builder.arena(matrices * self.out_stride * 4)

    @staticmethod
    def of(ctx: Lowering, tile: int, blocks: int, out_blocks: int, tiles: int) -> _Products:
        matrices = (tile + 2) ** 2
        choice = choose_tiles(ctx.target.isa, "k16", images=1, out_h=1, out_w=tiles, out_blocks=out_blocks,
                              steps=blocks, groups=matrices, flat_input=True, threads=ctx.target.threads)
        return _Products(ctx, matrices, blocks, tiles, choice)

    def views(self) -> tuple[View, View]:
        """Operands and results of one strip."""
        def view(buffer: Buffer) -> View:
            return View(TensorType(f32, (buffer.bytes // 4,)), buffer, 0)

        return view(self._input), view(self._output)

    def emit(self, ctx: Lowering, matrices: View, packed: View, results: View, *, operations: float) -> None:
        plane = Plane(self.block * 4, BLOCK * 4)
        pixels = pixel_table(1, self.tiles, inputs=plane, output=plane)
        steps = step_table(plane, channels=self.blocks, channel_stride=self.block * 4)
        fields = {**self.choice.fields(), "channel_group_stride": 0}
        params = ContractionParams(
            **fields, steps=steps.size, pixel_stride=BLOCK * 4, in_group_stride=self.in_stride * 4,
            out_block_stride=self.block * 4,
        )
        zeros = np.zeros(self.choice.oc_groups * self.choice.oc_tile, np.float32)
        tables = [(ctx.builder.constant(table), 0) for table in (zeros, pixels, steps)]
        unused = matrices.operand
        operands = [matrices.operand, packed.operand, tables[0], results.operand, unused, *tables[1:], *[unused] * 3]
        ctx.builder.emit(self.choice.symbol, operands, params.ints(), params.floats(), params.tasks,
                         reads=[matrices, packed], writes=results, origin=ctx.origin, operations=operations,
                         bytes=matrices.type.bytes + packed.buffer.bytes + results.type.bytes)


def _pack(ctx: Lowering, weights: Value, tile: int, oc_tile: int) -> View:
    """The transformed weights, one packed matrix after the other."""
    ints = abi.pack_winograd_ints(weights.shape, tile=tile, oc_tile=oc_tile)
    outputs, inputs = weights.shape[:2]
    size = (tile + 2) ** 2 * -(-outputs // oc_tile) * oc_tile * -(-inputs // BLOCK) * BLOCK * 4

    def emit(context: Lowering, source: PlainView, destination: View) -> None:
        context.emit("pack_winograd", [source], destination, ints, weight_matrix(tile).ravel().tolist())

    return ctx.packed(weights, ("pack_winograd", *ints), size, emit)


def _channels(ctx: Lowering, value: Value | None) -> View | None:
    """A per-channel vector, padded with zeros to whole blocks."""
    if value is None:
        return None
    (channels,) = value.shape
    ints = abi.pack_channels_ints(channels, groups=1, oc_tile=BLOCK)

    def emit(context: Lowering, source: PlainView, destination: View) -> None:
        context.emit("pack_channels", [source], destination, ints)

    return ctx.packed(value, ("channels", *ints), -(-channels // BLOCK) * BLOCK * 4, emit)
