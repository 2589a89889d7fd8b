"""What follows a quantised product becomes part of it: biases, factors, residuals, bounds.

As the fusions do it that make one op of a float32 contraction and its neighbours; there weights are scaled, here the
factors of the sums. Integers that are added stay integers, so that sums are rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ngraph_mxnet.ir.graph import Node, Value, constant_of
from ngraph_mxnet.ir.sizes import are_same_shape, is_symbolic
from ngraph_mxnet.ir.types import f32, i8, i32, u8
from ngraph_mxnet.passes.algebraic import merge_bounds
from ngraph_mxnet.passes.contraction import channel_axis, channel_vector, closed, varies_by_channel_only
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter, uniform
from ngraph_mxnet.passes.quantized_products import QuantizedPass

_INTEGERS = (i8, u8, i32)
_CLOSE = 1e-5
"""How far the scale of a bias may be from that of the products, relatively, to count as the same."""
_LARGEST_BIAS = 1 << 30
_LARGEST_I32 = float(np.nextafter(np.float32(2**31), np.float32(0)))
"""As float32 holds it."""


def _host(value: Value, rw: Rewriter) -> Node | None:
    """The quantised product whose only result `value` is."""
    node = rw.producer(value)
    fits = node is not None and node.op.multiplies_bytes and len(node.outputs) == 1 and value.type.element is f32
    return node if fits else None


def _anew(host: Node, node: Node, rw: Rewriter, bounds: Mapping[str, float] | None = None, *,
          bias: Value | None = None, factor: Value | None = None, addend: Value | None = None) -> Value:
    """The host with other bounds and vectors, in the place of `node`, too."""
    vectors = [new or old for new, old in zip((bias, factor, addend), host.inputs[2:5], strict=True)]
    operands = (*host.inputs[:2], *vectors, *host.inputs[5:])
    return rw.make(host.op.name, *operands, **{**host.attrs, **(bounds or {})}, origin=(host, node))


def _are_bare_sums(host: Node) -> bool:
    """Whether the host gives its sums as they are."""
    return uniform(host.inputs[3]) == 1 and uniform(host.inputs[4]) == 0 and len(host.inputs) == 5


def _hosts(node: Node, rw: Rewriter) -> list[tuple[Node, Value, Value]]:
    """Hosts among the operands, each with its result and what there is of the other operand for each channel."""
    found = []
    for x, other in (node.inputs, node.inputs[::-1]):
        host = _host(x, rw)
        if host is None or not varies_by_channel_only(other, x, channel_axis(host)):
            continue
        if are_same_shape(x.shape, node.output.shape) and (rw.static(other) or other.type.size != x.type.size):
            found.append((host, x, other))
    return found


def add_bias(node: Node, rw: Rewriter) -> Answer:
    """add(product, b[C]) -> product with an addend, or with a bias: where b is of integers at the products' scale."""
    for host, x, other in _hosts(node, rw):
        reason = closed(host, rw)
        if reason:
            return reason
        whole = _integers(other, host, rw)
        axis = channel_axis(host)
        if whole is not None:
            vector = _vector(whole, x, axis, rw)
            bias = vector if uniform(host.inputs[2]) == 0 else rw.folded("add", host.inputs[2], vector)
            return _anew(host, node, rw, bias=bias)
        addend = channel_vector(other, x, axis, rw)
        assert addend is not None
        return _anew(host, node, rw, addend=addend if uniform(host.inputs[4]) == 0 else
                     rw.folded("add", host.inputs[4], addend))
    return None


def _vector(value: Value, x: Value, axis: int, rw: Rewriter) -> Value:
    """An i32 of one number, or one for each channel, as i32[C]."""
    channels = x.shape[axis]
    if value.type.size == 1 and channels != 1:
        return rw.folded("broadcast", rw.reshape(value, ()), shape=(channels,))
    return rw.reshape(value, (channels,))


def _integers(value: Value, host: Node, rw: Rewriter) -> Value | None:
    """What is added as i32, if it is whole at the scale of the sums, and nothing real was added before."""
    if uniform(host.inputs[4]) != 0:
        return None
    array, factors = constant_of(value), constant_of(host.inputs[3])
    bare = uniform(host.inputs[3]) == 1
    if array is not None:
        whole = bare and array.size and (np.rint(array) == array).all() and np.abs(array).max() <= _LARGEST_BIAS
        return rw.constant(array.astype(np.int32)) if whole else None
    node = rw.producer(value)
    while node is not None and node.op.name == "reshape":
        node = rw.producer(node.inputs[0])
    if node is not None and node.op.name == "multiply" and factors is not None and not bare:
        for numbers, scale in (node.inputs, node.inputs[::-1]):
            steps, inner = constant_of(scale), rw.producer(numbers, "convert")
            same = steps is not None and steps.size in (1, factors.size) and np.allclose(
                steps.reshape(-1), factors, rtol=_CLOSE, atol=0)
            if same and inner is not None and inner.inputs[0].type.element is i32:
                return inner.inputs[0]
        return None
    if bare and node is not None and node.op.name == "convert" and node.inputs[0].type.element in _INTEGERS:
        whole = node.inputs[0]
        return whole if whole.type.element is i32 else rw.make("convert", whole, element="i32")
    return None


def multiply_factor(node: Node, rw: Rewriter) -> Answer:
    """multiply(product, s[C]) -> product with its factor and addend times s."""
    for host, x, other in _hosts(node, rw):
        reason = closed(host, rw) or ("its residual would have to be scaled too" if len(host.inputs) > 5 else None)
        if reason:
            return reason
        scale = channel_vector(other, x, channel_axis(host), rw)
        assert scale is not None
        return _scaled(host, node, scale, None, rw)
    return None


