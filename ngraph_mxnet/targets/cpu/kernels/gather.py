"""Rows of a tensor by index: embedding tables, `take`, `gather_nd`, `scatter_nd`."""

from __future__ import annotations

from collections.abc import Callable

from numba import types

from ngraph_mxnet.targets.cpu.kernels.pointers import inline, pointer, reader, select, shift
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.kernels.strided import first_element, tile_of
from ngraph_mxnet.targets.cpu.params.selection import (
    COORDINATE_POSITIONS,
    ELEMENT_POSITIONS,
    GATHER,
    LOOKUP,
    OUTSIDE_CODES,
    SCATTER,
    SCATTER_INTO,
)

_SIZES_AT = len(COORDINATE_POSITIONS.ints)
read_coordinate_positions = reader(COORDINATE_POSITIONS)
read_element_positions = reader(ELEMENT_POSITIONS)
read_gather = reader(GATHER)
read_lookup = reader(LOOKUP)
read_scatter = reader(SCATTER)
read_scatter_into = reader(SCATTER_INTO)

_BY_SIZE = ((1, types.int8), (2, types.int16), (4, types.int32), (8, types.int64))

_WRAP, _FROM_END = OUTSIDE_CODES["wrap"], OUTSIDE_CODES["from_end"]


@inline
def inside(index, size, outside):
    if outside == _WRAP:
        return index % size
    return min(max(select((outside == _FROM_END) & (index < 0), index + size, index), 0), size - 1)


def _gather(element: types.Type) -> Callable:
    def gather(tensors, ints, floats, begin, end):
        """out[o][i] = data[o][index of i], rows of `inner` elements.

        tensors: data, indices (int64), output; all contiguous.
        Tasks: (outer, ceil(count / rows)).
        """
        p = read_gather(ints, floats)
        parts = (p.count + p.rows - 1) // p.rows
        indices = pointer(tensors, 1, types.int64)
        for task in range(begin, end):
            outer, first = task // parts, task % parts * p.rows
            data = shift(pointer(tensors, 0, element), outer * p.size * p.inner)
            out = shift(pointer(tensors, 2, element), outer * p.count * p.inner)
            for i in range(first, min(first + p.rows, p.count)):
                source, target = shift(data, inside(indices[i], p.size, p.outside) * p.inner), shift(out, i * p.inner)
                for j in range(p.inner):
                    target[j] = source[j]

    return gather


def _scatter(element: types.Type, read: Callable, combined: Callable) -> Callable:
    def scatter(tensors, ints, floats, begin, end):
        """out[positions[i]] and updates[i] become one for i = 0, 1, ..., rows of `inner` elements; other rows stay as
        they are.

        tensors: updates, positions (int64; rows for others are left out), output; all contiguous.
        floats: the number of what is done; without it the update takes the place. Tasks: ceil(inner / columns).
        """
        p = read(ints, floats)
        updates, positions, out = pointer(tensors, 0, element), pointer(tensors, 1, types.int64), pointer(
            tensors, 2, element)
        for task in range(begin, end):
            first = task * p.columns
            for i in range(p.count):
                if types.uint64(positions[i]) >= types.uint64(p.rows):
                    continue
                source, target = shift(updates, i * p.inner), shift(out, positions[i] * p.inner)
                for j in range(first, min(first + p.columns, p.inner)):
                    target[j] = combined(p, target[j], source[j])

    return scatter


_replaced = inline(lambda p, x, y: y)


@inline
def _combined(p, x, y):
    """`SCATTER_CODES`; NaN stays."""
    code = types.int64(p.code)
    if code == 0:
        return x + y
    if code == 1:
        return x * y
    if code == 2:
        return select((x > y) | (x != x), x, y)
    return select((x < y) | (x != x), x, y)


for _name, _element in (("f32", types.float32), ("f64", types.float64), ("i64", types.int64)):
    kernel(f"scatter_{_name}")(_scatter(_element, read_scatter_into, _combined))

for _bytes, _element in _BY_SIZE:
    for _name, _function in (("gather", _gather(_element)), ("scatter", _scatter(_element, read_scatter, _replaced))):
        kernel(f"{_name}_{_bytes}")(_function)


@kernel("lookup")
def lookup(tensors, ints, floats, begin, end):
    """For each byte what stands for it in its table; on the strided convention.

    tensors: bytes, tables, output.
    """
    for task in range(begin, end):
        p = read_lookup(ints, floats)
        at, rows, columns = tile_of(p, task)
        a = shift(pointer(tensors, 0, types.uint8), first_element(at, p.a0, p.a1, p.a2, p.a3, p.a4))
        b = shift(pointer(tensors, 1, types.uint8), first_element(at, p.b0, p.b1, p.b2, p.b3, p.b4))
        o = shift(pointer(tensors, 2, types.uint8), first_element(at, p.o0, p.o1, p.o2, p.o3, p.o4))
        for row in range(rows):
            ra, rb, ro = shift(a, row * p.a3), shift(b, row * p.b3), shift(o, row * p.o3)
            unit = p.a4 == 1 and p.o4 == 1
            if unit and p.b4 == 0 and columns == 16:
                for c in range(16):
                    ro[c] = rb[ra[c]]
            elif unit and p.b4 == 256 and columns == 16:
                for c in range(16):
                    ro[c] = rb[256 * c + ra[c]]
            elif unit and p.b4 == 0:
                for c in range(columns):
                    ro[c] = rb[ra[c]]
            else:
                for c in range(columns):
                    ro[c * p.o4] = rb[c * p.b4 + ra[c * p.a4]]


@kernel("coordinate_positions")
def coordinate_positions(tensors, ints, floats, begin, end):
    """The row-major position of each coordinate; negative ones count from the end, what is still outside is clipped.

    tensors: coordinates [axes][count], output [count], both int64 and contiguous.
    ints: axes, count, points in a task, then the size of each axis. Tasks: ceil(count / points).
    """
    p, sizes = read_coordinate_positions(ints, floats), shift(ints, _SIZES_AT)
    coordinates, out = pointer(tensors, 0, types.int64), pointer(tensors, 1, types.int64)
    for task in range(begin, end):
        for i in range(task * p.points, min((task + 1) * p.points, p.count)):
            position = 0
            for axis in range(p.axes):
                size, index = sizes[axis], coordinates[axis * p.count + i]
                position = position * size + inside(index, size, _FROM_END)
            out[i] = position


@kernel("element_positions")
def element_positions(tensors, ints, floats, begin, end):
    """The row-major position of the element of data that each index along an axis means.

    tensors: indices, output, both int64 and contiguous. Tasks: outer.
    """
    p = read_element_positions(ints, floats)
    for task in range(begin, end):
        indices = shift(pointer(tensors, 0, types.int64), task * p.count * p.inner)
        out = shift(pointer(tensors, 1, types.int64), task * p.count * p.inner)
        for i in range(p.count):
            for j in range(p.inner):
                at = i * p.inner + j
                out[at] = (task * p.size + inside(indices[at], p.size, p.outside)) * p.inner + j
