"""Elementwise ops in ONNX.

Narrow integers are computed as int32, which runtimes have, and converted back, which wraps as the IR's do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps

import numpy as np

from ngraph_mxnet.frontends.onnx.writer.document import NARROW, Document, writes
from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.types import boolean

Elementwise = Callable[..., str]


def _writes(*ops: str) -> Callable[[Elementwise], Elementwise]:
    """Decorator: `writes`, with operands of narrow integers as int32."""
    def decorated(writer: Elementwise) -> Elementwise:
        @wraps(writer)
        def widened(d: Document, node: Node, *operands: str) -> str:
            narrow = [str(value.element) in NARROW for value in node.inputs]
            if not any(narrow):
                return writer(d, node, *operands)
            wide = [d.cast(name, "i32") if cast else name for name, cast in zip(operands, narrow, strict=True)]
            found = writer(d, node, *wide)
            return found if node.output.element == boolean else d.cast(found, node.output.element)

        writes(*ops)(widened)
        return writer

    return decorated


def number(d: Document, value: float, like: Value) -> str:
    """A scalar that an operand's arithmetic takes: of its element type, of int32 for narrow integers."""
    return d.constant(value, "i32" if str(like.element) in NARROW else like.element)


PLAIN = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan", "atanh": "Atanh",
    "cos": "Cos", "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "log": "Log", "negative": "Neg",
    "reciprocal": "Reciprocal", "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin", "sinh": "Sinh",
    "softplus": "Softplus", "softsign": "Softsign", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh",
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "maximum": "Max", "minimum": "Min",
    "logical_not": "Not", "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor",
    "equal": "Equal", "greater": "Greater", "greater_equal": "GreaterOrEqual", "less": "Less",
    "less_equal": "LessOrEqual",
}
"""Ops that are one operator of ONNX without attributes."""
ROUNDINGS = {"ceiling": "Ceil", "floor": "Floor", "round": "Round"}
BITWISE = {"bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor",
           "bitwise_not": "BitwiseNot"}
ORDERINGS = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual")


@_writes(*PLAIN)
def plain(d: Document, node: Node, *operands: str) -> str:
    op = PLAIN[node.op.name]
    if op in ORDERINGS and node.inputs[0].element == boolean:
        operands = tuple(d.cast(name, "i32") for name in operands)
    return str(d.add(op, *operands))


@_writes("not_equal")
def not_equal(d: Document, node: Node, a: str, b: str) -> str:
    return str(d.add("Not", d.add("Equal", a, b)))


@_writes(*ROUNDINGS, "trunc")
def rounding(d: Document, node: Node, x: str) -> str:
    """Integers are whole already."""
    value = node.inputs[0]
    if not value.element.is_float:
        return x
    if node.op.name != "trunc":
        return str(d.add(ROUNDINGS[node.op.name], x))
    negative = d.add("Less", x, number(d, 0, value))
    return str(d.add("Where", negative, d.add("Ceil", x), d.add("Floor", x)))


@writes(*BITWISE)
def bitwise(d: Document, node: Node, *operands: str) -> str:
    d.require_opset(18, BITWISE[node.op.name])
    return str(d.add(BITWISE[node.op.name], *operands))


@writes("identity", "dropout", "stop_gradient")
def identity(d: Document, node: Node, x: str) -> str:
    return x


@writes("convert")
def convert(d: Document, node: Node, x: str) -> str:
    return d.cast(x, node.attrs["element"])


@_writes("select")
def select(d: Document, node: Node, condition: str, yes: str, no: str) -> str:
    if node.output.element == boolean:  # which runtimes don't choose among
        chosen = d.add("Where", condition, d.cast(yes, "i32"), d.cast(no, "i32"))
        return d.cast(chosen, boolean)
    return str(d.add("Where", condition, yes, no))