def _scaled(host: Node, node: Node, scale: Value, shift: Value | None, rw: Rewriter,
            bounds: Mapping[str, float] | None = None) -> Value:
    """The host times `scale`, plus `shift`."""
    _, _, _, factor, addend = host.inputs
    factor = scale if uniform(factor) == 1 else rw.folded("multiply", factor, scale)
    if uniform(addend) != 0:
        addend = rw.folded("multiply", addend, scale)
        addend = addend if shift is None else rw.folded("add", addend, shift)
    elif shift is not None:
        addend = shift
    return _anew(host, node, rw, bounds, factor=factor, addend=addend)


def scale_shift_into_product(node: Node, rw: Rewriter) -> Answer:
    """scale_shift(product) -> product with other factors, addends and bounds; of one with a residual its output 1."""
    host = _host(node.inputs[0], rw)
    if host is None:
        return None
    if host.op.name == "quantized_convolution_add":
        if not (rw.static(node.inputs[1]) and rw.static(node.inputs[2])):
            return "scale or shift may differ with every run"
        first = rw.make("quantized_convolution_add_scale_shift", *host.inputs, *node.inputs[1:], origin=(host, node),
                        **host.attrs, lower2=node.attrs["lower"], upper2=node.attrs["upper"])
        assert first.node is not None
        return {host.output: first, node.output: first.node.outputs[1]}
    if host.op.kind == "product" and host.output.type.rank != 2:
        return "channels are not the last axis of the product"
    return closed(host, rw) or _scaled(host, node, node.inputs[1], node.inputs[2], rw, node.attrs)


def add_residual(node: Node, rw: Rewriter) -> Answer:
    """add(quantized_convolution, residual) -> quantized_convolution_add; of two convolutions the later one hosts it."""
    hosts = []
    for x, residual in (node.inputs, node.inputs[::-1]):
        host = _host(x, rw)
        if host is not None and host.op.name == "quantized_convolution" and x.type == residual.type:
            hosts.append((host, residual))
    free = [pair for pair in hosts if closed(pair[0], rw) is None]
    if not free:
        return closed(hosts[0][0], rw) if hosts else None
    host, residual = max(free, key=lambda pair: rw.position(pair[0]))
    return rw.make("quantized_convolution_add", *host.inputs, residual, **host.attrs, origin=(host, node))


def sum_of_images(node: Node, rw: Rewriter) -> Answer:
    """quantize(add(dequantize(a), dequantize(b))) -> quantize(quantized_convolution_add), for images a of u8; also with
    a clamp.

    A depthwise convolution of one tap of weight 1 reads a as bytes, adds b as its residual, and stores bytes.
    """
    clamp = rw.producer(node.inputs[0], "clamp")
    total = rw.producer(clamp.inputs[0] if clamp is not None else node.inputs[0], "add")
    if total is None or total.output.type.rank not in (3, 4) or is_symbolic(total.output.shape[1]):
        return None
    first, second = (rw.producer(value, "dequantize") for value in total.inputs)
    if first is None or second is None or not first.output.type == second.output.type == total.output.type:
        return None
    zero, step = uniform(first.inputs[2]), uniform(first.inputs[1])
    if first.inputs[0].type.element is not u8 or zero is None or step is None or first.inputs[1].type.rank:
        return None
    if not rw.single(total.output) or (clamp is not None and not rw.single(clamp.output)):
        return f"{total} has other readers"
    channels, axes = total.output.shape[1], total.output.type.rank - 2
    vectors = [rw.constant(np.full(channels, number, kind)) for number, kind in
               ((-zero, np.int32), (step, np.float32), (0, np.float32))]
    weights = rw.constant(np.ones((channels, 1, *[1] * axes), np.int8))
    bounds = dict(clamp.attrs) if clamp is not None else {}
    made = rw.make("quantized_convolution_add", first.inputs[0], weights, *vectors, second.output, groups=channels,
                   pad_value=zero, **bounds, origin=(total, node))
    return rw.make("quantize", made, *node.inputs[1:])


def bounds_into_product(node: Node, rw: Rewriter) -> Answer:
    """clamp(product) -> product with bounds. Bounds as far as those of i32 are none to sums."""
    host, limits = _host(node.inputs[0], rw), np.iinfo(np.int32)
    if host is None:
        return None
    if _are_bare_sums(host) and node.attrs["lower"] <= limits.min and node.attrs["upper"] >= _LARGEST_I32:
        return node.inputs[0]
    if not rw.single(host.output):
        return f"{host} has other readers"
    return _anew(host, node, rw, merge_bounds(host, node))


def round_sums(node: Node, rw: Rewriter) -> Answer:
    """round(sums) -> sums."""
    host = _host(node.inputs[0], rw)
    return node.inputs[0] if host is not None and _are_bare_sums(host) else None


def convert_sums_and_back(node: Node, rw: Rewriter) -> Answer:
    """convert(convert(sums) to i32) to f32 -> sums."""
    inner = rw.producer(node.inputs[0], "convert")
    if inner is None or node.inputs[0].type.element is not i32 or node.output.type.element is not f32:
        return None
    host = _host(inner.inputs[0], rw)
    return inner.inputs[0] if host is not None and _are_bare_sums(host) else None


def quantized_fusion() -> RewritePass:
    """The pass."""
    return QuantizedPass("quantized_fusion", {
        "add": [add_bias, add_residual],
        "multiply": [multiply_factor],
        "scale_shift": [scale_shift_into_product],
        "clamp": [bounds_into_product],
        "quantize": [sum_of_images],
        "round": [round_sums],
        "convert": [convert_sums_and_back],
    })
