"""Images, or any tensor, at other sizes; images read between their pixels; windows and pooled elements written back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.frontends.onnx.rules.registry import (
    Call,
    kernel_of,
    normal_axis,
    require_size,
    require_table,
    rule,
    windows,
)
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.sizes import are_same, is_symbolic, scaled
from ngraph_mxnet.ir.types import f32, f64
from ngraph_mxnet.ops.compositions import (
    broadcast_to,
    converted,
    deformable_convolution,
    full,
    limits,
    moved_axis,
    reshaped,
    scalar,
    slice_axis,
    stacked,
    with_bias,
)

_COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                "tf_crop_and_resize", "tf_half_pixel_for_nn")
_ANY = 8
"""An axis' size where all behave alike."""
_MOST_ROWS = 1 << 16
"""The most rows of an interpolation's matrix, which is made row by row."""
_TIE = 1e-6
"""So near a place has to be to the middle of two elements to count as there, as in ONNX Runtime."""
_FIXED_POINT = float(1 << 22)
"""The fixed-point scale of filter weights for bytes: a weight times this number is whole."""


@dataclass(frozen=True)
class _Axis:
    """One axis: its size in the data, the size asked for, how many times larger that is, and the part of the data that
    `tf_crop_and_resize` takes."""

    number: int
    size: int
    out: int
    scale: float
    by_scale: bool
    """True if the scale was given, False if the size was."""
    region: tuple[float, float] = (0.0, 1.0)

    @property
    def length(self) -> float:
        """The output size before rounding: the size in the data times the scale."""
        return _times(self.size, self.scale)


@dataclass(frozen=True)
class _Method:
    """Resize's attributes, with the defaults of its opsets before 11."""

    mode: str
    coordinates: str = "asymmetric"
    nearest: str = "floor"
    a: float = -0.75
    exclude: bool = False
    antialias: bool = False
    outside: float = 0.0

    @property
    def crops(self) -> bool:
        return self.coordinates == "tf_crop_and_resize"


def _places(coordinates: str, axis: _Axis) -> np.ndarray:
    """Return the place in the data of each output, as ONNX's Resize defines its coordinate transformations. The places
    are f32, computed in float32 step by step as ONNX Runtime does. So a place between two elements goes to the same
    element as there."""
    require_table((axis.out,), 4)
    f = np.float32
    at, scale, end = np.arange(axis.out, dtype=f), f(axis.scale), f(axis.size - 1)
    if coordinates == "align_corners":
        length = axis.length if axis.by_scale else axis.out
        return at * end / (f(length) - f(1)) if length != 1 else at * f(0)
    if coordinates == "asymmetric":
        return at / scale
    if coordinates == "tf_half_pixel_for_nn":
        return (at + f(0.5)) / scale
    if coordinates == "tf_crop_and_resize":
        first, last = map(f, axis.region)
        if axis.out > 1:
            return first * end + at * (last - first) * end / f(axis.out - 1)
        return np.full(axis.out, f(0.5) * (first + last) * end)
    if coordinates == "pytorch_half_pixel" and axis.out == 1:
        return at * f(0)
    if coordinates == "half_pixel_symmetric":
        offset = f(axis.size / 2) * (f(1) - f(axis.out) / f(axis.length))
        return (float(offset) + (at.astype(np.float64) + 0.5) / float(scale) - 0.5).astype(f)
    return (at + f(0.5)) / scale - f(0.5)