@_writes("clamp")
def clamp(d: Document, node: Node, x: str) -> str:
    """Bounds of integers are rounded inwards, and saturate."""
    lower, upper = node.attrs["lower"], node.attrs["upper"]
    element = node.inputs[0].element
    if element.is_float:
        return str(d.add("Relu", x)) if (lower, upper) == (0, np.inf) else d.clipped(x, lower, upper, element)
    info = np.iinfo(element.numpy)
    low, high = (int(np.clip(bound, info.min, info.max)) for bound in (np.ceil(lower), np.floor(upper)))
    return str(d.add("Min", d.add("Max", x, number(d, low, node.inputs[0])), number(d, high, node.inputs[0])))


@_writes("relu")
def relu(d: Document, node: Node, x: str) -> str:
    if node.inputs[0].element.is_float:
        return str(d.add("Relu", x))
    return str(d.add("Max", x, number(d, 0, node.inputs[0])))


@_writes("square")
def square(d: Document, node: Node, x: str) -> str:
    return str(d.add("Mul", x, x))


@_writes("divide")
def divide(d: Document, node: Node, a: str, b: str) -> str:
    """Integers truncate; what is divided by 0 is 0."""
    if node.inputs[0].element.is_float:
        return str(d.add("Div", a, b))
    return _by_a_divisor(d, node, "Div", a, b)


def _by_a_divisor(d: Document, node: Node, op: str, a: str, b: str) -> str:
    """Integers by others, and 0 where these are 0."""
    divisor = d.array(b)
    if divisor is not None and divisor.all():
        return str(d.add(op, a, b))
    zero, one = number(d, 0, node.inputs[1]), number(d, 1, node.inputs[1])
    none = d.add("Equal", b, zero)
    return str(d.add("Where", none, zero, d.add(op, a, d.add("Where", none, one, b))))


@_writes("mod")
def mod(d: Document, node: Node, a: str, b: str) -> str:
    """The sign follows b; a mod 0 is 0."""
    value = node.inputs[0]
    if not value.element.is_float:
        return _by_a_divisor(d, node, "Mod", a, b)
    zero = number(d, 0, value)
    rest = d.add("Mod", a, b, fmod=1)
    other_sign = d.add("Xor", d.add("Less", rest, zero), d.add("Less", b, zero))
    moves = d.add("And", other_sign, d.add("Not", d.add("Equal", rest, zero)))
    moved = d.add("Where", moves, d.add("Add", rest, b), rest)
    return str(d.add("Where", d.add("Equal", b, zero), zero, moved))


@_writes("power")
def power(d: Document, node: Node, a: str, b: str) -> str:
    """Of integers 1 / a^-b is truncated, and 1 / 0 is 0."""
    base, exponent = node.inputs
    numbers = d.array(b)
    if base.element.is_float or (numbers is not None and (numbers >= 0).all()):
        return str(d.add("Pow", a, b))
    zero, one, two = (number(d, value, exponent) for value in (0, 1, 2))
    odd = d.add("Equal", d.add("Mod", d.add("Abs", b), two), one)
    unit = d.add("Equal", d.add("Abs", a), one)
    inverse = d.add("Where", unit, d.add("Where", odd, a, one), zero)
    return str(d.add("Where", d.add("Less", b, zero), inverse, d.add("Pow", a, d.add("Max", b, zero))))


@_writes("rsqrt")
def rsqrt(d: Document, node: Node, x: str) -> str:
    return str(d.add("Reciprocal", d.add("Sqrt", x)))


@_writes("log2", "log10")
def logarithm(d: Document, node: Node, x: str) -> str:
    factor = 1 / math.log({"log2": 2, "log10": 10}[node.op.name])
    return str(d.add("Mul", d.add("Log", x), number(d, factor, node.inputs[0])))


@_writes("log1p")
def log1p(d: Document, node: Node, x: str) -> str:
    """log(u) x / (u - 1) of u = 1 + x is exact near 0: what u rounds, both factors have (Kahan)."""
    one = number(d, 1, node.inputs[0])
    sum_ = d.add("Add", x, one)
    log = d.add("Log", sum_)
    plain_one = d.add("Equal", sum_, one)
    off = d.add("Where", plain_one, one, d.add("Sub", sum_, one))
    near = d.add("Where", plain_one, x, d.add("Mul", log, d.add("Div", x, off)))
    small = d.add("Less", d.add("Abs", x), number(d, 0.5, node.inputs[0]))
    return str(d.add("Where", small, near, log))


