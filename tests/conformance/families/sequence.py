"""Sequences of different lengths in one tensor."""

from __future__ import annotations

from hypothesis import strategies as st
from records import Case, Draw, Operand, Record, dims, maybe, pick


def _mask(draw: Draw) -> Case:
    shape, axis = dims(draw, 2), draw(st.integers(0, 1))
    attrs = {**maybe(draw, value=st.sampled_from([0.0, -7.0, 1.5])), "axis": axis}
    lengths = Operand((shape[1 - axis],), pick(draw, "float32", "int32", "int64"), 0, shape[axis] + 1)
    if not draw(st.booleans()):
        return Case([Operand(shape)], attrs)
    return Case([Operand(shape), lengths], {**attrs, "use_sequence_length": True})


RECORDS = [Record("SequenceMask", _mask)]
