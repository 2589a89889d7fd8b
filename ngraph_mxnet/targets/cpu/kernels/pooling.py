"""Kernels on blocked tensors: pooling, and scale and shift per channel.

All strides are in elements and a pixel is 16 contiguous elements. 1-D is H = 1. Kernels ending in `_bf16` read and
write bf16, those in `_bf16_f32` read bf16 and write float32; inside all is float32.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from llvmlite import ir
from numba import float32, types, uint8, uint16

from ngraph_mxnet.targets.cpu.kernels.lanes import (
    F32,
    LANES,
    lanes_at,
    load_bf16_lanes,
    load_lanes,
    maximum_lanes,
    minimum_lanes,
    splat,
    store_bf16_lanes,
    store_lanes,
    where_equal,
    where_unequal,
)
from ngraph_mxnet.targets.cpu.kernels.pointers import emits, image_row, inline, offset_of, pointer, reader, shift
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.params.reduction import (
    MAX_POOL_GRADIENT,
    MEANS_OF_BYTES,
    POOLS,
    SCALE_SHIFTS,
)

read_pool = reader(POOLS[""])
read_mean_of_bytes = reader(MEANS_OF_BYTES["_u8"])
read_scale_shift = reader(SCALE_SHIFTS[""])
read_scale_shift_u8 = reader(SCALE_SHIFTS["_f32_u8"])
read_max_pool_gradient = reader(MAX_POOL_GRADIENT)

# ---- sixteen uint8 in memory as lanes -----

_BYTES = ir.VectorType(ir.IntType(8), LANES)
_WORDS = ir.VectorType(ir.IntType(32), LANES)
_ROUNDING = 1.5 * 2.0**23
"""A float32 of a few bits more or less than this is a whole number, which its lowest bits hold."""


def _all_lanes(number: float) -> ir.Constant:
    return ir.Constant(ir.VectorType(ir.FloatType(), LANES), [number] * LANES)


@emits(lambda base, index: F32(base, types.int64))
def load_u8_lanes(builder, base, index):
    """The 16 uint8 from `base[index]` on, as float32."""
    numbers = builder.load(lanes_at(builder, base, index, _BYTES), align=1)
    return builder.sitofp(builder.zext(numbers, _WORDS), _all_lanes(0).type)


@emits(lambda base, index, value: types.none(base, types.int64, F32))
def store_u8_lanes(builder, base, index, value):
    """`base[index : index + 16] = value`, of whole numbers from 0 to 255."""
    whole = builder.bitcast(builder.fadd(value, _all_lanes(_ROUNDING)), _WORDS)
    slot = lanes_at(builder, base, index, _BYTES)
    builder.store(builder.trunc(whole, _BYTES), slot, align=1)


@emits(lambda number, zero: F32(F32, F32))
def rounded_u8_lanes(builder, number, zero):
    """The nearest whole number, ties to even, plus the zero point `zero`, within 0 and 255; NaN becomes 0. The
    contractions of u8 store so, too."""
    lower, upper = builder.fsub(_all_lanes(0.0), zero), builder.fsub(_all_lanes(255.0), zero)
    bounded = builder.select(builder.fcmp_ordered(">", number, lower), number, lower)
    bounded = builder.select(builder.fcmp_ordered("<", bounded, upper), bounded, upper)
    nearest = builder.fsub(builder.fadd(bounded, _all_lanes(_ROUNDING)), _all_lanes(_ROUNDING))
    return builder.fadd(nearest, zero)


# ---- pools -----

_LOAD = {float32: load_lanes, uint16: load_bf16_lanes, uint8: load_u8_lanes}
_STORE = {float32: store_lanes, uint16: store_bf16_lanes, uint8: store_u8_lanes}
"""A pixel of each element type, as float32; uint16 are the bits of bf16. Of uint8 a maximum is a whole number."""


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
def _columns(p, left):
    """`_taps` of a window's columns in the image; without its divisions where the window lies inside."""
    if left >= 0 and left + (p.kernel.w - 1) * p.dilation.w < p.w:
        return 0, p.kernel.w
    return _taps(left, p.kernel.w, p.dilation.w, p.w)


@inline
def _row_of_windows(p, task):
    """Return where a task's image and its row of the output begin. Then return the first slice that its windows reach,
    with `_taps`, and the same of rows. The first slice and the first row are negative in the padding."""
    row, block = task // p.c16, task % p.c16
    slice_, oh = row // p.windows.h, row % p.windows.h
    image, od = slice_ // p.windows.d, slice_ % p.windows.d
    start, place = offset_of(p.input, (image, block)), offset_of(p.output, (image, block, od, oh))
    front, top = od * p.stride.d - p.pad.front, oh * p.stride.h - p.pad.top
    kd0, kd1 = _taps(front, p.kernel.d, 1, p.d)
    kh0, kh1 = _taps(top, p.kernel.h, p.dilation.h, p.h)
    return start, place, front, kd0, kd1, top, kh0, kh1


