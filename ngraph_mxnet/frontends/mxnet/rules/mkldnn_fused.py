"""The operators that MXNet's MKL-DNN backend fuses: a convolution or matrix product with what stands around it.

Each carries the graph that it was made of. One in float32 is lowered as that graph. A quantised one computes as MXNet
1.9 does in src/operator/subgraph/mkldnn/mkldnn_conv.cc and mkldnn_fc.cc; on its sums see `quantized_products.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import Attrs, canonical
from ngraph_mxnet.frontends.mxnet.rules.linear import IGNORED, convolved, dense
from ngraph_mxnet.frontends.mxnet.rules.quantization import (
    QUANTIZED,
    REACH_I32,
    Range,
    as_i32,
    calibration,
    ends,
    magnitude,
    number,
    product_range,
    scale,
)
from ngraph_mxnet.frontends.mxnet.rules.registry import Call, find_rule, require_count, rule
from ngraph_mxnet.frontends.mxnet.symbol_json import Edge, SymbolGraph, SymbolNode
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import ElementType, f32, i8, i32, u8
from ngraph_mxnet.ops.compositions import along_axis, limits, reshaped, rounded, saturated, widened, with_bias

Outputs = list[Value]

_FLAGS = ("with_bn", "with_act", "with_sum", "with_postsum_act", "with_relu", "with_postsum_relu", "with_eltwise",
          "quantized")
_LARGEST_BIAS = REACH_I32 / 2
"""Beyond, MKL-DNN's sums would overflow, and MXNet makes the scale smaller."""


def _check_read(attrs: Attrs) -> None:
    if attrs.unread():
        raise UnsupportedError("no support for " + ", ".join(f"{k}={v}" for k, v in attrs.unread().items()))


def _as_graph(b: Builder, graph: SymbolGraph, inputs: Sequence[Value]) -> Outputs:
    """The graph's results for these inputs, all in float32."""
    values: dict[Edge, Value] = {Edge(at, 0): x for at, x in zip(graph.arg_nodes, inputs, strict=True)}
    for node in graph.operators():
        found = find_rule(node.op)
        if found is None:
            raise UnsupportedError(f"no rule for the MXNet operator {node.op} in it")
        attrs = Call(node)
        attrs.ignore(*found.ignored)
        result = found.lower(b, attrs, *(values[edge] for edge in node.inputs))
        _check_read(attrs)
        outputs = [result] if isinstance(result, Value) else result
        values.update((Edge(node.index, position), value) for position, value in enumerate(outputs))
    return [values[head] for head in graph.heads]


def _unquantized(b: Builder, inputs: Sequence[Value], node: SymbolNode) -> Outputs | None:
    """The results of a node that is not quantised."""
    if Call(node).bool("quantized", False):
        return None
    if any(x.element is not f32 for x in inputs):
        raise UnsupportedError("its inputs are not all float32")
    return _as_graph(b, node.body(), inputs)


# ---- activations -----------------------------------------------------------------------------------------------


@dataclass
class _Body:
    """The content of a fused node: the attributes of each operator in its graph."""

    product: Attrs
    batch_norm: Attrs | None = None
    activations: list[Attrs] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)


def _read_body(node: SymbolNode, product: str) -> _Body:
    found: _Body | None = None
    rest: list[SymbolNode] = []
    for inner in node.body().operators():
        if canonical(inner.op) == product and found is None:
            found = _Body(Call(inner))
        else:
            rest.append(inner)
    if found is None:
        raise UnsupportedError(f"its graph has no {product}")
    for inner in rest:
        op, attrs = canonical(inner.op), Call(inner)
        if op == "BatchNorm" and found.batch_norm is None and not found.kinds:
            found.batch_norm = attrs
        elif op in ("Activation", "LeakyReLU", "clip"):
            found.activations.append(attrs)
            found.kinds.append(op)
        elif op != "elemwise_add":
            raise UnsupportedError(f"{inner.op} in a quantised node")
    return found