def _nearest(axis: _Axis, method: _Method) -> np.ndarray:
    """The element that each output is."""
    places, how = _places(method.coordinates, axis).astype(np.float64), method.nearest
    if how == "simple":
        how = "ceil" if axis.scale < 1 else "floor"
    moved = {"round_prefer_floor": -0.5 - _TIE, "round_prefer_ceil": 0.5 + _TIE}.get(how, 0.0)
    whole = np.ceil(places + moved) if how in ("ceil", "round_prefer_floor") else np.floor(places + moved)
    return np.clip(whole, 0, axis.size - 1).astype(np.int64)


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys' kernel."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _matrix(axis: _Axis, method: _Method) -> np.ndarray:
    """[outputs, size]: the weights of linear or cubic interpolation; beyond the ends the nearest element counts."""
    size, places = axis.size, _places(method.coordinates, axis)
    if len(places) > _MOST_ROWS:
        raise UnsupportedError(f"resizes an axis to {len(places)} places; supported: {_MOST_ROWS}")
    require_table((len(places), size), 8)
    stretch = max(1.0, 1 / axis.scale) if method.antialias else 1.0
    radius = (1 if method.mode == "linear" else 2) * stretch
    matrix = np.zeros((len(places), size))
    for row, place in enumerate(places.tolist()):
        taps = np.arange(math.floor(place - radius) + 1, math.ceil(place + radius))
        taps = taps if len(taps) else np.array([math.floor(place)])
        distance = (taps - place) / stretch
        weights = np.maximum(0, 1 - np.abs(distance)) if method.mode == "linear" else _cubic(distance, method.a)
        if method.exclude:
            weights = np.where((taps >= 0) & (taps < size), weights, 0)
        if method.exclude or method.antialias:
            weights = weights / weights.sum()
        np.add.at(matrix[row], np.clip(taps, 0, size - 1), weights)
    return matrix


