"""Batches of matrices."""

from __future__ import annotations

from hypothesis import strategies as st
from records import Case, Draw, Left, Operand, Record, dims, maybe


def _size(draw: Draw) -> int:
    return draw(st.integers(1, 9))


def _gemm(draw: Draw, *, addend: bool) -> Case:
    outer, rows, inner, columns = dims(draw, 0, 2), _size(draw), _size(draw), _size(draw)
    attrs = maybe(draw, transpose_a=st.booleans(), transpose_b=st.booleans(), alpha=0.5)
    if addend:
        attrs |= maybe(draw, beta=2.0)
    left = (inner, rows) if attrs.get("transpose_a") else (rows, inner)
    right = (columns, inner) if attrs.get("transpose_b") else (inner, columns)
    shapes = [(*outer, *side) for side in (left, right, (rows, columns))]
    if outer and draw(st.booleans()):
        axis = draw(st.integers(0, len(outer) - 1))
        shapes = [(*shape[:axis], shape[-2], *shape[axis:-2], shape[-1]) for shape in shapes]
        attrs["axis"] = axis - len(shapes[0]) if draw(st.booleans()) else axis
    return Case([Operand(shape) for shape in shapes[:2 + addend]], attrs)


def _syrk(draw: Draw) -> Case:
    return Case([Operand(dims(draw, 2, 4))], maybe(draw, transpose=st.booleans(), alpha=0.5))


def _trmm(draw: Draw) -> Case:
    outer, size, other = dims(draw, 0, 2), _size(draw), _size(draw)
    attrs = maybe(draw, transpose=st.booleans(), rightside=st.booleans(), lower=st.booleans(), alpha=0.5)
    side = (other, size) if attrs.get("rightside") else (size, other)
    return Case([Operand((*outer, size, size)), Operand((*outer, *side))], attrs)


def _khatri_rao(draw: Draw) -> Case:
    columns = _size(draw)
    return Case([Operand((_size(draw), columns)) for _ in range(draw(st.integers(1, 3)))])


RECORDS = [
    Record("_linalg_gemm", lambda draw: _gemm(draw, addend=True)),
    Record("_linalg_gemm2", lambda draw: _gemm(draw, addend=False)),
    Record("_linalg_syrk", _syrk),
    Record("_linalg_trmm", _trmm),
    Record("khatri_rao", _khatri_rao),
]
LEFT: list[Left] = []
