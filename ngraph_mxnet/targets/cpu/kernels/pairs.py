"""Products of bf16 for kernels of avx512 that are named for them: in pairs of AVX512_BF16, and in AMX's tiles.

A pair has the place of a float32: what holds pairs is a pointer to float32, which never computes with them.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ngraph_mxnet.targets.cpu.kernels.lanes import F32, lanes_at, load_lanes, splat, store_lanes
from ngraph_mxnet.targets.cpu.kernels.pointers import emits, inline, scratch, shift
from ngraph_mxnet.targets.cpu.microkernels import bf16

__all__ = ["configure_tiles", "dot_lanes", "products_in_tiles", "release_tiles", "store_rounded",
           "store_rounded_pairs"]


@emits(lambda sums, x, y: F32(F32, F32, F32))
def dot_lanes(builder, sums, x, y):
    """The sums plus, lane by lane, the products of both bf16 of the pairs x and y."""
    return bf16.dot_pairs(builder, x, y, sums)


@emits(lambda base, index, value: types.none(base, types.int64, F32))
def store_rounded(builder, base, index, value):
    """Sixteen floats as bf16, from pair `index` on: eight pairs."""
    bits = bf16.round_lanes(builder, value)
    builder.store(bits, lanes_at(builder, base, index, bits.type), align=4)


@emits(lambda base, index, first, second: types.none(base, types.int64, F32, F32))
def store_rounded_pairs(builder, base, index, first, second):
    """Sixteen pairs of a lane of `first` and that of `second`, as bf16, from pair `index` on."""
    bits = bf16.round_pairs(builder, first, second)
    order = [at // 2 + 16 * (at % 2) for at in range(32)]
    turned = builder.shuffle_vector(bits, ir.Constant(bits.type, ir.Undefined),
                                    ir.Constant(ir.VectorType(ir.IntType(32), 32), order))
    builder.store(turned, lanes_at(builder, base, index, bits.type), align=4)


# ---- tiles -----------------------------------------------------------------------------------------------

_WORD = 4
_REST = 512
"""Two tiles of a last product that is half full, in floats."""
_BYTE = ir.IntType(8)


@intrinsic
def configure_tiles(typingctx):
    """All tiles are whole, from here to `release_tiles`."""

    def generate(context, builder, signature, arguments):
        kind = ir.ArrayType(_BYTE, 64)
        with builder.goto_entry_block():
            room = builder.alloca(kind)
        room.align = 64
        builder.store(ir.Constant(kind, bytearray(bf16.tile_configuration())), room, align=64)
        bf16.tile_instruction(builder, "ldtilecfg", builder.bitcast(room, _BYTE.as_pointer()))
        return context.get_dummy_value()

    return types.none(), generate


@intrinsic
def release_tiles(typingctx):
    def generate(context, builder, signature, arguments):
        bf16.tile_instruction(builder, "tilerelease")
        return context.get_dummy_value()

    return types.none(), generate


@intrinsic(prefer_literal=True)
def _tile(typingctx, name, tile, base, step):
    """A tile is loaded from rows `step` words apart, or stored there."""
    instruction, number = name.literal_value, tile.literal_value

    def generate(context, builder, signature, arguments):
        _, _, place, words = arguments
        bf16.tile_instruction(builder, instruction, number, builder.bitcast(place, _BYTE.as_pointer()),
                              builder.mul(words, words.type(_WORD)))
        return context.get_dummy_value()

    return types.none(name, tile, base, types.int64), generate


@intrinsic(prefer_literal=True)
def _multiply(typingctx, sums, rows, matrix):
    """The tile `sums` plus the product of two tiles."""
    tiles = [operand.literal_value for operand in (sums, rows, matrix)]

    def generate(context, builder, signature, arguments):
        bf16.tile_instruction(builder, "tdpbf16ps", *tiles)
        return context.get_dummy_value()

    return types.none(sums, rows, matrix), generate


@intrinsic(prefer_literal=True)
def _clear(typingctx, tile):
    number = tile.literal_value

    def generate(context, builder, signature, arguments):
        bf16.tile_instruction(builder, "tilezero", number)
        return context.get_dummy_value()

    return types.none(tile), generate


@inline
def products_in_tiles(rows, step, count, matrix, other, size, columns, target, target_step):
    """target[count][columns]: rows of `size` pairs, `step` apart, by a matrix of 16 columns, or by two.

    There is room for whole tiles: `count` may be a multiple of 16. `size` is one of 8. If it is none of 16, eight zeros
    follow each row.
    """
    whole, rest, zeros = size // 16 * 16, scratch(_REST), splat(np.float32(0))
    if whole < size:
        for at in range(0, 128, 16):
            store_lanes(rest, at, load_lanes(matrix, whole * 16 + at))
            store_lanes(rest, 128 + at, zeros)
            if columns == 32:
                store_lanes(rest, 256 + at, load_lanes(other, whole * 16 + at))
                store_lanes(rest, 384 + at, zeros)
    for row in range(0, count, 32):
        upper, lower = shift(rows, row * step), shift(rows, (row + 16) * step)
        place, below = shift(target, row * target_step), shift(target, (row + 16) * target_step)
        both = row + 16 < count
        _clear(0)
        _clear(1)
        _clear(2)
        _clear(3)
        for at in range(0, size, 16):
            left, right = shift(matrix, at * 16), shift(other, at * 16)
            if at == whole:
                left, right = rest, shift(rest, 256)
            _tile("tileloadd64", 4, shift(upper, at), step)
            _tile("tileloadd64", 6, left, 16)
            _multiply(0, 4, 6)
            if both:
                _tile("tileloadd64", 5, shift(lower, at), step)
                _multiply(2, 5, 6)
            if columns == 32:
                _tile("tileloadd64", 7, right, 16)
                _multiply(1, 4, 7)
                if both:
                    _multiply(3, 5, 7)
        _tile("tilestored64", 0, place, target_step)
        if both:
            _tile("tilestored64", 2, below, target_step)
        if columns == 32:
            _tile("tilestored64", 1, shift(place, 16), target_step)
            if both:
                _tile("tilestored64", 3, shift(below, 16), target_step)
