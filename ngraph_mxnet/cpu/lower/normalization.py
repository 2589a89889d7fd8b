"""Softmax, layer norm, local response normalisation."""

from __future__ import annotations

from math import prod

from ngraph_mxnet.cpu import abi
from ngraph_mxnet.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.cpu.lower.elementwise import check_f32
from ngraph_mxnet.cpu.view import contiguous_strides
from ngraph_mxnet.ir.graph import Node


@lowers("softmax", "log_softmax", check=check_f32)
def softmax(ctx: Lowering, node: Node) -> None:
    """Along any axis."""
    source, out = ctx.contiguous(node.inputs[0]), ctx.new_plain(node.output.type)
    ctx.emit(node.op.name, [source], out, abi.softmax_ints(node.output.shape, node.attrs["axis"]))
    ctx.set_plain(node.output, out)


def _check_layer_norm(node: Node) -> str | None:
    last = node.attrs["axis"] in (-1, node.output.type.rank - 1)
    return check_f32(node) or (None if last else "layer_norm has a CPU kernel for the last axis only")


@lowers("layer_norm", check=_check_layer_norm)
def layer_norm(ctx: Lowering, node: Node) -> None:
    """Along the last axis."""
    views = [ctx.contiguous(value) for value in node.inputs]
    out, columns = ctx.new_plain(node.output.type), node.output.shape[-1]
    ctx.emit("layer_norm", views, out, [prod(node.output.shape[:-1]), columns, columns, columns],
             [node.attrs["epsilon"]])
    ctx.set_plain(node.output, out)


@lowers("lrn", check=check_f32)
def lrn(ctx: Lowering, node: Node) -> None:
    """Across channels, on plain layout."""
    source, out = ctx.contiguous(node.inputs[0]), ctx.new_plain(node.output.type)
    shape, strides = node.output.shape, contiguous_strides(node.output.shape)
    ints = [shape[0], shape[1], prod(shape[2:]), node.attrs["size"], *strides[:2], *strides[:2]]
    ctx.emit("lrn", [source], out, ints, [node.attrs[name] for name in ("alpha", "beta", "bias")])
    ctx.set_plain(node.output, out)
