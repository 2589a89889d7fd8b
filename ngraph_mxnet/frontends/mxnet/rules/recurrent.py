"""Recurrent layers, transformers' operators, and sequences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import Attrs
from ngraph_mxnet.frontends.mxnet.rules.indexing import WHOLE
from ngraph_mxnet.frontends.mxnet.rules.registry import (
    ANY,
    LOGIC,
    as_indices,
    axis_of,
    moves,
    normal_axis,
    positive,
    require_count,
    rule,
)
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.sizes import is_symbolic
from ngraph_mxnet.ops.compositions import (
    flipped,
    iota,
    place_of,
    require_small,
    scalar,
    size_as,
    slice_axis,
    with_axis,
)
from ngraph_mxnet.ops.recurrent import GATES

_CELLS = {"rnn_relu": "relu", "rnn_tanh": "tanh", "lstm": "lstm", "gru": "gru"}


_MOST_LAYERS = 1 << 10


@rule("_rnn_param_concat", operands=(1, ANY), parameters=range(1 << 10), ignored=["num_args"])
def rnn_param_concat(b: Builder, attrs: Attrs, *inputs: Value) -> Value:
    """The parts of RNN's parameter vector, one after the other."""
    return b.concat(*inputs, axis=axis_of(attrs, inputs[0], 1, "dim"))


@rule("RNN", operands=(3, 5), parameters=[1],
      ignored=["p", "lstm_state_clip_min", "lstm_state_clip_max", "lstm_state_clip_nan"])
def rnn(b: Builder, attrs: Attrs, *inputs: Value) -> list[Value]:
    """Layers and directions one after the other: the inputs of all steps in one product, then step by step.

    `p` is nothing at inference. MXNet takes `use_sequence_length` and `lstm_state_clip_*` everywhere, and applies them
    on GPUs only: on a CPU every sequence has all steps, and no state is clipped.
    """
    return recurrent_layers(b, attrs, inputs, lambda x: x)


def recurrent_layers(b: Builder, attrs: Attrs, inputs: Sequence[Value],
                     between: Callable[[Value], Value]) -> list[Value]:
    """RNN, with `between` of what a layer gives to the next one."""
    cell = _CELLS[attrs.choice("mode", "", _CELLS)]
    projection = attrs.int("projection_size", None)
    if projection is not None and cell != "lstm":
        raise UnsupportedError(f"projection_size of {cell}, only of lstm")
    layers, units = positive(attrs.int("num_layers"), "num_layers"), positive(attrs.int("state_size"), "state_size")
    if layers > _MOST_LAYERS:
        raise UnsupportedError(f"num_layers={layers}, expected at most {_MOST_LAYERS}")
    directions = 2 if attrs.bool("bidirectional", False) else 1
    with_states = attrs.bool("state_outputs", False)
    count = 4 if cell == "lstm" else 3
    wanted = count + attrs.bool("use_sequence_length", False)
    require_count(inputs, wanted)
    x, packed, *states = inputs[:count]
    if x.rank != 3:
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
            own = [place_of(b, state, 0, number) for state in states]
            gates = b.matmul(x, of_input, transpose_b=True) + input_bias
            operands = [gates, of_state, state_bias, *own, *project]
            out, *finals = b.node("rnn", operands, {"cell": cell, "reverse": direction == 1}).outputs
            parts.append(out)
            for kept, value in zip(last, finals, strict=True):
                kept.append(with_axis(b, value, 0))
        x = parts[0] if directions == 1 else b.concat(*parts, axis=2)
    if not with_states:
        return [x]
    return [x, *(kept[0] if len(kept) == 1 else b.concat(*kept, axis=0) for kept in last)]


class _Parameters:
    """RNN's parameter vector, taken apart: first all weights by layer and direction, then all biases."""

    def __init__(self, b: Builder, packed: Value, rows: int, units: int, projection: int | None) -> None:
        if packed.rank != 1:
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
        if self._at != self._packed.size:
            raise UnsupportedError(f"the parameters have {self._packed.size} elements, expected {self._at}")

    def _take(self, *shape: int) -> Value:
        size = shape[0] * (shape[1] if len(shape) > 1 else 1)
        if self._at + size > self._packed.size:
            raise UnsupportedError(f"the parameters have {self._packed.size} elements, which are too few")
        part = slice_axis(self._b, self._packed, 0, self._at, self._at + size)
        self._at += size
        return part if len(shape) == 1 else self._b.reshape(part, shape=shape)


