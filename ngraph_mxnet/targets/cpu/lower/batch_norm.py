"""Batch norm in training: statistics, and its gradient with the mask of a relu behind it; gradients of clamps."""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.types import TensorType, f32
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.targets.cpu.lower.layouts import named_strides
from ngraph_mxnet.targets.cpu.params.batch_norm import (
    BATCH_NORM_GRADIENT_DATA,
    BATCH_NORM_GRADIENT_SUMS,
    BATCH_NORM_STATISTICS,
    CLAMP_GRADIENT,
)
from ngraph_mxnet.targets.cpu.params.record import by_name
from ngraph_mxnet.targets.cpu.planning.gradients import batch_norm_without_kernel, clamp_gradient_without_kernel
from ngraph_mxnet.targets.cpu.planning.view import BLOCK, BlockedView, plain_view


def _sizes(view: BlockedView) -> dict[str, int]:
    return {"n": view.images, "c16": view.blocks, "h": view.height, "w": view.width}


@lowers("batch_norm_statistics", check=batch_norm_without_kernel)
def batch_norm_statistics(ctx: Lowering, node: Node) -> None:
    """One pass over memory."""
    x = ctx.blocked(node.inputs[0])
    mean, variance = (ctx.new_plain(value.type) for value in node.outputs)
    params = BATCH_NORM_STATISTICS(**_sizes(x), channels=node.inputs[0].shape[1], **named_strides(x=x))
    ctx.emit("batch_norm_statistics", params, x=x, mean=mean, variance=variance)
    for value, view in zip(node.outputs, (mean, variance), strict=True):
        ctx.set_plain(value, view)


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
    out = ctx.new_blocked(node.outputs[0])
    params = BATCH_NORM_GRADIENT_DATA(**_sizes(x), masked=masked, **named_strides(x=x, y=y, head=head, output=out))
    ctx.emit("batch_norm_gradient_data", params, x=x, factors=factors, y=y, head=head, output=out)
    ctx.set_blocked(node.outputs[0], out)
    for value, view in zip(node.outputs[1:], (of_gamma, of_beta), strict=True):
        ctx.set_plain(value, view)


@lowers("clamp_gradient", check=clamp_gradient_without_kernel)
def clamp_gradient(ctx: Lowering, node: Node) -> None:
    """One pass over memory, without masks of bool."""
    x, head = map(ctx.blocked, node.inputs)
    out = ctx.new_blocked(node.output)
    params = CLAMP_GRADIENT(**_sizes(x), above=node.attrs["above"], lower=node.attrs["lower"],
                            upper=node.attrs["upper"], **named_strides(x=x, head=head, output=out))
    ctx.emit("clamp_gradient_blocked", params, x=x, head=head, output=out)
    ctx.set_blocked(node.output, out)

