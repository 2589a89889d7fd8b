"""Winograd's F(2x2, 3x3) and F(4x4, 3x3): the transforms around the matrix products of a 3x3 convolution.

An output tile of T x T pixels (T is 2 or 4) comes from an input tile of S x S (S = T + 2), and S * S products of
matrices `[tiles][in channels] x [in channels][out channels]` take the place of the convolution's sum
(Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015). The polynomials are interpolated
at 0, 1, -1 and infinity, and for F(4x4) at 0, 5/8, -5/8, 3/2, -3/2 and infinity: every constant is exact in
float32, and rounding errors are half of those with the points 1 and 2.

All strides are in elements. A *strip* is a run of tile rows, counted through all images. A dilated convolution is one
without dilation of each *phase*, of the pixels that lie a multiple of the dilation apart: a phase is an image here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import float32

from ngraph_mxnet.targets.cpu.kernels.lanes import (
    clamp_lanes,
    load_lanes,
    narrow,
    splat,
    store_lanes,
    transpose_lanes,
    widen,
)
from ngraph_mxnet.targets.cpu.kernels.pointers import inline, offset_of, pointer, reader, scratch, shift
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.params.layout import GATHER, INPUT, OUTPUT, OUTPUT_FLAGS, PACK
from ngraph_mxnet.targets.cpu.planning.algorithm import POINTS

read_input = reader(INPUT)
read_output = reader(OUTPUT)
read_pack = reader(PACK)
read_gather = reader(GATHER)

_RESIDUAL, _OUTPUT2 = OUTPUT_FLAGS["residual"], OUTPUT_FLAGS["output2"]
_A, _B = POINTS
_A2, _B2 = _A * _A, _B * _B


@inline
def _input_2(source, step, target, target_step):
    """Four lanes, `step` apart, to four."""
    d0, d1 = load_lanes(source, 0), load_lanes(source, step)
    d2, d3 = load_lanes(source, 2 * step), load_lanes(source, 3 * step)
    store_lanes(target, 0, d2 - d0)
    store_lanes(target, target_step, d2 + d1)
    store_lanes(target, 2 * target_step, d2 - d1)
    store_lanes(target, 3 * target_step, d3 - d1)


@inline
def _input_4(source, step, target, target_step):
    """Six lanes to six."""
    a, b, a2, b2 = (splat(np.float32(_A)), splat(np.float32(_B)), splat(np.float32(_A2)), splat(np.float32(_B2)))
    both, product = splat(np.float32(_A2 + _B2)), splat(np.float32(_A2 * _B2))
    d0, d2, d4 = load_lanes(source, 0), load_lanes(source, 2 * step), load_lanes(source, 4 * step)
    d1, d3, d5 = load_lanes(source, step), load_lanes(source, 3 * step), load_lanes(source, 5 * step)
    store_lanes(target, 0, (d4 - both * d2) + product * d0)
    even, odd = d4 - b2 * d2, d3 - b2 * d1
    store_lanes(target, target_step, even + a * odd)
    store_lanes(target, 2 * target_step, even - a * odd)
    even, odd = d4 - a2 * d2, d3 - a2 * d1
    store_lanes(target, 3 * target_step, even + b * odd)
    store_lanes(target, 4 * target_step, even - b * odd)
    store_lanes(target, 5 * target_step, (d5 - both * d3) + product * d1)


@inline
def _output_2(source, step, target, target_step):
    """Four lanes to two."""
    m0, m1 = load_lanes(source, 0), load_lanes(source, step)
    m2, m3 = load_lanes(source, 2 * step), load_lanes(source, 3 * step)
    store_lanes(target, 0, m0 + (m1 + m2))
    store_lanes(target, target_step, (m1 - m2) + m3)


@inline
def _output_4(source, step, target, target_step):
    """Six lanes to four."""
    m1, m2 = load_lanes(source, step), load_lanes(source, 2 * step)
    m3, m4 = load_lanes(source, 3 * step), load_lanes(source, 4 * step)
    even_a, odd_a, even_b, odd_b = m1 + m2, m1 - m2, m3 + m4, m3 - m4
    store_lanes(target, 0, load_lanes(source, 0) + (even_a + even_b))
    store_lanes(target, target_step, splat(np.float32(_A)) * odd_a + splat(np.float32(_B)) * odd_b)
    store_lanes(target, 2 * target_step, splat(np.float32(_A2)) * even_a + splat(np.float32(_B2)) * even_b)
    last = load_lanes(source, 5 * step) + splat(np.float32(_A * _A2)) * odd_a
    store_lanes(target, 3 * target_step, last + splat(np.float32(_B * _B2)) * odd_b)


@inline
def _head_2(source, step, target, target_step):
    """Two lanes to four: the transpose of `_output_2`."""
    d0, d1 = load_lanes(source, 0), load_lanes(source, step)
    store_lanes(target, 0, d0)
    store_lanes(target, target_step, d0 + d1)
    store_lanes(target, 2 * target_step, d0 - d1)
    store_lanes(target, 3 * target_step, d1)


@inline
def _head_4(source, step, target, target_step):
    """Four lanes to six: the transpose of `_output_4`."""
    a, b, a2, b2 = (splat(np.float32(_A)), splat(np.float32(_B)), splat(np.float32(_A2)), splat(np.float32(_B2)))
    d0, d1 = load_lanes(source, 0), load_lanes(source, step)
    d2, d3 = load_lanes(source, 2 * step), load_lanes(source, 3 * step)
    store_lanes(target, 0, d0)
    even, odd = d0 + a2 * d2, a * (d1 + a2 * d3)
    store_lanes(target, target_step, even + odd)
    store_lanes(target, 2 * target_step, even - odd)
    even, odd = d0 + b2 * d2, b * (d1 + b2 * d3)
    store_lanes(target, 3 * target_step, even + odd)
    store_lanes(target, 4 * target_step, even - odd)
    store_lanes(target, 5 * target_step, d3)


@inline
def _picked(size, first, step):
    """How many of `size` pixels every `step`-th from `first` on are."""
    return (size - first + step - 1) // step


@inline
def _row_of_tiles(p, strip_row, tile):
    """The image of a row of tiles; its phase's first row and column there, rows and columns; its row in the phase."""
    row, steps = p.first_row + strip_row, p.step.row * p.step.column
    number = row // p.tile_rows
    image, phase = number // steps, number % steps
    first_row, first_column = phase // p.step.column, phase % p.step.column
    return (image, first_row, first_column, _picked(p.rows, first_row, p.step.row),
            _picked(p.columns, first_column, p.step.column), row % p.tile_rows * tile)


