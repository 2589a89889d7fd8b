"""Non-maximum suppression: one task for each element of the batch."""

from __future__ import annotations

import numpy as np
from numba import float32, int64

from ngraph_mxnet.targets.cpu.kernels.pointers import inline, pointer, reader, shift
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.params.boxes import BOX_NMS

read_box_nms = reader(BOX_NMS)


@inline
def _before(scores, stride, a, b):
    """Whether row a comes before row b: by falling score, equal ones in order."""
    x, y = scores[a * stride], scores[b * stride]
    return x > y or (x == y and a < b)


@inline
def _sift(heap, size, place, scores, stride):
    """Restores a heap, whose root comes last of all, below `place`."""
    row = heap[place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _before(scores, stride, heap[child], heap[child + 1]):
            child += 1
        if not _before(scores, stride, row, heap[child]):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = row


@inline
def _first_rows(data, p, valid, order):
    """The first rows in order, `topk` at most; returns how many. A heap of the best so far, then sorted."""
    rows, stride, most = p.rows, p.columns, p.topk
    scores = shift(data, p.score)
    count = 0
    for row in range(rows):
        if not scores[row * stride] > valid:
            continue
        if p.id >= 0 and data[row * stride + p.id] == np.float32(p.background):
            continue
        if count < most:
            order[count] = row
            count += 1
            if count == most:
                for place in range(count // 2 - 1, -1, -1):
                    _sift(order, count, place, scores, stride)
        elif most > 0 and _before(scores, stride, row, order[0]):
            order[0] = row
            _sift(order, count, 0, scores, stride)
    for place in range(count // 2 - 1, -1, -1):
        _sift(order, count, place, scores, stride)
    for last in range(count - 1, 0, -1):
        row = order[last]
        order[last] = order[0]
        order[0] = row
        _sift(order, last, 0, scores, stride)
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
        order = shift(pointer(tensors, 2, int64), task * most)
        left = shift(pointer(tensors, 3, float32), task * most * 6)
        top, right, bottom = shift(left, most), shift(left, 2 * most), shift(left, 3 * most)
        area, stands = shift(left, 4 * most), shift(left, 5 * most)
        count = _first_rows(data, p, valid, order)
        for place in range(count):
            box = shift(data, order[place] * columns + first)
            if p.center != 0:
                half_w, half_h = box[2] / np.float32(2), box[3] / np.float32(2)
                left[place], top[place] = box[0] - half_w, box[1] - half_h
                right[place], bottom[place] = box[0] + half_w, box[1] + half_h
                wide, high = box[2], box[3]
            else:
                left[place], top[place], right[place], bottom[place] = box[0], box[1], box[2], box[3]
                wide, high = box[2] - box[0], box[3] - box[1]
            # A box with NaN overlaps with none: its area is NaN, and so is each overlap.
            spans = (right[place] - left[place]) * (bottom[place] - top[place])
            area[place] = spans if spans != spans else wide * high if wide >= 0 and high >= 0 else np.float32(0)
            stands[place] = np.float32(1)
        kept = _valid_rows(data, p, valid, out) if in_place else 0
        for best in range(count):
            if stands[best] == 0 and not in_place:
                continue
            place = best if in_place else kept
            for column in range(columns):
                out[place * columns + column] = data[order[best] * columns + column]
            if in_place:
                if stands[best] == 0:
                    out[place * columns + p.id] = np.float32(-1)
                    continue
            else:
                kept += 1
            x0, y0, x1, y1, whole = left[best], top[best], right[best], bottom[best], area[best]
            for other in range(best + 1, count):
                w = min(x1, right[other]) - max(x0, left[other])
                h = min(y1, bottom[other]) - max(y0, top[other])
                shared = max(w, np.float32(0)) * max(h, np.float32(0))
                overlap = shared / (whole + area[other] - shared)
                if overlap > limit or (in_place and overlap == limit):
                    others_id = data[order[other] * columns + p.id] if by_id else np.float32(0)
                    if not by_id or others_id == data[order[best] * columns + p.id]:
                        stands[other] = np.float32(0)
        for place in range(kept * columns, rows * columns):
            out[place] = np.float32(-1)
