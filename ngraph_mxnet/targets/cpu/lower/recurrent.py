"""Recurrent layers: two instructions a step, the product with the hidden state and the gates; always in float32."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.types import TensorType, f32
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.targets.cpu.lower.elementwise import check_f32
from ngraph_mxnet.targets.cpu.microkernels.params import contraction_params
from ngraph_mxnet.targets.cpu.microkernels.tables import Plane, pixel_table, step_table
from ngraph_mxnet.targets.cpu.microkernels.tiles import ContractionSize, TileChoice, choose_tiles
from ngraph_mxnet.targets.cpu.params.layout import packed_channels, packed_matrices
from ngraph_mxnet.targets.cpu.params.record import by_name
from ngraph_mxnet.targets.cpu.params.recurrent import CELLS, CHUNK
from ngraph_mxnet.targets.cpu.planning.view import BLOCK, BlockedView, PlainView, View, plain_view


@lowers("lstm_cell", "gru_cell", check=check_f32)
def cell(ctx: Lowering, node: Node) -> None:
    """One step, its products done."""
    x, product, before = (_rows(ctx, value) for value in node.inputs)
    out = _padded(ctx, node.outputs[0].type)
    state = ctx.new_plain(node.outputs[1].type) if len(node.outputs) > 1 else None
    _emit_gates(ctx, node.op.name.removesuffix("_cell"), x, product, before, out, state)
    _set_padded(ctx, node.outputs[0], out)
    if state is not None:
        ctx.set_plain(node.outputs[1], state)


@lowers("rnn", check=check_f32)
def rnn(ctx: Lowering, node: Node) -> None:
    """One direction of one layer. The hidden states of all steps are one buffer, which the products read in place."""
    x, weights, bias, h, *rest = node.inputs
    if node.outputs[0].type.size == 0:
        for value in node.outputs:
            ctx.set_plain(value, ctx.new_plain(value.type))
        return
    steps, rows, gates = x.shape
    source = _rows(ctx, x)
    product = _Product.of(ctx, weights, bias, rows)
    projection = _Product.of(ctx, rest[1], None, rows) if len(rest) > 1 else None
    out = _padded(ctx, node.outputs[0].type)
    room = _padded(ctx, TensorType(f32, (rows, gates)))
    inner = _padded(ctx, TensorType(f32, (rows, rest[0].shape[1]))) if projection is not None else None
    before = _rows(ctx, rest[0]) if rest else None
    state_buffer = ctx.builder.arena(rest[0].type.bytes) if rest else None
    hidden = _left(ctx, h)
    for t in range(steps)[:: -1 if node.attrs["reverse"] else 1]:
        # Views of their own at each step: that a buffer is used again is ordered by the chain of hidden states.
        sums = _again(room)
        product.emit(ctx, hidden, sums)
        after = plain_view(rest[0].type, state_buffer) if state_buffer is not None else None
        made = _again(_step(out, t))
        gated = made if inner is None else _again(inner)
        _emit_gates(ctx, node.attrs["cell"], _step(source, t), sums, before or hidden, gated, after)
        if projection is not None:
            projection.emit(ctx, gated, made)
        out.writers.extend(made.writers)
        hidden, before = made, after
    ctx.set_plain(node.outputs[0], out)
    _set_padded(ctx, node.outputs[1], hidden)
    if before is not None:
        ctx.set_plain(node.outputs[2], before)


@dataclass(frozen=True)
class _Product:
    """left weights^T + bias for `rows` rows, weights [channels][depth] and bias packed once for all steps."""

    choice: TileChoice
    packed: View
    bias: View
    rows: int
    channels: int
    depth: int

    @staticmethod
    def of(ctx: Lowering, weights: Value, bias: Value | None, rows: int) -> _Product:
        channels, depth = weights.shape
        blocks = -(-depth // BLOCK)
        size = ContractionSize.of_product(rows, -(-channels // BLOCK), blocks)
        choice = choose_tiles(ctx.settings.isa, "k16", size, threads=ctx.settings.threads)
        tile, padded = choice.oc_tile, choice.oc_groups * choice.oc_tile

        def pack(context: Lowering, source: PlainView, destination: View) -> None:
            params = packed_matrices((channels, depth), source.strides, count=1, between=0, oc_tile=tile)
            context.emit("pack_contraction", params, weights=source, packed=destination)

        def pack_bias(context: Lowering, source: PlainView, destination: View) -> None:
            context.emit("pack_channels", vector_params, values=source, packed=destination)

        packed = ctx.packed(weights, ("pack_contraction", True, tile), padded * blocks * BLOCK * 4, pack,
                            contiguous=False)
        vector_params = packed_channels(channels, groups=1, oc_tile=tile)
        if bias is None:
            vector = ctx.table(np.zeros(padded, np.float32))
        else:
            vector = ctx.packed(bias, ("channels", *vector_params.ints()), padded * 4, pack_bias)
        return _Product(choice, packed, vector, rows, channels, depth)

    def emit(self, ctx: Lowering, left: PlainView, out: PlainView) -> None:
        """`left` is finite, and `out` may be written, up to whole blocks."""
        plane = Plane(0, left.strides[0] * 4)
        steps = step_table(plane, channels=-(-self.depth // BLOCK), channel_stride=BLOCK * 4)
        pixels = pixel_table(1, self.rows, inputs=plane, output=Plane(0, out.strides[0] * 4))
        params = contraction_params(**self.choice.fields(), steps=steps.size, pixel_stride=plane.pixel,
                                   out_block_stride=BLOCK * 4)
        touched = (self.rows * (self.depth + self.channels) + self.depth * self.channels) * 4
        ctx.emit(self.choice.kernel, params, input=left, weights=self.packed, bias=self.bias, output=out,
                 pixels=ctx.table(pixels), steps=ctx.table(steps),
                 operations=2 * self.rows * self.channels * self.depth, bytes=touched)


def _emit_gates(ctx: Lowering, cell: str, x: PlainView, product: PlainView, before: PlainView, out: PlainView,
                state: PlainView | None) -> None:
    """`state`: LSTM's cell state after the step; it may lie where that `before` does."""
    rows, units = out.type.shape
    views = (x, product, before, out, state or before)
    params = CELLS[cell](rows=rows, units=units, chunk=min(-(-units // BLOCK) * BLOCK, CHUNK),
                         **by_name("x_row p_row before_row h_row c_row", (view.strides[0] for view in views)))
    ctx.emit(f"{cell}_cell", params, x=x, p=product, before=before, h=out, c=state)


def _rows(ctx: Lowering, value: Value) -> PlainView:
    """The value, its rows contiguous."""
    view = ctx.plain(value)
    return view if view.strides[-1] == 1 else ctx.contiguous(value)


def _left(ctx: Lowering, value: Value) -> PlainView:
    """A matrix whose rows are finite up to whole blocks."""
    blocked = ctx.blocked(value)
    return PlainView(blocked.type, blocked.buffer, blocked.offset, blocked.writers, (blocked.image, 1))


def _padded(ctx: Lowering, type_: TensorType) -> PlainView:
    """New memory, a row being whole blocks."""
    *outer, channels = type_.shape
    whole = type_.with_shape((*outer, -(-channels // BLOCK) * BLOCK))
    view = ctx.new_plain(whole)
    return PlainView(type_, view.buffer, 0, view.writers, view.strides)


def _set_padded(ctx: Lowering, value: Value, view: PlainView) -> None:
    """A matrix in padded memory, which is the blocked layout too."""
    ctx.set_plain(value, view)
    row = view.strides[0]
    ctx.set_blocked(value, BlockedView(view.type, view.buffer, view.offset, view.writers, row, BLOCK, BLOCK))


def _again(view: PlainView) -> PlainView:
    """The same memory, not yet written."""
    return PlainView(view.type, view.buffer, view.offset, strides=view.strides)


def _step(view: PlainView, t: int) -> PlainView:
    """The matrix `t` of a tensor of rank 3."""
    offset = view.offset + t * view.strides[0] * view.type.element.size
    return PlainView(view.type.with_shape(view.type.shape[1:]), view.buffer, offset, view.writers,
                     view.strides[1:])
