"""Batch-norm folding: batch_norm becomes scale_shift, and scale_shift goes into the contraction before it."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.types import f64
from ngraph_mxnet.passes.affine import fold_affine
from ngraph_mxnet.passes.contraction import NO_CLAMP, host_of
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter


def batch_norm_is_scale_shift(node: Node, rw: Rewriter) -> Answer:
    """batch_norm(x, gamma, beta, mean, variance) -> scale_shift(x, batch_norm_factors(gamma, beta, mean, variance)).

    The factors are one node: a net has a batch_norm for each convolution, and compiling costs by the node.
    Also when the parameters are no weights: the vectors are small next to the data.
    """
    computing = np.float64 if node.output.type.element == f64 else np.float32
    epsilon = float(computing(node.attrs["epsilon"]))  # as it counts: frameworks write it with more or fewer digits
    made = rw.make("batch_norm_factors", *node.inputs[1:], epsilon=epsilon).node
    assert made is not None
    return rw.make("scale_shift", node.inputs[0], *made.outputs, **NO_CLAMP)


def scale_shift_into_host(node: Node, rw: Rewriter) -> Answer:
    """scale_shift(contraction) -> contraction with other weights and bias; also scale_shift(scale_shift).

    The clamp of the outer scale_shift becomes the host's. For the conditions see `fold_affine`. Not into a
    matmul of rank above 2, whose bias runs along the last axis and not along axis 1, nor into a convolution
    *after* the scale_shift: its padding would have to be shifted too.
    """
    host = host_of(node.inputs[0], rw)
    if host is None:
        return None
    if host.op.kind == "product" and host.output.type.rank != 2:
        return "channels are not the last axis of the product"
    return fold_affine(host, node.inputs[1], node.inputs[2], node, rw)


def batch_norm_folding() -> RewritePass:
    """The pass."""
    return RewritePass("batch_norm_folding", {
        "batch_norm": [batch_norm_is_scale_shift],
        "scale_shift": [scale_shift_into_host],
    })
