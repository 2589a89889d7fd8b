"""Softmax, norms and reductions."""

from __future__ import annotations

from math import prod

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.sizes import greatest
from ngraph_mxnet.ir.types import TensorType, f32, i64
from ngraph_mxnet.targets.cpu.lower import movement
from ngraph_mxnet.targets.cpu.lower.blocked import global_max, global_mean
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers, name_end, named_strides
from ngraph_mxnet.targets.cpu.lower.elementwise import check_f32
from ngraph_mxnet.targets.cpu.params import reduction
from ngraph_mxnet.targets.cpu.params.record import Kernels, Params, by_name
from ngraph_mxnet.targets.cpu.params.reduction import (
    BATCH_NORM_GRADIENT_DATA,
    BATCH_NORM_GRADIENT_SUMS,
    BATCH_NORM_STATISTICS,
    CLAMP_GRADIENT,
    REDUCE,
    reduced,
)
from ngraph_mxnet.targets.cpu.params.selection import OUTSIDE_CODES
from ngraph_mxnet.targets.cpu.planning.gradients import batch_norm_without_kernel, clamp_gradient_without_kernel
from ngraph_mxnet.targets.cpu.planning.layout import is_global
from ngraph_mxnet.targets.cpu.planning.view import BLOCK, BlockedView, PlainView, contiguous_strides, plain_view


@lowers("softmax", "log_softmax", check=check_f32)
def softmax(ctx: Lowering, node: Node) -> None:
    """Along any axis."""
    params = reduction.softmax(node.output.shape, node.attrs["axis"])
    ctx.make_plain(node.output, node.op.name, params, input=ctx.contiguous(node.inputs[0]), exact=True)


def _check_pick(node: Node) -> str | None:
    found = node.inputs[0].type.element
    return None if found is f32 else f"{node.op.name} of {found} has no CPU kernel, only f32"


@lowers("log_softmax_pick", check=_check_pick)
def log_softmax_pick(ctx: Lowering, node: Node) -> None:
    """One pass over memory, without logarithms for each element."""
    x, indices, params = _picks(ctx, node, reduction.LOG_SOFTMAX_PICK)
    outs = [ctx.new_plain(value.type) for value in node.outputs]
    ctx.emit(node.op.name, params, x=x, indices=indices, **by_name("picked greatest logarithm", outs), exact=True)
    ctx.set_views(node.outputs, outs)


@lowers("log_softmax_pick_gradient", check=_check_pick)
def log_softmax_pick_gradient(ctx: Lowering, node: Node) -> None:
    """One pass over memory; the rows' heads are added in it."""
    x, indices, params = _picks(ctx, node, reduction.LOG_SOFTMAX_PICK_GRADIENT)
    rows = by_name("greatest logarithm head", map(ctx.contiguous, node.inputs[2:]))
    ctx.make_plain(node.output, node.op.name, params, x=x, indices=indices, **rows, exact=True)


def _picks(ctx: Lowering, node: Node, record: Kernels) -> tuple[PlainView, PlainView, Params]:
    x, indices = map(ctx.contiguous, node.inputs[:2])
    params = record(rows=indices.type.size, size=x.type.shape[-1], outside=OUTSIDE_CODES[node.attrs["mode"]])
    return x, movement.converted(ctx, indices, i64), params


@lowers("batch_norm_factors", check=check_f32)
def batch_norm_factors(ctx: Lowering, node: Node) -> None:
    """One task: the vectors are short."""
    reads = by_name("gamma beta mean variance", map(ctx.contiguous, node.inputs))
    scale, shift = (ctx.new_plain(value.type) for value in node.outputs)
    params = reduction.BATCH_NORM_FACTORS(channels=node.outputs[0].type.size, epsilon=node.attrs["epsilon"])
    ctx.emit("batch_norm_factors", params, **reads, scale=scale, shift=shift)
    ctx.set_views(node.outputs, (scale, shift))