def _max_pool(source_type: types.Number, target_type: types.Number) -> Callable:
    load, store = _LOAD[source_type], _STORE[target_type]

    def max_pool_blocked(tensors, ints, floats, begin, end):
        """Maximum over windows clipped to the image; NaN wins; -inf for a window wholly outside.

        tensors: input, output. The pads below and right and include_pad are ignored.
        Tasks: (n, output slice, output row, c16): a thread's rows are those of the convolutions before and behind.
        """
        p = read_pool(ints, floats)
        for task in range(begin, end):
            start, place, front, kd0, kd1, top, kh0, kh1 = _row_of_windows(p, task)
            source = shift(pointer(tensors, 0, source_type), start)
            target = shift(pointer(tensors, 1, target_type), place)
            for ow in range(p.windows.w):
                left = ow * p.stride.w - p.pad.left
                kw0, kw1 = _columns(p, left)
                best = splat(np.float32(-np.inf))
                for kd in range(kd0, kd1):
                    for kh in range(kh0, kh1):
                        slice_ = shift(source, (front + kd) * p.input.slice)
                        row = shift(slice_, (top + kh * p.dilation.h) * p.input.row + left * p.input.pixel)
                        step = p.dilation.w * p.input.pixel
                        for kw in range(kw0, kw1):
                            best = maximum_lanes(load(row, kw * step), best)
                store(target, ow * p.output.pixel, best)

    return max_pool_blocked


@inline
def _mean(p, total, inside, count):
    return total / splat(np.float32(count))


@inline
def _scaled_mean(p, total, inside, count):
    """Return the scaled mean of bytes, whose sum is exact. Where the scale is 1, halves are halves."""
    whole = total - splat(np.float32(p.zero_point * inside))
    return whole / splat(np.float32(count)) * splat(np.float32(p.scale))


@inline
def _stored_mean(p, total, inside, count):
    return rounded_u8_lanes(_scaled_mean(p, total, inside, count), splat(np.float32(p.out_zero_point)))


def _avg_pool(source_type: types.Number, target_type: types.Number, read: Callable = read_pool,
              mean: Callable = _mean) -> Callable:
    """`mean(p, total, inside, count)`: what a window's sum becomes, of so many pixels, divided by `count`."""
    load, store = _LOAD[source_type], _STORE[target_type]

    def avg_pool_blocked(tensors, ints, floats, begin, end):
        """Mean over windows.

        tensors: input, output. With include_pad 1 the divisor counts the window's taps within
        the image and its pads (not what lies beyond, where the output size was rounded up); with 0 only those
        in the image. 0 for an empty window. Only pixels of the image are read. Of u8 up to 65,793 pixels are summed
        exactly.
        Tasks: (n, output slice, output row, c16): a thread's rows are those of the convolutions before and behind.
        """
        p = read(ints, floats)
        for task in range(begin, end):
            start, place, front, kd0, kd1, top, kh0, kh1 = _row_of_windows(p, task)
            source = shift(pointer(tensors, 0, source_type), start)
            target = shift(pointer(tensors, 1, target_type), place)
            padded_d0, padded_d1 = _taps(front + p.pad.front, p.kernel.d, 1, p.d + p.pad.front + p.pad.back)
            padded_h0, padded_h1 = _taps(top + p.pad.top, p.kernel.h, p.dilation.h, p.h + p.pad.top + p.pad.bottom)
            padded = (padded_d1 - padded_d0) * (padded_h1 - padded_h0)
            for ow in range(p.windows.w):
                left = ow * p.stride.w - p.pad.left
                kw0, kw1 = _columns(p, left)
                total = splat(np.float32(0))
                for kd in range(kd0, kd1):
                    for kh in range(kh0, kh1):
                        slice_ = shift(source, (front + kd) * p.input.slice)
                        row = shift(slice_, (top + kh * p.dilation.h) * p.input.row + left * p.input.pixel)
                        step = p.dilation.w * p.input.pixel
                        for kw in range(kw0, kw1):
                            total = total + load(row, kw * step)
                inside = max(kd1 - kd0, 0) * max(kh1 - kh0, 0) * max(kw1 - kw0, 0)
                count = inside
                if p.include_pad != 0 and kw1 - kw0 == p.kernel.w:
                    count = padded * p.kernel.w
                elif p.include_pad != 0:
                    w0, w1 = _taps(left + p.pad.left, p.kernel.w, p.dilation.w, p.w + p.pad.left + p.pad.right)
                    count = padded * (w1 - w0)
                store(target, ow * p.output.pixel, mean(p, total, inside, max(count, 1)))

    return avg_pool_blocked


@inline
def _as_it_is(p, value):
    return value


@inline
def _rounded(p, value):
    return rounded_u8_lanes(value, splat(np.float32(p.zero_point)))


