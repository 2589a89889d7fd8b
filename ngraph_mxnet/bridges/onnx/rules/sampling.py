"""Operators that read images between their pixels, or write windows and pooled elements back into them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from ngraph_mxnet.bridges.onnx.rules.registry import Call, normal_axis, require_size, rule, window
from ngraph_mxnet.compositions.layers import deformable_convolution
from ngraph_mxnet.compositions.tensors import along_axis, broadcast_to, converted, reshaped, scalar, slice_axis
from ngraph_mxnet.errors import ModelError, UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import f32

_MODES = {"bilinear": "linear", "linear": "linear", "nearest": "nearest", "bicubic": "cubic", "cubic": "cubic"}


@rule("GridSample")
def grid_sample(b: Builder, call: Call) -> Value:
    """One to three spatial axes, all modes and paddings; places are computed in float32."""
    x, grid = call.input(0), call.input(1)
    mode = _MODES[call.attrs.choice("mode", "linear" if call.opset >= 20 else "bilinear", _MODES)]
    padding = call.attrs.choice("padding_mode", "zeros", ("zeros", "border", "reflection"))
    corners = call.attrs.bool("align_corners")
    sizes, places = x.shape[2:], grid.shape[1:-1]
    rank, batch, channels = len(sizes), x.shape[0], x.shape[1]
    if grid.shape != (batch, *places, rank) or len(places) != rank:
        raise ModelError(f"grid {grid.type} does not fit the data {x.type}")
    if rank > 3:
        raise UnsupportedError(f"{rank} spatial axes; supported: 1 to 3")
    if not x.type.element.is_float and mode != "nearest":
        raise UnsupportedError(f"mode {mode} of {x.type.element}; supported: floats")
    points = b.reshape(grid if grid.type.element == f32 else b.convert(grid, element=f32),
                       shape=(batch, prod(places), rank))
    # The last number is the place on the first axis.
    at = [_inside(b, _unscaled(b, slice_axis(b, points, 2, rank - 1 - axis, rank - axis), size, corners, mode), size,
                  corners, padding) for axis, size in enumerate(sizes)]
    if mode == "linear" and rank == 2 and min(sizes) > 1:
        found = _bilinear(b, x, at, places, reach=1 if padding == "zeros" else 0)
    else:
        found = _weighted(b, x, at, mode, padding, corners)
    return b.reshape(found, shape=(batch, channels, *places))


def _unscaled(b: Builder, at: Value, size: int, corners: bool, mode: str) -> Value:
    """Places in pixels, of places in [-1, 1]."""
    half = scalar(b, (size - 1) / 2 if corners else size / 2, at)
    place = b.add(b.multiply(at, half), scalar(b, (size - 1) / 2, at))
    return b.round(place) if mode == "nearest" else place


def _inside(b: Builder, at: Value, size: int, corners: bool, padding: str) -> Value:
    """Places, of which those outside the image are moved to its border, reflected at it, or left, as `padding` says."""
    if padding == "zeros":
        return at
    if padding == "reflection":
        return _reflected(b, at, size, corners)
    outside = b.greater(b.abs(b.subtract(at, scalar(b, (size - 1) / 2, at))),
                        scalar(b, (size - 1) / 2 if corners else size / 2, at))
    return b.select(outside, b.clamp(at, lower=0.0, upper=float(size - 1)), at)


def _reflected(b: Builder, at: Value, size: int, corners: bool) -> Value:
    """Places reflected at -1/2 and size - 1/2 (with `corners` at 0 and size - 1) until they lie between the two."""
    least, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
    if not span:
        return b.multiply(at, scalar(b, 0, at))
    way = b.mod(b.subtract(at, scalar(b, least, at)), scalar(b, 2 * span, at))
    back = b.subtract(scalar(b, 2 * span, at), way)
    return b.add(b.minimum(way, back), scalar(b, least, at))


def _bilinear(b: Builder, x: Value, at: Sequence[Value], places: Sequence[int], *, reach: float) -> Value:
    """Linear samples by the op `bilinear_sample`, which counts from -1 to 1 over the centres of the pixels.

    A place more than `reach` pixels outside the image is moved to that distance: 1 where zeros surround it, as all
    further out is 0, too; else 0, which is the border.
    """
    scaled = []
    for place, size in zip(at, x.shape[2:], strict=True):
        near = b.clamp(place, lower=-reach, upper=size - 1 + reach)
        scaled.append(b.subtract(b.multiply(near, scalar(b, 2 / (size - 1), place)), scalar(b, 1, place)))
    grid = b.concat(*(b.reshape(place, shape=(x.shape[0], 1, *places)) for place in reversed(scaled)), axis=1)
    return b.bilinear_sample(x, converted(b, grid, x))


def _weighted(b: Builder, x: Value, at: Sequence[Value], mode: str, padding: str, corners: bool) -> Value:
    """The elements around each place, times their weights, added up."""
    taps = [_taps(b, place, mode) for place in at]
    total = None
    for chosen in product(*taps):
        found = _pixels(b, x, [place for place, _ in chosen], padding, corners)
        for _, weight in chosen:
            if weight is not None:
                found = b.multiply(found, b.transpose(converted(b, weight, x), order=(0, 2, 1)))
        total = found if total is None else b.add(total, found)
    assert total is not None
    return total


def _taps(b: Builder, at: Value, mode: str) -> list[tuple[Value, Value | None]]:
    """The whole places next to each place along an axis, each with its weight (None: 1)."""
    if mode == "nearest":
        return [(at, None)]
    low = b.floor(at)
    part = b.subtract(at, low)
    one = scalar(b, 1, at)
    rest = b.subtract(one, part)
    if mode == "linear":
        return [(low, rest), (b.add(low, one), part)]
    near = [_cubic(b, distance, (1.25, -2.25, 0.0, 1.0)) for distance in (part, rest)]
    far = [_cubic(b, b.add(distance, one), (-0.75, 3.75, -6.0, 3.0)) for distance in (part, rest)]
    return [(b.subtract(low, one), far[0]), (low, near[0]), (b.add(low, one), near[1]),
            (b.add(low, scalar(b, 2, at)), far[1])]


def _cubic(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """Keys' convolution kernel (1981) with a = -3/4, of a distance below 1 and from 1 to 2."""
    first, *others = coefficients
    value = scalar(b, first, x)
    for coefficient in others:
        value = b.add(b.multiply(value, x), scalar(b, coefficient, x))
    return value


