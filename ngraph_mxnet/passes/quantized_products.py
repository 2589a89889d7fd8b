"""Products of numbers that are stored in 8 bits become products of bytes, with exact sums.

    convolution(dequantize(x), dequantize(w)) -> quantized_convolution(x, w), and so matmul

What only moves numbers goes in front of `dequantize`: it moves bytes then, and what it stood between are neighbours.
This runs before constants are folded, as long as weights are seen as bytes with scales.
"""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.ir.graph import Graph, Node, constant_of
from ngraph_mxnet.ir.sizes import are_same_shape, is_symbolic
from ngraph_mxnet.ir.types import f32
from ngraph_mxnet.passes.byte_operands import FEW_PARTS, FEW_TERMS, byte_product
from ngraph_mxnet.passes.contraction import channel_axis, varies_by_channel_only
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter, uniform

_SUMS = ("integer_convolution", "integer_matmul")
_MODERATE = (1e-30, 1e30)
"""Scales with which no byte is lost that becomes a real number and a byte again."""


class QuantizedPass(RewritePass):
    """A pass that concerns graphs with numbers of 8 bits only."""

    def run(self, graph: Graph) -> bool:
        self.misses = []
        concerned = any(node.op.multiplies_bytes or node.op.name in ("quantize", "dequantize") for node in graph.nodes)
        return concerned and super().run(graph)


def product_of_bytes(node: Node, rw: Rewriter) -> Answer:
    """convolution or matmul(dequantize(x), dequantize(w)) -> the quantised one.

    The factor is x's scale times w's. Not where data are weights too, or the weights may differ with every call.
    """
    data, weights = (rw.producer(value, "dequantize") for value in node.inputs)
    if data is None or weights is None:
        return None
    if rw.static(node.inputs[0]) or not rw.static(node.inputs[1]):
        return "one side must be data, and the other weights"
    axis = 0 if node.op.kind == "convolution" or node.attrs["transpose_b"] else weights.output.type.rank - 1
    scale = weights.inputs[1]
    if data.inputs[1].type.rank or (scale.type.rank and weights.attrs["axis"] % weights.output.type.rank != axis):
        return "scales along the axis that is summed over"
    factor = rw.folded("multiply", data.inputs[1], scale)
    if not factor.type.rank:
        factor = rw.folded("broadcast", factor, shape=(weights.output.shape[axis],))
    return byte_product(node, rw, (data.inputs[0], data.inputs[2]), (weights.inputs[0], weights.inputs[2]), factor)


def whole_sums(node: Node, rw: Rewriter) -> Answer:
    """convolution or matmul(dequantize(x), dequantize(w)) with scales of 1 -> integer_convolution or integer_matmul, in
    float32: exact where the product of bytes can't be."""
    sides = [rw.producer(value, "dequantize") for value in node.inputs]
    if None in sides or all(map(rw.static, node.inputs)):
        return None
    (data, x_scale, zero), (weights, w_scale, weights_zero) = (side.inputs for side in sides if side is not None)
    axis = 0 if node.op.kind == "convolution" else weights.type.rank - (2 if node.attrs["transpose_b"] else 1)
    along = sides[1].attrs["axis"] % weights.type.rank if sides[1] is not None and weights_zero.type.rank else axis
    if uniform(x_scale) != 1 or uniform(w_scale) != 1 or zero.type.rank or along != axis:
        return None
    depth = weights.shape[-1 if node.attrs["transpose_b"] else -2] if node.op.kind == "product" else 0
    if is_symbolic(depth) or depth > FEW_PARTS * FEW_TERMS:
        return "a product of float32 is faster, and of the same sums but for their last bits"
    name = "integer_convolution" if node.op.kind == "convolution" else "integer_matmul"
    return rw.make("convert", rw.make(name, data, weights, zero, weights_zero, **node.attrs), element="f32")


