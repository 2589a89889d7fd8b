"""Operators of two and more operands that broadcast."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from ngraph_mxnet.bridges.onnx.rules.common import normal_axis
from ngraph_mxnet.bridges.onnx.rules.registry import Call, rule
from ngraph_mxnet.compositions.tensors import along_axis, converted, scalar
from ngraph_mxnet.errors import ModelError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import f32

_BINARY = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "And": "logical_and", "Or": "logical_or", "Xor": "logical_xor",
    "Equal": "equal", "Greater": "greater", "GreaterOrEqual": "greater_equal", "Less": "less",
    "LessOrEqual": "less_equal", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
    "Div": "divide",
}
_VARIADIC = {"Sum": "add", "Max": "maximum", "Min": "minimum"}


def _binary(ir_op: str) -> Callable[[Builder, Call], Value]:
    def lower(b: Builder, call: Call) -> Value:
        return b.apply(ir_op, call.input(0), _aligned(b, call))

    return lower


def _aligned(b: Builder, call: Call) -> Value:
    """The second operand; before opset 7 `axis` says where its dimensions lie in the first one's."""
    left, right = call.input(0), call.input(1)
    if call.opset >= 7:
        return right
    axis = call.attrs.int("axis", None)
    if call.attrs.bool("broadcast") and axis is not None and right.type.rank:
        behind = left.type.rank - normal_axis(axis, left.type.rank) - right.type.rank
        return b.reshape(right, shape=(*right.shape, *(1,) * behind))
    return right


for _name, _ir_op in _BINARY.items():
    rule(_name)(_binary(_ir_op))


@rule("Sum", "Max", "Min")
def variadic(b: Builder, call: Call) -> Value:
    """Sum, Max and Min take one operand or more."""
    values = call.all_inputs()
    if not values:
        raise ModelError("no inputs")
    return functools.reduce(lambda left, right: b.apply(_VARIADIC[call.op], left, right), values)


@rule("Mean")
def mean(b: Builder, call: Call) -> Value:
    values = call.all_inputs()
    total = functools.reduce(lambda left, right: b.add(left, right), values)
    return b.multiply(total, scalar(b, 1 / len(values), total)) if len(values) > 1 else total


@rule("Pow")
def power(b: Builder, call: Call) -> Value:
    """A power in the element type of the base, whatever the exponent's; exponents 2 and 1/2: a square and a root."""
    base, exponent = call.input(0), call.input(1)
    known = call.static_value(exponent)
    if known is not None and known.size == 1 and exponent.type.rank <= base.type.rank:
        if known.item() == 2:
            return b.square(base)
        if known.item() == 0.5 and base.type.element.is_float:
            return b.sqrt(base)
    if base.type.element.is_float or not exponent.type.element.is_float:
        return b.power(base, converted(b, exponent, base))
    return converted(b, b.power(converted(b, base, exponent), exponent), base)


@rule("Mod")
def modulo(b: Builder, call: Call) -> Value:
    """A rest with the sign of the divisor, or with `fmod` of the dividend (exact as long as the quotient is)."""
    left, right = call.input(0), call.input(1)
    if not call.attrs.bool("fmod"):
        rest = b.mod(left, right)
        if not left.type.element.is_float:
            return rest
        return b.select(b.equal(right, scalar(b, 0, right)), scalar(b, np.nan, rest), rest)
    quotient = b.divide(left, right)
    whole = b.trunc(quotient) if quotient.type.element.is_float else quotient
    return b.subtract(left, b.multiply(whole, right))


@rule("BitShift")
def bit_shift(b: Builder, call: Call) -> Value:
    """A product with a power of two, or a quotient by one, rounded down.

    A shift by as many bits as there are, or more, leaves 0, or to the right -1 of a negative number.
    """
    x, count = call.input(0), call.input(1)
    bits = 8 * x.type.element.size
    powers = b.constant(np.left_shift(1, np.arange(bits, dtype=np.uint64)), x.type.element)
    inside = b.minimum(count, scalar(b, bits - 1, count))
    factor = b.gather(powers, b.convert(inside, element="i64"))
    beyond, zero = b.greater_equal(count, scalar(b, bits, count)), scalar(b, 0, x)
    if call.attrs.choice("direction", "", ("LEFT", "RIGHT")) == "LEFT":
        return b.select(beyond, zero, b.multiply(x, factor))
    if x.type.element.numpy.kind == "u":
        return b.select(beyond, zero, b.divide(x, factor))
    sign = b.select(b.less(x, zero), scalar(b, -1, x), zero)
    # The power for the highest bit is negative as a signed number, and can't divide; that shift leaves the sign only.
    below = b.divide(b.subtract(x, b.mod(x, b.maximum(factor, scalar(b, 1, x)))), b.maximum(factor, scalar(b, 1, x)))
    return b.select(b.less(count, scalar(b, bits - 1, count)), below, sign)


@rule("PRelu")
def prelu(b: Builder, call: Call) -> Value:
    """The slope broadcasts to the data (opset 7 and 8 too: along axis 1 for a vector of channels)."""
    x, slope = call.input(0), call.input(1)
    if call.opset < 9 and slope.type.rank == 1 and slope.type.size > 1 and x.type.rank > 1:
        slope = along_axis(b, slope, 1, x.type.rank)
    known = call.static_value(slope)
    if known is not None and known.size == 1 and x.type.element == f32:
        return b.leaky_relu(x, slope=float(known.item()))
    if x.type.element.is_float:
        return b.prelu(x, slope)
    return b.select(b.less(x, scalar(b, 0, x)), b.multiply(x, slope), x)


@rule("Where")
def where(b: Builder, call: Call) -> Value:
    return b.select(call.input(0), call.input(1), call.input(2))


@rule("Clip")
def clip(b: Builder, call: Call) -> Value:
    """Bounds that are known become a clamp; a lower bound above the upper one gives the upper."""
    x = call.input(0)
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