def _input_kernel(tile: int, taken: int, transform: Callable) -> Callable:
    """Squares of `taken` pixels, `tile` apart, to matrices."""
    side, pitch, room = tile + 2, (tile + 2) * 16, (tile + 2) ** 2 * 16

    def winograd_input(tensors, ints, floats, begin, end):
        """A strip of a blocked image to its matrices `[S * S][blocks][tiles][16]`, zeros beyond the padded image.

        tensors: image (with a halo of at least the padding), matrices. Tasks: (tile row of the strip, block).
        """
        p = read_input(ints, floats)
        in_row, in_pixel = p.image.row * p.step.row, 16 * p.step.column
        half, edge = scratch(room), scratch(room)
        for task in range(begin, end):
            strip_row, block = task // p.blocks, task % p.blocks
            image, phase_row, phase_column, rows, columns, top = _row_of_tiles(p, strip_row, tile)
            place = p.origin + offset_of(p.image, (image, block, phase_row)) + phase_column * 16
            source = shift(pointer(tensors, 0, float32), place + top * in_row)
            target = shift(pointer(tensors, 1, float32), block * p.matrices.c + strip_row * p.tile_columns * 16)
            high = min(rows - top, taken)
            for column in range(p.tile_columns):
                data, step, pixel = shift(source, column * tile * in_pixel), in_row, in_pixel
                wide = min(columns - column * tile, taken)
                if high < taken or wide < taken:
                    for y in range(taken):
                        for x in range(taken):
                            value = splat(np.float32(0))
                            if y < high and x < wide:
                                value = load_lanes(data, y * in_row + x * in_pixel)
                            store_lanes(edge, y * pitch + x * 16, value)
                    data, step, pixel = edge, pitch, 16
                for x in range(taken):
                    transform(shift(data, x * pixel), step, shift(half, x * 16), pitch)
                for y in range(side):
                    matrix = shift(target, y * side * p.matrices.matrix + column * 16)
                    transform(shift(half, y * pitch), 16, matrix, p.matrices.matrix)

    return winograd_input


