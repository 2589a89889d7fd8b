"""Kernels that move data between layouts, pack weights for the contractions, and gather their gradients.

All strides are in elements. Packed layouts are those of `tests/targets/cpu/packing_references.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import float32, int8, int16, int32, types, uint16

from ngraph_mxnet.targets.cpu.kernels.lanes import (
    LANES,
    load_first_lanes,
    load_lanes,
    splat,
    store_bf16_lanes,
    store_first_lanes,
    store_lanes,
    store_pairs,
    transpose_lanes,
    transpose_pairs,
)
from ngraph_mxnet.targets.cpu.kernels.pointers import (
    image_row,
    inline,
    load,
    offset_of,
    pointer,
    reader,
    round_bf16,
    scratch,
    select,
    shift,
    store,
)
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.params.layout import (
    FILL_HALO,
    FROM_BLOCKED,
    GATHER_WEIGHT_GRADIENT,
    PACK_CHANNELS,
    PACK_CONTRACTION,
    PACK_DEPTHWISE,
    SHUFFLE,
    TO_BLOCKED,
    ZERO_HALO,
)

read_fill_halo = reader(FILL_HALO)
read_from_blocked = reader(FROM_BLOCKED)
read_gather_weight_gradient = reader(GATHER_WEIGHT_GRADIENT)
read_pack_channels = reader(PACK_CHANNELS)
read_pack_contraction = reader(PACK_CONTRACTION)
read_pack_depthwise = reader(PACK_DEPTHWISE)
read_shuffle = reader(SHUFFLE)
read_to_blocked = reader(TO_BLOCKED[""])
read_zero_halo = reader(ZERO_HALO)


_TILE, _TILES = LANES * LANES, 2 * LANES * LANES


@inline
def _part_to_blocked(store, source, in_c, target, out_w, channels, pixels, room):
    """Up to 16 channels of up to 16 pixels that are contiguous in `source`; the lanes behind the channels get zeros."""
    zeros = splat(np.float32(0))
    for lane in range(LANES):
        row = load_first_lanes(source, lane * in_c, pixels, zeros) if lane < channels else zeros
        store_lanes(room, lane * LANES, row)
    _turned_rows(store, room, LANES, target, out_w, pixels, shift(room, _TILE))


@inline
def _turned_rows(store, source, in_c, target, out_w, pixels, room):
    """The first pixels of a tile of 16 channels, by way of `room`."""
    transpose_lanes(source, in_c, room, LANES)
    for w in range(pixels):
        store(target, w * out_w, load_lanes(room, w * LANES))


@inline
def _part_from_blocked(source, in_w, target, out_c, channels, pixels, room):
    """Up to 16 channels of up to 16 pixels that are contiguous in `target`."""
    for w in range(pixels):
        store_lanes(room, w * LANES, load_lanes(source, w * in_w))
    turned = shift(room, _TILE)
    transpose_lanes(room, LANES, turned, LANES)
    for lane in range(channels):
        store_first_lanes(target, lane * out_c, load_lanes(turned, lane * LANES), pixels)


@inline
def _as_it_is(value):
    return value


@inline
def _turn_floats(source, in_c, target, out_w, room):
    transpose_lanes(source, in_c, target, out_w)


@inline
def _turn_narrow(source, in_c, target, out_w, room):
    _turned_rows(store_bf16_lanes, source, in_c, target, out_w, LANES, room)


def _to_blocked(stored: types.Number, store: Callable, rounded: Callable, turn: Callable) -> Callable:
    def to_blocked(tensors, ints, floats, begin, end):
        """Plain `[N][C][H][W]` with any strides to blocked; padding lanes get zeros, the halo is not touched.

        tensors: input, output. Tasks: (n, 16-channel block, row).
        """
        p = read_to_blocked(ints, floats)
        channels, height, width = p.c, p.h, p.w
        in_c, in_w, out_w = p.input.c, p.input.column, p.output.column
        blocks = (channels + 15) // 16
        room = scratch(_TILES)
        for task in range(begin, end):
            image, block, row = image_row(task, blocks, height)
            source = shift(pointer(tensors, 0, float32), offset_of(p.input, (image, block * 16, row)))
            target = shift(pointer(tensors, 1, stored), offset_of(p.output, (image, block, row)))
            valid = min(channels - block * 16, 16)
            if in_w == 1:
                whole = width // 16 * 16 if valid == 16 else 0
                for w in range(0, whole, 16):
                    turn(shift(source, w), in_c, shift(target, w * out_w), out_w, room)
                if 0 < whole < width:
                    # The last 16 pixels; some of them once more.
                    turn(shift(source, width - 16), in_c, shift(target, (width - 16) * out_w), out_w, room)
                    whole = width
                for w in range(whole, width, 16):
                    _part_to_blocked(store, shift(source, w), in_c, shift(target, w * out_w), out_w, valid,
                                     min(width - w, 16), room)
            elif in_c == 1:
                for w in range(width):
                    pixel = load_first_lanes(source, w * in_w, valid, splat(np.float32(0)))
                    store(target, w * out_w, pixel)
            else:
                for w in range(width):
                    pixel = shift(target, w * out_w)
                    store(pixel, 0, splat(np.float32(0)))
                    for lane in range(valid):
                        pixel[lane] = rounded(source[w * in_w + lane * in_c])

    return to_blocked


kernel("to_blocked")(_to_blocked(float32, store_lanes, _as_it_is, _turn_floats))
kernel("to_blocked_f32_bf16")(_to_blocked(uint16, store_bf16_lanes, round_bf16, _turn_narrow))


@inline
def _fill_halo(tensors, p, begin, end, value):
    row, rows = (p.width + p.halo.left + p.halo.right) * p.words, p.height + p.halo.top + p.halo.bottom
    left, between = p.halo.top * row + p.halo.left * p.words, row - p.width * p.words
    for task in range(begin, end):
        plane = shift(pointer(tensors, 0, int32), task * rows * row)
        for word in range(left):
            plane[word] = value
        for line in range(p.height - 1):
            for word in range(between):
                plane[left + line * row + p.width * p.words + word] = value
        for word in range(left + (p.height - 1) * row + p.width * p.words, rows * row):
            plane[word] = value


@kernel("zero_halo")
def zero_halo(tensors, ints, floats, begin, end):
    """Zeros around blocked images that lie one after the other, the images themselves untouched.

    tensors: the memory, halo included. ints: planes (image, block), height, width, top, bottom, left, right, and how
    many 4-byte words a pixel has. Tasks: plane.
    """
    _fill_halo(tensors, read_zero_halo(ints, floats), begin, end, int32(0))


@kernel("fill_halo")
def fill_halo(tensors, ints, floats, begin, end):
    """Fill halos like `zero_halo`, with a word in place of zero. The ints have one more number: that word."""
    p = read_fill_halo(ints, floats)
    _fill_halo(tensors, p, begin, end, int32(p.word))


@kernel("from_blocked")
def from_blocked(tensors, ints, floats, begin, end):
    """Blocked to plain `[N][C][H][W]` with any strides.

    tensors: input, output. Tasks: (n, 16-channel block, row).
    """
    p = read_from_blocked(ints, floats)
    channels, height, width = p.c, p.h, p.w
    in_w, out_c, out_w = p.input.column, p.output.c, p.output.column
    blocks = (channels + 15) // 16
    room = scratch(_TILES)
    for task in range(begin, end):
        image, block, row = image_row(task, blocks, height)
        source = shift(pointer(tensors, 0, float32), offset_of(p.input, (image, block, row)))
        target = shift(pointer(tensors, 1, float32), offset_of(p.output, (image, block * 16, row)))
        valid = min(channels - block * 16, 16)
        if out_w == 1:
            whole = width // 16 * 16 if valid == 16 else 0
            for w in range(0, whole, 16):
                transpose_lanes(shift(source, w * in_w), in_w, shift(target, w), out_c)
            if 0 < whole < width:
                transpose_lanes(shift(source, (width - 16) * in_w), in_w, shift(target, width - 16), out_c)
                whole = width
            for w in range(whole, width, 16):
                _part_from_blocked(shift(source, w * in_w), in_w, shift(target, w), out_c, valid, min(width - w, 16),
                                   room)
        elif out_c == 1:
            for w in range(width):
                store_first_lanes(target, w * out_w, load_lanes(source, w * in_w), valid)
        else:
            for w in range(width):
                pixel = shift(source, w * in_w)
                for lane in range(valid):
                    target[w * out_w + lane * out_c] = pixel[lane]


@inline
def _place(places, lane, channels, between):
    """Where the channel lies that a lane gets, in an image whose blocks are `between` elements apart."""
    place = load(places, lane)
    place = select(place < int32(0), int32(0), select(place >= channels, int32(0), place))
    return (place >> 4) * between + (place & 15)


@kernel("shuffle_blocked")
def shuffle_blocked(tensors, ints, floats, begin, end):
    """The channels of a blocked image in another order; padding lanes get zeros.

    tensors: input, places (int32 [c]: the input's channel for each of the output's; 0 for one that the input lacks),
    output. Tasks: (n, 16-channel block, row).
    """
    p = read_shuffle(ints, floats)
    channels, width = p.c, p.w
    blocks = (channels + 15) // 16
    for task in range(begin, end):
        plane, row = task // p.h, task % p.h
        image, block = plane // blocks, plane % blocks
        source = shift(pointer(tensors, 0, float32), image * p.input.n + row * p.input.row)
        target = shift(pointer(tensors, 2, float32), offset_of(p.output, (image, block, row)))
        places = shift(pointer(tensors, 1, int32), block * 16)
        if (block + 1) * 16 <= channels:
            for w in range(width):
                for lane in range(16):
                    store(target, w * 16 + lane, load(source, w * 16 + _place(places, lane, channels, p.input.block)))
            continue
        for w in range(width):
            store_lanes(target, w * 16, splat(np.float32(0)))
            for lane in range(channels - block * 16):
                target[w * 16 + lane] = source[w * 16 + _place(places, lane, channels, p.input.block)]


def _pack_contraction(source_type: types.Number, target_type: types.Number, together: int, stored: Callable,
                      pack_whole: Callable) -> Callable:
    """`together`: input channels that stand side by side; `stored(value)` is a weight as it is packed, and
    `pack_whole(p, weights, packed)` packs a tile without zeros, unless it returns False."""

    def pack(tensors, ints, floats, begin, end):
        """Weights `[OC][IC / groups][KH][KW]` with any strides to a contraction's packed layout.

        tensors: weights, packed. A matrix operand is KH = KW = 1 with its strides of output column and of K. Packed:
        `[supers][oc groups][ic blocks][KH][KW][lanes / together][oc_tile][together]`, zeros where a super-group's
        blocks have no weight. Tasks: (super, oc group, ic block).
        """
        p = read_pack_contraction(ints, floats)
        merged, ocg, icg, lanes = p.merged, p.oc_per_group, p.ic_per_group, p.lanes
        taps = p.kernel.h * p.kernel.w
        oc_groups = (merged * ocg + p.oc_tile - 1) // p.oc_tile
        blocks = (merged * icg + lanes - 1) // lanes
        for task in range(begin, end):
            block, rest = task % blocks, task // blocks
            oc_group, super_group = rest % oc_groups, rest // oc_groups
            weights = shift(pointer(tensors, 0, source_type), super_group * p.weights.super)
            whole = merged == 1 and (block + 1) * lanes <= icg and (oc_group + 1) * p.oc_tile <= ocg
            for tap in range(taps):
                at = tap // p.kernel.w * p.weights.kh + tap % p.kernel.w * p.weights.kw
                packed = shift(pointer(tensors, 1, target_type), (task * taps + tap) * lanes * p.oc_tile)
                inside = shift(weights, at + block * lanes * p.weights.ic + oc_group * p.oc_tile * p.weights.oc)
                if whole and pack_whole(p, inside, packed):
                    continue
                for k in range(lanes):
                    ic = block * lanes + k
                    group = ic // icg
                    first, last = group * ocg, group * ocg + ocg
                    if group >= merged:
                        first, last = 0, 0
                    source = shift(weights, at + (ic - group * icg) * p.weights.ic)
                    target = shift(packed, k // together * together * p.oc_tile + k % together)
                    for j in range(p.oc_tile):
                        oc = oc_group * p.oc_tile + j
                        if first <= oc < last:
                            target[together * j] = stored(source[oc * p.weights.oc])
                        else:
                            target[together * j] = target_type(0)

    return pack


@inline
def _pack_floats(p, weights, packed):
    if p.lanes != 16 or p.oc_tile % 16 != 0:
        return False
    if p.weights.oc == 1:
        for k in range(16):
            for j in range(0, p.oc_tile, 16):
                store_lanes(packed, k * p.oc_tile + j, load_lanes(weights, k * p.weights.ic + j))
        return True
    if p.weights.ic == 1:
        for j in range(0, p.oc_tile, 16):
            transpose_lanes(shift(weights, j * p.weights.oc), p.weights.oc, shift(packed, j), p.oc_tile)
        return True
    return False


@inline
def _pack_pairs(p, weights, packed):
    if p.weights.oc == 1:
        for k in range(0, 16, 2):
            for j in range(0, p.oc_tile, 16):
                first = load_lanes(weights, k * p.weights.ic + j)
                store_pairs(packed, k * p.oc_tile + 2 * j, first, load_lanes(weights, (k + 1) * p.weights.ic + j))
        return True
    if p.weights.ic == 1:
        for j in range(0, p.oc_tile, 16):
            transpose_pairs(shift(weights, j * p.weights.oc), p.weights.oc, shift(packed, 2 * j), 2 * p.oc_tile)
        return True
    return False


@inline
def _pack_none(p, weights, packed):
    return False


kernel("pack_contraction")(_pack_contraction(float32, float32, 1, _as_it_is, _pack_floats))
kernel("pack_contraction_bf16")(_pack_contraction(float32, uint16, 2, round_bf16, _pack_pairs))
kernel("pack_contraction_i8")(_pack_contraction(int8, int8, 4, _as_it_is, _pack_none))
kernel("pack_contraction_i16")(_pack_contraction(int8, int16, 4, _as_it_is, _pack_none))


@kernel("pack_depthwise")
def pack_depthwise(tensors, ints, floats, begin, end):
    """Weights `[C][taps]` to `[C16][taps][16]`, zeros in the padding lanes.

    tensors: weights, packed. ints: channels, KH, KW, then the strides of channel, KH and KW. Tasks: c16.
    """
    p = read_pack_depthwise(ints, floats)
    channels, kernel_w = p.channels, p.kernel.w
    taps = p.kernel.h * kernel_w
    for block in range(begin, end):
        for tap in range(taps):
            target = shift(pointer(tensors, 1, float32), (block * taps + tap) * 16)
            source = shift(pointer(tensors, 0, float32), tap // kernel_w * p.weights.kh + tap % kernel_w * p.weights.kw)
            for j in range(16):
                c = block * 16 + j
                target[j] = source[c * p.weights.channel] if c < channels else np.float32(0)


@kernel("pack_channels")
def pack_channels(tensors, ints, floats, begin, end):
    """Per-channel values (a bias) to `[groups][tiles][oc_tile]`, each group padded with zeros to whole tiles.

    tensors: values, packed. ints: groups, channels per group, oc_tile, stride of values.
    Tasks: (group, tile).
    """
    p = read_pack_channels(ints, floats)
    per_group, tile, stride = p.per_group, p.oc_tile, p.stride
    tiles = (per_group + tile - 1) // tile
    for task in range(begin, end):
        group, first = task // tiles, task % tiles * tile
        source = shift(pointer(tensors, 0, float32), group * per_group * stride)
        target = shift(pointer(tensors, 1, float32), task * tile)
        for j in range(tile):
            c = first + j
            target[j] = source[c * stride] if c < per_group else np.float32(0)


_ROWS = 16 * _TILE
"""The sums of a block of inputs by one of outputs, of sixteen taps."""


@kernel("gather_weight_gradient")
def gather_weight_gradient(tensors, ints, floats, begin, end):
    """Sums over the copies, from blocks of channels to `[outputs][channels][taps]`; see the record.

    tensors: sums, output. Tasks: (head block, data block).
    """
    p = read_gather_weight_gradient(ints, floats)
    copies, taps, lanes, inner, outputs, channels = p.copies, p.taps, p.lanes, p.inner, p.outputs, p.channels
    block_size = taps * lanes * 16
    copy_size = p.head_blocks * p.data_blocks * block_size
    after = lanes // inner
    step = p.row
    room, rows = scratch(_TILE), scratch(_ROWS)
    for task in range(begin, end):
        head, data = task // p.data_blocks, task % p.data_blocks
        source = shift(pointer(tensors, 0, float32), task * block_size)
        first = data * inner
        target = shift(pointer(tensors, 1, float32), (head * 16 * channels + first) * step)
        valid_outputs, valid = min(16, outputs - head * 16), min(inner, channels - first)
        if after == 1 and valid == 16:
            # Up to 16 taps at once: their tiles [channel][output] are transposed, then written channel by channel.
            for first_tap in range(0, taps, 16):
                count = min(16, taps - first_tap)
                for tap in range(count):
                    tile = shift(source, (first_tap + tap) * lanes * 16)
                    for lane in range(16):
                        total = load_lanes(tile, lane * 16)
                        for copy in range(1, copies):
                            total = total + load_lanes(tile, copy * copy_size + lane * 16)
                        store_lanes(room, lane * 16, total)
                    transpose_lanes(room, 16, shift(rows, tap * 16), 256)
                for o in range(valid_outputs):
                    row = shift(target, o * channels * step + first_tap)
                    if step == 1:
                        store_lanes(row, 0, load_lanes(rows, o * 256))
                        continue
                    for i in range(16):
                        for tap in range(count):
                            row[i * step + tap] = rows[o * 256 + tap * 16 + i]
            continue
        for o in range(valid_outputs):
            row = shift(target, o * channels * step)
            for i in range(valid):
                for tap in range(taps):
                    for a in range(after):
                        cell = shift(source, (tap * lanes + a * inner + i) * 16 + o)
                        value = cell[0]
                        for copy in range(1, copies):
                            value += cell[copy * copy_size]
                        row[i * step + tap * after + a] = value
