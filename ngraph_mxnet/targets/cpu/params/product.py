"""The record of the matrix products of the rarer element types."""

from ngraph_mxnet.targets.cpu.params.record import Kernels, span

PRODUCT = Kernels(
    {"product_f64": 8, "product_i64": 8}, tensors="a b >output",
    ints="batch rows inner columns a_batch a_row a_inner b_batch b_column b_inner", sizes=2,
    tasks=lambda p: p.batch * p.rows,
    reach=lambda p, size: [
        span("a", size, (p.batch, p.a_batch), (p.rows, p.a_row), (p.inner, p.a_inner)),
        span("b", size, (p.batch, p.b_batch), (p.columns, p.b_column), (p.inner, p.b_inner)),
        ("output", 0, size * p.batch * p.rows * p.columns)],
)
"""Sizes, then the strides of both operands in elements."""
