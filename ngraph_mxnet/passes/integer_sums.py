"""Sums of integers in i32: of products with float32 results, which hold whole numbers up to 2^24.

Weights are cut into digits of so few bits that the sums with each digit are exact; these come together as i32. Sums of
more than 32,896 terms, for which bits alone are too large, are first cut into sums of fewer. Where the operands don't
fit the products of bytes, the products are of float32, and say that no algorithm may round them; if a few parts of the
terms do, those are taken in place of digits, each of which is a product with all terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.sizes import is_symbolic
from ngraph_mxnet.passes.byte_operands import FEW_PARTS, FEW_TERMS, byte_product, signed
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter
from ngraph_mxnet.passes.quantized_products import QuantizedPass

_EXACT = 1 << 24
_LARGEST_DATA = 255
_BITS = 8
_BLOCK = 16
"""Channels that are stored together."""
MOST_TERMS = _EXACT // (_LARGEST_DATA * 2)
"""Of a sum with digits of one bit, of which the highest is from -2 to 1."""


def sums_of_fewer(node: Node, rw: Rewriter) -> Answer:
    """integer_convolution or integer_matmul of more than MOST_TERMS terms -> the sum of those of parts of the channels.

    i32 wraps around, the parts' sum as the whole one. A convolution's groups are taken apart first.
    """
    if _depth(node) <= MOST_TERMS:
        return None
    return _by_group(node, rw) if node.attrs.get("groups", 1) > 1 else _sum_of_parts(node, rw, _spans(node, MOST_TERMS))


def _by_group(node: Node, rw: Rewriter) -> Value:
    data, weights, zero, weights_zero = node.inputs
    inputs, outputs = (size // node.attrs["groups"] for size in (data.shape[1], weights.shape[0]))
    made = []
    for group in range(node.attrs["groups"]):
        held = [_part(rw, value, 0, group * outputs, (group + 1) * outputs) if value.type.rank else value
                for value in (weights, weights_zero)]
        made.append(rw.make(node.op.name, _part(rw, data, 1, group * inputs, (group + 1) * inputs), held[0], zero,
                            held[1], **{**node.attrs, "groups": 1}))
    return rw.make("concat", *made, axis=1)


def _sum_of_parts(node: Node, rw: Rewriter, spans: Sequence[tuple[int, int]]) -> Value:
    """The sum of those of some of the channels, or places of a row, each."""
    data, weights, *zeros = node.inputs
    axes = _summed(node)
    total, *others = (rw.make(node.op.name, _part(rw, data, axes[0], *span), _part(rw, weights, axes[1], *span), *zeros,
                              **node.attrs) for span in spans)
    for other in others:
        total = rw.make("add", total, other)
    return total


def _summed(node: Node) -> tuple[int, int]:
    """The axes of data and weights that are summed over."""
    if node.op.kind == "convolution":
        return 1, 1
    return -2 if node.attrs["transpose_a"] else -1, -1 if node.attrs["transpose_b"] else -2


def _spans(node: Node, terms: int) -> list[tuple[int, int]]:
    """Parts of the axis that is summed over, each of so many terms at most and of whole blocks, if that holds any; none
    where one channel has more."""
    weights = node.inputs[1]
    size = weights.shape[_summed(node)[1]]
    most = terms // (prod(weights.shape[2:]) if node.op.kind == "convolution" else 1)
    most = most // _BLOCK * _BLOCK or most
    return [(first, min(first + most, size)) for first in range(0, size, most)] if most else []


def _part(rw: Rewriter, value: Value, axis: int, first: int, end: int) -> Value:
    """The elements from `first` to `end` along an axis."""
    begin, ends = [0] * value.type.rank, list(value.shape)
    begin[axis], ends[axis] = first, end
    return rw.folded("slice", value, begin=begin, end=ends)


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
        if bits < _BITS and not is_symbolic(_depth(node)) and node.attrs.get("groups", 1) == 1:
            spans = _spans(node, FEW_TERMS) if _depth(node) <= FEW_PARTS * FEW_TERMS else []
            if 1 < len(spans) <= FEW_PARTS:
                return _sum_of_parts(node, rw, spans)
        numbers, centred = _centred(rw, data, zero, 0), _centred(rw, weights, weights_zero, axis)
        name = "convolution" if node.op.kind == "convolution" else "matmul"
        attrs = {**node.attrs, "exact": True}
        products = [rw.make(name, numbers, digit, **attrs) for digit in _digits(rw, centred, bits)]
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


def _depth(node: Node) -> int:
    """How many terms a sum has."""
    weights = node.inputs[1]
    if node.op.kind == "product":
        return weights.shape[-1 if node.attrs["transpose_b"] else -2]
    return prod(weights.shape[1:])


def _bits(node: Node, sign: int) -> int:
    """The most bits of a digit with which float32 holds all sums. `sign`: the weights have one beside their 8 bits."""
    depth = _depth(node)
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
    return QuantizedPass("integer_sums", {
        "integer_convolution": [sums_of_fewer, sums_of_digits],
        "integer_matmul": [sums_of_fewer, sums_of_digits],
    })
