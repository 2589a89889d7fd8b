"""Affine folding: elementwise arithmetic with one number per channel goes into the contraction before it."""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.sizes import are_same_shape, is_one
from ngraph_mxnet.passes.affine import fold_affine
from ngraph_mxnet.passes.contraction import (
    NO_CLAMP,
    channel_axis,
    channel_vector,
    closed,
    host_of,
    varies_by_channel_only,
    with_bias,
)
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter


def add_bias(node: Node, rw: Rewriter) -> Answer:
    """add(contraction, b[C]) -> contraction with bias (added to the one it has).

    `b` has any shape that broadcasts. A `b` of the full shape is a bias only when it is a weight; else it is
    a residual (`residual_fusion`).
    """
    answer: Answer = None
    for x, other in (node.inputs, node.inputs[::-1]):
        host = host_of(x, rw)
        if host is None or not varies_by_channel_only(other, x, channel_axis(host)):
            continue
        if are_same_shape(other.shape, node.output.shape) and not rw.static(other):
            continue
        reason = closed(host, rw)
        if reason:
            answer = reason
            continue
        bias = channel_vector(other, x, channel_axis(host), rw)
        assert bias is not None
        if host.op.name not in ("convolution", "matmul"):
            bias = rw.make("add", host.inputs[2], bias)
        return with_bias(host, host.inputs[1], bias, rw, origin=(host, node))
    return answer


def subtract_bias(node: Node, rw: Rewriter) -> Answer:
    """subtract(contraction, b[C]) -> contraction with bias -b. Not b - contraction."""
    found = _host_and_vector(node.inputs[0], node.inputs[1], rw)
    if found is None:
        return None
    host, vector = found
    return fold_affine(host, None, rw.make("negative", vector), node, rw)


def multiply_weights(node: Node, rw: Rewriter) -> Answer:
    """multiply(contraction, s[C]) -> contraction with weights and bias times s."""
    for x, other in (node.inputs, node.inputs[::-1]):
        found = _host_and_vector(x, other, rw)
        if found is not None:
            return fold_affine(*found, None, node, rw)
    return None


def divide_weights(node: Node, rw: Rewriter) -> Answer:
    """divide(contraction, s[C]) -> contraction with weights and bias times 1/s, which rounds once more."""
    found = _host_and_vector(node.inputs[0], node.inputs[1], rw)
    if found is None:
        return None
    host, vector = found
    return fold_affine(host, rw.make("reciprocal", vector), None, node, rw)


def _host_and_vector(x: Value, other: Value, rw: Rewriter) -> tuple[Node, Value] | None:
    host = host_of(x, rw)
    if host is None or not x.type.element.is_float or not rw.static(other):
        return None
    vector = channel_vector(other, x, channel_axis(host), rw)
    return None if vector is None else (host, vector)


def multiply_add(node: Node, rw: Rewriter) -> Answer:
    """add or subtract(multiply(x, s), t) -> scale_shift, for weights or constants s and t.

    One of them is per channel. Two plain numbers are left to elementwise fusion, and so is a product with
    other readers.
    """
    pairs = [node.inputs, node.inputs[::-1]] if node.op.name == "add" else [node.inputs]
    for product, t in pairs:
        inner = rw.producer(product, "multiply")
        if inner is None or not rw.static(t) or product.type.rank < 2 or not product.type.element.is_float:
            continue
        for x, s in (inner.inputs, inner.inputs[::-1]):
            fits = x.type == product.type and all(varies_by_channel_only(v, x, 1) for v in (s, t))
            if not fits or not rw.static(s) or rw.static(x) or (is_one(s.type.size) and is_one(t.type.size)):
                continue
            if not rw.single(product):
                return f"{inner} has other readers"
            scale, shift = channel_vector(s, x, 1, rw), channel_vector(t, x, 1, rw)
            assert scale is not None and shift is not None
            if node.op.name == "subtract":
                shift = rw.make("negative", shift)
            return rw.make("scale_shift", x, scale, shift, **NO_CLAMP, origin=(inner, node))
    return None


def affine_folding() -> RewritePass:
    """The pass."""
    return RewritePass("affine_folding", {
        "add": [add_bias, multiply_add],
        "subtract": [subtract_bias, multiply_add],
        "multiply": [multiply_weights],
        "divide": [divide_weights],
    })
