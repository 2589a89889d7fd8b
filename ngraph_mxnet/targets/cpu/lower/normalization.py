"""Softmax, layer norm, local response normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.sizes import greatest
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.targets.cpu.lower.elementwise import check_f32
from ngraph_mxnet.targets.cpu.params import normalize
from ngraph_mxnet.targets.cpu.params.record import by_name
from ngraph_mxnet.targets.cpu.params.reduction import REDUCE, reduced
from ngraph_mxnet.targets.cpu.planning.view import PlainView, contiguous_strides


@lowers("softmax", "log_softmax", check=check_f32)
def softmax(ctx: Lowering, node: Node) -> None:
    """Along any axis."""
    source, out = ctx.contiguous(node.inputs[0]), ctx.new_plain(node.output.type)
    ctx.emit(node.op.name, normalize.softmax(node.output.shape, node.attrs["axis"]), input=source, output=out,
             exact=True)
    ctx.set_plain(node.output, out)


@lowers("batch_norm_factors", check=check_f32)
def batch_norm_factors(ctx: Lowering, node: Node) -> None:
    """One task: the vectors are short."""
    reads = by_name("gamma beta mean variance", map(ctx.contiguous, node.inputs))
    scale, shift = (ctx.new_plain(value.type) for value in node.outputs)
    params = normalize.BATCH_NORM_FACTORS(channels=node.outputs[0].type.size, epsilon=node.attrs["epsilon"])
    ctx.emit("batch_norm_factors", params, **reads, scale=scale, shift=shift)
    for value, view in zip(node.outputs, (scale, shift), strict=True):
        ctx.set_plain(value, view)


@lowers("layer_norm", check=check_f32)
def layer_norm(ctx: Lowering, node: Node) -> None:
    """Along any axis; another than the last moves there and back."""
    x, gamma, beta = node.inputs
    shape, axis = node.output.shape, node.attrs["axis"] % node.output.type.rank
    order = [i for i in range(len(shape)) if i != axis] + [axis]
    source = ctx.contiguous(x) if axis == len(shape) - 1 else _moved(ctx, x, order)
    out, columns = ctx.new_plain(source.type), shape[axis]
    params = normalize.LAYER_NORM(rows=prod(shape) // greatest(columns, 1), columns=columns, in_row=columns,
                                  out_row=columns, epsilon=node.attrs["epsilon"])
    ctx.emit("layer_norm", params, x=source, gamma=ctx.contiguous(gamma), beta=ctx.contiguous(beta), output=out,
             exact=True)
    back = tuple(out.strides[order.index(i)] for i in range(len(shape)))
    ctx.set_plain(node.output, replace(out, type=node.output.type, strides=back))


_MOST_CHUNKS = 64
"""Tasks of a layer norm's gradient: as many as its sums over all rows are made of, so their number depends on shapes
alone."""


@lowers("layer_norm_gradient", check=check_f32)
def layer_norm_gradient(ctx: Lowering, node: Node) -> None:
    """One pass over memory; the sums of the tasks are added behind it."""
    x, gamma, head = node.inputs
    shape, axis = x.shape, node.attrs["axis"] % x.type.rank
    order = [i for i in range(len(shape)) if i != axis] + [axis]
    last = axis == len(shape) - 1
    source, heads = (ctx.contiguous(value) if last else _moved(ctx, value, order) for value in (x, head))
    columns, rows = shape[axis], x.type.size // greatest(shape[axis], 1)
    chunk = greatest(8, -(-rows // _MOST_CHUNKS))
    out, chunks = ctx.new_plain(source.type), -(-rows // chunk)
    sums = ctx.new_plain(gamma.type.with_shape((chunks, 2, columns)))
    params = normalize.LAYER_NORM_GRADIENT(rows=rows, columns=columns, chunk=chunk, x_row=columns, head_row=columns,
                                           by_x_row=columns, epsilon=node.attrs["epsilon"])
    ctx.emit("layer_norm_gradient", params, x=source, gamma=ctx.contiguous(gamma), head=heads, by_x=out, sums=sums,
             exact=True)
    back = tuple(out.strides[order.index(i)] for i in range(len(shape)))
    ctx.set_plain(node.outputs[0], replace(out, type=x.type, strides=back))
    for number, value in enumerate(node.outputs[1:]):
        total = ctx.new_plain(value.type)
        part = replace(sums, offset=sums.offset + 4 * number * columns, type=gamma.type.with_shape((chunks, columns)))
        ctx.emit("reduce_sum", reduced(REDUCE, (chunks, columns), [0], (2 * columns, 1), (1,)), input=part,
                 output=total, exact=True)
        ctx.set_plain(value, total)


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
    params = normalize.LRN(
        n=shape[0], c=shape[1], inner=prod(shape[2:]), in_n=strides[0], in_c=strides[1], out_n=strides[0],
        out_c=strides[1], **{name: node.attrs[name] for name in ("size", "alpha", "beta", "bias")})
    ctx.emit("lrn", params, input=source, output=out)
    ctx.set_plain(node.output, out)
