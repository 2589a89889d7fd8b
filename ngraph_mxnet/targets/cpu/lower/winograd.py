"""3x3 convolutions by Winograd's algorithm: input transform, matrix products, output transform with the epilogue.

A dilated convolution is one without dilation of each phase, of the pixels that lie a multiple of the dilation apart.
The images, or phases of images, are cut into strips of tile rows whose matrices stay in cache, done one after the other
in the same memory. A strip's matrices are `[S * S][channel blocks][tiles][16]`: one contraction computes all products,
with a channel group for each matrix.
"""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.sizes import at_hand, is_symbolic
from ngraph_mxnet.ir.types import TensorType, f32
from ngraph_mxnet.targets.cpu.lower.context import Lowering, require_border
from ngraph_mxnet.targets.cpu.lower.contraction import Epilogue, Geometry, Packing, Vectors
from ngraph_mxnet.targets.cpu.microkernels.params import contraction_params
from ngraph_mxnet.targets.cpu.microkernels.tables import Plane, pixel_table, step_table, zero_table
from ngraph_mxnet.targets.cpu.microkernels.tiles import ContractionSize, TileChoice, choose_tiles
from ngraph_mxnet.targets.cpu.params.layout import INPUT, OUTPUT, OUTPUT_FLAGS, PACK
from ngraph_mxnet.targets.cpu.planning import algorithm
from ngraph_mxnet.targets.cpu.planning.algorithm import cut, weight_matrix
from ngraph_mxnet.targets.cpu.planning.view import BLOCK, BlockedView, PlainView, View, images_of
from ngraph_mxnet.targets.cpu.program.instruction import Buffer

_CACHE = 2 << 20
"""Bytes of a strip's matrices a thread: about what a core has of L2 and L3."""
_FEWEST_TILES = 96
"""In a strip: each weight is read once a strip, and meets so many tiles."""


def tiles(ctx: Lowering, node: Node, geometry: Geometry) -> dict[int, int]:
    """The output tiles of the Winograd algorithm that suit the convolution `node`, 0 for none, each with the condition
    on which it does: one that holds, unless sizes are symbols.

    3x3 of stride 1 without groups, from 16 channels to 16 or more; not where sums have to be exact. Weights that
    change with every call are transformed in each, which counts; a training step has the same bits on any number of
    threads, so that these choose as one does.
    """
    data, weights = node.inputs[:2]
    outputs, size = node.outputs[0].shape[1], node.outputs[0].shape[-2:]
    if ctx.bf16 or not ctx.settings.winograd or node.attrs["exact"]:
        return {0: True}
    if geometry.groups != 1 or geometry.kernel != (3, 3) or node.outputs[0].type.size == 0:
        return {0: True}
    if geometry.strides != (1, 1) or min(data.shape[1], outputs) < BLOCK:
        return {0: True}
    phases, height, width = _phases(images_of(node.outputs[0].shape), size, geometry.dilations)
    prepared = ctx.is_prepared(weights)
    layer = algorithm.Layer(phases, data.shape[1], outputs, height, width, prepared)
    machine = ctx.settings.isa, ctx.settings.threads if prepared else 1, ctx.settings.halves
    if not is_symbolic(phases * height * width):
        return {algorithm.choose_tile(layer, *machine): True}
    at_them = layer._replace(images=at_hand(phases), height=at_hand(height), width=at_hand(width))
    if not all(ctx.is_prepared(value) for value in node.inputs[1:] if value.type.rank < 4) or node in ctx.activations:
        return {algorithm.choose_tile(at_them, *machine): True}
    # Each tile has weights of its own, of which the larger one is nearly always the better.
    found = algorithm.conditions(layer, *machine, tiles=(2, 4) if ctx.settings.every_algorithm else (4,))
    return {tile: holds for tile, holds in found.items() if is_symbolic(holds) or holds}


