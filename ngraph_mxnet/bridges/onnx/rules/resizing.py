"""Images, or any tensor, at other sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ngraph_mxnet.bridges.onnx.rules.common import normal_axis, require_table
from ngraph_mxnet.bridges.onnx.rules.registry import Call, rule
from ngraph_mxnet.errors import ModelError, UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.sizes import are_same, is_symbolic, scaled
from ngraph_mxnet.ir.types import f32

_COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                "tf_crop_and_resize", "tf_half_pixel_for_nn")
_ANY = 8
"""An axis' size where all behave alike."""
_MOST_ROWS = 1 << 16
"""The most rows of an interpolation's matrix, which is made row by row."""


def _places(mode: str, size: int, out: int, scale: float, region: tuple[float, float]) -> np.ndarray:
    """Where in the data each output lies, as ONNX's Resize defines its coordinate transformations."""
    require_table((out,), 8)
    at = np.arange(out, dtype=np.float64)
    if mode == "align_corners":
        return at * (size - 1) / (size * scale - 1) if size * scale != 1 else np.zeros(out)
    if mode == "asymmetric":
        return at / scale
    if mode == "tf_half_pixel_for_nn":
        return (at + 0.5) / scale
    if mode == "tf_crop_and_resize":
        first, last = region
        if out > 1:
            return first * (size - 1) + at * (last - first) * (size - 1) / (size * scale - 1)
        return np.full(out, 0.5 * (first + last) * (size - 1))
    if mode == "pytorch_half_pixel" and out == 1:
        return np.zeros(out)
    if mode == "half_pixel_symmetric":
        centre = size / 2
        return centre * (1 - out / (size * scale)) + (at + 0.5) / scale - 0.5
    return (at + 0.5) / scale - 0.5


def _nearest(places: np.ndarray, how: str) -> np.ndarray:
    if how == "round_prefer_floor":
        return np.ceil(places - 0.5)
    if how == "round_prefer_ceil":
        return np.floor(places + 0.5)
    return np.floor(places) if how == "floor" else np.ceil(places)


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys' kernel."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _matrix(places: np.ndarray, size: int, scale: float, call_mode: str, a: float, exclude: bool,
            antialias: bool) -> np.ndarray:
    """[outputs, size]: the weights of linear or cubic interpolation; beyond the ends the nearest element counts."""
    if len(places) > _MOST_ROWS:
        raise UnsupportedError(f"resizes an axis to {len(places)} places; supported: {_MOST_ROWS}")
    require_table((len(places), size), 8)
    stretch = max(1.0, 1 / scale) if antialias else 1.0
    radius = (1 if call_mode == "linear" else 2) * stretch
    matrix = np.zeros((len(places), size))
    for row, place in enumerate(places):
        taps = np.arange(math.floor(place - radius) + 1, math.ceil(place + radius))
        taps = taps if len(taps) else np.array([math.floor(place)])
        distance = (taps - place) / stretch
        weights = np.maximum(0, 1 - np.abs(distance)) if call_mode == "linear" else _cubic(distance, a)
        if exclude:
            weights = np.where((taps >= 0) & (taps < size), weights, 0)
        if exclude or antialias:
            weights = weights / weights.sum()
        np.add.at(matrix[row], np.clip(taps, 0, size - 1), weights)
    return matrix


