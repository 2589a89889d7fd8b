"""The strided convention of elementwise kernels: parameters, tasks, and the loops around an expression.

    tensors  the inputs, then the output; the output may be exactly one of the inputs
    ints     rows, chunk, d0, d1, d2, d3, d4, then for every tensor in order its 5 strides (in elements)
    floats   the expression's parameters
    tasks    d0 * d1 * d2 * ceil(d3 / rows) * ceil(d4 / chunk), last fastest: a task is a tile of at most
             `rows` x `chunk` elements of the two inner dimensions

A stride may be 0 (broadcast) or negative. Halos and blocked layouts are just strides. The fast paths are an
inner dimension of stride 1 (or 0 for one of two inputs), and squares of some transposed copies.
`params.strided.loops` chooses the order and the tasks.
"""

from __future__ import annotations

from collections.abc import Callable

from ngraph_mxnet.targets.cpu.kernels.lanes import LANES, transpose_lanes
from ngraph_mxnet.targets.cpu.kernels.pointers import inline, load, pointer, reader, shift, store
from ngraph_mxnet.targets.cpu.params.strided import LOOPS

__all__ = ["binary_kernel", "fill_kernel", "first_element", "ternary_kernel", "tile_of", "unary_kernel"]

PAGE = 1024
"""Floats of a page of memory."""

read_1, read_2, read_3, read_4 = (reader(LOOPS[count]) for count in (1, 2, 3, 4))


@inline
def first_element(i, s0, s1, s2, s3, s4):
    """Offset of the element at `i` of the tensor of these strides."""
    return i[0] * s0 + i[1] * s1 + i[2] * s2 + i[3] * s3 + i[4] * s4