def _phases(images: int, size: tuple[int, ...], dilations: tuple[int, int]) -> tuple[int, int, int]:
    """How many phases there are of all images, and the height and width of the largest."""
    (height, width), (down, right) = size, dilations
    return images * down * right, -(-height // down), -(-width // right)


def convolution(ctx: Lowering, tile: int, data: Value, weights: Value, geometry: Geometry, outputs: list[BlockedView],
                epilogue: Epilogue) -> None:
    """Emit a 3x3 convolution of stride 1 without groups as F(tile x tile, 3x3)."""
    source, out, second = ctx.blocked(data), outputs[0], outputs[1] if len(outputs) > 1 else None
    require_border(ctx, source, geometry.halo)
    residual = ctx.blocked(epilogue.residual) if epilogue.residual is not None else None
    vectors = Vectors(ctx, out.type.shape[1], BLOCK)
    bias = vectors.bias(epilogue.bias)
    scale, shift = (None if value is None else vectors.of(value) for value in (epilogue.scale, epilogue.shift))
    tile_bytes = (tile + 2) ** 2 * (source.blocks + out.blocks) * BLOCK * 4
    most = max(_FEWEST_TILES, _CACHE * max(2, ctx.settings.threads) // tile_bytes)
    phases, height, width = _phases(out.images, (out.height, out.width), geometry.dilations)
    strips = cut(phases, height, width, tile, most)
    products = _Products.of(ctx, tile, source.blocks, out.blocks, strips.rows * strips.tile_columns)
    packed = _pack(ctx, weights, tile, products.choice.oc_tile)
    before: list[View] = []
    for strip in ctx.builder.each(strips.count, strips.strip):
        matrices, results = products.views()
        shared = {**strip.numbers, "step": geometry.dilations}
        top, left = geometry.padding
        params = INPUT(
            **shared, blocks=source.blocks, rows=out.height + 2 * geometry.dilations[0],
            columns=out.width + 2 * geometry.dilations[1], origin=-top * source.row - left * BLOCK,
            image=_steps(source), matrices=(products.in_stride, products.block))
        ctx.emit(f"winograd_input_{tile}", params, image=source, matrices=matrices, after=before, around=("image",),
                 bytes=strip.count * source.type.bytes // strips.total + matrices.type.bytes)
        products.emit(ctx, matrices, packed, results,
                      operations=strip.count * 18 * data.shape[1] * out.type.size // strips.total)
        params = OUTPUT(
            **shared, blocks=out.blocks, rows=out.height, columns=out.width,
            flags=sum(OUTPUT_FLAGS[name] for name, view in (("residual", residual), ("output2", second)) if view),
            products=(products.out_stride, products.block), output=_steps(out), residual=_steps(residual),
            output2=_steps(second), lower=epilogue.lower, upper=epilogue.upper, lower2=epilogue.lower2,
            upper2=epilogue.upper2)
        images = [view for view in (out, residual, second) if view]
        ctx.emit(f"winograd_output_{tile}", params, products=results, bias=bias, residual=residual, output2=second,
                 scale2=scale, shift2=shift, output=out,
                 bytes=results.type.bytes + strip.count * sum(view.type.bytes for view in images) // strips.total)
        # The next strip takes the same memory.
        before = [View(out.type, out.buffer, 0, out.writers[-1:])]


def _steps(view: BlockedView | None) -> tuple[int, ...]:
    return view.strides[:3] if view else (0, 0, 0)


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
        size = ContractionSize.of_product(tiles, out_blocks, blocks, groups=matrices)
        choice = choose_tiles(ctx.settings.wanted(), "k16", size, threads=ctx.settings.threads)
        return _Products(ctx, matrices, blocks, tiles, choice)

    def views(self) -> tuple[View, View]:
        """Operands and results of one strip."""
        def view(buffer: Buffer) -> View:
            return View(TensorType(f32, (buffer.bytes // 4,)), buffer, 0)

        return view(self._input), view(self._output)

    def emit(self, ctx: Lowering, matrices: View, packed: View, results: View, *, operations: int) -> None:
        plane = Plane(self.block * 4, BLOCK * 4)
        pixels = pixel_table(1, self.tiles, inputs=plane, output=plane)
        steps = step_table(plane, channels=self.blocks, channel_stride=self.block * 4)
        fields = {**self.choice.fields(), "channel_group_stride": 0}
        params = contraction_params(
            **fields, steps=steps.size, pixel_stride=BLOCK * 4, input=(0, self.in_stride * 4),
            output=(0, self.block * 4),
        )
        zeros = zero_table(self.choice.oc_groups * self.choice.oc_tile)
        ctx.emit(self.choice.kernel, params, input=matrices, weights=packed, output=results, bias=ctx.table(zeros),
                 pixels=ctx.table(pixels), steps=ctx.table(steps), operations=operations,
                 bytes=matrices.type.bytes + packed.buffer.bytes + results.type.bytes)


def _pack(ctx: Lowering, weights: Value, tile: int, oc_tile: int) -> View:
    """The transformed weights, one packed matrix after the other."""
    outputs, inputs = weights.shape[:2]
    packing = Packing.of_convolution(ctx, weights, 1)
    params = PACK(out_channels=outputs, in_channels=inputs, side=tile + 2, oc_tile=oc_tile,
                  weights=packing.strides)
    params = params.followed_by(floats=weight_matrix(tile).ravel().tolist())
    size = (tile + 2) ** 2 * -(-outputs // oc_tile) * oc_tile * -(-inputs // BLOCK) * BLOCK * 4

    def emit(context: Lowering, source: PlainView, destination: View) -> None:
        context.emit("pack_winograd", params, weights=source, packed=destination)

    return ctx.packed(weights, ("pack_winograd", *params.ints()), size, emit, contiguous=packing.contiguous)
