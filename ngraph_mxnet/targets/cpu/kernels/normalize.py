"""Softmax and the normalisations that need a pass for statistics. Sums accumulate in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import float32, int64

from ngraph_mxnet.targets.cpu.kernels import maths
from ngraph_mxnet.targets.cpu.kernels.gather import inside
from ngraph_mxnet.targets.cpu.kernels.lanes import (
    greater_lanes,
    greatest_of_row,
    load_lanes,
    narrow,
    splat,
    store_lanes,
    sum_of_lanes,
    sum_of_row,
    widen,
)
from ngraph_mxnet.targets.cpu.kernels.pointers import inline, offset_of, pointer, reader, scratch, select, shift
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.params.reduction import (
    BATCH_NORM_FACTORS,
    LAYER_NORM,
    LAYER_NORM_GRADIENT,
    LOG_SOFTMAX_PICK,
    LOG_SOFTMAX_PICK_GRADIENT,
    LRN,
    PICK_BLOCK,
    SOFTMAX,
)

read_batch_norm_factors = reader(BATCH_NORM_FACTORS)
read_layer_norm = reader(LAYER_NORM)
read_layer_norm_gradient = reader(LAYER_NORM_GRADIENT)
read_log_softmax_pick = reader(LOG_SOFTMAX_PICK)
read_log_softmax_pick_gradient = reader(LOG_SOFTMAX_PICK_GRADIENT)
read_lrn = reader(LRN)
read_softmax = reader(SOFTMAX)


def _softmax(logarithm: bool) -> Callable:
    """The output first holds x - max, and for softmax its exponentials."""

    @inline
    def columns(source, target, size, in_step, out_step):
        """Sixteen contiguous columns."""
        best = splat(np.float32(-np.inf))
        for i in range(size):
            best = greater_lanes(load_lanes(source, i * in_step), best)
        total = splat(0.0)
        for i in range(size):
            cell = shift(target, i * out_step)
            store_lanes(cell, 0, load_lanes(source, i * in_step) - best)
            for j in range(16):
                cell[j] = maths.exp_below_one(cell[j])
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
        best = greatest_of_row(source, whole)
        for i in range(whole, size):
            best = select(source[i] > best, source[i], best)
        for i in range(size):
            target[i] = maths.exp_below_one(source[i] - best)
        total = sum_of_row(target, whole)
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
            best = select(x > best, x, best)
        total = 0.0
        for i in range(size):
            value = maths.exp_below_one(source[i * in_step] - best)
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
        """Softmax along an axis of `[outer][size][inner]`, or its logarithm.

        tensors: input, output (may be the input; that of log_softmax must not overlap it).
        Tasks: (outer, 16 neighbours of inner).
        """
        p = read_softmax(ints, floats)
        tiles = (p.inner + 15) // 16
        for task in range(begin, end):
            outer, first = task // tiles, task % tiles * 16
            source = shift(pointer(tensors, 0, float32), outer * p.input.outer + first * p.input.inner)
            target = shift(pointer(tensors, 1, float32), outer * p.output.outer + first * p.output.inner)
            count = min(p.inner - first, 16)
            if count == 16 and p.input.inner == 1 and p.output.inner == 1:
                columns(source, target, p.size, p.input.axis, p.output.axis)
            elif p.input.axis == 1 and p.output.axis == 1:
                for j in range(count):
                    row(shift(source, j * p.input.inner), shift(target, j * p.output.inner), p.size)
            else:
                for j in range(count):
                    cell, out = shift(source, j * p.input.inner), shift(target, j * p.output.inner)
                    strided(cell, out, p.size, p.input.axis, p.output.axis)

    return softmax


kernel("softmax")(_softmax(False))
kernel("log_softmax")(_softmax(True))


@inline
def _greatest(source, size, best):
    """The greatest of `best` and the elements; NaN may be passed over."""
    whole = size // 16 * 16
    top = greatest_of_row(source, whole)
    best = select(top > best, top, best)
    for i in range(whole, size):
        best = select(source[i] > best, source[i], best)
    return best


@kernel("log_softmax_pick")
def log_softmax_pick(tensors, ints, floats, begin, end):
    """Of each row log_softmax at the row's index, the greatest element m and log(sum of e^(x - m)).

    A row is read once, a part of it at a time. When a part has a greater element, the sum so far is multiplied by what
    it is worth then. Parts of -inf alone add 0; a row of these has NaN for the logarithms.
    tensors: x, indices (int64), picked, greatest, logarithm; rows are contiguous. Tasks: rows.
    """
    p = read_log_softmax_pick(ints, floats)
    powers = scratch(PICK_BLOCK)
    indices, picked = pointer(tensors, 1, int64), pointer(tensors, 2, float32)
    greatest, logarithm = pointer(tensors, 3, float32), pointer(tensors, 4, float32)
    for row in range(begin, end):
        source = shift(pointer(tensors, 0, float32), row * p.size)
        best, total = np.float32(-np.inf), 0.0
        for first in range(0, p.size, PICK_BLOCK):
            part, count = shift(source, first), min(PICK_BLOCK, p.size - first)
            top = _greatest(part, count, best)
            base = select(top > np.float32(-np.inf), top, np.float32(0))
            if top > best:
                total = total * maths.quick_exp(best - top)
                best = top
            for i in range(count):
                powers[i] = maths.quick_exp(part[i] - base)
            whole = count // 16 * 16
            total += sum_of_row(powers, whole)
            for i in range(whole, count):
                total += powers[i]
        offset = select(best > np.float32(-np.inf), maths.log(np.float32(total)), np.float32(np.nan))
        picked[row] = source[inside(indices[row], p.size, p.outside)] - best - offset
        greatest[row], logarithm[row] = best, offset


@kernel("log_softmax_pick_gradient")
def log_softmax_pick_gradient(tensors, ints, floats, begin, end):
    """By x: the row's head at its index, less head e^(x - greatest - logarithm).

    tensors: x, indices (int64), greatest, logarithm, head, output (may be x); rows are contiguous. Tasks: rows.
    """
    p = read_log_softmax_pick_gradient(ints, floats)
    indices, greatest = pointer(tensors, 1, int64), pointer(tensors, 2, float32)
    logarithm, heads = pointer(tensors, 3, float32), pointer(tensors, 4, float32)
    for row in range(begin, end):
        source = shift(pointer(tensors, 0, float32), row * p.size)
        target = shift(pointer(tensors, 5, float32), row * p.size)
        best, offset, head = greatest[row], logarithm[row], heads[row]
        factor = -head
        for i in range(p.size):
            target[i] = maths.quick_exp(source[i] - best - offset) * factor
        target[inside(indices[row], p.size, p.outside)] += head


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

    tensors: x, gamma, beta (`columns` each), output (may be x). floats: epsilon.
    Tasks: rows.
    """
    p = read_layer_norm(ints, floats)
    size = p.columns
    gamma, beta = pointer(tensors, 1, float32), pointer(tensors, 2, float32)
    for row in range(begin, end):
        source = shift(pointer(tensors, 0, float32), row * p.in_row)
        target = shift(pointer(tensors, 3, float32), row * p.out_row)
        mean = _row_sum(source, size, 0.0)[0] / size
        variance = _row_sum(source, size, mean)[1] / size
        centre, scale = np.float32(mean), np.float32(1.0 / np.sqrt(variance + p.epsilon))
        for i in range(size):
            target[i] = (source[i] - centre) * scale * gamma[i] + beta[i]


