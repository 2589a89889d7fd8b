"""RNN, LSTM and GRU: the IR's `rnn` where it can do what is asked for, else the cell is repeated for each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.frontends.onnx.rules.elementwise import ACTIVATIONS
from ngraph_mxnet.frontends.onnx.rules.registry import Call, rule
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ops.compositions import place_of, slice_axis, stacked

MOST_TRIPS = 1000
"""The most turns of a loop whose body is repeated in the graph because it can't be run between programs."""

Function = Callable[[Builder, Value], Value]

_USUAL = {"RNN": ["tanh"], "LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"]}
# The order of the IR's gates (input, forget, cell, output; reset, update, new) among ONNX's (iofc; zrh).
_ORDER = {"RNN": (0,), "LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2)}
# The activations by their names in lower case, each with its defaults of alpha and beta.
_ACTIVATIONS: dict[str, tuple[Callable[..., Value], tuple[float, ...]]] = {
    **{name.lower(): (function, tuple(defaults.values())) for name, (function, defaults) in ACTIVATIONS.items()
       if name in ("Elu", "HardSigmoid", "LeakyRelu", "ThresholdedRelu")},
    "affine": (lambda b, x, alpha, beta: x * alpha + beta, (1.0, 0.0)),
    "scaledtanh": (lambda b, x, alpha, beta: b.tanh(x * beta) * alpha, (1.0, 1.0)),
    "sigmoid": (lambda b, x: b.sigmoid(x), ()), "tanh": (lambda b, x: b.tanh(x), ()),
    "relu": (lambda b, x: b.relu(x), ()), "softsign": (lambda b, x: b.softsign(x), ()),
    "softplus": (lambda b, x: b.softplus(x), ()),
}


@dataclass(frozen=True)
class Products:
    """How the rows of inputs, and the hidden state before each step, are multiplied where it is not just by weights;
    both get the direction's number, and the rows."""

    of_inputs: Callable[[int, Value], Value]
    of_state: Callable[[int, Value], Value]


@dataclass
class _Layer:
    """One direction. Arrays as ONNX has them, without the axis of directions."""

    op: str
    x: Value
    """[S, N, I]"""
    weights: Value
    recurrent: Value
    bias: Value | None
    """[2 G H]: of the inputs, then of the state."""
    hidden: Value
    cell: Value | None
    peepholes: Value | None
    lengths: Value | None
    names: list[str]
    functions: list[Function]
    reverse: bool
    clip: float | None
    before_reset: bool
    coupled: bool
    products: Products | None
    number: int

    @property
    def units(self) -> int:
        return self.recurrent.shape[-1]


@rule("RNN", "LSTM", "GRU")
def recurrent(b: Builder, call: Call) -> list[Value]:
    """All attributes and inputs; states and lengths are optional. Up to 1000 steps where the IR's op does not serve."""
    return recurrent_of(b, call, None)


def recurrent_of(b: Builder, call: Call, products: Products | None) -> list[Value]:
    """`recurrent`, with products of another kind; then each step is repeated in the graph."""
    attrs, op = call.attrs, call.op
    x, batch_first = call.input(0), call.attrs.bool("layout")
    direction = attrs.choice("direction", "forward", ("forward", "reverse", "bidirectional"))
    count = 2 if direction == "bidirectional" else 1
    names = [name.lower() for name in attrs.strings("activations", None) or _USUAL[op] * count]
    functions = _functions(names, attrs.floats("activation_alpha", ()), attrs.floats("activation_beta", ()))
    clip, coupled = attrs.float("clip", None), attrs.bool("input_forget") if op == "LSTM" else False
    before_reset = attrs.bool("linear_before_reset") if op == "GRU" else False
    attrs.ignore("hidden_size", "output_sequence")
    if x.rank != 3:
        raise ModelError(f"input 0: found {x.type}, expected steps, batch and features")
    if batch_first:
        x = b.transpose(x, order=(1, 0, 2))
    steps, batch = x.shape[:2]
    each = len(_USUAL[op])
    if len(names) != each * count or call.input(1).shape[0] != count or not steps:
        raise ModelError(f"{len(names)} activations, weights {call.input(1).type}, {steps} steps: expected "
                         f"{each * count} activations, weights of {count} directions, and a step")
    units = call.input(2).shape[-1]
    results = []
    for number in range(count):
        def part(position: int, number: int = number) -> Value | None:
            value = call.optional(position)
            if value is None:
                return None
            return place_of(b, value, 0, number)

        def state(position: int, number: int = number) -> Value:
            value = call.optional(position)
            if value is None:
                return b.constant(np.zeros((batch, units)), x.element)
            return place_of(b, value, 1 if batch_first else 0, number)

        weights, recurrent_weights = part(1), part(2)
        assert weights is not None and recurrent_weights is not None
        layer = _Layer(
            op, x, weights, recurrent_weights, part(3), state(5), state(6) if op == "LSTM" else None,
            part(7) if op == "LSTM" else None, _lengths(call, steps), names[each * number : each * (number + 1)],
            functions[each * number : each * (number + 1)], direction == "reverse" or number == 1, clip, before_reset,
            coupled, products, number)
        results.append(_fused(b, layer) if _is_fused(layer) else _unrolled(b, layer))
    states, *last = (stacked(b, values, 0 if number else 1) for number, values in enumerate(zip(*results, strict=True)))
    if batch_first:
        return [b.transpose(states, order=(2, 0, 1, 3)), *(b.transpose(state, order=(1, 0, 2)) for state in last)]
    return [states, *last]


def _functions(names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]) -> list[Function]:
    """`alphas` and `betas` belong to the activations that have such, in their order; each takes one of both."""
    found: list[Function] = []
    given = [iter(alphas), iter(betas)]
    for name in names:
        if name not in _ACTIVATIONS:
            raise UnsupportedError(f"activation {name}")
        function, defaults = _ACTIVATIONS[name]
        values = [next(numbers, default) for numbers, default in zip(given, (*defaults, 0.0), strict=False)
                  if defaults][:len(defaults)]
        found.append(lambda b, x, function=function, values=values: function(b, x, *values))  # type: ignore[misc]
    return found


