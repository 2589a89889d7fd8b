"""Kernels on blocked tensors: pooling, and scale and shift per channel.

All strides are in elements and a pixel is 16 contiguous elements. 1-D is H = 1. Kernels ending in `_bf16` read and
write bf16, those in `_bf16_f32` read bf16 and write float32; inside all is float32.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import float32, types, uint16

from ngraph_mxnet.cpu.kernels.lanes import (
    load_bf16_lanes,
    load_lanes,
    maximum_lanes,
    minimum_lanes,
    splat,
    store_bf16_lanes,
    store_lanes,
)
from ngraph_mxnet.cpu.kernels.pointers import inline, pointer, shift
from ngraph_mxnet.cpu.kernels.record import kernel

__all__ = ["POOL_INTS", "SCALE_SHIFT_INTS"]

POOL_INTS = tuple(
    "n c16 h w out_h out_w kernel_h kernel_w stride_h stride_w dilation_h dilation_w pad_top pad_left "
    "pad_bottom pad_right include_pad in_n in_c16 in_row in_pixel out_n out_c16 out_row out_pixel "
    "d out_d kernel_d stride_d pad_front pad_back in_slice out_slice".split()
)
"""Names of the entries of `ints` of both pooling kernels. `in_*` and `out_*` are strides, but `out_d`, `out_h` and
`out_w` sizes; the depth, which has no dilation, is 1 in two dimensions."""

SCALE_SHIFT_INTS = tuple("n c16 h w in_n in_c16 in_row in_pixel out_n out_c16 out_row out_pixel".split())
"""Names of the entries of `ints` of `scale_shift_blocked`."""


_LOAD = {float32: load_lanes, uint16: load_bf16_lanes}
_STORE = {float32: store_lanes, uint16: store_bf16_lanes}
"""A pixel of each element type, as float32; uint16 are the bits of bf16."""


@inline
def _taps(position, size, dilation, limit):
    """First and one-past-last tap of a window at `position` that lie in [0, limit)."""
    first = 0
    if position < 0:
        first = (-position + dilation - 1) // dilation
    last = 0
    if limit > position:
        last = (limit - position + dilation - 1) // dilation
    if last > size:
        last = size
    return first, last


@inline
def _columns(ints, left):
    """`_taps` of a window's columns in the image; without its divisions where the window lies inside."""
    if left >= 0 and left + (ints[7] - 1) * ints[11] < ints[3]:
        return 0, ints[7]
    return _taps(left, ints[7], ints[11], ints[3])


@inline
def _row_of_windows(ints, task):
    """Where a task's image and its row of the output begin; then the first slice its windows reach, negative in the
    padding, with `_taps`, and the same of rows."""
    plane, oh = task // ints[4], task % ints[4]
    image, block = plane // ints[1], plane % ints[1]
    image, od = image // ints[26], image % ints[26]
    start = image * ints[17] + block * ints[18]
    place = image * ints[21] + od * ints[32] + block * ints[22] + oh * ints[23]
    front, top = od * ints[28] - ints[29], oh * ints[8] - ints[12]
    kd0, kd1 = _taps(front, ints[27], 1, ints[25])
    kh0, kh1 = _taps(top, ints[6], ints[10], ints[2])
    return start, place, front, kd0, kd1, top, kh0, kh1


def _max_pool(source_type: types.Number, target_type: types.Number) -> Callable:
    load, store = _LOAD[source_type], _STORE[target_type]

    def max_pool_blocked(tensors, ints, floats, begin, end):
        """Maximum over windows clipped to the image; NaN wins; -inf for a window wholly outside.

        tensors: input, output. ints: `POOL_INTS` (the pads below and right and include_pad are ignored).
        Tasks: (n, output slice, c16, output row).
        """
        for task in range(begin, end):
            start, place, front, kd0, kd1, top, kh0, kh1 = _row_of_windows(ints, task)
            source = shift(pointer(tensors, 0, source_type), start)
            target = shift(pointer(tensors, 1, target_type), place)
            for ow in range(ints[5]):
                left = ow * ints[9] - ints[13]
                kw0, kw1 = _columns(ints, left)
                best = splat(np.float32(-np.inf))
                for kd in range(kd0, kd1):
                    for kh in range(kh0, kh1):
                        slice_ = shift(source, (front + kd) * ints[31])
                        row = shift(slice_, (top + kh * ints[10]) * ints[19] + left * ints[20])
                        step = ints[11] * ints[20]
                        for kw in range(kw0, kw1):
                            best = maximum_lanes(load(row, kw * step), best)
                store(target, ow * ints[24], best)

    return max_pool_blocked


