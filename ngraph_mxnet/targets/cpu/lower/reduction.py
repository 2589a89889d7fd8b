"""Reductions, and the position of an extreme."""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.types import f32
from ngraph_mxnet.targets.cpu.lower import wide
from ngraph_mxnet.targets.cpu.lower.blocked import global_max, global_mean
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.targets.cpu.params.reduction import REDUCE, reduced
from ngraph_mxnet.targets.cpu.planning.layout import is_global
from ngraph_mxnet.targets.cpu.planning.view import contiguous_strides


@lowers("reduce_sum", "reduce_mean", "reduce_prod", "reduce_max", "reduce_min")
def reduce(ctx: Lowering, node: Node) -> None:
    """Over any axes; the mean and the greatest of a blocked tensor's pixels stay blocked."""
    rank = node.inputs[0].type.rank
    axes = sorted({axis % rank for axis in node.attrs["axes"]})
    if node.inputs[0].type.element is not f32:
        wide.reduction(ctx, node, axes)
        return
    if is_global(node, "reduce_mean") and (ctx.has_blocked(node.inputs[0]) or node.inputs[0] in ctx.quantized):
        global_mean(ctx, node)
        return
    if is_global(node, "reduce_max") and ctx.has_blocked(node.inputs[0]) and node.output.type.size:
        global_max(ctx, node)
        return
    source = ctx.plain(node.inputs[0])
    kept = tuple(d for i, d in enumerate(source.type.shape) if i not in axes)
    out = ctx.new_plain(node.output.type)
    ctx.emit(node.op.name, reduced(REDUCE, source.type.shape, axes, source.strides, contiguous_strides(kept)),
             input=source, output=out, exact=True)
    ctx.set_plain(node.output, out)


@lowers("argmax", "argmin")
def extreme_position(ctx: Lowering, node: Node) -> None:
    """To i64."""
    wide.position(ctx, node)
