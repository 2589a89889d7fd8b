"""Reductions over any axes, the position of an extreme, and products of rare types. Sums and products accumulate in
float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import float32, float64, int64, types

from ngraph_mxnet.targets.cpu.kernels.lanes import (
    lane,
    load_lanes,
    maximum_lanes,
    maximum_of_lanes,
    minimum_lanes,
    minimum_of_lanes,
    narrow,
    product_of_lanes,
    splat,
    store_lanes,
    sum_of_lanes,
    widen,
)
from ngraph_mxnet.targets.cpu.kernels.pointers import inline, offset_of, pointer, reader, select, shift
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.params.layout import PRODUCT
from ngraph_mxnet.targets.cpu.params.reduction import ARG, REDUCE, REDUCE_CODES, REDUCE_WIDE

read_arg = reader(ARG)
read_product = reader(PRODUCT)
read_reduce = reader(REDUCE)
read_reduce_wide = reader(REDUCE_WIDE)


@inline
def _locate(p, task):
    """First index of the last kept dimension, how many, and the offsets of their input and output."""
    tiles = (p.kept.i4 + 15) // 16
    first, rest = task % tiles * 16, task // tiles
    i3, rest = rest % p.kept.i3, rest // p.kept.i3
    i2, rest = rest % p.kept.i2, rest // p.kept.i2
    i1, rest = rest % p.kept.i1, rest // p.kept.i1
    place = rest % p.kept.i0, i1, i2, i3, first
    return first, min(p.kept.i4 - first, 16), offset_of(p.in_kept, place), offset_of(p.out_kept, place)


@inline
def _count(p):
    return p.reduced.i0 * p.reduced.i1 * p.reduced.i2 * p.reduced.i3 * p.reduced.i4


def _reduction(
    *, start_lanes: Callable, step_lanes: Callable, fold: Callable, start: object, step: Callable,
    finish_lanes: Callable, finish: Callable,
) -> Callable:
    """The kernel of one reduction.

    Neighbours along a contiguous kept dimension are 16 lanes; along a contiguous reduced dimension the lanes
    are 16 partial results, folded in a fixed order. `finish*` gets the number of reduced elements.
    """

    @inline
    def columns(source, p):
        total = start_lanes()
        for i0 in range(p.reduced.i0):
            for i1 in range(p.reduced.i1):
                for i2 in range(p.reduced.i2):
                    for i3 in range(p.reduced.i3):
                        at = offset_of(p.in_reduced, (i0, i1, i2, i3))
                        for i4 in range(p.reduced.i4):
                            total = step_lanes(load_lanes(source, at + i4 * p.in_reduced.i4), total)
        return total

    @inline
    def wide_columns(source, target, p, count):
        """Four tasks that are neighbours: a row of them is read in one go, which is four times fewer pages in turn."""
        a, b, c, d = start_lanes(), start_lanes(), start_lanes(), start_lanes()
        for i0 in range(p.reduced.i0):
            for i1 in range(p.reduced.i1):
                for i2 in range(p.reduced.i2):
                    for i3 in range(p.reduced.i3):
                        at = offset_of(p.in_reduced, (i0, i1, i2, i3))
                        for i4 in range(p.reduced.i4):
                            place = at + i4 * p.in_reduced.i4
                            a = step_lanes(load_lanes(source, place), a)
                            b = step_lanes(load_lanes(source, place + 16), b)
                            c = step_lanes(load_lanes(source, place + 32), c)
                            d = step_lanes(load_lanes(source, place + 48), d)
        store_lanes(target, 0, finish_lanes(a, count))
        store_lanes(target, 16, finish_lanes(b, count))
        store_lanes(target, 32, finish_lanes(c, count))
        store_lanes(target, 48, finish_lanes(d, count))

    @inline
    def row(source, p):
        partial, total = start_lanes(), start
        whole = 0
        if p.in_reduced.i4 == 1:
            whole = p.reduced.i4 // 16 * 16
        for i0 in range(p.reduced.i0):
            for i1 in range(p.reduced.i1):
                for i2 in range(p.reduced.i2):
                    for i3 in range(p.reduced.i3):
                        at = offset_of(p.in_reduced, (i0, i1, i2, i3))
                        for i4 in range(0, whole, 16):
                            partial = step_lanes(load_lanes(source, at + i4), partial)
                        for i4 in range(whole, p.reduced.i4):
                            total = step(source[at + i4 * p.in_reduced.i4], total)
        return step(fold(partial), total)

    def reduce(tensors, ints, floats, begin, end):
        """Over any axes. tensors: input, output. Tasks: 16 neighbours of the last kept dimension each."""
        p = read_reduce(ints, floats)
        count = _count(p)
        task = begin
        while task < end:
            first, size, source_at, target_at = _locate(p, task)
            source = shift(pointer(tensors, 0, float32), source_at)
            target = shift(pointer(tensors, 1, float32), target_at)
            if p.in_kept.i4 == 1 and p.out_kept.i4 == 1 and task + 4 <= end and first + 64 <= p.kept.i4:
                wide_columns(source, target, p, count)
                task += 4
                continue
            task += 1
            if size == 16 and p.in_kept.i4 == 1:
                value = finish_lanes(columns(source, p), count)
                if p.out_kept.i4 == 1:
                    store_lanes(target, 0, value)
                else:
                    for i in range(16):
                        target[i * p.out_kept.i4] = lane(value, i)
            else:
                for i in range(size):
                    target[i * p.out_kept.i4] = finish(row(shift(source, i * p.in_kept.i4), p), count)

    return reduce


_ZEROS = inline(lambda: splat(0.0))
_ONES = inline(lambda: splat(1.0))
_LOWEST = inline(lambda: splat(np.float32(-np.inf)))
_HIGHEST = inline(lambda: splat(np.float32(np.inf)))
_narrow = inline(lambda value, count: narrow(value))
_narrow_one = inline(lambda value, count: np.float32(value))
_same = inline(lambda value, count: value)

_SUM = {
    "start_lanes": _ZEROS,
    "step_lanes": inline(lambda x, total: total + widen(x)),
    "fold": sum_of_lanes,
    "start": 0.0,
    "step": inline(lambda x, total: total + x),
    "finish_lanes": _narrow,
    "finish": _narrow_one,
}
_MEAN = {
    **_SUM,
    "finish_lanes": inline(lambda value, count: narrow(value / splat(float64(count)))),
    "finish": inline(lambda value, count: np.float32(value / count)),
}
_PRODUCT = {
    **_SUM,
    "start_lanes": _ONES,
    "step_lanes": inline(lambda x, total: total * widen(x)),
    "fold": product_of_lanes,
    "start": 1.0,
    "step": inline(lambda x, total: total * x),
}
_MAXIMUM = {
    "start_lanes": _LOWEST,
    "step_lanes": maximum_lanes,
    "fold": maximum_of_lanes,
    "start": np.float32(-np.inf),
    "step": inline(lambda x, best: select((x > best) | (x != x), x, best)),
    "finish_lanes": _same,
    "finish": _same,
}
_MINIMUM = {
    **_MAXIMUM,
    "start_lanes": _HIGHEST,
    "step_lanes": minimum_lanes,
    "fold": minimum_of_lanes,
    "start": np.float32(np.inf),
    "step": inline(lambda x, best: select((x < best) | (x != x), x, best)),
}

REDUCTIONS = {"sum": _SUM, "mean": _MEAN, "prod": _PRODUCT, "max": _MAXIMUM, "min": _MINIMUM}
"""`reduce_<name>` exists for each."""

for _name, _parts in REDUCTIONS.items():
    kernel(f"reduce_{_name}")(_reduction(**_parts))


def _scalar_reduction(element: types.Type, start: Callable, step: Callable, finish: Callable) -> Callable:
    """The kernel of all reductions of a rarer element type, element by element; `code` is the op's number.

    `start(code)` is the first total, `step(code, x, total)` the next one, and `finish(code, total, count)` the result.
    """

    def reduce(tensors, ints, floats, begin, end):
        """Over any axes; there is no mean of int64, and others wrap. Operands and tasks as of `reduce_sum`."""
        p = read_reduce_wide(ints, floats)
        code = int64(p.code)
        count = _count(p)
        for task in range(begin, end):
            _, size, source_at, target_at = _locate(p, task)
            source = shift(pointer(tensors, 0, element), source_at)
            target = shift(pointer(tensors, 1, element), target_at)
            for i in range(size):
                total = start(code)
                for i0 in range(p.reduced.i0):
                    for i1 in range(p.reduced.i1):
                        for i2 in range(p.reduced.i2):
                            for i3 in range(p.reduced.i3):
                                at = i * p.in_kept.i4 + offset_of(p.in_reduced, (i0, i1, i2, i3))
                                for i4 in range(p.reduced.i4):
                                    total = step(code, source[at + i4 * p.in_reduced.i4], total)
                target[i * p.out_kept.i4] = finish(code, total, count)

    return reduce


_CODES = REDUCE_CODES
_SUM_CODE, _MEAN_CODE, _PROD_CODE = _CODES["reduce_sum"], _CODES["reduce_mean"], _CODES["reduce_prod"]
_MAX_CODE = _CODES["reduce_max"]


def _starts(zero: object, one: object, lowest: object, highest: object) -> Callable:
    @inline
    def start(code):
        if code in (_SUM_CODE, _MEAN_CODE):
            return zero
        if code == _PROD_CODE:
            return one
        if code == _MAX_CODE:
            return lowest
        return highest

    return start


@inline
def _next(code, x, total):
    if code in (_SUM_CODE, _MEAN_CODE):
        return total + x
    if code == _PROD_CODE:
        return total * x
    if code == _MAX_CODE:
        return select((x > total) | (x != x), x, total)
    return select((x < total) | (x != x), x, total)


_whole = inline(lambda code, total, count: total)
_mean_of = inline(lambda code, total, count: total / float64(count) if code == _MEAN_CODE else total)
_F64_STARTS = _starts(np.float64(0), np.float64(1), np.float64(-np.inf), np.float64(np.inf))
_I64_STARTS = _starts(np.int64(0), np.int64(1), np.int64(-(2**63)), np.int64(2**63 - 1))

kernel("reduce_f64")(_scalar_reduction(float64, _F64_STARTS, _next, _mean_of))
kernel("reduce_i64")(_scalar_reduction(int64, _I64_STARTS, _next, _whole))


def _position(better: Callable, element: types.Type) -> Callable:
    def position(tensors, ints, floats, begin, end):
        """First position of the extreme along an axis, as int64; the first NaN wins.

        tensors: input, output. Tasks: (outer, inner).
        """
        p = read_arg(ints, floats)
        for task in range(begin, end):
            outer, inner = task // p.inner, task % p.inner
            source = shift(pointer(tensors, 0, element), outer * p.input.outer + inner * p.input.inner)
            target = shift(pointer(tensors, 1, int64), offset_of(p.output, (outer, inner)))
            best, at = source[0], 0
            for i in range(p.size):
                x = source[i * p.input.axis]
                if better(x, best):
                    best, at = x, i
            target[0] = at

    return position


for _suffix, _element in (("", float32), ("_f64", float64), ("_i64", int64)):
    for _name, _better in (
        ("argmax", inline(lambda x, best: (best == best) & ((x > best) | (x != x)))),
        ("argmin", inline(lambda x, best: (best == best) & ((x < best) | (x != x)))),
    ):
        kernel(_name + _suffix)(_position(_better, _element))


# ---- matrix products of float64 and int64: plain loops, for models in which these are rare ----


def _product(element: types.Type) -> Callable:
    zero = element(0)

    def product(tensors, ints, floats, begin, end):
        """out[n][i][j] = sum over k of a[n][i][k] b[n][k][j], added in the order of k; int64 wraps.

        tensors: a, b, output (contiguous). Tasks: (batch, rows).
        """
        p = read_product(ints, floats)
        for task in range(begin, end):
            batch, row = task // p.rows, task % p.rows
            a = shift(pointer(tensors, 0, element), offset_of(p.a, (batch, row)))
            b = shift(pointer(tensors, 1, element), batch * p.b.batch)
            out = shift(pointer(tensors, 2, element), task * p.columns)
            for j in range(p.columns):
                out[j] = zero
            for k in range(p.inner):
                x, line = a[k * p.a.inner], shift(b, k * p.b.inner)
                for j in range(p.columns):
                    out[j] += x * line[j * p.b.column]

    return product


for _name, _element in (("f64", float64), ("i64", int64)):
    kernel(f"product_{_name}")(_product(_element))
