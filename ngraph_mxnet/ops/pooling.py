"""Pooling over one to three spatial axes; images to another size, and values between their pixels.

On each spatial axis output i of a pool covers the places [i * stride - pads_begin, ... + kernel) of the data.
`rounding` says how many outputs there are when the strides do not come out even: `floor` (MXNet's `valid`) drops the
rest, `ceil` (MXNet's `full`) adds a window that may reach beyond the end padding. Every window must hold an element of
the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from ngraph_mxnet.ir.opdef import Attrs, Rates, Shapes, by_operand, by_result, register_op
from ngraph_mxnet.ir.types import Attribute, Bool, Choice, Ints, PerAxis, Shape, TensorType
from ngraph_mxnet.ops.common import (
    FLOAT,
    NUMBER,
    Types,
    common_element,
    in_f32,
    require,
    require_domain,
    require_per_axis,
    require_rank,
    require_shape,
)

POOL_ATTRS: dict[str, Attribute] = {
    "kernel": Ints(),
    "strides": PerAxis(fill=1, skip=2),
    "pads_begin": PerAxis(fill=0, skip=2),
    "pads_end": PerAxis(fill=0, skip=2),
    "rounding": Choice("floor", ("floor", "ceil")),
}


def pooled_sizes(sizes: Shape, attrs: Attrs) -> Shape:
    """The spatial sizes of a pool's result."""
    result = []
    for axis, size in enumerate(sizes):
        span = size + attrs["pads_begin"][axis] + attrs["pads_end"][axis] - attrs["kernel"][axis]
        stride = attrs["strides"][axis]
        result.append((span // stride if attrs["rounding"] == "floor" else -(-span // stride)) + 1)
    return tuple(result)


def _pool_type(types: Types, attrs: Attrs) -> TensorType:
    (data,) = types
    require_rank(data, 3, 5)
    spatial = data.rank - 2
    for name, least in (("kernel", 1), ("strides", 1), ("pads_begin", 0), ("pads_end", 0)):
        require_per_axis(name, attrs[name], spatial, least)
    for axis, size in enumerate(data.shape[2:]):
        kernel, begin, end = attrs["kernel"][axis], attrs["pads_begin"][axis], attrs["pads_end"][axis]
        require(kernel <= size + begin + end, f"kernel on spatial axis {axis}", kernel,
                f"at most the padded size {size + begin + end}")
    sizes = pooled_sizes(data.shape[2:], attrs)
    for axis, (size, count) in enumerate(zip(data.shape[2:], sizes, strict=True)):
        kernel, begin = attrs["kernel"][axis], attrs["pads_begin"][axis]
        last = (count - 1) * attrs["strides"][axis] - begin
        require(begin < kernel and last < size, f"windows of spatial axis {axis}",
                f"[{-begin}, {kernel - begin}) to [{last}, {last + kernel})", f"each to overlap [0, {size})")
    return data.with_shape((*data.shape[:2], *sizes))


def _taps(data: np.ndarray, attrs: Attrs, outside: float) -> Iterator[np.ndarray]:
    """For each tap of the kernel the elements that it meets, in the result's shape; those of the padding are
    `outside`."""
    sizes = pooled_sizes(data.shape[2:], attrs)
    needed = [(n - 1) * s + k for n, s, k in zip(sizes, attrs["strides"], attrs["kernel"], strict=True)]
    width = [(b, max(n - b - size, 0)) for b, n, size in zip(attrs["pads_begin"], needed, data.shape[2:], strict=True)]
    padded = np.pad(data, [(0, 0), (0, 0), *width], constant_values=outside)
    for tap in np.ndindex(*attrs["kernel"]):
        steps = zip(tap, sizes, attrs["strides"], strict=True)
        window: Any = (..., *(slice(t, t + (n - 1) * s + 1, s) for t, n, s in steps))
        yield padded[window]


def divisors(sizes: Shape, attrs: Attrs) -> np.ndarray:
    """Return the divisor of `avg_pool` at each output place: shape [*sizes of the result].

    With `include_pad` a window counts up to the end of the padding, not beyond; else the data's places only.
    (pool_sum_*d in MXNet's src/operator/nn/pool.h.)
    """
    counts = []
    for axis, (size, count) in enumerate(zip(sizes, pooled_sizes(sizes, attrs), strict=True)):
        start = np.arange(count) * attrs["strides"][axis] - attrs["pads_begin"][axis]
        stop = np.minimum(start + attrs["kernel"][axis], size + attrs["pads_end"][axis])
        if not attrs["include_pad"]:
            start, stop = np.maximum(start, 0), np.minimum(stop, size)
        counts.append(stop - start)
    return reduce(np.multiply.outer, counts)


def _pool_work(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
    return {"simple": prod(results[0]) * prod(attrs["kernel"])}


def _gradient_work(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
    return {"simple": prod(operands[1]) * (prod(attrs["kernel"]) + 1)}


@register_op("max_pool", operands=1, attrs=POOL_ATTRS, kind="pool", work=_pool_work, selects=True, ordinal=True)
def max_pool(types, attrs):
    """T[N, C, *S] -> T[N, C, *R]: the greatest element of each window, padding aside; NaN if one is."""
    require_domain(types, NUMBER)
    return _pool_type(types, attrs)


@max_pool.reference
@in_f32
def _(inputs, attrs):
    (data,) = inputs
    lowest = -np.inf if data.dtype.kind == "f" else np.iinfo(data.dtype).min
    return reduce(np.maximum, _taps(data, attrs, lowest)).copy()


@register_op("avg_pool", operands=1, attrs={**POOL_ATTRS, "include_pad": Bool(True)}, kind="pool", work=_pool_work,
             tolerant=True)
def avg_pool(types, attrs):
    """T[N, C, *S] -> T[N, C, *R]: the sum of each window's elements over its divisor (see `divisors`)."""
    require_domain(types, FLOAT)
    return _pool_type(types, attrs)


@avg_pool.reference
@in_f32
def _(inputs, attrs):
    (data,) = inputs
    total = reduce(np.add, _taps(data, attrs, 0))
    return total / divisors(data.shape[2:], attrs).astype(data.dtype)


@register_op("max_pool_gradient", operands=2, attrs=POOL_ATTRS, work=_gradient_work)
def max_pool_gradient(types, attrs):
    """data T[N, C, *S], head T[N, C, *R] -> T[N, C, *S]: of a max_pool's result, by its data.

    A window's share goes to the first of its greatest elements in row-major order, as in MXNet
    (unpool_max_*d in src/operator/nn/pool.h); that of a window with NaN is lost.
    """
    data, head = types
    require_domain(types, FLOAT)
    common_element(types)
    require_shape(head, _pool_type([data], attrs).shape, position=1)
    return data


@max_pool_gradient.reference
@in_f32
def _(inputs, attrs):
    data, head = inputs
    sizes = data.shape[2:]
    places = np.broadcast_to(np.arange(prod(sizes)).reshape(sizes), data.shape)
    greatest, winner = reduce(np.maximum, _taps(data, attrs, -np.inf)), np.full(head.shape, -1)
    for met, place in zip(_taps(data, attrs, 0), _taps(places, attrs, -1), strict=True):
        winner = np.where((winner < 0) & (place >= 0) & (met == greatest), place, winner)
    lines, spare = prod(data.shape[:2]), prod(sizes)
    result = np.zeros((lines, spare + 1), data.dtype)
    np.add.at(result, (np.arange(lines)[:, None], winner.reshape(lines, -1)), head.reshape(lines, -1))
    return result[:, :spare].reshape(data.shape)


Taps = tuple[np.ndarray, np.ndarray]
"""The elements that outputs read on one axis. For each output: the first element (int64 [R]), and the weights of that
element and those that follow (f32 [R, taps]). A weight of 0 may lie beyond the end."""


RESIZE_ATTRS: dict[str, Attribute] = {
    "sizes": Ints(), "mode": Choice("bilinear", ("bilinear", "nearest")), "corners": Bool(False)}


def resize_taps(size: int, out: int, mode: str, corners: bool) -> Taps:
    """Return the taps of `resize` on one axis."""
    places = np.arange(out, dtype=np.float32)
    if mode == "nearest":
        return np.arange(out) * size // out, np.ones((out, 1), np.float32)
    if corners:
        at = places * np.float32((size - 1) / (out - 1) if out > 1 else 0)
    else:
        at = np.maximum((places + np.float32(0.5)) * np.float32(size / out) - np.float32(0.5), np.float32(0))
        if out == 1:
            at[:] = 0
    first = np.minimum(at.astype(np.int64), size - 1)
    second = np.where(first < size - 1, (at - first).astype(np.float32), np.float32(0))
    return first, np.stack([1 - second, second], axis=1).astype(np.float32)


def adaptive_taps(size: int, out: int) -> Taps:
    """Return the taps of `adaptive_avg_pool` on one axis."""
    places = np.arange(out)
    first, stop = places * size // out, -(-(places + 1) * size // out)
    counts = stop - first
    weights = (np.arange(counts.max()) < counts[:, None]) / counts[:, None]
    return first, weights.astype(np.float32)


def turned(taps: Taps, size: int) -> Taps:
    """For each of `size` elements the outputs that read it: what goes back to it is the sum of their gradients, each by
    its weight there."""
    matrix = _dense(taps, size)
    read = matrix != 0
    counts = np.where(read.any(axis=0), len(matrix) - read[::-1].argmax(axis=0) - read.argmax(axis=0), 0)
    first = np.where(counts > 0, read.argmax(axis=0), 0)
    weights = np.zeros((size, max(counts.max(), 1)), np.float32)
    for place, (begin, count) in enumerate(zip(first, counts, strict=True)):
        weights[place, :count] = matrix[begin:begin + count, place]
    return first, weights


def _dense(taps: Taps, size: int) -> np.ndarray:
    """The taps as a matrix [R, S]."""
    first, weights = taps
    matrix = np.zeros((len(first), size + weights.shape[1]))
    for place, row in enumerate(weights):
        matrix[place, first[place] : first[place] + len(row)] += row
    return matrix[:, :size]


def _resampled(data: np.ndarray, rows: Taps, columns: Taps) -> np.ndarray:
    height, width = data.shape[2:]
    wide = np.einsum("ri,ncij,sj->ncrs", _dense(rows, height), data, _dense(columns, width), optimize=True)
    return wide.astype(data.dtype)


def _image_type(types: Types, sizes: tuple[int, ...]) -> TensorType:
    (data,) = types
    require_domain(types, FLOAT)
    require_rank(data, 4, 4)
    require_per_axis("sizes", sizes, 2, 1)
    require(data.size > 0, "operand 0", data, "elements")
    return data.with_shape((*data.shape[:2], *sizes))


def _work(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
    taps = 4 if attrs["mode"] == "bilinear" else 1
    return by_result(gather=taps, simple=taps)(operands, results, attrs)


@register_op("resize", operands=1, attrs=RESIZE_ATTRS, kind="resampling", work=_work)
def resize(types, attrs):
    """T[N, C, H, W] -> T[N, C, *sizes], each axis by itself.

    `nearest` takes element floor(i S / R) for output i of R from S. `bilinear` is linear between the elements around
    i (S - 1) / (R - 1) with `corners`, else around max(0, (i + 1/2) S / R - 1/2); a single output takes element 0.
    """
    return _image_type(types, attrs["sizes"])


@resize.reference
@in_f32
def _(inputs, attrs):
    (data,) = inputs
    pairs = zip(data.shape[2:], attrs["sizes"], strict=True)
    return _resampled(data, *(resize_taps(size, out, attrs["mode"], attrs["corners"]) for size, out in pairs))


@register_op("adaptive_avg_pool", operands=1, attrs={"sizes": Ints()}, kind="resampling", work=by_operand(simple=1))
def adaptive_avg_pool(types, attrs):
    """T[N, C, H, W] -> T[N, C, *sizes]: on each axis output i of R is the mean over [floor(i S/R), ceil((i+1) S/R))."""
    return _image_type(types, attrs["sizes"])


@adaptive_avg_pool.reference
@in_f32
def _(inputs, attrs):
    (data,) = inputs
    return _resampled(data, *(adaptive_taps(*pair) for pair in zip(data.shape[2:], attrs["sizes"], strict=True)))


def gradient_taps(op: str, sizes: tuple[int, ...], attrs: Attrs) -> tuple[Taps, Taps]:
    """Return the taps of `resize_gradient` or `adaptive_avg_pool_gradient` in a head gradient of spatial `sizes`: by
    rows, and by columns."""
    pairs = list(zip(attrs["sizes"], sizes, strict=True))
    if op == "resize_gradient":
        found = [turned(resize_taps(size, out, attrs["mode"], attrs["corners"]), size) for size, out in pairs]
    else:
        found = [turned(adaptive_taps(size, out), size) for size, out in pairs]
    return found[0], found[1]


@register_op("resize_gradient", operands=1, attrs=RESIZE_ATTRS, kind="resampling", work=by_operand(gather=4, simple=4))
def resize_gradient(types, attrs):
    """head T[N, C, R, Q] -> T[N, C, *sizes]: of a `resize` of data of `sizes` to [R, Q], by that data."""
    return _image_type(types, attrs["sizes"])


@resize_gradient.reference
@in_f32
def _(inputs, attrs):
    return _resampled(inputs[0], *gradient_taps("resize_gradient", inputs[0].shape[2:], attrs))


@register_op("adaptive_avg_pool_gradient", operands=1, attrs={"sizes": Ints()}, kind="resampling",
             work=by_operand(gather=4, simple=4))
def adaptive_avg_pool_gradient(types, attrs):
    """head T[N, C, R, Q] -> T[N, C, *sizes]: of an `adaptive_avg_pool` of data of `sizes` to [R, Q], by that data."""
    return _image_type(types, attrs["sizes"])


@adaptive_avg_pool_gradient.reference
@in_f32
def _(inputs, attrs):
    return _resampled(inputs[0], *gradient_taps("adaptive_avg_pool_gradient", inputs[0].shape[2:], attrs))


@register_op("bilinear_sample", operands=2, work=by_result(gather=4, simple=8))
def bilinear_sample(types, attrs):
    """T[N, C, H, W], grid T[N, 2, P, Q] -> T[N, C, P, Q]: the data at (x, y) = grid[n, :, p, q], linear between pixels.

    x and y are from -1 to 1, the centres of the outermost pixels; outside the data is 0.
    """
    data, grid = types
    require_domain(types, FLOAT)
    common_element(types)
    require_rank(data, 4, 4)
    require_rank(grid, 4, 4, position=1)
    require_shape(grid, (data.shape[0], 2, *grid.shape[2:]), position=1)
    return data.with_shape((*data.shape[:2], *grid.shape[2:]))


@bilinear_sample.reference
@in_f32
def _(inputs, attrs):
    data, grid = inputs
    height, width = data.shape[2:]
    x = (grid[:, 0] + 1) * (width - 1) / 2
    y = (grid[:, 1] + 1) * (height - 1) / 2
    return sample(data, y[:, None], x[:, None])


def sample(data: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """data [N, C, H, W] at y and x [N, C or 1, *P] -> [N, C, *P], linear between pixels; 0 outside."""
    batch, channels, height, width = data.shape
    shape = (batch, channels, *y.shape[2:])
    n = np.arange(batch).reshape(-1, *(1,) * (len(shape) - 1))
    c = np.arange(channels).reshape(-1, *(1,) * (len(shape) - 2))
    top, left = np.floor(y), np.floor(x)
    total = np.zeros(shape, data.dtype)
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        i, j = top + row, left + column
        weight = (1 - np.abs(y - i)) * (1 - np.abs(x - j))
        inside = (i >= 0) & (i < height) & (j >= 0) & (j < width)
        i, j = (np.where(inside, v, 0).astype(np.int64) for v in (i, j))
        total += np.where(inside, weight * data[n, c, i, j], 0).astype(data.dtype)
    return total
