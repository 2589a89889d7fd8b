"""Rows of a tensor by index: embedding tables, `take`."""

from __future__ import annotations

from collections.abc import Callable

from numba import types

from ngraph_mxnet.cpu.kernels.pointers import pointer, shift
from ngraph_mxnet.cpu.kernels.record import KernelRecord, register

__all__ = ["GATHER_INTS"]

GATHER_INTS = tuple("outer size inner count rows".split())
"""Entries of `ints`: data is [outer][size][inner], indices [count], a task takes `rows` indices."""


def _gather(element: types.Type) -> Callable:
    def gather(tensors, ints, floats, begin, end):
        """out[o][i] = data[o][min(max(indices[i], 0), size - 1)], rows of `inner` elements.

        tensors: data, indices (int64), output; all contiguous. ints: `GATHER_INTS`.
        Tasks: (outer, ceil(count / rows)).
        """
        size, inner, count, rows = ints[1], ints[2], ints[3], ints[4]
        parts = (count + rows - 1) // rows
        indices = pointer(tensors, 1, types.int64)
        for task in range(begin, end):
            outer, first = task // parts, task % parts * rows
            data = shift(pointer(tensors, 0, element), outer * size * inner)
            out = shift(pointer(tensors, 2, element), outer * count * inner)
            for i in range(first, min(first + rows, count)):
                index = min(max(indices[i], 0), size - 1)
                source, target = shift(data, index * inner), shift(out, i * inner)
                for j in range(inner):
                    target[j] = source[j]

    return gather


for _bytes, _element in ((1, types.int8), (2, types.int16), (4, types.int32), (8, types.int64)):
    _function = _gather(_element)
    register(KernelRecord(name=f"gather_{_bytes}", function=_function, doc=_function.__doc__ or ""))
