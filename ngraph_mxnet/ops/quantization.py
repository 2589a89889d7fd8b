"""Numbers of 8 bits for real ones, and products of them whose sums are exact.

A real number x is stored as q = round(x / scale) + zero point, and means (q - zero point) * scale.

`short_sums` of a product promises that some of its sums fit 16 bits, which is twice as fast without VNNI instructions:
for each tap, and each eight input channels from a multiple of 8 on, the positive weights of channels 0, 1, 4 and 5 add
up to 128 at most, the negative ones to -128 at least, and so those of 2, 3, 6 and 7. Of data that are smaller than 255
the sums times the largest number are within 32,767: up to 127 weights may add up to 258.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ngraph_mxnet.ir.opdef import DIVIDE, FORMER, Attrs, by_result, register_op
from ngraph_mxnet.ir.types import Bool, Int, TensorType, f32, i8, i32, u8
from ngraph_mxnet.ops.common import (
    CLAMP,
    Arrays,
    Types,
    along_axis,
    normal_axis,
    require,
    require_rank,
    require_shape,
)
from ngraph_mxnet.ops.contractions import (
    CONVOLUTION_ATTRS,
    MATMUL_ATTRS,
    SECOND_CLAMP,
    convolution_array,
    convolution_type,
    convolution_work,
    epilogue_types,
    finished,
    matmul_array,
    matmul_type,
    matmul_work,
)

_BYTES = (u8, i8)
BYTES = 256
"""The number of different bytes."""
_AFFINE = {"axis": Int(1)}


def _require_affine(types: Types, attrs: Attrs) -> None:
    """Data; scale f32[] or, along `axis`, f32[C]; a zero point for each scale, of one byte."""
    data, scale, zero_point = types
    require(scale.element is f32, "operand 1", scale, "f32")
    require(zero_point.element in _BYTES, "operand 2", zero_point, "u8 or i8")
    if scale.rank:
        require_shape(scale, (data.shape[normal_axis(attrs["axis"], data.rank)],), position=1)
    require_shape(zero_point, scale.shape, position=2)


def _along(array: np.ndarray, attrs: Attrs, rank: int) -> np.ndarray:
    return along_axis(array, normal_axis(attrs["axis"], rank), rank) if array.ndim else array


@register_op("quantize", operands=3, attrs=_AFFINE, by_channel=True, **DIVIDE)
def quantize(types, attrs):
    """f32[S], scale f32[] or f32[C], zero point Q[] or Q[C] -> Q[S], Q is u8 or i8.

    saturate(round(x / scale) + zero point), ties to even, for each index of `axis`; NaN becomes the least number.
    That is ONNX's QuantizeLinear.
    """
    require(types[0].element is f32, "operand 0", types[0], "f32")
    _require_affine(types, attrs)
    return TensorType(types[2].element, types[0].shape)


@quantize.reference
def _(inputs, attrs):
    data, scale, zero_point = inputs
    with np.errstate(all="ignore"):
        ratio = data / _along(scale, attrs, data.ndim)
    return saturated(ratio, _along(zero_point, attrs, data.ndim))


def saturated(ratio: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    """round(ratio) + zero point, ties to even, within the zero point's element type; NaN becomes the least number."""
    bounds, shift = np.iinfo(zero_point.dtype), zero_point.astype(np.float32)
    whole = np.asarray(np.rint(ratio))
    np.clip(whole, bounds.min - shift, bounds.max - shift, out=whole)
    if np.isnan(whole.min(initial=0)):
        whole = np.where(np.isnan(whole), bounds.min - shift, whole)
    np.add(whole, shift, out=whole)
    return whole.astype(zero_point.dtype)


@register_op("dequantize", operands=3, attrs=_AFFINE, by_channel=True, work=by_result(simple=2))
def dequantize(types, attrs):
    """Q[S], scale f32[] or f32[C], zero point Q[] or Q[C] -> f32[S], Q is u8 or i8: (q - zero point) * scale."""
    _require_affine(types, attrs)
    require(types[0].element is types[2].element, "operand 0", types[0], f"{types[2].element}, as operand 2")
    return TensorType(f32, types[0].shape)


@dequantize.reference
def _(inputs, attrs):
    data, scale, zero_point = inputs
    whole = data.astype(np.int32) - _along(zero_point, attrs, data.ndim).astype(np.int32)
    return whole.astype(np.float32) * _along(scale, attrs, data.ndim)


@register_op("lookup", operands=2, by_channel=True, work=by_result(gather=1))
def lookup(types, attrs):
    """x u8[S], table u8[256] or u8[C, 256] -> u8[S]: the table's number for each of x, with a row for each channel
    (axis 1) if it has rows. It is any function of a byte."""
    x, table = types
    require(x.element is u8, "operand 0", x, "u8")
    require(table.element is u8, "operand 1", table, "u8")
    require_rank(table, 1, 2, position=1)
    if table.rank == 2:
        require_rank(x, 2)
    require_shape(table, (*x.shape[1:2][:table.rank - 1], BYTES), position=1)
    return x


@lookup.reference
def _(inputs, attrs):
    x, table = inputs
    if table.ndim == 1:
        return np.asarray(table[x])
    return table[along_axis(np.arange(x.shape[1]), 1, x.ndim), x]


# ---- products -------------------------------------------------------------------------------------------

_EPILOGUE = ("bias", "factor", "addend", "residual", "scale", "shift")
_PRODUCT: dict[str, Any] = {"short_sums": Bool(False), **CLAMP}
FORMER.update(dict.fromkeys(("quantized_convolution_add", "quantized_convolution_add_scale_shift"),
                            "quantized_convolution"))


