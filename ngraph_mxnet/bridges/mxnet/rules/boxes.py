"""Boxes of a detector, and what it reads from regions of an image."""

from __future__ import annotations

from math import prod

import numpy as np

from ngraph_mxnet.bridges.mxnet.rules.registry import as_number, image_shape, positive, rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.tensors import scalar, slice_axis
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ops.boxes import BOX_FORMATS

Columns = list[Value]


def _columns(b: Builder, x: Value, first: int = 0) -> Columns:
    """Four columns of the last axis, each [..., 1]."""
    axis = len(x.shape) - 1
    return [slice_axis(b, x, axis, first + i, first + i + 1) for i in range(4)]


def _half(b: Builder, x: Value) -> Value:
    return b.multiply(x, scalar(b, 0.5, x))


def _corners(b: Builder, box: Columns, box_format: str) -> Columns:
    """left, top, right, bottom."""
    if box_format == "corner":
        return box
    x, y, width, height = box
    w, h = _half(b, width), _half(b, height)
    return [b.subtract(x, w), b.subtract(y, h), b.add(x, w), b.add(y, h)]


def _centres(b: Builder, box: Columns, box_format: str) -> Columns:
    """x, y, width, height."""
    if box_format == "center":
        return box
    left, top, right, bottom = box
    width, height = b.subtract(right, left), b.subtract(bottom, top)
    return [b.add(left, _half(b, width)), b.add(top, _half(b, height)), width, height]


