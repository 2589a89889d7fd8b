"""Kernels that move data between layouts, and that pack weights for the contractions.

All strides are in elements. Packed layouts are those of `tests/cpu/packing_references.py`.
"""

from __future__ import annotations

import numpy as np
from numba import float32, uint16

from ngraph_mxnet.cpu.kernels.lanes import (
    load_lanes,
    splat,
    store_lanes,
    store_pairs,
    transpose_lanes,
    transpose_pairs,
)
from ngraph_mxnet.cpu.kernels.pointers import pointer, round_bf16, shift
from ngraph_mxnet.cpu.kernels.record import kernel

__all__ = ["LAYOUT_INTS", "PACK_CONTRACTION_INTS"]

LAYOUT_INTS = tuple("n c h w in_n in_c in_row in_column out_n out_c out_row out_column".split())
"""`ints` of `to_blocked` and `from_blocked`; the blocked side's `c` stride separates blocks."""

PACK_CONTRACTION_INTS = tuple(
    "supers merged oc_per_group ic_per_group kernel_h kernel_w oc_tile lanes oc_stride ic_stride "
    "kh_stride kw_stride super_stride".split()
)
"""Entries of `ints` of `pack_contraction`; groups = supers * merged, lanes is 16 (k16) or 1 (k1)."""



@kernel("to_blocked")
def to_blocked(tensors, ints, floats, begin, end):
    """Plain `[N][C][H][W]` with any strides to blocked; padding lanes get zeros, the halo is not touched.

    tensors: input, output. ints: `LAYOUT_INTS`. Tasks: (n, 16-channel block, row).
    """
    channels, height, width = ints[1], ints[2], ints[3]
    in_c, in_w, out_w = ints[5], ints[7], ints[11]
    blocks = (channels + 15) // 16
    for task in range(begin, end):
        plane, row = task // height, task % height
        image, block = plane // blocks, plane % blocks
        source = shift(pointer(tensors, 0, float32), image * ints[4] + block * 16 * in_c + row * ints[6])
        target = shift(pointer(tensors, 1, float32), image * ints[8] + block * ints[9] + row * ints[10])
        valid = channels - block * 16
        start = 0
        if valid >= 16 and in_w == 1:
            start = width // 16 * 16
            for w in range(0, start, 16):
                transpose_lanes(shift(source, w), in_c, shift(target, w * out_w), out_w)
        if valid >= 16 and in_c == 1:
            start = width
            for w in range(width):
                store_lanes(target, w * out_w, load_lanes(source, w * in_w))
        if valid < 16:
            for w in range(width):
                store_lanes(target, w * out_w, splat(np.float32(0)))
        else:
            valid = 16
        for w in range(start, width):
            pixel = shift(target, w * out_w)
            for lane in range(valid):
                pixel[lane] = source[w * in_w + lane * in_c]


@kernel("zero_halo")
def zero_halo(tensors, ints, floats, begin, end):
    """Zeros around blocked images that lie one after the other, the images themselves untouched.

    tensors: the memory, halo included. ints: planes (image, block), height, width, top, bottom, left, right, and how
    many 4-byte words a pixel has. Tasks: plane.
    """
    height, width, words = ints[1], ints[2], ints[7]
    row = (width + ints[5] + ints[6]) * words
    left, between = ints[3] * row + ints[5] * words, row - width * words
    for task in range(begin, end):
        plane = shift(pointer(tensors, 0, float32), task * (height + ints[3] + ints[4]) * row)
        for word in range(left):
            plane[word] = float32(0)
        for line in range(height - 1):
            for word in range(between):
                plane[left + line * row + width * words + word] = float32(0)
        for word in range(left + (height - 1) * row + width * words, (height + ints[3] + ints[4]) * row):
            plane[word] = float32(0)


