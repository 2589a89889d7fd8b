"""Products and convolutions; quantised tensors, and products of them, whose sums are of whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.frontends.onnx.model import element_of
from ngraph_mxnet.frontends.onnx.rules.registry import Call, kernel_of, normal_axis, rule, window, windows
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import ElementType, f16, f32, i8, i32, u8
from ngraph_mxnet.ops import compositions as composed
from ngraph_mxnet.ops.compositions import (
    along_axis,
    converted,
    iota,
    reshaped,
    saturated,
    scalar,
    slice_axis,
    times,
    transposed_convolution,
    with_bias,
)

MOST_ROWS = 64
"""The most rows of a matrix whose determinant is computed: the elimination is repeated in the graph."""


def product(b: Builder, left: Value, right: Value, multiply: Callable[[Value, Value], Value] | None = None) -> Value:
    """NumPy's matmul: vectors gain an axis that the result loses; leading axes broadcast. `multiply` is what multiplies
    matrices, by default `matmul`."""
    multiply = multiply or b.matmul
    if not left.shape or not right.shape:
        raise ModelError(f"found {left.type} and {right.type}, expected rank 1 or more")
    rows, columns = left.rank > 1, right.rank > 1
    a = left if rows else b.reshape(left, shape=(1, *left.shape))
    c = right if columns else b.reshape(right, shape=(*right.shape, 1))
    if c.rank == 2 and a.rank > 2:  # one product of all rows
        flat = b.reshape(a, shape=(a.size // max(a.shape[-1], 1) if a.size else 0, a.shape[-1]))
        if a.size:
            return reshaped(b, multiply(flat, c), (*left.shape[:-1], *((right.shape[1],) if columns else ())))
    out = multiply(a, c)
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
    out = times(out, alpha)
    if bias is None or beta == 0:
        return out
    bias = times(bias, beta)
    return out + (reshaped(b, bias, bias.shape[1:]) if bias.rank == 2 and bias.shape[0] == 1 else bias)


@rule("Einsum")
def einsum(b: Builder, call: Call) -> Value:
    return composed.einsum(b, call.all_inputs(), call.attrs.string("equation"))


@rule("Det")
def determinant(b: Builder, call: Call, x: Value) -> Value:
    """Gauss' elimination with a pivot in each column, of all matrices at once."""
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise ModelError(f"found {x.type}, expected square matrices")
    size, batch = x.shape[-1], x.shape[:-2]
    if size > MOST_ROWS:
        raise UnsupportedError(f"matrices of {size} rows; supported: {MOST_ROWS}")
    rest, result = b.reshape(x, shape=(prod(batch), size, size)), scalar(b, 1, x)
    for left in range(size, 0, -1):
        column = slice_axis(b, rest, 2, 0, 1)
        pivot = b.argmax(b.abs(column), axis=1, keep_dims=True)
        row = b.gather_elements(rest, b.broadcast(pivot, shape=(rest.shape[0], 1, left)), axis=1)
        head = slice_axis(b, row, 2, 0, 1)
        moved = b.equal(iota(b, left, 1, 3), pivot)  # where the first row goes
        rest = b.select(moved, b.broadcast(slice_axis(b, rest, 1, 0, 1), shape=rest.shape), rest)
        sign = b.select(b.equal(pivot, 0), 1, scalar(b, -1, x))
        result = result * (sign * head)
        if left > 1:
            zero = b.equal(head, 0)
            below = slice_axis(b, rest, 1, 1, left)
            factor = slice_axis(b, below, 2, 0, 1) / b.select(zero, 1, head)
            rest = slice_axis(b, below - factor * row, 2, 1, left)
    return b.reshape(result, shape=batch)


@rule("Conv")
def convolution(b: Builder, call: Call) -> Value:
    """One to three spatial axes."""
    x, weight = call.input(0), call.input(1)
    return with_bias(b, convolved(b, call, x, weight), call.optional(2))


