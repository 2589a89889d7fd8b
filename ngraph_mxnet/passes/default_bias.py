"""Default bias: a convolution that found no bias gets one of zeros, so that backends see one form."""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.passes.contraction import bias_of, with_bias
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter


def zero_bias(node: Node, rw: Rewriter) -> Answer:
    """convolution -> convolution_bias with zeros. Not for integers, which that op does not take."""
    if not node.output.type.element.is_float:
        return "integers"
    return with_bias(node, node.inputs[1], bias_of(node, rw), rw, origin=(node,))


def default_bias() -> RewritePass:
    """The pass. A matmul stays: without weights (attention) a bias would only cost."""
    return RewritePass("default_bias", {"convolution": [zero_bias]})