def _heads(b: Builder, x: Value, heads: int, parts: int, part: int) -> Value:
    """Part number `part` of a projection, as (batch x heads, length, units)."""
    if x.rank != 3 or x.shape[2] % (heads * parts):
        raise UnsupportedError(f"{x.type} is no projection of {parts} parts for each of {heads} heads")
    length, batch, width = x.shape
    units = width // (heads * parts)
    split = b.reshape(x, shape=(length, batch, heads, parts, units))
    own = place_of(b, split, 3, part)
    return b.reshape(b.transpose(own, order=(1, 2, 0, 3)), shape=(batch * heads, length, units))


def _scores(b: Builder, queries: Value, keys: Value) -> Value:
    """Queries by keys over the square root of a head's units."""
    scale = scalar(b, 1 / math.sqrt(queries.shape[2]), queries)
    return b.matmul(queries * scale, keys, transpose_b=True)


def _joined(b: Builder, weights: Value, values: Value, heads: int) -> Value:
    """Weights by values, as (length, batch, heads x units)."""
    if weights.shape[0] != values.shape[0]:
        raise UnsupportedError(f"weights {weights.type} for {values.shape[0]} matrices of values")
    out = b.matmul(weights, values)
    count, length, units = out.shape
    split = b.reshape(out, shape=(count // heads, heads, length, units))
    return b.reshape(b.transpose(split, order=(2, 0, 1, 3)), shape=(length, count // heads, heads * units))


def _head_count(attrs: Attrs) -> int:
    return positive(attrs.int("heads"), "heads")


@rule("_contrib_interleaved_matmul_selfatt_qk", operands=1)
def selfatt_qk(b: Builder, attrs: Attrs, x: Value) -> Value:
    """Scores of queries and keys out of a projection of three parts, scaled."""
    heads = _head_count(attrs)
    return _scores(b, *(_heads(b, x, heads, 3, part) for part in (0, 1)))


@rule("_contrib_interleaved_matmul_selfatt_valatt", operands=2)
def selfatt_valatt(b: Builder, attrs: Attrs, x: Value, weights: Value) -> Value:
    """Attention weights by the values out of a projection of three parts."""
    heads = _head_count(attrs)
    return _joined(b, weights, _heads(b, x, heads, 3, 2), heads)


@rule("_contrib_interleaved_matmul_encdec_qk", operands=2)
def encdec_qk(b: Builder, attrs: Attrs, queries: Value, keys: Value) -> Value:
    """Scores of queries, and of keys out of a projection of two parts, scaled."""
    heads = _head_count(attrs)
    return _scores(b, _heads(b, queries, heads, 1, 0), _heads(b, keys, heads, 2, 0))


@rule("_contrib_interleaved_matmul_encdec_valatt", operands=2)
def encdec_valatt(b: Builder, attrs: Attrs, x: Value, weights: Value) -> Value:
    """Attention weights by the values out of a projection of two parts."""
    heads = _head_count(attrs)
    return _joined(b, weights, _heads(b, x, heads, 2, 1), heads)


@rule("_contrib_div_sqrt_dim", operands=1)
def div_sqrt_dim(b: Builder, attrs: Attrs, x: Value) -> Value:
    """x over the square root of its last axis' size."""
    return x / math.sqrt(x.shape[-1])


@rule("_contrib_arange_like", operands=1, ignored=["ctx"])
def arange_like(b: Builder, attrs: Attrs, x: Value) -> Value:
    """start + step * (i // repeat), as long as an axis of the input, or of its shape; a constant where the size is
    known."""
    axis = attrs.int("axis", None)
    shape = x.shape if axis is None else (x.shape[normal_axis(axis, x.rank)],)
    dtype, repeat = x.element.numpy, positive(attrs.int("repeat", 1), "repeat")
    start, step = dtype.type(attrs.float("start", 0.0)), dtype.type(attrs.float("step", 1.0))
    if repeat == 1 and len(shape) == 1 and is_symbolic(shape[0]):
        steps = iota(b, shape[0], 0, 1, x.element.name) * step
        return steps + start
    require_small(*shape)
    places = (np.arange(prod(shape)) // repeat).astype(dtype)
    return b.constant((start + places * step).astype(dtype).reshape(shape))


def _read(attrs: Attrs, data: Value, lengths: Value | None) -> tuple[Value | None, int]:
    """The length of each sequence or None, and the axis of time."""
    axis = attrs.int("axis", 0)
    if axis not in (0, 1) or data.rank < 2:
        raise UnsupportedError(f"axis={axis} of {data.type}, expected time and batch as the first two axes")
    if not attrs.bool("use_sequence_length", False):
        return None, axis
    if lengths is None or lengths.shape != (data.shape[1 - axis],):
        raise UnsupportedError(f"found {[] if lengths is None else [str(lengths.type)]}, expected a length for each of "
                               f"{data.shape[1 - axis]} sequences")
    return lengths, axis


def _whole(b: Builder, lengths: Value) -> Value:
    """Lengths as float32, fractions cut off."""
    return b.convert(as_indices(b, lengths), element="f32")


def _times(b: Builder, steps: int) -> Value:
    """0, 1, ... as a column of float32."""
    return iota(b, steps, 0, 2, "f32")


@rule("SequenceMask", operands=(1, 2), types=LOGIC)
def sequence_mask(b: Builder, attrs: Attrs, data: Value, lengths: Value | None = None) -> Value:
    """`value` behind the end of each sequence."""
    lengths, axis = _read(attrs, data, lengths)
    value = attrs.float("value", 0.0)
    if lengths is None:
        return data
    inside = _times(b, data.shape[axis]) < _whole(b, lengths)
    if axis == 1:
        inside = b.transpose(inside, order=(1, 0))
    inside = b.reshape(inside, shape=(*inside.shape, *[1] * (data.rank - 2)))
    return b.select(inside, data, value)


@moves("SequenceLast", operands=(1, 2))
def sequence_last(b: Builder, attrs: Attrs, data: Value, lengths: Value | None = None) -> Value:
    """The last element of each sequence; none may be empty."""
    lengths, axis = _read(attrs, data, lengths)
    shape = (*data.shape[:axis], *data.shape[axis + 1:])
    if lengths is None:
        return b.reshape(slice_axis(b, data, axis, data.shape[axis] - 1, data.shape[axis]), shape=shape)
    return b.reshape(_elements(b, data, _whole(b, lengths) - 1, axis), shape=shape)


@moves("SequenceReverse", operands=(1, 2))
def sequence_reverse(b: Builder, attrs: Attrs, data: Value, lengths: Value | None = None) -> Value:
    """Each sequence backwards, what is behind its end as it is."""
    lengths, axis = _read(attrs, data, lengths)
    if axis:
        raise UnsupportedError("axis=1: MXNet knows time as axis 0 only")
    if lengths is None:
        return flipped(b, data, 0)
    steps, ends = _times(b, data.shape[0]), _whole(b, lengths)
    return b.reshape(_elements(b, data, b.select(steps < ends, ends - 1 - steps, steps), 0), shape=data.shape)


def _elements(b: Builder, data: Value, times: Value, axis: int) -> Value:
    """data at `times` of each sequence: times are [batch] or [time, batch] in float32, in which positions are exact."""
    steps, batch = data.shape[axis], data.shape[1 - axis]
    if steps * batch > WHOLE:
        raise UnsupportedError(f"{steps} times {batch} elements, expected at most {WHOLE}")
    numbers = iota(b, batch, 0, 1, "f32")
    if axis == 0:
        places = times * size_as(b, batch, times) + numbers
    else:
        places = times + numbers * size_as(b, steps, times)
    rows = b.reshape(data, shape=(steps * batch, prod(data.shape[2:])))
    return b.gather(rows, as_indices(b, places))