@inline
def _head_sums(source, head, gamma, size, centre, spread, of_gamma, of_beta):
    """Return the sums over a row of g = head gamma and of g z, where z = (x - centre) spread. Add head z to the vector
    `of_gamma`, and head to the vector `of_beta`."""
    whole = size // 16 * 16
    centres, spreads = splat(centre), splat(spread)
    sums, weighted = splat(0.0), splat(0.0)
    for i in range(0, whole, 16):
        h = load_lanes(head, i)
        z = (load_lanes(source, i) - centres) * spreads
        store_lanes(of_gamma, i, load_lanes(of_gamma, i) + h * z)
        store_lanes(of_beta, i, load_lanes(of_beta, i) + h)
        g = h * load_lanes(gamma, i)
        sums = sums + widen(g)
        weighted = weighted + widen(g * z)
    total, drift = sum_of_lanes(sums), sum_of_lanes(weighted)
    for i in range(whole, size):
        z = (source[i] - centre) * spread
        of_gamma[i] += head[i] * z
        of_beta[i] += head[i]
        total += head[i] * gamma[i]
        drift += head[i] * gamma[i] * z
    return total, drift


@kernel("layer_norm_gradient")
def layer_norm_gradient(tensors, ints, floats, begin, end):
    """spread (g - mean(g) - z mean(g z)) along contiguous rows, g = head gamma, z = (x - mean) spread, and for each
    task the sums over its rows of head z and of head.

    tensors: x, gamma, head, by_x, sums. floats: epsilon. Tasks: `chunk` rows.
    """
    p = read_layer_norm_gradient(ints, floats)
    size = p.columns
    whole = size // 16 * 16
    gamma = pointer(tensors, 1, float32)
    for task in range(begin, end):
        of_gamma = shift(pointer(tensors, 4, float32), task * 2 * size)
        of_beta = shift(of_gamma, size)
        for i in range(2 * size):
            of_gamma[i] = np.float32(0)
        for row in range(task * p.chunk, min((task + 1) * p.chunk, p.rows)):
            source = shift(pointer(tensors, 0, float32), row * p.x_row)
            head = shift(pointer(tensors, 2, float32), row * p.head_row)
            target = shift(pointer(tensors, 3, float32), row * p.by_x_row)
            mean = _row_sum(source, size, 0.0)[0] / size
            variance = _row_sum(source, size, mean)[1] / size
            centre, spread = np.float32(mean), np.float32(1.0 / np.sqrt(variance + p.epsilon))
            total, drift = _head_sums(source, head, gamma, size, centre, spread, of_gamma, of_beta)
            level, slope = np.float32(total / size), np.float32(drift / size) * spread
            centres, spreads, levels, slopes = splat(centre), splat(spread), splat(level), splat(slope)
            for i in range(0, whole, 16):
                g = load_lanes(head, i) * load_lanes(gamma, i)
                centred = load_lanes(source, i) - centres
                store_lanes(target, i, (g - levels - centred * slopes) * spreads)
            for i in range(whole, size):
                target[i] = (head[i] * gamma[i] - level - (source[i] - centre) * slope) * spread


