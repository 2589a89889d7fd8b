"""Recurrent layers: the part that goes step by step, after the product of all inputs with their weights.

With G gates (LSTM 4, GRU 3, else 1), H units and R the size of the hidden state: H, or fewer with a projection.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ngraph_mxnet.ir.opdef import Attrs, Rates, Shapes, by_result, register_op
from ngraph_mxnet.ir.types import Bool, Choice
from ngraph_mxnet.ops.common import (
    FLOAT,
    Types,
    common_element,
    in_f32,
    require,
    require_domain,
    require_rank,
    require_shape,
)
from ngraph_mxnet.ops.elementwise import arrays_of

GATES = {"relu": 1, "tanh": 1, "lstm": 4, "gru": 3}
"""Gates of each kind of cell."""


def _units(columns: int, cell: str) -> int:
    require(columns % GATES[cell] == 0, "columns of the gates", columns, f"a multiple of {GATES[cell]}")
    return columns // GATES[cell]


def _require_operands(types: Types, cell: str) -> None:
    require_domain(types, FLOAT)
    common_element(types)
    wanted, text = ((5, 6), "5 or 6") if cell == "lstm" else ((4,), "4")
    require(len(types) in wanted, f"operands of {cell}", len(types), text)


def _work(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
    steps, (gates, inner) = prod(operands[0][:2]), operands[1]
    projection = prod(operands[5]) if len(operands) == 6 else 0
    return {"simple": steps * (gates * (inner + 2) + projection), "transcendental": steps * gates * 1.25}


def _counts(operands: Shapes, results: Shapes, attrs: Attrs) -> tuple[int, int]:
    return prod(operands[0][:2]) * prod(operands[1]), prod(operands[0])


@register_op("rnn", operands=(4, 6), attrs={"cell": Choice("lstm", tuple(GATES)), "reverse": Bool(False)}, work=_work,
             counts=_counts)
def rnn(types, attrs):
    """x T[S, N, G*H], weights T[G*H, R], bias T[G*H], h T[N, R] -> hidden states T[S, N, R], the last one T[N, R].

    One direction of one layer over S steps: x is the inputs' product with their weights, with their bias; each
    step's gates are those of `cell` (see `lstm_cell`, `gru_cell`) on x[t] and h weights^T + bias, where `relu` and
    `tanh` apply that function to the sum of both. `reverse` goes from the last step to the first, the last state
    being that after step 0. LSTM takes also c T[N, H] and returns the last one as third result; a sixth operand
    T[R, H] projects the hidden state: h = projection h'.
    """
    cell = attrs["cell"]
    _require_operands(types, cell)
    require_rank(types[0], 3, 3)
    steps, batch, columns = types[0].shape
    require(steps > 0, "steps", steps, "at least 1")
    units = _units(columns, cell)
    state = types[5].shape[0] if len(types) > 5 and types[5].shape else units
    wanted = [(columns, state), (columns,), (batch, state), (batch, units), (state, units)]
    for position, (type_, shape) in enumerate(zip(types[1:], wanted, strict=False), 1):
        require_shape(type_, shape, position=position)
    results = [types[0].with_shape((steps, batch, state)), types[3]]
    return [*results, *types[4:5]]


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
    return arrays_of(x.dtype.type).sigmoid(x)


def _lstm(x, product, c):
    i, f, g, o = np.split(x + product, 4, axis=-1)
    c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(c), c


def _gru(x, product, h):
    (xr, xz, xn), (pr, pz, pn) = np.split(x, 3, axis=-1), np.split(product, 3, axis=-1)
    z = _sigmoid(xz + pz)
    return (1 - z) * np.tanh(xn + _sigmoid(xr + pr) * pn) + z * h


def _reset_first_work(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
    elements = prod(results[0])
    return {"simple": elements * (3 * results[1][1] + 10), "transcendental": elements * 3}


def _reset_first_counts(operands: Shapes, results: Shapes, attrs: Attrs) -> tuple[int, int]:
    return prod(operands[0][:2]) * (prod(operands[1]) + prod(operands[3])), prod(operands[0])


@register_op("gru_reset_first", operands=6, attrs={"reverse": Bool(False)}, work=_reset_first_work,
             counts=_reset_first_counts)
def gru_reset_first(types, attrs):
    """x T[S, N, 3H], weights T[2H, H], bias T[2H], own T[H, H], own bias T[H], h T[N, H] -> states T[S, N, H], T[N, H].

    `rnn` with a GRU that resets h before its product, as first published (https://arxiv.org/abs/1406.1078). r and z are
    sigmoids of the first two thirds of x[t] plus those of h weights^T + bias. n is tanh of the last third plus
    (r h) own^T + own bias, and h' = (1 - z) n + z h. Results: the hidden states, and the last one.
    """
    require_domain(types, FLOAT)
    common_element(types)
    require_rank(types[0], 3, 3)
    steps, batch, columns = types[0].shape
    require(steps > 0, "steps", steps, "at least 1")
    units = _units(columns, "gru")
    for position, shape in enumerate([(2 * units, units), (2 * units,), (units, units), (units,), (batch, units)], 1):
        require_shape(types[position], shape, position=position)
    return [types[0].with_shape((steps, batch, units)), types[5]]


@gru_reset_first.reference
@in_f32
def _(inputs, attrs):
    x, weights, bias, own, own_bias, h = inputs
    out = np.empty((*x.shape[:2], h.shape[1]), x.dtype)
    for t in range(len(x))[:: -1 if attrs["reverse"] else 1]:
        xr, xz, xn = np.split(x[t], 3, axis=-1)
        pr, pz = np.split(h @ weights.T + bias, 2, axis=-1)
        z = _sigmoid(xz + pz)
        h = (1 - z) * np.tanh(xn + (_sigmoid(xr + pr) * h) @ own.T + own_bias) + z * h
        out[t] = h
    return [out, h]


SLOPES = {"relu": 1, "tanh": 1, "lstm": 6, "gru": 5}
"""How many numbers `rnn_training` keeps for each unit, by cell."""


@register_op("rnn_training", operands=(4, 6), attrs=rnn.schema, work=_work)
def rnn_training(types, attrs):
    """The operands of `rnn` -> its results, and slopes T[S, N, P*H], all that `rnn_gradient` needs of the layer's way.

    relu and tanh have 1: the derivative. GRU has 5: the gates' parts of the gradient of h', as multiples of it (r, z,
    n), then r and z. LSTM has 6: what goes from h' to c', then the parts of the gates i, f and g as multiples of the
    gradient of c', that of o as one of h', and f; with a projection a seventh, h' before it.
    """
    results = rnn.infer(types, attrs)
    steps, batch, columns = types[0].shape
    parts = SLOPES[attrs["cell"]] + (len(types) == 6)
    return [*results, types[0].with_shape((steps, batch, parts * (columns // GATES[attrs["cell"]])))]


@rnn_training.reference
@in_f32
def _(inputs, attrs):
    x, weights, bias, h, *rest = inputs
    cell, c = attrs["cell"], rest[0] if rest else None
    out, slopes = np.empty((*x.shape[:2], h.shape[1]), x.dtype), {}
    for t in range(len(x))[:: -1 if attrs["reverse"] else 1]:
        product, hidden = h @ weights.T + bias, None
        if cell == "lstm":
            slopes[t] = _lstm_slopes(x[t] + product, c)
            h, c = _lstm(x[t], product, c)
            hidden = h
        elif cell == "gru":
            slopes[t] = _gru_slopes(x[t], product, h)
            h = _gru(x[t], product, h)
        else:
            h = np.tanh(x[t] + product) if cell == "tanh" else np.maximum(x[t] + product, 0)
            slopes[t] = [1 - h**2 if cell == "tanh" else (h > 0).astype(h.dtype)]
        if len(rest) > 1:
            h, slopes[t] = h @ rest[1].T, [*slopes[t], hidden]
        out[t] = h
    made = np.stack([np.concatenate(slopes[t], axis=-1) for t in range(len(x))])
    return [out, h, *([] if c is None else [c]), made]


def _lstm_slopes(gates, c):
    i, f, g, o = np.split(gates, 4, axis=-1)
    i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
    after = np.tanh(f * c + i * g)
    return [o * (1 - after**2), g * i * (1 - i), c * f * (1 - f), i * (1 - g**2), after * o * (1 - o), f]


def _gru_slopes(x, product, h):
    (xr, xz, xn), (pr, pz, pn) = np.split(x, 3, axis=-1), np.split(product, 3, axis=-1)
    r, z = _sigmoid(xr + pr), _sigmoid(xz + pz)
    n = np.tanh(xn + r * pn)
    by_n = (1 - z) * (1 - n**2)
    return [by_n * pn * r * (1 - r), (h - n) * z * (1 - z), by_n, r, z]


def _gradient_work(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
    steps, (gates, inner) = prod(operands[1][:2]), operands[0]
    projection = prod(operands[5]) if len(operands) == 6 else 0
    return {"simple": steps * (gates * (inner + 2) + projection)}


@register_op("rnn_gradient", operands=(4, 6), attrs=rnn.schema, work=_gradient_work)
def rnn_gradient(types, attrs):
    """Back through the steps: weights T[G*H, R], slopes, head gradients of the results of `rnn_training` before these.

    LSTM takes a projection behind these, if it has one. Results: the gradient of x T[S, N, G*H], of h T[N, R], and
    LSTM's of c T[N, H]; then of a GRU that of its other addend, of h weights^T + bias, T[S, N, 3H]; of a projection the
    whole gradient of each hidden state, T[S, N, R].
    """
    cell = attrs["cell"]
    _require_operands(types, cell)
    require_rank(types[0], 2, 2)
    require_rank(types[1], 3, 3, position=1)
    columns, state = types[0].shape
    units, (steps, batch, _) = _units(columns, cell), types[1].shape
    require(steps > 0, "steps", steps, "at least 1")
    parts = SLOPES[cell] + (len(types) == 6)
    wanted = [(steps, batch, parts * units), (steps, batch, state), (batch, state), (batch, units), (state, units)]
    if len(types) < 6:
        require(state == units, "hidden state", state, units)
    for position, (type_, shape) in enumerate(zip(types[1:], wanted, strict=False), 1):
        require_shape(type_, shape, position=position)
    of_x = types[1].with_shape((steps, batch, columns))
    results = [of_x, types[3], *types[4:5]]
    return [*results, *([of_x] if cell == "gru" else []), *([types[2]] if len(types) == 6 else [])]


@rnn_gradient.reference
@in_f32
def _(inputs, attrs):
    weights, slopes, of_states, of_h, *rest = inputs
    cell, of_c, projection = attrs["cell"], rest[0] if rest else None, rest[1] if len(rest) > 1 else None
    of_x = np.empty((*slopes.shape[:2], len(weights)), slopes.dtype)
    others = [np.empty_like(of_x)] if cell == "gru" else [] if projection is None else [np.empty_like(of_states)]
    parts = SLOPES[cell] + (projection is not None)
    for t in range(len(slopes))[:: 1 if attrs["reverse"] else -1]:
        whole, kept, direct = of_h + of_states[t], np.split(slopes[t], parts, axis=-1), 0
        if projection is not None:
            others[0][t], whole = whole, whole @ projection
        if cell == "lstm":
            of_x[t], of_c = _lstm_back(kept, whole, of_c)
        elif cell == "gru":
            of_x[t], others[0][t], direct = _gru_back(kept, whole)
        else:
            of_x[t] = whole * kept[0]
        of_h = (others[0] if cell == "gru" else of_x)[t] @ weights + direct
    return [of_x, of_h, *([] if of_c is None else [of_c]), *others]


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


@register_op("lstm_cell_training", operands=3, work=by_result(transcendental=5, simple=7))
def lstm_cell_training(types, attrs):
    """The operands of `lstm_cell` -> its results, and slopes T[N, 6H] as those of `rnn_training`."""
    _cell_types(types, "lstm")
    return [types[2], types[2], _slopes(types[2], "lstm")]


@lstm_cell_training.reference
@in_f32
def _(inputs, attrs):
    x, product, c = inputs
    return [*_lstm(x, product, c), np.concatenate(_lstm_slopes(x + product, c), axis=-1)]


@register_op("gru_cell_training", operands=3, work=by_result(transcendental=3, simple=7))
def gru_cell_training(types, attrs):
    """The operands of `gru_cell` -> its result, and slopes T[N, 5H] as those of `rnn_training`."""
    _cell_types(types, "gru")
    return [types[2], _slopes(types[2], "gru")]


@gru_cell_training.reference
@in_f32
def _(inputs, attrs):
    return [_gru(*inputs), np.concatenate(_gru_slopes(*inputs), axis=-1)]


def _slopes(state, cell):
    rows, units = state.shape
    return state.with_shape((rows, SLOPES[cell] * units))


def _back_types(types, cell):
    require_domain(types, FLOAT)
    common_element(types)
    for position, type_ in enumerate(types[1:], 1):
        require_rank(type_, 2, 2, position=position)
        require_shape(type_, types[1].shape, position=position)
    require_shape(types[0], _slopes(types[1], cell).shape, position=0)
    rows, units = types[1].shape
    return types[0].with_shape((rows, GATES[cell] * units))


@register_op("lstm_cell_gradient", operands=3, work=by_result(simple=2))
def lstm_cell_gradient(types, attrs):
    """slopes T[N, 6H], gradients of h and c' T[N, H] -> that of the gates' sums T[N, 4H], and of c T[N, H]."""
    return [_back_types(types, "lstm"), types[1]]


@lstm_cell_gradient.reference
@in_f32
def _(inputs, attrs):
    slopes, of_h, of_c = inputs
    return list(_lstm_back(np.split(slopes, SLOPES["lstm"], axis=-1), of_h, of_c))


@register_op("gru_cell_gradient", operands=2, work=by_result(simple=2))
def gru_cell_gradient(types, attrs):
    """slopes T[N, 5H], gradient of h' T[N, H] -> those of both addends of the gates T[N, 3H], and of h past them."""
    both = _back_types(types, "gru")
    return [both, both, types[1]]


@gru_cell_gradient.reference
@in_f32
def _(inputs, attrs):
    slopes, of_h = inputs
    return list(_gru_back(np.split(slopes, SLOPES["gru"], axis=-1), of_h))


def _lstm_back(slopes, of_h, of_c):
    of_c = of_c + of_h * slopes[0]
    return np.concatenate([*(of_c * slope for slope in slopes[1:4]), of_h * slopes[4]], axis=-1), of_c * slopes[5]


def _gru_back(slopes, of_h):
    of_r, of_z, of_n = (of_h * slope for slope in slopes[:3])
    return (np.concatenate([of_r, of_z, of_n], axis=-1), np.concatenate([of_r, of_z, of_n * slopes[3]], axis=-1),
            of_h * slopes[4])
