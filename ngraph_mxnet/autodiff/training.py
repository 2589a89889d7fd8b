"""Adjoints of the ops that say themselves what goes back."""

from __future__ import annotations

import math

from ngraph_mxnet.autodiff.adjoints import Gradients, Reverse, adjoint, no_derivative, refuse
from ngraph_mxnet.autodiff.expression import Expression

no_derivative("it is there to stop it", "stop_gradient")
refuse("it is a gradient itself: there are none of second order yet", "batch_norm_gradient",
       "batch_norm_relu_gradient", "clamp_gradient", "layer_norm_gradient")
refuse("it is what the CPU makes of batch_norm_training", "batch_norm_statistics")


@adjoint("own_gradient")
def _(at: Reverse) -> Gradients:
    _, _, own = at.operands
    return None, own * at.head if at.attrs["scaled"] else own, None


@adjoint("gelu")
def _(at: Reverse) -> Gradients:
    (x,) = at.operands
    return [x.apply("gelu_gradient", at.head)]


@adjoint("gelu_gradient")
def _(at: Reverse) -> Gradients:
    x, head = at.operands
    density = (x.square() * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
    return at.head * head * density * (2.0 - x.square()), x.apply("gelu_gradient", at.head)


@adjoint("batch_norm_training")
def _(at: Reverse) -> Gradients:
    x, gamma, _ = at.operands
    _, mean, variance = at.results
    by_x, by_gamma, by_beta = x.nodes("batch_norm_gradient", gamma, mean, variance, at.head, **at.attrs)
    count, rank = x.size // x.shape[1], x.rank

    def wide(vector: Expression) -> Expression:
        return vector.reshape([vector.size if axis == 1 else 1 for axis in range(rank)])

    if at.heads[1] is not None:
        by_x = by_x + wide(at.heads[1] / x.count(count))
    if at.heads[2] is not None:
        by_x = by_x + (x - wide(mean)) * wide(at.heads[2] * (x.count(2) / x.count(count)))
    return by_x, by_gamma, by_beta
