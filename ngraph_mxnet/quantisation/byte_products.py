"""Products of bytes: what they read, and how their operands are made such."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ngraph_mxnet.ir.graph import Graph, Node, Value, constant_of, make_node
from ngraph_mxnet.ir.opdef import get_op
from ngraph_mxnet.ir.sizes import are_same_shape, is_symbolic
from ngraph_mxnet.ir.types import f32, i8, u8
from ngraph_mxnet.passes.base import Answer, RewritePass, Rewriter, uniform
from ngraph_mxnet.passes.fuse import channel_axis, varies_by_channel_only
from ngraph_mxnet.quantisation.calibration import affine
from ngraph_mxnet.quantisation.layers import QUANTIZED

HALF = 128
"""The number that is added to i8 to make it u8."""
FEW_TERMS = (1 << 24) // (255 * 256)
"""The most terms in a sum of products of two bytes less their zero points, such that float32 holds the sum."""
FEW_PARTS = 4
"""In which sums of more terms are cut that no product of bytes takes."""


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
    return rw.make(QUANTIZED[node.op.kind], numbers, whole, bias, factor, addend, **attrs)


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
    data, weights = (rw.producer(value, "dequantize") for value in node.inputs[:2])
    if data is None or weights is None or node.epilogue:
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
    if node.epilogue or None in sides or all(map(rw.static, node.inputs)):
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
    attrs = {key: node.attrs[key] for key in get_op(name).schema}
    return rw.make("convert", rw.make(name, data, weights, zero, weights_zero, **attrs), element="f32")


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
    return QuantizedPass("quantized_products", {
        "convolution": [product_of_bytes, whole_sums],
        "matmul": [product_of_bytes, whole_sums],
        "convert": [real_sums],
        "reshape": [move_before_dequantize, product_of_rows],
        "transpose": [move_before_dequantize],
        "quantize": [known_bytes, same_bytes],
        "multiply": [scaled_numbers],
    })


class UnsignedData:
    """quantize to i8, and the `dequantize` nodes that read that, to u8 with zero points that are greater by 128.

    Also through ops that only move numbers. Not where the bytes are a result, or others read them.
    """

    name = "unsigned_data"

    def run(self, graph: Graph) -> bool:
        if not any(node.op.name == "quantize" for node in graph.nodes):
            return False
        readers, results = graph.readers(), set(graph.results)
        changed: dict[Value, Value] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            starts = node.op.name == "quantize" and node.output.type.element is i8
            reads = node.inputs and node.inputs[0] in changed and node.inputs[0].type.element is i8
            if reads or (starts and _all_widen(node.output, readers, results)):
                nodes += self._unsigned(node, changed)
            else:
                nodes.append(node)
        graph.nodes = nodes
        graph.replace({old: new for old, new in changed.items() if old.type == new.type})
        return bool(changed)

    def _unsigned(self, node: Node, changed: dict[Value, Value]) -> list[Node]:
        """The node anew, with its zero point, if it has one."""
        made: list[Node] = []
        inputs = [changed.get(node.inputs[0], node.inputs[0]), *node.inputs[1:]]
        if len(inputs) == 3:
            points = constant_of(inputs[2])
            assert points is not None
            made.append(make_node("constant", [], {"value": (points.astype(np.int16) + HALF).astype(np.uint8)},
                                  node.origin))
            inputs[2] = made[0].output
        made.append(make_node(node.op.name, inputs, dict(node.attrs), node.origin))
        changed[node.output] = made[-1].output
        return made


def _all_widen(value: Value, readers: Mapping[Value, Sequence[tuple[Node, int]]], results: set[Value]) -> bool:
    """True if all readers of the bytes widen them by known zero points. Readers of moved bytes count, too."""
    node = value.node
    assert node is not None
    if value in results or (node.op.name == "quantize" and constant_of(node.inputs[2]) is None):
        return False
    for reader, position in readers[value]:
        if reader.op.name == "dequantize":
            if position or constant_of(reader.inputs[2]) is None:
                return False
        else:
            moves = reader.op.kind == "movement" and reader.op.selects and len(reader.inputs) == 1
            if not moves or not _all_widen(reader.output, readers, results):
                return False
    return True


_LARGEST_I16 = 32767
_LARGEST_U8 = 255
_ROUNDED_UP = 0.501
"""A quotient in float32 may be a little larger than the exact one."""
_EIGHT = 8


class ShortSums:
    """Sets `short_sums` of quantised products."""

    name = "short_sums"

    def run(self, graph: Graph) -> bool:
        largest: dict[Value, int] = {}
        found = []
        for node in graph.nodes:
            if node.outputs and node.outputs[0].type.element is u8:
                largest[node.outputs[0]] = _largest_result(node, largest)
            if node.attrs.get("short_sums") is False:
                data = max(largest.get(node.inputs[0], _LARGEST_U8), node.attrs.get("pad_value", 0))
                found += [node] if _are_short(node, data) else []
        for node in found:
            node.attrs = {**node.attrs, "short_sums": True}
        return bool(found)


def _largest_result(node: Node, largest: Mapping[Value, int]) -> int:
    """The largest u8 that a node gives; `largest` of those before it."""
    if node.op.selects:
        return max(largest.get(value, _LARGEST_U8) for value in node.inputs)
    affine = _affine(node) if node.op.name == "quantize" else None
    if affine is None:
        return _LARGEST_U8
    scale, zero_point = affine
    whole = np.floor(_upper(node.inputs[0], largest) / scale + _ROUNDED_UP)
    return int(np.clip(whole + zero_point, 0, _LARGEST_U8))


def _upper(value: Value, largest: Mapping[Value, int]) -> float:
    """An upper bound of real numbers, inf where none is known. Of a mean it is that of the data, or of its padding."""
    node = value.node
    if node is None or len(node.outputs) != 1:
        return np.inf
    if node.op.kind == "pool" or node.op.name == "reduce_mean":
        return max(0.0, _upper(node.inputs[0], largest))
    if node.op.name == "dequantize":
        affine = _affine(node)
        return np.inf if affine is None else (largest.get(node.inputs[0], _LARGEST_U8) - affine[1]) * affine[0]
    bounded = node.op.name == "clamp" or node.op.multiplies_bytes
    return float(node.attrs.get("upper", np.inf)) if bounded else np.inf


def _affine(node: Node) -> tuple[float, int] | None:
    """Scale, which is positive, and zero point, if they are known and the same for all."""
    scale, zero_point = map(uniform, node.inputs[1:])
    return None if scale is None or zero_point is None or scale <= 0 else (scale, zero_point)


def _are_short(node: Node, largest: int) -> bool:
    """True if the weights are known, and small enough for data of numbers up to `largest`."""
    weights = constant_of(node.inputs[1])
    inner = 1 if node.op.kind == "convolution" or node.attrs["transpose_b"] else 0
    if weights is None or weights.shape[inner] % _EIGHT:
        return False
    rows = np.moveaxis(weights, inner, -1)
    parts = rows.reshape(*rows.shape[:-1], -1, 2, 2, 2).astype(np.int32)  # [eights][four][pair][channel]
    sums = (np.clip(part, 0, None).sum(axis=(-3, -1)) for part in (parts, -parts))
    return all(each.max(initial=0) * largest <= _LARGEST_I16 for each in sums)


def scale_into_product(node: Node, rw: Rewriter) -> Answer:
    """quantize(product) -> quantize(product) with scale 1. Not of one with a residual, or with other readers."""
    scale = uniform(node.inputs[1])
    host = rw.producer(node.inputs[0], "quantized_convolution", "quantized_matmul")
    if host is None or "residual" in host.epilogue or scale is None or scale == 1 or node.inputs[1].type.rank:
        return None
    if not rw.single(host.output):
        return f"{host} has other readers"
    step = node.inputs[1]
    factor = rw.folded("divide", host.inputs[3], step)
    addend = host.inputs[4] if uniform(host.inputs[4]) == 0 else rw.folded("divide", host.inputs[4], step)
    bounds = {key: host.attrs[key] / scale for key in ("lower", "upper")}
    product = rw.make(host.op.name, *host.inputs[:3], factor, addend, **{**host.attrs, **bounds}, origin=(host,))
    return rw.make("quantize", product, rw.constant(np.float32(1)), node.inputs[2])


def stored_scale() -> RewritePass:
    return QuantizedPass("stored_scale", {"quantize": [scale_into_product]})


def before_selection(node: Node, rw: Rewriter) -> Answer:
    """quantize(select(x, ..)) -> select(quantize(x), ..), where nothing else reads the selection."""
    source, scale, zero_point = node.inputs
    host = rw.producer(source)
    if host is None or not host.op.selects or not rw.single(source) or scale.type.rank:
        return None
    return rw.make(host.op.name, *(rw.make("quantize", value, scale, zero_point) for value in host.inputs),
                   origin=(host,), **host.attrs)


def quantize_early() -> RewritePass:
    return RewritePass("quantize_early", {"quantize": [before_selection]})


def sum_of_pairs(node: Node, rw: Rewriter) -> Answer:
    """quantize(convolution(dequantize(x), dequantize(w)) + dequantize(r)) -> quantize(dequantize(quantize(
    convolution)) + dequantize(r)), clamped as it was, so that a runtime's convolution gives bytes.

    What the convolution gives beyond its range saturates in the sum's bytes, too: the range follows from those of the
    sum and of r. So only a rounding is added, of about a step of the sum. Not where the sum has other readers, or a
    scale is not known.
    """
    host = rw.producer(node.inputs[0], "convolution")
    if host is None or len(host.outputs) > 1 or "residual" not in host.epilogue:
        return None
    pairs = [rw.producer(value, "dequantize") for value in (*host.inputs[:2], host.epilogue["residual"])]
    if None in pairs:
        return "an operand is float"
    if not rw.single(host.output):
        return "the sum has other readers"
    assert pairs[2] is not None
    whole, other = _ends(node), _ends(pairs[2])
    if whole is None or other is None:
        return "a scale or zero point is not known"
    lower, upper = max(whole[0], host.attrs["lower"]), min(whole[1], host.attrs["upper"])
    if lower > upper or not np.isfinite((lower, upper)).all():
        return "its bounds are beyond its range"
    scale, point = affine(lower - other[1], upper - other[0], "u8")
    numbers = rw.constant(scale), rw.constant(np.uint8(point))
    open_ended = {"lower": -np.inf, "upper": np.inf}
    alone = rw.make(host.op.name, *host.inputs[:3], origin=(host,), **{**host.attrs, **open_ended})
    real = rw.make("dequantize", rw.make("quantize", alone, *numbers), *numbers)
    added = rw.make("add", real, host.epilogue["residual"], origin=(host,))
    bounds = {key: host.attrs[key] for key in open_ended}
    bounded = added if bounds == open_ended else rw.make("clamp", added, **bounds, origin=(host,))
    return rw.make("quantize", bounded, *node.inputs[1:], **node.attrs)


def _ends(node: Node) -> tuple[float, float] | None:
    """The least and the greatest real number of the u8 that a `quantize` gives, or that a `dequantize` takes."""
    found = _affine(node)
    element = (node.output if node.op.name == "quantize" else node.inputs[0]).type.element
    if found is None or element is not u8:
        return None
    scale, point = found
    return -point * scale, (_LARGEST_U8 - point) * scale


def sums_of_pairs() -> RewritePass:
    return RewritePass("sums_of_pairs", {"quantize": [sum_of_pairs]})
