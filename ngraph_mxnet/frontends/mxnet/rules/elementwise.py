"""Arithmetic and other elementwise operators; under MXNet's NumPy semantics with mixed types, bools, and rank 0.

A result of rank 0 stays with MXNet (the importer sees to it): its partitioner takes that for an unknown shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import numpy as np

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import Attrs
from ngraph_mxnet.frontends.mxnet.rules.registry import (
    EXACT,
    FLOATS,
    LOGIC,
    MATHS,
    MOVED,
    NUMBERS,
    Call,
    Lowering,
    Types,
    add_rule,
    rule,
)
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.sizes import are_same_shape
from ngraph_mxnet.ir.types import ElementType, boolean, f16, f32, f64, i64
from ngraph_mxnet.ops import compositions as composed
from ngraph_mxnet.ops.compositions import along_axis, converted, full, hypotenuse, mish, scalar, truth

Unary = Callable[[Builder, Value], Value]

# ---- one operand ----------------------------------------------------------------------------------------


def _round_half_down(b: Builder, x: Value) -> Value:
    """MXNet's rint: a tie goes to the lower neighbour. NaN compares false, and its ceiling is NaN."""
    low, high = b.floor(x), b.ceiling(x)
    return b.select(x - low <= high - x, low, high)


def _round_half_away(b: Builder, x: Value) -> Value:
    """MXNet's round: a tie goes away from zero. Adding 0.5 and truncating would be wrong for 0.49999997."""
    whole = b.trunc(x)
    far = b.abs(x - whole) >= 0.5
    return b.select(far, whole + b.sign(x), whole)


def _whole(function: Unary) -> Unary:
    """Integers are whole already."""
    return lambda b, x: function(b, x) if x.element.is_float else x


def _sign(b: Builder, x: Value) -> Value:
    """MXNet gives 0 for NaN, the IR NaN."""
    if not x.element.is_float:
        return b.sign(x)
    return b.select(b.equal(x, x), b.sign(x), 0)


def _selu(b: Builder, x: Value) -> Value:
    return b.elu(x, alpha=1.6732632423543772) * 1.0507009873554805


def _times(factor: float) -> Unary:
    return lambda b, x: x * factor


def _op(name: str) -> Callable[..., Value]:
    """Of one operand or of two."""
    return lambda b, *operands: b.apply(name, *operands)


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
    "logical_not": lambda b, x: converted(b, b.equal(x, 0), x),
}
# These differ from a copy in their gradients only.
COPIES: dict[str, Unary] = dict.fromkeys(("identity", "BlockGrad", "_contrib_gradientmultiplier"), lambda b, x: x)


def add_rows(rows: Mapping[str, Callable[..., Value]], types: Types, operands: int = 1, prefix: str = "",
             ignored: Sequence[str] = ()) -> None:
    """Register functions of operands alone, which read no attribute."""
    for name, function in rows.items():
        add_rule(_of_operands(function), prefix + name, operands=operands, types=types, ignored=ignored)


def _of_operands(function: Callable[..., Value]) -> Lowering:
    return lambda b, attrs, *operands: function(b, *operands)


add_rows(MATHS_OF_ONE, MATHS)
add_rows(EXACT_OF_ONE, NUMBERS)
add_rows(COPIES, MOVED, ignored=["scalar", "is_int"])
# MXNet reads no dtype here, though models give one.
add_rows({"zeros_like": lambda b, x: full(b, 0, x), "ones_like": lambda b, x: full(b, 1, x)}, MOVED, ignored=["dtype"])


ACTIVATIONS: dict[str, Unary] = {
    "relu": _op("relu"), "sigmoid": _op("sigmoid"), "tanh": _op("tanh"), "softrelu": _op("softplus"),
    "softsign": _op("softsign"), "log_sigmoid": lambda b, x: -b.softplus(-x),
    "mish": mish,
}


@rule("Activation", operands=1, types=FLOATS)
def activation(b: Builder, attrs: Attrs, x: Value) -> Value:
    """All `act_type`s."""
    kind = attrs.choice("act_type", None, ACTIVATIONS)
    if kind is None:
        raise UnsupportedError("act_type is missing")
    return ACTIVATIONS[kind](b, x)


