"""Matrix products."""

from __future__ import annotations

from ngraph_mxnet.compositions import einsum as composed
from ngraph_mxnet.compositions.tensors import reshaped, scalar
from ngraph_mxnet.errors import ModelError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.onnx_bridge.rules.registry import Call, rule


def product(b: Builder, left: Value, right: Value) -> Value:
    """NumPy's matmul: vectors gain an axis that the result loses; leading axes broadcast."""
    if not left.shape or not right.shape:
        raise ModelError(f"found {left.type} and {right.type}, expected rank 1 or more")
    rows, columns = left.type.rank > 1, right.type.rank > 1
    a = left if rows else b.reshape(left, shape=(1, *left.shape))
    c = right if columns else b.reshape(right, shape=(*right.shape, 1))
    if c.type.rank == 2 and a.type.rank > 2:  # one product of all rows
        flat = b.reshape(a, shape=(a.type.size // max(a.shape[-1], 1) if a.type.size else 0, a.shape[-1]))
        if a.type.size:
            return reshaped(b, b.matmul(flat, c), (*left.shape[:-1], *((right.shape[1],) if columns else ())))
    out = b.matmul(a, c)
    shape = list(out.shape)
    if not columns:
        shape.pop()
    if not rows:
        shape.pop(-1 if not columns else -2)
    return reshaped(b, out, shape)


@rule("MatMul")
def matmul(b: Builder, call: Call) -> Value:
    return product(b, call.input(0), call.input(1))


@rule("Gemm")
def gemm(b: Builder, call: Call) -> Value:
    """alpha A B + beta C."""
    left, right, bias = call.input(0), call.input(1), call.optional(2)
    alpha, beta = call.attrs.float("alpha", 1.0), call.attrs.float("beta", 1.0)
    if call.opset < 7:
        call.attrs.ignore("broadcast")
    out = b.matmul(left, right, transpose_a=call.attrs.bool("transA"), transpose_b=call.attrs.bool("transB"))
    if alpha != 1:
        out = b.multiply(out, scalar(b, alpha, out))
    if bias is None or beta == 0:
        return out
    if beta != 1:
        bias = b.multiply(bias, scalar(b, beta, bias))
    return b.add(out, reshaped(b, bias, bias.shape[1:]) if bias.type.rank == 2 and bias.shape[0] == 1 else bias)


@rule("Einsum")
def einsum(b: Builder, call: Call) -> Value:
    return composed.einsum(b, call.all_inputs(), call.attrs.string("equation"))
