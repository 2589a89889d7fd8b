"""Rules for operators that pick elements by index, order elements, or hold sequences of tensors."""

from __future__ import annotations

from math import prod

import numpy as np

from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.frontends.onnx.rules.registry import Call, axis_of, normal_axis, require_table, rule
from ngraph_mxnet.frontends.onnx.values import EmptyOptional, Item, Ragged, TensorSequence, split_sizes
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.sizes import is_symbolic
from ngraph_mxnet.ir.types import f32, i64
from ngraph_mxnet.ops.compositions import (
    broadcast_to,
    flipped,
    iota,
    parts,
    reshaped,
    slice_axis,
    stacked,
    truth,
    without_axis,
)


@rule("Gather")
def gather(b: Builder, call: Call, x: Value) -> Value:
    axis = call.attrs.int("axis", 0)
    axis = normal_axis(axis, x.rank)
    known = call.static_value(call.input(1))
    if known is not None and known.dtype != object and known.size == 1 and known < 0 and is_symbolic(x.shape[axis]):
        at = x.shape[axis] + int(known.reshape(()))
        return reshaped(b, slice_axis(b, x, axis, at, at + 1), (*x.shape[:axis], *known.shape, *x.shape[axis + 1 :]))
    return b.gather(x, call.input(1), axis=axis, mode="from_end")


@rule("GatherElements")
def gather_elements(b: Builder, call: Call, x: Value, indices: Value) -> Value:
    axis = axis_of(call, x, 0)
    if all(x.shape[i] == indices.shape[i] for i in range(x.rank) if i != axis):
        return b.gather_elements(x, indices, axis=axis, mode="from_end")
    return b.gather_nd(x, _grid(b, indices, axis))


def _grid(b: Builder, at: Value, axis: int) -> Value:
    """Coordinates [rank, *shape of at]: each element's own place, but `at` along `axis`."""
    rank = at.rank
    lines = [at if i == axis else broadcast_to(b, iota(b, at.shape[i], i, rank, at.element.name), at.shape)
             for i in range(rank)]
    return stacked(b, lines)


@rule("GatherND")
def gather_nd(b: Builder, call: Call, x: Value, indices: Value) -> Value:
    batch = call.attrs.int("batch_dims", 0)
    return b.gather_nd(x, _coordinates(b, indices, batch))


def _coordinates(b: Builder, indices: Value, batch: int = 0) -> Value:
    """[I, M] as [M, I], with the places of the first `batch` axes before them."""
    rank = indices.rank
    if not rank or batch >= rank:
        raise ModelError(f"found {indices.type}, expected a rank above {batch}")
    moved = b.transpose(indices, order=(rank - 1, *range(rank - 1)))
    if not batch:
        return moved
    around = moved.shape[1:]
    dtype = indices.element.name
    own = [broadcast_to(b, iota(b, around[i], i + 1, rank, dtype), (1, *around)) for i in range(batch)]
    return b.concat(*own, moved, axis=0)


_REDUCTIONS = ("none", "add", "mul", "max", "min")


@rule("ScatterND")
def scatter_nd(b: Builder, call: Call) -> Value:
    reduction = call.attrs.choice("reduction", "none", _REDUCTIONS)
    if not call.input(2).size:
        return b.identity(call.input(0))
    return b.scatter_nd(call.input(0), _coordinates(b, call.input(1)), call.input(2), reduction=reduction)


@rule("ScatterElements", "Scatter")
def scatter_elements(b: Builder, call: Call, x: Value, indices: Value) -> Value:
    axis = axis_of(call, x, 0)
    return b.scatter_nd(x, _grid(b, indices, axis), call.input(2),
                        reduction=call.attrs.choice("reduction", "none", _REDUCTIONS))


@rule("TopK")
def top_k(b: Builder, call: Call, x: Value) -> list[Value]:
    """The largest or smallest elements; of equal ones the first come first, and NaN is the greatest."""
    axis = axis_of(call, x, -1)
    count = call.attrs.int("k") if call.opset < 10 else call.number(1, "k")
    largest = call.attrs.bool("largest", True)
    call.attrs.ignore("sorted")
    if not 0 <= count <= x.shape[axis]:
        raise ModelError(f"k={count} of {x.shape[axis]} elements along axis {axis}")
    first = 0 if is_symbolic(count) else count
    order = b.argsort(x, axis=axis, descending=largest, count=first)
    order = order if first else slice_axis(b, order, axis, 0, count)
    return [b.gather_elements(x, order, axis=axis), order]


@rule("CumSum", "CumProd")
def cumulative(b: Builder, call: Call, x: Value) -> Value:
    """From either end, with the element itself or without it."""
    axis = normal_axis(call.number(1, "axis"), x.rank)
    exclusive, reverse = call.attrs.bool("exclusive"), call.attrs.bool("reverse")
    if reverse:
        x = flipped(b, x, axis)
    total = b.cumsum(x, axis=axis) if call.op == "CumSum" else _running_product(b, x, axis)
    if exclusive and x.shape[axis]:
        total = _later(b, total, axis, 1, 0 if call.op == "CumSum" else 1)
    return flipped(b, total, axis) if reverse else total