@rule("LeakyReLU", operands=(1, 2), parameters=[1], types=FLOATS)
def leaky_relu(b: Builder, attrs: Attrs, x: Value, gamma: Value | None = None) -> Value:
    """leaky, elu, selu, gelu (by erf), prelu (gamma of one element, or one for each channel of axis 1), and
    rrelu, whose slope at inference is the mean of its bounds."""
    kind = attrs.choice("act_type", "leaky", ("leaky", "elu", "selu", "gelu", "prelu", "rrelu"))
    slope = attrs.float("slope", 0.25)
    lower, upper = attrs.float("lower_bound", 0.125), attrs.float("upper_bound", 0.334)
    if gamma is not None and kind == "prelu":
        return _prelu(b, x, gamma)
    by_kind: dict[str, Unary] = {
        # 0 times an infinity would be NaN.
        "leaky": lambda b, x: b.leaky_relu(x, slope=slope) if slope else b.relu(x),
        "elu": lambda b, x: b.elu(x, alpha=slope), "selu": _selu, "gelu": _op("gelu"),
        "rrelu": lambda b, x: b.leaky_relu(x, slope=(lower + upper) / 2),
    }
    if kind not in by_kind:
        raise UnsupportedError(f"act_type={kind} without gamma")
    return by_kind[kind](b, x)


def _prelu(b: Builder, x: Value, gamma: Value) -> Value:
    if gamma.rank == 1 and x.rank > 1:
        gamma = along_axis(b, gamma, 1, x.rank)
    out = b.prelu(x, gamma)
    if not are_same_shape(out.shape, x.shape):  # MXNet's result is like x
        raise UnsupportedError(f"gamma of {gamma.type} for data of {x.type}")
    return out


@rule("hard_sigmoid", operands=1, types=FLOATS)
def hard_sigmoid(b: Builder, attrs: Attrs, x: Value) -> Value:
    """clamp(alpha x + beta, 0, 1)."""
    return composed.hard_sigmoid(b, x, attrs.float("alpha", 0.2), attrs.float("beta", 0.5))


@rule("clip", operands=1, types=NUMBERS)
def clip(b: Builder, attrs: Attrs, x: Value) -> Value:
    """Bounds in order; crossed bounds are left to MXNet. For integers the bounds are cut off to whole numbers."""
    bounds = [attrs.float("a_min", None), attrs.float("a_max", None)]
    if not x.element.is_float:
        bounds = [None if bound is None or math.isinf(bound) else math.trunc(bound) for bound in bounds]
    lower, upper = bounds
    return b.clamp(x, lower=-math.inf if lower is None else lower, upper=math.inf if upper is None else upper)


@rule("smooth_l1", operands=1, types=FLOATS, ignored=["is_int"])
def smooth_l1(b: Builder, attrs: Attrs, x: Value) -> Value:
    """(s x)^2 / 2 where |x| < 1/s^2, else |x| - 1/(2 s^2)."""
    sigma2 = attrs.float("scalar", 1.0) ** 2
    bound = 1 / sigma2 if sigma2 else math.inf
    size = b.abs(x)
    # No more than is chosen: the square of what is not would be infinite, and 0 times that go back.
    inner = b.square(b.minimum(size, bound)) * (0.5 * sigma2)
    outer = size - 0.5 * bound
    return b.select(size <= bound, inner, outer)


@rule("_contrib_quadratic", operands=1, types=NUMBERS)
def quadratic(b: Builder, attrs: Attrs, x: Value) -> Value:
    """(a x + b) x + c; for integers the coefficients are cut off to whole numbers."""
    first, second, third = (scalar(b, attrs.float(name, 0.0), x) for name in "abc")
    return (first * x + second) * x + third


@rule("IdentityAttachKLSparseReg", operands=2, types=FLOATS,
      ignored=["sparseness_target", "penalty", "momentum"])
def identity_attach(b: Builder, attrs: Attrs, x: Value, *_: Value) -> Value:
    """The first input: what is attached is a penalty on gradients, with a moving average of its own."""
    return x


