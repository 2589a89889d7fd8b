"""Quantised tensors, computed in float32 between their conversions, and integer products."""

from __future__ import annotations

import functools
from math import prod

from ngraph_mxnet.bridges.onnx.rules.common import normal_axis, window
from ngraph_mxnet.bridges.onnx.rules.linear import product
from ngraph_mxnet.bridges.onnx.rules.registry import Call, rule
from ngraph_mxnet.bridges.onnx.tensors import element_of
from ngraph_mxnet.compositions.quantized import saturated
from ngraph_mxnet.compositions.tensors import along_axis, converted, reshaped, scalar, slice_axis
from ngraph_mxnet.errors import ModelError, UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import ElementType, f32, i32, u8

MICROSOFT = "com.microsoft"
_EXACT = 1 << 24
"""Up to here float32 holds every whole number."""
_HALF = 16
"""A factor is cut into two parts at four bits, so that sums of many products with either part stay exact."""


def _for(b: Builder, parameter: Value, x: Value, axis: int) -> Value:
    """A scale or zero point, one for all or one for each place along `axis`, ready to broadcast."""
    if parameter.type.size == 1:
        return reshaped(b, parameter, ())
    if parameter.shape == x.shape:
        return parameter
    axis = normal_axis(axis, x.type.rank)
    if parameter.type.rank != 1 or parameter.shape[0] != x.shape[axis]:
        raise UnsupportedError(f"scale or zero point {parameter.type} for axis {axis} of {x.type}; supported: one for "
                               "all, or one for each place along the axis")
    return along_axis(b, parameter, axis, x.type.rank)


def dequantized(b: Builder, x: Value, scale: Value, zero: Value | None, axis: int = 1) -> Value:
    wide = converted(b, x, scale)
    if zero is not None:
        wide = b.subtract(wide, converted(b, _for(b, zero, x, axis), scale))
    return b.multiply(wide, _for(b, scale, x, axis))


def quantized(b: Builder, x: Value, scale: Value, zero: Value | None, element: ElementType, axis: int = 1) -> Value:
    """saturate(round(x / scale) + zero), halves to even."""
    whole = b.round(b.divide(x, converted(b, _for(b, scale, x, axis), x)))
    if zero is not None:
        whole = b.add(whole, converted(b, _for(b, zero, x, axis), x))
    return saturated(b, whole, element)