@kernel("from_blocked")
def from_blocked(tensors, ints, floats, begin, end):
    """Blocked to plain `[N][C][H][W]` with any strides.

    tensors: input, output. ints: `LAYOUT_INTS`. Tasks: (n, 16-channel block, row).
    """
    channels, height, width = ints[1], ints[2], ints[3]
    in_w, out_c, out_w = ints[7], ints[9], ints[11]
    blocks = (channels + 15) // 16
    for task in range(begin, end):
        plane, row = task // height, task % height
        image, block = plane // blocks, plane % blocks
        source = shift(pointer(tensors, 0, float32), image * ints[4] + block * ints[5] + row * ints[6])
        target = shift(pointer(tensors, 1, float32), image * ints[8] + block * 16 * out_c + row * ints[10])
        valid = min(channels - block * 16, 16)
        start = 0
        if valid == 16 and out_w == 1:
            start = width // 16 * 16
            for w in range(0, start, 16):
                transpose_lanes(shift(source, w * in_w), in_w, shift(target, w), out_c)
        if valid == 16 and out_c == 1:
            start = width
            for w in range(width):
                store_lanes(target, w * out_w, load_lanes(source, w * in_w))
        for w in range(start, width):
            pixel = shift(source, w * in_w)
            for lane in range(valid):
                target[w * out_w + lane * out_c] = pixel[lane]



@kernel("pack_contraction")
def pack_contraction(tensors, ints, floats, begin, end):
    """Weights `[OC][IC / groups][KH][KW]` with any strides to a contraction's packed layout.

    tensors: weights, packed. ints: `PACK_CONTRACTION_INTS`; a matrix operand is KH = KW = 1 with its strides
    of output column and of K. Packed: `[supers][oc groups][ic blocks][KH][KW][lanes][oc_tile]`, zeros where a
    super-group's blocks have no weight. Tasks: (super, oc group, ic block).
    """
    merged, ocg, icg, kernel_h, kernel_w, oc_tile, lanes = (
        ints[1], ints[2], ints[3], ints[4], ints[5], ints[6], ints[7],
    )  # fmt: skip
    oc_groups = (merged * ocg + oc_tile - 1) // oc_tile
    blocks = (merged * icg + lanes - 1) // lanes
    for task in range(begin, end):
        block, rest = task % blocks, task // blocks
        oc_group, super_group = rest % oc_groups, rest // oc_groups
        weights = shift(pointer(tensors, 0, float32), super_group * ints[12])
        packed = shift(pointer(tensors, 1, float32), task * kernel_h * kernel_w * lanes * oc_tile)
        for tap in range(kernel_h * kernel_w):
            at = tap // kernel_w * ints[10] + tap % kernel_w * ints[11]
            whole = merged == 1 and block * 16 + 16 <= icg and (oc_group + 1) * oc_tile <= ocg
            if whole and lanes == 16 and oc_tile % 16 == 0:
                inside = shift(weights, at + block * 16 * ints[9])
                if ints[8] == 1:
                    for k in range(16):
                        for j in range(0, oc_tile, 16):
                            values = load_lanes(inside, k * ints[9] + oc_group * oc_tile + j)
                            store_lanes(packed, (tap * 16 + k) * oc_tile + j, values)
                    continue
                if ints[9] == 1:
                    for j in range(0, oc_tile, 16):
                        rows = shift(inside, (oc_group * oc_tile + j) * ints[8])
                        transpose_lanes(rows, ints[8], shift(packed, tap * 16 * oc_tile + j), oc_tile)
                    continue
            for k in range(lanes):
                ic = block * lanes + k
                group = ic // icg
                first, last = group * ocg, group * ocg + ocg
                if group >= merged:
                    first, last = 0, 0
                source = shift(weights, at + (ic - group * icg) * ints[9])
                target = shift(packed, (tap * lanes + k) * oc_tile)
                for j in range(oc_tile):
                    oc = oc_group * oc_tile + j
                    if first <= oc < last:
                        target[j] = source[oc * ints[8]]
                    else:
                        target[j] = np.float32(0)



