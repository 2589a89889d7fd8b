"""The adjoint of the matrix product."""

from __future__ import annotations

from math import prod

from ngraph_mxnet.autodiff.adjoints import Gradients, Reverse, adjoint


@adjoint("matmul")
def _(at: Reverse) -> Gradients:
    (a, b), head = at.operands, at.head
    turned_a, turned_b = at.attrs["transpose_a"], at.attrs["transpose_b"]
    if turned_a:
        of_a = b.matmul(head, transpose_a=turned_b, transpose_b=True)
    else:
        of_a = head.matmul(b, transpose_b=not turned_b)
    if b.rank == 2 < a.rank and not turned_a:  # one matrix for a batch: the sum over the batch is part of the product
        a, head = (x.reshape((prod(x.shape[:-1]), x.shape[-1])) for x in (a, head))
    if turned_b:
        of_b = head.matmul(a, transpose_a=True, transpose_b=turned_a)
    else:
        of_b = a.matmul(head, transpose_a=not turned_a)
    return of_a, of_b
