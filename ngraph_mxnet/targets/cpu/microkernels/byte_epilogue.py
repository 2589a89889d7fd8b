"""IR of what follows the sums of a contraction of u8, in the units of its first output."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from ngraph_mxnet.targets.cpu.microkernels.emit import F32, F64, WORDS, Emitter
from ngraph_mxnet.targets.cpu.microkernels.params import QUANTIZED_CONTRACTION
from ngraph_mxnet.targets.cpu.microkernels.tile_values import TileValues, inline_activation, places
from ngraph_mxnet.targets.cpu.microkernels.variants import Variant

__all__ = ["emit_byte_epilogue"]


def emit_byte_epilogue(e: Emitter, v: TileValues, variant: Variant, block: int, sums: Sequence[ir.Value]) -> list:
    """Factor and addend, residual, clamp, activation, output and second output of one channel block."""
    b = e.builder
    narrow_output, narrow_residual, narrow_output2 = v.is_narrow

    def where(base: ir.Value, stride: ir.Value, tensor: int) -> list[ir.Value]:
        return places(e, v, base, stride, tensor, block, len(sums))

    factor, addend = (e.load(e.at(p, 64 * block), e.vector) for p in (v.factor, v.addend))
    numbers = [b.sitofp(value, e.vector) for value in sums] if variant.whole else sums
    values = [e.multiply_add(value, factor, addend) for value in numbers]

    def add_residual() -> list[ir.Value]:
        (scale,), at = _floats(e, v, "residual_scale"), where(v.residual, v.res_block_stride, 2)

        def add(load: Callable[[ir.Value], ir.Value]) -> list[ir.Value]:
            return [e.multiply_add(load(place), scale, value) for place, value in zip(at, values, strict=True)]

        return e.either(narrow_residual, lambda: add(e.load_u8), lambda: add(lambda p: e.load(p, e.vector)))

    def real() -> list[ir.Value]:
        lower, upper = _floats(e, v, "lower", "upper")
        clamped = [e.clamp(value, lower, upper) for value in values]
        return inline_activation(e, v, block, clamped, lambda *names: _floats(e, v, *names))

    values = e.when(v.has_residual, values, add_residual)
    # Bytes without an activation are clamped as they are stored.
    needed = b.or_(b.or_(b.not_(e.equals(v.activation, 0)), v.has_output2), b.not_(narrow_output))
    values = e.when(needed, values, real)
    at = where(v.output, v.out_block_stride, 1)
    e.either(narrow_output, lambda: _store_bytes(e, v, values, at, "least most zero_point"),
             lambda: _store(e, values, at))

    def second_output() -> list[ir.Value]:
        scale, shift = (e.load(e.at(p, 64 * block), e.vector) for p in (v.scale2, v.shift2))
        results = [e.multiply_add(value, scale, shift) for value in values]
        at = where(v.output2, v.out2_block_stride, 3)

        def wide() -> list[ir.Value]:
            lower, upper = _floats(e, v, "lower2", "upper2")
            return _store(e, [e.clamp(value, lower, upper) for value in results], at)

        return e.either(narrow_output2, lambda: _store_bytes(e, v, results, at, "lower2 upper2 zero_point2"), wide)

    e.when(v.has_output2, [], second_output)
    return []


def _floats(e: Emitter, v: TileValues, *names: str) -> list[ir.Value]:
    """Vectors of the named `floats`, loaded here so that no register holds them during the sums."""
    loaded = [e.load(e.at(v.floats, 8 * QUANTIZED_CONTRACTION.floats.index(name)), F64, 8) for name in names]
    return [e.splat(e.builder.fptrunc(value, F32)) for value in loaded]


def _store(e: Emitter, values: Sequence[ir.Value], at: Sequence[ir.Value]) -> list[ir.Value]:
    for value, place in zip(values, at, strict=True):
        e.builder.store(value, place, align=4)
    return []


def _store_bytes(e: Emitter, v: TileValues, values: Sequence[ir.Value], at: Sequence[ir.Value],
                 names: str) -> list[ir.Value]:
    lower, upper, zero_point = _floats(e, v, *names.split())
    whole = e.builder.fptosi(zero_point, WORDS)
    for value, place in zip(values, at, strict=True):
        e.store_u8(value, place, (lower, upper), whole)
    return []
