"""Softmax and its relatives."""

from __future__ import annotations

from hypothesis import strategies as st
from records import Case, Draw, Operand, Record, any_axis, dims, maybe, pick


def _softmax(draw: Draw) -> Case:
    shape = dims(draw)
    attrs = maybe(draw, axis=any_axis(draw, len(shape)), temperature=st.sampled_from([0.5, 1.0, 3.0]))
    return Case([Operand(shape, low=-6, high=6)], attrs)


def _log_softmax(draw: Draw) -> Case:
    """Of two or more: over a single one the result is 0, which oneDNN misses by 1e-6."""
    case = _softmax(draw)
    shape = list(case.operands[0].shape)
    shape[case.attrs.get("axis", -1)] += 1
    return Case([Operand(tuple(shape), low=-6, high=6)], case.attrs)


def _with_length(draw: Draw) -> Case:
    """MXNet writes out of bounds where a length exceeds the axis, and fails on negative axes but -1."""
    shape = dims(draw, 2)
    attrs = maybe(draw, axis=st.integers(-1, len(shape) - 1), temperature=st.sampled_from([0.5, 3.0]))
    axis = attrs.get("axis", -1) % len(shape)
    lengths = Operand(shape[:axis] + shape[axis + 1:], pick(draw, "int32", "int64"), 0, shape[axis])
    return Case([Operand(shape, low=-6, high=6), lengths], {**attrs, "use_length": True})


RECORDS = [
    *(Record(name, _softmax) for name in ("softmax", "softmin")),
    Record("log_softmax", _log_softmax),
    Record("softmax", _with_length, variant="length"),
]
