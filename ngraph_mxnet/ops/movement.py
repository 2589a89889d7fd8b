"""Ops that move elements, read and write them at positions that are data, or order them along an axis.

Those that move elements compute nothing, and take every element type.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ngraph_mxnet.ir.opdef import by_operand, by_result, register_op
from ngraph_mxnet.ir.types import (
    Array,
    Bool,
    Choice,
    Element,
    Float,
    Int,
    Ints,
    PerAxis,
    Shape,
    TensorType,
    element_type,
    i64,
)
from ngraph_mxnet.ops.common import (
    INTEGER,
    NUMBER,
    broadcast_shape,
    common_element,
    contiguous,
    in_f32,
    normal_axis,
    require,
    require_domain,
    require_per_axis,
    require_rank,
    require_shape,
)


@register_op("reshape", operands=1, attrs={"shape": Ints()}, kind="movement", work=by_result(move=1),
             selects=True, same_bytes=True)
def reshape(types, attrs):
    """The elements in row-major order as `shape`, which holds no -1: shapes are static."""
    shape = attrs["shape"]
    require(all(d >= 0 for d in shape) and prod(shape) == types[0].size, "shape", list(shape),
            f"the {types[0].size} elements of {types[0]}")
    return types[0].with_shape(shape)


@reshape.reference
def _(inputs, attrs):
    return inputs[0].reshape(attrs["shape"])


@register_op("bitcast", operands=1, attrs={"element": Element()}, kind="copy", work=by_result(move=1), same_bytes=True)
def bitcast(types, attrs):
    """The bits of each element as an element of type `element`, which has as many; neither is bool."""
    own, element = types[0].element, attrs["element"]
    require(own.size == element.size and "b" not in (own.numpy.kind, element.numpy.kind), "element", element,
            f"a number of {own.size} bytes, as {types[0]}")
    return TensorType(element, types[0].shape)


@bitcast.reference
def _(inputs, attrs):
    return contiguous(inputs[0]).view(attrs["element"].numpy)


@register_op("transpose", operands=1, attrs={"order": Ints()}, kind="movement", work=by_result(gather=1), selects=True)
def transpose(types, attrs):
    """Axis i of the result is axis order[i] of the operand; `order` is a permutation of 0..rank-1."""
    order = attrs["order"]
    require(sorted(order) == list(range(types[0].rank)), "order", list(order),
            f"a permutation of the axes of {types[0]}")
    return types[0].with_shape(tuple(types[0].shape[axis] for axis in order))


@transpose.reference
def _(inputs, attrs):
    return contiguous(inputs[0].transpose(attrs["order"]))


@register_op("concat", operands=(1, None), attrs={"axis": Int()}, kind="movement", work=by_result(move=1), selects=True)
def concat(types, attrs):
    """The operands one after the other along `axis`; the other dimensions agree."""
    common_element(types)
    axis = normal_axis(attrs["axis"], types[0].rank)
    total = 0
    for position, type_ in enumerate(types):
        require_rank(type_, types[0].rank, types[0].rank, position=position)
        dims = list(types[0].shape)
        dims[axis] = type_.shape[axis]
        require_shape(type_, tuple(dims), position=position)
        total += type_.shape[axis]
    return types[0].with_shape((*types[0].shape[:axis], total, *types[0].shape[axis + 1 :]))


@concat.reference
def _(inputs, attrs):
    return np.concatenate(inputs, axis=attrs["axis"])


def _sliced_rows(operands, results, attrs):
    """As long as the elements lie side by side: over axes that are whole, and the one before them."""
    length = 1
    for size, whole, step in zip(*map(reversed, (results[0], operands[0], attrs["strides"])), strict=True):
        if step != 1:
            break
        length *= size
        if size != whole:
            break
    return prod(results[0]) // max(length, 1), length


@register_op("slice", operands=1, attrs={"begin": Ints(), "end": Ints(), "strides": PerAxis(fill=1)}, kind="movement",
             work=by_result(move=1), selects=True, rows=_sliced_rows)
def slice_(types, attrs):
    """Elements begin, begin + stride, ... before `end`, on each axis.

    Bounds are normalised: 0 <= begin <= end <= size for a positive stride. For a negative one begin is in
    [0, size) and -1 <= end <= begin, where -1 is the place before element 0, not the last element.
    """
    shape = types[0].shape
    begin, end, strides = attrs["begin"], attrs["end"], attrs["strides"]
    for name in ("begin", "end", "strides"):
        require(len(attrs[name]) == len(shape), name, list(attrs[name]), f"an integer for each axis of {types[0]}")
    result = []
    for axis, (b, e, s, size) in enumerate(zip(begin, end, strides, shape, strict=True)):
        valid = 0 <= b <= e <= size if s > 0 else s < 0 and b < size and -1 <= e <= b and b >= 0
        require(valid, f"slice of axis {axis}", f"[{b}:{e}:{s}]", f"normalised bounds in size {size}")
        result.append(-((b - e) // s) if s > 0 else -((e - b) // -s))
    return types[0].with_shape(tuple(result))


@slice_.reference
def _(inputs, attrs):
    bounds = zip(attrs["begin"], attrs["end"], attrs["strides"], strict=True)
    return contiguous(inputs[0][tuple(slice(b, None if s < 0 and e < 0 else e, s) for b, e, s in bounds)])


@register_op(
    "pad",
    operands=1,
    attrs={"pads_begin": PerAxis(fill=0), "pads_end": PerAxis(fill=0),
           "mode": Choice("constant", ("constant", "edge", "reflect")), "value": Float(0.0)},
    kind="movement",
    work=by_result(move=1),
)
def pad(types, attrs):
    """Elements added at both ends of each axis: `value`, the nearest element, or the mirror image about it.

    `edge` needs an element on a padded axis, `reflect` more elements than it adds at either end.
    """
    (type_,) = types
    begin, end = attrs["pads_begin"], attrs["pads_end"]
    require_per_axis("pads_begin", begin, type_.rank, 0)
    require_per_axis("pads_end", end, type_.rank, 0)
    for axis, size in enumerate(type_.shape):
        most = max(begin[axis], end[axis])
        needed = {"constant": 0, "edge": min(most, 1), "reflect": most + 1 if most else 0}[attrs["mode"]]
        require(size >= needed, f"size of axis {axis}", size, f"at least {needed} to pad by {most}, {attrs['mode']}")
    return type_.with_shape(tuple(b + size + e for b, size, e in zip(begin, type_.shape, end, strict=True)))


@pad.reference
def _(inputs, attrs):
    (x,) = inputs
    width = list(zip(attrs["pads_begin"], attrs["pads_end"], strict=True))
    if not width:  # np.pad refuses rank 0
        return x
    if attrs["mode"] == "constant":
        return np.pad(x, width, constant_values=np.asarray(attrs["value"]).astype(x.dtype))
    return np.pad(x, width, mode=attrs["mode"])


@register_op("broadcast", operands=1, attrs={"shape": Ints()}, kind="movement", work=by_result(move=1), selects=True)
def broadcast(types, attrs):
    """The operand repeated to `shape`, right-aligned, dimensions of 1 stretched."""
    shape = attrs["shape"]
    require(all(d >= 0 for d in shape) and broadcast_shape([types[0].shape, shape]) == shape, "shape", list(shape),
            f"a shape that {types[0]} broadcasts to")
    return types[0].with_shape(shape)


@broadcast.reference
def _(inputs, attrs):
    return np.broadcast_to(inputs[0], attrs["shape"]).copy()


@register_op("constant", operands=0, attrs={"value": Array()}, kind="constant", work=by_result(move=1))
def constant(types, attrs):
    """The tensor `value`."""
    value = attrs["value"]
    return TensorType(element_type(value.dtype), value.shape)


@constant.reference
def _(inputs, attrs):
    return attrs["value"]


OUTSIDE = Choice("clip", ("clip", "wrap", "from_end"))
"""The meaning of an index outside [0, D): the nearest index inside, or the index modulo D, or one that counts from the
end if it is negative; what is still outside is clipped then."""


def _require_indices(type_: TensorType) -> None:
    require(type_.element.numpy.kind in INTEGER, "operand 1", type_, "an integer type")


def inside(indices: np.ndarray, size: int, mode: str) -> np.ndarray:
    """int64 indices in [0, size)."""
    if not indices.size:
        return indices.astype(np.int64)
    wide = indices.astype(np.int64)
    if mode == "wrap":
        return np.mod(wide, size)
    if mode == "from_end":
        indices = np.where(wide < 0, wide + size, wide)
    return np.clip(indices, 0, size - 1).astype(np.int64)


def _rows_behind(axis):
    """For each result's elements a row of operand 0's axes from `axis(operands, attrs)` on."""

    def rows(operands, results, attrs):
        length = prod(operands[0][axis(operands, attrs):])
        return prod(results[0]) // max(length, 1), length

    return rows


@register_op("gather", operands=2, attrs={"axis": Int(0), "mode": OUTSIDE}, kind="indexing", work=by_result(gather=1),
             rows=_rows_behind(lambda operands, attrs: normal_axis(attrs["axis"], len(operands[0])) + 1))
def gather(types, attrs):
    """T[A, D, B], integer I -> T[A, I, B]: the slices of data at the indices along `axis`.

    `mode` says what indices outside [0, D) mean; D is at least 1 if there are indices.
    """
    data, indices = types
    _require_indices(indices)
    axis = normal_axis(attrs["axis"], data.rank)
    require(data.shape[axis] > 0 or indices.size == 0, "operand 0", data, f"elements along {axis}")
    return data.with_shape((*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))


@gather.reference
def _(inputs, attrs):
    data, indices = inputs
    return np.take(data, inside(indices, data.shape[attrs["axis"]], attrs["mode"]), axis=attrs["axis"])


@register_op("gather_elements", operands=2, attrs={"axis": Int(0), "mode": OUTSIDE}, kind="indexing",
             work=by_result(gather=1), rows=_rows_behind(lambda operands, attrs: len(operands[0])))
def gather_elements(types, attrs):
    """T[A, D, B], integer [A, K, B] -> T[A, K, B]: of each line of data along `axis`, the elements at its indices.

    `mode` says what indices outside [0, D) mean; D is at least 1 if there are indices.
    """
    data, indices = types
    _require_indices(indices)
    axis = normal_axis(attrs["axis"], data.rank)
    require_rank(indices, data.rank, data.rank, position=1)
    require_shape(indices, (*data.shape[:axis], indices.shape[axis], *data.shape[axis + 1 :]), position=1)
    require(data.shape[axis] > 0 or indices.size == 0, "operand 0", data, f"elements along {axis}")
    return data.with_shape(indices.shape)


@gather_elements.reference
def _(inputs, attrs):
    data, indices = inputs
    at = inside(indices, data.shape[attrs["axis"]], attrs["mode"])
    return np.take_along_axis(data, at, axis=attrs["axis"])


def _require_coordinates(indices: TensorType, shape: Shape) -> None:
    _require_indices(indices)
    require(indices.rank >= 1 and 1 <= indices.shape[0] <= len(shape) and all(shape[: indices.shape[0]]), "operand 1",
            indices, f"a first dimension of 1 to {len(shape)}: coordinates in {list(shape)}")


def _coordinates(indices: np.ndarray, shape: Shape) -> tuple[np.ndarray, ...]:
    return tuple(inside(line, size, "from_end") for line, size in zip(indices, shape, strict=False))


@register_op("gather_nd", operands=2, kind="indexing", work=by_result(gather=1),
             rows=_rows_behind(lambda operands, attrs: operands[1][0]))
def gather_nd(types, attrs):
    """T[S, B], integer [M, I] -> T[I, B] with M dimensions in S: the slices of data at coordinates [:, i].

    Negative indices count from the end; what is still outside is clipped.
    """
    data, indices = types
    require_rank(indices, 1, position=1)
    _require_coordinates(indices, data.shape)
    return data.with_shape((*indices.shape[1:], *data.shape[indices.shape[0] :]))


@gather_nd.reference
def _(inputs, attrs):
    data, indices = inputs
    return data[_coordinates(indices, data.shape)]


REDUCTIONS = {"none": None, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@register_op("scatter_nd", operands=3, attrs={"reduction": Choice("none", tuple(REDUCTIONS))}, kind="indexing",
             work=by_result(gather=1))
def scatter_nd(types, attrs):
    """T[S, B], integer [M, I], T[I, B] -> T[S, B]: data with the updates in place of its slices at coordinates [:, i].

    Where two coordinates are the same, the later update stays. With a `reduction` an update is combined with what is
    there instead, one after the other; sums and products of integers wrap. Indices outside: as `gather_nd`.
    """
    data, indices, updates = types
    common_element([data, updates])
    require(attrs["reduction"] == "none" or data.element.numpy.kind in NUMBER, "operand 0", data, "a number type")
    _require_coordinates(indices, data.shape)
    require_shape(updates, (*indices.shape[1:], *data.shape[indices.shape[0] :]), position=2)
    return data


@scatter_nd.reference
@in_f32
def _(inputs, attrs):
    data, indices, updates = inputs
    result, rest = data.copy(), data.shape[indices.shape[0] :]
    coordinates = np.stack(_coordinates(indices, data.shape)).reshape(indices.shape[0], -1)
    combine = REDUCTIONS[attrs["reduction"]]
    for at, update in zip(coordinates.T, updates.reshape(-1, *rest), strict=True):
        result[tuple(at)] = update if combine is None else combine(result[tuple(at)], update)
    return result


@register_op("argsort", operands=1, attrs={"axis": Int(-1), "descending": Bool(False), "count": Int(0)},
             kind="position", work=by_operand(sort=1), ordinal=True)
def argsort(types, attrs):
    """T[A, D, B] -> i64[A, K, B]: the positions along `axis` in the order of their elements.

    Stable: equal elements stay in the order of their positions, descending too. NaN is the greatest. K is `count`, the
    first so many of the order, or D when that is 0.
    """
    require_domain(types, NUMBER)
    (data,), count = types, attrs["count"]
    axis = normal_axis(attrs["axis"], data.rank)
    require(0 <= count <= data.shape[axis], "operand 0", data, f"at least count={count} elements along {axis}")
    return TensorType(i64, (*data.shape[:axis], count or data.shape[axis], *data.shape[axis + 1 :]))


@argsort.reference
def _(inputs, attrs):
    (keys,) = inputs
    axis = attrs["axis"]
    if attrs["descending"]:
        # Ranks (0 for the least value, 1 for the next) can be negated without overflow; keys can't.
        ranks = np.unique(keys, return_inverse=True)[1].reshape(keys.shape)
        keys = np.where(keys != keys, -keys.size, -ranks.astype(np.int64))
    order = np.argsort(keys, axis=axis, kind="stable").astype(np.int64)
    return np.take(order, np.arange(attrs["count"] or keys.shape[axis]), axis=axis)


@register_op("cumsum", operands=1, attrs={"axis": Int(0)}, work=by_result(simple=1))
def cumsum(types, attrs):
    """T[A] -> T[A]: each element is the sum of those up to it along `axis`, itself included; integers wrap."""
    require_domain(types, NUMBER)
    normal_axis(attrs["axis"], types[0].rank)
    return types[0]


@cumsum.reference
def _(inputs, attrs):
    (x,) = inputs
    if x.dtype == np.float16:
        return np.cumsum(x.astype(np.float32), axis=attrs["axis"]).astype(np.float16)
    return np.cumsum(x, axis=attrs["axis"], dtype=x.dtype)
