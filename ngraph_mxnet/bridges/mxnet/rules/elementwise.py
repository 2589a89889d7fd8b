"""Arithmetic and other elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ngraph_mxnet.bridges.mxnet.rules.registry import (
    EXACT,
    FLOATS,
    LOGIC,
    MATHS,
    MOVED,
    NUMBERS,
    Lowering,
    Types,
    add_rule,
    as_number,
    as_type,
    moves,
    rule,
    truth,
)
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.layers import hypotenuse
from ngraph_mxnet.compositions.tensors import along_axis, scalar
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.sizes import are_same_shape
from ngraph_mxnet.ir.types import ElementType, f16, f32, f64, i64

Unary = Callable[[Builder, Value], Value]

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


def _whole(function: Unary) -> Unary:
    """Integers are whole already."""
    return lambda b, x: function(b, x) if x.type.element.is_float else x


def _sign(b: Builder, x: Value) -> Value:
    """MXNet gives 0 for NaN, the IR NaN."""
    if not x.type.element.is_float:
        return b.sign(x)
    return b.select(b.equal(x, x), b.sign(x), scalar(b, 0, x))


def _selu(b: Builder, x: Value) -> Value:
    return b.multiply(b.elu(x, alpha=1.6732632423543772), scalar(b, 1.0507009873554805, x))


def _same(b: Builder, x: Value) -> Value:
    return x


def _times(factor: float) -> Unary:
    return lambda b, x: b.multiply(x, scalar(b, factor, x))


def _op(name: str) -> Unary:
    return lambda b, x: b.apply(name, x)


# Of integers, too, these are computed in float32.
MATHS_OF_ONE: dict[str, Unary] = {
    **{name: _op(name) for name in (
        "cbrt", "cos", "cosh", "erf", "erfinv", "exp", "expm1", "gamma", "log", "log10", "log1p", "log2", "reciprocal",
        "rsqrt", "sigmoid", "sin", "sinh", "softsign", "sqrt", "tan", "tanh",
    )},
    "arccos": _op("acos"), "arccosh": _op("acosh"), "arcsin": _op("asin"), "arcsinh": _op("asinh"),
    "arctan": _op("atan"), "arctanh": _op("atanh"), "gammaln": _op("lgamma"),
    "degrees": _times(180 / math.pi), "radians": _times(math.pi / 180),
    "rcbrt": lambda b, x: b.reciprocal(b.cbrt(x)),
}
# Exact in integers.
EXACT_OF_ONE: dict[str, Unary] = {
    **{name: _op(name) for name in ("abs", "floor", "negative", "relu", "square", "trunc")},
    "ceil": _op("ceiling"), "fix": _op("trunc"), "rint": _whole(_round_half_down), "round": _whole(_round_half_away),
    "sign": _sign, "_contrib_round_ste": _whole(_round_half_away), "_contrib_sign_ste": _sign,
    "logical_not": lambda b, x: as_number(b, b.equal(x, scalar(b, 0, x)), x),
}
# These differ from a copy in their gradients only.
COPIES: dict[str, Unary] = {
    "identity": _same, "BlockGrad": _same, "_contrib_gradientmultiplier": _same,
}


def of_one(function: Unary) -> Lowering:
    return lambda b, inputs, attrs, node: function(b, inputs[0])


for _table, _types in ((MATHS_OF_ONE, MATHS), (EXACT_OF_ONE, NUMBERS), (COPIES, MOVED)):
    for _name, _function in _table.items():
        add_rule(of_one(_function), _name, operands=1, types=_types,
                 ignored=["scalar", "is_int"] if _name == "_contrib_gradientmultiplier" else ())

@moves("zeros_like", operands=1, ignored=["dtype"])
def zeros_like(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Zeros of the input's type: MXNet reads no dtype here, though models give one."""
    (x,) = inputs
    return b.broadcast(scalar(b, 0, x), shape=x.shape)


