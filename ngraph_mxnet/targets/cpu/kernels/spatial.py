"""Kernels that read images at other places than their pixels: resizing, sampling by a grid, regions of interest.

Kernels on blocked tensors compute 16 channels of a place at once; strides are in elements. Places are float32, as in
the definitions.
"""

from __future__ import annotations

import numpy as np
from numba import float32, int64

from ngraph_mxnet.targets.cpu.kernels.lanes import load_lanes, maximum_lanes, splat, store_lanes
from ngraph_mxnet.targets.cpu.kernels.pointers import image_row, inline, offset_of, pointer, reader, shift
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.params.layout import RESAMPLE, ROI_ALIGN, ROI_MAX_POOL, SAMPLE

read_resample = reader(RESAMPLE)
read_roi_align = reader(ROI_ALIGN)
read_roi_max_pool = reader(ROI_MAX_POOL)
read_sample = reader(SAMPLE)


@kernel("resample_blocked")
def resample_blocked(tensors, ints, floats, begin, end):
    """out[y][x] = sum over i, j of rows[y][i] * columns[x][j] * in[first_row[y] + i][first_column[x] + j].

    tensors: input, first_row (int64 [out.h], clipped), rows (float32 [out.h][taps.h]), first_column, columns, output. A
    tap of weight 0 is not read, and neither is one beyond the image. Tasks: (n, c16, output row).
    """
    p = read_resample(ints, floats)
    columns = pointer(tensors, 4, float32)
    for task in range(begin, end):
        image, block, y = image_row(task, p.c16, p.out.h)
        source = shift(pointer(tensors, 0, float32), offset_of(p.input, (image, block)))
        target = shift(pointer(tensors, 5, float32), offset_of(p.output, (image, block, y)))
        top = min(max(pointer(tensors, 1, int64)[y], 0), p.h)
        rows = shift(pointer(tensors, 2, float32), y * p.taps.h)
        for x in range(p.out.w):
            left = min(max(pointer(tensors, 3, int64)[x], 0), p.w)
            total = splat(np.float32(0))
            for i in range(p.taps.h):
                if rows[i] != 0 and top + i < p.h:
                    row = shift(source, (top + i) * p.input.row + left * 16)
                    line = splat(np.float32(0))
                    for j in range(p.taps.w):
                        weight = columns[x * p.taps.w + j]
                        if weight != 0 and left + j < p.w:
                            line = line + splat(weight) * load_lanes(row, j * 16)
                    total = total + splat(rows[i]) * line
            store_lanes(target, x * 16, total)


@inline
def _floor(x):
    """The greatest int64 of at most x."""
    whole = int64(x)
    return whole - 1 if x < whole else whole


@inline
def _pixel(plane, height, width, y, x):
    """A pixel, 0 outside."""
    if y < 0 or y >= height or x < 0 or x >= width:
        return np.float32(0)
    return plane[y * width + x]


