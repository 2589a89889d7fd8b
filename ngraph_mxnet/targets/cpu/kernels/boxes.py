"""Non-maximum suppression: one task for each element of the batch."""

from __future__ import annotations

import numpy as np
from numba import float32, int64

from ngraph_mxnet.targets.cpu.kernels.pointers import inline, pointer, reader, shift
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.params.selection import BOX_NMS

read_box_nms = reader(BOX_NMS)

_AT_ONCE = 64
"""With so many kept rows a row is compared before it is seen whether one covers it."""


@inline
def _before(scores, stride, a, b):
    """True if row a comes before row b. Rows are in the order of falling score, and rows of equal score keep their
    order."""
    x, y = scores[a * stride], scores[b * stride]
    return x > y or (x == y and a < b)


@inline
def _sift(heap, size, place, scores, stride, best_first):
    """Restores a heap of rows, whose root comes first or last of all, below `place`."""
    row = heap[place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _before(scores, stride, heap[child + 1], heap[child]) == best_first:
            child += 1
        if _before(scores, stride, heap[child], row) != best_first:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = row


@inline
def _first_rows(data, p, valid, heap):
    """The first rows, `topk` at most, in a heap whose root comes first; returns how many."""
    rows, stride, most = p.rows, p.columns, p.topk
    scores = shift(data, p.score)
    count = 0
    for row in range(rows):
        if not scores[row * stride] > valid:
            continue
        if p.id >= 0 and data[row * stride + p.id] == np.float32(p.background):
            continue
        if count < most:
            heap[count] = row
            count += 1
            if count == most and most < rows:  # from now on the last of the best so far is the root
                for place in range(count // 2 - 1, -1, -1):
                    _sift(heap, count, place, scores, stride, False)
        elif most > 0 and _before(scores, stride, row, heap[0]):
            heap[0] = row
            _sift(heap, count, 0, scores, stride, False)
    for place in range(count // 2 - 1, -1, -1):
        _sift(heap, count, place, scores, stride, True)
    return count


@inline
def _valid_rows(data, p, valid, out):
    """Gives the rows that aren't dropped in their order, with the id -1; returns how many."""
    rows, columns, count = p.rows, p.columns, 0
    for row in range(rows):
        source = shift(data, row * columns)
        if source[p.score] > valid and source[p.id] != np.float32(p.background):
            for column in range(columns):
                out[count * columns + column] = source[column]
            out[count * columns + p.id] = np.float32(-1)
            count += 1
    return count


@kernel("box_nms")
def box_nms(tensors, ints, floats, begin, end):
    """For each element of the batch the kept rows, by falling score, then rows of -1; or as ops/boxes.py says.

    Rows are taken from a heap one by one, and compared with those that are kept.

    tensors: rows [n][rows][columns], output alike, and memory to work in: int64 [n][topk] and float32
    [n][6][topk]. floats: overlap, valid. Tasks: n.
    """
    p = read_box_nms(ints, floats)
    rows, columns, most, first = p.rows, p.columns, p.topk, p.coordinates
    limit, valid = np.float32(p.overlap), np.float32(p.valid)
    by_id, in_place = p.id >= 0 and p.across_ids == 0, p.in_place != 0
    for task in range(begin, end):
        data = shift(pointer(tensors, 0, float32), task * rows * columns)
        out = shift(pointer(tensors, 1, float32), task * rows * columns)
        heap = shift(pointer(tensors, 2, int64), task * most)
        left = shift(pointer(tensors, 3, float32), task * most * 6)  # of the rows that are kept
        top, right, bottom = shift(left, most), shift(left, 2 * most), shift(left, 3 * most)
        area, ids = shift(left, 4 * most), shift(left, 5 * most)
        count = _first_rows(data, p, valid, heap)
        written = _valid_rows(data, p, valid, out) if in_place else 0
        kept = 0
        for number in range(count):
            if kept == p.keep:
                break
            row = shift(data, heap[0] * columns)
            heap[0] = heap[count - 1 - number]
            _sift(heap, count - 1 - number, 0, shift(data, p.score), columns, True)
            box = shift(row, first)
            x0, y0, x1, y1 = box[0], box[1], box[2], box[3]
            wide, high = x1 - x0, y1 - y0
            if p.center != 0:
                wide, high = x1, y1
                half_w, half_h = wide / np.float32(2), high / np.float32(2)
                x0, y0, x1, y1 = x0 - half_w, y0 - half_h, x0 + half_w, y0 + half_h
            # A box with NaN overlaps with none: its area is NaN, and so is each overlap.
            spans = (x1 - x0) * (y1 - y0)
            whole = spans if spans != spans else wide * high if wide >= 0 and high >= 0 else np.float32(0)
            row_id = row[p.id] if by_id else np.float32(0)
            covered = False
            for start in range(0, kept, _AT_ONCE):
                hits = 0
                for other in range(start, min(start + _AT_ONCE, kept)):
                    w = min(right[other], x1) - max(left[other], x0)
                    h = min(bottom[other], y1) - max(top[other], y0)
                    shared = max(w, np.float32(0)) * max(h, np.float32(0))
                    overlap = shared / (area[other] + whole - shared)
                    falls = (overlap > limit) | (in_place & (overlap == limit))
                    hits += falls & (ids[other] == row_id)
                if hits > 0:
                    covered = True
                    break
            place = number if in_place else kept
            if not covered or in_place:
                for column in range(columns):
                    out[place * columns + column] = row[column]
            if covered:
                if in_place:
                    out[place * columns + p.id] = np.float32(-1)
                continue
            left[kept], top[kept], right[kept], bottom[kept] = x0, y0, x1, y1
            area[kept], ids[kept] = whole, row_id
            kept += 1
        for place in range((written if in_place else kept) * columns, rows * columns):
            out[place] = np.float32(-1)
