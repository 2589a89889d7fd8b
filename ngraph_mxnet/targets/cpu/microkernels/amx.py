"""The inner loops of a contraction in the tiles of Intel's AMX: up to 16 pixels by 64 outputs.

Four tiles hold sums of 16 outputs each. Where a kernel has fewer outputs, the steps take turns with them, so that four
products are under way: one takes 52 cycles, and the next one that adds to another tile may begin after 16. A step has
16 input channels: half of what a product of bf16 takes, and a quarter of one of bytes. Steps that lie one behind the
other in the input (a matrix's columns, the taps of a row) are one product.

The intrinsics are LLVM's direct ones, whose tiles are numbers: the managed ones are miscompiled, and configure the unit
anew at each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from llvmlite import ir

from ngraph_mxnet.targets.cpu.microkernels.emit import BYTE, F32, I32, I64, PTR, WORDS, Emitter, integer
from ngraph_mxnet.targets.cpu.microkernels.tile import TileValues, finish, prefetch_weights, so_far
from ngraph_mxnet.targets.cpu.microkernels.variants import Variant, sets_of_tiles

__all__ = ["Unit"]

_SUMS, _INPUTS, _WEIGHTS = range(4), (4, 5), (6, 7)
"""The numbers of tiles; of input and weights there is one for a step and one for several."""
_ROW = 64
"""Bytes of a tile's row."""
_PIXELS = 16
_CHUNK = 4
"""Pixels that are stored together."""
_ROWS, _BYTES = 48, 16
"""Where the rows of tile 0, and the bytes of its rows, stand in a configuration."""


def _step_bytes(variant: Variant) -> int:
    """The bytes of a pixel that a step reads: words, as many as there are rows of weights."""
    return 4 * variant.lanes


def _configuration(variant: Variant) -> bytes:
    """The configuration but for the rows of sums and inputs, which are the tile's pixels, and for several steps."""
    found = bytearray(64)
    found[0] = 1
    for tile in (*_SUMS, *_WEIGHTS):
        found[_BYTES + 2 * tile] = _ROW
    found[_BYTES + 2 * _INPUTS[0]] = _step_bytes(variant)
    found[_ROWS + _WEIGHTS[0]] = variant.lanes
    return bytes(found)


