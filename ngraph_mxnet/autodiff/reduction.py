"""Adjoints of reductions. Where several elements are the greatest, each gets the whole gradient, as in MXNet
(ReduceAxesBackwardUseInOut in src/operator/tensor/broadcast_reduce_op.h)."""

from __future__ import annotations

from math import prod

from ngraph_mxnet.autodiff.adjoints import Gradients, Reverse, adjoint, no_derivative
from ngraph_mxnet.autodiff.expression import Expression
from ngraph_mxnet.ops.common import normal_axes
from ngraph_mxnet.ops.reduction import reduced_shape

no_derivative("its result is a position", "argmax", "argmin", "argsort")


def _kept(x: Expression, at: Reverse) -> Expression:
    """Something of the result's shape with the reduced axes as 1."""
    axes = normal_axes(at.attrs["axes"], at.operands[0].rank)
    return x.reshape(reduced_shape(at.operands[0].shape, axes, keep_dims=True))


@adjoint("reduce_sum")
def _(at: Reverse) -> Gradients:
    return [_kept(at.head, at).to_shape(at.operands[0].shape)]


@adjoint("reduce_mean")
def _(at: Reverse) -> Gradients:
    shape = at.operands[0].shape
    count = prod(shape[axis] for axis in normal_axes(at.attrs["axes"], len(shape)))
    return [_kept(at.head / at.head.count(count), at).to_shape(shape)]


@adjoint("reduce_prod")
def _(at: Reverse) -> Gradients:
    return [_kept(at.head, at) * (_kept(at.result, at) / at.operands[0])]  # the quotient is within the range


@adjoint("reduce_max", "reduce_min")
def _(at: Reverse) -> Gradients:
    (x,) = at.operands
    return [_kept(at.head, at).to_shape(x.shape).where(x.equals(_kept(at.result, at)))]


@adjoint("cumsum")
def _(at: Reverse) -> Gradients:
    axis = at.attrs["axis"] % at.result.rank
    return [at.head.reversed([axis]).cumsum(axis=axis).reversed([axis])]