@rule("Resize")
def resize(b: Builder, call: Call, x: Value) -> Value:
    """nearest, linear and cubic over any axes with every coordinate transformation, `exclude_outside`, `antialias`."""
    attrs = call.attrs
    rank = x.rank
    mode = attrs.choice("mode", "nearest", ("nearest", "linear", "cubic"))
    if call.opset < 11:
        return _resized(b, x, _by_scales(x, range(rank), call.static(1, "scales")), _Method(mode, nearest="simple"))
    method = _Method(mode, attrs.choice("coordinate_transformation_mode", "half_pixel", _COORDINATES),
                     attrs.string("nearest_mode", "round_prefer_floor"), attrs.float("cubic_coeff_a", -0.75),
                     attrs.bool("exclude_outside"), attrs.bool("antialias"), attrs.float("extrapolation_value", 0.0))
    policy = attrs.choice("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
    numbers = [normal_axis(axis, rank) for axis in attrs.ints("axes", tuple(range(rank)))]
    given = call.static(2, "scales") if call.optional(2) is not None else np.zeros(0)
    region = call.static(1, "roi") if method.crops else np.zeros(0)
    regions = list(zip(region[: len(numbers)].tolist(), region[len(numbers) :].tolist(), strict=True))
    if given.size:
        return _resized(b, x, _by_scales(x, numbers, given, regions), method)
    wanted = call.static_ints(3, "sizes")
    if len(wanted) != len(numbers):
        raise ModelError(f"found {len(wanted)} sizes for {len(numbers)} axes")
    scales = [_ratio(out, x.shape[number]) for number, out in zip(numbers, wanted, strict=True)]
    if policy != "stretch":
        scales = [min(scales) if policy == "not_larger" else max(scales)] * len(numbers)
        wanted = tuple(math.floor(_times(x.shape[number], scale) + 0.5)
                       for number, scale in zip(numbers, scales, strict=True))
    axes = [_Axis(number, x.shape[number], out, scale, False, *regions[place : place + 1])
            for place, (number, out, scale) in enumerate(zip(numbers, wanted, scales, strict=True))]
    return _resized(b, x, axes, method)


@rule("Upsample")
def upsample(b: Builder, call: Call, x: Value) -> Value:
    """Lower Upsample, which Resize replaced in opset 10."""
    mode = call.attrs.choice("mode", "nearest", ("nearest", "linear"))
    scales = np.array(call.attrs.floats("scales"), np.float32) if call.opset < 9 else call.static(1, "scales")
    return _resized(b, x, _by_scales(x, range(x.rank), scales), _Method(mode))


def _by_scales(x: Value, numbers: Sequence[int], scales: np.ndarray,
               regions: Sequence[tuple[float, float]] = ()) -> list[_Axis]:
    if scales.size != len(numbers):
        raise ModelError(f"found {scales.size} scales for {len(numbers)} axes")

    def out(size: int, scale: float) -> int:
        exact = scaled(size, scale)
        return exact if exact is not None else math.floor(_times(size, scale))

    return [_Axis(number, x.shape[number], out(x.shape[number], scale), scale, True, *regions[place : place + 1])
            for place, (number, scale) in enumerate(zip(numbers, scales.tolist(), strict=True))]


def _times(size: int, scale: float) -> float:
    """In float32, as ONNX Runtime: 10 times 0.7, which is a little less there, is 7."""
    return float(np.float32(size) * np.float32(scale))


def _ratio(out: int, size: int) -> float:
    """How much larger `out` is, without asking for the sizes where that is a whole number."""
    if not size:
        return 1.0
    whole = out // size
    return float(whole) if not is_symbolic(whole) and are_same(out, size * whole) else out / size


def _resized(b: Builder, x: Value, axes: Sequence[_Axis], method: _Method) -> Value:
    if method.mode == "nearest" and method.antialias:
        raise UnsupportedError("antialias with mode='nearest'")
    axes = sorted((axis for axis in axes if axis.size != axis.out or axis.scale != 1 or
                   (method.crops and axis.region != (0.0, 1.0))), key=lambda axis: axis.number)
    outs = {axis.number: axis.out for axis in axes}
    sizes = [outs.get(number, size) for number, size in enumerate(x.shape)]
    for axis in axes:
        if not axis.out:
            return full(b, 0, x, sizes)
        if not axis.size:
            raise ModelError(f"resizes axis {axis.number} of {x.type} to {axis.out}")
    image = _as_image_op(b, x, axes, method) if axes else x
    return image if image is not None else _beyond(b, _interpolated(b, x, axes, method), axes, method)


def _interpolated(b: Builder, x: Value, axes: Sequence[_Axis], method: _Method) -> Value:
    """Values within the data: numbers of few bits in float32, integers truncated, and rounded by filters."""
    element = x.element
    if method.mode == "nearest":
        for axis in axes:
            x = b.gather(x, b.constant(_nearest(axis, method)), axis=axis.number)
        return x
    if element.is_float:
        wide = f32 if element.size < 4 else element
        return converted(b, _filtered(b, converted(b, x, wide), axes, method), element)
    if method.antialias:
        return _filtered_integers(b, x, axes, method)
    out = b.convert(x, element=f64 if element.size == 8 else f32)
    if method.mode == "linear":
        return b.convert(_between_neighbours(b, out, _with_those_behind(x, axes), method), element=element)
    lower, upper = limits(element)
    return b.convert(b.clamp(_filtered(b, out, axes, method), lower=lower, upper=upper), element=element)


def _beyond(b: Builder, x: Value, axes: Sequence[_Axis], method: _Method) -> Value:
    """With the value for what lies outside the data in its places."""
    for axis in axes if method.crops else ():
        places = _places(method.coordinates, axis)
        mask = (places < 0) | (places > axis.size - 1)
        if mask.any():
            line = b.constant(mask.reshape([-1 if i == axis.number else 1 for i in range(x.rank)]))
            x = b.select(line, b.constant(method.outside, x.element), x)
    return x


def _filtered(b: Builder, x: Value, axes: Sequence[_Axis], method: _Method) -> Value:
    for axis in axes:
        x = _along(b, x, axis.number, _matrix(axis, method))
    return x


def _filtered_integers(b: Builder, x: Value, axes: Sequence[_Axis], method: _Method) -> Value:
    """The last axis first, and after each the nearest integer within the type's range, as in ONNX Runtime.

    Of bytes the weights have 22 bits, as in Pillow, too, whose sums float64 has without rounding, and halves go up.
    """
    element = x.element
    fixed = _FIXED_POINT if element.size == 1 else 1.0
    (lower, upper), out = limits(element), b.convert(x, element=f32 if element.size in (2, 4) else f64)
    for axis in reversed(axes):
        matrix = _matrix(axis, method) * fixed
        out = _along(b, out, axis.number, np.rint(matrix) if fixed != 1 else matrix)
        half = scalar(b, fixed / 2, out)
        if fixed == 1:  # away from 0
            out = out + b.sign(out) * half
            whole = b.convert(b.clamp(out, lower=lower, upper=upper), element=element)
            out = b.convert(whole, element=out.element)
        else:
            out = b.floor((out + half) * (1 / fixed))
            out = b.clamp(out, lower=lower, upper=upper)
    return b.convert(out, element=element)


def _with_those_behind(x: Value, axes: Sequence[_Axis]) -> list[_Axis]:
    """With the axes that ONNX Runtime takes for an image's or volume's, though they stay: at their ends it has the
    same element twice, which counts half each."""
    rank = x.rank
    places = {axis.number: axis for axis in axes}
    stay = (range(rank - 2, rank) if rank in (2, 4) else range(rank - 3, rank) if rank in (3, 5) else ())
    return [places[i] if i in places else _Axis(i, x.shape[i], x.shape[i], 1.0, False)
            for i in range(rank) if i in places or i in stay]


def _between_neighbours(b: Builder, x: Value, axes: Sequence[_Axis], method: _Method) -> Value:
    """Linear interpolation as a sum of the neighbours, each times its weight: the last axis' neighbour changes first,
    and so do its weights stand, so that it is rounded as in ONNX Runtime and whole numbers are truncated alike."""
    sides = []
    for axis in axes:
        places = (_places(method.coordinates, axis) if axis.scale != 1 or method.crops else
                  np.arange(axis.out, dtype=np.float32))
        places = np.clip(places, np.float32(0), np.float32(axis.size - 1))
        first = places.astype(np.int64)
        second = np.minimum(first + 1, axis.size - 1)
        even, half = first == second, np.float32(0.5)
        sides.append([(at, np.where(even, half, np.abs(places - other.astype(np.float32))))
                      for at, other in ((first, second), (second, first))])
    total: Value | None = None
    for corner in product(*sides):
        part, weight = x, np.ones((), np.float32)
        for axis, (at, _) in zip(axes, corner, strict=True):
            part = b.gather(part, b.constant(at), axis=axis.number)
        for axis, (_, factor) in reversed(list(zip(axes, corner, strict=True))):
            weight = weight * factor.reshape([-1 if i == axis.number else 1 for i in range(x.rank)])
        part = part * b.constant(weight, x.element)
        total = part if total is None else total + part
    assert total is not None
    return total


def _along(b: Builder, x: Value, axis: int, matrix: np.ndarray) -> Value:
    """The product of `matrix` with x along an axis."""
    rank = x.rank
    weights = b.constant(matrix, x.element)
    if axis == rank - 1:
        flat = b.reshape(x, shape=(x.size // x.shape[-1], x.shape[-1]))
        return b.reshape(b.matmul(flat, weights, transpose_b=True), shape=(*x.shape[:-1], matrix.shape[0]))
    if axis == rank - 2:
        return b.matmul(weights, x)
    return moved_axis(b, _along(b, moved_axis(b, x, axis, rank - 1), rank - 1, matrix), rank - 1, axis)


# ---- the IR's op of images ------------------------------------------------------------------------------------


def _as_image_op(b: Builder, x: Value, axes: Sequence[_Axis], method: _Method) -> Value | None:
    """The IR's `resize` where it gives the same: on the two axes of images of float32."""
    if x.rank != 4 or x.element != f32 or not x.size or axes[0].number < 2:
        return None
    missing = [_Axis(number, x.shape[number], x.shape[number], 1.0, False) for number in (2, 3)]
    both = [next((axis for axis in axes if axis.number == other.number), other) for other in missing]
    sizes = tuple(axis.out for axis in both)
    if method.mode == "nearest":
        same = not method.crops and all(_is_nearest_of_images(axis, method) for axis in both)
        return b.resize(x, sizes=sizes, mode="nearest") if same else None
    corners = method.coordinates == "align_corners"
    if method.mode != "linear" or method.exclude or method.antialias or any(size < 2 for size in sizes):
        return None
    if not corners and method.coordinates not in ("half_pixel", "pytorch_half_pixel"):
        return None
    read = [_read(axis, corners) for axis in both]
    if any(size is None for size in read):
        return None
    for axis, size in zip(both, read, strict=True):
        if not are_same(size, axis.size):
            x = slice_axis(b, x, axis.number, 0, size)  # type: ignore[arg-type]
    return b.resize(x, sizes=sizes, mode="bilinear", corners=corners)


def _read(axis: _Axis, corners: bool) -> int | None:
    """How many elements an image would have whose size makes the scale, and of which the outputs read no others; None
    if there is no such number. Of an odd size, a scale of 1/2 reads all but the last element."""
    if not axis.by_scale or are_same(axis.out, axis.size * int(axis.scale)):
        return axis.size if axis.by_scale or axis.scale == _ratio(axis.out, axis.size) else None
    parts = round(1 / axis.scale)
    if scaled(axis.size, axis.scale) is None and parts * axis.scale != 1:
        return axis.size if abs(axis.scale * axis.size - axis.out) < 1e-6 * axis.out else None
    if corners or axis.size == axis.out * parts:
        return axis.size if axis.size == axis.out * parts else None
    return axis.out * parts


def _is_nearest_of_images(axis: _Axis, method: _Method) -> bool:
    """True if output i of R is element floor(i S / R) of the S elements."""
    if axis.scale >= 0.5 and are_same(axis.out, scaled(axis.size, axis.scale)):
        out = int(_ANY * axis.scale)  # i S // R is 2 i for R = S // 2 whether S is even or odd
        axis = _Axis(axis.number, _ANY, out, axis.scale, False)
    return bool(np.array_equal(_nearest(axis, method), np.arange(axis.out) * axis.size // axis.out))


_MODES = {"bilinear": "linear", "linear": "linear", "nearest": "nearest", "bicubic": "cubic", "cubic": "cubic"}


@rule("GridSample")
def grid_sample(b: Builder, call: Call, x: Value, grid: Value) -> Value:
    """One to three spatial axes, all modes and paddings; places are computed in float32."""
    mode = _MODES[call.attrs.choice("mode", "linear" if call.opset >= 20 else "bilinear", _MODES)]
    padding = call.attrs.choice("padding_mode", "zeros", ("zeros", "border", "reflection"))
    corners = call.attrs.bool("align_corners")
    sizes, places = x.shape[2:], grid.shape[1:-1]
    rank, batch, channels = len(sizes), x.shape[0], x.shape[1]
    if grid.shape != (batch, *places, rank) or len(places) != rank:
        raise ModelError(f"grid {grid.type} does not fit the data {x.type}")
    if rank > 3:
        raise UnsupportedError(f"{rank} spatial axes; supported: 1 to 3")
    if not x.element.is_float and mode != "nearest":
        raise UnsupportedError(f"mode {mode} of {x.element}; supported: floats")
    points = b.reshape(converted(b, grid, f32), shape=(batch, prod(places), rank))
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
    place = at * half + (size - 1) / 2
    return b.round(place) if mode == "nearest" else place


def _inside(b: Builder, at: Value, size: int, corners: bool, padding: str) -> Value:
    """Places, of which those outside the image are moved to its border, reflected at it, or left, as `padding` says."""
    if padding == "zeros":
        return at
    if padding == "reflection":
        return _reflected(b, at, size, corners)
    outside = b.abs(at - (size - 1) / 2) > ((size - 1) / 2 if corners else size / 2)
    return b.select(outside, b.clamp(at, lower=0.0, upper=float(size - 1)), at)


def _reflected(b: Builder, at: Value, size: int, corners: bool) -> Value:
    """Places reflected at -1/2 and size - 1/2 (with `corners` at 0 and size - 1) until they lie between the two."""
    least, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
    if not span:
        return at * 0
    way = (at - least) % (2 * span)
    back = 2 * span - way
    return b.minimum(way, back) + least


def _bilinear(b: Builder, x: Value, at: Sequence[Value], places: Sequence[int], *, reach: float) -> Value:
    """Linear samples by the op `bilinear_sample`, which counts from -1 to 1 over the centres of the pixels.

    A place more than `reach` pixels outside the image is moved to that distance: 1 where zeros surround it, as all
    further out is 0, too; else 0, which is the border.
    """
    scaled = []
    for place, size in zip(at, x.shape[2:], strict=True):
        near = b.clamp(place, lower=-reach, upper=size - 1 + reach)
        scaled.append(near * (2 / (size - 1)) - 1)
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
                found = found * b.transpose(converted(b, weight, x), order=(0, 2, 1))
        total = found if total is None else total + found
    assert total is not None
    return total


def _taps(b: Builder, at: Value, mode: str) -> list[tuple[Value, Value | None]]:
    """The whole places next to each place along an axis, each with its weight (None: 1)."""
    if mode == "nearest":
        return [(at, None)]
    low = b.floor(at)
    part = at - low
    one = scalar(b, 1, at)
    rest = one - part
    if mode == "linear":
        return [(low, rest), (low + one, part)]
    near = [_sampled_cubic(b, distance, (1.25, -2.25, 0.0, 1.0)) for distance in (part, rest)]
    far = [_sampled_cubic(b, distance + one, (-0.75, 3.75, -6.0, 3.0)) for distance in (part, rest)]
    return [(low - one, far[0]), (low, near[0]), (low + one, near[1]), (low + 2, far[1])]


def _sampled_cubic(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """Keys' convolution kernel (1981) with a = -3/4, of a distance below 1 and from 1 to 2."""
    first, *others = coefficients
    value = scalar(b, first, x)
    for coefficient in others:
        value = value * x + coefficient
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
            within = same if within is None else within & same
        index = b.convert(nearest, element="i64")
        flat = index if flat is None else flat * size + index
    assert flat is not None
    count = flat.shape[1]
    indices = broadcast_to(b, b.reshape(flat, shape=(batch, 1, count)), (batch, channels, count))
    found = b.gather_elements(b.reshape(x, shape=(batch, channels, prod(sizes))), indices, axis=2)
    if within is None:
        return found
    return b.select(b.reshape(within, shape=(batch, 1, count)), found, 0)


@rule("RoiAlign")
def roi_align(b: Builder, call: Call, x: Value, rois: Value, images: Value) -> Value:
    """Means over the bins of regions (left, top, right, bottom), each of the image that its index names."""
    call.attrs.choice("mode", "avg", ("avg",))
    default = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    how = call.attrs.choice("coordinate_transformation_mode", default, ("half_pixel", "output_half_pixel"))
    if rois.rank != 2 or rois.shape[1] != 4 or images.shape != rois.shape[:1]:
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
def deform_conv(b: Builder, call: Call, x: Value, weight: Value, offset: Value, bias: Value | None = None,
                mask: Value | None = None) -> Value:
    """In two spatial dimensions."""
    if x.rank != 4 or min(x.shape[2:]) < 2:
        raise UnsupportedError(f"found {x.type}; supported: images of at least 2 rows and 2 columns")
    at = windows(call, x.shape[2:], kernel_of(call, weight))
    out = deformable_convolution(b, x, offset, mask, weight, groups=call.attrs.int("group", 1),
                                 offset_groups=call.attrs.int("offset_group", 1), stride=at.strides,
                                 dilate=at.dilations, pad=at.begins)
    return with_bias(b, out, bias)


@rule("Col2Im")
def column_to_image(b: Builder, call: Call, x: Value) -> Value:
    """[N, C * taps, windows] as images in which overlapping windows are added."""
    sizes, kernel = call.static_ints(1, "image_shape"), call.static_ints(2, "block_shape")
    at = windows(call, sizes, kernel)
    padded, counts = [sum(each) for each in zip(sizes, at.begins, at.ends, strict=True)], at.counts
    taps = prod(kernel)
    if x.rank != 3 or x.shape[1] % taps or x.shape[2] != prod(counts):
        raise ModelError(f"found {x.type}, expected a multiple of {taps} rows and {prod(counts)} columns")
    require_size(x.shape[0] * x.shape[1] // taps * prod(padded))
    flat = np.zeros((1, 1), np.int64)
    for size, span, far, step, count in zip(padded, kernel, at.dilations, at.strides, counts, strict=True):
        place = np.arange(span)[:, None] * far + np.arange(count)[None, :] * step  # [span, count]
        flat = (flat[:, None, :, None] * size + place[None, :, None, :]).reshape(len(flat) * span, -1)
    batch, channels = x.shape[0], x.shape[1] // taps
    updates = b.transpose(b.reshape(x, shape=(batch, channels, flat.size)), order=(2, 0, 1))
    zeros = full(b, 0, x, (prod(padded), batch, channels))
    image = b.scatter_nd(zeros, b.constant(flat.reshape(1, -1)), updates, reduction="add")
    whole = b.reshape(b.transpose(image, order=(1, 2, 0)), shape=(batch, channels, *padded))
    return b.slice(whole, begin=(0, 0, *at.begins),
                   end=(batch, channels, *(begin + size for begin, size in zip(at.begins, sizes, strict=True))))


@rule("MaxUnpool")
def max_unpool(b: Builder, call: Call, x: Value, indices: Value) -> Value:
    """Each element at its place in the tensor that was pooled; 0 elsewhere. That has the shape `output_shape`, which
    several shapes of pooled tensors go back to: so ONNX Runtime and PyTorch have it."""
    rank = x.rank - 2
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
    zeros = full(b, 0, x, (prod(shape),))
    flat = b.scatter_nd(zeros, reshaped(b, indices, (1, x.size)), reshaped(b, x, (x.size,)))
    return reshaped(b, flat, shape)


@rule("TensorScatter")
def tensor_scatter(b: Builder, call: Call, past: Value, update: Value, starts: Value | None = None) -> Value:
    """The update of each element of the batch from its own place along `axis` on, in a ring if `circular`."""
    rank = past.rank
    axis = normal_axis(call.attrs.int("axis", -2), rank)
    circular = call.attrs.choice("mode", "linear", ("linear", "circular")) == "circular"
    size, batch = past.shape[axis], past.shape[0]
    if not axis or (*update.shape[:axis], size, *update.shape[axis + 1:]) != past.shape:
        raise ModelError(f"axis={axis}: an update {update.type} of {past.type}")
    places: Value = b.constant(np.arange(update.shape[axis]).reshape(1, -1))
    if starts is not None:
        places = places + b.reshape(b.convert(starts, element="i64"), shape=(batch, 1))
    if circular:
        places = places % size
    shape = (batch, *past.shape[1:axis], update.shape[axis])
    own = [b.constant(np.broadcast_to(grid, shape)) for grid in np.indices(shape, np.int64)[:-1]]
    places = b.reshape(places, shape=(places.shape[0], *(1,) * (axis - 1), update.shape[axis]))
    lines = [*own, broadcast_to(b, places, shape)]
    return b.scatter_nd(past, stacked(b, lines), update)
