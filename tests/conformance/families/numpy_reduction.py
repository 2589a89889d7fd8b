"""Reductions under NumPy semantics. At least one axis stays: rank 0 is MXNet's."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from records import FLOATS, NUMBERS, Case, Draw, Left, Operand, Record, any_axis, dims, maybe, pick, some_axes

EVERY = (*NUMBERS, "bool")
# What MXNet adds up bool in.
_OF_BOOL = ("float32", "float64", "int64", "int32")


def _over_axes(*types: str, dtypes: tuple[str, ...] = (), low: float = -2, high: float = 2,
               **others: object) -> Callable[[Draw], Case]:
    """`dtypes`: what `dtype` may say."""

    def case(draw: Draw) -> Case:
        shape, dtype = dims(draw, 2), pick(draw, *types)
        attrs = {"axis": some_axes(draw, len(shape), least=1)[: len(shape) - 1], "keepdims": draw(st.booleans()),
                 **maybe(draw, **others)}
        allowed = [name for name in dtypes if dtype != "bool" or name in _OF_BOOL]
        if allowed and draw(st.booleans()):
            attrs["dtype"] = pick(draw, *allowed)
        if attrs["keepdims"] and draw(st.booleans()):
            del attrs["axis"]
        return Case([Operand(shape, dtype, low, high)], attrs)

    return case


def _along(*types: str, keepdims: bool = True, **others: st.SearchStrategy[object]) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        shape = dims(draw, 2)
        attrs = {"axis": any_axis(draw, len(shape)), **maybe(draw, **others)}
        if keepdims:
            attrs["keepdims"] = draw(st.booleans())
        return Case([Operand(shape, pick(draw, *types))], attrs)

    return case


def _norm(draw: Draw) -> Case:
    """As NumPy's functions write it: over one axis of an order, or Frobenius's over two or all."""
    shape, kind = dims(draw, 2), pick(draw, -1, 1, -2)
    keep = True if kind == -2 else draw(st.booleans())
    attrs = {"flag": kind, "ord": pick(draw, 1, 2, 3, -1) if kind == -1 else 2, "keepdims": keep}
    if kind == -1:
        attrs["axis"] = (any_axis(draw, len(shape)),)
    elif kind == 1:
        attrs["axis"] = some_axes(draw, len(shape), least=1)[: min(2, len(shape) - 1)]
    return Case([Operand(shape, pick(draw, "float32", "float64"), 0.5, 2.0)], attrs)


def _running(draw: Draw) -> Case:
    """MXNet fails on a negative axis, and rounds each sum to float16 where that is the result's type."""
    shape = dims(draw)
    exact = [dtype for dtype in NUMBERS[:-1] if dtype != "float16"]
    attrs = maybe(draw, axis=st.integers(0, len(shape) - 1), dtype=st.sampled_from(exact))
    return Case([Operand(shape, pick(draw, *(dtype for dtype in EVERY if dtype != "float16")))], attrs)


def _average(draw: Draw) -> Case:
    shape = dims(draw, 2)
    axis = any_axis(draw, len(shape))
    dtype = pick(draw, "float32", "float16")
    if draw(st.booleans()):
        return Case([Operand(shape, dtype)], {"axis": axis, "weighted": False})
    weights = pick(draw, shape, (shape[axis],))
    return Case([Operand(shape, dtype), Operand(weights, dtype, 0.5, 2.0)], {"axis": axis})


RECORDS = [
    Record(row.op, row.case, numpy=True, variant=row.variant, outputs=row.outputs) for row in [
        Record("_np_sum", _over_axes(*EVERY, dtypes=NUMBERS[:-1])),
        Record("_np_prod", _over_axes(*EVERY, dtypes=FLOATS, low=0.8, high=1.2)),
        *(Record(f"_np_{op}", _over_axes(*NUMBERS, low=-9, high=9)) for op in ["max", "min"]),
        *(Record(f"_np_{op}", _over_axes(*EVERY, low=-1, high=1)) for op in ["any", "all"]),
        Record("_npi_mean", _over_axes(*EVERY, dtypes=FLOATS)),
        *(Record(f"_npi_{op}", _over_axes(*FLOATS, dtypes=FLOATS, ddof=st.sampled_from([0, 1])))
          for op in ["var", "std"]),
        *(Record(f"_npi_{op}", _along(*NUMBERS)) for op in ["argmax", "argmin"]),
        Record("_np_cumsum", _running, variant="types"),
        Record("_npi_norm", _norm, outputs=(0,)),
        Record("_npi_average", _average),
    ]
]
LEFT = [Left("_np_sum", Case([Operand((2, 3))]), "rank 0", numpy=True)]
