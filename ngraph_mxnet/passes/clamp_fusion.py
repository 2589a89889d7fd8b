"""Clamp fusion: a clamp (ReLU, ReLU6) becomes the bounds of the contraction or scale_shift before it."""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.passes.algebraic import merge_bounds
from ngraph_mxnet.passes.contraction import bias_of, host_of, with_bias
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter


def clamp_into_host(node: Node, rw: Rewriter) -> Answer:
    """clamp(contraction) -> contraction with bounds; bounds that it has already are merged.

    A contraction without bias gets one of zeros: only the ops with bias have bounds.
    Not when the unclamped value has other readers, nor for integers.
    """
    host = host_of(node.inputs[0], rw)
    if host is None:
        return None
    if not rw.single(host.output):
        return f"{host} has other readers"
    if not node.output.type.element.is_float:
        return "integers"
    bounds = merge_bounds(host, node) if "lower" in host.attrs else dict(node.attrs)
    return with_bias(host, host.inputs[1], bias_of(host, rw), rw, origin=(host, node), **bounds)


def clamp_before_pool(node: Node, rw: Rewriter) -> Answer:
    """clamp(max_pool(contraction)) -> max_pool(clamp(contraction)), where the clamp is free.

    A clamp is monotonic and every window holds an element, so the order does not matter.
    """
    pool = rw.producer(node.inputs[0], "max_pool")
    host = host_of(pool.inputs[0], rw) if pool else None
    if pool is None or host is None:
        return None
    if not rw.single(pool.output) or not rw.single(host.output):
        return "the pool or what it pools has other readers"
    if not node.output.type.element.is_float:
        return "integers"
    clamped = rw.make("clamp", host.output, **node.attrs)
    return rw.make("max_pool", clamped, **pool.attrs, origin=(pool,))


def clamp_fusion() -> RewritePass:
    """The pass."""
    return RewritePass("clamp_fusion", {"clamp": [clamp_into_host, clamp_before_pool]})