def real_sums(node: Node, rw: Rewriter) -> Answer:
    """convert(integer_convolution or integer_matmul) to float32 -> the quantised one, with factors of 1; also where a
    reshape, or the sum with an i32 for each channel, stands between."""
    inner = rw.producer(node.inputs[0])
    if inner is None or node.output.type.element is not f32 or not rw.single(node.inputs[0]):
        return None
    if inner.op.name == "reshape":
        return rw.make("reshape", rw.make("convert", inner.inputs[0], element="f32"), **inner.attrs)
    if inner.op.name == "add":
        for x, other in (inner.inputs, inner.inputs[::-1]):
            host = rw.producer(x, *_SUMS)
            if host is not None and varies_by_channel_only(other, x, channel_axis(host)):
                return rw.make("add", *(rw.make("convert", value, element="f32") for value in (x, other)))
        return None
    if inner.op.name not in _SUMS:
        return None
    data, weights, zero, weights_zero = inner.inputs
    return byte_product(inner, rw, (data, zero), (weights, weights_zero), None)


def move_before_dequantize(node: Node, rw: Rewriter) -> Answer:
    """reshape or transpose(dequantize(q)) -> dequantize(reshape or transpose(q))."""
    inner = rw.producer(node.inputs[0], "dequantize")
    if inner is None:
        return None
    q, scale, zero = inner.inputs
    axis = inner.attrs["axis"]
    if scale.type.rank:
        if node.op.name == "reshape":
            return "a scale for each index of an axis"
        axis = node.attrs["order"].index(axis % q.type.rank)
    return rw.make("dequantize", rw.make(node.op.name, q, **node.attrs), scale, zero, axis=axis)


def known_bytes(node: Node, rw: Rewriter) -> Answer:
    """quantize of constants -> a constant: so weights are that are kept in float32 and quantised in the model."""
    if any(constant_of(value) is None for value in node.inputs):
        return None
    return rw.folded("quantize", *node.inputs, **node.attrs)


def same_bytes(node: Node, rw: Rewriter) -> Answer:
    """quantize(dequantize(q)) with the same scale and zero point -> q."""
    inner = rw.producer(node.inputs[0], "dequantize")
    if inner is None or inner.inputs[0].type != node.output.type:
        return None
    pairs = [(constant_of(one), constant_of(other)) for one, other in
             zip(node.inputs[1:], inner.inputs[1:], strict=True)]
    if any(one is None or other is None or one.ndim or not np.array_equal(one, other) for one, other in pairs):
        return None
    scale = uniform(node.inputs[1])
    return inner.inputs[0] if _MODERATE[0] < scale < _MODERATE[1] else "an extreme scale"


def scaled_numbers(node: Node, rw: Rewriter) -> Answer:
    """multiply(dequantize(q), s) -> dequantize(q) with scale s, where that was 1: for a constant s > 0."""
    for x, other in (node.inputs, node.inputs[::-1]):
        inner, factor = rw.producer(x, "dequantize"), uniform(other)
        if inner is None or factor is None or uniform(inner.inputs[1]) != 1 or inner.inputs[1].type.rank:
            continue
        if other.type.size == 1 and factor > 0 and are_same_shape(x.shape, node.output.shape):
            return rw.make("dequantize", inner.inputs[0], rw.constant(np.float32(factor)), inner.inputs[2])
    return None


def product_of_rows(node: Node, rw: Rewriter) -> Answer:
    """reshape(quantized_matmul(reshape(x))) -> quantized_matmul(x), where the rows of x are those of the product."""
    product = rw.producer(node.inputs[0], "quantized_matmul")
    inner = rw.producer(product.inputs[0], "reshape") if product is not None else None
    if product is None or inner is None or not rw.single(product.output):
        return None
    x, result = inner.inputs[0], node.output.shape
    depth, channels = product.inputs[0].shape[-1], product.output.shape[-1]
    if x.type.rank < 2 or x.shape[-1] != depth or not are_same_shape(result, (*x.shape[:-1], channels)):
        return None
    return rw.make("quantized_matmul", x, *product.inputs[1:], **product.attrs, origin=(product,))


def quantized_products() -> RewritePass:
    """The pass."""
    return QuantizedPass("quantized_products", {
        "convolution": [product_of_bytes, whole_sums],
        "matmul": [product_of_bytes, whole_sums],
        "convert": [real_sums],
        "reshape": [move_before_dequantize, product_of_rows],
        "transpose": [move_before_dequantize],
        "quantize": [known_bytes, same_bytes],
        "multiply": [scaled_numbers],
    })
