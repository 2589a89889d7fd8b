"""Elementwise operators under MXNet's NumPy semantics: mixed types, results in bool, shapes of rank 0.

A result of rank 0 stays with MXNet (the importer sees to it): its partitioner takes that for an unknown shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ngraph_mxnet.bridges.mxnet.rules.elementwise import (
    EXACT_OF_ONE,
    MATHS_OF_ONE,
    Binary,
    Unary,
    as_float,
    of_one,
    of_two,
    wrapped,
)
from ngraph_mxnet.bridges.mxnet.rules.registry import (
    EXACT,
    FLOATS,
    LOGIC,
    MATHS,
    NUMBERS,
    Lowering,
    Types,
    add_rule,
    as_number,
    as_type,
    rule,
    truth,
)
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.layers import hypotenuse
from ngraph_mxnet.compositions.tensors import scalar
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import ElementType, boolean, f32, f64, i64

# ---- one operand ----------------------------------------------------------------------------------------


def _of_floats(test: Unary, otherwise: bool) -> Unary:
    """A test of floats; of integers the result is `otherwise`."""
    def function(b: Builder, x: Value) -> Value:
        if x.type.element.is_float:
            return test(b, x)
        return b.broadcast(b.constant(np.asarray(otherwise)), shape=x.shape)

    return function


def _equals(number: float) -> Unary:
    return lambda b, x: b.equal(x, scalar(b, number, x))


TESTS: dict[str, Unary] = {
    "isnan": _of_floats(lambda b, x: b.not_equal(x, x), False),
    "isinf": _of_floats(lambda b, x: b.equal(b.abs(x), scalar(b, math.inf, x)), False),
    # x - x is 0, or NaN when x is not finite.
    "isfinite": _of_floats(lambda b, x: b.equal(b.subtract(x, x), scalar(b, 0, x)), True),
    "isposinf": _of_floats(_equals(math.inf), False), "isneginf": _of_floats(_equals(-math.inf), False),
    "logical_not": lambda b, x: b.logical_not(truth(b, x)),
}
_NAMES = (
    "absolute arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil cos cosh degrees exp expm1 fix floor log log10 "
    "log1p log2 negative radians reciprocal rint sign sin sinh sqrt square tan tanh trunc"
).split()

for _name in _NAMES:
    _own = {"absolute": "abs"}.get(_name, _name)
    _table, _types = (MATHS_OF_ONE, MATHS) if _own in MATHS_OF_ONE else (EXACT_OF_ONE, NUMBERS)
    add_rule(of_one(_table[_own]), f"_npi_{_name}", operands=1, types=_types)
for _name, _test in TESTS.items():
    add_rule(of_one(_test), f"_npi_{_name}", operands=1, types=LOGIC)
add_rule(of_one(MATHS_OF_ONE["sigmoid"]), "_npx_sigmoid", operands=1, types=MATHS)
add_rule(of_one(EXACT_OF_ONE["relu"]), "_npx_relu", operands=1, types=NUMBERS)


@rule("_npi_bitwise_not", operands=1, types=EXACT)
def bitwise_not(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The inverted bits of integers; the opposite of bool."""
    (x,) = inputs
    return b.logical_not(x) if x.type.element is boolean else b.bitwise_not(x)