@_writes("expm1")
def expm1(d: Document, node: Node, x: str) -> str:
    """2 t / (1 - t) of t = tanh(x / 2) is exact near 0."""
    value = node.inputs[0]
    one, half = number(d, 1, value), number(d, 0.5, value)
    small = d.add("Less", d.add("Abs", x), one)
    tangent = d.add("Tanh", d.add("Mul", d.add("Where", small, x, half), half))
    near = d.add("Div", d.add("Add", tangent, tangent), d.add("Sub", one, tangent))
    return str(d.add("Where", small, near, d.add("Sub", d.add("Exp", x), one)))


@_writes("cbrt")
def cbrt(d: Document, node: Node, x: str) -> str:
    root = d.add("Pow", d.add("Abs", x), number(d, 1 / 3, node.inputs[0]))
    return str(d.add("Mul", d.add("Sign", x), root))


@_writes("atan2")
def atan2(d: Document, node: Node, a: str, b: str) -> str:
    """The quotient's arc tangent, half a turn further on the left; of b = 0 a quarter turn to a's side."""
    value = node.inputs[0]
    zero = number(d, 0, value)
    half_turn = number(d, math.pi, value)
    on_axis = d.add("Equal", b, zero)
    angle = d.add("Atan", d.add("Div", a, d.add("Where", on_axis, number(d, 1, value), b)))
    turn = d.add("Where", d.add("Less", a, zero), d.add("Neg", half_turn), half_turn)
    left = d.add("Where", d.add("Less", b, zero), d.add("Add", angle, turn), angle)
    upright = d.add("Mul", d.add("Sign", a), number(d, math.pi / 2, value))
    return str(d.add("Where", on_axis, upright, left))


@_writes("gelu")
def gelu(d: Document, node: Node, x: str) -> str:
    if d.opset >= 20:
        return str(d.add("Gelu", x))
    value = node.inputs[0]
    half, one = number(d, 0.5, value), number(d, 1, value)
    error = d.add("Erf", d.add("Mul", x, number(d, math.sqrt(0.5), value)))
    return str(d.add("Mul", d.add("Mul", x, d.add("Add", error, one)), half))


@_writes("silu")
def silu(d: Document, node: Node, x: str) -> str:
    return str(d.add("Mul", x, d.add("Sigmoid", x)))


@_writes("hard_swish")
def hard_swish(d: Document, node: Node, x: str) -> str:
    slope, offset, scale, shift = (node.attrs[key] for key in ("slope", "offset", "scale", "shift"))
    if (offset, scale, shift) == (0.5, 1, 0) and np.float32(slope) == np.float32(1 / 6):
        return str(d.add("HardSwish", x))
    value = node.inputs[0]
    found = d.add("Mul", x, d.add("HardSigmoid", x, alpha=slope, beta=offset))
    found = found if scale == 1 else d.add("Mul", found, number(d, scale, value))
    return str(found if shift == 0 else d.add("Add", found, number(d, shift, value)))


@_writes("elu")
def elu(d: Document, node: Node, x: str) -> str:
    return str(d.add("Elu", x, alpha=node.attrs["alpha"]))


@_writes("leaky_relu")
def leaky_relu(d: Document, node: Node, x: str) -> str:
    return str(d.add("LeakyRelu", x, alpha=node.attrs["slope"]))


@_writes("prelu")
def prelu(d: Document, node: Node, x: str, slope: str) -> str:
    """PRelu's slope broadcasts to the data alone."""
    value = node.inputs[0]
    if tuple(map(str, node.output.shape)) == tuple(map(str, value.shape)):
        return str(d.add("PRelu", x, slope))
    return str(d.add("Where", d.add("Greater", x, number(d, 0, value)), x, d.add("Mul", x, slope)))




