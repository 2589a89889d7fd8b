"""Products and convolutions."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ngraph_mxnet.bridges.onnx.rules.registry import Call, Ints, rule, window
from ngraph_mxnet.compositions import tensors as composed
from ngraph_mxnet.compositions.layers import transposed_convolution
from ngraph_mxnet.compositions.tensors import along_axis, iota, reshaped, scalar, slice_axis
from ngraph_mxnet.errors import ModelError, UnsupportedError
from ngraph_mxnet.ir import Builder, Value

MOST_ROWS = 64
"""The most rows of a matrix whose determinant is computed: the elimination is repeated in the graph."""


def product(b: Builder, left: Value, right: Value, multiply: Callable[[Value, Value], Value] | None = None) -> Value:
    """NumPy's matmul: vectors gain an axis that the result loses; leading axes broadcast. `multiply` is what multiplies
    matrices, by default `matmul`."""
    multiply = multiply or b.matmul
    if not left.shape or not right.shape:
        raise ModelError(f"found {left.type} and {right.type}, expected rank 1 or more")
    rows, columns = left.type.rank > 1, right.type.rank > 1
    a = left if rows else b.reshape(left, shape=(1, *left.shape))
    c = right if columns else b.reshape(right, shape=(*right.shape, 1))
    if c.type.rank == 2 and a.type.rank > 2:  # one product of all rows
        flat = b.reshape(a, shape=(a.type.size // max(a.shape[-1], 1) if a.type.size else 0, a.shape[-1]))
        if a.type.size:
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


@rule("Det")
def determinant(b: Builder, call: Call) -> Value:
    """Gauss' elimination with a pivot in each column, of all matrices at once."""
    x = call.input(0)
    if x.type.rank < 2 or x.shape[-1] != x.shape[-2]:
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
        sign = b.select(b.equal(pivot, scalar(b, 0, pivot)), scalar(b, 1, x), scalar(b, -1, x))
        result = b.multiply(result, b.multiply(sign, head))
        if left > 1:
            zero = b.equal(head, scalar(b, 0, x))
            below = slice_axis(b, rest, 1, 1, left)
            factor = b.divide(slice_axis(b, below, 2, 0, 1), b.select(zero, scalar(b, 1, x), head))
            rest = slice_axis(b, b.subtract(below, b.multiply(factor, row)), 2, 1, left)
    return b.reshape(result, shape=batch)


def _window_attrs(call: Call, count: int, weight: Value) -> tuple[Ints, Ints, Ints]:
    """Kernel, strides and dilations."""
    kernel = call.attrs.ints("kernel_shape", tuple(weight.shape[2:]))
    if kernel != weight.shape[2:]:
        raise ModelError(f"kernel_shape={kernel} does not fit the weight {weight.type}")
    return kernel, call.attrs.ints("strides", (1,) * count), call.attrs.ints("dilations", (1,) * count)


def with_bias(b: Builder, out: Value, bias: Value | None) -> Value:
    return out if bias is None else b.add(out, along_axis(b, bias, 1, out.type.rank))


@rule("Conv")
def convolution(b: Builder, call: Call) -> Value:
    """One to three spatial axes."""
    x, weight = call.input(0), call.input(1)
    kernel, strides, dilations = _window_attrs(call, x.type.rank - 2, weight)
    begins, ends = window(call, x.shape[2:], kernel, strides=strides, dilations=dilations)
    out = b.convolution(x, weight, strides=strides, dilations=dilations, pads_begin=begins, pads_end=ends,
                        groups=call.attrs.int("group", 1))
    return with_bias(b, out, call.optional(2))


@rule("ConvTranspose")
def convolution_transpose(b: Builder, call: Call) -> Value:
    """One to three spatial axes; `output_shape` decides the padding where it is given."""
    x, weight = call.input(0), call.input(1)
    count, sizes = x.type.rank - 2, x.shape[2:]
    kernel, strides, dilations = _window_attrs(call, count, weight)
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
