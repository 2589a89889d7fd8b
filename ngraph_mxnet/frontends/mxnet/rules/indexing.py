"""Operators that read and write by index. What lies outside is clipped unless the rule says otherwise."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import Attrs
from ngraph_mxnet.frontends.mxnet.rules.registry import (
    EXACT,
    MOVED,
    NUMBERS,
    as_indices,
    at_least_1d,
    axis_of,
    expressions,
    moves,
    normal_axis,
    positive,
    rule,
)
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import Shape, boolean, i64
from ngraph_mxnet.ops.compositions import (
    converted,
    full,
    iota,
    moved_axis,
    require_small,
    reshaped,
    stacked,
    with_axis,
)

WHOLE = 1 << 24
"""Integers up to here are exact in float32."""


@moves("take", operands=2)
def take(b: Builder, attrs: Attrs, data: Value, indices: Value) -> Value:
    """clip and wrap. `raise` stays with MXNet, which checks the indices at every call."""
    mode = attrs.choice("mode", "clip", ("clip", "wrap"))
    axis = axis_of(attrs, data, 0)
    return b.gather(data, as_indices(b, indices), axis=axis, mode=mode)


@moves("Embedding", operands=2, parameters=[1], typed_by=1,
       ignored=["input_dim", "output_dim", "sparse_grad", "dtype"])
def embedding(b: Builder, attrs: Attrs, indices: Value, weight: Value) -> Value:
    """Rows of the weight."""
    return b.gather(weight, as_indices(b, indices), axis=0)


@moves("batch_take", operands=2)
def batch_take(b: Builder, attrs: Attrs, data: Value, indices: Value) -> Value:
    """The element of each row at the row's index."""
    if data.rank != 2 or indices.size != data.shape[0]:
        raise UnsupportedError(f"found {data.type} and {indices.type}, expected a matrix and an index for each row")
    column = b.reshape(as_indices(b, indices), shape=(data.shape[0], 1))
    return b.reshape(b.gather_elements(data, column, axis=1), shape=indices.shape)


@moves("pick", operands=2)
def pick(b: Builder, attrs: Attrs, data: Value, indices: Value) -> Value:
    """Along `axis` the element at each index; clip and wrap."""
    if attrs.is_none("axis"):
        raise UnsupportedError("pick from the flat tensor (axis=None)")
    axis, keep = axis_of(attrs, data, -1), attrs.bool("keepdims", False)
    mode = attrs.choice("mode", "clip", ("clip", "wrap"))
    dropped, kept = (*data.shape[:axis], *data.shape[axis + 1:]), (*data.shape[:axis], 1, *data.shape[axis + 1:])
    if indices.shape not in (dropped, kept, dropped or (1,)):
        raise UnsupportedError(f"found indices {indices.type}, expected shape {dropped} or {kept}")
    picked = b.gather_elements(data, b.reshape(as_indices(b, indices), shape=kept), axis=axis, mode=mode)
    return picked if keep else b.reshape(picked, shape=dropped or (1,))


@moves("_contrib_index_copy", operands=3)
def index_copy(b: Builder, attrs: Attrs, data: Value, indices: Value, rows: Value) -> Value:
    """The first input with its rows at the indices replaced."""
    return b.scatter_nd(data, with_axis(b, as_indices(b, indices), 0), rows)


@rule("_contrib_index_array", operands=1, types=EXACT)
def index_array(b: Builder, attrs: Attrs, x: Value) -> Value:
    """The coordinates of each element, all or those of `axes`, as int64."""
    shape = x.shape
    axes = [normal_axis(axis, len(shape)) for axis in attrs.ints("axes", tuple(range(len(shape))))]
    require_small(len(shape), *shape)
    return b.constant(np.stack([np.indices(shape, dtype=np.int64)[axis] for axis in axes], axis=-1))


@rule("one_hot", operands=1, types=EXACT)
def one_hot(b: Builder, attrs: Attrs, indices: Value) -> Value:
    """`on_value` at each index of a new last axis, else `off_value`; nowhere for an index outside."""
    depth = positive(attrs.int("depth"), "depth")
    element = attrs.element("dtype", "f32")
    if depth > WHOLE:
        raise UnsupportedError(f"depth={depth}, expected at most {WHOLE}")
    on, off = (b.constant(attrs.float(name, default), element)
               for name, default in (("on_value", 1.0), ("off_value", 0.0)))
    count = indices.size
    wanted = b.convert(b.reshape(as_indices(b, indices), shape=(count,)), element="f32")
    # What lies outside is written as off_value into the nearest column.
    nearest = b.clamp(wanted, lower=0, upper=depth - 1)
    columns = b.reshape(as_indices(b, nearest), shape=(1, count))
    rows = iota(b, count, 1, 2)
    hot = b.scatter_nd(b.broadcast(off, shape=(count, depth)), b.concat(rows, columns, axis=0),
                       b.select(b.equal(nearest, wanted), on, off))
    return b.reshape(hot, shape=(*indices.shape, depth))


# ---- places in a shape -----------------------------------------------------------------------------------------


def _shape_of_places(attrs: Attrs) -> Shape:
    shape = attrs.ints("shape")
    if not shape or min(shape[1:], default=1) < 1:
        raise UnsupportedError(f"shape={shape}: only the first size may be unknown")
    return shape


