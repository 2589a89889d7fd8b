"""Kernels that walk an axis in order: stable sorting, the first few in order, running sums."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import types

from ngraph_mxnet.targets.cpu.kernels.pointers import inline, pointer, reader, shift
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.params.selection import ARGSORT, ARGSORT_DIGITS, CUMSUM, DIGITS, FIRST

read_argsort = reader(ARGSORT)
read_argsort_digits = reader(ARGSORT_DIGITS)
read_cumsum = reader(CUMSUM)
read_first = reader(FIRST)

_RUN = 8
"""Neighbours that are sorted by insertion before runs are merged."""

_before = inline(lambda x, y: (x < y) | ((y != y) & (x == x)))
"""A predicate, true if x comes before y in ascending order. NaN is the greatest."""
_goes_first = inline(lambda x, y, descending: _before(y, x) if descending else _before(x, y))


def _argsort(element: types.Type) -> Callable:
    def argsort(tensors, ints, floats, begin, end):
        """The positions along the axis in the order of their elements, equal ones in the order of positions; NaN is the
        greatest.

        tensors: data (contiguous), output int64 [outer][inner][2][size], of which the first half is the result and
        the second a workspace. Tasks: (outer, inner).
        """
        p = read_argsort(ints, floats)
        passes, width = 0, _RUN
        while width < p.size:
            passes, width = passes + 1, 2 * width
        for task in range(begin, end):
            data = shift(pointer(tensors, 0, element), task // p.inner * p.size * p.inner + task % p.inner)
            result = shift(pointer(tensors, 1, types.int64), task * 2 * p.size)
            # Each pass merges from one half into the other; the last ends in the first half.
            source, target = result, shift(result, p.size)
            if passes % 2:
                source, target = target, source
            for first in range(0, p.size, _RUN):
                for i in range(first, min(first + _RUN, p.size)):
                    x, at = data[i * p.inner], i
                    while at > first and _goes_first(x, data[source[at - 1] * p.inner], p.descending):
                        source[at] = source[at - 1]
                        at -= 1
                    source[at] = i
            width = _RUN
            while width < p.size:
                for first in range(0, p.size, 2 * width):
                    left, middle, stop = first, min(first + width, p.size), min(first + 2 * width, p.size)
                    right = middle
                    for at in range(first, stop):
                        from_right = left >= middle
                        if left < middle and right < stop:
                            from_right = _goes_first(data[source[right] * p.inner], data[source[left] * p.inner],
                                                     p.descending)
                        if from_right:
                            target[at] = source[right]
                            right += 1
                        else:
                            target[at] = source[left]
                            left += 1
                source, target = target, source
                width *= 2

    return argsort


_U64 = np.uint64
_LOW, _SIGN, _INFINITE, _TOP = _U64(0xFFFFFFFF), _U64(0x80000000), _U64(0x7F800000), _U64(DIGITS - 1)


@inline
def _key(bits, descending):
    """Numbers below 2^32 in the order of float32s, from their bits: zeros are equal, and NaN, which is the greatest."""
    size = bits & _U64(0x7FFFFFFF)
    if size > _INFINITE:
        key = _LOW
    elif size == _U64(0):
        key = _SIGN
    else:
        key = (bits ^ _LOW) if bits >= _SIGN else (bits | _SIGN)
    return key ^ _LOW if descending else key


@kernel("argsort_digits_f32")
def argsort_digits(tensors, ints, floats, begin, end):
    """Compute `argsort` by four passes over the digits of keys, the last digit first. Each pass keeps the order of the
    pass before.

    tensors: data (contiguous), output int64 [outer][inner][2 * size + DIGITS], of which the first `size` are the
    result and the others a workspace. Tasks: (outer, inner).
    """
    p = read_argsort_digits(ints, floats)
    for task in range(begin, end):
        data = shift(pointer(tensors, 0, types.uint32), task // p.inner * p.size * p.inner + task % p.inner)
        line = task * (2 * p.size + DIGITS)
        result = shift(pointer(tensors, 1, types.uint64), line)
        places = shift(pointer(tensors, 1, types.int64), line + 2 * p.size)
        source, target = result, shift(result, p.size)
        for i in range(p.size):  # a key and its position in one word
            source[i] = _key(_U64(data[i * p.inner]), p.descending) << _U64(32) | _U64(i)
        for digit in range(32, 64, 8):
            right = _U64(digit)
            for i in range(DIGITS):
                places[i] = 0
            for i in range(p.size):
                places[source[i] >> right & _TOP] += 1
            if places[source[0] >> right & _TOP] == p.size:
                continue  # all are alike in this digit
            before = 0
            for i in range(DIGITS):
                count = places[i]
                places[i] = before
                before += count
            for i in range(p.size):
                word = source[i]
                at = word >> right & _TOP
                target[places[at]] = word
                places[at] += 1
            source, target = target, source
        for i in range(p.size):
            result[i] = source[i] & _LOW


@inline
def _comes_first(x, i, y, j, descending):
    """True if x at position i comes before y at position j. Equal elements stay in the order of positions."""
    return _goes_first(x, y, descending) or (i < j and not _goes_first(y, x, descending))


@inline
def _sift(heap, count, place, data, inner, descending):
    """Restore the order below `place` of a heap of positions, whose root is the last of all in order."""
    moved = heap[place]
    x = data[moved * inner]
    while True:
        child = 2 * place + 1
        if child >= count:
            break
        at = heap[child]
        if child + 1 < count:
            right = heap[child + 1]
            if _comes_first(data[at * inner], at, data[right * inner], right, descending):
                child, at = child + 1, right
        if not _comes_first(x, moved, data[at * inner], at, descending):
            break
        heap[place] = at
        place = child
    heap[place] = moved


def _first(element: types.Type) -> Callable:
    def first(tensors, ints, floats, begin, end):
        """The first `count` positions of what argsort gives: a heap of the best so far, then sorted.

        tensors: data (contiguous), output int64 [outer][inner][count]. ints: `AXIS_INTS`; count is at most size.
        Tasks: (outer, inner).
        """
        p = read_first(ints, floats)
        for task in range(begin, end):
            data = shift(pointer(tensors, 0, element), task // p.inner * p.size * p.inner + task % p.inner)
            heap = shift(pointer(tensors, 1, types.int64), task * p.count)
            for i in range(p.count):
                heap[i] = i
            for place in range(p.count // 2 - 1, -1, -1):
                _sift(heap, p.count, place, data, p.inner, p.descending)
            worst = data[heap[0] * p.inner]
            for i in range(p.count, p.size):
                if _goes_first(data[i * p.inner], worst, p.descending):
                    heap[0] = i
                    _sift(heap, p.count, 0, data, p.inner, p.descending)
                    worst = data[heap[0] * p.inner]
            for last in range(p.count - 1, 0, -1):
                heap[0], heap[last] = heap[last], heap[0]
                _sift(heap, last, 0, data, p.inner, p.descending)

    return first


def _cumsum(element: types.Type) -> Callable:
    def cumsum(tensors, ints, floats, begin, end):
        """out[i] = data[0] + ... + data[i] along an axis, added one after the other.

        tensors: data, output; both contiguous. Tasks: (outer, inner).
        """
        p = read_cumsum(ints, floats)
        for task in range(begin, end):
            first = task // p.inner * p.size * p.inner + task % p.inner
            data, out = shift(pointer(tensors, 0, element), first), shift(pointer(tensors, 1, element), first)
            for i in range(p.size):
                out[i * p.inner] = data[i * p.inner] + out[(i - 1) * p.inner] if i else data[0]

    return cumsum


for _name, _element in (("f32", types.float32), ("f64", types.float64), ("i64", types.int64)):
    for _op, _function in (("argsort", _argsort(_element)), ("first", _first(_element)), ("cumsum", _cumsum(_element))):
        kernel(f"{_op}_{_name}")(_function)