@kernel("pack_contraction_bf16")
def pack_contraction_bf16(tensors, ints, floats, begin, end):
    """As `pack_contraction` with 16 lanes, rounded to bf16 in pairs: `[.. lanes / 2][oc_tile][2]`."""
    merged, ocg, icg, oc_tile, oc_stride, ic_stride = ints[1], ints[2], ints[3], ints[6], ints[8], ints[9]
    taps = ints[4] * ints[5]
    oc_groups = (merged * ocg + oc_tile - 1) // oc_tile
    blocks = (merged * icg + 15) // 16
    for task in range(begin, end):
        block, rest = task % blocks, task // blocks
        oc_group, super_group = rest % oc_groups, rest // oc_groups
        weights = shift(pointer(tensors, 0, float32), super_group * ints[12])
        whole = merged == 1 and block * 16 + 16 <= icg and (oc_group + 1) * oc_tile <= ocg
        for tap in range(taps):
            at = tap // ints[5] * ints[10] + tap % ints[5] * ints[11]
            packed = shift(pointer(tensors, 1, uint16), (task * taps + tap) * 16 * oc_tile)
            inside = shift(weights, at + block * 16 * ic_stride + oc_group * oc_tile * oc_stride)
            if whole and oc_stride == 1:
                for k in range(0, 16, 2):
                    for j in range(0, oc_tile, 16):
                        first = load_lanes(inside, k * ic_stride + j)
                        second = load_lanes(inside, (k + 1) * ic_stride + j)
                        store_pairs(packed, k * oc_tile + 2 * j, first, second)
                continue
            if whole and ic_stride == 1:
                for j in range(0, oc_tile, 16):
                    transpose_pairs(shift(inside, j * oc_stride), oc_stride, shift(packed, 2 * j), 2 * oc_tile)
                continue
            for k in range(16):
                ic = block * 16 + k
                group = ic // icg
                first, last = group * ocg, group * ocg + ocg
                if group >= merged:
                    first, last = 0, 0
                source = shift(weights, at + (ic - group * icg) * ic_stride)
                target = shift(packed, k // 2 * 2 * oc_tile + k % 2)
                for j in range(oc_tile):
                    oc = oc_group * oc_tile + j
                    if first <= oc < last:
                        target[2 * j] = round_bf16(source[oc * oc_stride])
                    else:
                        target[2 * j] = np.uint16(0)


@kernel("pack_depthwise")
def pack_depthwise(tensors, ints, floats, begin, end):
    """Weights `[C][taps]` to `[C16][taps][16]`, zeros in the padding lanes.

    tensors: weights, packed. ints: channels, KH, KW, then the strides of channel, KH and KW. Tasks: c16.
    """
    channels, kernel_w = ints[0], ints[2]
    taps = ints[1] * kernel_w
    for block in range(begin, end):
        for tap in range(taps):
            target = shift(pointer(tensors, 1, float32), (block * taps + tap) * 16)
            source = shift(pointer(tensors, 0, float32), tap // kernel_w * ints[4] + tap % kernel_w * ints[5])
            for j in range(16):
                c = block * 16 + j
                target[j] = source[c * ints[3]] if c < channels else np.float32(0)



@kernel("pack_channels")
def pack_channels(tensors, ints, floats, begin, end):
    """Per-channel values (a bias) to `[groups][tiles][oc_tile]`, each group padded with zeros to whole tiles.

    tensors: values, packed. ints: groups, channels per group, oc_tile, stride of values.
    Tasks: (group, tile).
    """
    per_group, tile, stride = ints[1], ints[2], ints[3]
    tiles = (per_group + tile - 1) // tile
    for task in range(begin, end):
        group, first = task // tiles, task % tiles * tile
        source = shift(pointer(tensors, 0, float32), group * per_group * stride)
        target = shift(pointer(tensors, 1, float32), task * tile)
        for j in range(tile):
            c = first + j
            target[j] = source[c * stride] if c < per_group else np.float32(0)
