"""Matrix products of float64 and int64: plain loops, for models in which these are rare."""

from __future__ import annotations

from collections.abc import Callable

from numba import types

from ngraph_mxnet.cpu.kernels.pointers import pointer, shift
from ngraph_mxnet.cpu.kernels.record import KernelRecord, register

__all__ = ["PRODUCT_INTS"]

PRODUCT_INTS = tuple("batch rows inner columns a_batch a_row a_inner b_batch b_column b_inner".split())
"""Entries of `ints`: sizes, then the strides of both operands in elements."""


def _product(element: types.Type) -> Callable:
    zero = element(0)

    def product(tensors, ints, floats, begin, end):
        """out[n][i][j] = sum over k of a[n][i][k] b[n][k][j], added in the order of k; int64 wraps.

        tensors: a, b, output (contiguous). ints: `PRODUCT_INTS`. Tasks: (batch, rows).
        """
        rows, inner, columns = ints[1], ints[2], ints[3]
        for task in range(begin, end):
            batch, row = task // rows, task % rows
            a = shift(pointer(tensors, 0, element), batch * ints[4] + row * ints[5])
            b = shift(pointer(tensors, 1, element), batch * ints[7])
            out = shift(pointer(tensors, 2, element), task * columns)
            for j in range(columns):
                out[j] = zero
            for k in range(inner):
                x, line = a[k * ints[6]], shift(b, k * ints[9])
                for j in range(columns):
                    out[j] += x * line[j * ints[8]]

    return product


for _name, _element in (("f64", types.float64), ("i64", types.int64)):
    _function = _product(_element)
    register(KernelRecord(name=f"product_{_name}", function=_function, doc=_function.__doc__ or ""))
