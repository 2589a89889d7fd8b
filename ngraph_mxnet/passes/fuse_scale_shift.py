"""Scale-shift fusion: the pre-activation of the next block is written while the residual sum is at hand.

In ResNet v2 a residual sum has two readers: the next addition, and batch_norm + ReLU before the next
convolution. A pass of its own, so that a backend without such a kernel can leave it out.
"""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter


def scale_shift_of_sum(node: Node, rw: Rewriter) -> Answer:
    """scale_shift(convolution_bias_add) -> output 1 of convolution_bias_add_scale_shift; output 0 is the sum.

    Not when scale or shift are known only at run time: they could depend on the sum. Of several scale_shifts
    of one sum the first is fused.
    """
    total = node.inputs[0]
    host = rw.producer(total, "convolution_bias_add", "convolution_bias_add_scale_shift")
    if host is None or (host.op.name != "convolution_bias_add" and total.index == 1):
        return None
    if host.op.name != "convolution_bias_add":
        return "the sum has a scale_shift already"
    if not (rw.static(node.inputs[1]) and rw.static(node.inputs[2])):
        return "scale or shift may differ with every run"
    bounds = {"lower2": node.attrs["lower"], "upper2": node.attrs["upper"]}
    first = rw.make("convolution_bias_add_scale_shift", *host.inputs, *node.inputs[1:], origin=(host, node),
                    **host.attrs, **bounds)
    assert first.node is not None
    return {total: first, node.output: first.node.outputs[1]}


def fuse_scale_shift() -> RewritePass:
    """The pass."""
    return RewritePass("fuse_scale_shift", {"scale_shift": [scale_shift_of_sum]})
