"""Operators whose results are as long as the data makes them: a tensor of the largest length, whose first places hold
what is chosen, and how many these are."""

from __future__ import annotations

from math import prod

import numpy as np

from ngraph_mxnet.bridges.onnx.rules.common import require_table
from ngraph_mxnet.bridges.onnx.rules.registry import Call, rule
from ngraph_mxnet.bridges.onnx.values import Item, Ragged
from ngraph_mxnet.compositions.tensors import broadcast_to, iota, reshaped, scalar, slice_axis
from ngraph_mxnet.errors import ModelError, UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import boolean, f32, i64

_WHOLE = 1 << 24
"""Up to here float32 holds every whole number."""


def _first(b: Builder, call: Call, value: Value, count: Value, axis: int) -> Item:
    """The first `count` places along the axis: a slice if `count` is known at compile time, else something ragged."""
    known = call.static_value(count)
    return Ragged(value, count, axis) if known is None else slice_axis(b, value, axis, 0, int(known))


def _chosen(b: Builder, condition: Value) -> tuple[Value, Value]:
    """The places where a vector of bool holds, then the others, both in order; and how many hold."""
    number = b.convert(condition, element="u8")
    order = b.argsort(number, axis=0, descending=True)
    return order, b.reduce_sum(b.convert(condition, element=i64), axes=(0,))


@rule("NonZero")
def non_zero(b: Builder, call: Call) -> Item:
    """The coordinates [rank, count] of what is not 0, in row-major order."""
    x = call.input(0)
    x = x if x.shape else b.reshape(x, shape=(1,))
    flat = b.reshape(x, shape=(x.type.size,))
    order, count = _chosen(b, flat if flat.type.element is boolean else b.not_equal(flat, scalar(b, 0, flat)))
    require_table((x.type.rank, *x.shape), 8)
    places = np.indices(x.shape, np.int64).reshape(x.type.rank, x.type.size)
    return _first(b, call, b.gather(b.constant(places), order, axis=1) if x.type.size else b.constant(places), count, 1)


@rule("Compress")
def compress(b: Builder, call: Call) -> Item:
    """The places along an axis, or of the flat tensor, where the condition holds; it may be shorter."""
    x, condition, axis = call.input(0), call.input(1), call.attrs.int("axis", None)
    if axis is None:
        x, axis = reshaped(b, x, (x.type.size,)), 0
    axis %= x.type.rank
    if condition.type.size > x.shape[axis]:
        condition = slice_axis(b, condition, 0, 0, x.shape[axis])
    order, count = _chosen(b, condition)
    return _first(b, call, b.gather(x, order, axis=axis), count, axis)


@rule("Unique")
def unique(b: Builder, call: Call) -> list[Item]:
    """The distinct elements of the flat tensor, the first place of each, for each place the number of its element, and
    how often each occurs."""
    x, ordered = call.input(0), call.attrs.bool("sorted", True)
    size = x.type.size
    if call.attrs.int("axis", None) is not None and x.type.rank != 1:
        raise UnsupportedError("axis: supported: the elements of the flat tensor")
    if not size:
        return [reshaped(b, x, (0,)), *(b.constant(np.zeros(0, np.int64)) for _ in range(3))]
    flat = reshaped(b, x, (size,))
    order = b.argsort(flat, axis=0)
    line = b.gather(flat, order, axis=0)
    later, before = slice_axis(b, line, 0, 1, size), slice_axis(b, line, 0, 0, size - 1)
    differs = b.not_equal(later, before)
    if line.type.element.is_float:  # NaN, all of which comes last, is one element
        differs = b.logical_and(differs, b.equal(before, before))
    group = b.cumsum(b.pad(b.convert(differs, element=i64), pads_begin=(1,)), axis=0)
    count = b.add(b.reshape(slice_axis(b, group, 0, size - 1, size), shape=()), b.constant(1, i64))
    at, ones = b.reshape(group, shape=(1, size)), b.constant(np.ones(size, np.int64))
    first = b.scatter_nd(b.constant(np.full(size, size, np.int64)), at, order, reduction="min")
    often = b.scatter_nd(b.constant(np.zeros(size, np.int64)), at, ones, reduction="add")
    inverse = b.scatter_nd(b.constant(np.zeros(size, np.int64)), b.reshape(order, shape=(1, size)), group)
    if not ordered:  # in the order of their first places
        moved = b.argsort(first, axis=0)
        numbers = b.scatter_nd(b.constant(np.zeros(size, np.int64)), b.reshape(moved, shape=(1, size)),
                               iota(b, size, 0, 1))
        first, often, inverse = b.gather(first, moved), b.gather(often, moved), b.gather(numbers, inverse)
    values, first, often = (_first(b, call, value, count, 0) for value in (b.gather(flat, first), first, often))
    return [values, first, inverse, often]


@rule("NonMaxSuppression")
def non_max_suppression(b: Builder, call: Call) -> Item:
    """(batch, class, box) of the boxes that are kept: of each class by falling score, those that overlap none before.

    Corners come in any order. A score must be above the threshold, an overlap above its own to suppress.
    """
    boxes, scores = call.input(0), call.input(1)
    most = call.static_ints(2, "max_output_boxes_per_class")[0] if call.optional(2) is not None else 0
    overlap = float(call.static(3, "iou_threshold").reshape(())) if call.optional(3) is not None else 0.0
    least = float(call.static(4, "score_threshold").reshape(())) if call.optional(4) is not None else -np.inf
    centre = call.attrs.int("center_point_box", 0)
    if boxes.type.rank != 3 or boxes.shape[2] != 4 or scores.shape != (boxes.shape[0], scores.shape[1], boxes.shape[1]):
        raise ModelError(f"found boxes {boxes.type} and scores {scores.type}")
    (batch, classes, count), kept = scores.shape, min(max(most, 0), boxes.shape[1])
    if not batch * classes * kept:
        return b.constant(np.zeros((0, 3), np.int64))
    if count > _WHOLE:
        raise UnsupportedError(f"{count} boxes; supported: {_WHOLE}")
    if not centre:
        one, other = slice_axis(b, boxes, 2, 0, 2), slice_axis(b, boxes, 2, 2, 4)
        boxes = b.concat(b.minimum(one, other), b.maximum(one, other), axis=2)
    number = iota(b, count, 2, 4, scores.type.element.name)
    shape = (batch, classes, count)
    columns = [b.reshape(scores, shape=(*shape, 1)), number, b.reshape(boxes, shape=(batch, 1, count, 4))]
    rows = b.concat(*(broadcast_to(b, column, (*shape, column.shape[3])) for column in columns), axis=3)
    found = b.box_nms(b.reshape(rows, shape=(batch * classes, count, 6)), overlap=overlap, valid=least, topk=-1,
                      keep=kept, coordinates=2, score=0, id=-1, across_ids=True,
                      format="center" if centre else "corner")
    box = b.reshape(slice_axis(b, slice_axis(b, found, 2, 1, 2), 1, 0, kept), shape=(batch * classes * kept,))
    order, total = _chosen(b, b.greater_equal(box, b.constant(0, f32)))
    own = np.indices((batch, classes, kept), np.int64)[:2].reshape(2, prod((batch, classes, kept))).T
    triples = b.concat(b.constant(own), b.reshape(b.convert(box, element=i64), shape=(box.type.size, 1)), axis=1)
    return _first(b, call, b.gather(triples, order, axis=0), total, 0)