@kernel("batch_norm_factors")
def batch_norm_factors(tensors, ints, floats, begin, end):
    """scale = gamma / sqrt(variance + epsilon), shift = beta - mean * scale.

    tensors: vectors gamma, beta, mean, variance, scale, shift. floats: epsilon. One task.
    """
    p = read_batch_norm_factors(ints, floats)
    gamma, beta = pointer(tensors, 0, float32), pointer(tensors, 1, float32)
    mean, variance = pointer(tensors, 2, float32), pointer(tensors, 3, float32)
    scale, offset = pointer(tensors, 4, float32), pointer(tensors, 5, float32)
    epsilon = np.float32(p.epsilon)
    for _ in range(begin, end):
        for i in range(p.channels):
            factor = gamma[i] / np.sqrt(variance[i] + epsilon)
            scale[i] = factor
            offset[i] = beta[i] - mean[i] * factor


@kernel("lrn")
def lrn(tensors, ints, floats, begin, end):
    """Local response normalisation across channels: x / (bias + alpha / size * sum of squares) ** beta.

    The window is `size` (odd) channels around x's, clipped. tensors: plain `[N][C][inner]` input, output
    (must not overlap the input). floats: alpha, beta, bias. Tasks: (n, c).
    """
    p = read_lrn(ints, floats)
    channels, inner, half = p.c, p.inner, p.size // 2
    alpha, power, bias = np.float32(p.alpha / p.size), np.float32(-p.beta), np.float32(p.bias)
    for task in range(begin, end):
        image, channel = task // channels, task % channels
        source = shift(pointer(tensors, 0, float32), image * p.input.n)
        centre = shift(source, channel * p.input.c)
        target = shift(pointer(tensors, 1, float32), offset_of(p.output, (image, channel)))
        first, last, whole = max(channel - half, 0), min(channel + half + 1, channels), inner // 16 * 16
        for i in range(0, whole, 16):
            total = splat(np.float32(0))
            for c in range(first, last):
                x = load_lanes(source, c * p.input.c + i)
                total = total + x * x
            store_lanes(target, i, total)
        for i in range(whole, inner):
            rest = np.float32(0)
            for c in range(first, last):
                x = source[c * p.input.c + i]
                rest += x * x
            target[i] = rest
        if p.beta == 0.75:  # which nearly all have
            for i in range(inner):
                root = np.sqrt(bias + alpha * target[i])
                target[i] = centre[i] / (root * np.sqrt(root))
        else:
            for i in range(inner):
                target[i] = centre[i] * maths.exp(power * maths.log(bias + alpha * target[i]))
