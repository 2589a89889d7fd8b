"""Boxes: non-maximum suppression, and what a detector reads from regions of an image.

A box is four numbers in a row: `corner` is (left, top, right, bottom), `center` is (x, y, width, height).
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np

from ngraph_mxnet.ir.opdef import Attrs, Rates, Shapes, by_result, register_op
from ngraph_mxnet.ir.types import Bool, Choice, Float, Int, Ints, TensorType
from ngraph_mxnet.ops.common import (
    FLOAT,
    Types,
    common_element,
    in_f32,
    require,
    require_domain,
    require_per_axis,
    require_rank,
)

BOX_FORMATS = ("corner", "center")


def _nms_work(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
    images, boxes = prod(operands[0][:-2]), operands[0][-2]
    seen = boxes if attrs["topk"] < 0 else min(boxes, attrs["topk"])
    kept = seen if attrs["keep"] < 0 else min(seen, attrs["keep"])
    return {"sort": images * boxes, "simple": images * seen * kept * 10, "move": prod(results[0])}


@register_op(
    "box_nms",
    operands=1,
    attrs={"overlap": Float(0.5), "valid": Float(0.0), "topk": Int(-1), "coordinates": Int(2), "score": Int(1),
           "id": Int(-1), "background": Int(-1), "across_ids": Bool(False), "format": Choice("corner", BOX_FORMATS),
           "in_place": Bool(False), "keep": Int(-1)},
    work=_nms_work,
)
def box_nms(types, attrs):
    """T[N, B, D] -> same: of each N the rows that are kept, by falling score, then rows of -1 in place of the others.

    A row has a score, 4 coordinates and perhaps an id (`id` < 0: none), in the columns that the attributes name. Rows
    with a score of at most `valid`, and those whose id is `background`, are dropped; of the others the first `topk` by
    falling score (of equal scores in order; -1: all) are looked at. A row is suppressed if its overlap (intersection
    over union) with a row that is kept is more than `overlap`, and both have the same id or `across_ids` is set. At
    most `keep` rows are kept (-1: all).

    With `in_place` an overlap of exactly `overlap` suppresses, too, and the result has all rows that were not dropped:
    first those that were looked at, by falling score, then the others in their order. Those that were suppressed or
    not looked at get the id -1. (MXNet's src/operator/contrib/multibox_detection.cc.)
    """
    (rows,) = types
    require_domain(types, FLOAT)
    require_rank(rows, 3, 3)
    width, first = rows.shape[2], attrs["coordinates"]
    require(0 <= first <= width - 4, "coordinates", first, f"the first of 4 in {width} columns")
    for name in ("score", "id"):
        column = attrs[name]
        fits = column < width and not first <= column < first + 4 and (column >= 0 or name == "id")
        require(fits, name, column, f"one of {width} columns without the coordinates")
    require(attrs["id"] != attrs["score"], "id", attrs["id"], "another column than the score")
    require(attrs["id"] >= 0 or not attrs["in_place"], "id", attrs["id"], "a column for what fell in place")
    require(attrs["keep"] < 0 or not attrs["in_place"], "keep", attrs["keep"], "-1 in place")
    return rows


@box_nms.reference
@in_f32
def _(inputs, attrs):
    (rows,) = inputs
    out = np.full_like(rows, -1)
    for kept, batch in zip(out, rows, strict=True):
        order, valid = _order(batch, attrs)
        found = _kept_rows(batch, order, attrs)
        if not attrs["in_place"]:
            kept[: len(found)] = batch[found]
            continue
        kept[: len(valid)] = batch[valid]
        kept[: len(order)] = batch[order]
        kept[: len(valid), attrs["id"]] = -1
        stands = [order.index(row) for row in found]
        kept[stands, attrs["id"]] = batch[found, attrs["id"]]
    return out


def _order(rows: np.ndarray, attrs: Attrs) -> tuple[list[int], list[int]]:
    """The rows to look at, by falling score; and all that aren't dropped."""
    scores = rows[:, attrs["score"]]
    valid = scores > attrs["valid"]
    if attrs["id"] >= 0:
        valid &= rows[:, attrs["id"]] != attrs["background"]
    order = [int(i) for i in np.argsort(-scores, kind="stable") if valid[i]]
    return order[: attrs["topk"]] if attrs["topk"] >= 0 else order, [int(i) for i in np.flatnonzero(valid)]


def _kept_rows(rows: np.ndarray, looked_at: list[int], attrs: Attrs) -> list[int]:
    order = list(looked_at)
    kept: list[int] = []
    corners = as_corners(rows[:, attrs["coordinates"] : attrs["coordinates"] + 4], attrs["format"])
    by_id = attrs["id"] >= 0 and not attrs["across_ids"]
    while order and len(kept) != attrs["keep"]:
        best = order.pop(0)
        kept.append(best)
        overlaps = overlap(corners[best], corners[order])
        falls = overlaps >= attrs["overlap"] if attrs["in_place"] else overlaps > attrs["overlap"]
        if by_id:
            falls &= rows[order, attrs["id"]] == rows[best, attrs["id"]]
        order = [row for row, gone in zip(order, falls, strict=True) if not gone]
    return kept


def as_corners(boxes: np.ndarray, box_format: str) -> np.ndarray:
    """[..., 4] in `box_format` as (left, top, right, bottom)."""
    if box_format == "corner":
        return boxes
    half = boxes[..., 2:] / 2
    return np.concatenate([boxes[..., :2] - half, boxes[..., :2] + half], axis=-1)


def overlap(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union of corner boxes, which broadcast; NaN for two boxes without area."""
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    shared = np.prod(np.maximum(sides, 0), axis=-1)
    area_a, area_b = (_area(v) for v in (a, b))
    return shared / (area_a + area_b - shared)


def _area(boxes: np.ndarray) -> np.ndarray:
    sides = boxes[..., 2:] - boxes[..., :2]
    return np.where((sides < 0).any(axis=-1), 0, np.prod(sides, axis=-1)).astype(boxes.dtype)


def _regions_type(types: Types, sizes: tuple[int, ...]) -> TensorType:
    data, rois = types
    require_domain(types, FLOAT)
    common_element(types)
    require_rank(data, 4, 4)
    require_rank(rois, 2, 2, position=1)
    require(rois.shape[1] == 5, "operand 1", rois, "5 columns: image, left, top, right, bottom")
    require_per_axis("sizes", sizes, 2, 1)
    require(data.size > 0, "operand 0", data, "elements")
    return data.with_shape((rois.shape[0], data.shape[1], *sizes))


@register_op("roi_align", operands=2,
             attrs={"sizes": Ints(), "scale": Float(1.0), "samples": Int(-1), "offset": Float(0.0)}, kind="resampling",
             work=by_result(gather=16, simple=16))
def roi_align(types, attrs):
    """T[N, C, H, W], regions T[R, 5] -> T[R, C, *sizes]: means over bins of each region.

    A region is (image, left, top, right, bottom); its coordinates are multiplied by `scale`, then `offset` is
    subtracted. The points of a bin, `samples` x `samples` evenly spread ones (-1: one for each pixel's size, rounded
    up), are averaged; a point is linear between pixels, and 0 more than a pixel outside. Without an offset a region is
    at least 1 x 1; with one, its right may lie left of its left, so that it has no points, and its result is 0. It is 0
    for an image < 0, too; an image beyond the last one stands for the last.
    (He et al., "Mask R-CNN", 2017; MXNet's src/operator/contrib/roi_align.cc.)
    """
    return _regions_type(types, attrs["sizes"])


@roi_align.reference
@in_f32
def _(inputs, attrs):
    data, rois = inputs
    out = np.zeros((len(rois), data.shape[1], *attrs["sizes"]), data.dtype)
    for place, roi in enumerate(rois):
        if roi[0] >= 0:
            out[place] = _aligned(data[min(int(roi[0]), len(data) - 1)], roi[1:], attrs)
    return out


def _aligned(image: np.ndarray, box: np.ndarray, attrs: Attrs) -> np.ndarray:
    real = image.dtype.type
    left, top, right, bottom = (v * real(attrs["scale"]) - real(attrs["offset"]) for v in box)
    spans = [bottom - top, right - left]
    if attrs["offset"] == 0:
        spans = [max(span, real(1)) for span in spans]
    rows, columns = (
        _points(start, span, bins, size, attrs["samples"], real)
        for start, span, bins, size in zip((top, left), spans, attrs["sizes"], image.shape[1:], strict=True))
    return np.einsum("ri,cij,sj->crs", rows, image, columns)


def _points(start, span, bins: int, size: int, samples: int, real: type) -> np.ndarray:
    """The weight that each element of an axis has in the mean of each bin: [bins, size]."""
    width = real(span / real(bins))
    count = samples if samples > 0 else max(int(np.ceil(span / real(bins))), 0)
    matrix: np.ndarray = np.zeros((bins, size), real)
    for place in range(bins):
        for point in range(count):
            at = start + real(place) * width + real(point + 0.5) * width / real(count)
            if at < -1 or at > size:
                continue
            at = max(at, real(0))
            low = min(int(at), size - 1)
            part = at - low if low < size - 1 else real(0)
            matrix[place, low] += (1 - part) / count
            matrix[place, min(low + 1, size - 1)] += part / count
    return matrix


@register_op("roi_max_pool", operands=2, attrs={"sizes": Ints(), "scale": Float(1.0)}, kind="resampling",
             work=by_result(gather=16, simple=16))
def roi_max_pool(types, attrs):
    """T[N, C, H, W], regions T[R, 5] -> T[R, C, *sizes]: the greatest element of each bin of each region; 0 if empty.

    Coordinates times `scale` are rounded, halves away from 0; a region holds its end, and is at least 1 x 1. Bin b of
    R is [floor(b S / R), ceil((b + 1) S / R)) of a region's S pixels, clipped to the image. An image < 0 or beyond the
    last gives 0. (Girshick, "Fast R-CNN", 2015; MXNet's src/operator/roi_pooling.cc.)
    """
    return _regions_type(types, attrs["sizes"])


@roi_max_pool.reference
@in_f32
def _(inputs, attrs):
    data, rois = inputs
    out = np.zeros((len(rois), data.shape[1], *attrs["sizes"]), data.dtype)
    for place, roi in enumerate(rois):
        if not 0 <= roi[0] < len(data):
            continue
        left, top, right, bottom = (_rounded(v * data.dtype.type(attrs["scale"])) for v in roi[1:])
        rows = _bins(top, bottom, attrs["sizes"][0], data.shape[2])
        columns = _bins(left, right, attrs["sizes"][1], data.shape[3])
        for i, (a, b) in enumerate(rows):
            for j, (c, d) in enumerate(columns):
                if a < b and c < d:
                    out[place, :, i, j] = data[int(roi[0]), :, a:b, c:d].max(axis=(1, 2))
    return out


def _rounded(value: np.floating) -> int:
    return int(np.sign(value) * np.floor(np.abs(value) + value.dtype.type(0.5)))


def _bins(start: int, last: int, bins: int, size: int) -> list[tuple[int, int]]:
    width = np.float32(max(last - start + 1, 1)) / np.float32(bins)
    places = np.arange(bins + 1, dtype=np.float32) * width
    edges = [(int(np.floor(a)), int(np.ceil(b))) for a, b in pairwise(places)]
    return [(min(max(a + start, 0), size), min(max(b + start, 0), size)) for a, b in edges]