@rule("_contrib_box_nms", operands=1)
def box_nms(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Any attributes. MXNet's second output, which rows were kept, is for its gradient: here there is none."""
    (x,) = inputs
    if len(x.shape) < 2:
        raise UnsupportedError(f"found {x.type}, expected rows of boxes")
    rows, width = x.shape[-2:]
    topk, first, identity = attrs.int("topk", -1), attrs.int("coord_start", 2), attrs.int("id_index", -1)
    before, after = (attrs.choice(name, "corner", BOX_FORMATS) for name in ("in_format", "out_format"))
    options = {
        "overlap": attrs.float("overlap_thresh", 0.5), "valid": attrs.float("valid_thresh", 0.0), "topk": topk,
        "coordinates": first, "score": attrs.int("score_index", 1), "id": max(identity, -1),
        "background": attrs.int("background_id", -1), "across_ids": attrs.bool("force_suppress", False),
    }
    batch = b.reshape(x, shape=(prod(x.shape[:-2]), rows, width))
    kept = b.box_nms(batch, **options, format=before)
    if topk == 0:  # MXNet then returns its input
        return b.identity(x)
    if before != after:
        kept = _converted(b, kept, first, after)
    return b.reshape(kept, shape=x.shape)


def _converted(b: Builder, rows: Value, first: int, box_format: str) -> Value:
    """Rows with their coordinates in `box_format`; those whose first coordinate is negative stay as they are."""
    axis = len(rows.shape) - 1
    box = _columns(b, rows, first)
    other = _centres(b, box, "corner") if box_format == "center" else _corners(b, box, "center")
    if box_format == "center":
        left, top, right, bottom = box
        other[:2] = [_half(b, b.add(left, right)), _half(b, b.add(top, bottom))]
    kept = b.less(box[0], scalar(b, 0, rows))
    parts = [b.select(kept, old, new) for old, new in zip(box, other, strict=True)]
    bounds = [(0, first), (first + 4, rows.shape[axis])]
    sides = [[slice_axis(b, rows, axis, *bound)] if bound[0] < bound[1] else [] for bound in bounds]
    return b.concat(*sides[0], *parts, *sides[1], axis=axis)


@rule("_contrib_box_iou", operands=2)
def box_iou(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The overlap of each box with each; 0 where they do not meet."""
    box_format = attrs.choice("format", "corner", BOX_FORMATS)
    if any(len(x.shape) < 2 or x.shape[-1] != 4 for x in inputs):
        raise UnsupportedError(f"found {inputs[0].type} and {inputs[1].type}, expected four columns")
    counts = [prod(x.shape[:-1]) for x in inputs]
    shapes = [(counts[0], 1, 4), (1, counts[1], 4)]
    pair = [_columns(b, b.reshape(x, shape=shape)) for x, shape in zip(inputs, shapes, strict=True)]
    areas = [_area(b, box, box_format) for box in pair]
    (l0, t0, r0, b0), (l1, t1, r1, b1) = (_corners(b, box, box_format) for box in pair)
    zero = scalar(b, 0, inputs[0])
    width = b.maximum(b.subtract(b.minimum(r0, r1), b.maximum(l0, l1)), zero)
    height = b.maximum(b.subtract(b.minimum(b0, b1), b.maximum(t0, t1)), zero)
    shared = b.multiply(width, height)
    ratio = b.divide(shared, b.subtract(b.add(*areas), shared))
    found = b.select(b.greater(shared, zero), ratio, zero)
    return b.reshape(found, shape=(*inputs[0].shape[:-1], *inputs[1].shape[:-1]))


def _area(b: Builder, box: Columns, box_format: str) -> Value:
    """The area of each box; 0 if a side is negative."""
    sides = _centres(b, box, box_format)[2:]
    zero = scalar(b, 0, box[0])
    return b.multiply(*(b.maximum(side, zero) for side in sides))


@rule("_contrib_box_decode", operands=2)
def box_decode(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Offsets [N, B, 4] from anchors [1, B, 4] as corner boxes."""
    x, anchors = inputs
    if len(x.shape) != 3 or x.shape[2] != 4 or anchors.shape != (1, x.shape[1], 4):
        raise UnsupportedError(f"found {x.type} and {anchors.type}, expected [N, B, 4] and [1, B, 4]")
    scale = b.constant(np.array([attrs.float(f"std{i}", 1.0) for i in range(4)], np.float32))
    clip, box_format = attrs.float("clip", -1.0), attrs.choice("format", "center", BOX_FORMATS)
    ax, ay, width, height = _centres(b, _columns(b, anchors), box_format)
    dx, dy, *sizes = _columns(b, b.multiply(x, scale))
    if clip > 0:
        sizes = [b.minimum(size, scalar(b, clip, x)) for size in sizes]
    cx, cy = b.add(b.multiply(dx, width), ax), b.add(b.multiply(dy, height), ay)
    w, h = (_half(b, b.multiply(b.exp(size), side)) for size, side in zip(sizes, (width, height), strict=True))
    return b.concat(b.subtract(cx, w), b.subtract(cy, h), b.add(cx, w), b.add(cy, h), axis=2)


@rule("_contrib_MultiBoxDetection", operands=3, ignored=["background_id"])
def multibox_detection(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Class probabilities [N, C, A], offsets [N, 4 A] and anchors [1, A, 4] -> [N, A, 6]: class, score and corners.

    Class 0 is the background, whatever `background_id` says, as in MXNet (src/operator/contrib/multibox_detection.cc).
    """
    scores, offsets, anchors = inputs
    if len(scores.shape) != 3 or scores.shape[1] < 2:
        raise UnsupportedError(f"found {scores.type}, expected [N, C, A] with a class beside the background")
    batch, classes, count = scores.shape
    if offsets.shape != (batch, 4 * count) or anchors.shape != (1, count, 4):
        raise UnsupportedError(f"found {offsets.type} and {anchors.type}, expected [{batch}, {4 * count}] and "
                               f"[1, {count}, 4]")
    overlap, variances = attrs.float("nms_threshold", 0.5), attrs.floats("variances", (0.1, 0.1, 0.2, 0.2))
    if not 0 < overlap <= 1:
        raise UnsupportedError(f"nms_threshold={overlap}, with which MXNet suppresses nothing and orders nothing")
    if len(variances) != 4:
        raise UnsupportedError(f"variances={variances}, expected four")
    ax, ay, width, height = _centres(b, _columns(b, anchors), "corner")
    scale = b.constant(np.array(variances, np.float32))
    dx, dy, dw, dh = _columns(b, b.multiply(b.reshape(offsets, shape=(batch, count, 4)), scale))
    cx, cy = b.add(b.multiply(dx, width), ax), b.add(b.multiply(dy, height), ay)
    w, h = (_half(b, b.multiply(b.exp(size), side)) for size, side in ((dw, width), (dh, height)))
    box = b.concat(b.subtract(cx, w), b.subtract(cy, h), b.add(cx, w), b.add(cy, h), axis=2)
    if attrs.bool("clip", True):
        box = b.minimum(b.maximum(box, scalar(b, 0, box)), scalar(b, 1, box))
    real = slice_axis(b, scores, 1, 1, classes)
    score, label = b.reduce_max(real, axes=(1,)), as_number(b, b.argmax(real, axis=1), scores)
    rows = b.concat(*(b.reshape(column, shape=(batch, count, 1)) for column in (label, score)), box, axis=2)
    below = np.nextafter(np.float32(attrs.float("threshold", 0.01)), np.float32(-np.inf))
    most = attrs.int("nms_topk", -1)
    return b.box_nms(rows, overlap=overlap, valid=max(float(below), -1.0), topk=most if most > 0 else -1, coordinates=2,
                     score=1, id=0, across_ids=attrs.bool("force_suppress", False), in_place=True)


@rule("_contrib_MultiBoxPrior", operands=1)
def multibox_prior(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """A constant of the feature map's size. (src/operator/contrib/multibox_prior.cc)"""
    height, width = image_shape(inputs[0])[2:]
    sizes, ratios = attrs.floats("sizes", (1.0,)), attrs.floats("ratios", (1.0,))
    steps, offsets = attrs.floats("steps", (-1.0, -1.0)), attrs.floats("offsets", (0.5, 0.5))
    if not sizes or not ratios or len(steps) != 2 or len(offsets) != 2:
        raise UnsupportedError(f"sizes={sizes}, ratios={ratios}, steps={steps}, offsets={offsets}")
    real = np.float32
    step_y, step_x = (real(s) if s > 0 else real(1) / real(n) for s, n in zip(steps, (height, width), strict=True))
    y, x = ((np.arange(n, dtype=real) + real(o)) * s
            for n, o, s in zip((height, width), offsets, (step_y, step_x), strict=True))
    shapes = [(size, ratios[0]) for size in sizes] + [(sizes[0], ratio) for ratio in ratios[1:]]
    root = [np.sqrt(real(ratio)) for _, ratio in shapes]
    w = np.array([real(s) * real(height) / real(width) * r / 2 for (s, _), r in zip(shapes, root, strict=True)], real)
    h = np.array([real(s) / r / 2 for (s, _), r in zip(shapes, root, strict=True)], real)
    cx, cy = np.broadcast_arrays(x[None, :, None], y[:, None, None])
    boxes = np.stack(np.broadcast_arrays(cx - w, cy - h, cx + w, cy + h), axis=-1).reshape(1, -1, 4)
    return b.constant(np.clip(boxes, 0, 1) if attrs.bool("clip", False) else boxes)


def _regions(x: Value, rois: Value, attrs: Attrs) -> tuple[tuple[int, int], float]:
    """`pooled_size` and `spatial_scale` of an operator on regions [R, 5]."""
    image_shape(x)
    sizes, scale = attrs.ints("pooled_size"), attrs.float("spatial_scale")
    if len(sizes) != 2:
        raise UnsupportedError(f"pooled_size={sizes}, expected height and width")
    if len(rois.shape) != 2 or rois.shape[1] != 5:
        raise UnsupportedError(f"found {rois.type}, expected regions of 5 numbers")
    return (positive(sizes[0], "pooled_size"), positive(sizes[1], "pooled_size")), scale


@rule("_contrib_ROIAlign", operands=2)
def roi_align(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Means over the bins of each region, with any attributes: with `position_sensitive`, bins have their own channels.

    For a region of a negative image MXNet writes one 0 and leaves the rest as it was; here all is 0.
    """
    x, rois = inputs
    (height, width), scale = _regions(x, rois, attrs)
    offset = 0.5 if attrs.bool("aligned", False) else 0.0
    found = b.roi_align(x, rois, sizes=(height, width), scale=scale, samples=attrs.int("sample_ratio", -1),
                        offset=offset)
    if not attrs.bool("position_sensitive", False):
        return found
    bins, channels = height * width, x.shape[1]
    if channels % bins:
        raise UnsupportedError(f"{channels} channels are none for each of {height} x {width} bins")
    # Channel c of bin p is channel c * bins + p: the diagonal over the bins, as a sum with a unit matrix.
    grouped = b.reshape(found, shape=(rois.shape[0], channels // bins, bins, bins))
    unit = b.constant(np.eye(bins, dtype=np.float32))
    return b.reshape(b.reduce_sum(b.multiply(grouped, unit), axes=(2,)),
                     shape=(rois.shape[0], channels // bins, height, width))


@rule("ROIPooling", operands=2)
def roi_pooling(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Maxima over the bins of each region."""
    x, rois = inputs
    sizes, scale = _regions(x, rois, attrs)
    return b.roi_max_pool(x, rois, sizes=sizes, scale=scale)