def _activated(b: Builder, x: Value, op: str, attrs: Attrs, own: Value, with_sum: bool) -> Value:
    """ReLU, leaky ReLU, and a clip from 0 of numbers at the scale `own`.

    Without a sum MXNet leaves a clip out, as rounding saturates where the calibrated range ends.
    """
    if op == "Activation":
        attrs.choice("act_type", None, ("relu",))
        return b.relu(x)
    if op == "LeakyReLU":
        attrs.choice("act_type", "leaky", ("leaky",))
        return b.leaky_relu(x, slope=attrs.float("slope", 0.25))
    if attrs.float("a_min") != 0:
        raise UnsupportedError(f"a clip from {attrs.float('a_min')}, expected 0")
    top = attrs.float("a_max") * own
    return b.minimum(b.relu(x), top) if with_sum else x


def _unsigned(body: _Body, position: int) -> bool:
    """True if an activation leaves nothing negative, so that the result is uint8."""
    return body.kinds[position] in ("Activation", "clip")


# ---- convolution -----------------------------------------------------------------------------------------------


@rule("_sg_mkldnn_conv", operands=(2, 12), parameters=[1, 2, 3, 4, 5, 6], types=QUANTIZED, ignored=_FLAGS)
def fused_convolution(b: Builder, attrs: Call, *inputs: Value) -> Outputs:
    """With batch norm, an activation (ReLU, leaky ReLU, a clip from 0), a sum and ReLU; quantised or in float32.

    Quantised, the node quantises its float32 weight: a scale for each channel where its result is calibrated.
    """
    plain = _unquantized(b, inputs, attrs.node)
    known = calibration(attrs)
    if plain is not None:
        return plain
    body = _read_body(attrs.node, "Convolution")
    no_bias = body.product.bool("no_bias", False)
    with_sum = attrs.bool("with_sum", False)
    expected = 4 + (not no_bias) + 4 * (body.batch_norm is not None) + 3 * with_sum
    require_count(inputs, expected)
    rest = list(inputs)
    x, weight = rest.pop(0), rest.pop(0)
    bias = None if no_bias else rest.pop(0)
    if body.batch_norm is not None:
        weight, bias = _folded(b, body.batch_norm, weight, bias, [rest.pop(0) for _ in range(4)])
    added = rest.pop(0) if with_sum else None
    size = magnitude(b, *rest[:2])
    data_scale = scale(b, x.element, size)
    product = body.product
    product.ignore("no_bias", *IGNORED)

    weight_size = b.reduce_max(b.abs(weight), axes=(0, *range(1, weight.rank)) if known is None else tuple(
        range(1, weight.rank)))
    weight_scale = scale(b, i8, weight_size)
    if known is not None and bias is not None:
        weight_scale = _bounded(b, weight_scale, bias, data_scale)
    by_filter = weight_scale if known is None else along_axis(b, weight_scale, 0, weight.rank)
    whole = rounded(b, weight * by_filter, i8)
    sums = convolved(b, widened(b, x), widened(b, whole), product)
    _check_read(product)
    if bias is not None:
        sums = with_bias(b, sums, as_i32(b, b.round(bias * (weight_scale * data_scale))))

    unsigned = _result_is_unsigned(body, attrs, with_sum)
    element = i32 if known is None else u8 if unsigned else i8
    if known is None:
        own = data_scale * weight_scale
        bounds = product_range(b, x.element, size, weight_size)
    else:
        own, bounds = scale(b, element, magnitude(b, *known)), ends(b, *known)
        factor = own / data_scale / weight_scale
        sums = sums * along_axis(b, factor, 1, sums.rank)
    return _finished(b, body, attrs, sums, (added, rest[2:]), own, element, bounds)


def _folded(b: Builder, attrs: Attrs, weight: Value, bias: Value | None,
            statistics: list[Value]) -> tuple[Value, Value]:
    """The weight and bias of the convolution and the batch norm together."""
    gamma, beta, mean, variance = statistics
    slope = b.rsqrt(variance + attrs.float("eps", 1e-3))
    if not attrs.bool("fix_gamma", True):
        slope = slope * gamma
    if attrs.int("axis", 1) != 1:
        raise UnsupportedError(f"axis={attrs.int('axis', 1)} of a batch norm behind a convolution")
    centred = -mean if bias is None else bias - mean
    return weight * along_axis(b, slope, 0, weight.rank), beta + slope * centred