def _lengths(call: Call, steps: int) -> Value | None:
    lengths = call.optional(4)
    if lengths is None:
        return None
    known = call.static_value(lengths)
    return None if known is not None and (known >= steps).all() else lengths


def _inputs_product(b: Builder, layer: _Layer, weights: Value, bias: Value | None) -> Value:
    """[S, N, G H]: one product for all steps."""
    steps, batch, size = layer.x.shape
    rows = b.reshape(layer.x, shape=(steps * batch, size))
    if layer.products is None:
        rows = b.matmul(rows, weights, transpose_b=True)
    else:
        rows = layer.products.of_inputs(layer.number, rows)
    return b.reshape(rows if bias is None else rows + bias, shape=(steps, batch, weights.shape[0]))


def _biases(b: Builder, layer: _Layer) -> tuple[Value | None, Value | None]:
    if layer.bias is None:
        return None, None
    half = layer.bias.shape[0] // 2
    return slice_axis(b, layer.bias, 0, 0, half), slice_axis(b, layer.bias, 0, half, 2 * half)


def _is_fused(layer: _Layer) -> bool:
    """True if the IR's `rnn` computes the same as the layer."""
    if layer.coupled or layer.products is not None:
        return False
    plain = layer.lengths is None and layer.peepholes is None and layer.clip is None
    if layer.op == "RNN":
        return plain and layer.names[0] in ("tanh", "relu")
    return plain and layer.names == _USUAL[layer.op]