def _avg_pool(source_type: types.Number, target_type: types.Number) -> Callable:
    load, store = _LOAD[source_type], _STORE[target_type]

    def avg_pool_blocked(tensors, ints, floats, begin, end):
        """Mean over windows.

        tensors: input, output. ints: `POOL_INTS`. With include_pad 1 the divisor counts the window's taps within
        the image and its pads (not what lies beyond, where the output size was rounded up); with 0 only those
        in the image. 0 for an empty window. Only pixels of the image are read.
        Tasks: (n, output slice, c16, output row).
        """
        for task in range(begin, end):
            start, place, front, kd0, kd1, top, kh0, kh1 = _row_of_windows(ints, task)
            source = shift(pointer(tensors, 0, source_type), start)
            target = shift(pointer(tensors, 1, target_type), place)
            padded_d0, padded_d1 = _taps(front + ints[29], ints[27], 1, ints[25] + ints[29] + ints[30])
            padded_h0, padded_h1 = _taps(top + ints[12], ints[6], ints[10], ints[2] + ints[12] + ints[14])
            padded = (padded_d1 - padded_d0) * (padded_h1 - padded_h0)
            for ow in range(ints[5]):
                left = ow * ints[9] - ints[13]
                kw0, kw1 = _columns(ints, left)
                total = splat(np.float32(0))
                for kd in range(kd0, kd1):
                    for kh in range(kh0, kh1):
                        slice_ = shift(source, (front + kd) * ints[31])
                        row = shift(slice_, (top + kh * ints[10]) * ints[19] + left * ints[20])
                        step = ints[11] * ints[20]
                        for kw in range(kw0, kw1):
                            total = total + load(row, kw * step)
                count = max(kd1 - kd0, 0) * max(kh1 - kh0, 0) * max(kw1 - kw0, 0)
                if ints[16] != 0 and kw1 - kw0 == ints[7]:
                    count = padded * ints[7]
                elif ints[16] != 0:
                    w0, w1 = _taps(left + ints[13], ints[7], ints[11], ints[3] + ints[13] + ints[15])
                    count = padded * (w1 - w0)
                store(target, ow * ints[24], total / splat(np.float32(max(count, 1))))

    return avg_pool_blocked


def _scale_shift(source_type: types.Number, target_type: types.Number) -> Callable:
    load, store = _LOAD[source_type], _STORE[target_type]

    def scale_shift_blocked(tensors, ints, floats, begin, end):
        """out = clamp(x * scale[c] + shift[c]); the clamp keeps NaN.

        tensors: x, scale, shift (each `c16 * 16` contiguous), out (may be x). ints: `SCALE_SHIFT_INTS`.
        floats: lower, upper. Tasks: (n, c16, row).
        """
        lower, upper = splat(np.float32(floats[0])), splat(np.float32(floats[1]))
        height, width, in_pixel, out_pixel = ints[2], ints[3], ints[7], ints[11]
        for task in range(begin, end):
            plane, row = task // height, task % height
            image, block = plane // ints[1], plane % ints[1]
            source = shift(pointer(tensors, 0, source_type), image * ints[4] + block * ints[5] + row * ints[6])
            target = shift(pointer(tensors, 3, target_type), image * ints[8] + block * ints[9] + row * ints[10])
            scale = load_lanes(pointer(tensors, 1, float32), block * 16)
            offset = load_lanes(pointer(tensors, 2, float32), block * 16)
            for w in range(width):
                value = load(source, w * in_pixel) * scale + offset
                value = minimum_lanes(maximum_lanes(value, lower), upper)
                store(target, w * out_pixel, value)

    return scale_shift_blocked


for _name, _factory in (("max_pool", _max_pool), ("avg_pool", _avg_pool), ("scale_shift", _scale_shift)):
    kernel(f"{_name}_blocked")(_factory(float32, float32))
    kernel(f"{_name}_blocked_bf16")(_factory(uint16, uint16))
kernel("avg_pool_blocked_bf16_f32")(_avg_pool(uint16, float32))
