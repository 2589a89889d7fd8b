"""Sequences of tensors, and optionals. How long they are is known when the graph is made, so the graph itself has
tensors only."""

from __future__ import annotations

from collections.abc import Sequence

from ngraph_mxnet.bridges.onnx.rules.common import normal_axis
from ngraph_mxnet.bridges.onnx.rules.registry import Call, rule
from ngraph_mxnet.bridges.onnx.values import EmptyOptional, Item, TensorSequence
from ngraph_mxnet.compositions.tensors import slice_axis
from ngraph_mxnet.errors import ModelError, UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import i64

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
        place = call.static_ints(2, "position")[0]
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
def split_to_sequence(b: Builder, call: Call) -> Item:
    """In parts of 1 (without the axis unless `keepdims`), of one size and what is left, or of the given sizes."""
    x = call.input(0)
    axis, keep = normal_axis(call.attrs.int("axis", 0), x.type.rank), call.attrs.bool("keepdims", True)
    size = x.shape[axis]
    if call.optional_item(1) is None:
        sizes = [1] * size
    else:
        keep, given = True, call.static(1, "split")
        each = int(given) if not given.ndim else 0
        if not given.ndim and each < 1:
            raise ModelError(f"split={each}, expected 1 or more")
        sizes = [min(each, size - at) for at in range(0, size, each)] if each else [int(part) for part in given]
    if sum(sizes) != size or min(sizes, default=0) < 0:
        raise ModelError(f"split={sizes} of {size} places along axis {axis}")
    if len(sizes) > MOST_PARTS:
        raise UnsupportedError(f"{len(sizes)} parts; supported: {MOST_PARTS}")
    parts, begin = [], 0
    for part in sizes:
        cut = slice_axis(b, x, axis, begin, begin + part)
        parts.append(cut if keep else b.reshape(cut, shape=[d for i, d in enumerate(x.shape) if i != axis]))
        begin += part
    return TensorSequence(tuple(parts))


@rule("ConcatFromSequence")
def concat_from_sequence(b: Builder, call: Call) -> Item:
    items, new = call.sequence(0), call.attrs.bool("new_axis")
    if not items:
        raise ModelError("the sequence is empty")
    return joined(b, items, call.attrs.int("axis"), new_axis=new)


def joined(b: Builder, items: Sequence[Value], axis: int, *, new_axis: bool) -> Value:
    """One tensor of several, along an axis of theirs or a new one."""
    place = normal_axis(axis, items[0].type.rank + new_axis)
    if new_axis:
        items = [b.reshape(item, shape=(*item.shape[:place], 1, *item.shape[place:])) for item in items]
    return b.concat(*items, axis=place)


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
