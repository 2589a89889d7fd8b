"""Recurrent cells that were unrolled into elementwise ops become one op for each step's gates."""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter, uniform

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
    """Whether the value is sigmoid(first + second)."""
    gate = rw.producer(value, "sigmoid")
    total = rw.producer(gate.inputs[0], "add") if gate else None
    return total is not None and {_part(v, 3, rw) for v in total.inputs} == {first, second}


def _is_product_of(value: Value, sigmoid: _Part, tanh: _Part, rw: Rewriter) -> bool:
    """Whether the value is sigmoid(i) * tanh(g)."""
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
    """The pass."""
    return RewritePass("recurrent_cells", {"multiply": [lstm_cell], "add": [gru_cell]})
