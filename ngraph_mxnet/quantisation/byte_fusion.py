"""Passes for what follows products of bytes: their epilogues, tables of bytes, sums of integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from ngraph_mxnet.ir.graph import Node, Value, constant_of
from ngraph_mxnet.ir.sizes import are_same_shape, is_symbolic, is_zero
from ngraph_mxnet.ir.types import f32, i8, i32, u8
from ngraph_mxnet.ops.quantization import BYTES
from ngraph_mxnet.passes import fuse
from ngraph_mxnet.passes.base import Answer, RewritePass, Rewriter, uniform
from ngraph_mxnet.passes.fuse import channel_axis, channel_vector, closed, scale_shift_of_sum, varies_by_channel_only
from ngraph_mxnet.passes.simplify import merge_bounds
from ngraph_mxnet.quantisation.byte_products import FEW_PARTS, FEW_TERMS, QuantizedPass, byte_product, signed
from ngraph_mxnet.quantisation.layers import weight_axes

_INTEGERS = (i8, u8, i32)
_CLOSE = 1e-5
"""How far the scale of a bias may be from that of the products, relatively, to count as the same."""
_LARGEST_BIAS = 1 << 30
_LARGEST_I32 = float(np.nextafter(np.float32(2**31), np.float32(0)))
"""The largest i32 that float32 holds."""


def _host(value: Value, rw: Rewriter) -> Node | None:
    node = rw.producer(value)
    fits = node is not None and node.op.multiplies_bytes and len(node.outputs) == 1 and value.type.element is f32
    return node if fits else None


def _anew(host: Node, node: Node, rw: Rewriter, bounds: Mapping[str, float] | None = None, **vectors: Value) -> Value:
    """The host with other bounds and vectors, in the place of `node`, too."""
    operands = (*host.inputs[:2], *{**host.epilogue, **vectors}.values())
    return rw.make(host.op.name, *operands, **{**host.attrs, **(bounds or {})}, origin=(host, node))


def _are_bare_sums(host: Node) -> bool:
    """True if the host's results are its sums, with a factor of 1, an addend of 0 and no residual."""
    return uniform(host.inputs[3]) == 1 and uniform(host.inputs[4]) == 0 and "residual" not in host.epilogue


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
    """Return the addend as i32, if it is whole at the scale of the sums, and nothing real was added before."""
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
        reason = closed(host, rw)
        if reason or "residual" in host.epilogue:
            return reason or "its residual would have to be scaled too"
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
    if "residual" in host.epilogue:
        return scale_shift_of_sum(node, rw, host.op.name)
    if host.op.kind == "product" and host.output.type.rank != 2:
        return "channels are not the last axis of the product"
    return closed(host, rw) or _scaled(host, node, node.inputs[1], node.inputs[2], rw, node.attrs)


def add_residual(node: Node, rw: Rewriter) -> Answer:
    """add(quantized_convolution, residual) -> quantized_convolution with that residual."""
    return fuse.add_residual(node, rw, "quantized_convolution")


def sum_of_images(node: Node, rw: Rewriter) -> Answer:
    """quantize(add(dequantize(a), dequantize(b))) -> quantize(quantized_convolution), for images a of u8. Also with a
    clamp.

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
    made = rw.make("quantized_convolution", first.inputs[0], weights, *vectors, second.output, groups=channels,
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
    return QuantizedPass("quantized_fusion", {
        "add": [add_bias, add_residual],
        "multiply": [multiply_factor],
        "scale_shift": [scale_shift_into_product],
        "clamp": [bounds_into_product],
        "quantize": [sum_of_images],
        "round": [round_sums],
        "convert": [convert_sums_and_back],
    })


_MOST_NODES = 32


def _elementwise(node: Node) -> list[Value]:
    """The operands that broadcast to the result; the others are vectors of channels, or tables."""
    return node.inputs[:1] if node.op.by_channel else node.inputs


def _may_be_inside(node: Node) -> bool:
    """True if the node may lie between source and end. A `quantize` may not: it makes the source, or is a lookup by
    now."""
    return node.op.kind == "arithmetic" or (node.op.by_channel and node.op.name != "quantize")


def _cone(end: Node, rw: Rewriter) -> tuple[Value, list[Node]] | None:
    """The only u8 value that the node's result is a function of, and the nodes between, in order."""
    nodes: dict[Node, None] = {}
    source: Value | None = None
    waiting = [end]
    while waiting:
        node = waiting.pop()
        if node in nodes:
            continue
        nodes[node] = None
        if len(nodes) > _MOST_NODES:
            return None
        for value in _elementwise(node):
            if constant_of(value) is not None:
                continue
            inner = value.node
            if inner is not None and _may_be_inside(inner) and _same_places(inner, end):
                waiting.append(inner)
            elif value.type.element is u8 and source in (None, value):
                source = value
            else:
                return None
    if source is None or not are_same_shape(source.shape, end.output.shape):
        return None
    return source, sorted(nodes, key=rw.position)


