"""Operators that change a shape and nothing else, and those that tell it."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ngraph_mxnet.bridges.onnx.rules.common import normal_axes, normal_axis
from ngraph_mxnet.bridges.onnx.rules.registry import Call, rule
from ngraph_mxnet.compositions.tensors import reshaped
from ngraph_mxnet.errors import ModelError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.sizes import at_hand, is_symbolic


@rule("Reshape")
def reshape(b: Builder, call: Call) -> Value:
    """0 keeps a dimension unless `allowzero`; -1 is what is left."""
    x, wanted = call.input(0), list(call.static_ints(1, "shape"))
    allow_zero = call.attrs.bool("allowzero")
    if not allow_zero:
        if any(size == 0 and axis >= x.type.rank for axis, size in enumerate(wanted)):
            raise ModelError(f"shape={wanted} keeps an axis that {x.type} has not")
        wanted = [x.shape[axis] if size == 0 else size for axis, size in enumerate(wanted)]
    if wanted.count(-1) > 1 or min(wanted, default=0) < -1:
        raise ModelError(f"shape={wanted}: expected at most one -1, and nothing below")
    if -1 in wanted:
        rest = prod(size for size in wanted if size != -1)
        if (rest == 0 and x.type.size) or (rest and x.type.size % rest):
            raise ModelError(f"shape={wanted} does not fit {x.type}")
        wanted[wanted.index(-1)] = x.type.size // rest if rest else 0
    return reshaped(b, x, wanted)


@rule("Flatten")
def flatten(b: Builder, call: Call) -> Value:
    x, axis = call.input(0), call.attrs.int("axis", 1)
    rank = x.type.rank
    axis = rank if axis == rank else normal_axis(axis, rank) if rank else 0
    return reshaped(b, x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


@rule("Squeeze")
def squeeze(b: Builder, call: Call) -> Value:
    x, axes = call.input(0), call.ints("axes", 1, 13)
    if axes is None:
        return reshaped(b, x, [size for size in x.shape if size != 1])
    gone = normal_axes(axes, x.type.rank)
    if any(x.shape[axis] != 1 for axis in gone):
        raise ModelError(f"axes={axes} of {x.type}: expected dimensions of 1")
    return reshaped(b, x, [size for axis, size in enumerate(x.shape) if axis not in gone])


@rule("Unsqueeze")
def unsqueeze(b: Builder, call: Call) -> Value:
    x, axes = call.input(0), call.ints("axes", 1, 13, ())
    rank = x.type.rank + len(axes)
    new, old = normal_axes(axes, rank), iter(x.shape)
    if len(new) != len(axes):
        raise ModelError(f"axes={axes} names an axis twice")
    return reshaped(b, x, [1 if axis in new else next(old) for axis in range(rank)])


@rule("Shape")
def shape_of(b: Builder, call: Call) -> Value:
    """A constant: shapes are known when a model is compiled."""
    shape = call.input(0).shape
    begin, end = call.attrs.int("start", 0), call.attrs.int("end", None)
    rank = len(shape)

    def bound(place: int) -> int:
        return max(0, min(rank, place + rank if place < 0 else place))

    return _sizes(b, call, shape[bound(begin) : rank if end is None else bound(end)])


@rule("Size")
def size_of(b: Builder, call: Call) -> Value:
    return _sizes(b, call, call.input(0).type.size)


def _sizes(b: Builder, call: Call, sizes: Any) -> Value:
    """A constant, which also stands for symbols among the sizes."""
    numbers = np.array(sizes, object)
    at_them = np.array([at_hand(size) for size in numbers.reshape(-1)], np.int64).reshape(numbers.shape)
    value = b.constant(at_them)
    if any(map(is_symbolic, numbers.reshape(-1))):
        call.note_sizes(value, sizes)
    return value
