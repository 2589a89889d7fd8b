"""Arithmetic and other elementwise operators."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.frontends.onnx.model import element_of
from ngraph_mxnet.frontends.onnx.rules.registry import Call, axis_of, normal_axis, rule
from ngraph_mxnet.frontends.onnx.values import Item
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import boolean, f32, f64
from ngraph_mxnet.ops.compositions import along_axis, converted, hard_sigmoid, iota, mish, reshaped, scalar

# Names of one operand that are one op. Integers stay integers.
_UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "BitwiseNot": "bitwise_not", "Ceil": "ceiling", "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp",
    "Floor": "floor", "Log": "log", "Neg": "negative", "Not": "logical_not",
    "Reciprocal": "reciprocal", "Round": "round", "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin", "Sinh": "sinh",
    "Softplus": "softplus", "Softsign": "softsign", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
}


def _celu(b: Builder, x: Value, alpha: float) -> Value:
    """max(0, x) + min(0, alpha (e^(x / alpha) - 1))."""
    if alpha > 0:  # then both arms are those of alpha elu(x / alpha)
        return b.elu(x * (1 / alpha), alpha=1.0) * alpha
    return b.relu(x) + b.minimum(b.expm1(x * (1 / alpha)) * alpha, 0)


Function = Callable[..., Value]
"""Takes a builder, the operand, and the attributes in the table's order."""

