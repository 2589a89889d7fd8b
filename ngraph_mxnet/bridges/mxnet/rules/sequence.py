"""Operators on batches of sequences of different lengths: time and batch are the first two axes, in either order."""

from __future__ import annotations

from math import prod

from ngraph_mxnet.bridges.mxnet.rules.common import as_indices
from ngraph_mxnet.bridges.mxnet.rules.indexing import WHOLE
from ngraph_mxnet.bridges.mxnet.rules.registry import LOGIC, moves, rule
from ngraph_mxnet.bridges.mxnet.rules.slices import flipped
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.tensors import iota, scalar, size_as, slice_axis
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value


def _read(inputs: list[Value], attrs: Attrs) -> tuple[Value, Value | None, int]:
    """The data, the length of each sequence or None, and the axis of time."""
    data, axis = inputs[0], attrs.int("axis", 0)
    if axis not in (0, 1) or len(data.shape) < 2:
        raise UnsupportedError(f"axis={axis} of {data.type}, expected time and batch as the first two axes")
    if not attrs.bool("use_sequence_length", False):
        return data, None, axis
    if len(inputs) != 2 or inputs[1].shape != (data.shape[1 - axis],):
        raise UnsupportedError(f"found {[str(value.type) for value in inputs[1:]]}, expected a length for each of "
                               f"{data.shape[1 - axis]} sequences")
    return data, inputs[1], axis


def _whole(b: Builder, lengths: Value) -> Value:
    """Lengths as float32, fractions cut off."""
    return b.convert(as_indices(b, lengths), element="f32")


def _times(b: Builder, steps: int) -> Value:
    """0, 1, ... as a column of float32."""
    return iota(b, steps, 0, 2, "f32")


@rule("SequenceMask", operands=(1, 2), types=LOGIC)
def sequence_mask(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """`value` behind the end of each sequence."""
    data, lengths, axis = _read(inputs, attrs)
    value = attrs.float("value", 0.0)
    if lengths is None:
        return data
    inside = b.less(_times(b, data.shape[axis]), _whole(b, lengths))
    if axis == 1:
        inside = b.transpose(inside, order=(1, 0))
    inside = b.reshape(inside, shape=(*inside.shape, *[1] * (len(data.shape) - 2)))
    return b.select(inside, data, scalar(b, value, data))


@moves("SequenceLast", operands=(1, 2))
def sequence_last(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The last element of each sequence; none may be empty."""
    data, lengths, axis = _read(inputs, attrs)
    shape = (*data.shape[:axis], *data.shape[axis + 1:])
    if lengths is None:
        return b.reshape(slice_axis(b, data, axis, data.shape[axis] - 1, data.shape[axis]), shape=shape)
    last = b.subtract(_whole(b, lengths), b.constant(1.0))
    return b.reshape(_elements(b, data, last, axis), shape=shape)


@moves("SequenceReverse", operands=(1, 2))
def sequence_reverse(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Each sequence backwards, what is behind its end as it is."""
    data, lengths, axis = _read(inputs, attrs)
    if axis:
        raise UnsupportedError("axis=1: MXNet knows time as axis 0 only")
    if lengths is None:
        return flipped(b, data, (0,))
    steps, ends = _times(b, data.shape[0]), _whole(b, lengths)
    mirrored = b.subtract(b.subtract(ends, b.constant(1.0)), steps)
    return b.reshape(_elements(b, data, b.select(b.less(steps, ends), mirrored, steps), 0), shape=data.shape)


def _elements(b: Builder, data: Value, times: Value, axis: int) -> Value:
    """data at `times` of each sequence: times are [batch] or [time, batch] in float32, in which positions are exact."""
    steps, batch = data.shape[axis], data.shape[1 - axis]
    if steps * batch > WHOLE:
        raise UnsupportedError(f"{steps} times {batch} elements, expected at most {WHOLE}")
    numbers = iota(b, batch, 0, 1, "f32")
    if axis == 0:
        places = b.add(b.multiply(times, size_as(b, batch, times)), numbers)
    else:
        places = b.add(times, b.multiply(numbers, size_as(b, steps, times)))
    rows = b.reshape(data, shape=(steps * batch, prod(data.shape[2:])))
    return b.gather(rows, as_indices(b, places))