def _same_places(node: Node, end: Node) -> bool:
    """True if the node is elementwise over the end's places, with constant steps where it quantises."""
    if len(node.outputs) != 1 or not are_same_shape(node.output.shape, end.output.shape):
        return False
    return all(constant_of(value) is not None for value in node.inputs[len(_elementwise(node)):])


def _table(source: Value, nodes: list[Node]) -> np.ndarray | None:
    """Return the result for each byte, and for each channel if channels differ. Return None where numbers differ along
    another axis."""
    rank = source.type.rank
    channels = 1
    for node in nodes:
        whole = len(_elementwise(node))
        for at, value in enumerate(node.inputs):
            constant = constant_of(value)
            if constant is None or constant.size == 1 or (node.op.name == "lookup" and constant.ndim == 1):
                continue
            if at >= whole:
                axis = node.attrs.get("axis", 1) % max(rank, 1)
            else:
                padded = (1,) * (rank - constant.ndim) + constant.shape
                axis = 1 if rank > 1 and constant.size == padded[1] else 0
            if axis != 1:
                return None
            channels = source.shape[1]
    every = np.arange(BYTES, dtype=np.uint8)
    shape = (BYTES, channels, *(1,) * (rank - 2))[:max(rank, 1)]
    arrays = {source: np.broadcast_to(every.reshape(-1, *(1,) * (len(shape) - 1)), shape)}
    for node in nodes:
        operands = [arrays[value] if value in arrays else constant_of(value) for value in node.inputs]
        with np.errstate(all="ignore"):
            arrays[node.output], = node.op.evaluate([np.asarray(operand) for operand in operands], node.attrs)
    table = np.broadcast_to(arrays[nodes[-1].output], shape).reshape(BYTES, channels)
    return np.ascontiguousarray(table[:, 0] if channels == 1 else table.T)


def _lookup(node: Node, rw: Rewriter) -> Answer:
    if node.output.type.element is not u8 or is_zero(node.output.type.size) or not _same_places(node, node):
        return None
    found = _cone(node, rw)
    if found is None:
        return None
    source, nodes = found
    table = _table(source, nodes)
    return None if table is None else rw.make("lookup", source, rw.constant(table), origin=tuple(nodes))


def _widened(node: Node, rw: Rewriter) -> Answer:
    if any(constant_of(value) is None for value in node.inputs):
        return None
    return rw.folded("dequantize", *node.inputs, **node.attrs)


def byte_functions() -> QuantizedPass:
    return QuantizedPass("byte_functions", {"quantize": [_lookup], "dequantize": [_widened]})


_EXACT = 1 << 24
_LARGEST_DATA = 255
_BITS = 8
_BLOCK = 16
"""Channels that are stored together."""
MOST_TERMS = _EXACT // (_LARGEST_DATA * 2)
"""The most terms of a sum with digits of one bit, of which the highest is from -2 to 1."""


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
    begin, ends = [0] * value.type.rank, list(value.shape)
    begin[axis], ends[axis] = first, end
    return rw.folded("slice", value, begin=begin, end=ends)


def sums_of_digits(node: Node, rw: Rewriter) -> Answer:
    """integer_convolution or integer_matmul(x, w) -> the sum of the products of x with digits of w, times 2^k."""
    data, weights, zero, weights_zero = node.inputs
    axis = weight_axes(node)[0]
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


def _depth(node: Node) -> int:
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
    """Return the digits of the weights, of the same type, lowest first. All digits but the last are not negative."""
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
    return QuantizedPass("integer_sums", {
        "integer_convolution": [sums_of_fewer, sums_of_digits],
        "integer_matmul": [sums_of_fewer, sums_of_digits],
    })
