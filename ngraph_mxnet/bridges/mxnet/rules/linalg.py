"""The BLAS-like operators of `linalg`, on batches of matrices in the last two axes."""

from __future__ import annotations

from ngraph_mxnet.bridges.mxnet.rules.creation import triangle
from ngraph_mxnet.bridges.mxnet.rules.registry import normal_axis, rule
from ngraph_mxnet.bridges.mxnet.rules.shapes import moved_axes
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions import tensors as composed
from ngraph_mxnet.compositions.tensors import scalar
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value


def _scaled(b: Builder, x: Value, factor: float) -> Value:
    return x if factor == 1 else b.multiply(x, scalar(b, factor, x))


def _product(b: Builder, inputs: list[Value], attrs: Attrs) -> tuple[Value, int]:
    """alpha op(A) op(B), whose rows are in `axis` (moved to the last but one), and that axis."""
    rank = len(inputs[0].shape)
    if rank < 2 or any(len(x.shape) != rank for x in inputs):
        raise UnsupportedError(f"found {', '.join(str(x.type) for x in inputs)}, expected matrices of one rank")
    axis = normal_axis(attrs.int("axis", -2), rank)
    if axis == rank - 1:
        raise UnsupportedError(f"axis={axis}: the rows of {inputs[0].type} can't be its last axis")
    left, right = (_rows_last(b, x, axis) for x in inputs[:2])
    if left.shape[:-2] != right.shape[:-2]:
        raise UnsupportedError(f"leading axes differ: {left.type} and {right.type}")
    out = b.matmul(left, right, transpose_a=attrs.bool("transpose_a", False),
                   transpose_b=attrs.bool("transpose_b", False))
    return _scaled(b, out, attrs.float("alpha", 1.0)), axis


def _rows_last(b: Builder, x: Value, axis: int) -> Value:
    return x if axis == len(x.shape) - 2 else moved_axes(b, x, [axis], [-2])


def _rows_back(b: Builder, x: Value, axis: int) -> Value:
    return x if axis == len(x.shape) - 2 else moved_axes(b, x, [-2], [axis])


@rule("_linalg_gemm2", operands=2)
def gemm2(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """alpha op(A) op(B)."""
    return _rows_back(b, *_product(b, inputs, attrs))


@rule("_linalg_gemm", operands=3)
def gemm(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """alpha op(A) op(B) + beta C."""
    out, axis = _product(b, inputs, attrs)
    addend = _scaled(b, _rows_last(b, inputs[2], axis), attrs.float("beta", 1.0))
    if addend.shape != out.shape:
        raise UnsupportedError(f"found C of {inputs[2].type} for a product of {out.type}")
    return _rows_back(b, b.add(out, addend), axis)


@rule("_linalg_syrk", operands=1)
def syrk(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """alpha A A^T, or alpha A^T A."""
    (x,), transpose = inputs, attrs.bool("transpose", False)
    out = b.matmul(x, x, transpose_a=transpose, transpose_b=not transpose)
    return _scaled(b, out, attrs.float("alpha", 1.0))


@rule("_linalg_trmm", operands=2)
def trmm(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """alpha op(A) B, or alpha B op(A), of A's lower or upper triangle."""
    a, x = inputs
    if a.type.rank < 2 or a.shape[:-2] != x.shape[:-2]:
        raise UnsupportedError(f"leading axes differ: {a.type} and {x.type}")
    a = triangle(b, a, 0, lower=attrs.bool("lower", True))
    transpose = attrs.bool("transpose", False)
    if attrs.bool("rightside", False):
        out = b.matmul(x, a, transpose_b=transpose)
    else:
        out = b.matmul(a, x, transpose_a=transpose)
    return _scaled(b, out, attrs.float("alpha", 1.0))


@rule("khatri_rao", operands=(1, 1 << 20), ignored=["num_args"])
def khatri_rao(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The Kronecker products of the columns of matrices."""
    out = inputs[0]
    for x in inputs[1:]:
        if out.type.rank != 2 or x.type.rank != 2 or out.shape[1] != x.shape[1]:
            raise UnsupportedError(f"found {out.type} and {x.type}, expected matrices with the same number of columns")
        columns = x.shape[1]
        pairs = b.multiply(b.reshape(out, shape=(out.shape[0], 1, columns)), b.reshape(x, shape=(1, *x.shape)))
        out = b.reshape(pairs, shape=(out.shape[0] * x.shape[0], columns))
    return out if len(inputs) > 1 else b.identity(out)


@rule("_npi_einsum", ignored=["num_args", "optimize"], operands=(1, 1 << 20))
def einsum(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """From left to right, two operands at a time. Stay with MXNet: an axis named twice in one operand, and `...`."""
    subscripts = attrs.text("subscripts").replace(" ", "")
    if "." in subscripts:
        raise UnsupportedError(f"subscripts={subscripts}: an ellipsis")
    if any(len({*axes}) != len(axes) for axes in subscripts.partition("->")[0].split(",")):
        raise UnsupportedError(f"subscripts={subscripts}: an axis is named twice in one operand")
    return composed.einsum(b, inputs, subscripts)
