"""Rows of a tensor by index: embedding tables, `take`, `gather_nd`, `scatter_nd`."""

from __future__ import annotations

from collections.abc import Callable

from numba import types

from ngraph_mxnet.cpu.kernels.pointers import inline, pointer, select, shift
from ngraph_mxnet.cpu.kernels.record import KernelRecord, kernel, register

__all__ = ["ELEMENT_POSITION_INTS", "GATHER_INTS", "SCATTER_INTS"]

GATHER_INTS = tuple("outer size inner count rows wrap".split())
"""Entries of `ints`: data is [outer][size][inner], indices [count], a task takes `rows` indices. `wrap`: indices
outside are taken modulo size; else they are clipped."""
ELEMENT_POSITION_INTS = tuple("outer size inner count wrap".split())
"""Data is [outer][size][inner], indices [outer][count][inner]."""
SCATTER_INTS = tuple("inner count columns".split())
"""Updates are [count][inner]; a task takes `columns` of each row."""

_BY_SIZE = ((1, types.int8), (2, types.int16), (4, types.int32), (8, types.int64))

_inside = inline(lambda index, size, wrap: index % size if wrap else min(max(index, 0), size - 1))


def _gather(element: types.Type) -> Callable:
    def gather(tensors, ints, floats, begin, end):
        """out[o][i] = data[o][index of i], rows of `inner` elements.

        tensors: data, indices (int64), output; all contiguous. ints: `GATHER_INTS`.
        Tasks: (outer, ceil(count / rows)).
        """
        size, inner, count, rows, wrap = ints[1], ints[2], ints[3], ints[4], ints[5]
        parts = (count + rows - 1) // rows
        indices = pointer(tensors, 1, types.int64)
        for task in range(begin, end):
            outer, first = task // parts, task % parts * rows
            data = shift(pointer(tensors, 0, element), outer * size * inner)
            out = shift(pointer(tensors, 2, element), outer * count * inner)
            for i in range(first, min(first + rows, count)):
                source, target = shift(data, _inside(indices[i], size, wrap) * inner), shift(out, i * inner)
                for j in range(inner):
                    target[j] = source[j]

    return gather


def _scatter(element: types.Type) -> Callable:
    def scatter(tensors, ints, floats, begin, end):
        """out[positions[i]] = updates[i] for i = 0, 1, ..., rows of `inner` elements; other rows stay as they are.

        tensors: updates, positions (int64, in range), output; all contiguous. ints: `SCATTER_INTS`.
        Tasks: ceil(inner / columns).
        """
        inner, count, columns = ints[0], ints[1], ints[2]
        updates, positions, out = pointer(tensors, 0, element), pointer(tensors, 1, types.int64), pointer(
            tensors, 2, element)
        for task in range(begin, end):
            first = task * columns
            for i in range(count):
                source, target = shift(updates, i * inner), shift(out, positions[i] * inner)
                for j in range(first, min(first + columns, inner)):
                    target[j] = source[j]

    return scatter


@inline
def _combined(code, x, y):
    """`SCATTER_CODES`; NaN stays."""
    if code == 0:
        return x + y
    if code == 1:
        return x * y
    if code == 2:
        return select((x > y) | (x != x), x, y)
    return select((x < y) | (x != x), x, y)


def _scatter_into(element: types.Type) -> Callable:
    def scatter(tensors, ints, floats, begin, end):
        """out[positions[i]] and updates[i] become one for i = 0, 1, ...; other rows stay as they are.

        tensors: updates, positions (int64, in range), output; all contiguous. ints: `SCATTER_INTS`.
        floats: the number of what is done. Tasks: ceil(inner / columns).
        """
        inner, count, columns = ints[0], ints[1], ints[2]
        code = types.int64(floats[0])
        updates, positions, out = pointer(tensors, 0, element), pointer(tensors, 1, types.int64), pointer(
            tensors, 2, element)
        for task in range(begin, end):
            first = task * columns
            for i in range(count):
                source, target = shift(updates, i * inner), shift(out, positions[i] * inner)
                for j in range(first, min(first + columns, inner)):
                    target[j] = _combined(code, target[j], source[j])

    return scatter


for _name, _element in (("f32", types.float32), ("f64", types.float64), ("i64", types.int64)):
    _function = _scatter_into(_element)
    register(KernelRecord(name=f"scatter_{_name}", function=_function, doc=_function.__doc__ or ""))

for _bytes, _element in _BY_SIZE:
    for _name, _function in (("gather", _gather(_element)), ("scatter", _scatter(_element))):
        register(KernelRecord(name=f"{_name}_{_bytes}", function=_function, doc=_function.__doc__ or ""))


@kernel("coordinate_positions")
def coordinate_positions(tensors, ints, floats, begin, end):
    """The row-major position of each coordinate; negative ones count from the end, what is still outside is clipped.

    tensors: coordinates [axes][count], output [count], both int64 and contiguous.
    ints: axes, count, points in a task, then the size of each axis. Tasks: ceil(count / points).
    """
    axes, count, points = ints[0], ints[1], ints[2]
    coordinates, out = pointer(tensors, 0, types.int64), pointer(tensors, 1, types.int64)
    for task in range(begin, end):
        for i in range(task * points, min((task + 1) * points, count)):
            position = 0
            for axis in range(axes):
                size, index = ints[3 + axis], coordinates[axis * count + i]
                index = index + size if index < 0 else index
                position = position * size + min(max(index, 0), size - 1)
            out[i] = position


@kernel("element_positions")
def element_positions(tensors, ints, floats, begin, end):
    """The row-major position of the element of data that each index along an axis means.

    tensors: indices, output, both int64 and contiguous. ints: `ELEMENT_POSITION_INTS`. Tasks: outer.
    """
    size, inner, count, wrap = ints[1], ints[2], ints[3], ints[4]
    for task in range(begin, end):
        indices = shift(pointer(tensors, 0, types.int64), task * count * inner)
        out = shift(pointer(tensors, 1, types.int64), task * count * inner)
        for i in range(count):
            for j in range(inner):
                at = i * inner + j
                out[at] = (task * size + _inside(indices[at], size, wrap)) * inner + j