ACTIVATIONS: dict[str, tuple[Function, dict[str, float]]] = {
    "Celu": (_celu, {"alpha": 1.0}),
    "Elu": (lambda b, x, alpha: b.elu(x, alpha=alpha), {"alpha": 1.0}),
    "HardSigmoid": (hard_sigmoid, {"alpha": 0.2, "beta": 0.5}),
    "HardSwish": (lambda b, x: x * hard_sigmoid(b, x, 1 / 6), {}),
    "IsNaN": (lambda b, x: b.not_equal(x, x), {}),
    "LeakyRelu": (lambda b, x, alpha: b.leaky_relu(x, slope=alpha), {"alpha": 0.01}),
    "Mish": (mish, {}),
    "Selu": (lambda b, x, alpha, gamma: b.elu(x, alpha=alpha) * gamma,
             {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    "ThresholdedRelu": (lambda b, x, alpha: b.select(x > alpha, x, 0), {"alpha": 1.0}),
}
"""Operators of one operand, with their attributes and defaults."""


def _of_one(b: Builder, call: Call) -> Value:
    """Lower a row of the tables."""
    if call.op in _UNARY:
        return b.apply(_UNARY[call.op], call.input(0))
    function, defaults = ACTIVATIONS[call.op]
    return function(b, call.input(0), *(call.attrs.float(name, default) for name, default in defaults.items()))


rule(*_UNARY, *ACTIVATIONS)(_of_one)


@rule("Identity")
def identity(b: Builder, call: Call) -> Item:
    item = call.item(0)
    return b.identity(item) if isinstance(item, Value) else item


@rule("Relu")
def relu(b: Builder, call: Call, x: Value) -> Value:
    return b.relu(x) if x.element.is_float else b.clamp(x, lower=0, upper=math.inf)


@rule("Gelu")
def gelu(b: Builder, call: Call, x: Value) -> Value:
    if call.attrs.choice("approximate", "none", ("none", "tanh")) == "none":
        return b.gelu(x)
    return tanh_gelu(b, x)


def tanh_gelu(b: Builder, x: Value) -> Value:
    """x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""
    cubic = x + b.square(x) * x * 0.044715
    bend = b.tanh(cubic * math.sqrt(2 / math.pi)) + 1
    return x * 0.5 * bend


@rule("Shrink")
def shrink(b: Builder, call: Call, given: Value) -> Value:
    """x + bias below -lambd, x - bias above lambd, else 0. Integers are computed as real numbers, and cut off."""
    bias, limit = call.attrs.float("bias", 0.0), call.attrs.float("lambd", 0.5)
    x = given if given.element.is_float else b.convert(given, element=f64)
    return converted(b, b.select(x < -limit, x + bias, b.select(x > limit, x - bias, 0)), given)


@rule("IsInf")
def is_inf(b: Builder, call: Call, x: Value) -> Value:
    found = [b.equal(x, sign * math.inf)
             for name, sign in (("detect_positive", 1), ("detect_negative", -1)) if call.attrs.bool(name, True)]
    if not found:
        return b.broadcast(b.constant(False, "bool"), shape=x.shape)
    return found[0] if len(found) == 1 else b.logical_or(*found)


@rule("Cast")
def cast(b: Builder, call: Call) -> Value:
    """Between the IR's element types; `saturate` and `round_mode` are about types that it has not."""
    call.attrs.ignore("saturate", "round_mode")
    return converted(b, call.input(0), element_of(call.attrs.int("to")))


@rule("BitCast")
def bit_cast(b: Builder, call: Call, x: Value) -> Value:
    """bool is a byte of 0 or 1."""
    element = element_of(call.attrs.int("to"))
    if boolean in (x.element, element) and x.element.size == element.size:
        return b.convert(x, element=element)
    return b.bitcast(x, element=element)


@rule("CastLike")
def cast_like(b: Builder, call: Call) -> Value:
    call.attrs.ignore("saturate", "round_mode")
    return converted(b, call.input(0), call.input(1))


@rule("Dropout")
def dropout(b: Builder, call: Call, x: Value) -> list[Value]:
    """At inference, or with a ratio of 0: the operand, and a mask that keeps everything."""
    training = call.optional(2)
    call.attrs.ignore("seed", "ratio", "is_test")
    if training is not None:
        known, ratio = call.static_value(training), call.number(1, "ratio", 0.5)
        if ratio and (known is None or bool(known)):
            raise UnsupportedError("training_mode is on, or depends on the data; only inference is supported")
    mask = b.broadcast(b.constant(True, boolean), shape=x.shape) if call.outputs > 1 else x
    return [b.identity(x), mask]


def _rows(b: Builder, call: Call, x: Value) -> tuple[Value, int]:
    """Before opset 13 softmax and its like treat all axes from `axis` on as one."""
    if call.opset >= 13:
        return x, axis_of(call, x, -1)
    axis = axis_of(call, x, 1)
    if axis == x.rank - 1 or all(size == 1 for size in x.shape[axis + 1:]):
        return x, axis
    return reshaped(b, x, (int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))), 1


@rule("Softmax", "LogSoftmax")
def softmax(b: Builder, call: Call) -> Value:
    x = call.input(0)
    rows, axis = _rows(b, call, x)
    return reshaped(b, b.apply("softmax" if call.op == "Softmax" else "log_softmax", rows, axis=axis), x.shape)


@rule("Hardmax")
def hardmax(b: Builder, call: Call, x: Value) -> Value:
    """1 at the first greatest element along the axis, else 0."""
    rows, axis = _rows(b, call, x)
    best = b.argmax(rows, axis=axis, keep_dims=True)
    places = iota(b, rows.shape[axis], axis, rows.rank, best.element.name)
    return reshaped(b, converted(b, b.equal(places, best), x), x.shape)


_BINARY = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "And": "logical_and", "Or": "logical_or", "Xor": "logical_xor",
    "Equal": "equal", "Greater": "greater", "GreaterOrEqual": "greater_equal", "Less": "less",
    "LessOrEqual": "less_equal", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
    "Div": "divide",
}
_VARIADIC = {"Sum": "add", "Max": "maximum", "Min": "minimum"}


def _of_two(b: Builder, call: Call) -> Value:
    return b.apply(_BINARY[call.op], call.input(0), _aligned(b, call))


def _aligned(b: Builder, call: Call) -> Value:
    """The second operand; before opset 7 `axis` says where its dimensions lie in the first one's."""
    left, right = call.input(0), call.input(1)
    if call.opset >= 7:
        return right
    axis = call.attrs.int("axis", None)
    if call.attrs.bool("broadcast") and axis is not None and right.rank:
        behind = left.rank - normal_axis(axis, left.rank) - right.rank
        return b.reshape(right, shape=(*right.shape, *(1,) * behind))
    return right


rule(*_BINARY)(_of_two)


@rule("Sum", "Max", "Min")
def variadic(b: Builder, call: Call) -> Value:
    """Sum, Max and Min take one operand or more."""
    values = call.all_inputs()
    if not values:
        raise ModelError("no inputs")
    return functools.reduce(lambda left, right: b.apply(_VARIADIC[call.op], left, right), values)


@rule("Mean")
def mean(b: Builder, call: Call) -> Value:
    total, count = functools.reduce(Value.__add__, call.all_inputs()), len(call.inputs)
    return total * (1 / count) if count > 1 else total


