"""Dropout removal: at inference dropout is the identity."""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter


def dropout(node: Node, rw: Rewriter) -> Answer:
    """dropout(x) -> x. The IR's dropout is the inference one: a training graph states its mask. What says how gradients
    go back is x, too, once they are there."""
    return node.inputs[0]


def dropout_removal() -> RewritePass:
    """The pass."""
    return RewritePass("dropout_removal", {"dropout": [dropout], "stop_gradient": [dropout], "own_gradient": [dropout]})
