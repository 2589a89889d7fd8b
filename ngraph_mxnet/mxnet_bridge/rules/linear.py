"""Matrix products."""

from __future__ import annotations

from math import prod

from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.mxnet_bridge.attrs import Attrs
from ngraph_mxnet.mxnet_bridge.rules.common import bias_of, scalar
from ngraph_mxnet.mxnet_bridge.rules.registry import rule
from ngraph_mxnet.mxnet_bridge.symbol_json import SymbolNode


@rule("FullyConnected", operands=(2, 3), parameters=[1, 2])
def fully_connected(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """x W^T + bias. `flatten`: all axes but 0 are one; else the product is over the last, of any rank."""
    x, weight = inputs[:2]
    units, flatten = attrs.int("num_hidden"), attrs.bool("flatten", True)
    if weight.type.rank != 2 or weight.shape[0] != units:
        raise UnsupportedError(f"num_hidden={units} does not fit the weight {weight.type}")
    leading = x.shape[:1] if flatten else x.shape[:-1]
    rows = (prod(leading), weight.shape[1])
    out = b.matmul(x if x.shape == rows else b.reshape(x, shape=rows), weight, transpose_b=True)
    bias = bias_of(inputs, attrs.bool("no_bias", False))
    if bias is not None:
        out = b.add(out, bias)
    return out if out.shape == (*leading, units) else b.reshape(out, shape=(*leading, units))


@rule("dot", operands=2, ignored=["forward_stype"])
def dot(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The last axis of the left with the first axis of the right, of any rank; two vectors give shape (1,).

    Transposed operands of rank over 2 rotate their axes in MXNet: those stay there.
    """
    left, right = inputs
    transpose_a, transpose_b = attrs.bool("transpose_a", False), attrs.bool("transpose_b", False)
    for value, transposed in ((left, transpose_a), (right, transpose_b)):
        if transposed and value.type.rank > 2:
            raise UnsupportedError(f"a transposed operand of rank {value.type.rank}")
    if left.type.rank <= 1:
        transpose_a = False
    if right.type.rank <= 1:
        transpose_b = False
    a_free = left.shape[1:] if transpose_a else left.shape[:-1]
    b_free = right.shape[:1] if transpose_b else right.shape[1:]
    inner = left.shape[0] if transpose_a else left.shape[-1]
    if left.type.rank != 2:
        left = b.reshape(left, shape=(prod(a_free), inner))
    if right.type.rank != 2:
        right = b.reshape(right, shape=(inner, prod(b_free)))
    out = b.matmul(left, right, transpose_a=transpose_a, transpose_b=transpose_b)
    shape = (*a_free, *b_free) or (1,)
    return out if out.shape == shape else b.reshape(out, shape=shape)


@rule("batch_dot", operands=2, ignored=["forward_stype"])
def batch_dot(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """A matrix product for each entry of the leading axes, which agree."""
    left, right = inputs
    if left.shape[:-2] != right.shape[:-2]:
        raise UnsupportedError(f"leading axes differ: {left.type} and {right.type}")
    return b.matmul(left, right, transpose_a=attrs.bool("transpose_a", False),
                    transpose_b=attrs.bool("transpose_b", False))


@rule("_linalg_gemm2", "linalg_gemm2", operands=2)
def linalg_gemm2(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """alpha A B over the last two axes; another `axis` stays with MXNet."""
    if attrs.int("axis", -2) != -2:
        raise UnsupportedError("axis other than -2")
    alpha = attrs.float("alpha", 1.0)
    out = b.matmul(*inputs, transpose_a=attrs.bool("transpose_a", False),
                   transpose_b=attrs.bool("transpose_b", False))
    return out if alpha == 1 else b.multiply(out, scalar(b, alpha, out))
