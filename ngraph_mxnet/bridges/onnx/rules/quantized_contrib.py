"""The operators of `com.microsoft` that quantised models have, computed in float32 between their conversions.

(onnxruntime's docs/ContribOperators.md.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ngraph_mxnet.bridges.onnx.rules.common import normal_axis
from ngraph_mxnet.bridges.onnx.rules.elementwise import softmax_of
from ngraph_mxnet.bridges.onnx.rules.pooling import pool
from ngraph_mxnet.bridges.onnx.rules.quantization import (
    MICROSOFT,
    dequantized,
    dynamically_quantized,
    integer_product,
    quantized,
)
from ngraph_mxnet.bridges.onnx.rules.registry import Call, rule
from ngraph_mxnet.compositions.tensors import reshaped, scalar
from ngraph_mxnet.errors import ModelError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import ElementType, f32


def _read(b: Builder, call: Call, position: int, axis: int = 1) -> Value:
    """The reals of the tensor that is input `position`; the two inputs behind it are its scale and zero point."""
    return dequantized(b, call.input(position), call.input(position + 1), call.optional(position + 2), axis)


def _written(b: Builder, call: Call, x: Value, position: int, element: ElementType, axis: int = 1) -> Value:
    """x quantised: input `position` is the scale, the one behind it the zero point."""
    return quantized(b, x, call.input(position), call.optional(position + 1), element, axis)


@rule("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def arithmetic(b: Builder, call: Call) -> Value:
    out = b.apply("add" if call.op == "QLinearAdd" else "multiply", _read(b, call, 0), _read(b, call, 3))
    return _written(b, call, out, 6, call.input(0).type.element)


@rule("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT)
def activation(b: Builder, call: Call) -> Value:
    x = _read(b, call, 0)
    out = b.sigmoid(x) if call.op == "QLinearSigmoid" else b.leaky_relu(x, slope=call.attrs.float("alpha", 0.01))
    return _written(b, call, out, 3, call.input(0).type.element)


@rule("QLinearSoftmax", domain=MICROSOFT)
def quantized_softmax(b: Builder, call: Call) -> Value:
    """Softmax as the operator set defines it that the attribute `opset` names."""
    inner = replace(call, op="Softmax", inputs=[_read(b, call, 0)], opset=call.attrs.int("opset"))
    return _written(b, call, softmax_of(b, inner), 3, call.input(0).type.element)


@rule("QLinearConcat", domain=MICROSOFT)
def quantized_concat(b: Builder, call: Call) -> Value:
    """Inputs are the result's scale and zero point, then three for each tensor."""
    if len(call.inputs) < 5 or len(call.inputs) % 3 != 2:
        raise ModelError(f"found {len(call.inputs)} inputs, expected 2 and 3 for each tensor")
    parts = [_read(b, call, position) for position in range(2, len(call.inputs), 3)]
    out = b.concat(*parts, axis=normal_axis(call.attrs.int("axis"), parts[0].type.rank))
    return _written(b, call, out, 0, call.input(2).type.element)


@rule("QLinearGlobalAveragePool", "QLinearAveragePool", domain=MICROSOFT)
def quantized_pool(b: Builder, call: Call) -> Value:
    x, last = _read(b, call, 0), call.attrs.bool("channels_last")
    rank = x.type.rank
    if last:
        x = b.transpose(x, order=(0, rank - 1, *range(1, rank - 1)))
    if call.op == "QLinearGlobalAveragePool":
        out: Value = b.reduce_mean(x, axes=tuple(range(2, rank)), keep_dims=True)
    else:
        pooled = pool(b, replace(call, op="AveragePool", inputs=[x]))
        assert isinstance(pooled, Value)
        out = pooled
    if last:
        out = b.transpose(out, order=(0, *range(2, rank), 1))
    return _written(b, call, out, 3, call.input(0).type.element)


# ---- products ------------------------------------------------------------------------------------------------


def _scaled(b: Builder, sums: Value, scales: Sequence[Value], bias: Value | None) -> Value:
    """i32 sums times all of `scales`, each one number or one for each column, plus a bias."""
    out = b.convert(sums, element=f32)
    factor = None
    for scale in scales:
        scale = reshaped(b, scale, () if scale.type.size == 1 else scale.shape)
        factor = scale if factor is None else b.multiply(factor, scale)
    assert factor is not None
    out = b.multiply(out, factor)
    return out if bias is None else b.add(out, bias)


@rule("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(b: Builder, call: Call) -> Value:
    """The left operand quantised by its range, a product of integers, float32 again."""
    left, scale, zero = dynamically_quantized(b, call.input(0))
    return _scaled(b, integer_product(b, left, call.input(1), zero, call.optional(3)), [scale, call.input(2)],
                   call.optional(4))


@rule("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(b: Builder, call: Call) -> Value:
    sums = integer_product(b, call.input(0), call.input(1), call.optional(4), call.optional(5))
    return _scaled(b, sums, [call.input(2), call.input(3)], call.optional(6))


def _turned(b: Builder, call: Call, position: int, name: str) -> Value:
    """A matrix, transposed if the attribute says so."""
    x = call.input(position)
    return b.transpose(x, order=(1, 0)) if call.attrs.bool(name) else x


@rule("QGemm", domain=MICROSOFT)
def quantized_gemm(b: Builder, call: Call) -> Value:
    """alpha (A B + C), where C has whole numbers at the scale of A B; quantised if there is a scale for the result."""
    left, right, bias = _turned(b, call, 0, "transA"), _turned(b, call, 3, "transB"), call.optional(6)
    sums = integer_product(b, left, right, call.optional(2), call.optional(5))
    if bias is not None:
        sums = b.add(sums, bias)
    out = _scaled(b, sums, [call.input(1), call.input(4)], None)
    alpha = call.attrs.float("alpha", 1.0)
    if alpha != 1:
        out = b.multiply(out, scalar(b, alpha, out))
    if call.optional(7) is None:
        return out
    return _written(b, call, out, 7, call.input(0).type.element, -1)