@lowers("layer_norm", check=check_f32)
def layer_norm(ctx: Lowering, node: Node) -> None:
    """Along any axis; another than the last moves there and back."""
    x, gamma, beta = node.inputs
    source = _with_last(ctx, x, node.attrs["axis"])
    out, columns = ctx.new_plain(source.type), source.type.shape[-1]
    params = reduction.LAYER_NORM(rows=x.type.size // greatest(columns, 1), columns=columns, in_row=columns,
                                  out_row=columns, epsilon=node.attrs["epsilon"])
    ctx.emit("layer_norm", params, x=source, gamma=ctx.contiguous(gamma), beta=ctx.contiguous(beta), output=out,
             exact=True)
    ctx.set_plain(node.output, _back(out, node.output, node.attrs["axis"]))


_MOST_CHUNKS = 64
"""Tasks of a layer norm's gradient: as many as its sums over all rows are made of, so their number depends on shapes
alone."""


@lowers("layer_norm_gradient", check=check_f32)
def layer_norm_gradient(ctx: Lowering, node: Node) -> None:
    """One pass over memory; the sums of the tasks are added behind it."""
    x, gamma, head = node.inputs
    source, heads = (_with_last(ctx, value, node.attrs["axis"]) for value in (x, head))
    columns = source.type.shape[-1]
    rows = x.type.size // greatest(columns, 1)
    chunk = greatest(8, -(-rows // _MOST_CHUNKS))
    out, chunks = ctx.new_plain(source.type), -(-rows // chunk)
    sums = ctx.new_plain(gamma.type.with_shape((chunks, 2, columns)))
    params = reduction.LAYER_NORM_GRADIENT(rows=rows, columns=columns, chunk=chunk, x_row=columns, head_row=columns,
                                           by_x_row=columns, epsilon=node.attrs["epsilon"])
    ctx.emit("layer_norm_gradient", params, x=source, gamma=ctx.contiguous(gamma), head=heads, by_x=out, sums=sums,
             exact=True)
    ctx.set_plain(node.outputs[0], _back(out, x, node.attrs["axis"]))
    for number, value in enumerate(node.outputs[1:]):
        total = ctx.new_plain(value.type)
        part = sums.seen(gamma.type.with_shape((chunks, columns)), (2 * columns, 1), number * columns)
        ctx.emit("reduce_sum", reduced(REDUCE, (chunks, columns), [0], part.strides, (1,)), input=part,
                 output=total, exact=True)
        ctx.set_plain(value, total)


def _with_last(ctx: Lowering, value: Value, axis: int) -> PlainView:
    """The value without gaps, `axis` being the last: a copy, unless it is that."""
    if axis % value.type.rank == value.type.rank - 1:
        return ctx.contiguous(value)
    view, order = ctx.plain(value), _order(value, axis)
    type_ = value.type.with_shape(tuple(value.shape[i] for i in order))
    return ctx.copy(view.seen(type_, [view.strides[i] for i in order]), ctx.new_plain(type_))


def _back(view: PlainView, value: Value, axis: int) -> PlainView:
    """The same, with the axes where the value has them."""
    order = _order(value, axis)
    return view.seen(value.type, [view.strides[order.index(i)] for i in range(len(order))])


def _order(value: Value, axis: int) -> list[int]:
    rank = value.type.rank
    return [i for i in range(rank) if i != axis % rank] + [axis % rank]


@lowers("lrn", check=check_f32)
def lrn(ctx: Lowering, node: Node) -> None:
    """Across channels, on plain layout."""
    shape, strides = node.output.shape, contiguous_strides(node.output.shape)
    params = reduction.LRN(
        n=shape[0], c=shape[1], inner=prod(shape[2:]), input=strides[:2], output=strides[:2],
        **{name: node.attrs[name] for name in ("size", "alpha", "beta", "bias")})
    ctx.make_plain(node.output, "lrn", params, input=ctx.contiguous(node.inputs[0]))


def _sizes(view: BlockedView) -> dict[str, int]:
    return {"n": view.images, "c16": view.blocks, "h": view.height, "w": view.width}


@lowers("batch_norm_statistics", check=batch_norm_without_kernel)
def batch_norm_statistics(ctx: Lowering, node: Node) -> None:
    """One pass over memory."""
    x = ctx.blocked(node.inputs[0])
    mean, variance = (ctx.new_plain(value.type) for value in node.outputs)
    params = BATCH_NORM_STATISTICS(**_sizes(x), channels=node.inputs[0].shape[1], **named_strides(x=x))
    ctx.emit("batch_norm_statistics", params, x=x, mean=mean, variance=variance)
    ctx.set_views(node.outputs, (mean, variance))


@lowers("batch_norm_gradient", "batch_norm_relu_gradient", check=batch_norm_without_kernel)
def batch_norm_gradient(ctx: Lowering, node: Node) -> None:
    """Two passes over memory: one for the sums, one for what is made of them."""
    x, head = ctx.blocked(node.inputs[0]), ctx.blocked(node.inputs[-1])
    masked = node.op.name == "batch_norm_relu_gradient"
    y = ctx.blocked(node.inputs[4]) if masked else head
    vectors = by_name("gamma mean variance", map(ctx.contiguous, node.inputs[1:4]))
    of_gamma, of_beta = (ctx.new_plain(value.type) for value in node.outputs[1:])
    type_ = TensorType(f32, (x.blocks * 4 * BLOCK,))
    factors = plain_view(type_, ctx.builder.arena(type_.bytes))
    sums = BATCH_NORM_GRADIENT_SUMS(**_sizes(x), channels=node.inputs[0].shape[1], masked=masked,
                                    epsilon=node.attrs["epsilon"], **named_strides(x=x, y=y, head=head))
    ctx.emit("batch_norm_gradient_sums", sums, x=x, y=y, head=head, **vectors, of_gamma=of_gamma, of_beta=of_beta,
             factors=factors)
    out = ctx.new_blocked(node.outputs[0], narrow=True)
    end = name_end(x, out)
    params = BATCH_NORM_GRADIENT_DATA[end](
        **_sizes(x), masked=masked, **named_strides(x=x, y=y, head=head, output=out))
    ctx.emit(f"batch_norm_gradient_data{end}", params, x=x, factors=factors, y=y, head=head, output=out)
    ctx.set_views(node.outputs, (out, of_gamma, of_beta))


@lowers("clamp_gradient", check=clamp_gradient_without_kernel)
def clamp_gradient(ctx: Lowering, node: Node) -> None:
    """One pass over memory, without masks of bool."""
    x, head = map(ctx.blocked, node.inputs)
    out = ctx.new_blocked(node.output, narrow=True)
    end = name_end(x, out)
    params = CLAMP_GRADIENT[end](**_sizes(x), above=node.attrs["above"], lower=node.attrs["lower"],
                                 upper=node.attrs["upper"], **named_strides(x=x, head=head, output=out))
    ctx.emit(f"clamp_gradient_blocked{end}", params, x=x, head=head, output=out)
    ctx.set_blocked(node.output, out)


@lowers("reduce_sum", "reduce_mean", "reduce_prod", "reduce_max", "reduce_min")
def reduce(ctx: Lowering, node: Node) -> None:
    """Over any axes; the mean and the greatest of a blocked tensor's pixels stay blocked."""
    data = node.inputs[0]
    pixels = data.type.element is f32 and ctx.has_blocked(data)
    if is_global(node, "reduce_mean") and (pixels or data in ctx.quantized):
        global_mean(ctx, node)
    elif is_global(node, "reduce_max") and pixels and node.output.type.size:
        global_max(ctx, node)
    else:
        movement.reduction(ctx, node, sorted({axis % data.type.rank for axis in node.attrs["axes"]}))
