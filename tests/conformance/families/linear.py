"""Products of matrices and tensors."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from records import Case, Draw, Left, Operand, Record, dims, maybe, pick


def _size(draw: Draw) -> int:
    return pick(draw, 1, 2, 3, 5, 16, 17, 40)


def _fully_connected(draw: Draw) -> Case:
    shape = dims(draw)
    attrs: dict[str, Any] = {"num_hidden": _size(draw)} | maybe(draw, flatten=st.booleans(), no_bias=st.booleans())
    if len(shape) == 1:
        shape = (2, *shape)
    return Case([Operand(shape)], attrs)


def _dot(draw: Draw) -> Case:
    """An operand of more than two axes is transposed by taking its first axis for its last, or the other way round."""
    inner = _size(draw)
    left, right = (*dims(draw, 0, 2), inner), (inner, *dims(draw, 0, 2))
    attrs = maybe(draw, transpose_a=len(left) > 1, transpose_b=len(right) > 1)
    if attrs.get("transpose_a"):
        left = (inner, *left[:-1])
    if attrs.get("transpose_b"):
        right = (*right[1:], inner)
    return Case([Operand(left), Operand(right)], attrs)


def _batch_dot(draw: Draw) -> Case:
    outer, rows, inner, columns = dims(draw, 1, 2), _size(draw), _size(draw), _size(draw)
    attrs = maybe(draw, transpose_a=st.booleans(), transpose_b=st.booleans())
    left = (inner, rows) if attrs.get("transpose_a") else (rows, inner)
    right = (columns, inner) if attrs.get("transpose_b") else (inner, columns)
    return Case([Operand((*outer, *left)), Operand((*outer, *right))], attrs)


def _matmul(draw: Draw) -> Case:
    inner, outer = _size(draw), dims(draw, 0, 2)
    shapes = []
    for side in ((_size(draw), inner), (inner, _size(draw))):
        kept = outer[draw(st.integers(0, len(outer))):]
        shapes.append((*(1 if draw(st.booleans()) else size for size in kept), *side))
    vector = pick(draw, None, None, 0, 1)
    if vector is not None:
        shapes[vector] = (inner,)
        if len(shapes[1 - vector]) == 1:
            shapes[1 - vector] = (2, *shapes[1 - vector])
    return Case([Operand(shape) for shape in shapes])


def _np_dot(draw: Draw) -> Case:
    inner = _size(draw)
    left, right = (*dims(draw, 1, 2), inner), (*dims(draw, 0, 1), inner, _size(draw))
    if draw(st.booleans()):
        right = (inner,)
    elif draw(st.booleans()):
        left = (inner,)
    return Case([Operand(left), Operand(right)])


def _tensordot(draw: Draw) -> Case:
    shape, other = dims(draw, 2, 4), list(dims(draw, 2, 3))
    count = draw(st.integers(1, min(len(shape), len(other)) - 1))
    axes = draw(st.permutations(range(len(shape))))[:count]
    others = draw(st.permutations(range(len(other))))[:count]
    for axis, meets in zip(axes, others, strict=True):
        other[meets] = shape[axis]
    attrs = {"a_axes_summed": tuple(axes), "b_axes_summed": tuple(others)}
    return Case([Operand(shape), Operand(tuple(other))], attrs)


def _tensordot_by_number(draw: Draw) -> Case:
    shape = dims(draw, 2, 4)
    count = draw(st.integers(0, len(shape) - 1))
    right = (*shape[len(shape) - count:], *dims(draw, 1, 2))
    return Case([Operand(shape), Operand(right)], {"axes": count})


RECORDS = [
    Record("FullyConnected", _fully_connected),
    Record("dot", _dot),
    Record("batch_dot", _batch_dot),
    Record("_npi_matmul", _matmul, numpy=True),
    Record("_np_dot", _np_dot, numpy=True),
    Record("_npi_tensordot", _tensordot, numpy=True),
    Record("_npi_tensordot_int_axes", _tensordot_by_number, numpy=True),
]
LEFT: list[Left] = []
