"""Attention fusion: matrix product, mask, softmax and matrix product become `attention`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.sizes import are_same, are_same_shape
from ngraph_mxnet.ir.types import f16, f32
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter, uniform

MOST_KEYS = 2048
"""With more keys the scores of a few queries fill a cache, and separate products are as good."""


@dataclass(frozen=True)
class _Scores:
    """What a softmax sees: `scale` times `queries` by `keys`, masked."""

    product: Node
    scale: float = 1.0
    mask: Value | None = None
    fill: float = -math.inf


def fuse_attention(node: Node, rw: Rewriter) -> Answer:
    """matmul(softmax(masked(scale * matmul(q, k^T))), v) -> attention(q, k, v, mask).

    Masked: a select with one number behind it, or a tensor that is added; after the softmax a select of 0 by the same
    condition. Every step has no other reader. Batches do not broadcast.
    """
    if node.attrs["transpose_a"] or node.output.type.rank not in (3, 4) or node.output.type.element not in (f16, f32):
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
    return _make(node, [queries, keys, values], replace(scores, scale=scores.scale * factor), cleared is not None, rw)


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
    """What makes `value`, from its end."""
    node = rw.producer(value)
    if node is None or value.type.rank not in (3, 4):
        return None
    name, inputs = node.op.name, [rw.resolve(v) for v in node.inputs]
    if name == "matmul":
        return None if node.attrs["transpose_a"] else _Scores(node)
    if name in ("multiply", "divide"):
        for x, other in (inputs, inputs[::-1]) if name == "multiply" else (inputs,):
            factor, inner = uniform(other), _scores(x, rw)
            if factor and inner is not None and inner.mask is None and x.type == value.type:
                return replace(inner, scale=inner.scale * factor if name == "multiply" else inner.scale / factor)
    if name == "add":
        for x, other in (inputs, inputs[::-1]):
            inner = _scores(x, rw)
            if inner is not None and inner.mask is None and x.type == value.type:
                return replace(inner, mask=other)
    if name == "select" and inputs[1].type == value.type:
        inner, fill = _scores(inputs[1], rw), _one_number(inputs[2], rw)
        if inner is not None and inner.mask is None and fill is not None:
            return replace(inner, mask=inputs[0], fill=fill)
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
    """The pass."""
    return RewritePass("attention_fusion", {"matmul": [fuse_attention]})
