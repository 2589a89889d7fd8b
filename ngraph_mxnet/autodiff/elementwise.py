"""Adjoints of elementwise ops of several operands. Where two operands tie, the gradient is the first one's, as MXNet's
(src/operator/tensor/elemwise_binary_op_extended.cc)."""

from __future__ import annotations

from ngraph_mxnet.autodiff.adjoints import Gradients, Reverse, adjoint, no_derivative
from ngraph_mxnet.autodiff.unary import choice

no_derivative("its result is no float", "equal", "not_equal", "greater", "greater_equal", "less", "less_equal",
              "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor")


@adjoint("add")
def _(at: Reverse) -> Gradients:
    return at.head, at.head


@adjoint("subtract")
def _(at: Reverse) -> Gradients:
    return at.head, -at.head


@adjoint("multiply")
def _(at: Reverse) -> Gradients:
    a, b = at.operands
    return at.head * b, at.head * a


@adjoint("divide")
def _(at: Reverse) -> Gradients:
    _, b = at.operands
    share = at.head / b
    return share, -(share * at.result)


@adjoint("power")
def _(at: Reverse) -> Gradients:
    a, b = at.operands
    return at.head * (b * a.power(b - 1.0)), at.head * (at.result * a.log())


@adjoint("maximum")
def _(at: Reverse) -> Gradients:
    a, b = at.operands
    return at.head.where(a >= b), at.head.where(a < b)


@adjoint("minimum")
def _(at: Reverse) -> Gradients:
    a, b = at.operands
    return at.head.where(a <= b), at.head.where(a > b)


@adjoint("prelu")
def _(at: Reverse) -> Gradients:
    """MXNet's (src/operator/leaky_relu-inl.h)."""
    a, b = at.operands
    return choice(a > 0.0, at.head, at.head * b), (at.head * a).where(a <= 0.0)


@adjoint("mod")
def _(at: Reverse) -> Gradients:
    a, b = at.operands
    return at.head, -(at.head * (a / b).floor())


@adjoint("atan2")
def _(at: Reverse) -> Gradients:
    a, b = at.operands
    share = at.head / (a * a + b * b)
    return share * b, -(share * a)


@adjoint("select")
def _(at: Reverse) -> Gradients:
    condition, *_ = at.operands
    return None, at.head.where(condition), at.head.where(condition.logical_not())