def _fused(b: Builder, layer: _Layer) -> list[Value]:
    def ordered(value: Value) -> Value:
        order = _ORDER[layer.op]
        if len(order) == 1:
            return value
        return b.concat(*(slice_axis(b, value, 0, g * layer.units, (g + 1) * layer.units) for g in order), axis=0)

    of_inputs, of_state = _biases(b, layer)
    weights = ordered(layer.weights)
    x = _inputs_product(b, layer, weights, None if of_inputs is None else ordered(of_inputs))
    bias = b.constant(np.zeros(weights.shape[0]), x.element) if of_state is None else ordered(of_state)
    if layer.op == "GRU" and not layer.before_reset:
        gates, own = ([slice_axis(b, value, 0, *part) for value in (ordered(layer.recurrent), bias)]
                      for part in ((0, 2 * layer.units), (2 * layer.units, 3 * layer.units)))
        return list(b.node("gru_reset_first", [x, *gates, *own, layer.hidden], {"reverse": layer.reverse}).outputs)
    cell = {"LSTM": "lstm", "GRU": "gru"}.get(layer.op, layer.names[0])
    operands = [x, ordered(layer.recurrent), bias, layer.hidden, *([layer.cell] if layer.cell is not None else [])]
    return list(b.node("rnn", operands, {"cell": cell, "reverse": layer.reverse}).outputs)


def _unrolled(b: Builder, layer: _Layer) -> list[Value]:
    """Hidden states [S, N, H], the last one, and LSTM's last cell state. Beyond its length a row keeps its state."""
    steps, batch = layer.x.shape[:2]
    if steps > MOST_TRIPS:
        raise UnsupportedError(f"{steps} steps with lengths, peepholes or other activations; supported: {MOST_TRIPS}")
    of_inputs, of_state = _biases(b, layer)
    x = _inputs_product(b, layer, layer.weights, of_inputs)
    hidden, cell = layer.hidden, layer.cell
    rows: list[Value] = [hidden] * steps
    for step in reversed(range(steps)) if layer.reverse else range(steps):
        gates = place_of(b, x, 0, step)
        after, cell_after = _step(b, layer, gates, of_state, hidden, cell)
        if layer.lengths is None:
            rows[step], hidden, cell = after, after, cell_after
            continue
        lengths = b.reshape(layer.lengths, shape=(batch, 1))
        valid = step < lengths
        rows[step] = b.select(valid, after, 0)
        hidden = b.select(valid, after, hidden)
        cell = None if cell is None or cell_after is None else b.select(valid, cell_after, cell)
    return [stacked(b, rows), hidden, *([] if cell is None else [cell])]


def _step(b: Builder, layer: _Layer, x: Value, bias: Value | None, hidden: Value,
          cell: Value | None) -> tuple[Value, Value | None]:
    units, f, g = layer.units, layer.functions[0], layer.functions[min(1, len(layer.functions) - 1)]

    def gate(of: Value, number: int) -> Value:
        return slice_axis(b, of, 1, number * units, (number + 1) * units)

    def clipped(value: Value) -> Value:
        return value if layer.clip is None else b.clamp(value, lower=-layer.clip, upper=layer.clip)

    if layer.products is None:
        product = b.matmul(hidden, layer.recurrent, transpose_b=True)
    else:
        product = layer.products.of_state(layer.number, hidden)
    state = product if bias is None else product + bias
    if layer.op == "RNN":
        return f(b, clipped(x + state)), None
    if layer.op == "GRU":
        update, reset = (f(b, clipped(gate(x, i) + gate(state, i))) for i in range(2))
        if layer.before_reset:
            inner = reset * gate(state, 2)
        else:
            own = slice_axis(b, layer.recurrent, 0, 2 * units, 3 * units)
            inner = b.matmul(reset * hidden, own, transpose_b=True)
            if bias is not None:
                inner = inner + slice_axis(b, bias, 0, 2 * units, 3 * units)
        new = g(b, clipped(gate(x, 2) + inner))
        return (1 - update) * new + update * hidden, None
    assert cell is not None
    total = x + state
    into, out, forget, content = (gate(total, i) for i in range(4))

    def seen(value: Value, number: int, of: Value) -> Value:
        if layer.peepholes is None:
            return value
        return value + of * slice_axis(b, layer.peepholes, 0, number * units, (number + 1) * units)

    taken = f(b, clipped(seen(into, 0, cell)))
    kept = 1 - taken if layer.coupled else f(b, clipped(seen(forget, 2, cell)))
    after = kept * cell + taken * g(b, clipped(content))
    return f(b, clipped(seen(out, 1, after))) * layer.functions[2](b, after), after
