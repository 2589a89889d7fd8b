"""Recurrent layers: the part that goes step by step, after the product of all inputs with their weights.

With G gates (LSTM 4, GRU 3, else 1), H units and R the size of the hidden state: H, or fewer with a projection.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ngraph_mxnet.ir.attributes import Bool, Choice
from ngraph_mxnet.ir.facts import Rates, Shapes, by_result
from ngraph_mxnet.ir.opdef import Attrs, register_op
from ngraph_mxnet.ops.common import (
    FLOAT,
    common_element,
    in_f32,
    require,
    require_domain,
    require_rank,
    require_shape,
)

GATES = {"relu": 1, "tanh": 1, "lstm": 4, "gru": 3}
"""Gates of each kind of cell."""


def _units(columns: int, cell: str) -> int:
    require(columns % GATES[cell] == 0, "columns of the gates", columns, f"a multiple of {GATES[cell]}")
    return columns // GATES[cell]


def _work(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
    steps, (gates, inner) = prod(operands[0][:2]), operands[1]
    projection = prod(operands[5]) if len(operands) == 6 else 0
    return {"simple": steps * (gates * (inner + 2) + projection), "transcendental": steps * gates * 1.25}


@register_op("rnn", operands=(4, 6), attrs={"cell": Choice("lstm", tuple(GATES)), "reverse": Bool(False)}, work=_work)
def rnn(types, attrs):
    """x T[S, N, G*H], weights T[G*H, R], bias T[G*H], h T[N, R] -> hidden states T[S, N, R], the last one T[N, R].

    One direction of one layer over S steps: x is the inputs' product with their weights, with their bias; each
    step's gates are those of `cell` (see `lstm_cell`, `gru_cell`) on x[t] and h weights^T + bias, where `relu` and
    `tanh` apply that function to the sum of both. `reverse` goes from the last step to the first, the last state
    being that after step 0. LSTM takes also c T[N, H] and returns the last one as third result; a sixth operand
    T[R, H] projects the hidden state: h = projection h'.
    """
    cell = attrs["cell"]
    require_domain(types, FLOAT)
    common_element(types)
    lstm = cell == "lstm"
    require(len(types) in ((5, 6) if lstm else (4,)), f"operands of {cell}", len(types), "5 or 6" if lstm else "4")
    require_rank(types[0], 3, 3)
    steps, batch, columns = types[0].shape
    require(steps > 0, "steps", steps, "at least 1")
    units = _units(columns, cell)
    state = types[5].shape[0] if len(types) > 5 and types[5].shape else units
    wanted = [(columns, state), (columns,), (batch, state), (batch, units), (state, units)]
    for position, (type_, shape) in enumerate(zip(types[1:], wanted, strict=False), 1):
        require_shape(type_, shape, position=position)
    results = [types[0].with_shape((steps, batch, state)), types[3]]
    return [*results, types[4]] if lstm else results


@rnn.reference
@in_f32
def _(inputs, attrs):
    x, weights, bias, h, *rest = inputs
    cell, c = attrs["cell"], rest[0] if rest else None
    out = np.empty((*x.shape[:2], h.shape[1]), x.dtype)
    for t in range(len(x))[:: -1 if attrs["reverse"] else 1]:
        product = h @ weights.T + bias
        if cell == "lstm":
            h, c = _lstm(x[t], product, c)
        elif cell == "gru":
            h = _gru(x[t], product, h)
        else:
            h = np.tanh(x[t] + product) if cell == "tanh" else np.maximum(x[t] + product, 0)
        if len(rest) > 1:
            h = h @ rest[1].T
        out[t] = h
    return [out, h] if c is None else [out, h, c]


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _lstm(x, product, c):
    i, f, g, o = np.split(x + product, 4, axis=-1)
    c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(c), c


def _gru(x, product, h):
    (xr, xz, xn), (pr, pz, pn) = np.split(x, 3, axis=-1), np.split(product, 3, axis=-1)
    z = _sigmoid(xz + pz)
    return (1 - z) * np.tanh(xn + _sigmoid(xr + pr) * pn) + z * h


def _split(operands):
    """Operands of `rnn_gradient`: those of the layer, the states, the head gradients."""
    own = {7: 4, 9: 5, 10: 6}[len(operands)]
    return operands[:own], operands[own], operands[own + 1:]


def _gradient_work(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
    rates = _work(results, (), attrs)
    return {"simple": 3 * rates["simple"], "transcendental": rates["transcendental"]}


@register_op("rnn_gradient", operands=(7, 10), attrs=rnn.schema, work=_gradient_work)
def rnn_gradient(types, attrs):
    """Operands of an `rnn`, its hidden states T[S, N, R], head gradients of its results -> gradients of the operands.

    The gates are computed anew, each step's from the state before it; where a relu gives 0, nothing goes back.
    """
    lstm = attrs["cell"] == "lstm"
    require(len(types) in ((9, 10) if lstm else (7,)), f"operands of {attrs['cell']}", len(types),
            "9 or 10" if lstm else "7")
    own, states, heads = _split(types)
    results = rnn.infer(own, attrs)
    common_element(types)
    for position, (type_, result) in enumerate(zip((states, *heads), (results[0], *results), strict=True), len(own)):
        require_shape(type_, result.shape, position=position)
    return own


@rnn_gradient.reference
@in_f32
def _(inputs, attrs):
    (x, weights, bias, h, *rest), states, (of_states, of_h, *of_rest) = _split(inputs)
    cell, c, of_c = attrs["cell"], rest[0] if rest else None, of_rest[0] if rest else None
    befores, cells = [], []
    for t in range(len(x))[:: -1 if attrs["reverse"] else 1]:  # forth, for the cell states
        product = h @ weights.T + bias
        befores.append((t, h, c, product))
        if cell == "lstm":
            hidden, c = _lstm(x[t], product, c)
            cells.append(hidden)
        h = states[t]
    of_x, of_weights, of_bias = np.empty_like(x), np.zeros_like(weights), np.zeros_like(bias)
    of_projection = [np.zeros_like(projection) for projection in rest[1:]]
    for t, h, c, product in befores[::-1]:
        of_h, direct = of_h + of_states[t], 0
        if of_projection:
            of_projection[0] += of_h.T @ cells.pop()
            of_h = of_h @ rest[1]
        if cell == "lstm":
            of_x[t], of_c = _lstm_back(x[t] + product, c, of_h, of_c)
            of_product = of_x[t]
        elif cell == "gru":
            of_x[t], of_product, direct = _gru_back(x[t], product, h, of_h)
        else:
            of_product = of_x[t] = of_h * (states[t] > 0 if cell == "relu" else 1 - states[t] ** 2)
        of_weights += of_product.T @ h
        of_bias += of_product.sum(axis=0)
        of_h = of_product @ weights + direct
    return [of_x, of_weights, of_bias, of_h, *([] if of_c is None else [of_c]), *of_projection]


def _lstm_back(gates, c, of_h, of_c):
    """Gradients of the gates' sums and of the cell state before the step."""
    i, f, g, o = np.split(gates, 4, axis=-1)
    i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
    after = np.tanh(f * c + i * g)
    of_c = of_c + of_h * o * (1 - after**2)
    parts = of_c * g * i * (1 - i), of_c * c * f * (1 - f), of_c * i * (1 - g**2), of_h * after * o * (1 - o)
    return np.concatenate(parts, axis=-1), of_c * f


