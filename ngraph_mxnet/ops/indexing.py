"""Ops that read and write elements at positions that are data, and that order elements along an axis."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.ir.opdef import by_operand, by_result, register_op
from ngraph_mxnet.ir.types import Bool, Choice, Int, Shape, TensorType, i64
from ngraph_mxnet.ops.common import (
    INTEGER,
    NUMBER,
    common_element,
    in_f32,
    normal_axis,
    require,
    require_domain,
    require_rank,
    require_shape,
)

OUTSIDE = Choice("clip", ("clip", "wrap"))
"""The meaning of an index outside [0, D): the nearest index inside, or the index modulo D."""


def _require_indices(type_: TensorType) -> None:
    require(type_.element.numpy.kind in INTEGER, "operand 1", type_, "an integer type")


def _inside(indices: np.ndarray, size: int, mode: str) -> np.ndarray:
    """int64 indices in [0, size)."""
    if not indices.size:
        return indices.astype(np.int64)
    return np.mod(indices.astype(np.int64), size) if mode == "wrap" else np.clip(indices, 0, size - 1).astype(np.int64)


@register_op("gather", operands=2, attrs={"axis": Int(0), "mode": OUTSIDE}, kind="indexing", work=by_result(gather=1))
def gather(types, attrs):
    """T[A, D, B], integer I -> T[A, I, B]: the slices of data at the indices along `axis`.

    Indices outside [0, D) are clipped into it or wrap around; D is at least 1 if there are indices.
    """
    data, indices = types
    _require_indices(indices)
    axis = normal_axis(attrs["axis"], data.rank)
    require(data.shape[axis] > 0 or indices.size == 0, "operand 0", data, f"elements along {axis}")
    return data.with_shape((*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))


@gather.reference
def _(inputs, attrs):
    data, indices = inputs
    return np.take(data, _inside(indices, data.shape[attrs["axis"]], attrs["mode"]), axis=attrs["axis"])


@register_op("gather_elements", operands=2, attrs={"axis": Int(0), "mode": OUTSIDE}, kind="indexing",
             work=by_result(gather=1))
def gather_elements(types, attrs):
    """T[A, D, B], integer [A, K, B] -> T[A, K, B]: of each line of data along `axis`, the elements at its indices.

    Indices outside [0, D) are clipped into it or wrap around; D is at least 1 if there are indices.
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
    at = _inside(indices, data.shape[attrs["axis"]], attrs["mode"])
    return np.take_along_axis(data, at, axis=attrs["axis"])


def _require_coordinates(indices: TensorType, shape: Shape) -> None:
    _require_indices(indices)
    require(
        indices.rank >= 1 and 1 <= indices.shape[0] <= len(shape) and all(shape[: indices.shape[0]]),
        "operand 1",
        indices,
        f"a first dimension of 1 to {len(shape)}: coordinates in {list(shape)}",
    )


def _coordinates(indices: np.ndarray, shape: Shape) -> tuple[np.ndarray, ...]:
    at = [np.where(line < 0, line + size, line) for line, size in zip(indices.astype(np.int64), shape, strict=False)]
    return tuple(np.clip(line, 0, size - 1) for line, size in zip(at, shape, strict=False))


@register_op("gather_nd", operands=2, kind="indexing", work=by_result(gather=1))
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
