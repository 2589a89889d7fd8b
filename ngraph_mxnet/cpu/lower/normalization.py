"""Softmax, layer norm, local response normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ngraph_mxnet.cpu import abi
from ngraph_mxnet.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.cpu.lower.elementwise import check_f32
from ngraph_mxnet.cpu.view import PlainView, contiguous_strides
from ngraph_mxnet.ir.graph import Node, Value


@lowers("softmax", "log_softmax", check=check_f32)
def softmax(ctx: Lowering, node: Node) -> None:
    """Along any axis."""
    source, out = ctx.contiguous(node.inputs[0]), ctx.new_plain(node.output.type)
    ctx.emit(node.op.name, [source], out, abi.softmax_ints(node.output.shape, node.attrs["axis"]))
    ctx.set_plain(node.output, out)


@lowers("batch_norm_factors", check=check_f32)
def batch_norm_factors(ctx: Lowering, node: Node) -> None:
    """One task: the vectors are short."""
    reads = [ctx.contiguous(value) for value in node.inputs]
    scale, shift = (ctx.new_plain(value.type) for value in node.outputs)
    ctx.emit("batch_norm_factors", [*reads, scale], shift, [node.outputs[0].type.size], [node.attrs["epsilon"]])
    scale.writers.extend(shift.writers)
    for value, view in zip(node.outputs, (scale, shift), strict=True):
        ctx.set_plain(value, view)


@lowers("layer_norm", check=check_f32)
def layer_norm(ctx: Lowering, node: Node) -> None:
    """Along any axis; another than the last moves there and back."""
    x, *vectors = node.inputs
    shape, axis = node.output.shape, node.attrs["axis"] % node.output.type.rank
    order = [i for i in range(len(shape)) if i != axis] + [axis]
    source = ctx.contiguous(x) if axis == len(shape) - 1 else _moved(ctx, x, order)
    out, columns = ctx.new_plain(source.type), shape[axis]
    ctx.emit("layer_norm", [source, *map(ctx.contiguous, vectors)], out,
             [prod(shape) // max(columns, 1), columns, columns, columns], [node.attrs["epsilon"]])
    back = tuple(out.strides[order.index(i)] for i in range(len(shape)))
    ctx.set_plain(node.output, replace(out, type=node.output.type, strides=back))


def _moved(ctx: Lowering, value: Value, order: Sequence[int]) -> PlainView:
    """A contiguous copy whose axis i is the value's axis order[i]."""
    view = ctx.plain(value)
    type_ = value.type.with_shape(tuple(value.shape[i] for i in order))
    seen = replace(view, type=type_, strides=tuple(view.strides[i] for i in order))
    return ctx.copy(seen, ctx.new_plain(type_))


@lowers("lrn", check=check_f32)
def lrn(ctx: Lowering, node: Node) -> None:
    """Across channels, on plain layout."""
    source, out = ctx.contiguous(node.inputs[0]), ctx.new_plain(node.output.type)
    shape, strides = node.output.shape, contiguous_strides(node.output.shape)
    ints = [shape[0], shape[1], prod(shape[2:]), node.attrs["size"], *strides[:2], *strides[:2]]
    ctx.emit("lrn", [source], out, ints, [node.attrs[name] for name in ("alpha", "beta", "bias")])
    ctx.set_plain(node.output, out)