# ---- functions that ONNX doesn't have -------------------------------------------------------------------


class _Formula:
    """Writes arithmetic of one float type, with numbers among the operands."""

    def __init__(self, d: Document, like: Value) -> None:
        self._d, self._like = d, like

    def __call__(self, op: str, *operands: str | float) -> str:
        return str(self._d.add(op, *(one if isinstance(one, str) else number(self._d, one, self._like)
                                     for one in operands)))


def _log_gamma(f: _Formula, x: str) -> str:
    """Of x >= 1/2: Stirling's series at x + 7, less the logarithm of x (x + 1) ... (x + 6). (Abramowitz and Stegun,
    Handbook of Mathematical Functions, 6.1.41 and 6.1.15.)"""
    product, last = x, x
    for step in range(1, 7):
        last = f("Add", x, step)
        product = f("Mul", product, last)
    far = f("Add", x, 7)
    inverse = f("Reciprocal", far)
    square = f("Mul", inverse, inverse)
    tail = f("Mul", inverse, f("Sub", 1 / 12, f("Mul", square, f("Sub", 1 / 360, f("Mul", square, 1 / 1260)))))
    series = f("Add", f("Sub", f("Mul", f("Sub", far, 0.5), f("Log", far)), far),
               f("Add", tail, 0.5 * math.log(2 * math.pi)))
    return f("Sub", series, f("Log", product))


@_writes("lgamma", "gamma")
def gamma(d: Document, node: Node, x: str) -> str:
    """Below 1/2 by reflection: gamma(x) gamma(1 - x) is pi / sin(pi x)."""
    f = _Formula(d, node.inputs[0])
    low = f("Less", x, 0.5)
    right = _log_gamma(f, f("Where", low, f("Sub", 1, x), x))
    whole = f("Floor", x)
    sine = f("Sin", f("Mul", f("Sub", x, whole), math.pi))  # |sin(pi x)|, exact near whole numbers
    sine = f("Where", f("Equal", x, whole), 0.0, sine)
    left = f("Sub", f("Log", f("Div", math.pi, sine)), right)
    found = f("Where", low, left, right)
    if node.op.name == "lgamma":
        return found
    turns = f("Equal", d.add("Mod", whole, number(d, 2, node.inputs[0]), fmod=1), -1.0)  # of odd ones below 0
    size = f("Exp", found)
    factorial = f("And", f("Equal", x, whole), f("Less", size, 1 << 20))
    size = f("Where", factorial, f("Round", size), size)
    signed = f("Where", f("And", low, turns), f("Neg", size), size)
    pole = f("And", f("Less", x, 0.0), f("Equal", x, whole))
    return f("Where", pole, math.nan, signed)


@_writes("erfinv")
def erfinv(d: Document, node: Node, x: str) -> str:
    """A closed form that is right to 2e-3 (Winitzki, 2008), then two steps of Newton's method on erf(y) = x."""
    f = _Formula(d, node.inputs[0])
    log = f("Log", f("Mul", f("Sub", 1, x), f("Add", 1, x)))
    share = f("Add", f("Mul", log, 0.5), 2 / (math.pi * 0.147))
    root = f("Sqrt", f("Sub", f("Mul", share, share), f("Div", log, 0.147)))
    inside = f("Less", f("Abs", x), 1.0)
    y = f("Where", inside, f("Mul", f("Sign", x), f("Sqrt", f("Sub", root, share))), 0.0)
    for _ in range(2):
        off = f("Sub", f("Erf", y), f("Where", inside, x, 0.0))
        y = f("Sub", y, f("Mul", f("Mul", off, f("Exp", f("Mul", y, y))), math.sqrt(math.pi) / 2))
    edge = f("Equal", f("Abs", x), 1.0)
    outside = f("Where", edge, f("Mul", x, math.inf), math.nan)
    return f("Where", inside, y, outside)