def _output_kernel(tile: int, transform: Callable) -> Callable:
    side, pitch = tile + 2, (tile + 2) * 16
    room, line = tile * side * 16, tile * 16

    def winograd_output(tensors, ints, floats, begin, end):
        """The products `[S * S][blocks][tiles][16]` of a strip to the blocked result, and a contraction's epilogue.

        tensors: products, bias, residual, output2, scale2, shift2, output (residual to shift2 as `flags` tell; the
        vectors in whole blocks). Tasks: (tile row of the strip, block).
        """
        p = read_output(ints, floats)
        pixel = 16 * p.step.column
        lower, upper = splat(np.float32(p.lower)), splat(np.float32(p.upper))
        half, pixels = scratch(room), scratch(line)
        for task in range(begin, end):
            strip_row, block = task // p.blocks, task % p.blocks
            image, phase_row, phase_column, rows, columns, top = _row_of_tiles(p, strip_row, tile)
            source = shift(pointer(tensors, 0, float32), block * p.products.c + strip_row * p.tile_columns * 16)
            target = shift(pointer(tensors, 6, float32), offset_of(p.output, (image, block)) + phase_column * 16)
            bias = load_lanes(pointer(tensors, 1, float32), block * 16)
            high = min(rows - top, tile)
            for column in range(p.tile_columns):
                left = column * tile
                wide = min(columns - left, tile)
                for x in range(side):
                    matrix = shift(source, x * p.products.matrix + column * 16)
                    transform(matrix, side * p.products.matrix, shift(half, x * 16), pitch)
                for y in range(high):
                    transform(shift(half, y * pitch), 16, pixels, 16)
                    image_row, image_column = phase_row + (top + y) * p.step.row, phase_column * 16 + left * pixel
                    out = shift(target, image_row * p.output.row + left * pixel)
                    if p.flags & _RESIDUAL:
                        place = offset_of(p.residual, (image, block, image_row)) + image_column
                        residual = shift(pointer(tensors, 2, float32), place)
                        for x in range(wide):
                            value = load_lanes(pixels, x * 16) + bias + load_lanes(residual, x * pixel)
                            store_lanes(out, x * pixel, clamp_lanes(value, lower, upper))
                    else:
                        for x in range(wide):
                            value = load_lanes(pixels, x * 16) + bias
                            store_lanes(out, x * pixel, clamp_lanes(value, lower, upper))
                    if p.flags & _OUTPUT2:
                        place = offset_of(p.output2, (image, block, image_row)) + image_column
                        second = shift(pointer(tensors, 3, float32), place)
                        scale = load_lanes(pointer(tensors, 4, float32), block * 16)
                        offset = load_lanes(pointer(tensors, 5, float32), block * 16)
                        lower2, upper2 = splat(np.float32(p.lower2)), splat(np.float32(p.upper2))
                        for x in range(wide):
                            value = load_lanes(out, x * pixel) * scale + offset
                            store_lanes(second, x * pixel, clamp_lanes(value, lower2, upper2))

    return winograd_output


for _tile, _input, _head, _output in ((2, _input_2, _head_2, _output_2), (4, _input_4, _head_4, _output_4)):
    kernel(f"winograd_input_{_tile}")(_input_kernel(_tile, _tile + 2, _input))
    kernel(f"winograd_head_{_tile}")(_input_kernel(_tile, _tile, _head))
    kernel(f"winograd_output_{_tile}")(_output_kernel(_tile, _output))


_FILTERS = 9 * 16
_FOUND = 6 * 6 * 16 * 16


@inline
def _row(filters, floats, row, x):
    """Row `row` of 16 filters by column x of the weights' matrix."""
    total = splat(0.0)
    for j in range(3):
        total = total + splat(floats[x * 3 + j]) * widen(load_lanes(filters, (row * 3 + j) * 16))
    return total


