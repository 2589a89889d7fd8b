"""Quantises before elements are moved or the greatest chosen, which then is work on bytes: in a concatenation each
producer stores its own part so, and a pool reads a quarter. The results are the same."""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter


def before_selection(node: Node, rw: Rewriter) -> Answer:
    """quantize(select(x, ..)) -> select(quantize(x), ..), where nothing else reads the selection."""
    source, scale, zero_point = node.inputs
    host = rw.producer(source)
    if host is None or not host.op.selects or not rw.single(source) or scale.type.rank:
        return None
    return rw.make(host.op.name, *(rw.make("quantize", value, scale, zero_point) for value in host.inputs),
                   origin=(host,), **host.attrs)


def quantize_early() -> RewritePass:
    """The pass."""
    return RewritePass("quantize_early", {"quantize": [before_selection]})