@rule("Resize")
def resize(b: Builder, call: Call) -> Value:
    """nearest, linear and cubic over any axes with every coordinate transformation, `exclude_outside`, `antialias`."""
    x, attrs = call.input(0), call.attrs
    rank = x.type.rank
    mode = attrs.choice("mode", "nearest", ("nearest", "linear", "cubic"))
    if call.opset < 11:
        factors = call.static(1, "scales").tolist()
        sizes = [_times(size, factor) for size, factor in zip(x.shape, factors, strict=True)]
        return _resized(b, x, sizes, factors, mode, "asymmetric", "floor")
    coordinates = attrs.choice("coordinate_transformation_mode", "half_pixel", _COORDINATES)
    how = attrs.string("nearest_mode", "round_prefer_floor")
    a, exclude = attrs.float("cubic_coeff_a", -0.75), attrs.bool("exclude_outside")
    outside, antialias = attrs.float("extrapolation_value", 0.0), attrs.bool("antialias")
    policy = attrs.choice("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
    axes = [normal_axis(axis, rank) for axis in attrs.ints("axes", tuple(range(rank)))]
    scales, sizes = [1.0] * rank, list(x.shape)
    given = call.static(2, "scales") if call.optional(2) is not None else np.zeros(0)
    region = call.static(1, "roi") if coordinates == "tf_crop_and_resize" else np.zeros(0)
    if given.size:
        if given.size != len(axes):
            raise ModelError(f"found {given.size} scales for {len(axes)} axes")
        for axis, factor in zip(axes, given.tolist(), strict=True):
            scales[axis], sizes[axis] = factor, _times(x.shape[axis], factor)
    else:
        wanted = call.static_ints(3, "sizes")
        if len(wanted) != len(axes):
            raise ModelError(f"found {len(wanted)} sizes for {len(axes)} axes")
        factors = [_ratio(size, x.shape[axis]) for axis, size in zip(axes, wanted, strict=True)]
        if policy != "stretch":
            factors = [min(factors) if policy == "not_larger" else max(factors)] * len(axes)
            wanted = tuple(math.floor(x.shape[axis] * factor + 0.5) for axis, factor in zip(axes, factors, strict=True))
        for axis, size, factor in zip(axes, wanted, factors, strict=True):
            scales[axis], sizes[axis] = factor, size
    return _resized(b, x, sizes, scales, mode, coordinates, how, a=a, exclude=exclude, antialias=antialias,
                    outside=outside, regions=_regions(region, axes, rank))


def _times(size: int, factor: float) -> int:
    exact = scaled(size, factor)
    return exact if exact is not None else math.floor(size * factor)


def _regions(region: np.ndarray, axes: Sequence[int], rank: int) -> list[tuple[float, float]]:
    result = [(0.0, 1.0)] * rank
    if region.size:
        for position, axis in enumerate(axes):
            result[axis] = float(region[position]), float(region[len(axes) + position])
    return result


def _resized(b: Builder, x: Value, sizes: Sequence[int], scales: Sequence[float], mode: str, coordinates: str, how: str,
             *, a: float = -0.75, exclude: bool = False, antialias: bool = False, outside: float = 0.0,
             regions: Sequence[tuple[float, float]] = ()) -> Value:
    rank = x.type.rank
    if mode == "nearest" and antialias:
        raise UnsupportedError("antialias with mode='nearest'")
    if _is_image_op(x, sizes, scales, mode, coordinates, exclude, antialias):
        return b.resize(x, sizes=tuple(sizes[2:]), mode="bilinear", corners=coordinates == "align_corners")
    if mode == "nearest" and _is_nearest_image(x, sizes, scales, coordinates, how, regions):
        return b.resize(x, sizes=tuple(sizes[2:]), mode="nearest")
    crops = coordinates == "tf_crop_and_resize"
    beyond = []
    for axis in range(rank):
        size, out, scale = x.shape[axis], sizes[axis], scales[axis]
        if size == out and scale == 1 and not (crops and regions[axis] != (0.0, 1.0)):
            continue
        if not size or not out:
            raise ModelError(f"resizes axis {axis} of {x.type} to {out}")
        places = _places(coordinates, size, out, scale, regions[axis] if regions else (0.0, 1.0))
        if crops:
            beyond.append((axis, (places < 0) | (places > size - 1)))
        if mode == "nearest":
            at = np.clip(_nearest(places, how), 0, size - 1).astype(np.int64)
            x = b.gather(x, b.constant(at), axis=axis)
        else:
            x = _along(b, x, axis, _matrix(places, size, scale, mode, a, exclude, antialias))
    for axis, mask in beyond:
        if mask.any():
            line = b.constant(mask.reshape([-1 if i == axis else 1 for i in range(rank)]))
            x = b.select(line, b.constant(outside, x.type.element), x)
    return x


def _is_image_op(x: Value, sizes: Sequence[int], scales: Sequence[float], mode: str, coordinates: str, exclude: bool,
                 antialias: bool) -> bool:
    """Whether the IR's `resize` gives the same: linear, over the axes of images, with scales that the sizes make."""
    if mode != "linear" or exclude or antialias or x.type.rank != 4 or x.type.element != f32 or not x.type.size:
        return False
    if tuple(sizes[:2]) != x.shape[:2] or any(size < 2 for size in sizes[2:]):
        return False
    exact = all(_is_exact(*each) for each in zip(scales, x.shape, sizes, strict=True))
    return exact and coordinates in ("align_corners", "half_pixel", "pytorch_half_pixel")


def _is_exact(scale: float, size: int, out: int) -> bool:
    """Whether it is the sizes that make the scale."""
    return are_same(out, scaled(size, scale)) or bool(abs(scale * size - out) < 1e-6 * out)


def _ratio(out: int, size: int) -> float:
    """How much larger `out` is, without asking for the sizes where that is a whole number."""
    whole = out // size
    return float(whole) if not is_symbolic(whole) and are_same(out, size * whole) else out / size


def _is_nearest_image(x: Value, sizes: Sequence[int], scales: Sequence[float], coordinates: str, how: str,
                      regions: Sequence[tuple[float, float]]) -> bool:
    """Whether the IR's `resize` gives the same: output i of R is element floor(i S / R) on the two axes of images."""
    if x.type.rank != 4 or x.type.element != f32 or not x.type.size or any(size == 0 for size in sizes):
        return False
    if tuple(sizes[:2]) != x.shape[:2] or coordinates == "tf_crop_and_resize":
        return False
    for size, out, scale in zip(x.shape[2:], sizes[2:], scales[2:], strict=True):
        if scale >= 0.5 and are_same(out, scaled(size, scale)):
            size, out = _ANY, int(_ANY * scale)  # i S // R is 2 i for R = S // 2 whether S is even or odd
        places = np.clip(_nearest(_places(coordinates, size, out, scale, (0.0, 1.0)), how), 0, size - 1)
        if not np.array_equal(places, np.arange(out) * size // out):
            return False
    return True


def _along(b: Builder, x: Value, axis: int, matrix: np.ndarray) -> Value:
    """The product of `matrix` with x along an axis."""
    rank = x.type.rank
    weights = b.constant(matrix, x.type.element)
    if axis == rank - 1:
        flat = b.reshape(x, shape=(x.type.size // x.shape[-1], x.shape[-1]))
        return b.reshape(b.matmul(flat, weights, transpose_b=True), shape=(*x.shape[:-1], matrix.shape[0]))
    if axis == rank - 2:
        return b.matmul(weights, x)
    order = [i for i in range(rank) if i != axis]
    order.append(axis)
    back = np.argsort(order)
    return b.transpose(_along(b, b.transpose(x, order=order), rank - 1, matrix), order=tuple(int(i) for i in back))


@rule("Upsample")
def upsample(b: Builder, call: Call) -> Value:
    """What Resize was before opset 10."""
    x = call.input(0)
    mode = call.attrs.choice("mode", "nearest", ("nearest", "linear"))
    scales = list(call.attrs.floats("scales")) if call.opset < 9 else call.static(1, "scales").tolist()
    sizes = [_times(size, scale) for size, scale in zip(x.shape, scales, strict=True)]
    return _resized(b, x, sizes, scales, mode, "asymmetric", "floor")
