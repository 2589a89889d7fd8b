"""Adjoints of elementwise ops of one operand: the head gradient times the derivative at each element.

At kinks they are MXNet's (src/operator/mshadow_op.h): relu, abs and the like have 0 there, clip has 1 at its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ngraph_mxnet.autodiff.adjoints import ADJOINTS, Adjoint, Gradients, Reverse, adjoint, no_derivative
from ngraph_mxnet.autodiff.expression import Expression

Derivative = Callable[[Expression, Expression], Expression]
_STEPS = 6
"""After so many steps four terms of the series leave an error below 1e-10."""
_GAUSS = 2 / math.sqrt(math.pi)


def _digamma(x: Expression) -> Expression:
    """Abramowitz and Stegun, Handbook of Mathematical Functions: 6.3.5 up to where 6.3.18 holds; 6.3.7 below 1/2."""
    turned = x < 0.5
    here = choice(turned, 1.0 - x, x)
    sum_ = here.reciprocal()
    for step in range(1, _STEPS):
        sum_ = sum_ + (here + float(step)).reciprocal()
    far = here + float(_STEPS)
    inverse = far.square().reciprocal()
    tail = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse * (1 / 240))))
    found = far.log() - 0.5 / far - tail - sum_
    within = (x - x.round()) * math.pi  # the cotangent has the period 1, and tan is no better than its operand
    return choice(turned, found - math.pi / within.tan(), found)


def _over_hypotenuse(size: Expression) -> Expression:
    """1 / sqrt(size^2 + 1), also where the square is beyond the range."""
    most = size.maximum(1.0)
    return ((size.minimum(1.0) / most).square() + 1.0).rsqrt() / most


# name: the derivative, of the operand x and the result y
DERIVATIVES: dict[str, Derivative] = {
    "abs": lambda x, y: x.sign(),
    "acos": lambda x, y: -(1.0 - x * x).rsqrt(),
    "acosh": lambda x, y: (x.abs() - 1.0).rsqrt() * (x.abs() + 1.0).rsqrt(),
    "asin": lambda x, y: (1.0 - x * x).rsqrt(),
    "asinh": lambda x, y: _over_hypotenuse(x.abs()),
    "atan": lambda x, y: (x * x + 1.0).reciprocal(),
    "atanh": lambda x, y: (1.0 - x * x).reciprocal(),
    "cbrt": lambda x, y: (y * y * 3.0).reciprocal(),
    "cos": lambda x, y: -x.sin(),
    "cosh": lambda x, y: x.sinh(),
    "erf": lambda x, y: (-(x * x)).exp() * _GAUSS,
    "erfinv": lambda x, y: (y * y).exp() * (1 / _GAUSS),
    "exp": lambda x, y: y,
    "expm1": lambda x, y: x.exp(),
    "gamma": lambda x, y: y * _digamma(x),
    "lgamma": lambda x, y: _digamma(x),
    "log": lambda x, y: x.reciprocal(),
    "log10": lambda x, y: x.reciprocal() * (1 / math.log(10)),
    "log1p": lambda x, y: (x + 1.0).reciprocal(),
    "log2": lambda x, y: x.reciprocal() * (1 / math.log(2)),
    "reciprocal": lambda x, y: -(y * y),
    "rsqrt": lambda x, y: y / x * -0.5,
    "sigmoid": lambda x, y: y * (1.0 - y),
    "sin": lambda x, y: x.cos(),
    "sinh": lambda x, y: x.cosh(),
    "softplus": lambda x, y: 1.0 - (-y).exp(),
    "softsign": lambda x, y: (x.abs() + 1.0).square().reciprocal(),
    "sqrt": lambda x, y: 0.5 / y,
    "square": lambda x, y: x * 2.0,
    "tan": lambda x, y: y * y + 1.0,
    "tanh": lambda x, y: 1.0 - y * y,
}


def _of(derivative: Derivative) -> Adjoint:
    return lambda at: [at.head * derivative(at.operands[0], at.result)]


for _name, _derivative in DERIVATIVES.items():
    adjoint(_name)(_of(_derivative))

no_derivative("it is 0 wherever there is one", "ceiling", "floor", "round", "sign", "trunc")
no_derivative("its operand is no float", "bitwise_not", "logical_not", "lookup")


@adjoint("negative")
def _(at: Reverse) -> Gradients:
    return [-at.head]


@adjoint("identity", "dropout")
def _(at: Reverse) -> Gradients:
    return [at.head]


@adjoint("relu")
def _(at: Reverse) -> Gradients:
    return [at.head.where(at.result > 0.0)]


@adjoint("clamp")
def _(at: Reverse) -> Gradients:
    (x,) = at.operands
    return [at.head.where((x >= at.attrs["lower"]) & (x <= at.attrs["upper"]))]


@adjoint("leaky_relu")
def _(at: Reverse) -> Gradients:
    return [choice(at.operands[0] > 0.0, at.head, at.head * at.attrs["slope"])]


@adjoint("silu")
def _(at: Reverse) -> Gradients:
    (x,) = at.operands
    share = x.sigmoid()
    return [at.head * (share * ((1.0 - share) * x + 1.0))]


@adjoint("elu")
def _(at: Reverse) -> Gradients:
    return [choice(at.operands[0] > 0.0, at.head, at.head * (at.result + at.attrs["alpha"]))]


@adjoint("hard_swish")
def _(at: Reverse) -> Gradients:
    (x,), (slope, offset, scale) = at.operands, (at.attrs[name] for name in ("slope", "offset", "scale"))
    gate = x * slope + offset
    inside = (gate > 0.0) & (gate < 1.0)
    return [at.head * (gate.clamp(lower=0.0, upper=1.0) + (x * slope).where(inside)) * scale]


@adjoint("convert")
def _(at: Reverse) -> Gradients:
    return [at.head.to_element(at.operands[0].element) if at.head.element.is_float else None]


def choice(condition: Expression, first: Expression, second: Expression) -> Expression:
    """`first` where the condition holds, else `second`."""
    chosen = first.builder.apply("select", condition.value, first.value, second.value)
    return Expression(first.builder, chosen)


assert not DERIVATIVES.keys() - ADJOINTS.keys()
