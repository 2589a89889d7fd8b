"""Quantised convolutions of few channels (the stem): a pixel is four bytes, and a step of the contraction takes four
columns of the kernel at once, as if they were sixteen channels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.types import TensorType, u8
from ngraph_mxnet.targets.cpu.lower.context import Lowering, write_fill
from ngraph_mxnet.targets.cpu.lower.contraction import Geometry, Input, Packing
from ngraph_mxnet.targets.cpu.microkernels.tables import Plane
from ngraph_mxnet.targets.cpu.planning.precision import FOUR, Affine
from ngraph_mxnet.targets.cpu.planning.view import BLOCK, Halo, PlainView, View, plain_view


def quantize(ctx: Lowering, data: Value, target: Value, affine: Affine) -> None:
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


def convolution(ctx: Lowering, node: Node, geometry: Geometry) -> tuple[Input, Packing, Geometry]:
    """Return what the contraction reads in place of the node's data, weights and geometry."""
    data, weights = node.inputs[:2]
    view = ctx.fours[data]
    image, _, row, pixel = view.strides
    columns = -(-geometry.kernel[1] // FOUR)
    outputs = weights.shape[0]
    packing = _Columns(weights, (outputs, BLOCK, geometry.kernel[0], columns),
                       (BLOCK * geometry.kernel[0] * columns, geometry.kernel[0] * columns, columns, 1), 1)
    source = Input("k16", view, Plane(row, pixel, image), 1, 0, 0, 1, node.attrs["short_sums"])
    return source, packing, replace(geometry, kernel=(geometry.kernel[0], columns),
                                    dilations=(geometry.dilations[0], FOUR))


@dataclass(frozen=True)
class _Columns(Packing):
    """Weights i8 [O][C][KH][KW] as [O][4 columns of 4 channels][KH][KW / 4], with zeros where there is nothing."""

    def pack(self, ctx: Lowering, source: Input, oc_tile: int, *, is_wide: bool = False) -> View:
        outputs, channels, rows, width = self.value.shape

        def arrange(context: Lowering, view: PlainView) -> PlainView:
            whole = context.new_plain(TensorType(view.type.element, self.shape))
            context.strided("fill_1", (prod(self.shape),), [], (replace(whole, type=TensorType(
                view.type.element, (prod(self.shape),))), (1,)), [0.0])
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
