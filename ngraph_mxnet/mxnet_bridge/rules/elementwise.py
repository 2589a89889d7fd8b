"""Elementwise operators: maths, activations, arithmetic with tensors and scalars, comparisons, casts."""

from __future__ import annotations

import math
from collections.abc import Callable

from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.mxnet_bridge.attrs import Attrs
from ngraph_mxnet.mxnet_bridge.rules.common import along_axis, as_number, scalar, truth
from ngraph_mxnet.mxnet_bridge.rules.registry import Lowering, add_rule, rule
from ngraph_mxnet.mxnet_bridge.symbol_json import SymbolNode

Unary = Callable[[Builder, Value], Value]
Binary = Callable[[Builder, Value, Value], Value]

# ---- one operand ----------------------------------------------------------------------------------------


def _round_half_down(b: Builder, x: Value) -> Value:
    """MXNet's rint: a tie goes to the lower neighbour. NaN compares false, and its ceiling is NaN."""
    low, high = b.floor(x), b.ceiling(x)
    return b.select(b.less_equal(b.subtract(x, low), b.subtract(high, x)), low, high)


def _round_half_away(b: Builder, x: Value) -> Value:
    """MXNet's round: a tie goes away from zero. Adding 0.5 and truncating would be wrong for 0.49999997."""
    whole = b.trunc(x)
    far = b.greater_equal(b.abs(b.subtract(x, whole)), scalar(b, 0.5, x))
    return b.select(far, b.add(whole, b.sign(x)), whole)


def _sign(b: Builder, x: Value) -> Value:
    """MXNet gives 0 for NaN, the IR NaN."""
    return b.select(b.equal(x, x), b.sign(x), scalar(b, 0, x))



def _selu(b: Builder, x: Value) -> Value:
    return b.multiply(b.elu(x, alpha=1.6732632423543772), scalar(b, 1.0507009873554805, x))


def _same(b: Builder, x: Value) -> Value:
    return x


def _times(factor: float) -> Unary:
    return lambda b, x: b.multiply(x, scalar(b, factor, x))


def _op(name: str) -> Unary:
    return lambda b, x: b.apply(name, x)


UNARY: dict[str, Unary] = {
    **{name: _op(name) for name in (
        "abs", "cbrt", "cos", "cosh", "erf", "exp", "expm1", "floor", "log", "log10", "log1p", "log2",
        "negative", "reciprocal", "relu", "rsqrt", "sigmoid", "sin", "sinh", "softsign", "sqrt", "square",
        "tan", "tanh", "trunc",
    )},
    "arccos": _op("acos"), "arccosh": _op("acosh"), "arcsin": _op("asin"), "arcsinh": _op("asinh"),
    "arctan": _op("atan"), "arctanh": _op("atanh"),
    "ceil": _op("ceiling"), "fix": _op("trunc"), "rint": _round_half_down, "round": _round_half_away,
    "sign": _sign,
    "degrees": _times(180 / math.pi), "radians": _times(math.pi / 180),
    "rcbrt": lambda b, x: b.reciprocal(b.cbrt(x)),
    "logical_not": lambda b, x: as_number(b, b.equal(x, scalar(b, 0, x)), x),
    "zeros_like": lambda b, x: b.broadcast(scalar(b, 0, x), shape=x.shape),
    "ones_like": lambda b, x: b.broadcast(scalar(b, 1, x), shape=x.shape),
    # Gradients aside, these are copies.
    "identity": _same, "BlockGrad": _same,
}


def _unary_rule(function: Unary) -> Lowering:
    return lambda b, inputs, attrs, node: function(b, inputs[0])


for _name, _function in UNARY.items():
    add_rule(_unary_rule(_function), _name, operands=1)

ACTIVATIONS: dict[str, Unary] = {
    "relu": _op("relu"), "sigmoid": _op("sigmoid"), "tanh": _op("tanh"), "softrelu": _op("softplus"),
    "softsign": _op("softsign"), "log_sigmoid": lambda b, x: b.negative(b.softplus(b.negative(x))),
    "mish": lambda b, x: b.multiply(x, b.tanh(b.softplus(x))),
}


