"""Detection in ONNX: suppression of boxes, and regions of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from ngraph_mxnet.frontends.onnx.writer.document import Document, writes
from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.sizes import Dim
from ngraph_mxnet.ops.boxes import BOX_FORMATS


def _column(d: Document, rows: str, place: int, count: int = 1) -> str:
    """Columns of [N, B, D]: [N, B, count], or [N, B] of one."""
    if count == 1:
        return str(d.add("Gather", rows, d.constant(np.int64(place)), axis=2))
    return d.sliced(rows, 2, place, place + count)


def _ordered(d: Document, rows: str, key: str, count: str) -> tuple[str, str]:
    """The rows [N, B, D] by falling key [N, B], the first `count`, and their keys; of equal keys in their order."""
    keys, order = d.add("TopK", key, count, outputs=2, axis=1, largest=1, sorted=1)
    return str(d.add("GatherND", rows, d.add("Unsqueeze", order, d.ints(2)), batch_dims=1)), keys


@writes("box_nms")
def box_nms(d: Document, node: Node, rows: str) -> str:
    """NonMaxSuppression tells which rows stand; they are sorted before it and behind it, so its order doesn't matter.

    Rows of other ids must not suppress each other: their boxes are moved apart by more than all boxes span.
    """
    attrs, value = node.attrs, node.inputs[0]
    boxes, width = value.shape[1], int(value.shape[2])
    scores = _column(d, rows, attrs["score"])
    valid = d.add("Greater", scores, d.like(attrs["valid"], value))
    if attrs["id"] >= 0:
        ids = _column(d, rows, attrs["id"])
        valid = d.add("And", valid, d.add("Not", d.add("Equal", ids, d.like(attrs["background"], value))))
    key = d.add("Where", valid, scores, d.like(-np.inf, value))
    seen = boxes
    if attrs["topk"] >= 0:
        if isinstance(boxes, Dim):
            raise d.refuse("topk, where the number of boxes is a range")
        seen = min(boxes, attrs["topk"])
    looked_at, sorted_scores = _ordered(d, rows, key, d.shape([seen]))
    kept = _kept(d, node, looked_at, sorted_scores, d.size(seen))
    if attrs["in_place"]:
        kept = _filled(d, kept, value, seen, columns=False)
        return _in_place(d, node, rows, _filled(d, looked_at, value, seen), kept, valid)
    told = d.add("Concat", looked_at, d.add("Unsqueeze", kept, d.ints(2)), axis=2)
    moved, _ = _ordered(d, told, d.add("Mul", kept, _falling(d, seen, value)), d.shape([seen]))
    stands = d.add("Greater", d.sliced(moved, 2, width, width + 1), d.like(0, value))
    return _filled(d, d.add("Where", stands, d.sliced(moved, 2, 0, width), d.like(-1, value)), value, seen)


def _places(d: Document, count: Any) -> str:
    """[count]: 0, 1, 2 ..."""
    if not isinstance(count, Dim):
        return d.constant(np.arange(count))
    return str(d.add("Range", d.constant(np.int64(0)), d.reshaped(d.size(count), ()), d.constant(np.int64(1))))


def _falling(d: Document, count: Any, like: Value) -> str:
    """[count]: count, count - 1 ... 1."""
    return d.cast(d.add("Sub", d.size(count), _places(d, count)), like.element)


def _in_place(d: Document, node: Node, rows: str, looked_at: str, kept: str, valid: str) -> str:
    """Of the rows that were not dropped, in their order: those that were looked at take the first places, by falling
    score. The id of what doesn't stand is -1.

    Args:
        looked_at: [N, B, D], whose rows behind those that were looked at have any content.
        kept: 1 for each row of `looked_at` that stands, else 0.
        valid: for each of `rows` whether it was not dropped.
    """
    value, (_, boxes, width) = node.inputs[0], node.inputs[0].shape
    count, places = d.reduced("ReduceSum", d.cast(valid, "i64"), (1,), keep=True), _places(d, boxes)
    seen = count if node.attrs["topk"] < 0 else d.add("Min", count, d.ints(node.attrs["topk"]))
    falling = d.add("Mul", d.cast(valid, value.element), _falling(d, boxes, value))
    own, _ = _ordered(d, rows, falling, d.shape([boxes]))
    none = d.like(-1, value)
    stands = d.add("Unsqueeze", d.add("Where", d.add("Less", places, seen), kept, none), d.ints(2))
    found = d.add("Where", d.add("Equal", stands, none), own, looked_at)
    falls = d.add("And", d.add("Less", stands, d.like(1, value)), d.constant(np.arange(width) == node.attrs["id"]))
    there = d.add("Unsqueeze", d.add("Less", places, count), d.ints(2))
    return str(d.add("Where", d.add("And", there, d.add("Not", falls)), found, none))


def _kept(d: Document, node: Node, rows: str, scores: str, seen: str) -> str:
    """[N, K]: 1 for the rows that stand, else 0."""
    attrs, value = node.attrs, node.inputs[0]
    boxes = _column(d, rows, attrs["coordinates"], 4)
    if attrs["format"] == BOX_FORMATS[1]:
        centre, size = d.sliced(boxes, 2, 0, 2), d.sliced(boxes, 2, 2, 4)
        half = d.add("Mul", size, d.like(0.5, value))
        boxes = d.add("Concat", d.add("Sub", centre, half), d.add("Add", centre, half), axis=2)
    if attrs["id"] >= 0 and not attrs["across_ids"]:
        span = d.add("Sub", d.reduced("ReduceMax", boxes, (1, 2), keep=True),
                     d.reduced("ReduceMin", boxes, (1, 2), keep=True))
        apart = d.add("Mul", d.add("Add", span, d.like(1, value)), d.sliced(rows, 2, attrs["id"], attrs["id"] + 1))
        boxes = d.add("Add", boxes, apart)
    overlap = np.float32(attrs["overlap"])
    if attrs["in_place"]:
        overlap = np.nextafter(overlap, np.float32(0))
    most = seen if attrs["keep"] < 0 else d.ints(attrs["keep"])
    if str(value.element) != "f32":
        boxes, scores = d.cast(boxes, "f32"), d.cast(scores, "f32")
    lowest = np.float32(max(attrs["valid"], np.finfo(np.float32).min))
    found = d.add("NonMaxSuppression", boxes, d.add("Unsqueeze", scores, d.ints(1)), most,
                  d.constant(np.array([overlap])), d.constant(np.array([lowest])))
    places = d.add("Gather", found, d.ints(0, 2), axis=1)
    ones = d.add("Expand", d.like(1, value), d.add("Shape", places, start=0, end=1))
    nothing = d.add("Expand", d.like(0, value), d.add("Shape", scores))
    return str(d.add("ScatterND", nothing, places, ones))


def _filled(d: Document, name: str, value: Value, seen: Any, *, columns: bool = True) -> str:
    """What the first rows have, [N, K, D], or [N, K] without columns, with -1 for the other rows."""
    boxes = value.shape[1]
    if isinstance(boxes, Dim) or boxes == seen:
        return name
    more = (0,) * columns
    return str(d.add("Pad", name, d.ints(0, 0, *more, 0, boxes - seen, *more), d.like(-1, value)))


def _regions(d: Document, node: Node, regions: str) -> tuple[str, str, str]:
    """The corners [R, 4] of regions, the numbers of their images within range, and which have a number that is not
    negative, [R, 1, 1, 1]."""
    value = node.inputs[1]
    numbers = d.add("Gather", regions, d.constant(np.int64(0)), axis=1)
    there = d.reshaped(d.add("GreaterOrEqual", numbers, d.like(0, value)), (-1, 1, 1, 1))
    whole = d.cast(numbers, "i64")
    last = d.add("Sub", d.size(node.inputs[0].shape[0]), d.ints(1))
    return d.sliced(regions, 1, 1, 5), d.add("Max", d.add("Min", whole, last), d.ints(0)), there


@writes("roi_align")
def roi_align(d: Document, node: Node, x: str, regions: str) -> str:
    attrs = node.attrs
    if attrs["offset"] not in (0.0, 0.5):
        raise d.refuse(f"found offset={attrs['offset']}, ONNX has 0 and 0.5")
    corners, numbers, there = _regions(d, node, regions)
    out = d.add("RoiAlign", x, corners, numbers, mode="avg", output_height=attrs["sizes"][0],
                output_width=attrs["sizes"][1], sampling_ratio=max(attrs["samples"], 0), spatial_scale=attrs["scale"],
                coordinate_transformation_mode="half_pixel" if attrs["offset"] else "output_half_pixel")
    return str(d.add("Where", there, out, d.like(0, node.output)))


@writes("roi_max_pool")
def roi_max_pool(d: Document, node: Node, x: str, regions: str) -> str:
    """A region of an image that there isn't gives 0."""
    value = node.inputs[1]
    corners, numbers, there = _regions(d, node, regions)
    told = d.add("Gather", regions, d.constant(np.int64(0)), axis=1)
    last = d.cast(d.add("Sub", d.size(node.inputs[0].shape[0]), d.ints(1)), value.element)
    within = d.reshaped(d.add("LessOrEqual", told, last), (-1, 1, 1, 1))
    rows = d.add("Concat", d.add("Unsqueeze", d.cast(numbers, value.element), d.ints(1)), corners, axis=1)
    out = d.add("MaxRoiPool", x, rows, pooled_shape=list(node.attrs["sizes"]), spatial_scale=node.attrs["scale"])
    return str(d.add("Where", d.add("And", there, within), out, d.like(0, node.output)))
