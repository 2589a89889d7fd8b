"""Elementwise operators under NumPy semantics."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from records import FLOATS, NUMBERS, Case, Draw, Operand, Record, dims, pick

EVERY = (*NUMBERS, "bool")
INTEGERS = ("int32", "int64", "int8", "uint8", "bool")
_SPECIAL = [float("nan"), float("inf"), float("-inf"), 0.0, -1.5, 2.0]


def _one(*types: str, low: float = -4.0, high: float = 4.0,
         **attrs: st.SearchStrategy[object]) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        dtype = types[0] if draw(st.booleans()) else pick(draw, *types)
        return Case([Operand(dims(draw), dtype, low, high)], {name: draw(value) for name, value in attrs.items()})

    return case


def _special(draw: Draw) -> Case:
    """Floats with NaN and infinities, and integers."""
    dtype = pick(draw, *FLOATS, "int32", "bool")
    if not dtype.startswith("float"):
        return Case([Operand(dims(draw), dtype)])
    shape = (draw(st.integers(1, 20)),)
    return Case([Operand(shape, dtype, values=[draw(st.sampled_from(_SPECIAL)) for _ in range(shape[0])])])


def _replaced(draw: Draw) -> Case:
    case = _special(draw)
    attrs = {name: pick(draw, 7.0, -3.0) for name in ("nan", "posinf", "neginf") if draw(st.booleans())}
    return Case(case.operands, attrs)


def _shapes(draw: Draw) -> list[tuple[int, ...]]:
    """Two that broadcast, of ranks that may differ."""
    full = dims(draw)
    kept = full[draw(st.integers(0, len(full) - 1)):]
    return [full, tuple(1 if draw(st.integers(0, 3)) == 0 else size for size in kept)][:: pick(draw, 1, -1)]


def _mixed(*, integers: bool = True, low: float = -4.0, high: float = 4.0,
           divisor: bool = False) -> Callable[[Draw], Case]:
    """Any two types, if one is a float; two types of integers only where MXNet mixes these."""

    def case(draw: Draw) -> Case:
        first = pick(draw, *FLOATS, "int32", "int64", "int8", *(("bool",) if integers else ()))
        second = first
        if draw(st.booleans()):
            floats, whole = FLOATS, ("int32", "int64", "int8", "bool")
            if first in floats:
                second = pick(draw, *floats, *whole) if not divisor else pick(draw, first, *whole)
            else:
                second = pick(draw, *floats, *(whole if integers and not divisor else (first,)))
        one, two = _shapes(draw)
        return Case([Operand(one, first, low, high), Operand(two, second, 1.0 if divisor else low, high)])

    return case


def _alike(*types: str, low: float = -4.0, high: float = 4.0) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        one, two = _shapes(draw)
        dtype = pick(draw, *types)
        return Case([Operand(one, dtype, low, high), Operand(two, dtype, low, high)])

    return case


def _scalar(*numbers: float, types: tuple[str, ...] = EVERY, low: float = -4.0) -> Callable[[Draw], Case]:
    """`is_int` as MXNet's frontend sets it."""

    def case(draw: Draw) -> Case:
        number = pick(draw, *numbers)
        attrs = {"scalar": number, "is_int": isinstance(number, int)}
        return Case([Operand(dims(draw), pick(draw, *types), low, 4)], attrs)

    return case


def _where(*branches: int) -> Callable[[Draw], Case]:
    """A condition of any type and as many tensors; all broadcast."""

    def case(draw: Draw) -> Case:
        one, two = _shapes(draw)
        dtype = pick(draw, *EVERY) if branches[0] == 1 else pick(draw, *NUMBERS)
        condition = Operand(one, pick(draw, "bool", "float32", "int32"), -1, 1)
        attrs = {"scalar": pick(draw, 5, -2)} if branches[0] == 1 else {}
        return Case([condition, *(Operand(two, dtype) for _ in range(branches[0]))], attrs)

    return case


def _two_scalars(draw: Draw) -> Case:
    condition = Operand(dims(draw), pick(draw, "bool", "int32", "float32"), -1, 1)
    return Case([condition], {"x": 1.5, "y": pick(draw, 2, -3)})


