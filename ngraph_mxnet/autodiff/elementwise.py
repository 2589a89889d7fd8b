"""Adjoints of elementwise ops, reductions, products, and of those that have none."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod

from ngraph_mxnet.autodiff.adjoints import ADJOINTS, Adjoint, Gradients, Reverse, adjoint, no_derivative, refuse
from ngraph_mxnet.autodiff.expression import Expression
from ngraph_mxnet.ops.common import normal_axes
from ngraph_mxnet.ops.reduction import reduced_shape

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


@adjoint("matmul")
def _(at: Reverse) -> Gradients:
    (a, b), head = at.operands, at.head
    turned_a, turned_b = at.attrs["transpose_a"], at.attrs["transpose_b"]
    if turned_a:
        of_a = b.matmul(head, transpose_a=turned_b, transpose_b=True)
    else:
        of_a = head.matmul(b, transpose_b=not turned_b)
    if b.rank == 2 < a.rank and not turned_a:  # one matrix for a batch: the sum over the batch is part of the product
        a, head = (x.reshape((prod(x.shape[:-1]), x.shape[-1])) for x in (a, head))
    if turned_b:
        of_b = head.matmul(a, transpose_a=True, transpose_b=turned_a)
    else:
        of_b = a.matmul(head, transpose_a=not turned_a)
    return of_a, of_b


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


no_derivative("its result is no float", "random_mask")
refuse("passes make it of ops that have one, after gradients are there", "convolution_bias", "convolution_bias_add",
       "convolution_bias_add_scale_shift", "matmul_bias", "scale_shift", "fused", "quantized_convolution",
       "quantized_convolution_add", "quantized_convolution_add_scale_shift", "quantized_matmul")
refuse("no adjoint is written for it yet", "integer_convolution", "integer_matmul", "roi_align", "roi_max_pool",
       "gru_reset_first")
refuse("boxes are chosen by order; it has none in MXNet either", "box_nms")
refuse("it is a gradient itself: there are none of second order yet", "convolution_weight_gradient",
       "max_pool_gradient", "rnn_gradient", "lstm_cell_gradient", "gru_cell_gradient")
refuse("differentiation makes it of the op without training", "rnn_training", "lstm_cell_training", "gru_cell_training")