@rule("Activation", operands=1)
def activation(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """All `act_type`s."""
    kind = attrs.choice("act_type", None, ACTIVATIONS)
    if kind is None:
        raise UnsupportedError("act_type is missing")
    return ACTIVATIONS[kind](b, inputs[0])


@rule("LeakyReLU", operands=(1, 2), parameters=[1])
def leaky_relu(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """leaky, elu, selu, gelu (by erf), prelu (gamma of one element, or one for each channel of axis 1), and
    rrelu, whose slope at inference is the mean of its bounds."""
    kind = attrs.choice("act_type", "leaky", ("leaky", "elu", "selu", "gelu", "prelu", "rrelu"))
    slope = attrs.float("slope", 0.25)
    lower, upper = attrs.float("lower_bound", 0.125), attrs.float("upper_bound", 0.334)
    x = inputs[0]
    if kind == "prelu":
        return _prelu(b, x, inputs[1])
    by_kind: dict[str, Unary] = {
        "leaky": lambda b, x: b.leaky_relu(x, slope=slope), "elu": lambda b, x: b.elu(x, alpha=slope),
        "selu": _selu, "gelu": _op("gelu"), "rrelu": lambda b, x: b.leaky_relu(x, slope=(lower + upper) / 2),
    }
    return by_kind[kind](b, x)


def _prelu(b: Builder, x: Value, gamma: Value) -> Value:
    if gamma.type.rank == 1 and len(x.shape) > 1:
        gamma = along_axis(b, gamma, 1, len(x.shape))
    return b.select(b.greater(x, scalar(b, 0, x)), x, b.multiply(x, gamma))


@rule("hard_sigmoid", operands=1)
def hard_sigmoid(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """clamp(alpha x + beta, 0, 1)."""
    (x,) = inputs
    alpha, beta = attrs.float("alpha", 0.2), attrs.float("beta", 0.5)
    return b.clamp(b.add(b.multiply(x, scalar(b, alpha, x)), scalar(b, beta, x)), lower=0, upper=1)


@rule("clip", operands=1)
def clip(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Bounds in order; crossed bounds are left to MXNet."""
    lower, upper = attrs.float("a_min", -math.inf), attrs.float("a_max", math.inf)
    return b.clamp(inputs[0], lower=lower, upper=upper)


@rule("smooth_l1", operands=1, ignored=["is_int"])
def smooth_l1(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """(s x)^2 / 2 where |x| < 1/s^2, else |x| - 1/(2 s^2)."""
    (x,) = inputs
    sigma2 = attrs.float("scalar", 1.0) ** 2
    size = b.abs(x)
    inner = b.multiply(b.square(x), scalar(b, 0.5 * sigma2, x))
    outer = b.subtract(size, scalar(b, 0.5 / sigma2, x))
    return b.select(b.less_equal(size, scalar(b, 1 / sigma2, x)), inner, outer)


@rule("Cast", "cast", "amp_cast", operands=1)
def cast(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """To any element type the IR has; what the importer allows is decided there."""
    (x,) = inputs
    element = attrs.element("dtype")
    return x if element == x.type.element else b.convert(x, element=element)


# ---- two operands, or one and a scalar ------------------------------------------------------------------

def _hypot(b: Builder, x: Value, y: Value) -> Value:
    """Scaled by the greater, so that squares can't overflow."""
    x, y = b.abs(x), b.abs(y)
    big, small = b.maximum(x, y), b.minimum(x, y)
    plain = b.equal(big, scalar(b, 0, x))
    ratio = b.select(plain, scalar(b, 0, x), b.divide(small, b.select(plain, scalar(b, 1, x), big)))
    return b.multiply(big, b.sqrt(b.add(b.square(ratio), scalar(b, 1, x))))


def _compared(name: str) -> Binary:
    return lambda b, x, y: as_number(b, b.apply(name, x, y), x)


def _logical(name: str) -> Binary:
    return lambda b, x, y: as_number(b, b.apply(name, truth(b, x), truth(b, y)), x)


def _plain(name: str) -> Binary:
    return lambda b, x, y: b.apply(name, x, y)


# How MXNet's families call an operation, and what it is.
ARITHMETIC: dict[str, Binary] = {
    "add": _plain("add"), "sub": _plain("subtract"), "mul": _plain("multiply"), "div": _plain("divide"),
    "mod": _plain("mod"), "power": _plain("power"),
    "maximum": _plain("maximum"), "minimum": _plain("minimum"), "hypot": _hypot,
}
COMPARISONS: dict[str, Binary] = {
    "equal": _compared("equal"), "not_equal": _compared("not_equal"), "greater": _compared("greater"),
    "greater_equal": _compared("greater_equal"), "lesser": _compared("less"),
    "lesser_equal": _compared("less_equal"), "logical_and": _logical("logical_and"),
    "logical_or": _logical("logical_or"), "logical_xor": _logical("logical_xor"),
}
# What the forms without broadcasting call it.
_OLD_NAMES = {"add": "plus", "sub": "minus"}


def _binary_rule(function: Binary) -> Lowering:
    return lambda b, inputs, attrs, node: function(b, inputs[0], inputs[1])


def _scalar_rule(function: Binary, *, reverse: bool = False) -> Lowering:
    def lower(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
        (x,) = inputs
        value = scalar(b, attrs.float("scalar", 1.0), x)
        return function(b, value, x) if reverse else function(b, x, value)

    return lower


def _register_binary() -> None:
    """Each operation has an elementwise form, a broadcasting one, and one or two with a scalar."""
    for name, function in {**ARITHMETIC, **COMPARISONS}.items():
        plain = _OLD_NAMES.get(name, name)
        add_rule(_binary_rule(function), f"broadcast_{name}", f"_{plain}", operands=2)
        add_rule(_scalar_rule(function), f"_{plain}_scalar", operands=1, ignored=["is_int"])
    for name in ("sub", "div", "mod", "power"):
        add_rule(_scalar_rule(ARITHMETIC[name], reverse=True), f"_r{_OLD_NAMES.get(name, name)}_scalar", operands=1,
                 ignored=["is_int"])
    add_rule(_binary_rule(ARITHMETIC["add"]), "_grad_add", operands=2)


_register_binary()


@rule("add_n", "ElementWiseSum", ignored=["num_args"])
def add_n(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The sum of one or more tensors of one shape."""
    total = inputs[0]
    for value in inputs[1:]:
        total = b.add(total, value)
    return total


@rule("where", operands=3)
def where(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The condition has the shape of the branches, or one entry for each row of axis 0."""
    condition, x, y = inputs
    if condition.shape != x.shape:
        condition = along_axis(b, condition, 0, len(x.shape))
    return b.select(truth(b, condition), x, y)
