"""Pooling, images to another size, boxes of a detector and what it reads from regions of an image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import Attrs
from ngraph_mxnet.frontends.mxnet.rules.linear import CHANNELS_FIRST, CHANNELS_LAST, transposed_convolution
from ngraph_mxnet.frontends.mxnet.rules.registry import image_shape, per_axis, positive, rule
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.sizes import scaled
from ngraph_mxnet.ops.boxes import BOX_FORMATS
from ngraph_mxnet.ops.compositions import (
    channels_first,
    channels_last,
    converted,
    require_small,
    root_or_flat,
    slice_axis,
)
from ngraph_mxnet.ops.pooling import pooled_sizes

Window = dict[str, Any]
Total = Callable[[Builder, str, Value], Value]

# The reductions that global pools are, by MXNet's pool types.
_GLOBAL = {"max": "reduce_max", "avg": "reduce_mean", "sum": "reduce_sum"}


@rule("Pooling", operands=1, ignored=["cudnn_off"])
def pooling(b: Builder, attrs: Attrs, x: Value) -> Value:
    """max, avg, sum and lp (p of 1 to 3) over one to three spatial axes; `valid` and `full`; global; any layout.

    Stay with MXNet: the convention `same`, for which it raises itself, and a `full` pool with a window that meets no
    data at all (MXNet gives the lowest float or 0 there).
    """
    return _in_layout(b, x, attrs, _total)


def trained_pooling(b: Builder, attrs: Attrs, x: Value, *_: Value) -> Value:
    """The same, with a window for a global maximum: its gradient is the first greatest element's, not all their."""
    return _in_layout(b, x, attrs, _window_over_all)


def _in_layout(b: Builder, x: Value, attrs: Attrs, total: Total) -> Value:
    layout = attrs.choice("layout", None, (*CHANNELS_FIRST, *CHANNELS_LAST))
    if layout not in CHANNELS_LAST:
        return _pooled(b, x, attrs, total)
    return channels_last(b, _pooled(b, channels_first(b, x), attrs, total))


def _pooled(b: Builder, x: Value, attrs: Attrs, total: Total) -> Value:
    kind = attrs.choice("pool_type", "max", (*_GLOBAL, "lp"))
    power = attrs.int("p_value", 2)
    convention = attrs.choice("pooling_convention", "valid", ("valid", "full"))
    everywhere, include_pad = attrs.bool("global_pool", False), attrs.bool("count_include_pad", True)
    # Of a global pool these three mean nothing, and may be anything.
    geometry = _geometry(attrs)
    if kind == "lp" and power not in (1, 2, 3):
        raise UnsupportedError(f"p_value={power}, expected 1, 2 or 3")
    if everywhere:
        if kind == "lp":
            return _root(b, total(b, "sum", _power(b, x, power)), power)
        return total(b, kind, x)
    window = _window(geometry, x.rank - 2, "floor" if convention == "valid" else "ceil")
    if kind == "max":
        return b.max_pool(x, **window)
    if kind == "avg":
        return b.avg_pool(x, **window, include_pad=include_pad)
    if kind == "sum":
        return _sum_pool(b, x, window)
    return _root(b, _sum_pool(b, _power(b, x, power), window), power)


def quantized_pooled(b: Builder, x: Value, attrs: Attrs) -> Value:
    """Pooling of whole numbers, max or avg and channels first, before rounding.

    As MKL-DNN does it: where padding counts, a mean is over the whole kernel, wherever the window ends.
    """
    attrs.choice("layout", None, CHANNELS_FIRST)
    kind = attrs.choice("pool_type", "max", ("max", "avg"))
    full = attrs.choice("pooling_convention", "valid", ("valid", "full")) == "full"
    padded = attrs.bool("count_include_pad", True) and not attrs.bool("global_pool", False)
    attrs.ignore("p_value")
    if kind == "max" or not padded or not full:
        return _pooled(b, x, attrs, _total)
    window = _window(_geometry(attrs), x.rank - 2, "ceil")
    return b.avg_pool(_whole(b, x, window), kernel=window["kernel"], strides=window["strides"])