def _polynomial(draw: Draw) -> Case:
    dtype = pick(draw, "float32", "float64", "int32")
    return Case([Operand((draw(st.integers(1, 5)),), dtype), Operand(dims(draw), dtype)])


_REALS = "cbrt cos cosh exp expm1 sin sinh tanh arcsinh arctan radians degrees"
_POSITIVE = "log log10 log1p log2 reciprocal sqrt"
_WHOLE = "absolute floor negative square trunc ceil fix rint sign"
_COMPARISONS = "equal not_equal greater greater_equal less less_equal"

RECORDS = [
    Record(row.op, row.case, numpy=True) for row in [
        *(Record(f"_npi_{op}", _one(*NUMBERS, low=-2, high=2)) for op in _REALS.split()),
        *(Record(f"_npi_{op}", _one(*NUMBERS, low=1.0)) for op in _POSITIVE.split()),
        *(Record(f"_npi_{op}", _one(*FLOATS, low=-0.98, high=0.98)) for op in ["arccos", "arcsin", "arctanh", "tan"]),
        Record("_npi_arccosh", _one(*FLOATS, low=1.05, high=5.0)),
        *(Record(f"_npi_{op}", _one(*NUMBERS)) for op in _WHOLE.split()),
        Record("_npi_logical_not", _one(*EVERY)),
        *(Record(f"_npi_{op}", _special) for op in ["isnan", "isinf", "isfinite", "isposinf", "isneginf"]),
        Record("_npi_nan_to_num", _replaced),
        Record("_npi_bitwise_not", _one(*INTEGERS)),
        Record("_npi_around", _one("float32", "float64", decimals=st.integers(-1, 2))),
        Record("_npx_relu", _one(*NUMBERS)),
        Record("_npx_sigmoid", _one(*FLOATS)),
        *(Record(f"_npi_{op}", _mixed()) for op in ["add", "multiply"]),
        Record("_npi_power", _mixed(low=1, high=3)),
        Record("_npi_subtract", _mixed(integers=False)),
        Record("_npi_mod", _mixed(integers=False, divisor=True)),
        Record("_npi_true_divide", _mixed(divisor=True)),
        *(Record(f"_npi_{op}", _alike(*EVERY)) for op in _COMPARISONS.split()),
        *(Record(f"_npi_{op}", _alike(*FLOATS)) for op in ["hypot", "arctan2"]),
        Record("_npi_copysign", _alike(*NUMBERS)),
        Record("_npi_ldexp", _alike(*FLOATS)),
        *(Record(f"_npi_{op}", _alike(*INTEGERS[:-1])) for op in ["bitwise_and", "bitwise_or", "bitwise_xor"]),
        *(Record(f"_npi_{op}_scalar", _scalar(2, -3, 2.5)) for op in ["add", "subtract", "rsubtract", "multiply"]),
        *(Record(f"_npi_{op}_scalar", _scalar(2, -3, 2.5, types=NUMBERS)) for op in ["copysign", "rcopysign"]),
        *(Record(f"_npi_{op}_scalar", _scalar(2, 2.5, types=FLOATS))
          for op in ["arctan2", "rarctan2", "ldexp", "rldexp"]),
        Record("_npi_mod_scalar", _scalar(2, -3, 2.5)),
        Record("_npi_rmod_scalar", _scalar(2, 5, 2.5, types=NUMBERS, low=1)),
        Record("_npi_power_scalar", _scalar(2, 3, types=FLOATS, low=1)),
        Record("_npi_rpower_scalar", _scalar(2, 3, types=FLOATS, low=0)),
        Record("_npi_true_divide_scalar", _scalar(2, -3, 2.5)),
        Record("_npi_rtrue_divide_scalar", _scalar(2, -3, 2.5, types=NUMBERS, low=1)),
        *(Record(f"_npi_{op}_scalar", _scalar(0, 2, -3, 1.5)) for op in _COMPARISONS.split()),
        *(Record(f"_npi_{op}_scalar", _scalar(0, 3, 6, types=INTEGERS)) for op in
          ["bitwise_and", "bitwise_or", "bitwise_xor"]),
        Record("_npi_where", _where(2)),
        *(Record(f"_npi_where_{side}scalar", _where(1)) for side in "lr"),
        Record("_npi_where_scalar2", _two_scalars),
        Record("_npi_polyval", _polynomial),
    ]
]
