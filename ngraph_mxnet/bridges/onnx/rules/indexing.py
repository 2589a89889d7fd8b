"""Operators that read and write elements at positions that are data, and that order elements."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.bridges.onnx.rules.common import normal_axis
from ngraph_mxnet.bridges.onnx.rules.registry import Call, rule
from ngraph_mxnet.compositions.tensors import broadcast_to, flipped, iota, reshaped, scalar, size_as, slice_axis
from ngraph_mxnet.errors import ModelError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.sizes import is_symbolic


def _from_start(b: Builder, call: Call, indices: Value, size: int) -> Value:
    """Negative indices count from the end."""
    known = call.static_value(indices)
    if known is not None and known.dtype != object and (known.size == 0 or known.min() >= 0):
        return indices
    if known is not None and not is_symbolic(size):
        return b.constant(np.where(known < 0, known + size, known).astype(np.int64))
    return b.select(b.less(indices, scalar(b, 0, indices)), b.add(indices, size_as(b, size, indices)), indices)


@rule("Gather")
def gather(b: Builder, call: Call) -> Value:
    x, axis = call.input(0), call.attrs.int("axis", 0)
    axis = normal_axis(axis, x.type.rank)
    known = call.static_value(call.input(1))
    if known is not None and known.dtype != object and known.size == 1 and known < 0 and is_symbolic(x.shape[axis]):
        at = x.shape[axis] + int(known.reshape(()))
        return reshaped(b, slice_axis(b, x, axis, at, at + 1), (*x.shape[:axis], *known.shape, *x.shape[axis + 1 :]))
    return b.gather(x, _from_start(b, call, call.input(1), x.shape[axis]), axis=axis)


@rule("GatherElements")
def gather_elements(b: Builder, call: Call) -> Value:
    x, indices = call.input(0), call.input(1)
    axis = normal_axis(call.attrs.int("axis", 0), x.type.rank)
    at = _from_start(b, call, indices, x.shape[axis])
    if all(x.shape[i] == indices.shape[i] for i in range(x.type.rank) if i != axis):
        return b.gather_elements(x, at, axis=axis)
    return b.gather_nd(x, _grid(b, at, axis))


def _grid(b: Builder, at: Value, axis: int) -> Value:
    """Coordinates [rank, *shape of at]: each element's own place, but `at` along `axis`."""
    rank = at.type.rank
    lines = [at if i == axis else broadcast_to(b, iota(b, at.shape[i], i, rank, at.type.element.name), at.shape)
             for i in range(rank)]
    return b.concat(*(b.reshape(line, shape=(1, *at.shape)) for line in lines), axis=0)


@rule("GatherND")
def gather_nd(b: Builder, call: Call) -> Value:
    x, indices, batch = call.input(0), call.input(1), call.attrs.int("batch_dims", 0)
    return b.gather_nd(x, _coordinates(b, indices, batch))


def _coordinates(b: Builder, indices: Value, batch: int = 0) -> Value:
    """[I, M] as [M, I], with the places of the first `batch` axes before them."""
    rank = indices.type.rank
    if not rank or batch >= rank:
        raise ModelError(f"found {indices.type}, expected a rank above {batch}")
    moved = b.transpose(indices, order=(rank - 1, *range(rank - 1)))
    if not batch:
        return moved
    around = moved.shape[1:]
    dtype = indices.type.element.name
    own = [broadcast_to(b, iota(b, around[i], i + 1, rank, dtype), (1, *around)) for i in range(batch)]
    return b.concat(*own, moved, axis=0)


_REDUCTIONS = ("none", "add", "mul", "max", "min")


@rule("ScatterND")
def scatter_nd(b: Builder, call: Call) -> Value:
    reduction = call.attrs.choice("reduction", "none", _REDUCTIONS)
    if not call.input(2).type.size:
        return b.identity(call.input(0))
    return b.scatter_nd(call.input(0), _coordinates(b, call.input(1)), call.input(2), reduction=reduction)


@rule("ScatterElements", "Scatter")
def scatter_elements(b: Builder, call: Call) -> Value:
    x, indices = call.input(0), call.input(1)
    axis = normal_axis(call.attrs.int("axis", 0), x.type.rank)
    return b.scatter_nd(x, _grid(b, indices, axis), call.input(2),
                        reduction=call.attrs.choice("reduction", "none", _REDUCTIONS))


@rule("TopK")
def top_k(b: Builder, call: Call) -> list[Value]:
    """The largest or smallest elements; of equal ones the first come first, and NaN is the greatest."""
    x = call.input(0)
    axis = normal_axis(call.attrs.int("axis", -1), x.type.rank)
    count = call.attrs.int("k") if call.opset < 10 else call.static_ints(1, "k")[0]
    largest = call.attrs.bool("largest", True)
    call.attrs.ignore("sorted")
    if not 0 <= count <= x.shape[axis]:
        raise ModelError(f"k={count} of {x.shape[axis]} elements along axis {axis}")
    first = 0 if is_symbolic(count) else count
    order = b.argsort(x, axis=axis, descending=largest, count=first)
    order = order if first else slice_axis(b, order, axis, 0, count)
    return [b.gather_elements(x, order, axis=axis), order]


@rule("CumSum", "CumProd")
def cumulative(b: Builder, call: Call) -> Value:
    """From either end, with the element itself or without it."""
    x = call.input(0)
    axis = normal_axis(call.static_ints(1, "axis")[0], x.type.rank)
    exclusive, reverse = call.attrs.bool("exclusive"), call.attrs.bool("reverse")
    if reverse:
        x = flipped(b, x, axis)
    total = b.cumsum(x, axis=axis) if call.op == "CumSum" else _running_product(b, x, axis)
    if exclusive and x.shape[axis]:
        total = _later(b, total, axis, 1, 0 if call.op == "CumSum" else 1)
    return flipped(b, total, axis) if reverse else total


def _later(b: Builder, x: Value, axis: int, places: int, before: float) -> Value:
    """x moved by `places` towards the end of the axis; the places that become free hold `before`."""
    room = [places if i == axis else 0 for i in range(x.type.rank)]
    return b.pad(slice_axis(b, x, axis, 0, x.shape[axis] - places), pads_begin=room, value=float(before))


def _running_product(b: Builder, x: Value, axis: int) -> Value:
    """The product of each element and all before it.

    Each step doubles how many neighbours a product covers: two products of half as many are multiplied.
    """
    reach = 1
    while reach < x.shape[axis]:
        x = b.multiply(x, _later(b, x, axis, reach, 1))
        reach *= 2
    return x


@rule("ReverseSequence")
def reverse_sequence(b: Builder, call: Call) -> Value:
    """The first `lengths` elements along the time axis in reverse order, those after them as they are."""
    x, lengths = call.input(0), call.input(1)
    time, batch = (normal_axis(call.attrs.int(name, default), x.type.rank)
                   for name, default in (("time_axis", 0), ("batch_axis", 1)))
    if {time, batch} != {0, 1}:
        raise ModelError(f"time_axis={time}, batch_axis={batch}: expected 0 and 1")
    shape = x.shape[:2]
    place = broadcast_to(b, iota(b, shape[time], time, 2), shape)
    length = broadcast_to(b, reshaped(b, lengths, (1, shape[1]) if batch else (shape[0], 1)), shape)
    back = b.subtract(b.subtract(length, scalar(b, 1, length)), place)
    at = b.select(b.less(place, length), back, place)
    return b.gather_nd(x, _grid(b, at, time))