def _scale_shift(source_type: types.Number, target_type: types.Number, read: Callable = read_scale_shift,
                 stored: Callable = _as_it_is) -> Callable:
    load, store = _LOAD[source_type], _STORE[target_type]

    def scale_shift_blocked(tensors, ints, floats, begin, end):
        """out = clamp(x * scale[c] + shift[c]); the clamp keeps NaN. As u8 it is rounded, and the zero point added.

        tensors: x, scale, shift (each `c16 * 16` contiguous), out (may be x).
        floats: lower, upper. Tasks: (n, c16, row).
        """
        p = read(ints, floats)
        lower, upper = splat(np.float32(p.lower)), splat(np.float32(p.upper))
        for task in range(begin, end):
            image, block, row = image_row(task, p.c16, p.h)
            source = shift(pointer(tensors, 0, source_type), offset_of(p.x, (image, block, row)))
            target = shift(pointer(tensors, 3, target_type), offset_of(p.output, (image, block, row)))
            scale = load_lanes(pointer(tensors, 1, float32), block * 16)
            offset = load_lanes(pointer(tensors, 2, float32), block * 16)
            for w in range(p.w):
                value = load(source, w * p.x.pixel) * scale + offset
                value = minimum_lanes(maximum_lanes(value, lower), upper)
                store(target, w * p.output.pixel, stored(p, value))

    return scale_shift_blocked


for _name, _factory in (("max_pool", _max_pool), ("avg_pool", _avg_pool), ("scale_shift", _scale_shift)):
    kernel(f"{_name}_blocked")(_factory(float32, float32))
    kernel(f"{_name}_blocked_bf16")(_factory(uint16, uint16))
kernel("avg_pool_blocked_bf16_f32")(_avg_pool(uint16, float32))
kernel("max_pool_blocked_u8")(_max_pool(uint8, uint8))
kernel("avg_pool_blocked_u8")(_avg_pool(uint8, uint8, read_mean_of_bytes, _stored_mean))
kernel("avg_pool_blocked_u8_f32")(_avg_pool(uint8, float32, read_mean_of_bytes, _scaled_mean))
kernel("avg_pool_blocked_f32_u8")(_avg_pool(float32, uint8, read_mean_of_bytes, _stored_mean))
kernel("scale_shift_blocked_f32_bf16")(_scale_shift(float32, uint16))
kernel("scale_shift_blocked_f32_u8")(_scale_shift(float32, uint8, read_scale_shift_u8, _rounded))


@kernel("max_pool_gradient_blocked")
def max_pool_gradient_blocked(tensors, ints, floats, begin, end):
    """Each window's share to the first of its greatest elements; that of a window with NaN is lost.

    tensors: data, head, output. Tasks: (n, c16).
    """
    p = read_max_pool_gradient(ints, floats)
    zeros = splat(np.float32(0))
    for task in range(begin, end):
        image, block = task // p.c16, task % p.c16
        data = shift(pointer(tensors, 0, float32), offset_of(p.data, (image, block)))
        heads = shift(pointer(tensors, 1, float32), offset_of(p.head, (image, block)))
        target = shift(pointer(tensors, 2, float32), offset_of(p.output, (image, block)))
        for slice_ in range(p.d):
            for row in range(p.h):
                for w in range(p.w):
                    store_lanes(target, slice_ * p.output.slice + row * p.output.row + w * p.output.pixel, zeros)
        for od in range(p.windows.d):
            front = od * p.stride.d - p.pad.front
            kd0, kd1 = _taps(front, p.kernel.d, 1, p.d)
            for oh in range(p.windows.h):
                top = oh * p.stride.h - p.pad.top
                kh0, kh1 = _taps(top, p.kernel.h, 1, p.h)
                for ow in range(p.windows.w):
                    left = ow * p.stride.w - p.pad.left
                    kw0, kw1 = _taps(left, p.kernel.w, 1, p.w)
                    best = splat(np.float32(-np.inf))
                    for kd in range(kd0, kd1):
                        for kh in range(kh0, kh1):
                            row = shift(data, (front + kd) * p.data.slice + (top + kh) * p.data.row)
                            for kw in range(kw0, kw1):
                                best = maximum_lanes(load_lanes(row, (left + kw) * p.data.pixel), best)
                    left_over = load_lanes(heads, od * p.head.slice + oh * p.head.row + ow * p.head.pixel)
                    for kd in range(kd0, kd1):
                        for kh in range(kh0, kh1):
                            row = shift(data, (front + kd) * p.data.slice + (top + kh) * p.data.row)
                            shares = shift(target, (front + kd) * p.output.slice + (top + kh) * p.output.row)
                            for kw in range(kw0, kw1):
                                x, place = load_lanes(row, (left + kw) * p.data.pixel), (left + kw) * p.output.pixel
                                share = where_equal(x, best, left_over)
                                store_lanes(shares, place, load_lanes(shares, place) + share)
                                left_over = where_unequal(x, best, left_over)
