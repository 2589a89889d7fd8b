"""The gradients of attention: the scores of some queries at a time are computed anew."""

from __future__ import annotations

import numpy as np
from numba import float32, types

from ngraph_mxnet.targets.cpu.kernels.attention import products_of_rows, six_rows, softmax_of_row
from ngraph_mxnet.targets.cpu.kernels.lanes import load_lanes, splat, store_lanes, sum_of_lanes, widen
from ngraph_mxnet.targets.cpu.kernels.pointers import inline, pointer, reader, scratch, select, shift
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.params.sequences import (
    ATTENTION_GRADIENT,
    MOST_KEYS,
    MOST_NEAR,
    MOST_SCORES,
    SIX,
)

_SCORES = MOST_SCORES + 16
"""Six rows of the products by keys read up to five floats behind the last row of scores."""
_PANEL, _PART = 16 * MOST_KEYS, 16 * SIX

read_attention_gradient = reader(ATTENTION_GRADIENT)


@inline
def _close(source, step, count, columns, target):
    """Rows copied next to each other, where they are few enough; where they are, and the step between them."""
    padded = (columns + 15) // 16 * 16
    if count * padded > MOST_NEAR:
        return source, step
    for row in range(count):
        for i in range(0, padded, 16):
            store_lanes(target, row * padded + i, load_lanes(source, row * step + i))
    return target, padded


@inline
def _add_transposed(left, left_step, right, right_step, count, target, target_step, rows, lanes):
    """target[rows][lanes] += left[count][rows] transposed by right[count][lanes]; at most 6 by 16."""
    s0 = s1 = s2 = s3 = s4 = s5 = splat(np.float32(0))
    for i in range(count):
        x, line = load_lanes(right, i * right_step), shift(left, i * left_step)
        s0 = s0 + splat(line[0]) * x
        s1 = s1 + splat(line[1]) * x
        s2 = s2 + splat(line[2]) * x
        s3 = s3 + splat(line[3]) * x
        s4 = s4 + splat(line[4]) * x
        s5 = s5 + splat(line[5]) * x
    if rows == 6 and lanes == 16:
        store_lanes(target, 0, load_lanes(target, 0) + s0)
        store_lanes(target, target_step, load_lanes(target, target_step) + s1)
        store_lanes(target, 2 * target_step, load_lanes(target, 2 * target_step) + s2)
        store_lanes(target, 3 * target_step, load_lanes(target, 3 * target_step) + s3)
        store_lanes(target, 4 * target_step, load_lanes(target, 4 * target_step) + s4)
        store_lanes(target, 5 * target_step, load_lanes(target, 5 * target_step) + s5)
        return
    part = scratch(_PART)
    store_lanes(part, 0, s0)
    store_lanes(part, 16, s1)
    store_lanes(part, 32, s2)
    store_lanes(part, 48, s3)
    store_lanes(part, 64, s4)
    store_lanes(part, 80, s5)
    for r in range(rows):
        for j in range(lanes):
            target[r * target_step + j] += part[r * 16 + j]


@inline
def _all_transposed(left, left_step, keys, right, right_step, columns, count, target):
    """target[keys][columns] += left[count][keys] transposed by right[count][columns]."""
    for column in range(0, columns, 16):
        for key in range(0, keys, 6):
            _add_transposed(shift(left, key), left_step, shift(right, column), right_step, count,
                            shift(target, key * columns + column), columns, min(6, keys - key),
                            min(16, columns - column))


@inline
def _of_scores(weights, slopes, size, padded, scale, mask, mask_step, kind, zeroed):
    """Turn one row of `slopes` from the gradients of the weights into the gradients of the products. Elements between
    `size` and `padded` become 0."""
    if kind == 1 and zeroed:
        for i in range(size):
            slopes[i] = select(mask[i * mask_step] != 0, slopes[i], np.float32(0))
    for i in range(size, padded):
        slopes[i] = np.float32(0)
    sums = splat(0.0)
    for i in range(0, padded, 16):
        sums = sums + widen(load_lanes(weights, i)) * widen(load_lanes(slopes, i))
    total, scales = splat(np.float32(sum_of_lanes(sums))), splat(scale)
    for i in range(0, padded, 16):
        store_lanes(slopes, i, load_lanes(weights, i) * (load_lanes(slopes, i) - total) * scales)
    if kind == 1:
        for i in range(size):
            slopes[i] = select(mask[i * mask_step] != 0, slopes[i], np.float32(0))


