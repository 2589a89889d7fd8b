"""Operators that are run between programs on arrays and lists as they are: of sequences, and slices whose bounds are
computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import onnx

from ngraph_mxnet.bridges.onnx.attributes import Attributes
from ngraph_mxnet.bridges.onnx.values import Item, TensorSequence
from ngraph_mxnet.errors import ModelError

Direct = Callable[[Attributes, Sequence[Any]], Any]
"""Gives the one output for inputs, None where one is left out. It is no view of an input, but may be one."""


def is_of_lists(node: onnx.NodeProto, domain: str, inputs: Sequence[Item | None]) -> bool:
    """True if the node reads or makes sequences as such: an operator on sequences, or an Identity of a sequence."""
    if domain:
        return False
    return node.op_type in _LISTS or (node.op_type == "Identity" and isinstance(inputs[0], TensorSequence))


def find_direct(node: onnx.NodeProto, domain: str, opset: int) -> Direct | None:
    """Find the function that runs the node on arrays and lists; None if no function here does."""
    if domain or (node.op_type == "Slice" and opset < 10):
        return None
    return _DIRECT.get(node.op_type)


def _place(given: Any, count: int, *, most: int) -> int:
    """In [0, most], negative ones from the end of `count`."""
    place = int(np.asarray(given).reshape(-1)[0])
    if not -count <= place <= most:
        raise ModelError(f"position {place} is outside [-{count}, {most}]")
    return place + count if place < 0 else place


def _list(given: Any) -> list[Any]:
    if not isinstance(given, list):
        raise ModelError("input 0: found a tensor or an empty optional, expected a sequence")
    return given


def _tensor(given: Sequence[Any], position: int) -> np.ndarray:
    value = _optional(given, position)
    if value is None:
        raise ModelError(f"input {position} is missing")
    if not isinstance(value, np.ndarray):
        raise ModelError(f"input {position} is a sequence or optional, expected a tensor")
    return value


def _optional(given: Sequence[Any], position: int) -> Any:
    return given[position] if position < len(given) else None


def _construct(attrs: Attributes, given: Sequence[Any]) -> Any:
    items = [_tensor(given, position) for position in range(len(given))]
    if len({item.dtype for item in items}) > 1:
        raise ModelError(f"found elements of {', '.join(str(item.dtype) for item in items)}, expected one type")
    return items


def _at(attrs: Attributes, given: Sequence[Any]) -> Any:
    items = _list(given[0])
    return items[_place(given[1], len(items), most=len(items) - 1)]


def _insert(attrs: Attributes, given: Sequence[Any]) -> Any:
    items, place, new = _list(given[0]), _optional(given, 2), _tensor(given, 1)
    if items and items[0].dtype != new.dtype:
        raise ModelError(f"input 1: found {new.dtype}, expected {items[0].dtype} as the elements before")
    at = len(items) if place is None else _place(place, len(items), most=len(items))
    return [*items[:at], new, *items[at:]]


def _erase(attrs: Attributes, given: Sequence[Any]) -> Any:
    items, place = _list(given[0]), _optional(given, 1)
    if not items:
        raise ModelError("the sequence is empty")
    at = len(items) - 1 if place is None else _place(place, len(items), most=len(items) - 1)
    return [*items[:at], *items[at + 1 :]]


def _split(attrs: Attributes, given: Sequence[Any]) -> Any:
    x, split = _tensor(given, 0), _optional(given, 1)
    axis, keep = attrs.int("axis", 0), attrs.bool("keepdims", True)
    size = x.shape[axis]
    if split is None:
        parts = [x.take([i] if keep else i, axis) for i in range(size)]
        return [np.asarray(part) for part in parts]
    each = int(split) if not split.ndim else 0
    if not split.ndim and each < 1:
        raise ModelError(f"split={each}, expected 1 or more")
    sizes = [min(each, size - at) for at in range(0, size, each)] if each else [int(part) for part in split]
    if sum(sizes) != size or min(sizes, default=0) < 0:
        raise ModelError(f"split={sizes} of {size} places along axis {axis}")
    ends = list(accumulate(sizes))
    return [x.take(range(begin, end), axis) for begin, end in zip([0, *ends], ends, strict=False)]


def _concat(attrs: Attributes, given: Sequence[Any]) -> Any:
    items, axis, new = _list(given[0]), attrs.int("axis"), attrs.bool("new_axis")
    if not items:
        raise ModelError("the sequence is empty")
    return np.stack(items, axis) if new else np.concatenate(items, axis)


def _slice(attrs: Attributes, given: Sequence[Any]) -> Any:
    x, starts, ends = _tensor(given, 0), _tensor(given, 1).reshape(-1), _tensor(given, 2).reshape(-1)
    axes, steps = _optional(given, 3), _optional(given, 4)
    axes = range(len(starts)) if axes is None else axes.reshape(-1)
    steps = [1] * len(starts) if steps is None else steps.reshape(-1)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ModelError(f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes, {len(steps)} steps: expected "
                         "equal numbers")
    cut = [slice(None)] * x.ndim
    for axis, begin, end, step in zip(axes, starts, ends, steps, strict=True):
        if not step or not -x.ndim <= axis < x.ndim:
            raise ModelError(f"step {step} along axis {axis} of {x.ndim}: expected another step, or axis")
        cut[axis] = slice(int(begin), int(end), int(step))
    return x[tuple(cut)].copy()


_LISTS: dict[str, Direct] = {
    "SequenceEmpty": lambda attrs, given: [],
    "SequenceConstruct": _construct,
    "SequenceAt": _at,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SequenceLength": lambda attrs, given: np.array(len(_list(given[0])), np.int64),
    "SplitToSequence": _split,
    "ConcatFromSequence": _concat,
}
_DIRECT: dict[str, Direct] = {**_LISTS, "Identity": lambda attrs, given: given[0], "Slice": _slice}