def _pixels(b: Builder, x: Value, at: Sequence[Value], padding: str, corners: bool) -> Value:
    """The elements [N, C, P] of x at whole places [N, P, 1] on each axis."""
    batch, channels, *sizes = x.shape
    flat, within = None, None
    for place, size in zip(at, sizes, strict=True):
        if padding == "reflection":
            place = b.trunc(_reflected(b, place, size, corners))
        nearest = b.clamp(place, lower=0.0, upper=float(size - 1))
        if padding == "zeros":
            same = b.equal(place, nearest)
            within = same if within is None else b.logical_and(within, same)
        index = b.convert(nearest, element="i64")
        flat = index if flat is None else b.add(b.multiply(flat, scalar(b, size, flat)), index)
    assert flat is not None
    count = flat.shape[1]
    indices = broadcast_to(b, b.reshape(flat, shape=(batch, 1, count)), (batch, channels, count))
    found = b.gather_elements(b.reshape(x, shape=(batch, channels, prod(sizes))), indices, axis=2)
    if within is None:
        return found
    return b.select(b.reshape(within, shape=(batch, 1, count)), found, scalar(b, 0, x))


@rule("RoiAlign")
def roi_align(b: Builder, call: Call) -> Value:
    """Means over the bins of regions (left, top, right, bottom), each of the image that its index names."""
    x, rois, images = call.input(0), call.input(1), call.input(2)
    call.attrs.choice("mode", "avg", ("avg",))
    default = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    how = call.attrs.choice("coordinate_transformation_mode", default, ("half_pixel", "output_half_pixel"))
    if rois.type.rank != 2 or rois.shape[1] != 4 or images.shape != rois.shape[:1]:
        raise ModelError(f"found regions {rois.type} of images {images.type}")
    column = converted(b, b.reshape(images, shape=(rois.shape[0], 1)), rois)
    return b.roi_align(x, converted(b, b.concat(column, rois, axis=1), x),
                       sizes=(call.attrs.int("output_height", 1), call.attrs.int("output_width", 1)),
                       scale=call.attrs.float("spatial_scale", 1.0),
                       samples=call.attrs.int("sampling_ratio", 0) or -1, offset=0.5 if how == "half_pixel" else 0.0)


@rule("MaxRoiPool")
def roi_max_pool(b: Builder, call: Call) -> Value:
    """The greatest of each bin of regions (image, left, top, right, bottom)."""
    return b.roi_max_pool(call.input(0), call.input(1), sizes=call.attrs.ints("pooled_shape"),
                          scale=call.attrs.float("spatial_scale", 1.0))


@rule("DeformConv")
def deform_conv(b: Builder, call: Call) -> Value:
    """In two spatial dimensions."""
    x, weight, offset, bias, mask = (call.input(0), call.input(1), call.input(2), call.optional(3), call.optional(4))
    if x.type.rank != 4 or min(x.shape[2:]) < 2:
        raise UnsupportedError(f"found {x.type}; supported: images of at least 2 rows and 2 columns")
    kernel = call.attrs.ints("kernel_shape", weight.shape[2:])
    strides, dilations = (call.attrs.ints(name, (1, 1)) for name in ("strides", "dilations"))
    if kernel != weight.shape[2:]:
        raise ModelError(f"kernel_shape={kernel} does not fit the weight {weight.type}")
    begins, _ = window(call, x.shape[2:], kernel, strides=strides, dilations=dilations)
    out = deformable_convolution(b, x, offset, mask, weight, groups=call.attrs.int("group", 1),
                                 offset_groups=call.attrs.int("offset_group", 1), stride=strides, dilate=dilations,
                                 pad=begins)
    return out if bias is None else b.add(out, along_axis(b, bias, 1, 4))


