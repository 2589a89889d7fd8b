"""Sums of integers in i32: of products with float32 results, which hold whole numbers up to 2^24.

Weights are cut into digits of so few bits that the sums with each digit are exact; these come together as i32. That can
be done with up to 65,793 terms; with more, sums might not fit i32 either. Where the operands don't fit the products of
bytes, the products are of float32.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.sizes import is_symbolic
from ngraph_mxnet.passes.byte_operands import byte_product, signed
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter
from ngraph_mxnet.passes.quantized_products import QuantizedPass

_EXACT = 1 << 24
_LARGEST_DATA = 255
_BITS = 8


def sums_of_digits(node: Node, rw: Rewriter) -> Answer:
    """integer_convolution or integer_matmul(x, w) -> the sum of the products of x with digits of w, times 2^k."""
    data, weights, zero, weights_zero = node.inputs
    axis = _channel_axis(node)
    whole = signed(rw, weights, weights_zero, axis)
    products: list[Value | str] = ["of float32"]
    if whole is not None:
        bits = _bits(node, sign=0)
        none = rw.constant(np.int8(0))
        products = [byte_product(node, rw, (data, zero), (digit, none), None) for digit in _digits(rw, whole, bits)]
    if any(isinstance(product, str) for product in products):
        bits = _bits(node, sign=1)
        numbers, centred = _centred(rw, data, zero, 0), _centred(rw, weights, weights_zero, axis)
        name = "convolution" if node.op.kind == "convolution" else "matmul"
        products = [rw.make(name, numbers, digit, **node.attrs) for digit in _digits(rw, centred, bits)]
    total: Value | None = None
    for place, product in enumerate(products):
        assert isinstance(product, Value)
        part = rw.make("convert", product, element="i32")
        if place:
            part = rw.make("multiply", part, rw.constant(np.int32(1 << place * bits)))
        total = part if total is None else rw.make("add", total, part)
    return total


def _channel_axis(node: Node) -> int:
    """Of the weights: along the outputs."""
    rank = node.inputs[1].type.rank
    return 0 if node.op.kind == "convolution" else rank - 2 if node.attrs["transpose_b"] else rank - 1


def _bits(node: Node, sign: int) -> int:
    """The most bits of a digit with which float32 holds all sums. `sign`: the weights have one beside their 8 bits."""
    weights = node.inputs[1]
    depth = prod(weights.shape[1:])
    if node.op.kind == "product":
        depth = weights.shape[-1 if node.attrs["transpose_b"] else -2]
    if is_symbolic(depth):
        return 1
    for bits in (_BITS, 4, 2):
        largest = (1 << bits) - 1 + sign if bits < _BITS or sign else 1 << bits - 1
        if depth * _LARGEST_DATA * largest <= _EXACT:
            return bits
    return 1


def _digits(rw: Rewriter, numbers: Value, bits: int) -> list[Value]:
    """Of the weights, of the same type, lowest first: all but the last are not negative."""
    if bits == _BITS:
        return [numbers]
    element, left = numbers.type.element.name, numbers
    if element != "f32":
        left = rw.folded("convert", numbers, element="f32")
    digits = []
    for _ in range(_BITS // bits - 1):
        higher = rw.folded("floor", rw.folded("multiply", left, rw.constant(np.float32(1 / (1 << bits)))))
        digits.append(rw.folded("subtract", left, rw.folded("multiply", higher, rw.constant(np.float32(1 << bits)))))
        left = higher
    digits.append(left)
    return digits if element == "f32" else [rw.folded("convert", digit, element=element) for digit in digits]


def _centred(rw: Rewriter, numbers: Value, zero: Value, axis: int) -> Value:
    """Numbers less their zero points, in float32."""
    if zero.type.rank:
        zero = rw.reshape(zero, [zero.shape[0] if at == axis else 1 for at in range(numbers.type.rank)])
    wide = (rw.folded("convert", value, element="f32") for value in (numbers, zero))
    return rw.folded("subtract", *wide)


def integer_sums() -> RewritePass:
    """The pass."""
    return QuantizedPass("integer_sums", {"integer_convolution": [sums_of_digits], "integer_matmul": [sums_of_digits]})