@kernel("bilinear_sample")
def bilinear_sample(tensors, ints, floats, begin, end):
    """The image at the places of a grid, linear between pixels; 0 outside.

    tensors: images [n][c][h][w], grid [n][2][places] (x, then y, from -1 to 1), output [n][c][places]; contiguous.
    Tasks: (n, c).
    """
    p = read_sample(ints, floats)
    channels, height, width, places = p.c, p.h, p.w, p.places
    for task in range(begin, end):
        plane = shift(pointer(tensors, 0, float32), task * height * width)
        grid = shift(pointer(tensors, 1, float32), task // channels * 2 * places)
        out = shift(pointer(tensors, 2, float32), task * places)
        for place in range(places):
            x = (grid[place] + np.float32(1)) * np.float32(width - 1) / np.float32(2)
            y = (grid[places + place] + np.float32(1)) * np.float32(height - 1) / np.float32(2)
            total = np.float32(0)
            # Far away, or NaN: nothing to read, and no integer to hold the place.
            if x > -1 and x < width and y > -1 and y < height:
                left, top = _floor(x), _floor(y)
                right, bottom = x - np.float32(left), y - np.float32(top)
                above = (np.float32(1) - right) * _pixel(plane, height, width, top, left)
                above += right * _pixel(plane, height, width, top, left + 1)
                below = (np.float32(1) - right) * _pixel(plane, height, width, top + 1, left)
                below += right * _pixel(plane, height, width, top + 1, left + 1)
                total = (np.float32(1) - bottom) * above + bottom * below
            out[place] = total


@inline
def _ceiling(x):
    return -_floor(-x)


@kernel("roi_align_blocked")
def roi_align_blocked(tensors, ints, floats, begin, end):
    """Means over the bins of regions, of points that are linear between pixels.

    tensors: input, regions [regions][5], output. `samples` of at most 0 are as many points as a bin has pixels,
    rounded up. floats: scale, offset. Tasks: (region, c16, output row).
    """
    p = read_roi_align(ints, floats)
    height, width, out_h, out_w = p.h, p.w, p.out.h, p.out.w
    scale, offset = np.float32(p.scale), np.float32(p.offset)
    for task in range(begin, end):
        region, block, y = image_row(task, p.c16, out_h)
        roi = shift(pointer(tensors, 1, float32), region * 5)
        target = shift(pointer(tensors, 2, float32), offset_of(p.output, (region, block, y)))
        if not roi[0] >= 0:
            for x in range(out_w):
                store_lanes(target, x * 16, splat(np.float32(0)))
            continue
        image = min(int64(min(roi[0], np.float32(1e9))), p.n - 1)
        source = shift(pointer(tensors, 0, float32), offset_of(p.input, (image, block)))
        left, top = roi[1] * scale - offset, roi[2] * scale - offset
        span_w, span_h = roi[3] * scale - offset - left, roi[4] * scale - offset - top
        if offset == 0:
            span_w, span_h = max(span_w, np.float32(1)), max(span_h, np.float32(1))
        bin_w, bin_h = span_w / np.float32(out_w), span_h / np.float32(out_h)
        count_h, count_w = p.samples, p.samples
        if p.samples <= 0:
            count_h, count_w = max(_ceiling(bin_h), 0), max(_ceiling(bin_w), 0)
        for x in range(out_w):
            total = splat(np.float32(0))
            for i in range(count_h):
                at_y = top + np.float32(y) * bin_h + (np.float32(i) + np.float32(0.5)) * bin_h / np.float32(count_h)
                if not (at_y >= -1 and at_y <= height):
                    continue
                at_y = max(at_y, np.float32(0))
                row = min(int64(at_y), height - 1)
                next_row = min(row + 1, height - 1)
                low_y = at_y - np.float32(row) if row < height - 1 else np.float32(0)
                for j in range(count_w):
                    at_x = left + np.float32(x) * bin_w
                    at_x += (np.float32(j) + np.float32(0.5)) * bin_w / np.float32(count_w)
                    if not (at_x >= -1 and at_x <= width):
                        continue
                    at_x = max(at_x, np.float32(0))
                    column = min(int64(at_x), width - 1)
                    next_column = min(column + 1, width - 1)
                    low_x = at_x - np.float32(column) if column < width - 1 else np.float32(0)
                    high_x, high_y = np.float32(1) - low_x, np.float32(1) - low_y
                    first, second = row * p.input.row, next_row * p.input.row
                    total = total + splat(high_y * high_x) * load_lanes(source, first + column * 16)
                    total = total + splat(high_y * low_x) * load_lanes(source, first + next_column * 16)
                    total = total + splat(low_y * high_x) * load_lanes(source, second + column * 16)
                    total = total + splat(low_y * low_x) * load_lanes(source, second + next_column * 16)
            store_lanes(target, x * 16, total / splat(np.float32(max(count_h * count_w, 1))))


@inline
def _round(x):
    """The nearest int64, halves away from 0."""
    return _floor(x + np.float32(0.5)) if x >= 0 else -_floor(np.float32(0.5) - x)


@kernel("roi_max_pool_blocked")
def roi_max_pool_blocked(tensors, ints, floats, begin, end):
    """Maxima over the bins of regions; 0 for an empty bin, and for a region of no image.

    tensors: input, regions [regions][5], output. floats: scale. Tasks: (region, c16, output row).
    """
    p = read_roi_max_pool(ints, floats)
    height, width, out_h, out_w = p.h, p.w, p.out.h, p.out.w
    scale = np.float32(p.scale)
    for task in range(begin, end):
        region, block, y = image_row(task, p.c16, out_h)
        roi = shift(pointer(tensors, 1, float32), region * 5)
        target = shift(pointer(tensors, 2, float32), offset_of(p.output, (region, block, y)))
        inside = roi[0] >= 0 and roi[0] < p.n
        image = int64(roi[0]) if inside else 0
        source = shift(pointer(tensors, 0, float32), offset_of(p.input, (image, block)))
        left, top = _round(roi[1] * scale), _round(roi[2] * scale)
        span_w = np.float32(max(_round(roi[3] * scale) - left + 1, 1)) / np.float32(out_w)
        span_h = np.float32(max(_round(roi[4] * scale) - top + 1, 1)) / np.float32(out_h)
        y0 = min(max(_floor(np.float32(y) * span_h) + top, 0), height)
        y1 = min(max(_ceiling(np.float32(y + 1) * span_h) + top, 0), height)
        for x in range(out_w):
            x0 = min(max(_floor(np.float32(x) * span_w) + left, 0), width)
            x1 = min(max(_ceiling(np.float32(x + 1) * span_w) + left, 0), width)
            best = splat(np.float32(0))
            if inside and y0 < y1 and x0 < x1:
                best = splat(np.float32(-np.inf))
                for i in range(y0, y1):
                    for j in range(x0, x1):
                        best = maximum_lanes(load_lanes(source, i * p.input.row + j * 16), best)
            store_lanes(target, x * 16, best)
