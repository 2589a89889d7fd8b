"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from hypothesis import strategies as st
from records import FLOATS, NUMBERS, Case, Draw, Left, Operand, Record, any_axis, dims, maybe, pick, some_axes


def _over_axes(*types: str, low: float = -2, high: float = 2, nan: bool = False) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        shape = dims(draw)
        attrs = maybe(draw, keepdims=st.booleans(), exclude=st.booleans())
        if draw(st.booleans()):
            attrs["axis"] = some_axes(draw, len(shape))
        dtype = types[0] if draw(st.booleans()) else pick(draw, *types)
        if nan and dtype.startswith("float"):
            # MXNet multiplies float16 in float16: the product of many halves is a rounded denormal there.
            number = st.sampled_from([1.25, -0.75, float("nan")] if dtype != "float16" else [1.0, -1.0, float("nan")])
            values = draw(st.lists(number, min_size=prod(shape), max_size=prod(shape)))
            return Case([Operand(shape, dtype, values=values)], attrs)
        return Case([Operand(shape, dtype, low, high)], attrs)

    return case


def _norm(draw: Draw) -> Case:
    shape = dims(draw, 1, 3)
    attrs = maybe(draw, ord=st.sampled_from([1, 2]), keepdims=st.booleans())
    if draw(st.booleans()):
        attrs["axis"] = some_axes(draw, len(shape), least=1)[:2]
    dtype = pick(draw, *FLOATS)
    if dtype == "float32":
        attrs |= maybe(draw, out_dtype=dtype)
    return Case([Operand(shape, dtype)], attrs)


def _moments(draw: Draw) -> Case:
    shape = dims(draw)
    attrs = {"axes": some_axes(draw, len(shape), least=1), **maybe(draw, keepdims=st.booleans())}
    return Case([Operand(shape, pick(draw, *FLOATS))], attrs)


def _finite(draw: Draw) -> Case:
    values = [draw(st.sampled_from([0.0, 1.0, 2.0, float("inf"), float("nan")])) for _ in range(2)]
    return Case([Operand((2,), pick(draw, *FLOATS), values=values)], {})


def _several(draw: Draw) -> Case:
    count, dtype = draw(st.integers(1, 3)), pick(draw, *FLOATS)
    return Case([Operand(dims(draw), dtype) for _ in range(count)], {"num_arrays": count})


def _by_mode(draw: Draw) -> Case:
    return Case([Operand(dims(draw, 3, 4), pick(draw, *FLOATS))], maybe(draw, mode=pick(draw, "channel", "spatial")))


def _index(draw: Draw) -> Case:
    shape = dims(draw)
    attrs = maybe(draw, axis=any_axis(draw, len(shape)))
    if attrs:
        attrs |= maybe(draw, keepdims=st.booleans())
    return Case([Operand(shape, pick(draw, *NUMBERS))], attrs)


RECORDS = [
    *(Record(name, _over_axes(*NUMBERS, low=-9, high=9)) for name in ("max", "min")),
    Record("sum", _over_axes(*NUMBERS)),
    # MXNet adds up the mean of 8-bit integers in these.
    Record("mean", _over_axes(*FLOATS, "int32", "int64", low=-9, high=9)),
    Record("prod", _over_axes(*NUMBERS, low=0.8, high=1.2)),
    *(Record(name, _over_axes(*FLOATS, "int32", nan=True)) for name in ("nansum", "nanprod")),
    Record("norm", _norm),
    Record("moments", _moments),
    Record("all_finite", _finite),
    Record("multi_all_finite", _several),
    Record("multi_sum_sq", _several),
    Record("L2Normalization", _by_mode, variant="types"),
    *(Record(name, _index) for name in ("argmax", "argmin")),
    Record("argmax_channel", lambda draw: Case([Operand(dims(draw, 2, 2), pick(draw, *NUMBERS))])),
]

LEFT = [Left("norm", Case([Operand((2, 3))], {"out_dtype": "float64"}), "MXNET_SAFE_ACCUMULATION")]
