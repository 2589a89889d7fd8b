"""Attention for a block of queries at a time: its scores stay in the caches until they meet the values."""

from __future__ import annotations

import numpy as np
from numba import float32, types

from ngraph_mxnet.targets.cpu.kernels import maths
from ngraph_mxnet.targets.cpu.kernels.lanes import (
    greatest_of_row,
    load_first_lanes,
    load_lanes,
    splat,
    store_lanes,
    sum_of_lanes,
    sum_of_row,
)
from ngraph_mxnet.targets.cpu.kernels.pairs import (
    configure_tiles,
    dot_lanes,
    products_in_tiles,
    release_tiles,
    store_rounded,
    store_rounded_pairs,
)
from ngraph_mxnet.targets.cpu.kernels.pointers import inline, pointer, reader, scratch, select, shift
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.params.sequences import (
    ATTENTION,
    ATTENTION_FEW,
    MOST_BLOCK_KEYS,
    MOST_KEYS,
    MOST_NEAR,
    MOST_ROWS,
    MOST_SCORES,
    SIX,
)

_STATE = MOST_ROWS
_STATES = 3 * MOST_ROWS
_PANEL = 32 * MOST_BLOCK_KEYS
"""The values of a block of keys, 32 columns of them."""
_PART = 32 * MOST_ROWS

read_attention = reader(ATTENTION)
read_attention_few = reader(ATTENTION_FEW)


@inline
def six_rows(rows, step, first, last):
    """Return pointers to six rows from row `first` on. Pointers behind row `last` repeat that row."""
    return (shift(rows, min(first, last) * step), shift(rows, min(first + 1, last) * step),
            shift(rows, min(first + 2, last) * step), shift(rows, min(first + 3, last) * step),
            shift(rows, min(first + 4, last) * step), shift(rows, min(first + 5, last) * step))


@inline
def _multiply(sums, factor, x):
    return sums + splat(factor) * x


@inline
def _multiply_pairs(sums, factor, x):
    return dot_lanes(sums, splat(factor), x)


def _products_of_sixteen(multiply):
    """A function of six rows and 16 columns; `multiply` adds a number of each row times a vector, or pairs of them."""

    @inline
    def products(six, matrix, size, target, target_step):
        """target[6][16]: six rows of `size` elements by a matrix of 16 columns."""
        r0, r1, r2, r3, r4, r5 = six
        s0 = s1 = s2 = s3 = s4 = s5 = splat(np.float32(0))
        for i in range(size):
            x = load_lanes(matrix, i * 16)
            s0 = multiply(s0, r0[i], x)
            s1 = multiply(s1, r1[i], x)
            s2 = multiply(s2, r2[i], x)
            s3 = multiply(s3, r3[i], x)
            s4 = multiply(s4, r4[i], x)
            s5 = multiply(s5, r5[i], x)
        store_lanes(target, 0, s0)
        store_lanes(target, target_step, s1)
        store_lanes(target, 2 * target_step, s2)
        store_lanes(target, 3 * target_step, s3)
        store_lanes(target, 4 * target_step, s4)
        store_lanes(target, 5 * target_step, s5)

    return products


products_of_rows = _products_of_sixteen(_multiply)


@inline
def _scores_of_row(row, size, padded, scale, mask, added, mask_step, kind, fill):
    """In place, `scale` times the row, masked, and -inf between `size` and `padded`, a multiple of 16; the greatest.
    NaN may be passed over: a power of NaN makes the row's sum NaN."""
    for i in range(padded):
        row[i] = row[i] * scale
    if kind == 1:
        if mask_step == 1:
            for i in range(size):
                row[i] = select(mask[i] != 0, row[i], fill)
        else:
            for i in range(size):
                row[i] = select(mask[i * mask_step] != 0, row[i], fill)
    elif kind == 2:
        for i in range(size):
            row[i] = row[i] + added[i * mask_step]
    for i in range(size, padded):
        row[i] = np.float32(-np.inf)
    return greatest_of_row(row, padded)


@inline
def _powers_of_row(row, padded, base):
    """In place, e to the power of what each lies above `base`; their sum, in float64."""
    for i in range(padded):
        row[i] = maths.exp_below_one(row[i] - base)
    return sum_of_row(row, padded)


