"""Rows of a tensor by index: embedding tables, `take`, `gather_nd`, `scatter_nd`."""

from __future__ import annotations

from collections.abc import Callable

from numba import types

from ngraph_mxnet.cpu.kernels.pointers import inline, pointer, reader, select, shift
from ngraph_mxnet.cpu.kernels.record import KernelRecord, kernel, register
from ngraph_mxnet.cpu.params.gather import COORDINATE_POSITIONS, ELEMENT_POSITIONS, GATHER, SCATTER, SCATTER_INTO

_SIZES_AT = len(COORDINATE_POSITIONS.ints)
read_coordinate_positions = reader(COORDINATE_POSITIONS)
read_element_positions = reader(ELEMENT_POSITIONS)
read_gather = reader(GATHER)
read_scatter = reader(SCATTER)
read_scatter_into = reader(SCATTER_INTO)

_BY_SIZE = ((1, types.int8), (2, types.int16), (4, types.int32), (8, types.int64))

_inside = inline(lambda index, size, wrap: index % size if wrap else min(max(index, 0), size - 1))


def _gather(element: types.Type) -> Callable:
    def gather(tensors, ints, floats, begin, end):
        """out[o][i] = data[o][index of i], rows of `inner` elements.

        tensors: data, indices (int64), output; all contiguous.
        Tasks: (outer, ceil(count / rows)).
        """
        p = read_gather(ints, floats)
        size, inner, count, rows, wrap = p.size, p.inner, p.count, p.rows, p.wrap
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

        tensors: updates, positions (int64, in range), output; all contiguous.
        Tasks: ceil(inner / columns).
        """
        p = read_scatter(ints, floats)
        inner, count, columns = p.inner, p.count, p.columns
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

        tensors: updates, positions (int64, in range), output; all contiguous.
        floats: the number of what is done. Tasks: ceil(inner / columns).
        """
        p = read_scatter_into(ints, floats)
        inner, count, columns = p.inner, p.count, p.columns
        code = types.int64(p.code)
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
    p, sizes = read_coordinate_positions(ints, floats), shift(ints, _SIZES_AT)
    axes, count, points = p.axes, p.count, p.points
    coordinates, out = pointer(tensors, 0, types.int64), pointer(tensors, 1, types.int64)
    for task in range(begin, end):
        for i in range(task * points, min((task + 1) * points, count)):
            position = 0
            for axis in range(axes):
                size, index = sizes[axis], coordinates[axis * count + i]
                index = index + size if index < 0 else index
                position = position * size + min(max(index, 0), size - 1)
            out[i] = position


@kernel("element_positions")
def element_positions(tensors, ints, floats, begin, end):
    """The row-major position of the element of data that each index along an axis means.

    tensors: indices, output, both int64 and contiguous. Tasks: outer.
    """
    p = read_element_positions(ints, floats)
    size, inner, count, wrap = p.size, p.inner, p.count, p.wrap
    for task in range(begin, end):
        indices = shift(pointer(tensors, 0, types.int64), task * count * inner)
        out = shift(pointer(tensors, 1, types.int64), task * count * inner)
        for i in range(count):
            for j in range(inner):
                at = i * inner + j
                out[at] = (task * size + _inside(indices[at], size, wrap)) * inner + j