@rule("amp_multicast", types=EXACT, ignored=["num_outputs"])
def multicast(b: Builder, attrs: Attrs, *inputs: Value) -> Sequence[Value]:
    """float16 and float32 inputs in the widest of their types, or the narrowest; others as they are."""
    floats = [value.element for value in inputs if value.element in (f16, f32)]
    if not floats:
        return inputs
    choose = min if attrs.bool("cast_narrow", False) else max
    element = choose(floats, key=lambda found: found.size)
    return [converted(b, value, element) if value.element in floats else value for value in inputs]


@rule("amp_cast", operands=1, types=EXACT)
def amp_cast(b: Builder, attrs: Attrs, x: Value) -> Value:
    """float16 and float32 as any element type; others stay as they are."""
    element = attrs.element("dtype")
    return converted(b, x, element) if x.element in (f16, f32) else x


@rule("Cast", operands=1, types=EXACT)
def cast(b: Builder, attrs: Attrs, x: Value) -> Value:
    """Between any two element types: floats are cut off to integers, and rounded to shorter floats."""
    return converted(b, x, attrs.element("dtype"))


Binary = Callable[[Builder, Value, Value], Value]


def _compared(name: str) -> Binary:
    return lambda b, x, y: converted(b, b.apply(name, x, y), x)


def _logical(name: str) -> Binary:
    return lambda b, x, y: converted(b, b.apply(name, truth(b, x), truth(b, y)), x)


