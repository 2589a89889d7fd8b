"""Constants, shapes, and what moves elements."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.frontends.onnx.model import element_of
from ngraph_mxnet.frontends.onnx.rules.registry import (
    Call,
    axis_of,
    normal_axes,
    normal_axis,
    require_size,
    require_table,
    rule,
)
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.sizes import at_hand, is_symbolic
from ngraph_mxnet.ops.compositions import (
    broadcast_to,
    converted,
    depth_to_space,
    iota,
    parts,
    place_of,
    repeated,
    reshaped,
    scalar,
    slice_bounds,
    space_to_depth,
    triangle,
    with_axis,
)


@rule("Transpose")
def transpose(b: Builder, call: Call, x: Value) -> Value:
    return b.transpose(x, order=call.attrs.ints("perm", tuple(reversed(range(x.rank)))))


@rule("Concat")
def concat(b: Builder, call: Call) -> Value:
    values = call.all_inputs()
    if not values:
        raise ModelError("no inputs")
    return b.concat(*values, axis=normal_axis(call.attrs.int("axis"), values[0].rank))


@rule("Split")
def split(b: Builder, call: Call, x: Value) -> list[Value]:
    """Into given sizes, or into as many equal parts as there are outputs, the last one smaller if need be."""
    axis = axis_of(call, x, 0)
    sizes = call.ints("split", 1, 13)
    count = call.attrs.int("num_outputs", call.outputs) if call.opset >= 18 else call.outputs
    total = x.shape[axis]
    if sizes is None:
        part = -(-total // count)
        sizes = [min(part, max(total - part * i, 0)) for i in range(count)]
    if sum(sizes) != total or min(sizes, default=0) < 0:
        raise ModelError(f"split={list(sizes)} of the {total} elements along axis {axis}")
    return parts(b, x, axis, sizes)


@rule("Slice")
def slice_(b: Builder, call: Call, x: Value) -> Value:
    """Bounds count from the end where they are negative, and are clipped."""
    rank = x.rank
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
        begin, end, _ = slice_bounds(begin, end, step, x.shape[place])
        if step == 1:
            first[place], last[place] = (begin, end) if begin < end else (0, 0)
        elif not (span := range(begin, end, step)):
            first[place], last[place], strides[place] = 0, 0, 1
        else:
            strides[place], first[place] = step, span.start
            last[place] = span[-1] + 1 if step > 0 else span[-1] - 1
    return b.slice(x, begin=first, end=last, strides=strides)


@rule("Pad")
def pad(b: Builder, call: Call, x: Value) -> Value:
    """constant, reflect, edge and wrap; a negative number cuts off."""
    rank = x.rank
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
def expand(b: Builder, call: Call, x: Value) -> Value:
    """Broadcast in both directions: the shape may be smaller than the data's."""
    try:
        shape = np.broadcast_shapes(x.shape, call.static_ints(1, "shape"))
    except ValueError:
        raise ModelError(f"shape={call.static_ints(1, 'shape')} does not fit {x.type}") from None
    require_size(prod(shape))
    return broadcast_to(b, x, shape)


@rule("Tile")
def tile(b: Builder, call: Call, x: Value) -> Value:
    repeats = call.static_ints(1, "repeats")
    if len(repeats) != x.rank or min(repeats, default=0) < 0:
        raise ModelError(f"repeats={repeats}: expected {x.rank} numbers of 0 or more")
    require_size(x.size * prod(repeats))
    return repeated(b, x, x.shape, repeats, whole=True)


@rule("DepthToSpace", "SpaceToDepth")
def blocks(b: Builder, call: Call, x: Value) -> Value:
    """Lower the two operators, in both modes. The block is the first (DCR) or last (CRD) part of a channel's number."""
    size = call.attrs.int("blocksize")
    mode = call.attrs.choice("mode", "DCR", ("DCR", "CRD"))
    if x.rank != 4:
        raise UnsupportedError(f"found {x.type}, expected rank 4")
    channels, height, width = x.shape[1:]
    grows = call.op == "DepthToSpace"
    if size < 1 or (channels % size**2 if grows else height % size or width % size):
        raise ModelError(f"blocksize={size} does not fit {x.type}")
    return (depth_to_space if grows else space_to_depth)(b, x, size, blocks_first=mode == "DCR")


@rule("Constant")
def constant(b: Builder, call: Call) -> Value:
    attrs = call.attrs
    if "value" in attrs:
        return b.constant(call.to_array(attrs.tensor("value")))
    for name, read, dtype in (("value_float", attrs.float, "f32"), ("value_floats", attrs.floats, "f32"),
                              ("value_int", attrs.int, "i64"), ("value_ints", attrs.ints, "i64")):
        if name in attrs:
            return b.constant(read(name), dtype)
    raise UnsupportedError("a constant of strings, or a sparse one")


@rule("ConstantOfShape")
def constant_of_shape(b: Builder, call: Call) -> Value:
    shape = call.static_ints(0, "shape")
    given = call.attrs.tensor("value", None)
    value = np.zeros(1, np.float32) if given is None else call.to_array(given)
    if value.size != 1 or min(shape, default=0) < 0:
        raise ModelError(f"shape={shape}, a value of {value.size} elements: expected 1")
    require_size(int(np.prod(shape, dtype=object)))
    return broadcast_to(b, b.constant(value.reshape(())), shape)


@rule("Range")
def range_(b: Builder, call: Call) -> Value:
    start, limit, delta = (call.static(i, name).reshape(()) for i, name in enumerate(("start", "limit", "delta")))
    if not delta:
        raise ModelError("delta is 0")
    require_table([max(0, int(np.ceil((float(limit) - float(start)) / float(delta))))], 8)
    count = max(0, int(np.ceil((limit - start) / delta)))
    values = start + np.arange(count, dtype=start.dtype) * delta
    return b.constant(values.astype(start.dtype))