@kernel("attention_gradient")
def attention_gradient(tensors, ints, floats, begin, end):
    """The gradients of attention by queries, keys and values; the scores of some queries at a time are computed anew.

    tensors: queries, keys, head (readable up to whole 16 columns), keys and values packed as the weights of k16 with
    tiles of 16, mask, of_queries, of_keys, of_values. floats: scale, fill. Tasks: (outer, inner).
    """
    p = read_attention_gradient(ints, floats)
    inner, queries, keys, depth, width = p.inner, p.queries, p.keys, p.depth, p.width
    kind, padded = p.mask_kind, (p.keys + 15) // 16 * 16
    deep, wide = (depth + 15) // 16 * 16, (width + 15) // 16 * 16
    fill, scale = np.float32(p.fill), np.float32(p.scale)
    scores, slopes, panel, part = scratch(_SCORES), scratch(_SCORES), scratch(_PANEL), scratch(_PART)
    near_queries, near_heads = scratch(MOST_NEAR), scratch(MOST_NEAR)
    for task in range(begin, end):
        o, i = task // inner, task % inner
        all_keys = shift(pointer(tensors, 1, float32), o * p.k_outer + i * p.k_inner)
        packed_keys = shift(pointer(tensors, 3, float32), task * padded * deep)
        packed_values = shift(pointer(tensors, 4, float32), task * padded * wide)
        of_keys = shift(pointer(tensors, 7, float32), task * keys * depth)
        of_values = shift(pointer(tensors, 8, float32), task * keys * width)
        for n in range(keys * depth):
            of_keys[n] = np.float32(0)
        for n in range(keys * width):
            of_values[n] = np.float32(0)
        for first in range(0, queries, p.rows):
            count = min(p.rows, queries - first)
            query, query_step = _close(
                shift(pointer(tensors, 0, float32), o * p.q_outer + i * p.q_inner + first * p.q_row), p.q_row, count,
                depth, near_queries)
            head, head_step = _close(
                shift(pointer(tensors, 2, float32), o * p.h_outer + i * p.h_inner + first * p.h_row), p.h_row, count,
                width, near_heads)
            for column in range(0, padded, 16):
                for row in range(0, count, 6):
                    at = row * padded + column
                    products_of_rows(six_rows(query, query_step, row, count - 1), shift(packed_keys, column * deep),
                                     depth, shift(scores, at), padded)
                    products_of_rows(six_rows(head, head_step, row, count - 1), shift(packed_values, column * wide),
                                     width, shift(slopes, at), padded)
            for row in range(count):
                offset = o * p.mask_outer + i * p.mask_inner + (first + row) * p.mask_row
                mask = shift(pointer(tensors, 5, types.uint8), offset)
                weights = shift(scores, row * padded)
                softmax_of_row(weights, keys, padded, scale, mask, shift(pointer(tensors, 5, float32), offset),
                               p.mask_column, kind, fill, p.zeroed)
                _of_scores(weights, shift(slopes, row * padded), keys, padded, scale, mask, p.mask_column, kind,
                           p.zeroed)
            _all_transposed(scores, padded, keys, head, head_step, width, count, of_values)
            _all_transposed(slopes, padded, keys, query, query_step, depth, count, of_keys)
            out = shift(pointer(tensors, 6, float32), (task * queries + first) * depth)
            for column in range(0, depth, 16):
                lanes = min(16, depth - column)
                for n in range(keys):
                    store_lanes(panel, n * 16, load_lanes(all_keys, n * p.k_row + column))
                for row in range(0, count, 6):
                    six, target = six_rows(slopes, padded, row, count - 1), shift(out, row * depth + column)
                    if lanes == 16 and row + 6 <= count:
                        products_of_rows(six, panel, keys, target, depth)
                    else:
                        products_of_rows(six, panel, keys, part, 16)
                        for r in range(min(6, count - row)):
                            for j in range(lanes):
                                target[r * depth + j] = part[r * 16 + j]
