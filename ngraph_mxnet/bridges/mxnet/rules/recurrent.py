"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Callable

from ngraph_mxnet.bridges.mxnet.rules.common import normal_axis, positive
from ngraph_mxnet.bridges.mxnet.rules.registry import rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.tensors import slice_axis
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ops.recurrent import GATES

_CELLS = {"rnn_relu": "relu", "rnn_tanh": "tanh", "lstm": "lstm", "gru": "gru"}


@rule("_rnn_param_concat", operands=(1, 1 << 20), parameters=range(1 << 10), ignored=["num_args"])
def rnn_param_concat(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The parts of RNN's parameter vector, one after the other."""
    return b.concat(*inputs, axis=normal_axis(attrs.int("dim", 1), inputs[0].type.rank))


@rule("RNN", operands=(3, 5), parameters=[1],
      ignored=["p", "lstm_state_clip_min", "lstm_state_clip_max", "lstm_state_clip_nan"])
def rnn(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> list[Value]:
    """Layers and directions one after the other: the inputs of all steps in one product, then step by step.

    `p` is nothing at inference. MXNet takes `use_sequence_length` and `lstm_state_clip_*` everywhere, and applies them
    on GPUs only: on a CPU every sequence has all steps, and no state is clipped.
    """
    return recurrent_layers(b, inputs, attrs, lambda x: x)


def recurrent_layers(b: Builder, inputs: list[Value], attrs: Attrs, between: Callable[[Value], Value]) -> list[Value]:
    """RNN, with `between` of what a layer gives to the next one."""
    cell = _CELLS[attrs.choice("mode", "", _CELLS)]
    projection = attrs.int("projection_size", None)
    if projection is not None and cell != "lstm":
        raise UnsupportedError(f"projection_size of {cell}, only of lstm")
    layers, units = positive(attrs.int("num_layers"), "num_layers"), positive(attrs.int("state_size"), "state_size")
    directions = 2 if attrs.bool("bidirectional", False) else 1
    with_states = attrs.bool("state_outputs", False)
    count = 4 if cell == "lstm" else 3
    wanted = count + attrs.bool("use_sequence_length", False)
    if len(inputs) != wanted:
        raise UnsupportedError(f"found {len(inputs)} inputs, expected {wanted}")
    x, packed, *states = inputs[:count]
    if x.type.rank != 3:
        raise UnsupportedError(f"found {x.type}, expected rank 3")
    parameters = _Parameters(b, packed, GATES[cell] * units, units, projection)
    weights = [[parameters.weights(x.shape[2] if layer == 0 else (projection or units) * directions)
                for _ in range(directions)] for layer in range(layers)]
    biases = [[parameters.biases() for _ in range(directions)] for _ in range(layers)]
    parameters.finish()
    last: list[list[Value]] = [[] for _ in states]
    for layer in range(layers):
        x = between(x) if layer else x
        parts = []
        for direction in range(directions):
            (of_input, of_state, *project), (input_bias, state_bias) = (
                weights[layer][direction], biases[layer][direction])
            number = layer * directions + direction
            own = [b.reshape(slice_axis(b, state, 0, number, number + 1), shape=state.shape[1:]) for state in states]
            gates = b.add(b.matmul(x, of_input, transpose_b=True), input_bias)
            operands = [gates, of_state, state_bias, *own, *project]
            out, *finals = b.node("rnn", operands, {"cell": cell, "reverse": direction == 1}).outputs
            parts.append(out)
            for kept, value in zip(last, finals, strict=True):
                kept.append(b.reshape(value, shape=(1, *value.shape)))
        x = parts[0] if directions == 1 else b.concat(*parts, axis=2)
    if not with_states:
        return [x]
    return [x, *(kept[0] if len(kept) == 1 else b.concat(*kept, axis=0) for kept in last)]


class _Parameters:
    """RNN's parameter vector, taken apart: first all weights by layer and direction, then all biases."""

    def __init__(self, b: Builder, packed: Value, rows: int, units: int, projection: int | None) -> None:
        if packed.type.rank != 1:
            raise UnsupportedError(f"parameters are {packed.type}, expected rank 1")
        self._b, self._packed, self._rows, self._units, self._projection = b, packed, rows, units, projection
        self._at = 0

    def weights(self, depth: int) -> list[Value]:
        """The weights of one layer and direction: [G*H, depth], [G*H, R], and [R, H] if the state is projected."""
        state = self._projection or self._units
        found = [self._take(self._rows, depth), self._take(self._rows, state)]
        return [*found, self._take(state, self._units)] if self._projection is not None else found

    def biases(self) -> tuple[Value, Value]:
        """The biases of the inputs and of the state, each [G*H]."""
        return self._take(self._rows), self._take(self._rows)

    def finish(self) -> None:
        if self._at != self._packed.type.size:
            raise UnsupportedError(f"the parameters have {self._packed.type.size} elements, expected {self._at}")

    def _take(self, *shape: int) -> Value:
        size = shape[0] * (shape[1] if len(shape) > 1 else 1)
        if self._at + size > self._packed.type.size:
            raise UnsupportedError(f"the parameters have {self._packed.type.size} elements, which are too few")
        part = slice_axis(self._b, self._packed, 0, self._at, self._at + size)
        self._at += size
        return part if len(shape) == 1 else self._b.reshape(part, shape=shape)