def _later(b: Builder, x: Value, axis: int, places: int, before: float) -> Value:
    """x moved by `places` towards the end of the axis; the places that become free hold `before`."""
    room = [places if i == axis else 0 for i in range(x.rank)]
    return b.pad(slice_axis(b, x, axis, 0, x.shape[axis] - places), pads_begin=room, value=float(before))


def _running_product(b: Builder, x: Value, axis: int) -> Value:
    """The product of each element and all before it.

    Each step doubles how many neighbours a product covers: two products of half as many are multiplied.
    """
    reach = 1
    while reach < x.shape[axis]:
        x = x * _later(b, x, axis, reach, 1)
        reach *= 2
    return x


@rule("ReverseSequence")
def reverse_sequence(b: Builder, call: Call, x: Value, lengths: Value) -> Value:
    """The first `lengths` elements along the time axis in reverse order, those after them as they are."""
    time, batch = (normal_axis(call.attrs.int(name, default), x.rank)
                   for name, default in (("time_axis", 0), ("batch_axis", 1)))
    if {time, batch} != {0, 1}:
        raise ModelError(f"time_axis={time}, batch_axis={batch}: expected 0 and 1")
    shape = x.shape[:2]
    place = broadcast_to(b, iota(b, shape[time], time, 2), shape)
    length = broadcast_to(b, reshaped(b, lengths, (1, shape[1]) if batch else (shape[0], 1)), shape)
    back = length - 1 - place
    at = b.select(place < length, back, place)
    return b.gather_nd(x, _grid(b, at, time))


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
def non_zero(b: Builder, call: Call, x: Value) -> Item:
    """The coordinates [rank, count] of what is not 0, in row-major order."""
    x = x if x.shape else b.reshape(x, shape=(1,))
    flat = b.reshape(x, shape=(x.size,))
    order, count = _chosen(b, truth(b, flat))
    require_table((x.rank, *x.shape), 8)
    places = np.indices(x.shape, np.int64).reshape(x.rank, x.size)
    return _first(b, call, b.gather(b.constant(places), order, axis=1) if x.size else b.constant(places), count, 1)


@rule("Compress")
def compress(b: Builder, call: Call, x: Value, condition: Value) -> Item:
    """The places along an axis, or of the flat tensor, where the condition holds; it may be shorter."""
    axis = call.attrs.int("axis", None)
    if axis is None:
        x, axis = reshaped(b, x, (x.size,)), 0
    axis %= x.rank
    if condition.size > x.shape[axis]:
        condition = slice_axis(b, condition, 0, 0, x.shape[axis])
    order, count = _chosen(b, condition)
    return _first(b, call, b.gather(x, order, axis=axis), count, axis)


@rule("Unique")
def unique(b: Builder, call: Call, x: Value) -> list[Item]:
    """The distinct elements of the flat tensor, the first place of each, for each place the number of its element, and
    how often each occurs."""
    ordered = call.attrs.bool("sorted", True)
    size = x.size
    if call.attrs.int("axis", None) is not None and x.rank != 1:
        raise UnsupportedError("axis: supported: the elements of the flat tensor")
    if not size:
        return [reshaped(b, x, (0,)), *(b.constant(np.zeros(0, np.int64)) for _ in range(3))]
    flat = reshaped(b, x, (size,))
    order = b.argsort(flat, axis=0)
    line = b.gather(flat, order, axis=0)
    later, before = slice_axis(b, line, 0, 1, size), slice_axis(b, line, 0, 0, size - 1)
    differs = b.not_equal(later, before)
    if line.element.is_float:  # NaN, all of which comes last, is one element
        differs = differs & b.equal(before, before)
    group = b.cumsum(b.pad(b.convert(differs, element=i64), pads_begin=(1,)), axis=0)
    count = b.reshape(slice_axis(b, group, 0, size - 1, size), shape=()) + b.constant(1, i64)
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
def non_max_suppression(b: Builder, call: Call, boxes: Value, scores: Value) -> Item:
    """(batch, class, box) of the boxes that are kept: of each class by falling score, those that overlap none before.

    Corners come in any order. A score must be above the threshold, an overlap above its own to suppress.
    """
    most = call.number(2, "max_output_boxes_per_class", 0)
    overlap = call.number(3, "iou_threshold", 0.0)
    least = call.number(4, "score_threshold", -np.inf)
    centre = call.attrs.int("center_point_box", 0)
    if boxes.rank != 3 or boxes.shape[2] != 4 or scores.shape != (boxes.shape[0], scores.shape[1], boxes.shape[1]):
        raise ModelError(f"found boxes {boxes.type} and scores {scores.type}")
    (batch, classes, count), kept = scores.shape, min(max(most, 0), boxes.shape[1])
    if not batch * classes * kept:
        return b.constant(np.zeros((0, 3), np.int64))
    if count > _WHOLE:
        raise UnsupportedError(f"{count} boxes; supported: {_WHOLE}")
    if not centre:
        one, other = slice_axis(b, boxes, 2, 0, 2), slice_axis(b, boxes, 2, 2, 4)
        boxes = b.concat(b.minimum(one, other), b.maximum(one, other), axis=2)
    number = iota(b, count, 2, 4, scores.element.name)
    shape = (batch, classes, count)
    columns = [b.reshape(scores, shape=(*shape, 1)), number, b.reshape(boxes, shape=(batch, 1, count, 4))]
    rows = b.concat(*(broadcast_to(b, column, (*shape, column.shape[3])) for column in columns), axis=3)
    found = b.box_nms(b.reshape(rows, shape=(batch * classes, count, 6)), overlap=overlap, valid=least, topk=-1,
                      keep=kept, coordinates=2, score=0, id=-1, across_ids=True,
                      format="center" if centre else "corner")
    box = b.reshape(slice_axis(b, slice_axis(b, found, 2, 1, 2), 1, 0, kept), shape=(batch * classes * kept,))
    order, total = _chosen(b, box >= b.constant(0, f32))
    own = np.indices((batch, classes, kept), np.int64)[:2].reshape(2, prod((batch, classes, kept))).T
    triples = b.concat(b.constant(own), b.reshape(b.convert(box, element=i64), shape=(box.size, 1)), axis=1)
    return _first(b, call, b.gather(triples, order, axis=0), total, 0)


