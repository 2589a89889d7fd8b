"""Matrix products of float64 and int64: plain loops, for models in which these are rare."""

from __future__ import annotations

from collections.abc import Callable

from numba import types

from ngraph_mxnet.targets.cpu.kernels.pointers import pointer, reader, shift
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.params.layout import PRODUCT

read_product = reader(PRODUCT)


def _product(element: types.Type) -> Callable:
    zero = element(0)

    def product(tensors, ints, floats, begin, end):
        """out[n][i][j] = sum over k of a[n][i][k] b[n][k][j], added in the order of k; int64 wraps.

        tensors: a, b, output (contiguous). Tasks: (batch, rows).
        """
        p = read_product(ints, floats)
        for task in range(begin, end):
            batch, row = task // p.rows, task % p.rows
            a = shift(pointer(tensors, 0, element), batch * p.a_batch + row * p.a_row)
            b = shift(pointer(tensors, 1, element), batch * p.b_batch)
            out = shift(pointer(tensors, 2, element), task * p.columns)
            for j in range(p.columns):
                out[j] = zero
            for k in range(p.inner):
                x, line = a[k * p.a_inner], shift(b, k * p.b_inner)
                for j in range(p.columns):
                    out[j] += x * line[j * p.b_column]

    return product


for _name, _element in (("f64", types.float64), ("i64", types.int64)):
    kernel(f"product_{_name}")(_product(_element))
