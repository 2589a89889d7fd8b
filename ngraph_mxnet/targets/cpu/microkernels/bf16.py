"""LLVM's instructions on bf16, for every builder of IR: AVX512_BF16's on vectors, and those of AMX's tiles.

AMX's intrinsics are LLVM's direct ones, whose tiles are numbers: the managed ones are miscompiled, and configure the
unit anew at each call.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

__all__ = ["dot_pairs", "round_lanes", "round_pairs", "tile_configuration", "tile_instruction"]

_TILES, _TILE_ROWS, _ROW = 8, 16, 64
"""Tiles, rows of a tile, bytes of a row."""
_ROWS, _BYTES = 48, 16
"""Where the rows of tile 0, and the bytes of its rows, stand in a configuration."""


class _BFloat(ir.Type):
    """LLVM's bf16, which llvmlite does not have."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


_BYTE = ir.IntType(8)
_FLOATS = ir.VectorType(ir.FloatType(), 16)
_LANES, _PAIRS = (ir.VectorType(_BFloat(), count) for count in (16, 32))
_BITS_OF_LANES, _BITS_OF_PAIRS = (ir.VectorType(ir.IntType(16), count) for count in (16, 32))


def _call(b: ir.IRBuilder, name: str, result: ir.Type, operands: Sequence[ir.Value]) -> ir.Value:
    """A call of the intrinsic `llvm.x86.<name>`."""
    name = f"llvm.x86.{name}"
    callee = b.module.globals.get(name) or ir.Function(
        b.module, ir.FunctionType(result, [each.type for each in operands]), name=name)
    return b.call(callee, operands)


def dot_pairs(b: ir.IRBuilder, x: ir.Value, y: ir.Value, sums: ir.Value) -> ir.Value:
    """Sixteen sums plus, lane by lane, the products of both bf16 of the pairs x and y, 64 bytes of any type."""
    return _call(b, "avx512bf16.dpbf16ps.512", _FLOATS, [sums, b.bitcast(x, _PAIRS), b.bitcast(y, _PAIRS)])


def round_lanes(b: ir.IRBuilder, values: ir.Value) -> ir.Value:
    """The bits of sixteen floats as bf16, to nearest, ties to even; NaN stays NaN."""
    return b.bitcast(_call(b, "avx512bf16.cvtneps2bf16.512", _LANES, [values]), _BITS_OF_LANES)


def round_pairs(b: ir.IRBuilder, low: ir.Value, high: ir.Value) -> ir.Value:
    """The same of two times sixteen floats, those of `low` in front."""
    return b.bitcast(_call(b, "avx512bf16.cvtne2ps2bf16.512", _PAIRS, [high, low]), _BITS_OF_PAIRS)


def tile_configuration() -> bytes:
    """All tiles are whole."""
    found = bytearray(_ROW)
    found[0] = 1
    for tile in range(_TILES):
        found[_BYTES + 2 * tile], found[_ROWS + tile] = _ROW, _TILE_ROWS
    return bytes(found)


def tile_instruction(b: ir.IRBuilder, name: str, *operands: ir.Value | int) -> None:
    """An instruction; an int is a tile."""
    _call(b, name, ir.VoidType(), [_BYTE(each) if isinstance(each, int) else each for each in operands])