MOST_PARTS = 4096
"""The most parts that a tensor is split into."""


@rule("SequenceEmpty")
def sequence_empty(b: Builder, call: Call) -> Item:
    call.attrs.ignore("dtype")
    return TensorSequence(())


@rule("SequenceConstruct")
def sequence_construct(b: Builder, call: Call) -> Item:
    return TensorSequence(tuple(call.all_inputs()))


def _place(call: Call, position: int, count: int, *, default: int) -> int:
    """In [0, count), negative ones from the end."""
    if call.optional_item(position) is None:
        return default
    place = call.static_ints(position, "position")[0]
    if not -count <= place < count:
        raise ModelError(f"position {place} is outside [-{count}, {count})")
    return place % count


@rule("SequenceAt")
def sequence_at(b: Builder, call: Call) -> Item:
    items = call.sequence(0)
    return items[_place(call, 1, len(items), default=-1)]


@rule("SequenceInsert")
def sequence_insert(b: Builder, call: Call) -> Item:
    """Before the element at a position; at the end without one."""
    items = call.sequence(0)
    place = len(items)
    if call.optional_item(2) is not None:
        place = call.number(2, "position")
        if not -len(items) <= place <= len(items):
            raise ModelError(f"position {place} is outside [-{len(items)}, {len(items)}]")
        place += len(items) if place < 0 else 0
    return TensorSequence((*items[:place], call.input(1), *items[place:]))


@rule("SequenceErase")
def sequence_erase(b: Builder, call: Call) -> Item:
    items = call.sequence(0)
    place = _place(call, 1, len(items), default=len(items) - 1)
    return TensorSequence((*items[:place], *items[place + 1 :]))


@rule("SequenceLength")
def sequence_length(b: Builder, call: Call) -> Item:
    return b.constant(len(call.sequence(0)), i64)


@rule("SplitToSequence")
def split_to_sequence(b: Builder, call: Call, x: Value) -> Item:
    """In parts of 1 (without the axis unless `keepdims`), of one size and what is left, or of the given sizes."""
    axis, keep = axis_of(call, x, 0), call.attrs.bool("keepdims", True)
    if call.optional_item(1) is None:
        sizes = [1] * x.shape[axis]
    else:
        keep, sizes = True, split_sizes(call.static(1, "split"), x.shape[axis], axis)
    if len(sizes) > MOST_PARTS:
        raise UnsupportedError(f"{len(sizes)} parts; supported: {MOST_PARTS}")
    cut = parts(b, x, axis, sizes)
    return TensorSequence(tuple(cut if keep else (without_axis(b, part, axis) for part in cut)))


@rule("ConcatFromSequence")
def concat_from_sequence(b: Builder, call: Call) -> Item:
    items, new = call.sequence(0), call.attrs.bool("new_axis")
    if not items:
        raise ModelError("the sequence is empty")
    place = normal_axis(call.attrs.int("axis"), items[0].rank + new)
    return stacked(b, items, place) if new else b.concat(*items, axis=place)




# ---- optionals -----------------------------------------------------------------------------------------------


@rule("Optional")
def optional(b: Builder, call: Call) -> Item:
    call.attrs.ignore("type")
    item = call.optional_item(0)
    return EmptyOptional() if item is None else item


@rule("OptionalGetElement")
def optional_get_element(b: Builder, call: Call) -> Item:
    item = call.item(0)
    if isinstance(item, EmptyOptional):
        raise ModelError("the optional is empty")
    return item


@rule("OptionalHasElement")
def optional_has_element(b: Builder, call: Call) -> Item:
    item = call.optional_item(0)
    return b.constant(item is not None and not isinstance(item, EmptyOptional), "bool")