@kernel("pack_winograd")
def pack_winograd(tensors, ints, floats, begin, end):
    """Weights `[OC][IC][3][3]` with any strides to `[S * S]` packed matrices `[oc groups][ic blocks][16][oc_tile]`,
    computed in float64.

    tensors: weights, packed. floats: `winograd.weight_matrix`, row by row.
    Tasks: (oc group, ic block).
    """
    p = read_pack(ints, floats)
    blocks = (p.in_channels + 15) // 16
    matrix = (p.out_channels + p.oc_tile - 1) // p.oc_tile * blocks * 16 * p.oc_tile
    oc_stride, side = p.weights.oc, p.side
    filters, found = scratch(_FILTERS), scratch(_FOUND)
    for task in range(begin, end):
        group, block = task // blocks, task % blocks
        for part in range(0, p.oc_tile, 16):
            first = group * p.oc_tile + part
            for k in range(16):
                ic = block * 16 + k
                inside = min(p.out_channels - first, 16) if ic < p.in_channels else 0
                for tap in range(9):
                    at = ic * p.weights.ic + tap // 3 * p.weights.kh + tap % 3 * p.weights.kw
                    source = shift(pointer(tensors, 0, float32), first * oc_stride + at)
                    if inside == 16:
                        for lane in range(16):
                            filters[tap * 16 + lane] = source[lane * oc_stride]
                    else:
                        for lane in range(16):
                            filters[tap * 16 + lane] = source[lane * oc_stride] if lane < inside else np.float32(0)
                for x in range(side):
                    top, middle, bottom = (_row(filters, floats, 0, x), _row(filters, floats, 1, x),
                                           _row(filters, floats, 2, x))
                    for y in range(side):
                        total = splat(floats[y * 3]) * top + splat(floats[y * 3 + 1]) * middle
                        total = total + splat(floats[y * 3 + 2]) * bottom
                        store_lanes(found, ((y * side + x) * 16 + k) * 16, narrow(total))
            # By way of the stack: matrices lie powers of two apart, where caches have few places for all at once.
            for number in range(side * side):
                target = shift(pointer(tensors, 1, float32), number * matrix + task * 16 * p.oc_tile + part)
                for k in range(16):
                    store_lanes(target, k * p.oc_tile, load_lanes(found, (number * 16 + k) * 16))


_ROWS = 9 * 16 * 16


@kernel("gather_winograd")
def gather_winograd(tensors, ints, floats, begin, end):
    """The sums `[S * S][head blocks][data blocks][16 inputs][16 outputs]` of a weight gradient's products to weights
    `[OC][IC][3][3]`, computed in float64.

    tensors: sums, output. floats: `winograd.weight_matrix`, row by row.
    Tasks: (head block, data block).
    """
    p = read_gather(ints, floats)
    blocks, side = (p.channels + 15) // 16, p.side
    matrix = (p.outputs + 15) // 16 * blocks * 256
    rows = scratch(_ROWS)
    for task in range(begin, end):
        head, data = task // blocks, task % blocks
        outputs, channels = min(p.outputs - head * 16, 16), min(p.channels - data * 16, 16)
        for i in range(channels):
            source = shift(pointer(tensors, 0, float32), task * 256 + i * 16)
            for row in range(3):
                left, middle, right = splat(0.0), splat(0.0), splat(0.0)
                for x in range(side):
                    total = splat(0.0)
                    for y in range(side):
                        total = total + splat(floats[y * 3 + row]) * widen(load_lanes(source, (y * side + x) * matrix))
                    left = left + splat(floats[x * 3]) * total
                    middle = middle + splat(floats[x * 3 + 1]) * total
                    right = right + splat(floats[x * 3 + 2]) * total
                place = (i * 9 + row * 3) * 16
                store_lanes(rows, place, narrow(left))
                store_lanes(rows, place + 16, narrow(middle))
                store_lanes(rows, place + 32, narrow(right))
        target = shift(pointer(tensors, 1, float32), (head * 16 * p.channels + data * 16) * 9)
        if outputs == 16 and channels == 16:
            for part in range(0, 144, 16):
                transpose_lanes(shift(rows, part * 16), 16, shift(target, part), p.channels * 9)
        else:
            for o in range(outputs):
                for at in range(channels * 9):
                    target[o * p.channels * 9 + at] = rows[at * 16 + o]