@dataclass(frozen=True)
class Unit:
    """What a call of a kernel keeps of the unit: the configuration, for how many pixels it is, and memory for sums."""

    variant: Variant
    configuration: ir.Value
    pixels: ir.Value
    sums: ir.Value
    joined: ir.Value
    """Steps of a product of several."""

    @staticmethod
    def of(e: Emitter, variant: Variant, table: ir.Value, steps: ir.Value) -> Unit:
        """At the start of a function, whose stack holds them. The unit is not configured yet.

        Args:
            table: where the input of each of the `steps` lies.
        """
        b = e.builder

        def memory(kind: ir.Type) -> ir.Value:
            found = b.alloca(kind)
            found.align, found.type = 64, PTR  # of bytes, as all pointers here
            return found

        def offset(number: int) -> ir.Value:
            return e.load_offset(table, e.least(integer(number), b.sub(steps, integer(1))))

        content = ir.Constant(ir.ArrayType(BYTE, 64), bytearray(_configuration(variant)))
        configuration, pixels = memory(content.type), memory(I64)
        b.store(content, configuration, align=64)
        b.store(integer(0), pixels, align=8)
        joined: ir.Value = integer(2)
        first = offset(0)
        for count in range(3, _ROW // _step_bytes(variant) + 1):
            # They are apart by whole steps, so the last of them says that all follow each other.
            follows = e.equals(b.sub(offset(count - 1), first), _step_bytes(variant) * (count - 1))
            joined = b.select(follows, integer(count), joined)
        for place, each in ((_BYTES + 2 * _INPUTS[1], _step_bytes(variant)), (_ROWS + _WEIGHTS[1], variant.lanes)):
            b.store(b.trunc(b.mul(joined, integer(each)), BYTE), e.at(configuration, place), align=1)
        return Unit(variant, configuration, pixels, memory(ir.ArrayType(F32, len(_SUMS) * _PIXELS * _ROW // 4)), joined)

    def release(self, e: Emitter) -> None:
        """Leave the unit as it was found: what a thread keeps there makes each switch to another one slower."""
        _call(e, "tilerelease")

    def emit(self, e: Emitter, v: TileValues, pixels: ir.Value) -> None:
        """A tile of so many pixels, at most 16, at the builder's position."""
        self._configure(e, pixels)
        self._accumulate(e, v)
        whole = e.builder.and_(pixels, integer(-_CHUNK))
        e.loop(integer(0), whole, lambda first: self._finish(e, v, first, _CHUNK), step=_CHUNK)
        e.loop(whole, pixels, lambda first: self._finish(e, v, first, 1))

    def _configure(self, e: Emitter, pixels: ir.Value) -> None:
        """For so many pixels, if it is for others."""
        b = e.builder

        def configure() -> list[ir.Value]:
            rows = b.trunc(pixels, BYTE)
            for tile in (*_SUMS, *_INPUTS):
                b.store(rows, e.at(self.configuration, _ROWS + tile), align=1)
            b.store(pixels, self.pixels, align=8)
            _call(e, "ldtilecfg", self.configuration)
            return []

        e.when(b.icmp_signed("!=", e.load(self.pixels, I64, 8), pixels), [], configure)

    def _accumulate(self, e: Emitter, v: TileValues) -> None:
        """Add the products of a block of steps in the tiles, and store those."""
        b, variant = e.builder, self.variant
        blocks = variant.blocks
        tiles = range(sets_of_tiles(variant) * blocks)
        start, between = e.at(v.input, e.load_offset(v.offsets, integer(0))), integer(4 * variant.oc_tile)
        for tile in tiles:
            _call(e, "tilezero", tile)
        ahead = b.sub(self.joined, integer(1))
        apart = b.mul(ahead, integer(_step_bytes(variant)))

        def multiply(number: int, first: int, carried: Sequence[ir.Value], offset: ir.Value) -> list[ir.Value]:
            step, weights, fetched = carried
            steps = self.joined if number else integer(1)
            data, packed = _INPUTS[number], _WEIGHTS[number]
            _call(e, "tileloadd64", data, e.at(start, offset), v.pixel_stride)
            for block in range(blocks):
                _call(e, "tileloadd64", packed, e.at(weights, _ROW * block), between)
                _call(e, "tdpbusd" if variant.u8 else "tdpbf16ps", first + block, data, packed)
            fetched = prefetch_weights(e, fetched, variant.prefetch_bytes, b.mul(steps, v.prefetches))
            return [e.at(step, b.mul(steps, integer(4))),
                    e.at(weights, b.mul(steps, integer(4 * variant.lanes * variant.oc_tile))), fetched]

        def turn(first: int, carried: Sequence[ir.Value]) -> list[ir.Value]:
            """One step or several."""
            step = carried[0]
            last = e.at(step, b.mul(ahead, integer(4)))
            offset = b.sext(e.load(step, I32), I64)
            there = b.select(b.icmp_unsigned("<", last, v.steps_end), last, step)
            joins = b.icmp_signed("==", b.sub(b.sext(e.load(there, I32), I64), offset), apart)
            return e.either(joins, lambda: multiply(1, first, carried, offset),
                            lambda: multiply(0, first, carried, offset))

        def body(carried: list[ir.Value]) -> tuple[ir.Value, Sequence[ir.Value]]:
            values: Sequence[ir.Value] = carried
            for first in range(0, len(tiles), blocks):
                if first:
                    left = b.icmp_unsigned("!=", values[0], v.steps_end)
                    values = e.when(left, values, partial(turn, first, values))
                else:
                    values = turn(first, values)
            return b.icmp_unsigned("!=", values[0], v.steps_end), values

        e.repeat("steps", [v.steps, v.weights, v.ahead], body)
        for tile in tiles:
            _call(e, "tilestored64", tile, self._sums_of(e, tile // blocks, tile % blocks), between)

    def _sums_of(self, e: Emitter, turn: int, block: int) -> ir.Value:
        """Where the sums of a block of outputs are stored, of the steps of a turn: `[turn][pixel][output]`."""
        return e.at(self.sums, 4 * self.variant.oc_tile * _PIXELS * turn + _ROW * block)

    def _finish(self, e: Emitter, v: TileValues, first: ir.Value, count: int) -> None:
        """Store the results of `count` pixels from `first` on."""
        b, variant = e.builder, self.variant
        row, here = b.mul(first, integer(4 * variant.oc_tile)), v.behind(e, first)
        sums = so_far(e, here, variant, count)
        for block in range(variant.blocks):
            for turn in range(sets_of_tiles(variant)):
                places = e.at(self._sums_of(e, turn, block), row)
                for pixel in range(count):
                    at = block * count + pixel
                    added = e.load(e.at(places, 4 * variant.oc_tile * pixel), WORDS if variant.u8 else e.vector, 64)
                    sums[at] = b.add(sums[at], added) if variant.u8 else b.fadd(sums[at], added)
        finish(e, here, variant, sums, count)


def _call(e: Emitter, name: str, *operands: ir.Value | int) -> None:
    """An instruction; an int is a tile."""
    given = [ir.Constant(BYTE, each) if isinstance(each, int) else each for each in operands]
    module = e.function.module
    callee = module.globals.get(f"llvm.x86.{name}") or ir.Function(
        module, ir.FunctionType(ir.VoidType(), [each.type for each in given]), name=f"llvm.x86.{name}")
    e.builder.call(callee, given)