def _result_is_unsigned(body: _Body, attrs: Attrs, with_sum: bool) -> bool:
    """True if the result is uint8 (MXNet's IsOutputUInt8). With a sum, only the activation behind the sum counts."""
    before = attrs.bool("with_act", attrs.bool("with_relu", False))
    after = attrs.bool("with_postsum_act", attrs.bool("with_postsum_relu", False))
    if len(body.kinds) != before + after:
        raise UnsupportedError(f"it has {len(body.kinds)} activations, expected {before + after}")
    if before and after:
        raise UnsupportedError("activations on both sides of a sum, where MKL-DNN gives what the graph does not")
    if before and not with_sum:
        return _unsigned(body, 0)
    return after and _unsigned(body, -1)


def _finished(b: Builder, body: _Body, attrs: Attrs, x: Value, added: tuple[Value | None, list[Value]], own: Value,
              element: ElementType, bounds: Range) -> Outputs:
    """The result as integers, of sums `x` at its scale `own`: with activations, and with the tensor that is added."""
    other, other_bounds = added
    activations = list(zip(body.kinds, body.activations, strict=True))
    if attrs.bool("with_act", attrs.bool("with_relu", False)):
        x = _activated(b, x, *activations.pop(0), own, other is not None)
    if other is not None:
        ratio = own / scale(b, other.element, magnitude(b, *other_bounds))
        x = x + widened(b, other) * ratio
    for op, how in activations:
        if op != "Activation":
            raise UnsupportedError(f"{op} behind a sum, expected ReLU")
        x = _activated(b, x, op, how, own, True)
    if other is None or element is i32:
        return [rounded(b, x, element), *bounds]
    return [_in_place(b, x, other.element, element), *bounds]


def _in_place(b: Builder, x: Value, held: ElementType, element: ElementType) -> Value:
    """The result where MXNet writes it over the tensor that is added.

    It is saturated in the type of that tensor, `held`; the bits are then read as `element`.
    """
    if held is element:
        return rounded(b, x, element)
    (lower, upper), (_, top) = limits(held), limits(element)
    bounded = b.clamp(x, lower=lower, upper=upper)
    if upper <= top:
        return rounded(b, bounded, element)
    whole = b.round(bounded)
    whole = b.select(whole > top, whole - (2 * top + 2), whole)
    return saturated(b, whole, element)


# ---- matrix product --------------------------------------------------------------------------------------------


@rule("_sg_mkldnn_fully_connected", operands=(2, 9), parameters=[1, 2, 4, 5, 6, 7, 8], types=QUANTIZED, ignored=_FLAGS)
def fused_product(b: Builder, attrs: Call, *inputs: Value) -> Outputs:
    """With an activation; quantised, its result is in 8 bits where it is calibrated, or float32, else in 32 bits.

    With `channel_wise_quantize` the node quantises its float32 weight, with a scale for each row.
    """
    plain = _unquantized(b, inputs, attrs.node)
    known, real = calibration(attrs), attrs.bool("enable_float_output", False)
    by_row = attrs.bool("channel_wise_quantize", False)
    if plain is not None:
        return plain
    inner = [n for n in attrs.node.body().operators() if canonical(n.op) != "FullyConnected"]
    product = next((Call(n) for n in attrs.node.body().operators() if canonical(n.op) == "FullyConnected"), None)
    if product is None:
        raise UnsupportedError("its graph has no FullyConnected")
    count = 2 if product.bool("no_bias", False) else 3
    expected = count + 2 if by_row else 3 * count
    require_count(inputs, expected)
    x, weight, bounds = inputs[0], inputs[1], inputs[count:]
    bias = inputs[2] if count == 3 else None
    size = magnitude(b, *bounds[:2])
    data_scale = scale(b, x.element, size)
    if by_row:
        if known is None and not real:
            raise UnsupportedError("channel_wise_quantize without a calibrated or float result: MXNet raises")
        whole, added, weight_scale = _quantized_rows(b, weight, bias, data_scale)
        weight_size = number(b, 0)
    else:
        weight_size = magnitude(b, *bounds[2:4])
        whole, added, weight_scale = _rescaled(b, weight, bias, data_scale, weight_size, bounds[4:])
    sums = dense(b, widened(b, x), whole, added, product)
    _check_read(product)
    if known is None and not real:
        sums = _only_relu(b, sums, inner)
        return [rounded(b, sums, i32), *product_range(b, x.element, size, weight_size)]
    if real and known is None:
        out = sums * (1 / data_scale / weight_scale)
        return [_behind(b, out, inner)]
    return _in_8_bits(b, sums, inner, cast("tuple[float, float]", known), data_scale, weight_scale)


