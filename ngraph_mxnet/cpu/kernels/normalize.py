"""Softmax and the normalisations that need a pass for statistics. Sums accumulate in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import float32

from ngraph_mxnet.cpu.kernels import maths
from ngraph_mxnet.cpu.kernels.lanes import (
    load_lanes,
    maximum_lanes,
    maximum_of_lanes,
    narrow,
    splat,
    store_lanes,
    sum_of_lanes,
    widen,
)
from ngraph_mxnet.cpu.kernels.pointers import inline, pointer, select, shift
from ngraph_mxnet.cpu.kernels.record import KernelRecord, kernel, register

__all__ = ["FACTORS_INTS", "LAYER_NORM_INTS", "LRN_INTS", "SOFTMAX_INTS"]

SOFTMAX_INTS = tuple("outer axis inner in_outer in_axis in_inner out_outer out_axis out_inner".split())
"""Entries of `ints` of `softmax` and `log_softmax`; the last six are strides."""

LAYER_NORM_INTS = ("rows", "columns", "in_row", "out_row")
"""Entries of `ints` of `layer_norm`; a row is contiguous."""

FACTORS_INTS = ("channels",)
"""Entries of `ints` of `batch_norm_factors`."""

LRN_INTS = ("n", "c", "inner", "size", "in_n", "in_c", "out_n", "out_c")
"""Entries of `ints` of `lrn`; the inner dimension (height times width) is contiguous."""



def _softmax(logarithm: bool) -> Callable:
    """The output first holds x - max, and for softmax its exponentials."""

    @inline
    def columns(source, target, size, in_step, out_step):
        """Sixteen contiguous columns."""
        best = splat(np.float32(-np.inf))
        for i in range(size):
            best = maximum_lanes(load_lanes(source, i * in_step), best)
        total = splat(0.0)
        for i in range(size):
            cell = shift(target, i * out_step)
            store_lanes(cell, 0, load_lanes(source, i * in_step) - best)
            for j in range(16):
                cell[j] = maths.exp(cell[j])
            total = total + widen(load_lanes(cell, 0))
        if logarithm:
            # Written over an exponential that is no longer needed.
            last = shift(target, (size - 1) * out_step)
            store_lanes(last, 0, narrow(total))
            for j in range(16):
                last[j] = maths.log(last[j])
            offset = load_lanes(last, 0)
            for i in range(size):
                store_lanes(target, i * out_step, load_lanes(source, i * in_step) - best - offset)
        else:
            scale = narrow(splat(1.0) / total)
            for i in range(size):
                store_lanes(target, i * out_step, load_lanes(target, i * out_step) * scale)

    @inline
    def row(source, target, size):
        """One contiguous row."""
        whole = size // 16 * 16
        partial = splat(np.float32(-np.inf))
        for i in range(0, whole, 16):
            partial = maximum_lanes(load_lanes(source, i), partial)
        best = maximum_of_lanes(partial)
        for i in range(whole, size):
            best = select((source[i] > best) | (source[i] != source[i]), source[i], best)
        for i in range(size):
            target[i] = maths.exp(source[i] - best)
        sums = splat(0.0)
        for i in range(0, whole, 16):
            sums = sums + widen(load_lanes(target, i))
        total = sum_of_lanes(sums)
        for i in range(whole, size):
            total += target[i]
        if logarithm:
            offset = maths.log(np.float32(total))
            for i in range(size):
                target[i] = source[i] - best - offset
        else:
            scale = np.float32(1.0 / total)
            for i in range(size):
                target[i] = target[i] * scale

    @inline
    def strided(source, target, size, in_step, out_step):
        best = np.float32(-np.inf)
        for i in range(size):
            x = source[i * in_step]
            best = select((x > best) | (x != x), x, best)
        total = 0.0
        for i in range(size):
            value = maths.exp(source[i * in_step] - best)
            total += value
            if not logarithm:
                target[i * out_step] = value
        offset, scale = maths.log(np.float32(total)), np.float32(1.0 / total)
        for i in range(size):
            if logarithm:
                target[i * out_step] = source[i * in_step] - best - offset
            else:
                target[i * out_step] = target[i * out_step] * scale

    def softmax(tensors, ints, floats, begin, end):
        tiles = (ints[2] + 15) // 16
        for task in range(begin, end):
            outer, first = task // tiles, task % tiles * 16
            source = shift(pointer(tensors, 0, float32), outer * ints[3] + first * ints[5])
            target = shift(pointer(tensors, 1, float32), outer * ints[6] + first * ints[8])
            count = min(ints[2] - first, 16)
            if count == 16 and ints[5] == 1 and ints[8] == 1:
                columns(source, target, ints[1], ints[4], ints[7])
            elif ints[4] == 1 and ints[7] == 1:
                for j in range(count):
                    row(shift(source, j * ints[5]), shift(target, j * ints[8]), ints[1])
            else:
                for j in range(count):
                    cell, out = shift(source, j * ints[5]), shift(target, j * ints[8])
                    strided(cell, out, ints[1], ints[4], ints[7])

    return softmax


register(
    KernelRecord(
        name="softmax",
        function=_softmax(False),
        doc="Softmax along an axis of `[outer][axis][inner]`. tensors: input, output (may be the input). "
        "ints: `SOFTMAX_INTS`. Tasks: (outer, 16 neighbours of inner).",
    )
)
register(
    KernelRecord(
        name="log_softmax",
        function=_softmax(True),
        doc="As softmax, its logarithm; the output must not overlap the input.",
    )
)


@inline
def _row_sum(source, size, mean):
    """Sum of x - mean, and of its square, over a contiguous row."""
    whole = size // 16 * 16
    centre = splat(mean)
    sums, squares = splat(0.0), splat(0.0)
    for i in range(0, whole, 16):
        x = widen(load_lanes(source, i)) - centre
        sums = sums + x
        squares = squares + x * x
    total, square = sum_of_lanes(sums), sum_of_lanes(squares)
    for i in range(whole, size):
        x = source[i] - mean
        total += x
        square += x * x
    return total, square


@kernel("layer_norm")
def layer_norm(tensors, ints, floats, begin, end):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta along contiguous rows.

    tensors: x, gamma, beta (`columns` each), output (may be x). ints: `LAYER_NORM_INTS`. floats: epsilon.
    Tasks: rows.
    """
    size = ints[1]
    gamma, beta = pointer(tensors, 1, float32), pointer(tensors, 2, float32)
    for row in range(begin, end):
        source = shift(pointer(tensors, 0, float32), row * ints[2])
        target = shift(pointer(tensors, 3, float32), row * ints[3])
        mean = _row_sum(source, size, 0.0)[0] / size
        variance = _row_sum(source, size, mean)[1] / size
        centre, scale = np.float32(mean), np.float32(1.0 / np.sqrt(variance + floats[0]))
        for i in range(size):
            target[i] = (source[i] - centre) * scale * gamma[i] + beta[i]


