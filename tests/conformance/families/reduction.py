"""Reductions over axes."""

from __future__ import annotations

from hypothesis import strategies as st
from records import FLOATS, Case, Draw, Operand, Record, any_axis, dims, maybe, pick, some_axes


def _over_axes(draw: Draw) -> Case:
    shape = dims(draw)
    attrs = maybe(draw, keepdims=st.booleans(), exclude=st.booleans())
    if draw(st.booleans()):
        attrs["axis"] = some_axes(draw, len(shape))
    return Case([Operand(shape, "float32")], attrs)


def _norm(draw: Draw) -> Case:
    shape = dims(draw, 1, 3)
    attrs = maybe(draw, ord=st.sampled_from([1, 2]), keepdims=st.booleans())
    if draw(st.booleans()):
        attrs["axis"] = some_axes(draw, len(shape), least=1)[:2]
    return Case([Operand(shape)], attrs)


def _index(draw: Draw) -> Case:
    shape = dims(draw)
    attrs = maybe(draw, axis=any_axis(draw, len(shape)))
    if attrs:
        attrs |= maybe(draw, keepdims=st.booleans())
    return Case([Operand(shape, pick(draw, *FLOATS[:1]))], attrs)


RECORDS = [
    *(Record(name, _over_axes) for name in ("sum", "mean", "prod", "max", "min")),
    Record("norm", _norm),
    *(Record(name, _index) for name in ("argmax", "argmin")),
]