@rule("EyeLike")
def eye_like(b: Builder, call: Call, x: Value) -> Value:
    if x.rank != 2:
        raise ModelError(f"found {x.type}, expected rank 2")
    dtype = call.attrs.int("dtype", None)
    element = x.element if dtype is None else element_of(dtype)
    require_table(x.shape, 8)
    return b.constant(np.eye(x.shape[0], x.shape[1], k=call.attrs.int("k", 0)), element)


@rule("OneHot")
def one_hot(b: Builder, call: Call, indices: Value) -> Value:
    """Indices outside [-depth, depth) give a line of off values."""
    values = call.input(2)
    depth = call.number(1, "depth")
    require_size(indices.size * depth)
    axis = call.attrs.int("axis", -1)
    rank = indices.rank + 1
    axis = axis % rank
    if indices.element.is_float:
        indices = b.convert(indices, element="i64")
    size = scalar(b, depth, indices)
    at = b.select(indices < 0, indices + size, indices)
    hot = b.equal(iota(b, depth, axis, rank, indices.element.name), with_axis(b, at, axis))
    off, on = (place_of(b, values, 0, i) for i in range(2))
    return b.select(hot, on, off)


@rule("Trilu")
def trilu(b: Builder, call: Call, x: Value) -> Value:
    """The triangle on and above diagonal k, or on and below it; zeros elsewhere."""
    diagonal = call.number(1, "k", 0)
    if x.rank < 2:
        raise UnsupportedError(f"found {x.type}, expected matrices: a rank of 2 or more")
    require_table(x.shape[-2:], 1)
    return triangle(b, x, diagonal, lower=not call.attrs.bool("upper", True))


@rule("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")
def random(b: Builder, call: Call) -> Value:
    raise UnsupportedError("random numbers: its result differs from call to call")


@rule("ImageDecoder")
def not_lowered(b: Builder, call: Call) -> Value:
    raise UnsupportedError("the IR has no op for it yet")


@rule("StringConcat", "StringSplit", "StringNormalizer", "RegexFullMatch")
def strings(b: Builder, call: Call) -> Value:
    raise UnsupportedError("strings are no element type of the IR")


@rule("AffineGrid")
def affine_grid(b: Builder, call: Call, theta: Value) -> Value:
    """Places in [-1, 1] of a 2-D or 3-D image of `size`, through the matrix theta of each image."""
    size = call.static_ints(1, "size")
    corners = call.attrs.bool("align_corners")
    spans = size[2:]
    require_table((*spans, len(spans) + 1), 8)
    axes = [np.linspace(-1, 1, n) if corners and n > 1 else np.zeros(1) if corners else (2 * np.arange(n) + 1) / n - 1
            for n in spans]
    grids = np.meshgrid(*axes, indexing="ij")
    places = np.stack([*reversed(grids), np.ones(spans)], axis=-1).reshape(-1, len(spans) + 1)
    out = b.matmul(b.constant(places, theta.element), theta, transpose_b=True)
    return converted(b, b.reshape(out, shape=(size[0], *spans, len(spans))), theta)


@rule("Reshape")
def reshape(b: Builder, call: Call, x: Value) -> Value:
    """0 keeps a dimension unless `allowzero`; -1 is what is left."""
    wanted = list(call.static_ints(1, "shape"))
    allow_zero = call.attrs.bool("allowzero")
    if not allow_zero:
        if any(size == 0 and axis >= x.rank for axis, size in enumerate(wanted)):
            raise ModelError(f"shape={wanted} keeps an axis that {x.type} has not")
        wanted = [x.shape[axis] if size == 0 else size for axis, size in enumerate(wanted)]
    if wanted.count(-1) > 1 or min(wanted, default=0) < -1:
        raise ModelError(f"shape={wanted}: expected at most one -1, and nothing below")
    if -1 in wanted:
        rest = prod(size for size in wanted if size != -1)
        if (rest == 0 and x.size) or (rest and x.size % rest):
            raise ModelError(f"shape={wanted} does not fit {x.type}")
        wanted[wanted.index(-1)] = x.size // rest if rest else 0
    return reshaped(b, x, wanted)


@rule("Flatten")
def flatten(b: Builder, call: Call, x: Value) -> Value:
    axis = call.attrs.int("axis", 1)
    rank = x.rank
    axis = rank if axis == rank else normal_axis(axis, rank) if rank else 0
    return reshaped(b, x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


@rule("Squeeze")
def squeeze(b: Builder, call: Call, x: Value) -> Value:
    axes = call.ints("axes", 1, 13)
    if axes is None:
        return reshaped(b, x, [size for size in x.shape if size != 1])
    gone = normal_axes(axes, x.rank)
    if any(x.shape[axis] != 1 for axis in gone):
        raise ModelError(f"axes={axes} of {x.type}: expected dimensions of 1")
    return reshaped(b, x, [size for axis, size in enumerate(x.shape) if axis not in gone])


@rule("Unsqueeze")
def unsqueeze(b: Builder, call: Call, x: Value) -> Value:
    axes = call.ints("axes", 1, 13, ())
    rank = x.rank + len(axes)
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
    return _sizes(b, call, call.input(0).size)


def _sizes(b: Builder, call: Call, sizes: Any) -> Value:
    """A constant, which also stands for symbols among the sizes."""
    numbers = np.array(sizes, object)
    at_them = np.array([at_hand(size) for size in numbers.reshape(-1)], np.int64).reshape(numbers.shape)
    value = b.constant(at_them)
    if any(map(is_symbolic, numbers.reshape(-1))):
        call.note_sizes(value, sizes)
    return value