@moves("ones_like", operands=1, ignored=["dtype"])
def ones_like(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Return ones of the input's type. MXNet reads no dtype here, as for `zeros_like`."""
    (x,) = inputs
    return b.broadcast(scalar(b, 1, x), shape=x.shape)


ACTIVATIONS: dict[str, Unary] = {
    "relu": _op("relu"), "sigmoid": _op("sigmoid"), "tanh": _op("tanh"), "softrelu": _op("softplus"),
    "softsign": _op("softsign"), "log_sigmoid": lambda b, x: b.negative(b.softplus(b.negative(x))),
    "mish": lambda b, x: b.multiply(x, b.tanh(b.softplus(x))),
}


@rule("Activation", operands=1, types=FLOATS)
def activation(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """All `act_type`s."""
    kind = attrs.choice("act_type", None, ACTIVATIONS)
    if kind is None:
        raise UnsupportedError("act_type is missing")
    return ACTIVATIONS[kind](b, inputs[0])


@rule("LeakyReLU", operands=(1, 2), parameters=[1], types=FLOATS)
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
        # 0 times an infinity would be NaN.
        "leaky": lambda b, x: b.leaky_relu(x, slope=slope) if slope else b.relu(x),
        "elu": lambda b, x: b.elu(x, alpha=slope), "selu": _selu, "gelu": _op("gelu"),
        "rrelu": lambda b, x: b.leaky_relu(x, slope=(lower + upper) / 2),
    }
    return by_kind[kind](b, x)


def _prelu(b: Builder, x: Value, gamma: Value) -> Value:
    if gamma.type.rank == 1 and len(x.shape) > 1:
        gamma = along_axis(b, gamma, 1, len(x.shape))
    out = b.prelu(x, gamma)
    if not are_same_shape(out.shape, x.shape):  # MXNet's result is like x
        raise UnsupportedError(f"gamma of {gamma.type} for data of {x.type}")
    return out


@rule("hard_sigmoid", operands=1, types=FLOATS)
def hard_sigmoid(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """clamp(alpha x + beta, 0, 1)."""
    (x,) = inputs
    alpha, beta = attrs.float("alpha", 0.2), attrs.float("beta", 0.5)
    return b.clamp(b.add(b.multiply(x, scalar(b, alpha, x)), scalar(b, beta, x)), lower=0, upper=1)


@rule("clip", operands=1, types=NUMBERS)
def clip(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Bounds in order; crossed bounds are left to MXNet. For integers the bounds are cut off to whole numbers."""
    (x,) = inputs
    bounds = [attrs.float("a_min", None), attrs.float("a_max", None)]
    if not x.type.element.is_float:
        bounds = [None if bound is None or math.isinf(bound) else math.trunc(bound) for bound in bounds]
    lower, upper = bounds
    return b.clamp(x, lower=-math.inf if lower is None else lower, upper=math.inf if upper is None else upper)


@rule("smooth_l1", operands=1, types=FLOATS, ignored=["is_int"])
def smooth_l1(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """(s x)^2 / 2 where |x| < 1/s^2, else |x| - 1/(2 s^2)."""
    (x,) = inputs
    sigma2 = attrs.float("scalar", 1.0) ** 2
    bound = 1 / sigma2 if sigma2 else math.inf
    size = b.abs(x)
    # No more than is chosen: the square of what is not would be infinite, and 0 times that go back.
    inner = b.multiply(b.square(b.minimum(size, scalar(b, bound, x))), scalar(b, 0.5 * sigma2, x))
    outer = b.subtract(size, scalar(b, 0.5 * bound, x))
    return b.select(b.less_equal(size, scalar(b, bound, x)), inner, outer)


@rule("_contrib_quadratic", operands=1, types=NUMBERS)
def quadratic(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """(a x + b) x + c; for integers the coefficients are cut off to whole numbers."""
    (x,) = inputs
    first, second, third = (scalar(b, attrs.float(name, 0.0), x) for name in "abc")
    return b.add(b.multiply(b.add(b.multiply(first, x), second), x), third)


@rule("IdentityAttachKLSparseReg", operands=2, types=FLOATS,
      ignored=["sparseness_target", "penalty", "momentum"])
def identity_attach(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The first input: what is attached is a penalty on gradients, with a moving average of its own."""
    return inputs[0]


@rule("amp_multicast", types=EXACT, ignored=["num_outputs"])
def multicast(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> list[Value]:
    """float16 and float32 inputs in the widest of their types, or the narrowest; others as they are."""
    floats = [value.type.element for value in inputs if value.type.element in (f16, f32)]
    if not floats:
        return inputs
    choose = min if attrs.bool("cast_narrow", False) else max
    element = choose(floats, key=lambda found: found.size)
    return [as_type(b, value, element) if value.type.element in floats else value for value in inputs]


@rule("amp_cast", operands=1, types=EXACT)
def amp_cast(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """float16 and float32 as any element type; others stay as they are."""
    (x,), element = inputs, attrs.element("dtype")
    return as_type(b, x, element) if x.type.element in (f16, f32) else x


@rule("Cast", operands=1, types=EXACT)
def cast(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Between any two element types: floats are cut off to integers, and rounded to shorter floats."""
    (x,) = inputs
    return as_type(b, x, attrs.element("dtype"))


Binary = Callable[[Builder, Value, Value], Value]


def _compared(name: str) -> Binary:
    return lambda b, x, y: as_number(b, b.apply(name, x, y), x)


def _logical(name: str) -> Binary:
    return lambda b, x, y: as_number(b, b.apply(name, truth(b, x), truth(b, y)), x)


def _plain(name: str) -> Binary:
    return lambda b, x, y: b.apply(name, x, y)


# Operations by their names in MXNet's operators: what computes each, and the element types that it takes.
ARITHMETIC: dict[str, tuple[Binary, Types]] = {
    "add": (_plain("add"), NUMBERS), "sub": (_plain("subtract"), NUMBERS), "mul": (_plain("multiply"), NUMBERS),
    "div": (_plain("divide"), NUMBERS), "mod": (_plain("mod"), NUMBERS), "power": (_plain("power"), MATHS),
    "maximum": (_plain("maximum"), NUMBERS), "minimum": (_plain("minimum"), NUMBERS), "hypot": (hypotenuse, MATHS),
}
COMPARISONS: dict[str, tuple[Binary, Types]] = {
    **{name: (_compared(op), NUMBERS) for name, op in {
        "equal": "equal", "not_equal": "not_equal", "greater": "greater", "greater_equal": "greater_equal",
        "lesser": "less", "lesser_equal": "less_equal",
    }.items()},
    **{name: (_logical(name), NUMBERS) for name in ("logical_and", "logical_or", "logical_xor")},
}
# Names in the forms without broadcasting, where they differ: _plus beside broadcast_add.
_OLD_NAMES = {"add": "plus", "sub": "minus"}


def of_two(function: Binary) -> Lowering:
    return lambda b, inputs, attrs, node: function(b, inputs[0], inputs[1])


def _scalar_rule(function: Binary, takes: Types, *, reverse: bool = False) -> Lowering:
    def lower(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
        """Integers stay what they are, and the scalar becomes one, unless `is_int=False`: that gives float64.

        bool becomes int64 first.
        """
        (x,) = inputs
        number, whole = attrs.float("scalar", 1.0), attrs.bool("is_int", True)
        if not x.type.element.is_float:
            element = i64 if x.type.element.numpy.kind == "b" else x.type.element
            x = b.convert(x, element=element if whole else f64)
        if takes is MATHS and not x.type.element.is_float:
            return b.convert(_with(b, function, as_float(b, x), wrapped(number, x.type.element), reverse),
                             element=x.type.element)
        return _with(b, function, x, wrapped(number, x.type.element), reverse)

    return lower


def _with(b: Builder, function: Binary, x: Value, number: float, reverse: bool) -> Value:
    value = scalar(b, number, x)
    return function(b, value, x) if reverse else function(b, x, value)


def as_float(b: Builder, x: Value) -> Value:
    """Integers as float32, in which MXNet's functions compute."""
    return x if x.type.element.is_float else b.convert(x, element="f32")


def wrapped(number: float, element: ElementType) -> float:
    """`number` as `element`: cut off, and wrapped to its range, as a cast in C does on x86."""
    if element.is_float:
        return number
    return int(np.asarray(int(number)).astype(element.numpy))


def _register() -> None:
    """Each operation has an elementwise form, a broadcasting one, and one or two with a scalar."""
    for name, (function, takes) in {**ARITHMETIC, **COMPARISONS}.items():
        plain = _OLD_NAMES.get(name, name)
        forms = (f"broadcast_{name}", f"_{plain}")
        add_rule(of_two(function), *forms, operands=2, types=takes)
        add_rule(_scalar_rule(function, takes), f"_{plain}_scalar", operands=1, types=LOGIC)
    for name in ("sub", "div", "mod", "power"):
        function, takes = ARITHMETIC[name]
        add_rule(_scalar_rule(function, takes, reverse=True), f"_r{_OLD_NAMES.get(name, name)}_scalar", operands=1,
                 types=LOGIC)
    # For dense tensors these do what the operators do that they are named after; only for sparse ones they differ.
    add_rule(of_two(_plain("divide")), "_scatter_elemwise_div", operands=2, types=NUMBERS)
    for name in ("add", "sub"):
        function, takes = ARITHMETIC[name]
        add_rule(_scalar_rule(function, takes), f"_scatter_{_OLD_NAMES[name]}_scalar", operands=1, types=LOGIC)
    add_rule(of_two(_plain("add")), "_grad_add", operands=2, types=NUMBERS)


_register()


@rule("add_n", types=NUMBERS, ignored=["num_args"])
def add_n(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The sum of one or more tensors of one shape."""
    total = inputs[0]
    for value in inputs[1:]:
        total = b.add(total, value)
    return total


@rule("where", operands=3, types=LOGIC, typed_by=1)
def where(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The condition has the shape of the branches, or one entry for each row of axis 0."""
    condition, x, y = inputs
    if condition.shape != x.shape:
        condition = along_axis(b, condition, 0, len(x.shape))
    return b.select(truth(b, condition), x, y)
