"""Operands of the quantised products: data in u8, weights in i8, and what zero points add to the sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngraph_mxnet.ir.graph import Node, Value, constant_of
from ngraph_mxnet.ir.types import i8, u8
from ngraph_mxnet.passes.pattern import Rewriter, uniform

HALF = 128
"""What is added to i8 to make it u8."""
FEW_TERMS = (1 << 24) // (255 * 256)
"""Of a sum of products of two bytes less their zero points, such that float32 holds it."""
FEW_PARTS = 4
"""In which sums of more terms are cut that no product of bytes takes."""
_QUANTIZED = {"convolution": "quantized_convolution", "product": "quantized_matmul"}


def byte_product(node: Node, rw: Rewriter, data: tuple[Value, Value], weights: tuple[Value, Value],
                 factor: Value | None) -> Value | str:
    """The product of bytes that `node` is of, as a quantised one; or why it can't be.

    Args:
        node: a convolution or matrix product, of whose operands only the attributes count.
        data, weights: numbers and their zero points.
        factor: one for each output channel, or None for ones.
    """
    reason = _unfit(node, weights[0], data[1])
    axis = 0 if node.op.kind == "convolution" or node.attrs["transpose_b"] else 1
    whole = None if reason else signed(rw, *weights, axis)
    halves = None if reason or whole is not None or node.attrs.get("groups", 1) > 1 else _halves(*weights, axis)
    if whole is None and halves is None:
        return reason or "weights less their zero points may not fit i8"
    numbers, point = unsigned(rw, *data)
    attrs = dict(node.attrs)
    if node.op.kind == "convolution":
        if point is None:
            numbers = _bordered(rw, numbers, data[1], attrs["pads_begin"], attrs["pads_end"])
            attrs |= dict.fromkeys(("pads_begin", "pads_end"), (0,) * len(attrs["strides"]))
        attrs["pad_value"] = point or 0
    if whole is None:
        assert halves is not None
        summed = 1 if node.op.kind == "convolution" else numbers.type.rank - 1
        numbers, whole = _twice(rw, numbers, summed), rw.constant(np.concatenate(halves, 1 - axis))
    channels = whole.shape[axis]
    bias = _correction(rw, whole, axis, data[1], point)
    factor = factor or rw.constant(np.ones(channels, np.float32))
    addend = rw.constant(np.zeros(channels, np.float32))
    return rw.make(_QUANTIZED[node.op.kind], numbers, whole, bias, factor, addend, **attrs)


def _unfit(node: Node, weights: Value, zero: Value) -> str | None:
    """Why the kernels of bytes don't do it, whatever the numbers are."""
    if zero.type.rank:
        return "data have more than one zero point"
    if node.op.kind == "product":
        return "the right operand is no single matrix" if weights.type.rank != 2 or node.attrs["transpose_a"] else None
    if any(step > 1 for step in node.attrs["data_dilations"]):
        return "data_dilations"
    return None


def unsigned(rw: Rewriter, data: Value, zero: Value) -> tuple[Value, int | None]:
    """Data as u8, and their zero point if it is known."""
    point = uniform(zero)
    if data.type.element is u8:
        return data, point
    moved = rw.producer(data, "reshape")
    if moved is not None:
        numbers, point = unsigned(rw, moved.inputs[0], zero)
        return rw.make("reshape", numbers, **moved.attrs), point
    one = rw.constant(np.float32(1))
    real = rw.make("dequantize", data, one, rw.constant(np.int8(0)))
    return rw.make("quantize", real, one, rw.constant(np.uint8(HALF))), None if point is None else point + HALF


def _bordered(rw: Rewriter, numbers: Value, zero: Value, begin: Sequence[int], end: Sequence[int]) -> Value:
    """Images of u8 with so many pixels around them on each axis that are their zero point, which comes with the call:
    no kernel can have that as a number."""
    if any((*begin, *end)) and zero.type.element is i8:
        zero = rw.make("convert", _of_unsigned(rw, zero), element="u8")
    for axis, sizes in enumerate(zip(begin, end, strict=True), 2):
        around = [rw.make("broadcast", zero, shape=tuple(size if at == axis else length for at, length in enumerate(
            numbers.shape))) if size else None for size in sizes]
        parts = [part for part in (around[0], numbers, around[1]) if part is not None]
        numbers = rw.make("concat", *parts, axis=axis) if len(parts) > 1 else numbers
    return numbers


def _of_unsigned(rw: Rewriter, zero: Value) -> Value:
    """The zero point of data as u8: i32."""
    shifted = rw.make("convert", zero, element="i32")
    return rw.make("add", shifted, rw.constant(np.int32(HALF))) if zero.type.element is i8 else shifted


def signed(rw: Rewriter, weights: Value, zero: Value, axis: int) -> Value | None:
    """Weights less their zero points as i8; None where they may not fit. `zero` is one for all, or one for each index
    of `axis`."""
    points, array = constant_of(zero), constant_of(weights)
    if points is None:
        return None
    middle = 0 if weights.type.element is i8 else HALF
    if (points == middle).all() and (not middle or array is None):
        if not middle:
            return weights
        centred = rw.make("subtract", rw.make("convert", weights, element="i32"), rw.constant(np.int32(middle)))
        return rw.make("convert", centred, element="i8")
    whole = _centred(weights, zero, axis)
    return None if whole is None or not _fits(whole) else rw.constant(whole.astype(np.int8))


def _centred(weights: Value, zero: Value, axis: int) -> np.ndarray | None:
    """Constant weights less their zero points."""
    points, array = constant_of(zero), constant_of(weights)
    if points is None or array is None:
        return None
    if points.ndim:
        points = points.reshape([-1 if at == axis else 1 for at in range(array.ndim)])
    return array.astype(np.int16) - points


def _fits(whole: np.ndarray) -> bool:
    bounds = np.iinfo(np.int8)
    return bool(whole.min(initial=0) >= bounds.min and whole.max(initial=0) <= bounds.max)


def _halves(weights: Value, zero: Value, axis: int) -> list[np.ndarray] | None:
    """Two of i8 whose sum constant weights less their zero points are; None where these are as large as 255."""
    whole = _centred(weights, zero, axis)
    if whole is None:
        return None
    halves = [whole // 2, whole - whole // 2]
    return [half.astype(np.int8) for half in halves] if all(map(_fits, halves)) else None


def _twice(rw: Rewriter, data: Value, axis: int) -> Value:
    """Data with their channels, or columns, twice: what lies along `axis`."""
    moved = rw.producer(data, "reshape") if data.type.rank == 2 else None
    if moved is not None and moved.inputs[0].shape[-1] == data.shape[-1]:
        x = moved.inputs[0]  # it stays a reshape of rows, as products of more than two axes have it
        joined = rw.make("concat", x, x, axis=x.type.rank - 1)
        return rw.make("reshape", joined, shape=(data.shape[0], 2 * data.shape[1]))
    return rw.make("concat", data, data, axis=axis)


def _correction(rw: Rewriter, weights: Value, axis: int, zero: Value, point: int | None) -> Value:
    """-zero point times the sum of the weights, for each index of `axis`: i32. `point` is that of u8, if known."""
    if point == 0:
        return rw.constant(np.zeros(weights.shape[axis], np.int32))
    others = tuple(at for at in range(weights.type.rank) if at != axis)
    sums = rw.folded("reduce_sum", rw.folded("convert", weights, element="i32"), axes=others)
    if point is not None:
        return rw.folded("multiply", sums, rw.constant(np.int32(-point)))
    return rw.make("multiply", sums, rw.make("negative", _of_unsigned(rw, zero)))
