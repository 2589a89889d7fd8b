"""Reading and writing by index. Indices are floats with fractions, which MXNet cuts off, or integers."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st
from records import Case, Draw, Left, Operand, Record, any_axis, dims, maybe, pick, some_axes, typed

SEEDS = st.integers(0, 2**16)
INDICES = ("float32", "int32", "int64")


def _indices(draw: Draw, shape: tuple[int, ...], size: int, *, inside: bool = False) -> Operand:
    """Some outside [0, size) unless `inside`."""
    margin = 0 if inside else 3
    return Operand(shape, pick(draw, *INDICES), -margin, size - 1 + margin)


def _take(draw: Draw) -> Case:
    shape = dims(draw, 1, 3)
    attrs: dict[str, Any] = maybe(draw, axis=any_axis(draw, len(shape)), mode=pick(draw, "clip", "wrap"))
    return Case([Operand(shape), _indices(draw, dims(draw, 1, 3), shape[attrs.get("axis", 0)])], attrs)


def _embedding(draw: Draw) -> Case:
    rows, columns = draw(st.integers(1, 9)), draw(st.integers(1, 20))
    indices = _indices(draw, dims(draw, 1, 3), rows)
    return Case([indices, Operand((rows, columns))], {"input_dim": rows, "output_dim": columns})


def _batch_take(draw: Draw) -> Case:
    rows, columns = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    return Case([Operand((rows, columns)), Operand((rows,), "int32", -3, columns + 3)])


def _pick(draw: Draw) -> Case:
    shape = dims(draw)
    axis = any_axis(draw, len(shape))
    at = axis % len(shape)
    dropped, kept = (*shape[:at], *shape[at + 1:]), (*shape[:at], 1, *shape[at + 1:])
    indices = _indices(draw, pick(draw, dropped or (1,), kept), shape[axis])
    attrs = {"axis": axis} | maybe(draw, keepdims=st.booleans(), mode=pick(draw, "clip", "wrap"))
    return Case([Operand(shape), indices], attrs)


def _gather_nd(draw: Draw) -> Case:
    """Inside, from either end: elsewhere MXNet raises an error."""
    shape, outer = dims(draw), dims(draw, 1, 2)
    axes, random = draw(st.integers(1, len(shape))), np.random.default_rng(draw(SEEDS))
    rows = [random.integers(-size, size, outer) for size in shape[:axes]]
    return Case([Operand(shape), Operand((axes, *outer), pick(draw, *INDICES), values=rows)])


def _scatter_nd(draw: Draw) -> Case:
    """Distinct coordinates: MXNet does not say which of equal ones stays."""
    shape = dims(draw)
    axes = draw(st.integers(1, len(shape)))
    places = prod(shape[:axes])
    count = draw(st.integers(1, places))
    flat = np.random.default_rng(draw(SEEDS)).permutation(places)[:count]
    values = np.array(np.unravel_index(flat, shape[:axes]))
    indices = Operand((axes, count), pick(draw, *INDICES), values=values)
    return Case([Operand((count, *shape[axes:])), indices], {"shape": shape})


def _index_copy(draw: Draw) -> Case:
    shape = dims(draw, 2, 4)
    count = draw(st.integers(1, shape[0]))
    rows = np.random.default_rng(draw(SEEDS)).permutation(shape[0])[:count]
    return Case([Operand(shape), Operand((count,), pick(draw, *INDICES), values=rows), Operand((count, *shape[1:]))])


def _one_hot(draw: Draw) -> Case:
    depth = draw(st.integers(1, 20))
    attrs = maybe(draw, on_value=2.5, off_value=-1.0, dtype="float32")
    return Case([_indices(draw, dims(draw, 1, 3), depth)], {"depth": depth} | attrs)


def _ravel(draw: Draw) -> Case:
    """Coordinates in vectors: MXNet checks no other rank and fails on it, as unravel_index does."""
    shape = dims(draw)
    places = np.random.default_rng(draw(SEEDS)).integers(0, prod(shape), dims(draw, 1, 1))
    values = np.array(np.unravel_index(places, shape))
    written = (-1, *shape[1:]) if draw(st.booleans()) else shape
    return Case([Operand(values.shape, values=values)], {"shape": written})


def _unravel(draw: Draw) -> Case:
    shape = dims(draw)
    outer = dims(draw, 1, 1)
    places = np.random.default_rng(draw(SEEDS)).integers(0, prod(shape), outer)
    written = (-1, *shape[1:]) if draw(st.booleans()) else shape
    return Case([Operand(outer, values=places)], {"shape": written})


def _index_array(draw: Draw) -> Case:
    shape = dims(draw, 1, 3)
    return Case([Operand(shape)], maybe(draw, axes=some_axes(draw, len(shape), least=1)))


def _any(draw: Draw) -> Case:
    return Case([Operand(dims(draw))])


RECORDS = [
    Record("take", typed(_take, among=(0,))),
    Record("batch_take", typed(_batch_take, among=(0,))),
    Record("_contrib_index_array", _index_array),
    Record("shape_array", typed(_any)),
    Record("size_array", typed(_any)),
    Record("Embedding", typed(_embedding, among=(1,))),
    Record("pick", typed(_pick, among=(0,))),
    Record("gather_nd", typed(_gather_nd, among=(0,))),
    Record("scatter_nd", typed(_scatter_nd, among=(0,))),
    Record("_contrib_index_copy", typed(_index_copy, among=(0, 2))),
    Record("one_hot", _one_hot),
    Record("_ravel_multi_index", _ravel),
    Record("_unravel_index", _unravel),
]
LEFT = [
    Left("take", Case([Operand((3, 2)), Operand((4,), low=0)], {"mode": "raise"}), "mode=raise is not supported"),
]