@rule("Col2Im")
def column_to_image(b: Builder, call: Call) -> Value:
    """[N, C * taps, windows] as images in which overlapping windows are added."""
    x, sizes, kernel = call.input(0), call.static_ints(1, "image_shape"), call.static_ints(2, "block_shape")
    rank = len(sizes)
    strides, dilations = (call.attrs.ints(name, (1,) * rank) for name in ("strides", "dilations"))
    begins, ends = window(call, sizes, kernel, strides=strides, dilations=dilations)
    padded = [size + begin + end for size, begin, end in zip(sizes, begins, ends, strict=True)]
    counts = [(size - far * (span - 1) - 1) // step + 1
              for size, span, far, step in zip(padded, kernel, dilations, strides, strict=True)]
    taps = prod(kernel)
    if x.type.rank != 3 or x.shape[1] % taps or x.shape[2] != prod(counts):
        raise ModelError(f"found {x.type}, expected a multiple of {taps} rows and {prod(counts)} columns")
    require_size(x.shape[0] * x.shape[1] // taps * prod(padded))
    flat = np.zeros((1, 1), np.int64)
    for size, span, far, step, count in zip(padded, kernel, dilations, strides, counts, strict=True):
        place = np.arange(span)[:, None] * far + np.arange(count)[None, :] * step  # [span, count]
        flat = (flat[:, None, :, None] * size + place[None, :, None, :]).reshape(len(flat) * span, -1)
    batch, channels = x.shape[0], x.shape[1] // taps
    updates = b.transpose(b.reshape(x, shape=(batch, channels, flat.size)), order=(2, 0, 1))
    zeros = b.broadcast(scalar(b, 0, x), shape=(prod(padded), batch, channels))
    image = b.scatter_nd(zeros, b.constant(flat.reshape(1, -1)), updates, reduction="add")
    whole = b.reshape(b.transpose(image, order=(1, 2, 0)), shape=(batch, channels, *padded))
    return b.slice(whole, begin=(0, 0, *begins),
                   end=(batch, channels, *(begin + size for begin, size in zip(begins, sizes, strict=True))))


@rule("MaxUnpool")
def max_unpool(b: Builder, call: Call) -> Value:
    """Each element at its place in the tensor that was pooled; 0 elsewhere. That has the shape `output_shape`, which
    several shapes of pooled tensors go back to: so ONNX Runtime and PyTorch have it."""
    x, indices = call.input(0), call.input(1)
    rank = x.type.rank - 2
    kernel, strides = call.attrs.ints("kernel_shape"), call.attrs.ints("strides", (1,) * rank)
    pads = call.attrs.ints("pads", (0,) * (2 * rank))
    sizes = [(size - 1) * step - pads[i] - pads[i + rank] + span
             for i, (size, step, span) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))]
    shape = (*x.shape[:2], *sizes)
    if call.optional(2) is not None:
        wanted = call.static_ints(2, "output_shape")
        if len(wanted) != len(shape):
            raise ModelError(f"output_shape={wanted}: expected {len(shape)} sizes, as {x.type} has")
        shape = wanted
    if min(shape) < 0:
        raise ModelError(f"kernel_shape={kernel}, strides={strides}, pads={pads} give the shape {shape}")
    require_size(prod(shape))
    zeros = b.broadcast(scalar(b, 0, x), shape=(prod(shape),))
    flat = b.scatter_nd(zeros, reshaped(b, indices, (1, x.type.size)), reshaped(b, x, (x.type.size,)))
    return reshaped(b, flat, shape)


@rule("TensorScatter")
def tensor_scatter(b: Builder, call: Call) -> Value:
    """The update of each element of the batch from its own place along `axis` on, in a ring if `circular`."""
    past, update, starts = call.input(0), call.input(1), call.optional(2)
    rank = past.type.rank
    axis = normal_axis(call.attrs.int("axis", -2), rank)
    circular = call.attrs.choice("mode", "linear", ("linear", "circular")) == "circular"
    size, batch = past.shape[axis], past.shape[0]
    if not axis or (*update.shape[:axis], size, *update.shape[axis + 1:]) != past.shape:
        raise ModelError(f"axis={axis}: an update {update.type} of {past.type}")
    places: Value = b.constant(np.arange(update.shape[axis]).reshape(1, -1))
    if starts is not None:
        places = b.add(places, b.reshape(b.convert(starts, element="i64"), shape=(batch, 1)))
    if circular:
        places = b.mod(places, scalar(b, size, places))
    shape = (batch, *past.shape[1:axis], update.shape[axis])
    own = [b.constant(np.broadcast_to(grid, shape)) for grid in np.indices(shape, np.int64)[:-1]]
    places = b.reshape(places, shape=(places.shape[0], *(1,) * (axis - 1), update.shape[axis]))
    lines = [*own, broadcast_to(b, places, shape)]
    return b.scatter_nd(past, b.concat(*(b.reshape(line, shape=(1, *shape)) for line in lines), axis=0), update)
