"""Quantised tensors, computed in float32 between their conversions, and integer products."""

from __future__ import annotations

from math import prod

import numpy as np

from ngraph_mxnet.compositions.tensors import along_axis, converted, reshaped, scalar
from ngraph_mxnet.errors import ModelError, UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import ElementType, f32, i32, u8
from ngraph_mxnet.onnx_bridge.rules.common import normal_axis, window
from ngraph_mxnet.onnx_bridge.rules.linear import product
from ngraph_mxnet.onnx_bridge.rules.registry import Call, rule
from ngraph_mxnet.onnx_bridge.tensors import element_of

_EXACT = 1 << 24
"""Up to here float32 holds every whole number."""
_HALF = 16
"""A factor is cut in two at four bits, so that sums of products with either part stay exact for long."""


def _for(b: Builder, parameter: Value, x: Value, axis: int) -> Value:
    """A scale or zero point, one for all or one for each place along `axis`, ready to broadcast."""
    if parameter.type.size == 1:
        return reshaped(b, parameter, ())
    axis = normal_axis(axis, x.type.rank)
    if parameter.type.rank != 1 or parameter.shape[0] != x.shape[axis]:
        raise UnsupportedError(f"scale or zero point {parameter.type} for axis {axis} of {x.type}; supported: one for "
                               "all, or one for each place along the axis")
    return along_axis(b, parameter, axis, x.type.rank)


def _dequantized(b: Builder, x: Value, scale: Value, zero: Value | None, axis: int = 1) -> Value:
    wide = converted(b, x, scale)
    if zero is not None:
        wide = b.subtract(wide, converted(b, _for(b, zero, x, axis), scale))
    return b.multiply(wide, _for(b, scale, x, axis))


def _quantized(b: Builder, x: Value, scale: Value, zero: Value | None, element: ElementType, axis: int = 1) -> Value:
    """saturate(round(x / scale) + zero), halves to even."""
    limits = np.iinfo(element.numpy)
    whole = b.round(b.divide(x, converted(b, _for(b, scale, x, axis), x)))
    if zero is not None:
        whole = b.add(whole, converted(b, _for(b, zero, x, axis), x))
    return b.convert(b.clamp(whole, lower=float(limits.min), upper=float(limits.max)), element=element)


@rule("QuantizeLinear")
def quantize_linear(b: Builder, call: Call) -> Value:
    x, scale, zero = call.input(0), call.input(1), call.optional(2)
    axis, block = call.attrs.int("axis", 1), call.attrs.int("block_size", 0)
    call.attrs.ignore("saturate", "precision")
    target = call.attrs.int("output_dtype", 0)
    if block:
        raise UnsupportedError(f"block_size={block}; supported: scales of whole axes")
    element = zero.type.element if zero is not None else element_of(target) if target else u8
    x = x if x.type.element.is_float else b.convert(x, element=f32)
    return _quantized(b, x, scale, zero, element, axis)


@rule("DequantizeLinear")
def dequantize_linear(b: Builder, call: Call) -> Value:
    axis, block = call.attrs.int("axis", 1), call.attrs.int("block_size", 0)
    call.attrs.ignore("output_dtype")
    if block:
        raise UnsupportedError(f"block_size={block}; supported: scales of whole axes")
    return _dequantized(b, call.input(0), call.input(1), call.optional(2), axis)


@rule("DynamicQuantizeLinear")
def dynamic_quantize_linear(b: Builder, call: Call) -> list[Value]:
    """To u8 by the range of the data, widened to hold 0."""
    x = call.input(0)
    axes = tuple(range(x.type.rank))
    zero = scalar(b, 0, x)
    greatest = b.maximum(b.reduce_max(x, axes=axes), zero)
    least = b.minimum(b.reduce_min(x, axes=axes), zero)
    scale = b.divide(b.subtract(greatest, least), scalar(b, 255, x))
    point = b.convert(b.round(b.clamp(b.divide(b.negative(least), scale), lower=0.0, upper=255.0)), element=u8)
    return [_quantized(b, x, scale, point, u8), scale, point]