@kernel("batch_norm_factors")
def batch_norm_factors(tensors, ints, floats, begin, end):
    """scale = gamma / sqrt(variance + epsilon), shift = beta - mean * scale.

    tensors: vectors gamma, beta, mean, variance, scale, shift. ints: `FACTORS_INTS`. floats: epsilon. One task.
    """
    gamma, beta = pointer(tensors, 0, float32), pointer(tensors, 1, float32)
    mean, variance = pointer(tensors, 2, float32), pointer(tensors, 3, float32)
    scale, offset = pointer(tensors, 4, float32), pointer(tensors, 5, float32)
    epsilon = np.float32(floats[0])
    for _ in range(begin, end):
        for i in range(ints[0]):
            factor = gamma[i] / np.sqrt(variance[i] + epsilon)
            scale[i] = factor
            offset[i] = beta[i] - mean[i] * factor


@kernel("lrn")
def lrn(tensors, ints, floats, begin, end):
    """Local response normalisation across channels: x / (bias + alpha / size * sum of squares) ** beta.

    The window is `size` (odd) channels around x's, clipped. tensors: plain `[N][C][inner]` input, output
    (must not overlap the input). ints: `LRN_INTS`. floats: alpha, beta, bias. Tasks: (n, c).
    """
    channels, inner, half = ints[1], ints[2], ints[3] // 2
    alpha, power, bias = np.float32(floats[0] / ints[3]), np.float32(-floats[1]), np.float32(floats[2])
    for task in range(begin, end):
        image, channel = task // channels, task % channels
        source = shift(pointer(tensors, 0, float32), image * ints[4])
        centre = shift(source, channel * ints[5])
        target = shift(pointer(tensors, 1, float32), image * ints[6] + channel * ints[7])
        for i in range(inner):
            target[i] = np.float32(0)
        for c in range(max(channel - half, 0), min(channel + half + 1, channels)):
            plane = shift(source, c * ints[5])
            for i in range(inner):
                target[i] = target[i] + plane[i] * plane[i]
        for i in range(inner):
            target[i] = centre[i] * maths.exp(power * maths.log(bias + alpha * target[i]))
