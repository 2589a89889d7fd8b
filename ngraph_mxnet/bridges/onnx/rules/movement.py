"""Operators that move elements and compute nothing."""

from __future__ import annotations

from itertools import accumulate, pairwise
from math import prod

import numpy as np

from ngraph_mxnet.bridges.onnx.rules.common import normal_axis, require_size
from ngraph_mxnet.bridges.onnx.rules.registry import Call, rule
from ngraph_mxnet.compositions.tensors import broadcast_to, reshaped, slice_axis
from ngraph_mxnet.errors import ModelError, UnsupportedError
from ngraph_mxnet.ir import Builder, Value


@rule("Transpose")
def transpose(b: Builder, call: Call) -> Value:
    x = call.input(0)
    return b.transpose(x, order=call.attrs.ints("perm", tuple(reversed(range(x.type.rank)))))


@rule("Concat")
def concat(b: Builder, call: Call) -> Value:
    values = call.all_inputs()
    if not values:
        raise ModelError("no inputs")
    return b.concat(*values, axis=normal_axis(call.attrs.int("axis"), values[0].type.rank))


@rule("Split")
def split(b: Builder, call: Call) -> list[Value]:
    """Into given sizes, or into as many equal parts as there are outputs, the last one smaller if need be."""
    x = call.input(0)
    axis = normal_axis(call.attrs.int("axis", 0), x.type.rank)
    sizes = call.ints("split", 1, 13)
    count = call.attrs.int("num_outputs", call.outputs) if call.opset >= 18 else call.outputs
    total = x.shape[axis]
    if sizes is None:
        part = -(-total // count)
        sizes = [min(part, max(total - part * i, 0)) for i in range(count)]
    if sum(sizes) != total or min(sizes, default=0) < 0:
        raise ModelError(f"split={list(sizes)} of the {total} elements along axis {axis}")
    bounds = [0, *accumulate(sizes)]
    return [slice_axis(b, x, axis, begin, end) for begin, end in pairwise(bounds)]


@rule("Slice")
def slice_(b: Builder, call: Call) -> Value:
    """Bounds count from the end where they are negative, and are clipped."""
    x = call.input(0)
    rank = x.type.rank
    if call.opset < 10:
        begins, ends = call.attrs.ints("starts"), call.attrs.ints("ends")
        axes, steps = call.attrs.ints("axes", tuple(range(len(begins)))), (1,) * len(begins)
    else:
        begins, ends = call.static_ints(1, "starts"), call.static_ints(2, "ends")
        axes = call.ints("axes", 3, 10, tuple(range(len(begins))))
        steps = call.ints("steps", 4, 10, (1,) * len(begins))
    if not len(begins) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise ModelError(f"starts={begins}, ends={ends}, axes={axes}, steps={steps}: expected equal lengths, no step 0")
    first, last, strides = [0] * rank, list(x.shape), [1] * rank
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        place = normal_axis(axis, rank)
        if step < 0 and begin < 0:
            begin = max(begin, -x.shape[place])  # NumPy begins before the first element then, and takes none
        span = range(*slice(begin, end, step).indices(x.shape[place]))
        if not span:
            first[place], last[place], strides[place] = 0, 0, 1
        else:
            strides[place], first[place] = step, span.start
            last[place] = span[-1] + 1 if step > 0 else span[-1] - 1
    return b.slice(x, begin=first, end=last, strides=strides)


@rule("Pad")
def pad(b: Builder, call: Call) -> Value:
    """constant, reflect, edge and wrap; a negative number cuts off."""
    x, rank = call.input(0), call.input(0).type.rank
    mode = call.attrs.choice("mode", "constant", ("constant", "reflect", "edge", "wrap"))
    if call.opset < 11:
        pads, value = call.attrs.ints("pads"), call.attrs.float("value", 0.0)
        axes: tuple[int, ...] = tuple(range(rank))
    else:
        pads = call.static_ints(1, "pads")
        axes = tuple(normal_axis(a, rank) for a in call.ints("axes", 3, 18, tuple(range(rank))))
        fill = None if call.optional(2) is None else call.static(2, "constant_value")
        value = 0.0 if fill is None or not fill.size else fill.reshape(-1)[0].item()
    if len(pads) != 2 * len(axes):
        raise ModelError(f"pads={pads}: expected {2 * len(axes)} numbers")
    begins, ends = [0] * rank, [0] * rank
    for position, axis in enumerate(axes):
        begins[axis], ends[axis] = pads[position], pads[len(axes) + position]
    x = _cut(b, x, begins, ends)
    more = [max(p, 0) for p in begins], [max(p, 0) for p in ends]
    if not any((*more[0], *more[1])):
        return x
    if mode == "wrap":
        return _wrapped(b, x, *more)
    return b.pad(x, pads_begin=more[0], pads_end=more[1], mode=mode, value=float(value))


def _cut(b: Builder, x: Value, begins: list[int], ends: list[int]) -> Value:
    if min((*begins, *ends), default=0) >= 0:
        return x
    return b.slice(x, begin=[max(-p, 0) for p in begins],
                   end=[size - max(-p, 0) for size, p in zip(x.shape, ends, strict=True)])


def _wrapped(b: Builder, x: Value, begins: list[int], ends: list[int]) -> Value:
    """The data repeated in all directions."""
    for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if begin or end:
            size = x.shape[axis]
            if not size:
                raise ModelError(f"wraps axis {axis} of {x.type}, which is empty")
            x = b.gather(x, b.constant(np.arange(-begin, size + end) % size, "i64"), axis=axis)
    return x


@rule("Expand")
def expand(b: Builder, call: Call) -> Value:
    """Broadcast in both directions: the shape may be smaller than the data's."""
    x = call.input(0)
    try:
        shape = np.broadcast_shapes(x.shape, call.static_ints(1, "shape"))
    except ValueError:
        raise ModelError(f"shape={call.static_ints(1, 'shape')} does not fit {x.type}") from None
    require_size(prod(shape))
    return broadcast_to(b, x, shape)


@rule("Tile")
def tile(b: Builder, call: Call) -> Value:
    x, repeats = call.input(0), call.static_ints(1, "repeats")
    if len(repeats) != x.type.rank or min(repeats, default=0) < 0:
        raise ModelError(f"repeats={repeats}: expected {x.type.rank} numbers of 0 or more")
    require_size(x.type.size * prod(repeats))
    rank = x.type.rank
    apart = b.reshape(x, shape=[d for size in x.shape for d in (1, size)])
    shape = [d for size, count in zip(x.shape, repeats, strict=True) for d in (count, size)]
    return reshaped(b, broadcast_to(b, apart, shape), [shape[2 * i] * shape[2 * i + 1] for i in range(rank)])


@rule("DepthToSpace")
def depth_to_space(b: Builder, call: Call) -> Value:
    x, size = call.input(0), call.attrs.int("blocksize")
    mode = call.attrs.choice("mode", "DCR", ("DCR", "CRD"))
    images, channels, height, width = _image(x)
    if size < 1 or channels % (size * size):
        raise ModelError(f"blocksize={size} does not fit {x.type}")
    each = channels // size**2
    if mode == "DCR":
        apart, order = (images, size, size, each, height, width), (0, 3, 4, 1, 5, 2)
    else:
        apart, order = (images, each, size, size, height, width), (0, 1, 4, 2, 5, 3)
    moved = b.transpose(b.reshape(x, shape=apart), order=order)
    return b.reshape(moved, shape=(images, each, height * size, width * size))


@rule("SpaceToDepth")
def space_to_depth(b: Builder, call: Call) -> Value:
    x, size = call.input(0), call.attrs.int("blocksize")
    mode = call.attrs.choice("mode", "DCR", ("DCR", "CRD"))
    images, channels, height, width = _image(x)
    if size < 1 or height % size or width % size:
        raise ModelError(f"blocksize={size} does not fit {x.type}")
    apart = b.reshape(x, shape=(images, channels, height // size, size, width // size, size))
    moved = b.transpose(apart, order=(0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return b.reshape(moved, shape=(images, channels * size * size, height // size, width // size))


def _image(x: Value) -> tuple[int, ...]:
    if x.type.rank != 4:
        raise UnsupportedError(f"found {x.type}, expected rank 4")
    return x.shape
