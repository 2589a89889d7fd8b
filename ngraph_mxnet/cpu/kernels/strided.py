"""The strided convention of elementwise kernels: parameters, tasks, and the loops around an expression.

    tensors  the inputs, then the output; the output may be exactly one of the inputs
    ints     rows, chunk, d0, d1, d2, d3, d4, then for every tensor in order its 5 strides (in elements)
    floats   the expression's parameters
    tasks    d0 * d1 * d2 * ceil(d3 / rows) * ceil(d4 / chunk), last fastest: a task is a tile of at most
             `rows` x `chunk` elements of the two inner dimensions

A stride may be 0 (broadcast) or negative. Halos and blocked layouts are just strides. The fast paths are an
inner dimension of stride 1 (or 0 for one of two inputs). `params.strided.loops` chooses all of it.
"""

from __future__ import annotations

from collections.abc import Callable

from ngraph_mxnet.cpu.kernels.pointers import inline, load, pointer, shift, store

__all__ = ["binary_kernel", "fill_kernel", "ternary_kernel", "unary_kernel"]

@inline
def _start(ints, at, i0, i1, i2, i3, i4):
    """Offset of an element of the tensor whose strides begin at `ints[at]`."""
    return i0 * ints[at] + i1 * ints[at + 1] + i2 * ints[at + 2] + i3 * ints[at + 3] + i4 * ints[at + 4]


@inline
def _decode(ints, task):
    """Index of a task's first element and the size of its tile: i0, i1, i2, i3, i4, rows, columns."""
    rows, chunk, d3, d4 = ints[0], ints[1], ints[5], ints[6]
    column_tiles = (d4 + chunk - 1) // chunk
    row_tiles = (d3 + rows - 1) // rows
    i4 = task % column_tiles * chunk
    rest = task // column_tiles
    i3 = rest % row_tiles * rows
    rest = rest // row_tiles
    i2 = rest % ints[4]
    rest = rest // ints[4]
    return rest // ints[3], rest % ints[3], i2, i3, i4, min(rows, d3 - i3), min(chunk, d4 - i4)


def fill_kernel(expression: Callable, out_type: object) -> Callable:
    """A kernel with no input; `expression(floats)` gives the element."""

    def kernel(tensors, ints, floats, begin, end):
        value = expression(floats)
        for task in range(begin, end):
            i0, i1, i2, i3, i4, rows, columns = _decode(ints, task)
            out = shift(pointer(tensors, 0, out_type), _start(ints, 7, i0, i1, i2, i3, i4))
            for row in range(rows):
                o = shift(out, row * ints[10])
                if ints[11] == 1:
                    for c in range(columns):
                        store(o, c, value)
                else:
                    for c in range(columns):
                        store(o, c * ints[11], value)

    return kernel


def unary_kernel(expression: Callable, in_type: object, out_type: object, loops: str = "full") -> Callable:
    """A kernel of one input; `expression(x, floats)` gives the element."""
    contiguous, blocked = loops != "strided", loops == "full"

    def kernel(tensors, ints, floats, begin, end):
        a3, a4, o3, o4 = ints[10], ints[11], ints[15], ints[16]
        for task in range(begin, end):
            i0, i1, i2, i3, i4, rows, columns = _decode(ints, task)
            a = shift(pointer(tensors, 0, in_type), _start(ints, 7, i0, i1, i2, i3, i4))
            o = shift(pointer(tensors, 1, out_type), _start(ints, 12, i0, i1, i2, i3, i4))
            unit = a4 == 1 and o4 == 1
            for row in range(rows):
                ra, ro = shift(a, row * a3), shift(o, row * o3)
                if blocked and unit and columns == 16:
                    for c in range(16):
                        store(ro, c, expression(load(ra, c), floats))
                elif contiguous and unit:
                    for c in range(columns):
                        store(ro, c, expression(load(ra, c), floats))
                else:
                    for c in range(columns):
                        store(ro, c * o4, expression(load(ra, c * a4), floats))

    return kernel


def binary_kernel(expression: Callable, in_type: object, out_type: object, loops: str = "full") -> Callable:
    """A kernel of two inputs of one type; `expression(x, y)` gives the element."""
    contiguous, blocked = loops != "strided", loops == "full"

    def kernel(tensors, ints, floats, begin, end):
        a3, a4, b3, b4, o3, o4 = ints[10], ints[11], ints[15], ints[16], ints[20], ints[21]
        for task in range(begin, end):
            i0, i1, i2, i3, i4, rows, columns = _decode(ints, task)
            a = shift(pointer(tensors, 0, in_type), _start(ints, 7, i0, i1, i2, i3, i4))
            b = shift(pointer(tensors, 1, in_type), _start(ints, 12, i0, i1, i2, i3, i4))
            o = shift(pointer(tensors, 2, out_type), _start(ints, 17, i0, i1, i2, i3, i4))
            both = a4 == 1 and b4 == 1 and o4 == 1
            for row in range(rows):
                ra, rb, ro = shift(a, row * a3), shift(b, row * b3), shift(o, row * o3)
                if blocked and both and columns == 16:
                    for c in range(16):
                        store(ro, c, expression(load(ra, c), load(rb, c)))
                elif contiguous and both:
                    for c in range(columns):
                        store(ro, c, expression(load(ra, c), load(rb, c)))
                elif blocked and a4 == 1 and b4 == 0 and o4 == 1:
                    y = load(rb, 0)
                    for c in range(columns):
                        store(ro, c, expression(load(ra, c), y))
                elif blocked and a4 == 0 and b4 == 1 and o4 == 1:
                    x = load(ra, 0)
                    for c in range(columns):
                        store(ro, c, expression(x, load(rb, c)))
                else:
                    for c in range(columns):
                        store(ro, c * o4, expression(load(ra, c * a4), load(rb, c * b4)))

    return kernel


def ternary_kernel(expression: Callable, in_types: tuple, out_type: object) -> Callable:
    """A kernel of three inputs; `expression(x, y, z)` gives the element."""
    first, second, third = in_types

    def kernel(tensors, ints, floats, begin, end):
        a3, a4, b3, b4, c3, c4 = ints[10], ints[11], ints[15], ints[16], ints[20], ints[21]
        o3, o4 = ints[25], ints[26]
        for task in range(begin, end):
            i0, i1, i2, i3, i4, rows, columns = _decode(ints, task)
            a = shift(pointer(tensors, 0, first), _start(ints, 7, i0, i1, i2, i3, i4))
            b = shift(pointer(tensors, 1, second), _start(ints, 12, i0, i1, i2, i3, i4))
            c = shift(pointer(tensors, 2, third), _start(ints, 17, i0, i1, i2, i3, i4))
            o = shift(pointer(tensors, 3, out_type), _start(ints, 22, i0, i1, i2, i3, i4))
            for row in range(rows):
                ra, rb, rc, ro = (
                    shift(a, row * a3),
                    shift(b, row * b3),
                    shift(c, row * c3),
                    shift(o, row * o3),
                )
                if a4 == 1 and b4 == 1 and c4 == 1 and o4 == 1:
                    for i in range(columns):
                        store(ro, i, expression(load(ra, i), load(rb, i), load(rc, i)))
                else:
                    for i in range(columns):
                        value = expression(load(ra, i * a4), load(rb, i * b4), load(rc, i * c4))
                        store(ro, i * o4, value)

    return kernel