# Operations by their names in MXNet's operators: what computes each, and the element types that it takes.
ARITHMETIC: dict[str, tuple[Binary, Types]] = {
    "add": (_op("add"), NUMBERS), "sub": (_op("subtract"), NUMBERS), "mul": (_op("multiply"), NUMBERS),
    "div": (_op("divide"), NUMBERS), "mod": (_op("mod"), NUMBERS), "power": (_op("power"), MATHS),
    "maximum": (_op("maximum"), NUMBERS), "minimum": (_op("minimum"), NUMBERS), "hypot": (hypotenuse, MATHS),
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


def _with_scalar(function: Binary, takes: Types = NUMBERS, *, reverse: bool = False) -> Lowering:
    if takes is MATHS:
        function = _maths(function)

    def lower(b: Builder, attrs: Attrs, x: Value) -> Value:
        """Integers stay what they are, and the scalar becomes one, unless `is_int=False`: that gives float64. bool
        becomes int64 first."""
        given, whole = attrs.float("scalar", 1.0), attrs.bool("is_int", True)
        if not x.element.is_float:
            x = converted(b, x, f64 if not whole else i64 if x.element is boolean else x.element)
        number = scalar(b, wrapped(given, x.element), x)
        return function(b, number, x) if reverse else function(b, x, number)

    return lower


def _maths(function: Binary) -> Binary:
    """A function that computes integers in float32 and cuts the result off."""
    return lambda b, x, y: converted(b, function(b, as_float(b, x), as_float(b, y)), x)


def as_float(b: Builder, x: Value) -> Value:
    """Integers as float32, in which MXNet's functions compute."""
    return x if x.element.is_float else b.convert(x, element=f32)


def wrapped(number: float, element: ElementType) -> float:
    """`number` as `element`: cut off, and wrapped to its range, as a cast in C does on x86."""
    if element.is_float:
        return number
    return int(np.asarray(int(number)).astype(element.numpy))


def _register() -> None:
    """Each operation has an elementwise form, a broadcasting one, and one or two with a scalar."""
    for name, (function, takes) in {**ARITHMETIC, **COMPARISONS}.items():
        plain = _OLD_NAMES.get(name, name)
        add_rows({f"broadcast_{name}": function, f"_{plain}": function}, takes, 2)
        add_rule(_with_scalar(function, takes), f"_{plain}_scalar", operands=1, types=LOGIC)
    for name in ("sub", "div", "mod", "power"):
        function, takes = ARITHMETIC[name]
        add_rule(_with_scalar(function, takes, reverse=True), f"_r{_OLD_NAMES.get(name, name)}_scalar", operands=1,
                 types=LOGIC)
    # For dense tensors these do what the operators do that they are named after; only for sparse ones they differ.
    add_rows({"_scatter_elemwise_div": _op("divide"), "_grad_add": _op("add")}, NUMBERS, 2)
    for name in ("add", "sub"):
        function, takes = ARITHMETIC[name]
        add_rule(_with_scalar(function, takes), f"_scatter_{_OLD_NAMES[name]}_scalar", operands=1, types=LOGIC)


_register()


@rule("add_n", types=NUMBERS, ignored=["num_args"])
def add_n(b: Builder, attrs: Attrs, *inputs: Value) -> Value:
    """The sum of one or more tensors of one shape."""
    return reduce(Value.__add__, inputs)


@rule("where", operands=3, types=LOGIC, typed_by=1)
def where(b: Builder, attrs: Attrs, condition: Value, x: Value, y: Value) -> Value:
    """The condition has the shape of the branches, or one entry for each row of axis 0."""
    if condition.shape != x.shape:
        condition = along_axis(b, condition, 0, x.rank)
    return b.select(truth(b, condition), x, y)


# ---- one operand ----------------------------------------------------------------------------------------


def _of_floats(test: Unary, otherwise: bool) -> Unary:
    """A test of floats; of integers the result is `otherwise`."""
    def function(b: Builder, x: Value) -> Value:
        if x.element.is_float:
            return test(b, x)
        return b.broadcast(b.constant(np.asarray(otherwise)), shape=x.shape)

    return function


def _equals(number: float) -> Unary:
    return lambda b, x: b.equal(x, number)


TESTS: dict[str, Unary] = {
    "isnan": _of_floats(lambda b, x: b.not_equal(x, x), False),
    "isinf": _of_floats(lambda b, x: b.equal(b.abs(x), math.inf), False),
    # x - x is 0, or NaN when x is not finite.
    "isfinite": _of_floats(lambda b, x: b.equal(x - x, 0), True),
    "isposinf": _of_floats(_equals(math.inf), False), "isneginf": _of_floats(_equals(-math.inf), False),
    "logical_not": lambda b, x: ~truth(b, x),
}
_NAMES = (
    "arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil cos cosh degrees exp expm1 fix floor log log10 "
    "log1p log2 negative radians reciprocal rint sign sin sinh sqrt square tan tanh trunc"
).split()

for _table, _types in ((MATHS_OF_ONE, MATHS), (EXACT_OF_ONE, NUMBERS)):
    add_rows({name: _table[name] for name in _NAMES if name in _table}, _types, prefix="_npi_")
    add_rows({name: _table[name] for name in ("sigmoid", "relu") if name in _table}, _types, prefix="_npx_")
add_rows({"absolute": EXACT_OF_ONE["abs"]}, NUMBERS, prefix="_npi_")
add_rows(TESTS, LOGIC, prefix="_npi_")


@rule("_npi_bitwise_not", operands=1, types=EXACT)
def bitwise_not(b: Builder, attrs: Attrs, x: Value) -> Value:
    """The inverted bits of integers; the opposite of bool."""
    return ~x if x.element is boolean else b.bitwise_not(x)


@rule("_npi_around", operands=1, types=NUMBERS)
def around(b: Builder, attrs: Attrs, x: Value) -> Value:
    """To `decimals` places, a tie to the even neighbour; integers to negative places stay with MXNet."""
    decimals = attrs.int("decimals", 0)
    if not x.element.is_float:
        if decimals < 0:
            raise UnsupportedError(f"decimals={decimals} of {x.element}")
        return x
    factor = 10.0 ** abs(decimals)
    if decimals > 0:
        return b.round(x * factor) / factor
    return b.round(x / factor) * factor if decimals else b.round(x)


@rule("_npi_nan_to_num", operands=1, types=EXACT, ignored=["copy"])
def nan_to_num(b: Builder, attrs: Attrs, x: Value) -> Value:
    """NaN and the infinities replaced, by default by 0 and the type's largest numbers."""
    nan, high, low = attrs.float("nan", 0.0), attrs.float("posinf", None), attrs.float("neginf", None)
    if not x.element.is_float:
        return x
    info = np.finfo(x.element.numpy)
    x = b.select(b.equal(x, x), x, nan)
    x = b.select(b.equal(x, math.inf), float(info.max) if high is None else high, x)
    return b.select(b.equal(x, -math.inf), float(info.min) if low is None else low, x)


# ---- two operands, of types that may differ -------------------------------------------------------------


def widest(elements: Sequence[ElementType]) -> int:
    """Which of the operands has the type of the result: a float before an integer, the wider before the narrower."""
    return max(range(len(elements)), key=lambda i: (elements[i].is_float, elements[i] is not boolean, elements[i].size))


def promoted(b: Builder, inputs: Sequence[Value]) -> list[Value]:
    """The operands in the type of the widest."""
    element = inputs[widest([x.element for x in inputs])].element
    return [converted(b, x, element) for x in inputs]


def _mixed(function: Binary, of_bool: Binary | None = None) -> Lowering:
    def lower(b: Builder, attrs: Call, *inputs: Value) -> Value:
        x, y = promoted(b, inputs)
        if x.element is boolean:
            if of_bool is None:
                raise UnsupportedError(f"{attrs.node.op} of bool")
            return of_bool(b, x, y)
        return function(b, x, y)

    return lower


def _copy_sign(b: Builder, x: Value, y: Value) -> Value:
    """|x| with the sign of y, which for a zero is the sign of 1 / y."""
    size = b.abs(x)
    below = y < 0
    if y.element.is_float:
        zero = b.equal(y, 0)
        below = below | zero & (b.reciprocal(y) < 0)
    return b.select(below, -size, size)


def _ldexp(b: Builder, x: Value, y: Value) -> Value:
    return x * 2 ** y


_implies = lambda b, x, y: x | ~y  # noqa: E731
MIXED: dict[str, tuple[Binary, Binary | None]] = {
    "add": (_op("add"), _op("logical_or")), "power": (_maths(_op("power")), _implies),
    "multiply": (_op("multiply"), _op("logical_and")),
    "subtract": (_op("subtract"), None), "mod": (_op("mod"), None),
}
NUMPY_COMPARISONS = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")
# Both operands have one type; the forms with a scalar treat it as `_with_scalar` does.
ALIKE: dict[str, tuple[Binary, Types]] = {
    "hypot": (hypotenuse, FLOATS), "arctan2": (_op("atan2"), FLOATS), "copysign": (_copy_sign, NUMBERS),
    "ldexp": (_maths(_ldexp), NUMBERS),
}
BITWISE = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor"}


def _bitwise(name: str) -> Binary:
    return lambda b, x, y: b.apply(BITWISE[name] if x.element is boolean else name, x, y)


def _true_divide(b: Builder, attrs: Attrs, *inputs: Value) -> Value:
    """The quotient; integers are computed in float32."""
    x, y = promoted(b, [as_float(b, operand) for operand in inputs])
    return x / y


for _name, (_binary, _of_bool) in MIXED.items():
    add_rule(_mixed(_binary, _of_bool), f"_npi_{_name}", operands=2, types=LOGIC, typed_by=widest)
add_rows({name: _op(name) for name in NUMPY_COMPARISONS}, LOGIC, 2, "_npi_")
for _name, (_binary, _types) in ALIKE.items():
    add_rows({_name: _binary}, _types, 2, "_npi_")
add_rows({name: _bitwise(name) for name in BITWISE}, EXACT, 2, "_npi_")
add_rule(_true_divide, "_npi_true_divide", operands=2, types=LOGIC, typed_by=widest)

# ---- a tensor and a scalar ------------------------------------------------------------------------------


def _same_kind(b: Builder, number: float, x: Value) -> Value:
    """The number as `x`'s type; beside a bool, whether it is not 0."""
    if x.element is boolean:
        return b.constant(np.asarray(number != 0))
    return scalar(b, wrapped(number, x.element), x)


def _compared_with_scalar(name: str) -> Lowering:
    def lower(b: Builder, attrs: Attrs, x: Value) -> Value:
        """bool is compared with whether the scalar is not 0, integers with a fraction in float64."""
        number, whole = attrs.float("scalar", 1.0), attrs.bool("is_int", True)
        if not x.element.is_float and x.element is not boolean and not whole:
            x = converted(b, x, f64)
        return b.apply(name, x, _same_kind(b, number, x))

    return lower


def _divided_by_scalar(*, reverse: bool = False) -> Lowering:
    def lower(b: Builder, attrs: Attrs, x: Value) -> Value:
        """The quotient; integers are computed in float32."""
        attrs.ignore("is_int")
        x, number = as_float(b, x), attrs.float("scalar", 1.0)
        return number / x if reverse else x / number

    return lower


def _bitwise_with_scalar(name: str) -> Lowering:
    def lower(b: Builder, attrs: Attrs, x: Value) -> Value:
        attrs.ignore("is_int")
        return _bitwise(name)(b, x, _same_kind(b, attrs.float("scalar", 1.0), x))

    return lower


WITH_SCALAR: dict[str, Binary] = {
    "add": _op("add"), "subtract": _op("subtract"), "multiply": _op("multiply"),
    "mod": _op("mod"), "power": _maths(_op("power")), "arctan2": _maths(_op("atan2")), "copysign": _copy_sign,
    "ldexp": _maths(_ldexp),
}
for _name, _binary in WITH_SCALAR.items():
    add_rule(_with_scalar(_binary), f"_npi_{_name}_scalar", operands=1, types=LOGIC)
for _name in ("subtract", "mod", "power", "arctan2", "copysign", "ldexp"):
    add_rule(_with_scalar(WITH_SCALAR[_name], reverse=True), f"_npi_r{_name}_scalar", operands=1, types=LOGIC)
for _name in NUMPY_COMPARISONS:
    add_rule(_compared_with_scalar(_name), f"_npi_{_name}_scalar", operands=1, types=LOGIC)
add_rule(_divided_by_scalar(), "_npi_true_divide_scalar", operands=1, types=LOGIC)
add_rule(_divided_by_scalar(reverse=True), "_npi_rtrue_divide_scalar", operands=1, types=LOGIC)
for _name in BITWISE:
    add_rule(_bitwise_with_scalar(_name), f"_npi_{_name}_scalar", operands=1, types=EXACT)

# ---- choices --------------------------------------------------------------------------------------------


@rule("_npi_where", operands=3, types=LOGIC, typed_by=1)
def numpy_where(b: Builder, attrs: Attrs, condition: Value, x: Value, y: Value) -> Value:
    """All three broadcast."""
    return b.select(truth(b, condition), x, y)


def _where_scalar(*, left: bool) -> Lowering:
    def lower(b: Builder, attrs: Attrs, condition: Value, x: Value) -> Value:
        attrs.ignore("is_int")
        value = _same_kind(b, attrs.float("scalar", 0.0), x)
        return b.select(truth(b, condition), value, x) if left else b.select(truth(b, condition), x, value)

    return lower


add_rule(_where_scalar(left=True), "_npi_where_lscalar", operands=2, types=LOGIC, typed_by=1)
add_rule(_where_scalar(left=False), "_npi_where_rscalar", operands=2, types=LOGIC, typed_by=1)


@rule("_npi_where_scalar2", operands=1, types=EXACT, ignored=["is_int"])
def where_scalars(b: Builder, attrs: Attrs, condition: Value) -> Value:
    """One of two numbers, in float32."""
    x, y = (b.constant(np.float32(attrs.float(name, 0.0))) for name in "xy")
    return b.select(truth(b, condition), x, y)


@rule("_npi_polyval", operands=2, types=NUMBERS)
def polyval(b: Builder, attrs: Attrs, p: Value, x: Value) -> Value:
    """The polynomial with the first input's coefficients, that of the highest power first, by Horner's rule."""
    count = p.size
    if p.rank != 1 or count > 64:
        raise UnsupportedError(f"coefficients {p.type}, expected a vector of at most 64")
    coefficients = [b.slice(p, begin=(i,), end=(i + 1,)) for i in range(count)]
    shape = (1,) * max(x.rank, 1)
    total = b.broadcast(b.reshape(coefficients[0], shape=shape), shape=x.shape)
    for coefficient in coefficients[1:]:
        total = total * x + b.reshape(coefficient, shape=shape)
    return total
