"""Diagonals and triangles."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from records import Case, Draw, Left, Operand, Record, any_axis, dims, maybe, typed


def _offset(draw: Draw, rows: int, columns: int) -> int:
    return draw(st.integers(1 - rows, columns - 1))


def _vector(draw: Draw) -> Case:
    return Case([Operand(dims(draw, 1, 1))], maybe(draw, k=draw(st.integers(-3, 3))))


def _between(draw: Draw, shape: tuple[int, ...], key: str) -> dict[str, Any]:
    """Two axes, and an offset that leaves a diagonal."""
    attrs: dict[str, Any] = {"axis1": 0, "axis2": 1}
    if draw(st.booleans()):
        first = any_axis(draw, len(shape))
        second = (first + draw(st.integers(1, len(shape) - 1))) % len(shape)
        attrs = {"axis1": first, "axis2": second}
    attrs[key] = _offset(draw, shape[attrs["axis1"]], shape[attrs["axis2"]])
    return attrs


def _diag(draw: Draw) -> Case:
    if draw(st.booleans()):
        return _vector(draw)
    shape = dims(draw, 2, 4)
    return Case([Operand(shape)], _between(draw, shape, "k"))


def _np_diag(draw: Draw) -> Case:
    if draw(st.booleans()):
        return _vector(draw)
    shape = dims(draw, 2, 2)
    return Case([Operand(shape)], {"k": _offset(draw, *shape)})


def _diagflat(draw: Draw) -> Case:
    return Case([Operand(dims(draw, 1, 2, 3))], maybe(draw, k=draw(st.integers(-3, 3))))


def _diagonal(draw: Draw, *, least: int = 2) -> Case:
    shape = dims(draw, least, 4)
    return Case([Operand(shape)], _between(draw, shape, "offset"))


def _tril(draw: Draw) -> Case:
    return Case([Operand(dims(draw))], maybe(draw, k=draw(st.integers(-3, 3))))


def _matrices(draw: Draw, *, least: int = 2, low: float = -2.0) -> Operand:
    outer, size = dims(draw, least - 2, 2), draw(st.integers(1, 6))
    return Operand((*outer, size, size), low=low)


def _extract(draw: Draw) -> Case:
    x = _matrices(draw)
    return Case([x], maybe(draw, offset=_offset(draw, *x.shape[-2:])))


def _extract_triangle(draw: Draw) -> Case:
    case = _extract(draw)
    return Case(case.operands, case.attrs | maybe(draw, lower=st.booleans()))


def _make(draw: Draw) -> Case:
    return Case([Operand(dims(draw, 1, 3))], maybe(draw, offset=draw(st.integers(-3, 3))))


def _make_triangle(draw: Draw) -> Case:
    size = draw(st.integers(1, 5))
    shape = (*dims(draw, 0, 2), size * (size + 1) // 2)
    return Case([Operand(shape)], maybe(draw, offset=draw(st.integers(-2, 2)), lower=st.booleans()))


RECORDS = [
    Record("diag", typed(_diag)),
    Record("_np_diag", typed(_np_diag), numpy=True),
    Record("_np_diagflat", typed(_diagflat), numpy=True),
    Record("_np_diagonal", typed(_diagonal), numpy=True),
    Record("_np_trace", lambda draw: _diagonal(draw, least=3), numpy=True),
    Record("_npi_tril", typed(_tril), numpy=True),
    Record("_linalg_extractdiag", typed(_extract, "float32", "float64")),
    Record("_linalg_makediag", typed(_make, "float32", "float64")),
    Record("_linalg_sumlogdiag", lambda draw: Case([_matrices(draw, low=0.1)])),
    Record("_linalg_extracttrian", typed(_extract_triangle, "float32", "float64")),
    Record("_linalg_maketrian", typed(_make_triangle, "float32", "float64")),
]
LEFT: list[Left] = []