def _spread(b: Builder, parameter: Value, x: Value, axis: int, block: int) -> Value:
    """Scales or zero points of blocks along an axis, one for each element; the last block may be cut off."""
    axis = normal_axis(axis, x.type.rank)
    count = -(-x.shape[axis] // block)
    if parameter.shape != (*x.shape[:axis], count, *x.shape[axis + 1 :]):
        raise ModelError(f"block_size={block}: scale or zero point {parameter.type} for axis {axis} of {x.type}")
    each = b.reshape(parameter, shape=(*parameter.shape[: axis + 1], 1, *parameter.shape[axis + 1 :]))
    shape = list(each.shape)
    shape[axis + 1] = block
    whole = list(parameter.shape)
    whole[axis] = count * block
    return slice_axis(b, b.reshape(b.broadcast(each, shape=shape), shape=whole), axis, 0, x.shape[axis])


def _parameters(b: Builder, call: Call, x: Value, axis: int, block: int) -> tuple[Value, Value | None]:
    """Scale and zero point, ready for `quantized` and its opposite."""
    scale, zero = call.input(1), call.optional(2)
    if block:
        return _spread(b, scale, x, axis, block), None if zero is None else _spread(b, zero, x, axis, block)
    return scale, zero


@rule("QuantizeLinear")
@rule("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(b: Builder, call: Call) -> Value:
    x, zero = call.input(0), call.optional(2)
    axis, block = call.attrs.int("axis", 1), call.attrs.int("block_size", 0)
    call.attrs.ignore("saturate", "precision")
    target = call.attrs.int("output_dtype", 0)
    element = zero.type.element if zero is not None else element_of(target) if target else u8
    x = x if x.type.element.is_float else b.convert(x, element=f32)
    return quantized(b, x, *_parameters(b, call, x, axis, block), element, axis)


@rule("DequantizeLinear")
@rule("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(b: Builder, call: Call) -> Value:
    x, axis, block = call.input(0), call.attrs.int("axis", 1), call.attrs.int("block_size", 0)
    call.attrs.ignore("output_dtype")
    return dequantized(b, x, *_parameters(b, call, x, axis, block), axis)


@rule("DynamicQuantizeLinear")
def dynamic_quantize_linear(b: Builder, call: Call) -> list[Value]:
    return list(dynamically_quantized(b, call.input(0)))


def dynamically_quantized(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """The data in u8, by their range (which is widened to hold 0), the scale, and the zero point. Of zeros only the
    scale is 1, as in ONNX Runtime."""
    axes = tuple(range(x.type.rank))
    zero = scalar(b, 0, x)
    greatest = b.maximum(b.reduce_max(x, axes=axes), zero)
    least = b.minimum(b.reduce_min(x, axes=axes), zero)
    scale = b.divide(b.subtract(greatest, least), scalar(b, 255, x))
    scale = b.select(b.equal(scale, zero), scalar(b, 1, x), scale)
    point = b.convert(b.round(b.clamp(b.divide(b.negative(least), scale), lower=0.0, upper=255.0)), element=u8)
    return quantized(b, x, scale, point, u8), scale, point


@rule("QLinearMatMul")
def qlinear_matmul(b: Builder, call: Call) -> Value:
    a, a_scale, a_zero, c, c_scale, c_zero, y_scale, y_zero = (call.input(i) for i in range(8))
    left = dequantized(b, a, a_scale, a_zero, -2)
    right = dequantized(b, c, c_scale, c_zero, -1)
    return quantized(b, product(b, left, right), y_scale, y_zero, y_zero.type.element, -1)


@rule("QLinearConv")
def qlinear_conv(b: Builder, call: Call) -> Value:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (call.input(i) for i in range(8))
    bias = call.optional(8)
    out = convolved(b, call, dequantized(b, x, x_scale, x_zero), dequantized(b, w, w_scale, w_zero, 0))
    if bias is not None:
        factor = b.multiply(reshaped(b, x_scale, ()), reshaped(b, w_scale, (w_scale.type.size,)))
        out = b.add(out, along_axis(b, b.multiply(b.convert(bias, element=f32), factor), 1, out.type.rank))
    return quantized(b, out, y_scale, y_zero, y_zero.type.element)


def convolved(b: Builder, call: Call, x: Value, weight: Value) -> Value:
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


def _parts(terms: int, each: int = 1) -> list[tuple[int, int]]:
    """Ranges of terms whose sums float32 holds exactly; a term is `each` products, of at most 255 times 16."""
    most = _EXACT // (255 * _HALF) // each
    if not most:
        raise UnsupportedError(f"sums of {each} integer products; supported: up to {_EXACT // (255 * _HALF)}")
    return [(begin, min(begin + most, terms)) for begin in range(0, terms, most)] or [(0, 0)]


@rule("MatMulInteger")
def matmul_integer(b: Builder, call: Call) -> Value:
    return integer_product(b, call.input(0), call.input(1), call.optional(2), call.optional(3))


def integer_product(b: Builder, left: Value, right: Value, left_zero: Value | None,
                    right_zero: Value | None) -> Value:
    """i32 sums of products of bytes, by float32 products that are exact: two for every few thousand terms."""
    a, c = _centred(b, left, left_zero, -2), _centred(b, right, right_zero, -1)
    sums = []
    for begin, end in _parts(left.shape[-1]):
        high, low = _halves(b, slice_axis(b, c, max(c.type.rank - 2, 0), begin, end))
        part = slice_axis(b, a, a.type.rank - 1, begin, end)
        sums.append(_whole(b, product(b, part, high), product(b, part, low)))
    return functools.reduce(lambda total, part: b.add(total, part), sums)


@rule("ConvInteger")
def conv_integer(b: Builder, call: Call) -> Value:
    """i32 sums of products of bytes, by float32 convolutions that are exact: two for every few channels."""
    x, weight = call.input(0), call.input(1)
    data, kernel = _centred(b, x, call.optional(2), 1), _centred(b, weight, call.optional(3), 0)
    parts = _parts(weight.shape[1], prod(weight.shape[2:]))
    if len(parts) > 1 and weight.shape[1] != x.shape[1]:
        raise UnsupportedError(f"sums of {prod(weight.shape[1:])} integer products in groups")
    sums = []
    for begin, end in parts:
        some = data if len(parts) == 1 else slice_axis(b, data, 1, begin, end)
        high, low = _halves(b, slice_axis(b, kernel, 1, begin, end))
        sums.append(_whole(b, convolved(b, call, some, high), convolved(b, call, some, low)))
    return functools.reduce(lambda total, part: b.add(total, part), sums)
