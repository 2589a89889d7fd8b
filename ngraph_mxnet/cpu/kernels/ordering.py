"""Kernels that walk an axis in order: stable sorting, running sums."""

from __future__ import annotations

from collections.abc import Callable

from numba import types

from ngraph_mxnet.cpu.kernels.pointers import inline, pointer, shift
from ngraph_mxnet.cpu.kernels.record import KernelRecord, register

__all__ = ["AXIS_INTS"]

AXIS_INTS = tuple("outer size inner descending".split())
"""Entries of `ints`: data is [outer][size][inner]; running sums take the first three."""

_RUN = 8
"""Neighbours that are sorted by insertion before runs are merged."""

_before = inline(lambda x, y: (x < y) | ((y != y) & (x == x)))
"""Whether x comes before y, ascending: NaN last."""
_goes_first = inline(lambda x, y, descending: (x > y) | ((y != y) & (x == x)) if descending else _before(x, y))


def _argsort(element: types.Type) -> Callable:
    def argsort(tensors, ints, floats, begin, end):
        """The positions along the axis in the order of their elements, equal ones in the order of positions; NaN last.

        tensors: data (contiguous), output int64 [outer][inner][2][size], of which the first half is the result and
        the second a workspace. ints: `AXIS_INTS`. Tasks: (outer, inner).
        """
        size, inner, descending = ints[1], ints[2], ints[3]
        passes, width = 0, _RUN
        while width < size:
            passes, width = passes + 1, 2 * width
        for task in range(begin, end):
            data = shift(pointer(tensors, 0, element), task // inner * size * inner + task % inner)
            result = shift(pointer(tensors, 1, types.int64), task * 2 * size)
            # Each pass merges from one half into the other; the last ends in the first half.
            source, target = result, shift(result, size)
            if passes % 2:
                source, target = target, source
            for first in range(0, size, _RUN):
                for i in range(first, min(first + _RUN, size)):
                    x, at = data[i * inner], i
                    while at > first and _goes_first(x, data[source[at - 1] * inner], descending):
                        source[at] = source[at - 1]
                        at -= 1
                    source[at] = i
            width = _RUN
            while width < size:
                for first in range(0, size, 2 * width):
                    left, middle, stop = first, min(first + width, size), min(first + 2 * width, size)
                    right = middle
                    for at in range(first, stop):
                        from_right = left >= middle
                        if left < middle and right < stop:
                            from_right = _goes_first(data[source[right] * inner], data[source[left] * inner],
                                                     descending)
                        if from_right:
                            target[at] = source[right]
                            right += 1
                        else:
                            target[at] = source[left]
                            left += 1
                source, target = target, source
                width *= 2

    return argsort


def _cumsum(element: types.Type) -> Callable:
    def cumsum(tensors, ints, floats, begin, end):
        """out[i] = data[0] + ... + data[i] along an axis, added one after the other.

        tensors: data, output; both contiguous. ints: `AXIS_INTS`. Tasks: (outer, inner).
        """
        size, inner = ints[1], ints[2]
        for task in range(begin, end):
            first = task // inner * size * inner + task % inner
            data, out = shift(pointer(tensors, 0, element), first), shift(pointer(tensors, 1, element), first)
            for i in range(size):
                out[i * inner] = data[i * inner] + out[(i - 1) * inner] if i else data[0]

    return cumsum


for _name, _element in (("f32", types.float32), ("f64", types.float64), ("i64", types.int64)):
    for _op, _function in (("argsort", _argsort(_element)), ("cumsum", _cumsum(_element))):
        register(KernelRecord(name=f"{_op}_{_name}", function=_function, doc=_function.__doc__ or ""))
