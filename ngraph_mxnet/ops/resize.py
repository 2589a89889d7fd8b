"""Images to another size, and values between their pixels."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.ir.opdef import Attrs, Rates, Shapes, by_operand, by_result, register_op
from ngraph_mxnet.ir.types import Attribute, Bool, Choice, Ints, TensorType
from ngraph_mxnet.ops.common import (
    FLOAT,
    Types,
    common_element,
    in_f32,
    require,
    require_domain,
    require_per_axis,
    require_rank,
    require_shape,
)

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


@register_op(
    "resize",
    operands=1,
    attrs=RESIZE_ATTRS,
    kind="resampling",
    work=_work,
)
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


