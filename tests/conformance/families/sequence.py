"""Batches of sequences. Lengths are in [1, time]: beyond, MXNet mostly reads memory that is not the tensor's."""

from __future__ import annotations

from hypothesis import strategies as st
from records import FLOATS, Case, Draw, Left, Operand, Record, dims, maybe, pick, typed


def _sequences(draw: Draw, *axes: int) -> Case:
    shape = dims(draw, 2, 4)
    attrs = {"axis": pick(draw, *axes)}
    if draw(st.booleans()):
        return Case([Operand(shape)], attrs | maybe(draw, use_sequence_length=False))
    kind, longest = pick(draw, "float32", "int32", "int64"), shape[attrs["axis"]]
    lengths = Operand((shape[1 - attrs["axis"]],), kind, 1, longest + 0.99 if kind == "float32" else longest)
    return Case([Operand(shape), lengths], attrs | {"use_sequence_length": True})


def _mask(draw: Draw) -> Case:
    """Here any length will do."""
    shape, axis = dims(draw, 2), draw(st.integers(0, 1))
    attrs = {**maybe(draw, value=st.sampled_from([0.0, -7.0, 1.5])), "axis": axis}
    lengths = Operand((shape[1 - axis],), pick(draw, "float32", "int32", "int64"), 0, shape[axis] + 1)
    if not draw(st.booleans()):
        return Case([Operand(shape)], attrs)
    return Case([Operand(shape), lengths], {**attrs, "use_sequence_length": True})


RECORDS = [
    Record("SequenceMask", typed(_mask, *FLOATS, among=(0,))),
    Record("SequenceLast", typed(lambda draw: _sequences(draw, 0, 1), *FLOATS, among=(0,))),
    Record("SequenceReverse", typed(lambda draw: _sequences(draw, 0), *FLOATS, among=(0,))),
]
LEFT: list[Left] = []
