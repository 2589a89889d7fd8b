"""Batch norm in training and gradients of clamps, on the blocked layout. Sums accumulate in float64, in an order that
no number of threads changes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import float32, types, uint16

from ngraph_mxnet.targets.cpu.kernels.lanes import (
    lane,
    load_lanes,
    narrow,
    splat,
    store_bf16_lanes,
    store_lanes,
    where_above,
    where_not_below,
    where_positive,
    widen,
)
from ngraph_mxnet.targets.cpu.kernels.pointers import image_row, inline, offset_of, pointer, reader, shift
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.params.reduction import (
    BATCH_NORM_GRADIENT_DATA,
    BATCH_NORM_GRADIENT_SUMS,
    BATCH_NORM_STATISTICS,
    CLAMP_GRADIENT,
)

read_statistics = reader(BATCH_NORM_STATISTICS)
read_sums = reader(BATCH_NORM_GRADIENT_SUMS)
read_data = reader(BATCH_NORM_GRADIENT_DATA[""])
read_clamp_gradient = reader(CLAMP_GRADIENT[""])


@kernel("batch_norm_statistics")
def batch_norm_statistics(tensors, ints, floats, begin, end):
    """Mean and biased variance of each channel.

    The sums are of differences to the channel's first pixel, so that a large mean costs no accuracy.
    tensors: x, mean, variance (`channels` each). Tasks: blocks of channels.
    """
    p = read_statistics(ints, floats)
    count = float(p.n * p.h * p.w)
    for block in range(begin, end):
        source = shift(pointer(tensors, 0, float32), block * p.x.c16)
        centre = load_lanes(source, 0)
        sums, squares = splat(0.0), splat(0.0)
        for image in range(p.n):
            for row in range(p.h):
                line = shift(source, image * p.x.n + row * p.x.row)
                for w in range(p.w):
                    x = widen(load_lanes(line, w * p.x.pixel) - centre)
                    sums = sums + x
                    squares = squares + x * x
        moved = sums / splat(count)
        mean = narrow(widen(centre) + moved)
        variance = narrow(squares / splat(count) - moved * moved)
        means, variances = pointer(tensors, 1, float32), pointer(tensors, 2, float32)
        for j in range(min(p.channels - block * 16, 16)):
            means[block * 16 + j] = lane(mean, j)
            # Rounding may leave a little less than nothing; NaN stays.
            found = lane(variance, j)
            variances[block * 16 + j] = np.float32(0) if found < 0 else found


@inline
def _kept(masked, masks, index, head):
    """The head gradient, where the mask lets it through."""
    if masked:
        return where_positive(load_lanes(masks, index), head)
    return head


@kernel("batch_norm_gradient_sums")
def batch_norm_gradient_sums(tensors, ints, floats, begin, end):
    """The gradients of gamma and beta, and a, b, c and the mean of `batch_norm_gradient_data` for each channel.

    With s = 1 / sqrt(variance + epsilon): that of beta is the sum of head, that of gamma the sum of
    head (x - mean) s; a = gamma s, b = -a s of_gamma / count, c = -a of_beta / count.
    tensors: x, gamma, mean, variance, y, head, of_gamma, of_beta (vectors of `channels`), factors.
    floats: epsilon. Tasks: blocks of channels.
    """
    p = read_sums(ints, floats)
    gamma, mean, variance = pointer(tensors, 1, float32), pointer(tensors, 2, float32), pointer(tensors, 3, float32)
    of_gamma, of_beta = pointer(tensors, 6, float32), pointer(tensors, 7, float32)
    count = float(p.n * p.h * p.w)
    for block in range(begin, end):
        xs = shift(pointer(tensors, 0, float32), block * p.x.c16)
        masks = shift(pointer(tensors, 4, float32), block * p.y.c16)
        heads = shift(pointer(tensors, 5, float32), block * p.head.c16)
        factors = shift(pointer(tensors, 8, float32), block * 64)
        channels = min(p.channels - block * 16, 16)
        for j in range(64):
            factors[j] = np.float32(0)
        for j in range(channels):
            factors[48 + j] = mean[block * 16 + j]
        centre = load_lanes(factors, 48)
        total, weighted = splat(0.0), splat(0.0)
        for image in range(p.n):
            for row in range(p.h):
                line = shift(xs, image * p.x.n + row * p.x.row)
                mask = shift(masks, image * p.y.n + row * p.y.row)
                head = shift(heads, image * p.head.n + row * p.head.row)
                for w in range(p.w):
                    kept = widen(_kept(p.masked, mask, w * p.y.pixel, load_lanes(head, w * p.head.pixel)))
                    total = total + kept
                    weighted = weighted + kept * widen(load_lanes(line, w * p.x.pixel) - centre)
        for j in range(channels):
            c = block * 16 + j
            spread = 1.0 / np.sqrt(np.float64(variance[c]) + p.epsilon)
            by_beta, by_gamma = lane(total, j), lane(weighted, j) * spread
            scale = gamma[c] * spread
            of_beta[c], of_gamma[c] = np.float32(by_beta), np.float32(by_gamma)
            factors[j] = np.float32(scale)
            factors[16 + j] = np.float32(-scale * spread * by_gamma / count)
            factors[32 + j] = np.float32(-scale * by_beta / count)


def _gradient_data(stored: types.Number, store: Callable) -> Callable:
    def batch_norm_gradient_data(tensors, ints, floats, begin, end):
        """a head + b (x - mean) + c, with the factors of each channel; head is 0 where a mask is not above 0.

        tensors: x, factors, y, head, output (may be head). Tasks: (n, c16, row).
        """
        p = read_data(ints, floats)
        for task in range(begin, end):
            place = image_row(task, p.c16, p.h)
            xs = shift(pointer(tensors, 0, float32), offset_of(p.x, place))
            masks = shift(pointer(tensors, 2, float32), offset_of(p.y, place))
            heads = shift(pointer(tensors, 3, float32), offset_of(p.head, place))
            target = shift(pointer(tensors, 4, stored), offset_of(p.output, place))
            factors = shift(pointer(tensors, 1, float32), place[1] * 64)
            a, b = load_lanes(factors, 0), load_lanes(factors, 16)
            c, mean = load_lanes(factors, 32), load_lanes(factors, 48)
            for w in range(p.w):
                kept = _kept(p.masked, masks, w * p.y.pixel, load_lanes(heads, w * p.head.pixel))
                x = load_lanes(xs, w * p.x.pixel) - mean
                store(target, w * p.output.pixel, a * kept + (b * x + c))

    return batch_norm_gradient_data


def _clamp_gradient(stored: types.Number, store: Callable) -> Callable:
    def clamp_gradient_blocked(tensors, ints, floats, begin, end):
        """head where x is within the bounds, else 0.

        tensors: x, head, output (may be head). floats: lower, upper. Tasks: (n, c16, row).
        """
        p = read_clamp_gradient(ints, floats)
        lower, upper = splat(np.float32(p.lower)), splat(np.float32(p.upper))
        for task in range(begin, end):
            place = image_row(task, p.c16, p.h)
            xs = shift(pointer(tensors, 0, float32), offset_of(p.x, place))
            heads = shift(pointer(tensors, 1, float32), offset_of(p.head, place))
            target = shift(pointer(tensors, 2, stored), offset_of(p.output, place))
            for w in range(p.w):
                x = load_lanes(xs, w * p.x.pixel)
                kept = where_not_below(upper, x, load_lanes(heads, w * p.head.pixel))
                if p.above:
                    kept = where_above(x, lower, kept)
                else:
                    kept = where_not_below(x, lower, kept)
                store(target, w * p.output.pixel, kept)

    return clamp_gradient_blocked


for _end, _stored, _store in (("", float32, store_lanes), ("_f32_bf16", uint16, store_bf16_lanes)):
    kernel(f"batch_norm_gradient_data{_end}")(_gradient_data(_stored, _store))
    kernel(f"clamp_gradient_blocked{_end}")(_clamp_gradient(_stored, _store))