@rule("_npi_around", operands=1, types=NUMBERS)
def around(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """To `decimals` places, a tie to the even neighbour; integers to negative places stay with MXNet."""
    (x,), decimals = inputs, attrs.int("decimals", 0)
    if not x.type.element.is_float:
        if decimals < 0:
            raise UnsupportedError(f"decimals={decimals} of {x.type.element}")
        return x
    if decimals == 0:
        return b.round(x)
    factor = scalar(b, 10.0**abs(decimals), x)
    if decimals > 0:
        return b.divide(b.round(b.multiply(x, factor)), factor)
    return b.multiply(b.round(b.divide(x, factor)), factor)


@rule("_npi_nan_to_num", operands=1, types=EXACT, ignored=["copy"])
def nan_to_num(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """NaN and the infinities replaced, by default by 0 and the type's largest numbers."""
    (x,) = inputs
    nan, high, low = attrs.float("nan", 0.0), attrs.float("posinf", None), attrs.float("neginf", None)
    if not x.type.element.is_float:
        return x
    info = np.finfo(x.type.element.numpy)
    high = float(info.max) if high is None else high
    low = float(info.min) if low is None else low
    x = b.select(b.equal(x, x), x, scalar(b, nan, x))
    x = b.select(b.equal(x, scalar(b, math.inf, x)), scalar(b, high, x), x)
    return b.select(b.equal(x, scalar(b, -math.inf, x)), scalar(b, low, x), x)


# ---- two operands, of types that may differ -------------------------------------------------------------


def widest(elements: Sequence[ElementType]) -> int:
    """Which of the operands has the type of the result: a float before an integer, the wider before the narrower."""
    return max(range(len(elements)), key=lambda i: (elements[i].is_float, elements[i] is not boolean, elements[i].size))


def promoted(b: Builder, inputs: Sequence[Value]) -> list[Value]:
    """The operands in the type of the widest."""
    element = inputs[widest([x.type.element for x in inputs])].type.element
    return [as_type(b, x, element) for x in inputs]


def _mixed(function: Binary, of_bool: Binary | None = None) -> Lowering:
    def lower(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
        x, y = promoted(b, inputs)
        if x.type.element is boolean:
            if of_bool is None:
                raise UnsupportedError(f"{node.op} of bool")
            return of_bool(b, x, y)
        return function(b, x, y)

    return lower


def _maths(function: Binary) -> Binary:
    """A function that computes integers in float32 and cuts the result off."""
    return lambda b, x, y: as_number(b, function(b, as_float(b, x), as_float(b, y)), x)


def _op(name: str) -> Binary:
    return lambda b, x, y: b.apply(name, x, y)


def _copy_sign(b: Builder, x: Value, y: Value) -> Value:
    """|x| with the sign of y, which for a zero is the sign of 1 / y."""
    size = b.abs(x)
    below = b.less(y, scalar(b, 0, y))
    if y.type.element.is_float:
        zero = b.equal(y, scalar(b, 0, y))
        below = b.logical_or(below, b.logical_and(zero, b.less(b.reciprocal(y), scalar(b, 0, y))))
    return b.select(below, b.negative(size), size)


def _ldexp(b: Builder, x: Value, y: Value) -> Value:
    return b.multiply(x, b.power(scalar(b, 2, x), y))


_power = _maths(_op("power"))
_implies = lambda b, x, y: b.logical_or(x, b.logical_not(y))  # noqa: E731
MIXED: dict[str, tuple[Binary, Binary | None]] = {
    "add": (_op("add"), _op("logical_or")), "multiply": (_op("multiply"), _op("logical_and")),
    "power": (_power, _implies), "subtract": (_op("subtract"), None), "mod": (_op("mod"), None),
}
COMPARISONS = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")
# Both operands have one type; the forms with a scalar treat it as those in `arithmetic.py` do.
ALIKE: dict[str, tuple[Binary, Types]] = {
    "hypot": (hypotenuse, FLOATS), "arctan2": (_op("atan2"), FLOATS), "copysign": (_copy_sign, NUMBERS),
    "ldexp": (_maths(_ldexp), NUMBERS),
}
BITWISE = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor"}


def _bitwise(name: str) -> Binary:
    return lambda b, x, y: b.apply(BITWISE[name] if x.type.element is boolean else name, x, y)


def _true_divide(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The quotient; integers are computed in float32."""
    x, y = (b.convert(v, element=f32) if not v.type.element.is_float else v for v in inputs)
    x, y = promoted(b, (x, y))
    return b.divide(x, y)


for _name, (_function, _of_bool) in MIXED.items():
    add_rule(_mixed(_function, _of_bool), f"_npi_{_name}", operands=2, types=LOGIC, typed_by=widest)
for _name in COMPARISONS:
    add_rule(of_two(_op(_name)), f"_npi_{_name}", operands=2, types=LOGIC)
for _name, (_function, _types) in ALIKE.items():
    add_rule(of_two(_function), f"_npi_{_name}", operands=2, types=_types)
for _name in BITWISE:
    add_rule(of_two(_bitwise(_name)), f"_npi_{_name}", operands=2, types=EXACT)
add_rule(_true_divide, "_npi_true_divide", operands=2, types=LOGIC, typed_by=widest)

# ---- a tensor and a scalar ------------------------------------------------------------------------------


def _with_scalar(function: Binary, *, reverse: bool = False) -> Lowering:
    def lower(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
        """Integers stay what they are, and the scalar becomes one, unless `is_int=False`: that gives float64."""
        (x,), number, whole = inputs, attrs.float("scalar", 1.0), attrs.bool("is_int", True)
        if not x.type.element.is_float:
            element = i64 if x.type.element is boolean else x.type.element
            x = as_type(b, x, element if whole else f64)
        value = scalar(b, wrapped(number, x.type.element), x)
        return function(b, value, x) if reverse else function(b, x, value)

    return lower


def _compared_with_scalar(name: str) -> Lowering:
    def lower(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
        """bool is compared with whether the scalar is not 0, integers with a fraction in float64."""
        (x,), number, whole = inputs, attrs.float("scalar", 1.0), attrs.bool("is_int", True)
        if x.type.element is boolean:
            return b.apply(name, x, b.constant(np.asarray(number != 0)))
        if not x.type.element.is_float and not whole:
            x = as_type(b, x, f64)
        return b.apply(name, x, scalar(b, wrapped(number, x.type.element), x))

    return lower


def _divided_by_scalar(*, reverse: bool = False) -> Lowering:
    def lower(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
        """The quotient; integers are computed in float32."""
        attrs.ignore("is_int")
        x = as_float(b, inputs[0])
        value = scalar(b, attrs.float("scalar", 1.0), x)
        return b.divide(value, x) if reverse else b.divide(x, value)

    return lower


def _bitwise_with_scalar(name: str) -> Lowering:
    def lower(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
        (x,) = inputs
        attrs.ignore("is_int")
        number = attrs.float("scalar", 1.0)
        if x.type.element is boolean:
            return b.apply(BITWISE[name], x, b.constant(np.asarray(number != 0)))
        return b.apply(name, x, scalar(b, wrapped(number, x.type.element), x))

    return lower


_angle = _maths(_op("atan2"))
WITH_SCALAR: dict[str, Binary] = {
    "add": _op("add"), "subtract": _op("subtract"), "multiply": _op("multiply"), "mod": _op("mod"), "power": _power,
    "arctan2": _angle, "copysign": _copy_sign, "ldexp": _maths(_ldexp),
}
for _name, _function in WITH_SCALAR.items():
    add_rule(_with_scalar(_function), f"_npi_{_name}_scalar", operands=1, types=LOGIC)
for _name in ("subtract", "mod", "power", "arctan2", "copysign", "ldexp"):
    add_rule(_with_scalar(WITH_SCALAR[_name], reverse=True), f"_npi_r{_name}_scalar", operands=1, types=LOGIC)
for _name in COMPARISONS:
    add_rule(_compared_with_scalar(_name), f"_npi_{_name}_scalar", operands=1, types=LOGIC)
add_rule(_divided_by_scalar(), "_npi_true_divide_scalar", operands=1, types=LOGIC)
add_rule(_divided_by_scalar(reverse=True), "_npi_rtrue_divide_scalar", operands=1, types=LOGIC)
for _name in BITWISE:
    add_rule(_bitwise_with_scalar(_name), f"_npi_{_name}_scalar", operands=1, types=EXACT)

# ---- choices --------------------------------------------------------------------------------------------


@rule("_npi_where", operands=3, types=LOGIC, typed_by=1)
def where(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """All three broadcast."""
    condition, x, y = inputs
    return b.select(truth(b, condition), x, y)


def _where_scalar(*, left: bool) -> Lowering:
    def lower(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
        condition, x = inputs
        number = attrs.float("scalar", 0.0)
        attrs.ignore("is_int")
        value = b.constant(np.asarray(number != 0)) if x.type.element is boolean else \
            scalar(b, wrapped(number, x.type.element), x)
        return b.select(truth(b, condition), value, x) if left else b.select(truth(b, condition), x, value)

    return lower


add_rule(_where_scalar(left=True), "_npi_where_lscalar", operands=2, types=LOGIC, typed_by=1)
add_rule(_where_scalar(left=False), "_npi_where_rscalar", operands=2, types=LOGIC, typed_by=1)


@rule("_npi_where_scalar2", operands=1, types=EXACT, ignored=["is_int"])
def where_scalars(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """One of two numbers, in float32."""
    (condition,) = inputs
    x, y = (b.constant(np.float32(attrs.float(name, 0.0))) for name in "xy")
    return b.select(truth(b, condition), x, y)


@rule("_npi_polyval", operands=2, types=NUMBERS)
def polyval(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The polynomial with the first input's coefficients, that of the highest power first, by Horner's rule."""
    p, x = inputs
    count = p.type.size
    if p.type.rank != 1 or count > 64:
        raise UnsupportedError(f"coefficients {p.type}, expected a vector of at most 64")
    coefficients = [b.slice(p, begin=(i,), end=(i + 1,)) for i in range(count)]
    shape = (1,) * max(x.type.rank, 1)
    total = b.broadcast(b.reshape(coefficients[0], shape=shape), shape=x.shape)
    for coefficient in coefficients[1:]:
        total = b.add(b.multiply(total, x), b.reshape(coefficient, shape=shape))
    return total