@rule("_ravel_multi_index", operands=1, types=NUMBERS)
def ravel_multi_index(b: Builder, attrs: Attrs, coordinates: Value) -> Value:
    """The row-major position of each column of coordinates, in the coordinates' type."""
    shape = _shape_of_places(attrs)
    if coordinates.shape[0] != len(shape):
        raise UnsupportedError(f"{coordinates.type} has no row for each axis of shape={shape}")
    strides = np.cumprod([1, *shape[:0:-1]])[::-1].reshape(-1, *[1] * (coordinates.rank - 1))
    weights = b.constant(strides, coordinates.element)
    total = b.reduce_sum(coordinates * weights, axes=(0,))
    return at_least_1d(b, total)


@rule("_unravel_index", operands=1, types=NUMBERS)
def unravel_index(b: Builder, attrs: Attrs, places: Value) -> Value:
    """The coordinates of each row-major position, along a new first axis, in the positions' type."""
    shape = _shape_of_places(attrs)
    rest, rows = places, []
    for size in shape[:0:-1]:
        quotient = rest / size
        above = b.trunc(quotient) if places.element.is_float else quotient
        rows.append(rest - above * size)
        rest = above
    rows.append(rest)
    return stacked(b, rows[::-1])


def _line(b: Builder, x: Value, attrs: Attrs) -> tuple[Value, int]:
    """The tensor and the axis to order; without an axis the flat tensor."""
    if attrs.is_none("axis"):
        return reshaped(b, x, (x.size,)), 0
    return x, axis_of(attrs, x, -1)


@rule("topk", operands=1, types=EXACT)
def topk(b: Builder, attrs: Attrs, data: Value) -> Value | list[Value]:
    """The `k` extremes along an axis, all when k < 1: values, positions, both, or 1 at their places (mask)."""
    x, axis = _line(b, data, attrs)
    kind = attrs.choice("ret_typ", "indices", ("indices", "value", "both", "mask"))
    element = attrs.element("dtype", "f32")
    size, count = x.shape[axis], attrs.int("k", 1)
    if count > size:
        raise UnsupportedError(f"k={count} of {size} elements")
    first = b.argsort(x, axis=axis, descending=not attrs.bool("is_ascend", False), count=max(count, 0))
    if kind == "indices":
        return b.convert(first, element=element)
    if kind == "mask":
        return reshaped(b, _mask(b, x, first, axis), data.shape)
    values = b.gather_elements(x, first, axis=axis)
    return values if kind == "value" else [values, b.convert(first, element=element)]


def _mask(b: Builder, x: Value, places: Value, axis: int) -> Value:
    """A tensor of x's type: 1 at the places, else 0."""
    rank = x.rank
    order = [i for i in range(rank) if i != axis] + [axis]
    lines, count = x.size // x.shape[axis], places.shape[axis]
    columns = b.reshape(b.transpose(places, order=order), shape=(1, lines * count))
    require_small(lines, count)
    rows = b.constant(np.repeat(np.arange(lines, dtype=np.int64), count)[None])
    mask = b.scatter_nd(full(b, 0, x, (lines, x.shape[axis])), b.concat(rows, columns, axis=0),
                        full(b, 1, x, (lines * count,)))
    return moved_axis(b, b.reshape(mask, shape=[x.shape[i] for i in order]), rank - 1, axis)


@rule("sort", operands=1, types=EXACT)
def sort(b: Builder, attrs: Attrs, data: Value) -> Value:
    """The elements in order along an axis."""
    x, axis = _line(b, data, attrs)
    return b.gather_elements(x, b.argsort(x, axis=axis, descending=not attrs.bool("is_ascend", True)), axis=axis)


@rule("argsort", operands=1, types=EXACT)
def argsort(b: Builder, attrs: Attrs, data: Value) -> Value:
    """The positions of the elements in order along an axis."""
    x, axis = _line(b, data, attrs)
    places = b.argsort(x, axis=axis, descending=not attrs.bool("is_ascend", True))
    return b.convert(places, element=attrs.element("dtype", "f32"))


@rule("_np_cumsum", operands=1, types=EXACT)
def cumsum(b: Builder, attrs: Attrs, x: Value) -> Value:
    """Sums up to each element along an axis; without one, of the flat tensor. Those of bool are int64."""
    axis = attrs.int("axis", None)
    own = x.element
    x = converted(b, x, attrs.element("dtype", i64 if own is boolean else own))
    if axis is None:
        return b.cumsum(reshaped(b, x, (x.size,)), axis=0)
    return b.cumsum(x, axis=normal_axis(axis, x.rank))


expressions(
    ("gather_nd", "Slices at coordinates; negative ones count from the end. MXNet raises an error for those outside.",
     lambda b, attrs, *inputs: b.gather_nd(inputs[0], as_indices(b, inputs[1]))),
    ("scatter_nd", "Zeros of `shape` with the slices at coordinates replaced; of equal coordinates the last.",
     lambda b, attrs, updates, indices: b.scatter_nd(full(b, 0, updates, attrs.ints("shape")),
                                                     as_indices(b, indices), updates)),
    operands=2, types=MOVED,
)

expressions(
    ("shape_array", "The input's shape as int64: a constant.",
     lambda b, attrs, x: b.constant(np.array(x.shape, np.int64))),
    ("size_array", "The input's number of elements as int64: a constant.",
     lambda b, attrs, x: b.constant(np.array([x.size], np.int64))),
    operands=1, types=EXACT,
)