@rule("QLinearMatMul")
def qlinear_matmul(b: Builder, call: Call) -> Value:
    a, a_scale, a_zero, c, c_scale, c_zero, y_scale, y_zero = (call.input(i) for i in range(8))
    left = _dequantized(b, a, a_scale, a_zero, -2)
    right = _dequantized(b, c, c_scale, c_zero, -1)
    return _quantized(b, product(b, left, right), y_scale, y_zero, y_zero.type.element, -1)


@rule("QLinearConv")
def qlinear_conv(b: Builder, call: Call) -> Value:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (call.input(i) for i in range(8))
    bias = call.optional(8)
    out = _convolved(b, call, _dequantized(b, x, x_scale, x_zero), _dequantized(b, w, w_scale, w_zero, 0))
    if bias is not None:
        factor = b.multiply(reshaped(b, x_scale, ()), reshaped(b, w_scale, (w_scale.type.size,)))
        out = b.add(out, along_axis(b, b.multiply(b.convert(bias, element=f32), factor), 1, out.type.rank))
    return _quantized(b, out, y_scale, y_zero, y_zero.type.element)


def _convolved(b: Builder, call: Call, x: Value, weight: Value) -> Value:
    count = x.type.rank - 2
    kernel = call.attrs.ints("kernel_shape", tuple(weight.shape[2:]))
    strides, dilations = (call.attrs.ints(name, (1,) * count) for name in ("strides", "dilations"))
    if kernel != weight.shape[2:]:
        raise ModelError(f"kernel_shape={kernel} does not fit the weight {weight.type}")
    begins, ends = window(call, x.shape[2:], kernel, strides=strides, dilations=dilations)
    return b.convolution(x, weight, strides=strides, dilations=dilations, pads_begin=begins, pads_end=ends,
                         groups=call.attrs.int("group", 1))


def _centred(b: Builder, x: Value, zero: Value | None, axis: int) -> Value:
    wide = b.convert(x, element=f32)
    return wide if zero is None else b.subtract(wide, b.convert(_for(b, zero, x, axis), element=f32))


def _halves(b: Builder, x: Value) -> tuple[Value, Value]:
    """Whole numbers as 16 high + low, 0 <= low < 16."""
    high = b.floor(b.multiply(x, scalar(b, 1 / _HALF, x)))
    return high, b.subtract(x, b.multiply(high, scalar(b, _HALF, x)))


def _whole(b: Builder, high: Value, low: Value) -> Value:
    parts = [b.convert(b.round(part), element=i32) for part in (high, low)]
    return b.add(b.multiply(parts[0], b.constant(_HALF, i32)), parts[1])


def _require_exact(terms: int) -> None:
    """A product is at most 255 times 16."""
    if terms * 255 * _HALF > _EXACT:
        raise UnsupportedError(f"sums of {terms} integer products; supported: up to {_EXACT // (255 * _HALF)}")


@rule("MatMulInteger")
def matmul_integer(b: Builder, call: Call) -> Value:
    """i32 sums of products of bytes: two float32 products, each of them exact."""
    left, right = call.input(0), call.input(1)
    _require_exact(left.shape[-1])
    a, c = _centred(b, left, call.optional(2), -2), _centred(b, right, call.optional(3), -1)
    high, low = _halves(b, c)
    return _whole(b, product(b, a, high), product(b, a, low))


@rule("ConvInteger")
def conv_integer(b: Builder, call: Call) -> Value:
    """i32 sums of products of bytes, of two float32 convolutions."""
    x, weight = call.input(0), call.input(1)
    _require_exact(prod(weight.shape[1:]))
    data, kernel = _centred(b, x, call.optional(2), 1), _centred(b, weight, call.optional(3), 0)
    high, low = _halves(b, kernel)
    return _whole(b, _convolved(b, call, data, high), _convolved(b, call, data, low))