def _in_8_bits(b: Builder, sums: Value, inner: list[SymbolNode], known: tuple[float, float], data_scale: Value,
               weight_scale: Value) -> Outputs:
    element = u8 if inner else i8
    own = scale(b, element, magnitude(b, *known))
    out = sums * (own / data_scale / weight_scale)
    return [rounded(b, _only_relu(b, out, inner), element), *ends(b, *known)]


def _only_relu(b: Builder, x: Value, inner: list[SymbolNode]) -> Value:
    """x after the operators behind the product, at a quantised scale: ReLU alone, for others need the reals."""
    for node in inner:
        if canonical(node.op) != "Activation" or node.attrs.get("act_type") != "relu":
            raise UnsupportedError(f"{node.op} at a quantised scale, expected ReLU")
        x = b.relu(x)
    return x


def _behind(b: Builder, x: Value, inner: list[SymbolNode]) -> Value:
    """x after the operators behind the product, in float32."""
    for node in inner:
        found = find_rule(node.op)
        if found is None or len(node.inputs) != 1:
            raise UnsupportedError(f"{node.op} behind a quantised product")
        attrs = Call(node)
        attrs.ignore(*found.ignored)
        x = cast(Value, found.lower(b, attrs, x))
        _check_read(attrs)
    return x


def _bounded(b: Builder, weight_scale: Value, bias: Value, data_scale: Value) -> Value:
    """The scale of each filter or row, below where its bias would overflow."""
    bound = _LARGEST_BIAS / b.abs(bias) / data_scale
    return b.minimum(weight_scale, b.select(b.equal(bias, 0), weight_scale, bound))


def _quantized_rows(b: Builder, weight: Value, bias: Value | None,
                    data_scale: Value) -> tuple[Value, Value | None, Value]:
    """A float32 weight in whole numbers, the bias at the sums' scale, and each row's scale."""
    row_scale = scale(b, i8, b.reduce_max(b.abs(weight), axes=(1,)))
    added = None
    if bias is not None:
        row_scale = _bounded(b, row_scale, bias, data_scale)
        added = as_i32(b, b.round(bias * (row_scale * data_scale)))
    whole = rounded(b, weight * reshaped(b, row_scale, (weight.shape[0], 1)), i8)
    return widened(b, whole), added, row_scale


def _rescaled(b: Builder, weight: Value, bias: Value | None, data_scale: Value, weight_size: Value,
              bounds: Sequence[Value]) -> tuple[Value, Value | None, Value]:
    """The int8 weight, the bias at the scale of the sums, and the weight's scale.

    Where the bias would overflow, all of them get a smaller scale.
    """
    whole, weight_scale = widened(b, weight), scale(b, i8, weight_size)
    if bias is None:
        return whole, None, weight_scale
    bias_size = magnitude(b, *bounds)
    bias_scale = scale(b, i8, bias_size)
    factor = data_scale * weight_scale / bias_scale
    largest = _LARGEST_BIAS / bias_size / bias_scale
    too_large = factor > largest
    shrunk = largest * bias_scale / data_scale / weight_scale
    ratio = b.select(too_large, shrunk, 1)
    added = _half_away(b, widened(b, bias) * b.select(too_large, largest, factor))
    shrunk = rounded(b, _half_away(b, whole * ratio), i8)
    return widened(b, shrunk), as_i32(b, added), weight_scale * ratio


def _half_away(b: Builder, x: Value) -> Value:
    """The nearest whole number, halves away from zero, as C's round does it."""
    return b.sign(x) * b.floor(b.abs(x) + 0.5)