@inline
def tile_of(p, task):
    """Index of a task's first element, and the rows and columns of its tile."""
    column_tiles = (p.d4 + p.chunk - 1) // p.chunk
    row_tiles = (p.d3 + p.rows - 1) // p.rows
    i4 = task % column_tiles * p.chunk
    rest = task // column_tiles
    i3 = rest % row_tiles * p.rows
    rest = rest // row_tiles
    i2 = rest % p.d2
    rest = rest // p.d2
    return (rest // p.d1, rest % p.d1, i2, i3, i4), min(p.rows, p.d3 - i3), min(p.chunk, p.d4 - i4)


def fill_kernel(expression: Callable, out_type: object) -> Callable:
    """A kernel with no input; `expression(floats)` gives the element."""

    def kernel(tensors, ints, floats, begin, end):
        value = expression(floats)
        for task in range(begin, end):
            p = read_1(ints, floats)
            at, rows, columns = tile_of(p, task)
            out = shift(pointer(tensors, 0, out_type), first_element(at, p.o0, p.o1, p.o2, p.o3, p.o4))
            for row in range(rows):
                o = shift(out, row * p.o3)
                if p.o4 == 1:
                    for c in range(columns):
                        store(o, c, value)
                else:
                    for c in range(columns):
                        store(o, c * p.o4, value)

    return kernel


def unary_kernel(expression: Callable, in_type: object, out_type: object, loops: str = "full") -> Callable:
    """A kernel of one input; `expression(x, floats)` gives the element. With `moving` loops that is the element itself,
    of four bytes."""
    contiguous, blocked, moving = loops != "strided", loops in ("full", "moving"), loops == "moving"

    @inline
    def move_squares(a, o, rows, columns, row_step, column_step):
        """Copy squares of 16, transposed: neighbours in the input are rows, in the output columns."""
        for row in range(0, rows, LANES):
            for column in range(0, columns, LANES):
                transpose_lanes(shift(a, row + column * column_step), column_step,
                                shift(o, row * row_step + column), row_step)

    def kernel(tensors, ints, floats, begin, end):
        for task in range(begin, end):
            p = read_2(ints, floats)
            at, rows, columns = tile_of(p, task)
            a = shift(pointer(tensors, 0, in_type), first_element(at, p.a0, p.a1, p.a2, p.a3, p.a4))
            o = shift(pointer(tensors, 1, out_type), first_element(at, p.o0, p.o1, p.o2, p.o3, p.o4))
            unit = p.a4 == 1 and p.o4 == 1
            # Lines that lie pages apart share a set of the first cache, so each is read whole. Others stay there.
            turned = moving and p.a3 == 1 and p.a4 % PAGE == 0 and p.a4 > 0 and p.o4 == 1
            moved_rows, moved = (rows // LANES * LANES, columns // LANES * LANES) if turned else (0, 0)
            if turned:
                move_squares(a, o, moved_rows, moved, p.o3, p.a4)
            for row in range(rows):
                ra, ro = shift(a, row * p.a3), shift(o, row * p.o3)
                if row < moved_rows:
                    for c in range(moved, columns):
                        store(ro, c, expression(load(ra, c * p.a4), floats))
                elif blocked and unit and columns == 16:
                    for c in range(16):
                        store(ro, c, expression(load(ra, c), floats))
                elif contiguous and unit:
                    for c in range(columns):
                        store(ro, c, expression(load(ra, c), floats))
                else:
                    for c in range(columns):
                        store(ro, c * p.o4, expression(load(ra, c * p.a4), floats))

    return kernel


def binary_kernel(expression: Callable, in_type: object, out_type: object, loops: str = "full") -> Callable:
    """A kernel of two inputs of one type; `expression(x, y)` gives the element."""
    contiguous, blocked = loops != "strided", loops == "full"

    def kernel(tensors, ints, floats, begin, end):
        for task in range(begin, end):
            p = read_3(ints, floats)
            at, rows, columns = tile_of(p, task)
            a = shift(pointer(tensors, 0, in_type), first_element(at, p.a0, p.a1, p.a2, p.a3, p.a4))
            b = shift(pointer(tensors, 1, in_type), first_element(at, p.b0, p.b1, p.b2, p.b3, p.b4))
            o = shift(pointer(tensors, 2, out_type), first_element(at, p.o0, p.o1, p.o2, p.o3, p.o4))
            both = p.a4 == 1 and p.b4 == 1 and p.o4 == 1
            for row in range(rows):
                ra, rb, ro = shift(a, row * p.a3), shift(b, row * p.b3), shift(o, row * p.o3)
                if blocked and both and columns == 16:
                    for c in range(16):
                        store(ro, c, expression(load(ra, c), load(rb, c)))
                elif contiguous and both:
                    for c in range(columns):
                        store(ro, c, expression(load(ra, c), load(rb, c)))
                elif blocked and p.a4 == 1 and p.b4 == 0 and p.o4 == 1:
                    y = load(rb, 0)
                    for c in range(columns):
                        store(ro, c, expression(load(ra, c), y))
                elif blocked and p.a4 == 0 and p.b4 == 1 and p.o4 == 1:
                    x = load(ra, 0)
                    for c in range(columns):
                        store(ro, c, expression(x, load(rb, c)))
                else:
                    for c in range(columns):
                        store(ro, c * p.o4, expression(load(ra, c * p.a4), load(rb, c * p.b4)))

    return kernel


def ternary_kernel(expression: Callable, in_types: tuple, out_type: object) -> Callable:
    """A kernel of three inputs; `expression(x, y, z)` gives the element."""
    first, second, third = in_types

    def kernel(tensors, ints, floats, begin, end):
        for task in range(begin, end):
            p = read_4(ints, floats)
            at, rows, columns = tile_of(p, task)
            a = shift(pointer(tensors, 0, first), first_element(at, p.a0, p.a1, p.a2, p.a3, p.a4))
            b = shift(pointer(tensors, 1, second), first_element(at, p.b0, p.b1, p.b2, p.b3, p.b4))
            c = shift(pointer(tensors, 2, third), first_element(at, p.c0, p.c1, p.c2, p.c3, p.c4))
            o = shift(pointer(tensors, 3, out_type), first_element(at, p.o0, p.o1, p.o2, p.o3, p.o4))
            for row in range(rows):
                ra, rb = shift(a, row * p.a3), shift(b, row * p.b3)
                rc, ro = shift(c, row * p.c3), shift(o, row * p.o3)
                if p.a4 == 1 and p.b4 == 1 and p.c4 == 1 and p.o4 == 1:
                    for i in range(columns):
                        store(ro, i, expression(load(ra, i), load(rb, i), load(rc, i)))
                elif p.a4 == 1 and p.b4 == 1 and p.c4 == 0 and p.o4 == 1:  # what is kept of x, else a number
                    number = load(rc, 0)
                    for i in range(columns):
                        store(ro, i, expression(load(ra, i), load(rb, i), number))
                else:
                    for i in range(columns):
                        value = expression(load(ra, i * p.a4), load(rb, i * p.b4), load(rc, i * p.c4))
                        store(ro, i * p.o4, value)

    return kernel