@rule("Pow")
def power(b: Builder, call: Call, base: Value, exponent: Value) -> Value:
    """A power in the element type of the base, whatever the exponent's; exponents 2 and 1/2: a square and a root."""
    known = call.static_value(exponent)
    if known is not None and known.size == 1 and exponent.rank <= base.rank:
        if known.item() == 2:
            return b.square(base)
        if known.item() == 0.5 and base.element.is_float:
            return b.sqrt(base)
    if base.element.is_float or not exponent.element.is_float:
        return base ** converted(b, exponent, base)
    return converted(b, converted(b, base, exponent) ** exponent, base)


@rule("Mod")
def modulo(b: Builder, call: Call, left: Value, right: Value) -> Value:
    """A rest with the sign of the divisor, or with `fmod` of the dividend (exact as long as the quotient is)."""
    if not call.attrs.bool("fmod"):
        rest = left % right
        if not left.element.is_float:
            return rest
        return b.select(b.equal(right, 0), np.nan, rest)
    quotient = left / right
    if not quotient.element.is_float:
        return left - quotient * right
    beyond = b.logical_and(b.equal(b.abs(right), np.inf), b.less(b.abs(left), np.inf))  # 0 times infinity is no number
    return b.select(beyond, left, left - b.trunc(quotient) * right)


@rule("BitShift")
def bit_shift(b: Builder, call: Call, x: Value, count: Value) -> Value:
    """A product with a power of two, or a quotient by one, rounded down.

    A shift by as many bits as there are, or more, leaves 0, or to the right -1 of a negative number.
    """
    bits = 8 * x.element.size
    powers = b.constant(np.left_shift(1, np.arange(bits, dtype=np.uint64)), x.element)
    inside = b.minimum(count, bits - 1)
    factor = b.gather(powers, b.convert(inside, element="i64"))
    beyond, zero = count >= bits, scalar(b, 0, x)
    if call.attrs.choice("direction", "", ("LEFT", "RIGHT")) == "LEFT":
        return b.select(beyond, zero, x * factor)
    if x.element.numpy.kind == "u":
        return b.select(beyond, zero, x / factor)
    sign = b.select(x < zero, -1, zero)
    # The power for the highest bit is negative as a signed number, and can't divide; that shift leaves the sign only.
    below = (x - x % b.maximum(factor, 1)) / b.maximum(factor, 1)
    return b.select(count < bits - 1, below, sign)


@rule("PRelu")
def prelu(b: Builder, call: Call, x: Value, slope: Value) -> Value:
    """The slope broadcasts to the data (opset 7 and 8 too: along axis 1 for a vector of channels)."""
    if call.opset < 9 and slope.rank == 1 and slope.size > 1 and x.rank > 1:
        slope = along_axis(b, slope, 1, x.rank)
    known = call.static_value(slope)
    if known is not None and known.size == 1 and x.element == f32:
        return b.leaky_relu(x, slope=float(known.item()))
    if x.element.is_float:
        return b.prelu(x, slope)
    return b.select(x < 0, x * slope, x)


@rule("Where")
def where(b: Builder, call: Call) -> Value:
    return b.select(call.input(0), call.input(1), call.input(2))


@rule("Clip")
def clip(b: Builder, call: Call, x: Value) -> Value:
    """Bounds that are known become a clamp; a lower bound above the upper one gives the upper."""
    if call.opset < 11:
        limits = np.finfo(np.float32)
        lower, upper = call.attrs.float("min", float(limits.min)), call.attrs.float("max", float(limits.max))
        return b.clamp(x, lower=-np.inf if lower == float(limits.min) else lower,
                       upper=np.inf if upper == float(limits.max) else upper)
    bounds = [call.optional(1), call.optional(2)]
    known = [None if bound is None else call.static_value(bound) for bound in bounds]
    pairs = zip(bounds, known, strict=True)
    if all(bound is None or (found is not None and found.size == 1) for bound, found in pairs):
        below, above = (None if found is None else float(found.item()) for found in known)
        lowest, highest = -np.inf if below is None else below, np.inf if above is None else above
        if lowest <= highest:
            return x if bounds == [None, None] else b.clamp(x, lower=lowest, upper=highest)
    low, high = bounds
    x = x if low is None else b.maximum(x, low)
    return x if high is None else b.minimum(x, high)
