"""Attention and recurrent cells that were written out become one op each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.sizes import are_same, are_same_shape
from ngraph_mxnet.ir.types import f16, f32
from ngraph_mxnet.passes.base import Answer, RewritePass, Rewriter, uniform

MOST_KEYS = 2048
"""With more keys the scores of a few queries fill a cache, and separate products are as good."""


@dataclass(frozen=True)
class _Scores:
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
    """Return the scores that `value` is, matched from its last node back; None where it is no scores."""
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
    return RewritePass("attention_fusion", {"matmul": [fuse_attention]})


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