def _total(b: Builder, kind: str, x: Value) -> Value:
    return b.apply(_GLOBAL[kind], x, axes=tuple(range(2, x.rank)), keep_dims=True)


def _window_over_all(b: Builder, kind: str, x: Value) -> Value:
    return b.max_pool(x, kernel=x.shape[2:]) if kind == "max" else _total(b, kind, x)


def _geometry(attrs: Attrs) -> list[tuple[int, ...]]:
    """Kernel, stride and padding as they are given."""
    return [attrs.ints(name, ()) for name in ("kernel", "stride", "pad")]


def _window(geometry: Sequence[tuple[int, ...]], spatial: int, rounding: str) -> Window:
    """The attributes of an IR pool."""
    kernel, stride, pad = geometry
    if len(kernel) != spatial:
        raise UnsupportedError(f"kernel={kernel} for {spatial} spatial axes")
    pads = per_axis(pad, spatial, 0, "pad")
    return {"kernel": kernel, "pads_begin": pads, "pads_end": pads, "rounding": rounding,
            "strides": tuple(positive(step, "stride") for step in per_axis(stride, spatial, 1, "stride"))}


def _power(b: Builder, x: Value, power: int) -> Value:
    """x^power, and not |x|^power: MXNet takes no absolute value."""
    return x if power == 1 else b.square(x) if power == 2 else b.square(x) * x


def _root(b: Builder, x: Value, power: int) -> Value:
    return x if power == 1 else root_or_flat(b, "sqrt" if power == 2 else "cbrt", x)


def _sum_pool(b: Builder, x: Value, window: Window) -> Value:
    """The mean of each window, over the end filled up with zeros, times the window's size."""
    kernel = window["kernel"]
    mean = b.avg_pool(_whole(b, x, window), kernel=kernel, strides=window["strides"])
    return mean * prod(kernel)


def _whole(b: Builder, x: Value, window: Window) -> Value:
    """x with as many zeros around it as windows need."""
    counts = pooled_sizes(x.shape[2:], window)
    rows: Sequence[tuple[int, ...]] = list(zip(counts, window["strides"], window["kernel"], x.shape[2:],
                                               window["pads_begin"], strict=True))
    if any((count - 1) * step - begin >= size for count, step, _, size, begin in rows):
        raise UnsupportedError("a window meets no data at all")
    end = (0, 0, *(max((count - 1) * step + kernel - size - begin, 0) for count, step, kernel, size, begin in rows))
    return b.pad(x, pads_begin=(0, 0, *window["pads_begin"]), pads_end=end)


@rule("Pooling_v1", operands=1)
def pooling_v1(b: Builder, attrs: Attrs, x: Value) -> Value:
    """The pooling of 2016, over two axes: padding is zeros for the maximum too, and a mean is over the whole kernel."""
    kind = attrs.choice("pool_type", "max", _GLOBAL)
    convention = attrs.choice("pooling_convention", "valid", ("valid", "full"))
    geometry = _geometry(attrs)
    if x.rank != 4:
        raise UnsupportedError(f"found {x.type}, expected rank 4")
    if attrs.bool("global_pool", False):
        return _total(b, kind, x)
    window = _window(geometry, 2, "floor" if convention == "valid" else "ceil")
    if kind == "max":
        pads = (0, 0, *window["pads_begin"])
        inner = {**window, "pads_begin": (0, 0), "pads_end": (0, 0)}
        return b.max_pool(b.pad(x, pads_begin=pads, pads_end=pads), **inner)
    total = _sum_pool(b, x, window)
    return total / prod(window["kernel"]) if kind == "avg" else total


