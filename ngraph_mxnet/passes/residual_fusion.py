"""Residual fusion: convolution + tensor -> convolution_bias_add."""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.passes.contraction import bias_of, closed
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter


def add_residual(node: Node, rw: Rewriter) -> Answer:
    """add(convolution[_bias](x), residual) -> convolution_bias_add.

    The residual has exactly the result's shape. When both operands are convolutions, the later one in
    topological order hosts the addition: the other is ready by then, as its residual. Not when the
    convolution has other readers (so neither when the residual is computed from it), has clamped already,
    or has a residual already.
    """
    hosts, reasons = [], []
    for x, residual in (node.inputs, node.inputs[::-1]):
        host = rw.producer(x, "convolution", "convolution_bias")
        if host is None:
            continue
        reason = closed(host, rw)
        if reason is None and x.type != residual.type:
            narrow = residual if x.type == node.output.type else x
            reason = f"{narrow.type} broadcasts to {node.output.type}"
        if reason:
            reasons.append(reason)
        else:
            hosts.append((host, residual))
    if not hosts:
        return "; ".join(reasons) or None
    host, residual = max(hosts, key=lambda pair: rw.position(pair[0]))
    data, weights = host.inputs[:2]
    return rw.make("convolution_bias_add", data, weights, bias_of(host, rw), residual, **host.attrs,
                   origin=(host, node))


def residual_fusion() -> RewritePass:
    """The pass."""
    return RewritePass("residual_fusion", {"add": [add_residual]})