def _gru_back(x, product, h, of_h):
    """Gradients of both addends of the gates, and what goes to the hidden state before past them."""
    (xr, xz, xn), (pr, pz, pn) = np.split(x, 3, axis=-1), np.split(product, 3, axis=-1)
    r, z = _sigmoid(xr + pr), _sigmoid(xz + pz)
    n = np.tanh(xn + r * pn)
    of_n = of_h * (1 - z) * (1 - n**2)
    of_r, of_z = of_n * pn * r * (1 - r), of_h * (h - n) * z * (1 - z)
    return np.concatenate([of_r, of_z, of_n], axis=-1), np.concatenate([of_r, of_z, of_n * r], axis=-1), of_h * z


def _cell_types(types, cell):
    require_domain(types, FLOAT)
    common_element(types)
    require_rank(types[0], 2, 2)
    require_shape(types[1], types[0].shape, position=1)
    require_shape(types[2], (types[0].shape[0], _units(types[0].shape[1], cell)), position=2)


@register_op("lstm_cell", operands=3, work=by_result(transcendental=5, simple=7))
def lstm_cell(types, attrs):
    """x T[N, 4H], p T[N, 4H], c T[N, H] -> h T[N, H], c' T[N, H]: one step of an LSTM after both products.

    i, f, g, o are the quarters of x + p; c' = sigmoid(f) c + sigmoid(i) tanh(g) and h = sigmoid(o) tanh(c').
    """
    _cell_types(types, "lstm")
    return [types[2], types[2]]


@lstm_cell.reference
@in_f32
def _(inputs, attrs):
    return list(_lstm(*inputs))


@register_op("gru_cell", operands=3, work=by_result(transcendental=3, simple=7))
def gru_cell(types, attrs):
    """x T[N, 3H], p T[N, 3H], h T[N, H] -> h' T[N, H]: one step of a GRU after both products.

    r, z, n are the thirds: n' = tanh(xn + sigmoid(xr + pr) pn), u = sigmoid(xz + pz) and h' = (1 - u) n' + u h.
    """
    _cell_types(types, "gru")
    return types[2]


@gru_cell.reference
@in_f32
def _(inputs, attrs):
    return _gru(*inputs)