@inline
def softmax_of_row(row, size, padded, scale, mask, added, mask_step, kind, fill, zeroed):
    """In place, of `scale` times the row; what lies between `size` and `padded`, a multiple of 16, gets weight 0."""
    best = _scores_of_row(row, size, padded, scale, mask, added, mask_step, kind, fill)
    share = np.float32(1.0 / _powers_of_row(row, padded, best))
    for i in range(padded):
        row[i] = row[i] * share
    if zeroed and kind == 1 and not (best > fill and fill == -np.inf):  # else they are zeros already
        for i in range(size):
            row[i] = select(mask[i * mask_step] != 0, row[i], np.float32(0))


def _products_of_six(multiply):
    """A function of rows, six at a time; `multiply` is that of `_products_of_sixteen`."""
    of_sixteen = _products_of_sixteen(multiply)

    @inline
    def of_both(six, matrix, other, size, target, target_step):
        """target[6][32]: six rows of `size` elements by two matrices of 16 columns."""
        r0, r1, r2, r3, r4, r5 = six
        s0 = s1 = s2 = s3 = s4 = s5 = splat(np.float32(0))
        t0 = t1 = t2 = t3 = t4 = t5 = splat(np.float32(0))
        for i in range(size):
            x, y = load_lanes(matrix, i * 16), load_lanes(other, i * 16)
            f0, f1, f2 = r0[i], r1[i], r2[i]
            s0, t0 = multiply(s0, f0, x), multiply(t0, f0, y)
            s1, t1 = multiply(s1, f1, x), multiply(t1, f1, y)
            s2, t2 = multiply(s2, f2, x), multiply(t2, f2, y)
            f3, f4, f5 = r3[i], r4[i], r5[i]
            s3, t3 = multiply(s3, f3, x), multiply(t3, f3, y)
            s4, t4 = multiply(s4, f4, x), multiply(t4, f4, y)
            s5, t5 = multiply(s5, f5, x), multiply(t5, f5, y)
        store_lanes(target, 0, s0)
        store_lanes(target, 16, t0)
        store_lanes(target, target_step, s1)
        store_lanes(target, target_step + 16, t1)
        store_lanes(target, 2 * target_step, s2)
        store_lanes(target, 2 * target_step + 16, t2)
        store_lanes(target, 3 * target_step, s3)
        store_lanes(target, 3 * target_step + 16, t3)
        store_lanes(target, 4 * target_step, s4)
        store_lanes(target, 4 * target_step + 16, t4)
        store_lanes(target, 5 * target_step, s5)
        store_lanes(target, 5 * target_step + 16, t5)

    @inline
    def products(rows, step, count, matrix, other, size, columns, target, target_step):
        """target[count][columns]: rows of `size` elements by a matrix of 16 columns, or by two. There is room for
        whole six rows."""
        for row in range(0, count, SIX):
            six, place = six_rows(rows, step, row, count - 1), shift(target, row * target_step)
            if columns == 32:
                of_both(six, matrix, other, size, place, target_step)
            else:
                of_sixteen(six, matrix, size, place, target_step)

    return products


@inline
def _add_part(sums, step, part, count, columns, factors):
    """sums[count][columns] times a factor for each row, plus part[count][columns]; columns are whole lanes."""
    for row in range(count):
        factor = splat(factors[row])
        for at in range(0, columns, 16):
            here = row * step + at
            store_lanes(sums, here, load_lanes(sums, here) * factor + load_lanes(part, row * columns + at))


@inline
def _part_of_softmax(row, size, padded, scale, mask, added, mask_step, kind, fill, zeroed, state, begins):
    """In place, of a block of `scale` times the row's scores: e to the power of what each lies above the row's greatest
    so far. Those between `size` and `padded`, a multiple of 16, become 0.

    state: the row's greatest score so far, the sum of all powers, and what earlier powers are to be multiplied by; so
    far apart that those of six rows are neighbours. `begins`: it is the first block, and there is no state yet.
    """
    best = _scores_of_row(row, size, padded, scale, mask, added, mask_step, kind, fill)
    if not begins:
        best = select(state[0] > best, state[0], best)
    # A row of which all is -inf so far has powers of 0, whose sum of 0 makes it NaN in the end.
    base = select(best > np.float32(-np.inf), best, np.float32(0))
    total = _powers_of_row(row, padded, base)
    if not begins:
        factor = maths.exp(state[0] - base)
        state[2 * _STATE] = factor
        total += np.float64(state[_STATE]) * np.float64(factor)
    state[0], state[_STATE] = best, np.float32(total)
    if zeroed and kind == 1:
        for i in range(size):
            row[i] = select(mask[i * mask_step] != 0, row[i], np.float32(0))