@rule("ConvTranspose")
def convolution_transpose(b: Builder, call: Call, x: Value, weight: Value) -> Value:
    """One to three spatial axes; `output_shape` decides the padding where it is given."""
    count, sizes = x.rank - 2, x.shape[2:]
    kernel = kernel_of(call, weight)
    strides, dilations = (call.attrs.ints(name, (1,) * count) for name in ("strides", "dilations"))
    groups = call.attrs.int("group", 1)
    extra = call.attrs.ints("output_padding", (0,) * count)
    wanted = call.attrs.ints("output_shape", None)
    mode = call.attrs.string("auto_pad", "NOTSET")
    whole = tuple(step * (size - 1) + far * (span - 1) + 1 + more for step, size, far, span, more in
                  zip(strides, sizes, dilations, kernel, extra, strict=True))
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(size * step for size, step in zip(sizes, strides, strict=True))
    if wanted is not None:
        call.attrs.ignore("pads")
        wanted = wanted[-count:]
        if any(size > most for size, most in zip(wanted, whole, strict=True)):
            extra = tuple(more + max(size - most, 0) for more, size, most in zip(extra, wanted, whole, strict=True))
            whole = tuple(max(pair) for pair in zip(wanted, whole, strict=True))
        cut = [most - size for most, size in zip(whole, wanted, strict=True)]
        begins = tuple(c // 2 if mode == "SAME_UPPER" else c - c // 2 for c in cut)
        ends = tuple(c - begin for c, begin in zip(cut, begins, strict=True))
    else:
        begins, ends = window(call, sizes, kernel, strides=strides, dilations=dilations)
    if x.shape[1] != weight.shape[0] or groups < 1 or x.shape[1] % groups:
        raise ModelError(f"group={groups}: the weight {weight.type} does not fit the data {x.type}")
    if count > 3:
        raise UnsupportedError(f"{count} spatial axes; supported: 1 to 3")
    # `pad` cuts as much off the end as off the beginning: `adjust` corrects it where `ends` differ.
    adjust = tuple(more + begin - end for more, begin, end in zip(extra, begins, ends, strict=True))
    out = transposed_convolution(b, x, weight, groups=groups, stride=strides, dilate=dilations, pad=begins,
                                 adjust=adjust)
    return with_bias(b, out, call.optional(2))


MICROSOFT = "com.microsoft"
_BYTES = (u8, i8)


def _for(b: Builder, parameter: Value, x: Value, axis: int) -> Value:
    """A scale or zero point, one for all or one for each place along `axis`, ready to broadcast."""
    if parameter.size == 1:
        return reshaped(b, parameter, ())
    if parameter.shape == x.shape:
        return parameter
    axis = normal_axis(axis, x.rank)
    if parameter.rank != 1 or parameter.shape[0] != x.shape[axis]:
        raise UnsupportedError(f"scale or zero point {parameter.type} for axis {axis} of {x.type}; supported: one for "
                               "all, or one for each place along the axis")
    return along_axis(b, parameter, axis, x.rank)


def _each(b: Builder, parameter: Value, x: Value, axis: int) -> Value | None:
    """A scale or zero point as `quantize` and `dequantize` take them; None if it is neither one for all, nor one for
    each place along the axis."""
    if parameter.size == 1:
        return reshaped(b, parameter, ())
    fits = parameter.rank == 1 and x.rank and parameter.shape[0] == x.shape[normal_axis(axis, x.rank)]
    return parameter if fits else None


def _affine(b: Builder, x: Value, scale: Value, zero: Value | None, element: ElementType,
            axis: int) -> tuple[Value, Value, dict[str, int]] | None:
    """Scale, zero point and attributes of `quantize` and `dequantize`; None where they don't cover it."""
    if scale.element is not f32 or element not in _BYTES:
        return None
    if zero is not None and zero.element is not element:
        return None
    steps = _each(b, scale, x, axis)
    if steps is None:
        return None
    points = b.constant(np.zeros(steps.shape), element) if zero is None else _each(b, zero, x, axis)
    if points is None or points.shape != steps.shape:
        return None
    return steps, points, {"axis": normal_axis(axis, x.rank)} if steps.rank else {}


def dequantized(b: Builder, x: Value, scale: Value, zero: Value | None, axis: int = 1) -> Value:
    affine = _affine(b, x, scale, zero, x.element, axis)
    if affine is not None:
        return b.dequantize(x, *affine[:2], **affine[2])
    wide = converted(b, x, scale)
    if zero is not None:
        wide = wide - converted(b, _for(b, zero, x, axis), scale)
    return wide * _for(b, scale, x, axis)


def quantized(b: Builder, x: Value, scale: Value, zero: Value | None, element: ElementType, axis: int = 1) -> Value:
    """saturate(round(x / scale) + zero), halves to even."""
    affine = _affine(b, x, scale, zero, element, axis) if x.element is f32 else None
    if affine is not None:
        return b.quantize(x, *affine[:2], **affine[2])
    whole = b.round(x / converted(b, _for(b, scale, x, axis), x))
    if zero is not None:
        whole = whole + converted(b, _for(b, zero, x, axis), x)
    return saturated(b, whole, element)


def centred(b: Builder, x: Value, zero: Value | None, axis: int) -> Value:
    """Whole numbers less their zero points, in float32."""
    return dequantized(b, x, b.constant(np.float32(1)) if zero is None or zero.size == 1 else
                       b.constant(np.ones(zero.shape, np.float32)), zero, axis)


def at_scale(b: Builder, sums: Value, scales: Sequence[Value], axis: int = -1) -> Value:
    """Sums times (first scale * second / third), which are multiplied in float32, where a scale is one number, or one
    for each place along `axis`."""
    factor: Value | None = None
    for place, scale in enumerate(scales):
        scale = reshaped(b, scale, () if scale.size == 1 else scale.shape)
        scale = converted(b, scale, f32) if scale.element is f16 else scale
        factor = scale if factor is None else factor / scale if place == 2 else factor * scale
    assert factor is not None
    return sums * converted(b, _for(b, factor, sums, axis), sums)


def _spread(b: Builder, parameter: Value, x: Value, axis: int, block: int) -> Value:
    """Scales or zero points of blocks along an axis, one for each element; the last block may be cut off."""
    axis = normal_axis(axis, x.rank)
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
def quantize_linear(b: Builder, call: Call, x: Value) -> Value:
    zero = call.optional(2)
    axis, block = call.attrs.int("axis", 1), call.attrs.int("block_size", 0)
    call.attrs.ignore("saturate", "precision")
    target = call.attrs.int("output_dtype", 0)
    element = zero.element if zero is not None else element_of(target) if target else u8
    x = x if x.element.is_float else b.convert(x, element=f32)
    return quantized(b, x, *_parameters(b, call, x, axis, block), element, axis)


@rule("DequantizeLinear")
@rule("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(b: Builder, call: Call, x: Value) -> Value:
    axis, block = call.attrs.int("axis", 1), call.attrs.int("block_size", 0)
    call.attrs.ignore("output_dtype")
    return dequantized(b, x, *_parameters(b, call, x, axis, block), axis)


@rule("DynamicQuantizeLinear")
def dynamic_quantize_linear(b: Builder, call: Call) -> list[Value]:
    return list(dynamically_quantized(b, call.input(0)))


def dynamically_quantized(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """The data in u8, by their range (which is widened to hold 0), the scale, and the zero point. Of zeros only the
    scale is 1, as in ONNX Runtime."""
    axes = tuple(range(x.rank))
    zero = scalar(b, 0, x)
    greatest = b.maximum(b.reduce_max(x, axes=axes), zero)
    least = b.minimum(b.reduce_min(x, axes=axes), zero)
    scale = (greatest - least) / 255
    scale = b.select(b.equal(scale, zero), 1, scale)
    point = b.convert(b.round(b.clamp(-least / scale, lower=0.0, upper=255.0)), element=u8)
    return quantized(b, x, scale, point, u8), scale, point


@rule("QLinearMatMul")
def qlinear_matmul(b: Builder, call: Call) -> Value:
    """round(sum * (a_scale * b_scale / y_scale)) + zero point, of sums of whole numbers."""
    a, a_scale, a_zero, c, c_scale, c_zero, y_scale, y_zero = (call.input(i) for i in range(8))
    sums = product(b, centred(b, a, a_zero, -2), centred(b, c, c_zero, -1))
    if a_scale.size > 1 and a_scale.rank == 1:
        a_scale = reshaped(b, a_scale, (a_scale.size, 1))
    out = at_scale(b, sums, [a_scale, c_scale, y_scale])
    return quantized(b, out, b.constant(np.float32(1)), y_zero, y_zero.element, -1)


@rule("QLinearConv")
def qlinear_conv(b: Builder, call: Call) -> Value:
    """round((sum + bias) * (x_scale * w_scale / y_scale)) + zero point, of sums of whole numbers."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (call.input(i) for i in range(8))
    bias = call.optional(8)
    sums = convolved(b, call, centred(b, x, x_zero, 1), centred(b, w, w_zero, 0))
    if bias is not None:
        sums = with_bias(b, sums, b.convert(bias, element=f32))
    out = at_scale(b, sums, [x_scale, w_scale, y_scale], 1)
    return quantized(b, out, b.constant(np.float32(1)), y_zero, y_zero.element)


def convolved(b: Builder, call: Call, x: Value, weight: Value, *zeros: Value) -> Value:
    """The convolution of real numbers, or of bytes with zero points."""
    at = windows(call, x.shape[2:], kernel_of(call, weight))
    return b.apply("integer_convolution" if zeros else "convolution", x, weight, *zeros, strides=at.strides,
                   dilations=at.dilations, pads_begin=at.begins, pads_end=at.ends, groups=call.attrs.int("group", 1))


def _zero(b: Builder, x: Value, zero: Value | None) -> Value:
    """A zero point that is one for all, or one for each place along an axis; of any shape with so many elements."""
    if zero is None:
        return b.constant(0, x.element)
    return reshaped(b, zero, () if zero.size == 1 else (zero.size,))


@rule("MatMulInteger")
def matmul_integer(b: Builder, call: Call) -> Value:
    return integer_product(b, call.input(0), call.input(1), call.optional(2), call.optional(3))


def integer_product(b: Builder, left: Value, right: Value, left_zero: Value | None, right_zero: Value | None) -> Value:
    """i32 sums of products of bytes less their zero points: one for all, or one for each row of the left operand, and
    each column of the right one."""
    by_row = left_zero is not None and left_zero.size > 1
    zero, right_zero = _zero(b, left, None if by_row else left_zero), _zero(b, right, right_zero)
    sums = product(b, left, right, lambda a, c: b.integer_matmul(a, c, zero, right_zero))
    if not by_row:
        return sums
    assert left_zero is not None
    rows = left.shape[-2] if left.rank > 1 else 1
    if left_zero.size != rows:
        raise UnsupportedError(f"zero point {left_zero.type} of {left.type}; supported: one for all, or for each row")
    whole = b.convert(right, element=i32) - b.convert(right_zero, element=i32)
    columns = b.reduce_sum(whole, axes=(right.rank - 2,), keep_dims=True)
    return sums - b.convert(reshaped(b, left_zero, (rows, 1)), element=i32) * columns


@rule("ConvInteger")
def conv_integer(b: Builder, call: Call, x: Value, weight: Value) -> Value:
    """i32 sums of products of bytes less their zero points: one for all, of weights also one for each filter."""
    zero, weight_zero = _zero(b, x, call.optional(2)), _zero(b, weight, call.optional(3))
    return convolved(b, call, x, weight, zero, weight_zero)