def _product_types(result: TensorType, types: Types, attrs: Attrs, axis: int) -> list[TensorType]:
    """Data u8, weights i8, bias i32; all others are f32."""
    for position, (type_, element) in enumerate(zip(types, (u8, i8, i32, *[f32] * 5), strict=False)):
        require(type_.element is element, f"operand {position}", type_, element)
    return epilogue_types(_EPILOGUE, result, types, attrs, axis)


def _sums(inputs: Arrays, attrs: Attrs) -> np.ndarray:
    """Return the sums of the products, exact in float64: data less `pad_value` has zeros around it."""
    data, weights = (array.astype(np.float64) for array in inputs[:2])
    of_padding = weights.reshape(weights.shape[0], -1).sum(axis=1) * attrs["pad_value"]
    inner = convolution_array([data - attrs["pad_value"], weights], attrs)
    return inner + along_axis(of_padding, 1, inner.ndim)


@register_op("quantized_convolution", operands=(5, 8), kind="convolution", work=convolution_work(_EPILOGUE),
             attrs={**CONVOLUTION_ATTRS, "pad_value": Int(0), **_PRODUCT, **SECOND_CLAMP}, multiplies_bytes=True,
             epilogue=_EPILOGUE)
def quantized_convolution(types, attrs):
    """clamp((sum + bias[O]) * factor[O] + addend[O]) in f32, of data u8, weights i8, bias i32, factor and addend f32.

    The sum is `convolution`'s, of integers, exact; outside, data is `pad_value`. A residual, scale and shift are f32
    and follow as in `convolution`: the residual is added before the clamp.
    """
    result = convolution_type([TensorType(f32, type_.shape) for type_ in types[:2]], attrs)
    require(0 <= attrs["pad_value"] <= 255, "pad_value", attrs["pad_value"], "0 to 255")
    return _product_types(result, types, attrs, 1)


@quantized_convolution.reference
def _(inputs, attrs):
    return finished(_EPILOGUE, _sums(inputs, attrs), inputs, attrs, 1)


@register_op("quantized_matmul", operands=5, attrs={**MATMUL_ATTRS, **_PRODUCT}, kind="product",
             work=matmul_work(_EPILOGUE), multiplies_bytes=True, epilogue=_EPILOGUE[:3])
def quantized_matmul(types, attrs):
    """clamp((sum + bias[N]) * factor[N] + addend[N]) in f32: the sum is `matmul`'s of u8 and i8, exact; N is the last
    axis of the product; bias i32, factor and addend f32."""
    result = matmul_type([TensorType(f32, type_.shape) for type_ in types[:2]], attrs)
    return _product_types(result, types, attrs, result.rank - 1)


@quantized_matmul.reference
def _(inputs, attrs):
    sums = matmul_array([array.astype(np.float64) for array in inputs[:2]], attrs)
    return finished(_EPILOGUE, sums, inputs, attrs, sums.ndim - 1)


# ---- sums of integers -----------------------------------------------------------------------------------


def _integer_type(types: Types, result: TensorType, weights_axis: int) -> TensorType:
    """Check the operands of a product of bytes, and return its type in i32. Data and weights are each u8 or i8; their
    zero points follow."""
    for position, type_ in enumerate(types):
        require(type_.element in _BYTES, f"operand {position}", type_, "u8 or i8")
        if position > 1:
            require(type_.element is types[position - 2].element, f"operand {position}", type_,
                    f"{types[position - 2].element}, as operand {position - 2}")
    require_shape(types[2], (), position=2)
    if types[3].rank:
        require_shape(types[3], (types[1].shape[weights_axis],), position=3)
    return TensorType(i32, result.shape)


def _centred(inputs: Arrays, axis: int) -> list[np.ndarray]:
    """Data and weights less their zero points, in float64, whose sums of their products are exact."""
    data, weights, zero, weights_zero = (array.astype(np.float64) for array in inputs)
    each = along_axis(weights_zero, axis, weights.ndim) if weights_zero.ndim else weights_zero
    return [data - zero, weights - each]


@register_op("integer_convolution", operands=4, attrs=CONVOLUTION_ATTRS, kind="convolution", work=convolution_work(),
             multiplies_bytes=True)
def integer_convolution(types, attrs):
    """P[N, C, *S], Q[O, C/groups, *K], zero points P[] and Q[] or Q[O] -> i32[N, O, *R]; P and Q are u8 or i8.

    `convolution`'s sums of (data - its zero point) * (weights - theirs), exact. That is ONNX's ConvInteger.
    """
    wide = [TensorType(f32, type_.shape) for type_ in types[:2]]
    return _integer_type(types, convolution_type(wide, attrs), 0)


@integer_convolution.reference
def _(inputs, attrs):
    return convolution_array(_centred(inputs, 0), attrs).astype(np.int64).astype(np.int32)


@register_op("integer_matmul", operands=4, attrs=MATMUL_ATTRS, kind="product", work=matmul_work(),
             multiplies_bytes=True)
def integer_matmul(types, attrs):
    """P[..., M, K], Q[..., K, N], zero points P[] and Q[] or Q[N] -> i32[..., M, N]; P and Q are u8 or i8.

    `matmul`'s sums of (data - its zero point) * (weights - theirs), exact. That is ONNX's MatMulInteger.
    """
    result = matmul_type([TensorType(f32, type_.shape) for type_ in types[:2]], attrs)
    return _integer_type(types, result, -2 if attrs["transpose_b"] else -1)


@integer_matmul.reference
def _(inputs, attrs):
    rank = inputs[1].ndim
    sums = matmul_array(_centred(inputs, rank - 2 if attrs["transpose_b"] else rank - 1), attrs)
    return sums.astype(np.int64).astype(np.int32)