@inline
def _masks_all(mask, step, size):
    kept = 0
    for i in range(size):
        kept += mask[i * step] != 0
    return kept == 0


@inline
def _round_row(row, size, padded, target):
    """target[padded]: pairs of a row's elements, as bf16, with zeros behind them; `padded` is a multiple of 8."""
    whole = size // 16 * 16
    for at in range(0, whole, 16):
        store_rounded(target, at // 2, load_lanes(row, at))
    if whole < size:
        store_rounded(target, whole // 2, load_first_lanes(row, whole, size - whole, splat(np.float32(0))))
    for at in range((size + 15) // 16 * 8, padded, 8):
        store_rounded(target, at, splat(np.float32(0)))


@inline
def _pair_rows(rows, step, size, padded, target):
    """target[padded / 2][16]: pairs of rows of 16, as bf16, with zeros behind `size` rows."""
    for n in range(0, size - 1, 2):
        store_rounded_pairs(target, n * 8, load_lanes(rows, n * step), load_lanes(rows, (n + 1) * step))
    zeros = splat(np.float32(0))
    if size % 2:
        store_rounded_pairs(target, size // 2 * 16, load_lanes(rows, (size - 1) * step), zeros)
    for n in range((size + 1) // 2, padded // 2):
        store_lanes(target, n * 16, zeros)


def _attention(products, pairs, grain):
    """The function of a kernel of `attention`.

    Args:
        products: multiplies rows and a matrix.
        pairs: 2 if elements are multiplied as pairs of bf16, else 1. Pairs have the place of a float32.
        grain: keys are filled up to so many; 32 for AMX's tiles.
    """
    tiled = grain == 32

    def attention(tensors, ints, floats, begin, end):
        """softmax(scale * queries by keys, masked) by values, of a block of keys at a time.

        The sums of values so far are multiplied by what their powers are worth when a greater score comes (M. Milakov,
        N. Gimelshein, Online normalizer calculation for softmax).
        tensors: queries, keys packed as the weights of k16 with tiles of 16, values (readable up to whole 16 columns),
        mask, output; elements of a row are contiguous, also of the mask unless its stride says 0.
        floats: scale, fill. Tasks: (outer, inner, blocks of queries).
        In bf16, keys are packed so; queries, values and the powers are rounded, and the powers' sum is of float32.
        """
        p = read_attention(ints, floats)
        inner, queries, keys, depth, width, rows = p.inner, p.queries, p.keys, p.depth, p.width, p.rows
        kind, zeroed, key_rows, step = p.mask_kind, p.zeroed, p.key_rows, p.mask_column
        blocks, wide, broad = (queries + rows - 1) // rows, p.wide, (width + 15) // 16 * 16
        deep = (depth + 15) // 16 * 16 // pairs
        key_block, near_step = deep * 16, (deep + 15) // 16 * 16 if tiled else deep
        fill, scale = np.float32(p.fill), np.float32(p.scale)
        scores, panel, part, near = scratch(MOST_SCORES), scratch(_PANEL), scratch(_PART), scratch(MOST_NEAR)
        sums, states = scratch(MOST_NEAR), scratch(_STATES)
        if tiled:
            configure_tiles()
        for task in range(begin, end):
            matrix, block = task // blocks, task % blocks
            o, i = matrix // inner, matrix % inner
            first = block * rows
            count = min(rows, queries - first)
            query = shift(pointer(tensors, 0, float32), o * p.q_outer + i * p.q_inner + first * p.q_row)
            key = shift(pointer(tensors, 1, float32), matrix * p.key_matrix)
            value = shift(pointer(tensors, 2, float32), o * p.v_outer + i * p.v_inner)
            out = shift(pointer(tensors, 4, float32), o * p.out_outer + i * p.out_inner + first * p.out_row)
            masked = o * p.mask_outer + i * p.mask_inner + first * p.mask_row
            query_step, size_of_row = p.q_row, depth
            if pairs == 2:
                for row in range(count):
                    _round_row(shift(query, row * query_step), depth, near_step, shift(near, row * near_step))
                query, query_step, size_of_row = near, near_step, deep
            elif count * depth <= MOST_NEAR:  # close together: rows of a projection contend for a cache's sets
                for row in range(count):
                    source, target = shift(query, row * query_step), shift(near, row * depth)
                    for d in range(depth):
                        target[d] = source[d]
                query, query_step = near, depth
            for from_key in range(0, keys, key_rows):
                size = min(key_rows, keys - from_key)
                padded = (size + grain - 1) // grain * grain
                column = 0
                while column < size:
                    tile = shift(key, (from_key + column) // 16 * key_block)
                    columns = 32 if wide != 0 and column + 16 < size else 16
                    products(query, query_step, count, tile, shift(tile, key_block), size_of_row, columns,
                             shift(scores, column), padded)
                    column += columns
                for row in range(count):
                    offset = masked + row * p.mask_row + from_key * step
                    line = shift(scores, row * padded)
                    _part_of_softmax(line, size, padded, scale, shift(pointer(tensors, 3, types.uint8), offset),
                                     shift(pointer(tensors, 3, float32), offset), step, kind, fill, zeroed,
                                     shift(states, row), from_key == 0)
                    if pairs == 2:
                        for at in range(0, padded, 16):
                            store_rounded(line, at // 2, load_lanes(line, at))
                column = 0
                while column < broad:
                    columns = 32 if wide != 0 and column + 32 <= broad else 16
                    line, other = shift(value, from_key * p.v_row + column), shift(panel, key_rows * 16)
                    if pairs == 2:
                        _pair_rows(line, p.v_row, size, padded, panel)
                        if columns == 32:
                            _pair_rows(shift(line, 16), p.v_row, size, padded, other)
                    else:
                        for n in range(size):
                            store_lanes(panel, n * 16, load_lanes(line, n * p.v_row))
                            if columns == 32:
                                store_lanes(other, n * 16, load_lanes(line, n * p.v_row + 16))
                    own, begins = shift(sums, column), from_key == 0
                    target, target_step = (own, broad) if begins else (part, columns)
                    products(scores, padded, count, panel, other, padded // 2 if pairs == 2 else size, columns, target,
                             target_step)
                    if not begins:
                        _add_part(own, broad, part, count, columns, shift(states, 2 * _STATE))
                    column += columns
            for row in range(count):
                total, source, target = states[row + _STATE], shift(sums, row * broad), shift(out, row * p.out_row)
                share = np.float32(1.0) / total
                if zeroed and kind == 1 and total == 0 and _masks_all(
                        shift(pointer(tensors, 3, types.uint8), masked + row * p.mask_row), step, keys):
                    share = np.float32(0)
                shares, whole = splat(share), width // 16 * 16
                for j in range(0, whole, 16):
                    store_lanes(target, j, load_lanes(source, j) * shares)
                for j in range(whole, width):
                    target[j] = source[j] * share
        if tiled:
            release_tiles()

    return attention


kernel("attention")(_attention(_products_of_six(_multiply), 1, 16))
kernel("attention_bf16")(_attention(_products_of_six(_multiply_pairs), 2, 16))
kernel("attention_bf16_amx")(_attention(products_in_tiles, 2, 32))


@inline
def _products_by_rows(row, matrix, step, count, depth, target):
    """target[count]: the row by each of so many rows."""
    whole = depth // 16 * 16
    for first in range(0, count, 4):
        last = count - 1
        m0, m1 = shift(matrix, first * step), shift(matrix, min(first + 1, last) * step)
        m2, m3 = shift(matrix, min(first + 2, last) * step), shift(matrix, min(first + 3, last) * step)
        t0 = t1 = t2 = t3 = np.float32(0)
        if whole:
            s0 = s1 = s2 = s3 = splat(np.float32(0))
            for i in range(0, whole, 16):
                x = load_lanes(row, i)
                s0 = s0 + x * load_lanes(m0, i)
                s1 = s1 + x * load_lanes(m1, i)
                s2 = s2 + x * load_lanes(m2, i)
                s3 = s3 + x * load_lanes(m3, i)
            t0, t1, t2, t3 = sum_of_lanes(s0), sum_of_lanes(s1), sum_of_lanes(s2), sum_of_lanes(s3)
        for i in range(whole, depth):
            t0 += row[i] * m0[i]
            t1 += row[i] * m1[i]
            t2 += row[i] * m2[i]
            t3 += row[i] * m3[i]
        target[first], target[first + 1], target[first + 2], target[first + 3] = t0, t1, t2, t3


@inline
def _sum_of_rows(weights, matrix, step, count, width, target):
    """target[width]: the sum of so many rows, each times its weight."""
    column = 0
    while column + 64 <= width:
        s0 = s1 = s2 = s3 = splat(np.float32(0))
        for n in range(count):
            weight, line = splat(weights[n]), shift(matrix, n * step + column)
            s0 = s0 + weight * load_lanes(line, 0)
            s1 = s1 + weight * load_lanes(line, 16)
            s2 = s2 + weight * load_lanes(line, 32)
            s3 = s3 + weight * load_lanes(line, 48)
        store_lanes(target, column, s0)
        store_lanes(target, column + 16, s1)
        store_lanes(target, column + 32, s2)
        store_lanes(target, column + 48, s3)
        column += 64
    while column + 16 <= width:
        s0 = splat(np.float32(0))
        for n in range(count):
            s0 = s0 + splat(weights[n]) * load_lanes(matrix, n * step + column)
        store_lanes(target, column, s0)
        column += 16
    while column + 4 <= width:
        t0 = t1 = t2 = t3 = np.float32(0)
        for n in range(count):
            weight, line = weights[n], shift(matrix, n * step + column)
            t0 += weight * line[0]
            t1 += weight * line[1]
            t2 += weight * line[2]
            t3 += weight * line[3]
        target[column], target[column + 1], target[column + 2], target[column + 3] = t0, t1, t2, t3
        column += 4
    for c in range(column, width):
        t0 = np.float32(0)
        for n in range(count):
            t0 += weights[n] * matrix[n * step + c]
        target[c] = t0


@kernel("attention_few")
def attention_few(tensors, ints, floats, begin, end):
    """Compute `attention` one query at a time, with keys and values where they lie. Few queries do not pay for packing.

    tensors: queries, keys, values, mask, output; elements of a row are contiguous, also of the mask unless its stride
    says 0. floats: scale, fill. Tasks: (outer, inner).
    """
    p = read_attention_few(ints, floats)
    inner, queries, keys, depth, width = p.inner, p.queries, p.keys, p.depth, p.width
    kind, zeroed, padded = p.mask_kind, p.zeroed, (keys + 15) // 16 * 16
    fill, scale = np.float32(p.fill), np.float32(p.scale)
    scores = scratch(MOST_KEYS)
    for task in range(begin, end):
        o, i = task // inner, task % inner
        query = shift(pointer(tensors, 0, float32), o * p.q_outer + i * p.q_inner)
        key = shift(pointer(tensors, 1, float32), o * p.k_outer + i * p.k_inner)
        value = shift(pointer(tensors, 2, float32), o * p.v_outer + i * p.v_inner)
        out = shift(pointer(tensors, 4, float32), o * p.out_outer + i * p.out_inner)
        for row in range(queries):
            _products_by_rows(shift(query, row * p.q_row), key, p.k_row, keys, depth, scores)
            offset = o * p.mask_outer + i * p.mask_inner + row * p.mask_row
            softmax_of_row(scores, keys, padded, scale, shift(pointer(tensors, 3, types.uint8), offset),
                           shift(pointer(tensors, 3, float32), offset), p.mask_column, kind, fill, zeroed)
            _sum_of_rows(scores, value, p.v_row, keys, width, shift(out, row * p.out_row))
