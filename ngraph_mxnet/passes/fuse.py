"""Passes that make one op of several: what surrounds a convolution or a product becomes part of it.

Activations, attention and recurrent cells that were written out become one op each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from ngraph_mxnet.base.errors import TypeRuleError
from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.sizes import are_same, are_same_shape, is_one
from ngraph_mxnet.ir.types import f16, f32
from ngraph_mxnet.passes.base import Answer, RewritePass, Rewriter, uniform
from ngraph_mxnet.passes.simplify import merge_bounds


def host_of(value: Value, rw: Rewriter) -> Node | None:
    """The contraction of real numbers, or scale_shift, whose only result `value` is."""
    node = rw.producer(value)
    if node is None or len(node.outputs) != 1 or node.op.multiplies_bytes:
        return None
    return node if node.op.contraction or node.op.name == "scale_shift" else None


def channel_axis(host: Node) -> int:
    """The axis that a bias runs along: the last of a product, axis 1 elsewhere."""
    return host.output.type.rank - 1 if host.op.kind == "product" else 1


def closed(host: Node, rw: Rewriter) -> str | None:
    """Why nothing that computes may be folded into `host`; None when it may."""
    if not rw.single(host.output):
        return f"{host} has other readers"
    if not host.output.type.element.is_float:
        return "integers"
    if host.attrs.get("lower", -math.inf) != -math.inf or host.attrs.get("upper", math.inf) != math.inf:
        return f"{host} clamps first"
    return None


def channel_vector(value: Value, host: Value, axis: int, rw: Rewriter) -> Value | None:
    """`value` as T[C], if broadcasting it against `host` repeats one number per channel; else None."""
    channels, rank = host.shape[axis], host.type.rank
    if not varies_by_channel_only(value, host, axis):
        return None
    if are_same(value.type.size, channels):
        return rw.reshape(value, (channels,))
    return rw.make("broadcast", rw.reshape(value, ()), shape=(channels,)) if rank else None


def varies_by_channel_only(value: Value, host: Value, axis: int) -> bool:
    rank = host.type.rank
    if value.type.rank > rank or value.type.element != host.type.element:
        return False
    dims = (1,) * (rank - value.type.rank) + value.shape
    return all(is_one(dim) or (at == axis and are_same(dim, host.shape[axis])) for at, dim in enumerate(dims))


def bias_of(host: Node, rw: Rewriter) -> Value:
    """The bias operand, zeros for a host without."""
    if len(host.inputs) > 2:
        return host.inputs[2]
    return rw.constant(np.zeros(host.output.shape[channel_axis(host)], host.output.type.element.numpy))


def with_bias(host: Node, weights: Value, bias: Value, rw: Rewriter, *, origin: Sequence[Node],
              **bounds: float) -> Value:
    """The host anew with other weights and bias, and other bounds if given."""
    operands = (host.inputs[0], weights, bias, *host.inputs[3:])
    return rw.make(host.op.name, *operands, origin=origin, **{**host.attrs, **bounds})


def zero_bias(node: Node, rw: Rewriter) -> Answer:
    """convolution -> convolution with a bias of zeros. Not for integers, which have no bias."""
    if node.epilogue:
        return None
    if not node.output.type.element.is_float:
        return "integers"
    return with_bias(node, node.inputs[1], bias_of(node, rw), rw, origin=(node,))


def default_bias() -> RewritePass:
    """The pass. A matmul stays: without weights (attention) a bias would only cost."""
    return RewritePass("default_bias", {"convolution": [zero_bias]})


def pad_into_convolution(node: Node, rw: Rewriter) -> Answer:
    """convolution(pad(x, 0)) -> convolution(x) with the pads added; begin and end may differ.

    Not for another value than 0, the modes edge and reflect, or a pad of the batch or channel axis.
    """
    pad = rw.producer(node.inputs[0], "pad")
    if pad is None or len(node.outputs) != 1:
        return None
    return _not_spatial(pad) or _not_value(pad, 0) or _merged(node, pad, rw)


def pad_into_average(node: Node, rw: Rewriter) -> Answer:
    """avg_pool(pad(x, 0)) -> avg_pool(x) that counts its padding.

    Not when the pool has padding of its own that does not count: of the two kinds of padding one would.
    """
    pad = rw.producer(node.inputs[0], "pad")
    if pad is None:
        return None
    if not node.attrs["include_pad"] and any(node.attrs["pads_begin"] + node.attrs["pads_end"]):
        return "the pool's own padding does not count, the pad's does"
    return _not_spatial(pad) or _not_value(pad, 0) or _merged(node, pad, rw, include_pad=True)


def pad_into_maximum(node: Node, rw: Rewriter) -> Answer:
    """max_pool(pad(x, v)) -> max_pool(x) with the pads added, when v never exceeds an element of x.

    That is so for v = -inf, and for any v up to the lower bound of the clamp that made x (0 after a ReLU).
    """
    pad = rw.producer(node.inputs[0], "pad")
    if pad is None:
        return None
    if not node.output.type.element.is_float:
        return "integers"
    if not pad.attrs["value"] <= _least(pad.inputs[0], rw):
        return f"the padding value {pad.attrs['value']} may be the greatest in a window"
    return _not_spatial(pad) or _merged(node, pad, rw)


def _least(value: Value, rw: Rewriter) -> float:
    """A number that no element is below."""
    node = rw.producer(value)
    clamped = node is not None and "lower" in node.attrs and value.index == 0
    return node.attrs["lower"] if node is not None and clamped else -math.inf


def _not_spatial(pad: Node) -> str | None:
    """Why the pad is none that a window can have."""
    if pad.attrs["mode"] != "constant":
        return f"the pad's mode is {pad.attrs['mode']}"
    if any(pad.attrs["pads_begin"][:2] + pad.attrs["pads_end"][:2]):
        return "the pad is on the batch or channel axis"
    return None


def _not_value(pad: Node, value: float) -> str | None:
    found = pad.attrs["value"]
    return None if found == value else f"the padding value is {found}, not {value}"


def _merged(node: Node, pad: Node, rw: Rewriter, **changed: Any) -> Value | str:
    # Zeros between the data's elements stand between those of the pad too.
    steps = node.attrs.get("data_dilations") or (1,) * (node.output.type.rank - 2)
    pads = {side: tuple(a + b * step for a, b, step in zip(node.attrs[side], pad.attrs[side][2:], steps, strict=True))
            for side in ("pads_begin", "pads_end")}
    attrs = {**node.attrs, **pads, **changed}
    try:
        return rw.make(node.op.name, pad.inputs[0], *node.inputs[1:], **attrs, origin=(pad, node))
    except TypeRuleError as error:  # a pool's window would lie in the padding altogether
        return str(error)


def pad_fusion() -> RewritePass:
    return RewritePass("pad_fusion", {
        "convolution": [pad_into_convolution],
        "avg_pool": [pad_into_average],
        "max_pool": [pad_into_maximum],
    })


def add_residual(node: Node, rw: Rewriter, name: str = "convolution") -> Answer:
    """add(convolution(x), residual) -> convolution with that residual, of the op `name`.

    The residual has exactly the result's shape. When both operands are convolutions, the later one in
    topological order hosts the addition: the other is ready by then, as its residual. Not when the
    convolution has other readers (so neither when the residual is computed from it), has clamped already,
    or has a residual already.
    """
    hosts, reasons = [], []
    for x, residual in (node.inputs, node.inputs[::-1]):
        host = rw.producer(x, name)
        if host is None or "residual" in host.epilogue:
            continue
        reason = closed(host, rw)
        if reason is None and x.type != residual.type:
            narrow = residual if x.type == node.output.type else x
            reason = f"{narrow.type} broadcasts to {node.output.type}"
        if reason:
            reasons.append(reason)
        else:
            hosts.append((host, residual))
    if not hosts:
        return "; ".join(reasons) or None
    host, residual = max(hosts, key=lambda pair: rw.position(pair[0]))
    operands = host.inputs if host.epilogue else [*host.inputs, bias_of(host, rw)]
    return rw.make(name, *operands, residual, **host.attrs, origin=(host, node))


def residual_fusion() -> RewritePass:
    return RewritePass("residual_fusion", {"add": [add_residual]})


def clamp_into_host(node: Node, rw: Rewriter) -> Answer:
    """clamp(contraction) -> contraction with bounds; bounds that it has already are merged.

    A contraction without bias gets one of zeros.
    Not when the unclamped value has other readers, nor for integers.
    """
    host = host_of(node.inputs[0], rw)
    if host is None:
        return None
    if not rw.single(host.output):
        return f"{host} has other readers"
    if not node.output.type.element.is_float:
        return "integers"
    return with_bias(host, host.inputs[1], bias_of(host, rw), rw, origin=(host, node), **merge_bounds(host, node))


def clamp_before_pool(node: Node, rw: Rewriter) -> Answer:
    """clamp(max_pool(contraction)) -> max_pool(clamp(contraction)), where the clamp is free.

    A clamp is monotonic and every window holds an element, so the order does not matter.
    """
    pool = rw.producer(node.inputs[0], "max_pool")
    host = host_of(pool.inputs[0], rw) if pool else None
    if pool is None or host is None:
        return None
    if not rw.single(pool.output) or not rw.single(host.output):
        return "the pool or what it pools has other readers"
    if not node.output.type.element.is_float:
        return "integers"
    clamped = rw.make("clamp", host.output, **node.attrs)
    return rw.make("max_pool", clamped, **pool.attrs, origin=(pool,))


def clamp_fusion() -> RewritePass:
    return RewritePass("clamp_fusion", {"clamp": [clamp_into_host, clamp_before_pool]})


_NEAR = 1e-6
"""The tolerance for the numbers in a gelu, which are rounded to float32."""


def silu(node: Node, rw: Rewriter) -> Answer:
    """x * sigmoid(x) -> silu(x)."""
    for x, other in (node.inputs, node.inputs[::-1]):
        sigmoid = rw.producer(other, "sigmoid")
        if sigmoid is None or rw.resolve(sigmoid.inputs[0]) is not rw.resolve(x):
            continue
        if not rw.single(sigmoid.output):
            return f"{sigmoid} has other readers"
        return rw.make("silu", x, origin=(sigmoid, node))
    return None


def gelu(node: Node, rw: Rewriter) -> Answer:
    """x * (1 + erf(x / sqrt(2))) * 0.5, its factors in any order -> gelu(x)."""
    number, factors, products = _factors(node.output, rw)
    if len(factors) != 2 or abs(number - 0.5) > _NEAR or node.output.type.element != f32:
        return None
    for x, other in (factors, factors[::-1]):
        sum_ = rw.producer(other, "add")
        one, value = _scalar(sum_, rw) if sum_ is not None else (None, other)
        erf = rw.producer(value, "erf")
        if sum_ is None or erf is None or one != 1 or x.type != node.output.type:
            continue
        scale, sources, _ = _factors(erf.inputs[0], rw)
        if len(sources) != 1 or rw.resolve(sources[0]) is not rw.resolve(x) or abs(scale - sqrt(0.5)) > _NEAR:
            continue
        made = [*products[1:], sum_, erf]
        if not all(rw.single(inner.output) for inner in made):
            return f"{next(inner for inner in made if not rw.single(inner.output))} has other readers"
        return rw.make("gelu", x, origin=(*made[::-1], node))
    return None


def _factors(value: Value, rw: Rewriter, levels: int = 2) -> tuple[float, list[Value], list[Node]]:
    """A product as a number and the other factors, and the products and quotients by numbers that it is made of.

    Products of values are taken apart `levels` deep: two levels make three factors, which nobody wants, and a chain of
    squares would double them at each.
    """
    node = rw.producer(value, "multiply", "divide")
    number, rest = _scalar(node, rw) if node is not None else (None, value)
    if (node is None or (number is None and not levels)
            or (node.op.name == "divide" and (not number or rest is not node.inputs[0]))):
        return 1.0, [value], []
    levels -= number is None
    found = 1.0 if number is None else number
    found = 1 / found if node.op.name == "divide" else found
    factors: list[Value] = []
    nodes = [node]
    for operand in node.inputs if number is None else [rest]:
        more, values, inside = _factors(operand, rw, levels) if operand.type == value.type else (1.0, [operand], [])
        found, factors, nodes = found * more, [*factors, *values], [*nodes, *inside]
    return found, factors, nodes


def gate(node: Node, rw: Rewriter) -> Answer:
    """x * clamp(x * slope + offset, 0, upper) -> hard_swish(x), the slope or the offset left out or not."""
    for x, other in (node.inputs, node.inputs[::-1]):
        clamp = rw.producer(other, "clamp")
        if clamp is None or node.output.type.element != f32 or x.type != other.type:
            continue
        upper = clamp.attrs["upper"]
        slope, offset, source = _affine(clamp.inputs[0], rw)
        if rw.resolve(source) is not rw.resolve(x):
            continue
        if clamp.attrs["lower"] != 0 or not 0 < upper < float("inf"):
            return "the clamp is not from 0 to a finite bound"
        if not rw.single(clamp.output):
            return f"{clamp} has other readers"
        return rw.make("hard_swish", x, slope=slope / upper, offset=offset / upper, scale=upper, origin=(clamp, node))
    return None


def _affine(value: Value, rw: Rewriter) -> tuple[float, float, Value]:
    """Slope, offset and x of x * slope + offset, as far as it is one."""
    slope, offset = 1.0, 0.0
    outer = rw.producer(value, "add")
    if outer is not None:
        number, rest = _scalar(outer, rw)
        if number is not None:
            offset, value = number, rest
    inner = rw.producer(value, "multiply")
    if inner is not None:
        number, rest = _scalar(inner, rw)
        if number is not None:
            slope, value = number, rest
    return slope, offset, value


def _scalar(node: Node, rw: Rewriter) -> tuple[float | None, Value]:
    """The number and the other operand, if one operand is a number that broadcasts nothing."""
    for value, other in (node.inputs, node.inputs[::-1]):
        number = uniform(rw.resolve(other))
        if number is not None and value.type == node.output.type:
            return float(number), value
    return None, node.inputs[0]


def behind_swish(node: Node, rw: Rewriter) -> Answer:
    """hard_swish(x) * c, hard_swish(x) / c and hard_swish(x) + c -> hard_swish(x) with that scale and shift."""
    number, host = _scalar(node, rw)
    inner = rw.producer(host, "hard_swish")
    if number is None or inner is None:
        return None
    if node.op.name == "divide":
        if host is not node.inputs[0] or number == 0:
            return None
        number = 1 / number
    if not rw.single(inner.output):
        return f"{inner} has other readers"
    attrs = dict(inner.attrs)
    if node.op.name == "add":
        attrs["shift"] += number
    else:
        attrs |= {"scale": attrs["scale"] * number, "shift": attrs["shift"] * number}
    return rw.make("hard_swish", inner.inputs[0], origin=(inner, node), **attrs)


def swish_fusion() -> RewritePass:
    return RewritePass("swish_fusion", {"multiply": [silu, gelu, gate, behind_swish],
                                        "divide": [gelu, behind_swish], "add": [behind_swish]})


def scale_shift_of_sum(node: Node, rw: Rewriter, name: str = "convolution") -> Answer:
    """scale_shift(convolution with a residual) -> output 1 of that convolution, of the op `name`; output 0 is the sum.

    Not when scale or shift are known only at run time: they could depend on the sum. Of several scale_shifts
    of one sum the first is fused.
    """
    total = node.inputs[0]
    host = rw.producer(total, name)
    if host is None or "residual" not in host.epilogue or total.index == 1:
        return None
    if "scale" in host.epilogue:
        return "the sum has a scale_shift already"
    if not (rw.static(node.inputs[1]) and rw.static(node.inputs[2])):
        return "scale or shift may differ with every run"
    bounds = {"lower2": node.attrs["lower"], "upper2": node.attrs["upper"]}
    first = rw.make(name, *host.inputs, *node.inputs[1:], origin=(host, node), **{**host.attrs, **bounds})
    assert first.node is not None
    return {total: first, node.output: first.node.outputs[1]}


def fuse_scale_shift() -> RewritePass:
    return RewritePass("fuse_scale_shift", {"scale_shift": [scale_shift_of_sum]})


MOST_KEYS = 2048
"""With more keys the scores of a few queries fill a cache, and separate products are as good."""


class _Scores(NamedTuple):
    """The input of a softmax: `scale` times `queries` by `keys`, masked."""

    product: Node
    scale: float = 1.0
    mask: Value | None = None
    fill: float = -math.inf


def fuse_attention(node: Node, rw: Rewriter) -> Answer:
    """matmul(softmax(masked(scale * matmul(q, k^T))), v) -> attention(q, k, v, mask).

    Masked: a select with one number behind it, or a tensor that is added; after the softmax a select of 0 by the same
    condition. Every step has no other reader. Batches do not broadcast.
    """
    if node.epilogue or node.attrs["transpose_a"]:
        return None
    if node.output.type.rank not in (3, 4) or node.output.type.element not in (f16, f32):
        return None
    weights, values = node.inputs
    cleared = rw.producer(weights, "select")
    if cleared is not None and uniform(rw.resolve(cleared.inputs[2])) == 0:
        weights = cleared.inputs[1]
    else:
        cleared = None
    softmax = rw.producer(weights, "softmax")
    if softmax is None or softmax.attrs["axis"] not in (-1, node.output.type.rank - 1):
        return None
    scores = _scores(softmax.inputs[0], rw)
    if scores is None:
        return None
    if cleared is not None and (scores.mask is None or rw.resolve(cleared.inputs[0]) is not rw.resolve(scores.mask)):
        return f"{cleared} masks otherwise than the scores are"
    read_twice = _read_twice(node, rw)
    if read_twice:
        return read_twice
    queries, keys = scores.product.inputs
    if keys.shape[-2 if scores.product.attrs["transpose_b"] else -1] > MOST_KEYS:
        return f"more than {MOST_KEYS} keys"
    keys = keys if scores.product.attrs["transpose_b"] else _swapped(keys, rw)
    values = _swapped(values, rw) if node.attrs["transpose_b"] else values
    if not all(are_same_shape(each.shape[:-2], queries.shape[:-2]) for each in (keys, values)):
        return "the batches broadcast"
    queries, factor = _unscaled(queries, rw)
    return _make(node, [queries, keys, values], scores._replace(scale=scores.scale * factor), cleared is not None, rw)


def _make(node: Node, operands: list[Value], scores: _Scores, zeroed: bool, rw: Rewriter) -> Value:
    """Heads that were merged with the batch for the products stay apart, so that they need not be copied."""
    batch = _heads_apart(operands, rw)
    if batch is not None:
        operands = [rw.reshape(v if (merge := _merge(v, rw)) is None else merge.inputs[0], (*batch, *v.shape[-2:]))
                    for v in operands]
    if scores.mask is not None:
        mask = scores.mask
        if batch is not None and mask.type.rank == 3:
            lead = batch if are_same(mask.shape[0], math.prod(batch)) or mask.shape[0] != 1 else (1, 1)
            mask = rw.reshape(mask, (*lead, *mask.shape[1:]))
        operands.append(mask)
    out = rw.make("attention", *operands, scale=scores.scale, fill=scores.fill, zeroed=zeroed,
                  origin=(scores.product, node))
    return rw.reshape(out, node.output.shape)


def _heads_apart(operands: Sequence[Value], rw: Rewriter) -> tuple[int, ...] | None:
    """(batch, heads), if operands are merged of these, and no other of others. Of a single query a transpose of heads
    has become a reshape, which shows none."""
    merges = [merge for merge in (_merge(value, rw) for value in operands) if merge is not None]
    found = {merge.inputs[0].shape[:2] for merge in merges}
    return found.pop() if len(found) == 1 else None


def _merge(value: Value, rw: Rewriter) -> Node | None:
    """The reshape that merges two leading axes into the first of `value`."""
    node = rw.producer(value, "reshape")
    if node is None or value.type.rank != 3 or node.inputs[0].type.rank != 4:
        return None
    return node if are_same_shape(node.inputs[0].shape[2:], value.shape[1:]) else None


def _scores(value: Value, rw: Rewriter) -> _Scores | None:
    """Return the scores that `value` is, matched from its last node back; None where it is no scores."""
    node = rw.producer(value)
    if node is None or value.type.rank not in (3, 4):
        return None
    name, inputs = node.op.name, [rw.resolve(v) for v in node.inputs]
    if name == "matmul":
        return None if node.attrs["transpose_a"] or node.epilogue else _Scores(node)
    if name in ("multiply", "divide"):
        for x, other in (inputs, inputs[::-1]) if name == "multiply" else (inputs,):
            factor, inner = uniform(other), _scores(x, rw)
            if factor and inner is not None and inner.mask is None and x.type == value.type:
                return inner._replace(scale=inner.scale * factor if name == "multiply" else inner.scale / factor)
    if name == "add":
        for x, other in (inputs, inputs[::-1]):
            inner = _scores(x, rw)
            if inner is not None and inner.mask is None and x.type == value.type:
                return inner._replace(mask=other)
    if name == "select" and inputs[1].type == value.type:
        inner, fill = _scores(inputs[1], rw), _one_number(inputs[2], rw)
        if inner is not None and inner.mask is None and fill is not None:
            return inner._replace(mask=inputs[0], fill=fill)
    return None


def _one_number(value: Value, rw: Rewriter) -> float | None:
    """The number that fills a constant, be it broadcast."""
    node = rw.producer(value, "broadcast", "reshape")
    return _one_number(rw.resolve(node.inputs[0]), rw) if node is not None else uniform(value)


def _read_twice(node: Node, rw: Rewriter) -> str | None:
    """A value between the products that someone else reads too."""
    value = rw.resolve(node.inputs[0])
    while True:
        maker = rw.producer(value)
        assert maker is not None
        if not rw.single(value):
            return f"{maker} has other readers"
        if maker.op.name == "matmul":
            return None
        value = next(v for v in map(rw.resolve, maker.inputs[1:] if maker.op.name == "select" else maker.inputs)
                     if v.type == value.type and _leads_to_product(v, rw))


def _leads_to_product(value: Value, rw: Rewriter) -> bool:
    node = rw.producer(value)
    return node is not None and (node.op.name == "softmax" or _scores(value, rw) is not None)


def _swapped(value: Value, rw: Rewriter) -> Value:
    """The value with its last axes swapped; what swaps them already goes."""
    order = list(range(value.type.rank))
    order[-2:] = order[:-3:-1]
    inner = rw.producer(value, "transpose")
    if inner is not None and list(inner.attrs["order"]) == order:
        return rw.resolve(inner.inputs[0])
    return rw.make("transpose", value, order=tuple(order))


def _unscaled(value: Value, rw: Rewriter) -> tuple[Value, float]:
    """The queries without a number that multiplies them, which goes to the scores."""
    node = rw.producer(value, "multiply", "divide")
    if node is None or not rw.single(value):
        return value, 1.0
    inputs = [rw.resolve(v) for v in node.inputs]
    for x, other in (inputs, inputs[::-1]) if node.op.name == "multiply" else (inputs,):
        factor = uniform(other)
        if factor and x.type == value.type:
            return x, factor if node.op.name == "multiply" else 1 / factor
    return value, 1.0


def attention_fusion() -> RewritePass:
    return RewritePass("attention_fusion", {"matmul": [fuse_attention]})


def fuse_pick(node: Node, rw: Rewriter) -> Answer:
    """gather_elements(log_softmax(x), indices) -> log_softmax_pick(x, indices), of float32 along the last axis.

    There is an index for each row, and nobody else reads the logarithms.
    """
    logarithms, indices = node.inputs
    softmax = rw.producer(logarithms, "log_softmax")
    if softmax is None:
        return None
    last = logarithms.type.rank - 1
    if any(one.attrs["axis"] not in (-1, last) for one in (node, softmax)):
        return "its rows do not lie along the last axis"
    if logarithms.type.element != f32 or not is_one(indices.shape[-1]):
        return "it is not of one float32 a row"
    if not rw.single(logarithms):
        return f"{softmax} has other readers"
    made = rw.make("log_softmax_pick", softmax.inputs[0], indices, mode=node.attrs["mode"], origin=(softmax, node)).node
    assert made is not None
    return made.outputs[0]


def pick_fusion() -> RewritePass:
    return RewritePass("pick_fusion", {"gather_elements": [fuse_pick]})


_Part = tuple[Value, int]
"""A tensor and which of its equal parts along the columns."""


def lstm_cell(node: Node, rw: Rewriter) -> Answer:
    """sigmoid(o) * tanh(c') with c' = sigmoid(f) * c + sigmoid(i) * tanh(g) -> lstm_cell.

    i, f, g, o are the quarters, in this order, of a sum of two matrices.
    """
    for gate, squashed in (node.inputs, node.inputs[::-1]):
        tanh, o = rw.producer(squashed, "tanh"), _gate(gate, "sigmoid", 4, rw)
        state = rw.producer(tanh.inputs[0], "add") if tanh else None
        if state is None or o is None or o[1] != 3:
            continue
        total = rw.producer(o[0], "add")
        for kept, new in (state.inputs, state.inputs[::-1]):
            before = _other_factor(kept, (o[0], 1), "sigmoid", rw)
            if before is None or not _is_product_of(new, (o[0], 0), (o[0], 2), rw):
                continue
            if total is None or any(v.type != total.output.type for v in total.inputs):
                return "the gates are not a sum of two matrices"
            if before.type != node.output.type:
                return "the cell state is broadcast"
            made = rw.make("lstm_cell", *total.inputs, before, origin=(total, node)).node
            assert made is not None
            return {node.output: made.outputs[0], state.output: made.outputs[1]}
    return None


def gru_cell(node: Node, rw: Rewriter) -> Answer:
    """(1 - z) * tanh(xn + sigmoid(xr + pr) * pn) + z * h with z = sigmoid(xz + pz) -> gru_cell.

    xr, xz, xn are the thirds, in this order, of one matrix, and pr, pz, pn those of another.
    """
    for new, kept in (node.inputs, node.inputs[::-1]):
        product = rw.producer(new, "multiply")
        for rest, tanh in (product.inputs, product.inputs[::-1]) if product else ():
            complement, inner = rw.producer(rest, "subtract"), rw.producer(tanh, "tanh")
            if complement is None or inner is None or uniform(complement.inputs[0]) != 1:
                continue
            update = complement.inputs[1]
            before, matrices = _times(kept, update, rw), _candidate(inner.inputs[0], rw)
            if before is None or matrices is None or before.type != node.output.type:
                continue
            x, p = matrices
            if _is_gate_of_sum(update, (x, 1), (p, 1), rw):
                return rw.make("gru_cell", x, p, before)
    return None


def _candidate(value: Value, rw: Rewriter) -> tuple[Value, Value] | None:
    """x and p of xn + sigmoid(xr + pr) * pn."""
    total = rw.producer(value, "add")
    for own, reset in (total.inputs, total.inputs[::-1]) if total else ():
        x, product = _part(own, 3, rw), rw.producer(reset, "multiply")
        if x is None or x[1] != 2 or product is None:
            continue
        for gate, last in (product.inputs, product.inputs[::-1]):
            p = _part(last, 3, rw)
            if p is not None and p[1] == 2 and _is_gate_of_sum(gate, (x[0], 0), (p[0], 0), rw):
                return x[0], p[0]
    return None


def _is_gate_of_sum(value: Value, first: _Part, second: _Part, rw: Rewriter) -> bool:
    """True if the value is sigmoid(first + second)."""
    gate = rw.producer(value, "sigmoid")
    total = rw.producer(gate.inputs[0], "add") if gate else None
    return total is not None and {_part(v, 3, rw) for v in total.inputs} == {first, second}


def _is_product_of(value: Value, sigmoid: _Part, tanh: _Part, rw: Rewriter) -> bool:
    """True if the value is sigmoid(i) * tanh(g)."""
    product = rw.producer(value, "multiply")
    return product is not None and any(
        _gate(a, "sigmoid", 4, rw) == sigmoid and _gate(b, "tanh", 4, rw) == tanh
        for a, b in (product.inputs, product.inputs[::-1]))


def _other_factor(value: Value, part: _Part, function: str, rw: Rewriter) -> Value | None:
    """c of function(part) * c."""
    product = rw.producer(value, "multiply")
    for a, b in (product.inputs, product.inputs[::-1]) if product else ():
        if _gate(a, function, 4, rw) == part:
            return b
    return None


def _times(value: Value, factor: Value, rw: Rewriter) -> Value | None:
    """h of factor * h."""
    product = rw.producer(value, "multiply")
    for a, b in (product.inputs, product.inputs[::-1]) if product else ():
        if rw.resolve(a) is rw.resolve(factor):
            return b
    return None


def _gate(value: Value, function: str, parts: int, rw: Rewriter) -> _Part | None:
    """The part that `function` is applied to."""
    node = rw.producer(value, function)
    return _part(node.inputs[0], parts, rw) if node else None


def _part(value: Value, parts: int, rw: Rewriter) -> _Part | None:
    """Which of the `parts` equal parts along the columns of which matrix."""
    node = rw.producer(value, "slice")
    if node is None or node.inputs[0].type.rank != 2 or node.attrs["strides"] != (1, 1):
        return None
    rows, columns = node.inputs[0].shape
    size = columns // parts
    if node.output.shape != (rows, size) or size * parts != columns or not size or node.attrs["begin"][1] % size:
        return None
    return rw.resolve(node.inputs[0]), node.attrs["begin"][1] // size


def recurrent_cells() -> RewritePass:
    return RewritePass("recurrent_cells", {"multiply": [lstm_cell], "add": [gru_cell]})