@rule("UpSampling", ignored=["workspace"])
def upsampling(b: Builder, attrs: Attrs, *inputs: Value) -> Value:
    """By repeating pixels (`nearest`), of several inputs too, which get the size that the first one gets; or by a
    grouped transposed convolution with the weights that are the second input (`bilinear`)."""
    scale = positive(attrs.int("scale"), "scale")
    filters, together = attrs.int("num_filter", 0), attrs.choice("multi_input_mode", "concat", ("concat", "sum"))
    if attrs.int("num_args", 1) != len(inputs):
        raise UnsupportedError(f"num_args={attrs.int('num_args', 1)} for {len(inputs)} inputs")
    height, width = image_shape(inputs[0])[2:]
    if attrs.choice("sample_type", "nearest", ("nearest", "bilinear")) == "bilinear":
        return _by_convolution(b, inputs, scale, filters)
    parts = []
    for place, x in enumerate(inputs):
        factor = int(height * scale // image_shape(x)[2]) if place else scale
        if (x.shape[2] * factor, x.shape[3] * factor) != (height * scale, width * scale):
            raise UnsupportedError(f"input {x.type} does not grow to {height * scale} x {width * scale}")
        parts.append(_nearest(b, x, factor))
    if len(parts) == 1:
        return parts[0]
    if together == "concat":
        return b.concat(*parts, axis=1)
    return reduce(Value.__add__, parts)


def _nearest(b: Builder, x: Value, factor: int) -> Value:
    return b.resize(x, sizes=tuple(size * factor for size in x.shape[2:]), mode="nearest")


def _by_convolution(b: Builder, inputs: Sequence[Value], scale: int, filters: int) -> Value:
    """Upsampling by a transposed convolution, as in MXNet's src/operator/nn/upsampling.cc."""
    if len(inputs) != 2 or inputs[0].shape[1] != filters:
        raise UnsupportedError(f"bilinear upsampling of {len(inputs)} inputs to num_filter={filters}")
    kernel, pad = 2 * scale - scale % 2, scale // 2
    x, weight = inputs
    return transposed_convolution(b, x, weight, groups=filters, stride=(scale,) * 2, dilate=(1, 1), pad=(pad,) * 2,
                                  adjust=(2 * pad + scale - kernel,) * 2)


_MODES = ("size", "odd_scale", "like", "to_even_down", "to_even_up", "to_odd_down", "to_odd_up")


@rule("_contrib_BilinearResize2D", operands=(1, 2))
def bilinear_resize(b: Builder, attrs: Attrs, x: Value, like: Value | None = None) -> Value:
    """Linear between pixels, with any `mode` of saying what the new size is."""
    mode = attrs.choice("mode", "size", _MODES)
    corners = attrs.bool("align_corners", True)
    sizes = attrs.int("height", 1), attrs.int("width", 1)
    scales = attrs.float("scale_height", None), attrs.float("scale_width", None)
    own = image_shape(x)[2:]
    if (mode == "like") is not (like is not None):
        raise UnsupportedError(f"mode={mode} with {1 if like is None else 2} inputs")
    if like is not None:
        sizes = image_shape(like)[2], like.shape[3]
    elif mode in ("size", "odd_scale"):
        given = [scale for scale in scales if scale is not None]
        if len(given) == 1 or (mode == "odd_scale" and not given):
            raise UnsupportedError(f"mode={mode} with scale_height={scales[0]}, scale_width={scales[1]}")
        if given:
            sizes = _scaled(own[0], given[0], mode), _scaled(own[1], given[1], mode)
    else:
        # Sizes of the other parity become the next smaller or larger.
        odd, step = "odd" in mode, 1 if mode.endswith("up") else -1
        sizes = own[0] + step * (own[0] % 2 != odd), own[1] + step * (own[1] % 2 != odd)
    return b.resize(x, sizes=tuple(positive(size, "a size") for size in sizes), mode="bilinear", corners=corners)


def _scaled(size: int, scale: float, mode: str) -> int:
    """The new size, computed in float32 as MXNet does."""
    if mode == "odd_scale" and size % 2:
        return _times(size - 1, scale) + 1
    return _times(size, scale)


def _times(size: int, scale: float) -> int:
    exact = scaled(size, scale)
    return exact if exact is not None else int(np.float32(scale) * np.float32(size))


@rule("_contrib_AdaptiveAvgPooling2D", operands=1)
def adaptive_pooling(b: Builder, attrs: Attrs, x: Value) -> Value:
    """Means over bins, as many as `output_size` says: one number stands for both sides."""
    sizes = attrs.ints("output_size", ())
    if len(sizes) > 2:
        raise UnsupportedError(f"output_size={sizes}, expected two numbers")
    height, width = image_shape(x)[2:]
    rows, columns = (positive(size, "output_size") for size in (*sizes, *sizes, 1, 1)[:2])
    if (rows, columns) == (1, 1):
        return b.reduce_mean(x, axes=(2, 3), keep_dims=True)
    if height % rows == 0 and width % columns == 0:
        window = (height // rows, width // columns)
        return b.avg_pool(x, kernel=window, strides=window)
    return b.adaptive_avg_pool(x, sizes=(rows, columns))


@rule("BilinearSampler", operands=2, ignored=["cudnn_off"])
def bilinear_sampler(b: Builder, attrs: Attrs, *inputs: Value) -> Value:
    """The image at the places of a grid, linear between pixels; 0 outside the image."""
    return b.bilinear_sample(*inputs)


@rule("GridGenerator", operands=1)
def grid_generator(b: Builder, attrs: Attrs, x: Value) -> Value:
    """From an affine map of the target's grid, or from the distance that each pixel moves (`warp`)."""
    kind, target = attrs.choice("transform_type", None, ("affine", "warp")), attrs.ints("target_shape", (0, 0))
    if kind == "affine":
        return _affine_grid(b, x, target)
    if image_shape(x)[1] != 2:
        raise UnsupportedError(f"found {x.type}, expected two channels: x and y")
    height, width = map(int, x.shape[2:])
    if min(height, width) < 2:
        raise UnsupportedError(f"found {x.type}: a grid of one pixel divides by 0")
    require_small(2, height, width)
    rows, columns = np.mgrid[:height, :width]
    halves = np.array([(width - 1) / 2, (height - 1) / 2], np.float32).reshape(1, 2, 1, 1)
    moved = x + b.constant(np.stack([columns, rows])[None].astype(np.float32))
    return moved / b.constant(halves) - 1


def _affine_grid(b: Builder, theta: Value, target: tuple[int, ...]) -> Value:
    """[N, 6] times the homogeneous places (x, y, 1) of the target, from -1 to 1: [N, 2, H, W]."""
    if len(target) != 2 or min(target) < 1:
        raise UnsupportedError(f"target_shape={target}, expected height and width")
    if theta.rank != 2 or theta.shape[1] != 6:
        raise UnsupportedError(f"found {theta.type}, expected six numbers of an affine map")
    height, width = target
    if min(height, width) < 2:
        raise UnsupportedError(f"target_shape={target}: a grid of one pixel divides by 0")
    require_small(3, height, width)
    rows, columns = np.mgrid[:height, :width].reshape(2, -1).astype(np.float32)
    places = np.stack([-1 + columns * np.float32(2 / (width - 1)), -1 + rows * np.float32(2 / (height - 1)),
                       np.ones_like(rows)])
    batch = theta.shape[0]
    grid = b.matmul(b.reshape(theta, shape=(batch * 2, 3)), b.constant(places.astype(np.float32)))
    return b.reshape(grid, shape=(batch, 2, height, width))


@rule("SpatialTransformer", operands=2, ignored=["cudnn_off"])
def spatial_transformer(b: Builder, attrs: Attrs, x: Value, theta: Value) -> Value:
    """The image at the places of an affine grid."""
    attrs.choice("transform_type", None, ("affine",))
    attrs.choice("sampler_type", None, ("bilinear",))
    target = attrs.ints("target_shape", (0, 0))
    return b.bilinear_sample(x, _affine_grid(b, theta, target if any(target) else image_shape(x)[2:]))


Columns = list[Value]


def _columns(b: Builder, x: Value, first: int = 0) -> Columns:
    """Four columns of the last axis, each [..., 1]."""
    axis = x.rank - 1
    return [slice_axis(b, x, axis, first + i, first + i + 1) for i in range(4)]


def _corners(b: Builder, box: Columns, box_format: str) -> Columns:
    """left, top, right, bottom."""
    if box_format == "corner":
        return box
    x, y, width, height = box
    w, h = width * 0.5, height * 0.5
    return [x - w, y - h, x + w, y + h]


def _centres(b: Builder, box: Columns, box_format: str) -> Columns:
    """x, y, width, height."""
    if box_format == "center":
        return box
    left, top, right, bottom = box
    width, height = right - left, bottom - top
    return [left + width * 0.5, top + height * 0.5, width, height]


@rule("_contrib_box_nms", operands=1)
def box_nms(b: Builder, attrs: Attrs, x: Value) -> Value:
    """Any attributes. MXNet's second output, which rows were kept, is for its gradient: here there is none."""
    if x.rank < 2:
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
    axis = rows.rank - 1
    box = _columns(b, rows, first)
    other = _centres(b, box, "corner") if box_format == "center" else _corners(b, box, "center")
    if box_format == "center":
        left, top, right, bottom = box
        other[:2] = [(left + right) * 0.5, (top + bottom) * 0.5]
    kept = box[0] < 0
    parts = [b.select(kept, old, new) for old, new in zip(box, other, strict=True)]
    bounds = [(0, first), (first + 4, rows.shape[axis])]
    sides = [[slice_axis(b, rows, axis, *bound)] if bound[0] < bound[1] else [] for bound in bounds]
    return b.concat(*sides[0], *parts, *sides[1], axis=axis)


@rule("_contrib_box_iou", operands=2)
def box_iou(b: Builder, attrs: Attrs, *inputs: Value) -> Value:
    """The overlap of each box with each; 0 where they do not meet."""
    box_format = attrs.choice("format", "corner", BOX_FORMATS)
    if any(x.rank < 2 or x.shape[-1] != 4 for x in inputs):
        raise UnsupportedError(f"found {inputs[0].type} and {inputs[1].type}, expected four columns")
    counts = [prod(x.shape[:-1]) for x in inputs]
    shapes = [(counts[0], 1, 4), (1, counts[1], 4)]
    pair = [_columns(b, b.reshape(x, shape=shape)) for x, shape in zip(inputs, shapes, strict=True)]
    areas = [_area(b, box, box_format) for box in pair]
    (l0, t0, r0, b0), (l1, t1, r1, b1) = (_corners(b, box, box_format) for box in pair)
    width = b.maximum(b.minimum(r0, r1) - b.maximum(l0, l1), 0)
    shared = width * b.maximum(b.minimum(b0, b1) - b.maximum(t0, t1), 0)
    found = b.select(shared > 0, shared / (b.add(*areas) - shared), 0)
    return b.reshape(found, shape=(*inputs[0].shape[:-1], *inputs[1].shape[:-1]))


def _area(b: Builder, box: Columns, box_format: str) -> Value:
    """The area of each box; 0 if a side is negative."""
    return b.multiply(*(b.maximum(side, 0) for side in _centres(b, box, box_format)[2:]))


@rule("_contrib_box_decode", operands=2)
def box_decode(b: Builder, attrs: Attrs, x: Value, anchors: Value) -> Value:
    """Offsets [N, B, 4] from anchors [1, B, 4] as corner boxes."""
    if x.rank != 3 or x.shape[2] != 4 or anchors.shape != (1, x.shape[1], 4):
        raise UnsupportedError(f"found {x.type} and {anchors.type}, expected [N, B, 4] and [1, B, 4]")
    scale = b.constant(np.array([attrs.float(f"std{i}", 1.0) for i in range(4)], np.float32))
    clip, box_format = attrs.float("clip", -1.0), attrs.choice("format", "center", BOX_FORMATS)
    return _decoded(b, x * scale, _centres(b, _columns(b, anchors), box_format), clip)


def _decoded(b: Builder, offsets: Value, anchors: Columns, clip: float = -1.0) -> Value:
    """Corner boxes [N, B, 4] at offsets from anchors that are centres; sizes up to e^clip, if it is above 0."""
    dx, dy, *sizes = _columns(b, offsets)
    if clip > 0:
        sizes = [b.minimum(size, clip) for size in sizes]
    x, y, width, height = anchors
    centre = [dx * width + x, dy * height + y]
    box = [*centre, *(b.exp(size) * side for size, side in zip(sizes, (width, height), strict=True))]
    return b.concat(*_corners(b, box, "center"), axis=2)


@rule("_contrib_MultiBoxDetection", operands=3, ignored=["background_id"])
def multibox_detection(b: Builder, attrs: Attrs, scores: Value, offsets: Value, anchors: Value) -> Value:
    """Class probabilities [N, C, A], offsets [N, 4 A] and anchors [1, A, 4] -> [N, A, 6]: class, score and corners.

    Class 0 is the background, whatever `background_id` says, as in MXNet (src/operator/contrib/multibox_detection.cc).
    """
    if scores.rank != 3 or scores.shape[1] < 2:
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
    scaled = b.reshape(offsets, shape=(batch, count, 4)) * b.constant(np.array(variances, np.float32))
    box = _decoded(b, scaled, _centres(b, _columns(b, anchors), "corner"))
    if attrs.bool("clip", True):
        box = b.minimum(b.maximum(box, 0), 1)
    real = slice_axis(b, scores, 1, 1, classes)
    score, label = b.reduce_max(real, axes=(1,)), converted(b, b.argmax(real, axis=1), scores)
    rows = b.concat(*(b.reshape(column, shape=(batch, count, 1)) for column in (label, score)), box, axis=2)
    below = np.nextafter(np.float32(attrs.float("threshold", 0.01)), np.float32(-np.inf))
    most = attrs.int("nms_topk", -1)
    return b.box_nms(rows, overlap=overlap, valid=max(float(below), -1.0), topk=most if most > 0 else -1, coordinates=2,
                     score=1, id=0, across_ids=attrs.bool("force_suppress", False), in_place=True)


@rule("_contrib_MultiBoxPrior", operands=1)
def multibox_prior(b: Builder, attrs: Attrs, data: Value) -> Value:
    """A constant of the feature map's size. (src/operator/contrib/multibox_prior.cc)"""
    height, width = image_shape(data)[2:]
    sizes, ratios = attrs.floats("sizes", (1.0,)), attrs.floats("ratios", (1.0,))
    steps, offsets = attrs.floats("steps", (-1.0, -1.0)), attrs.floats("offsets", (0.5, 0.5))
    if not sizes or not ratios or len(steps) != 2 or len(offsets) != 2:
        raise UnsupportedError(f"sizes={sizes}, ratios={ratios}, steps={steps}, offsets={offsets}")
    require_small(height, width, len(sizes) + len(ratios) - 1, 4)
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
    if rois.rank != 2 or rois.shape[1] != 5:
        raise UnsupportedError(f"found {rois.type}, expected regions of 5 numbers")
    return (positive(sizes[0], "pooled_size"), positive(sizes[1], "pooled_size")), scale


@rule("_contrib_ROIAlign", operands=2)
def roi_align(b: Builder, attrs: Attrs, x: Value, rois: Value) -> Value:
    """Means over the bins of each region, with any attributes: with `position_sensitive`, bins have their own channels.

    For a region of a negative image MXNet writes one 0 and leaves the rest as it was; here all is 0.
    """
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
    require_small(bins, bins)
    unit = b.constant(np.eye(bins, dtype=np.float32))
    return b.reshape(b.reduce_sum(grouped * unit, axes=(2,)),
                     shape=(rois.shape[0], channels // bins, height, width))


@rule("ROIPooling", operands=2)
def roi_pooling(b: Builder, attrs: Attrs, x: Value, rois: Value) -> Value:
    """Maxima over the bins of each region."""
    sizes, scale = _regions(x, rois, attrs)
    return b.roi_max_pool(x, rois, sizes=sizes, scale=scale)
