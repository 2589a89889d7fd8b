"""IR of the contraction kernels: the loops over tasks and tiles around `tile.emit_tile`.

`params` states what a kernel computes. The IR uses vectors of 16 floats, or 8 for half blocks, on every ISA; the
code generator splits them into the registers there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from llvmlite import ir

from ngraph_mxnet.targets.cpu.microkernels.amx import Unit, release
from ngraph_mxnet.targets.cpu.microkernels.depthwise import build_depthwise
from ngraph_mxnet.targets.cpu.microkernels.emit import I1, I64, Emitter, integer, kernel_function, require_features
from ngraph_mxnet.targets.cpu.microkernels.paired_gradient import build_paired_gradients
from ngraph_mxnet.targets.cpu.microkernels.params import (
    CONTRACTION,
    FLAG_OUTPUT2,
    FLAG_OUTPUT2_NARROW,
    FLAG_OUTPUT_NARROW,
    FLAG_RESIDUAL,
    FLAG_RESIDUAL_NARROW,
    ORDER_CHANNELS,
    ORDER_PIXELS,
    QUANTIZED_CONTRACTION,
    TASK_LOOPS,
    Operand,
)
from ngraph_mxnet.targets.cpu.microkernels.peak import build_peak
from ngraph_mxnet.targets.cpu.microkernels.tables import PIXEL_TENSORS
from ngraph_mxnet.targets.cpu.microkernels.tile import Stored, TileValues, emit_tile
from ngraph_mxnet.targets.cpu.microkernels.variants import (
    KEPT_WEIGHTS,
    PREFETCH_TILES,
    TILE_PIXELS,
    VECTORS,
    VNNI,
    Isa,
    Tile,
    Variant,
    symbol,
    variants,
)
from ngraph_mxnet.targets.cpu.microkernels.weight_gradient import build_weight_gradients

__all__ = ["MULTIPLY_ADD", "build_module"]

# Without FMA instructions llvm.fma is a library call; fmuladd becomes a product and a sum.
MULTIPLY_ADD: dict[Isa, str] = {"avx512": "llvm.fma", "avx2": "llvm.fma", "baseline": "llvm.fmuladd"}


def build_module(isa: Isa, compiled_for: Isa, features: str) -> ir.Module:
    """All kernels of an ISA, of the instructions of another one perhaps, which has no tiles. `features`: the compiler's
    for the ISA; kernels that need more are compiled for more, unless it is for another ISA."""
    module = ir.Module(name=f"contraction_{isa}")
    for variant in variants(isa):
        if isa == compiled_for or not variant.amx:
            _build_kernel(module, variant, isa, compiled_for, features)
    build_depthwise(module, isa, VECTORS[isa], MULTIPLY_ADD[isa])
    build_weight_gradients(module, isa, VECTORS[isa], MULTIPLY_ADD[isa])
    if isa == "avx512":
        build_paired_gradients(module, isa, compiled_for, MULTIPLY_ADD[isa], features)
    build_peak(module, isa, MULTIPLY_ADD[isa])
    return module


@dataclass(frozen=True)
class _Scalars:
    """The kernel's parameters and pointers, loaded once."""

    ints: Any
    """`CONTRACTION.read` of values."""
    operands: Sequence[ir.Value]
    floats: ir.Value
    tiles: ir.Value
    chunks: ir.Value


@dataclass(frozen=True)
class _Task:
    """The digits of a task number."""

    image: ir.Value
    group: ir.Value
    oc_group: ir.Value
    chunk: ir.Value


def _build_kernel(module: ir.Module, variant: Variant, isa: Isa, compiled_for: Isa, features: str) -> None:
    function = kernel_function(module, symbol(variant, isa))
    # For the kernels that need it alone: of other products and sums LLVM would make its instructions, too.
    has_vnni = variant.needs_vnni and isa == compiled_for and isa in VNNI
    if has_vnni or variant.amx:
        require_features(function, features, variant.needs(isa))
    e = Emitter(function, MULTIPLY_ADD[isa], compiled_for, lanes=8 if variant.half else 16, vnni=has_vnni)
    begin, end = function.args[3:]
    p = _load_scalars(e, variant)
    unit = Unit.of(e, variant, p.operands[Operand.STEPS], p.ints.steps, p.ints.chunk_tiles) if variant.amx else None

    sizes = [Tile(variant, isa, pixels) for pixels in range(1, variant.tile + 1)]
    b = e.builder
    if unit is None:
        e.loop(begin, end, lambda task: _emit_tiles(e, p, _decode(e, p, task), sizes, None))
    else:  # one turn more, for the results of the last tile
        last = b.sub(end, integer(1))
        stop = b.add(end, b.zext(b.icmp_signed("<", begin, end), I64))
        e.loop(begin, stop, lambda task: _emit_tiles(
            e, p, _decode(e, p, e.least(task, last)), sizes, replace(unit, multiplies=b.icmp_signed("<", task, end))))
        release(e)
    b.ret_void()


def _load_scalars(e: Emitter, variant: Variant) -> _Scalars:
    n = e.ints(CONTRACTION)
    operands = e.operands(len((QUANTIZED_CONTRACTION if variant.u8 else CONTRACTION).tensors))
    tiles = e.builder.mul(n.rows, n.row_tiles)
    return _Scalars(n, operands, e.function.args[2], tiles, e.ceiling(tiles, n.chunk_tiles))


def _decode(e: Emitter, p: _Scalars, task: ir.Value) -> _Task:
    """Digits of `task` in the radices of its order; see `params`."""
    b = e.builder
    n = p.ints
    pixels_outer = b.icmp_signed("==", n.order, integer(ORDER_PIXELS))

    def either(channels: ir.Value, pixels: ir.Value) -> ir.Value:
        return b.select(pixels_outer, pixels, channels)

    sizes = {"image": n.images, "group": n.groups, "oc_group": n.oc_groups, "chunk": p.chunks}
    channels, pixels = (TASK_LOOPS[order][::-1] for order in (ORDER_CHANNELS, ORDER_PIXELS))
    digits = []
    for loops in zip(channels[:-1], pixels[:-1], strict=True):
        radix = either(*(sizes[loop] for loop in loops))
        digits.append(b.urem(task, radix))
        task = b.udiv(task, radix)
    digits.append(task)
    return _Task(**{loop: either(digits[channels.index(loop)], digits[pixels.index(loop)]) for loop in sizes})


def _weights(e: Emitter, p: _Scalars, task: _Task, variant: Variant) -> ir.Value:
    """Return a pointer to the weights of a task."""
    b = e.builder
    panel = b.mul(p.ints.steps, integer(4 * variant.oc_tile * variant.lanes))
    group = e.at(p.operands[Operand.WEIGHTS], b.mul(task.group, p.ints.weight_group_stride))
    return e.at(group, b.mul(task.oc_group, panel))


def _tile_values(e: Emitter, p: _Scalars, task: _Task, variant: Variant) -> TileValues:
    """Pointers and strides of a task; `offsets` still at the table's start."""
    b = e.builder
    n = p.ints
    zero, one = integer(0), integer(1)
    odd = b.and_(task.oc_group, one)
    if variant.half:
        first, in_block = b.lshr(task.oc_group, one), b.mul(odd, integer(32))
    else:
        first, in_block = b.mul(task.oc_group, integer(variant.blocks)), zero

    def channels(operand: Operand) -> ir.Value:
        group = e.at(p.operands[operand], b.mul(task.group, n.channel_group_stride))
        return e.at(group, b.mul(task.oc_group, integer(4 * variant.oc_tile)))

    def image_group(operand: Operand, strides: Any) -> ir.Value:
        image = e.at(p.operands[operand], b.mul(task.image, strides.image))
        return e.at(image, b.mul(task.group, strides.group))

    def stored(operand: Operand, strides: Any, narrow: int) -> Stored:
        start = e.at(image_group(operand, strides), b.add(b.mul(first, strides.block), in_block))
        row = b.mul(row_bytes, integer(PIXEL_TENSORS.index(operand.name.lower())))
        return Stored(start, strides.block, e.at(p.operands[Operand.PIXELS], row), flag(narrow))

    def flag(bit: int) -> ir.Value:
        return b.icmp_signed("!=", b.and_(n.flags, integer(bit)), integer(0))

    row_bytes = b.mul(b.mul(n.rows, n.row_pixels), integer(4))
    steps = p.operands[Operand.STEPS]
    return TileValues(
        input=image_group(Operand.INPUT, n.input),
        weights=_weights(e, p, task, variant),
        ahead=p.operands[Operand.WEIGHTS],
        prefetches=one,
        bias=channels(Operand.BIAS),
        scale2=channels(Operand.SCALE2),
        shift2=channels(Operand.SHIFT2),
        slopes=channels(Operand.SLOPES),
        factor=channels(Operand.FACTOR) if variant.u8 else p.operands[Operand.SHIFT2],
        addend=channels(Operand.ADDEND) if variant.u8 else p.operands[Operand.SHIFT2],
        output=stored(Operand.OUTPUT, n.output, FLAG_OUTPUT_NARROW),
        residual=stored(Operand.RESIDUAL, n.residual, FLAG_RESIDUAL_NARROW),
        output2=stored(Operand.OUTPUT2, n.output2, FLAG_OUTPUT2_NARROW),
        offsets=p.operands[Operand.PIXELS],
        steps=steps,
        steps_end=e.at(steps, b.mul(n.steps, integer(4))),
        is_first=ir.Constant(I1, 1),
        is_last=ir.Constant(I1, 1),
        pixel_stride=n.pixel_stride,
        blocks_left=b.sub(n.out_blocks, first),
        ends_early=b.and_(b.icmp_signed("==", b.add(task.oc_group, one), n.oc_groups),
                          b.icmp_signed("==", odd, zero)),
        has_residual=flag(FLAG_RESIDUAL),
        activation=n.activation,
        has_output2=flag(FLAG_OUTPUT2),
        floats=p.floats,
    )


def _emit_tiles(e: Emitter, p: _Scalars, task: _Task, sizes: Sequence[Tile], unit: Unit | None) -> None:
    """The tiles of a task, for one block of steps after the other."""
    b, variant = e.builder, sizes[0].variant
    n = p.ints
    values = _tile_values(e, p, task, variant)
    first = b.mul(task.chunk, n.chunk_tiles)
    stop = e.least(b.add(first, n.chunk_tiles), p.tiles)
    # A row is cut into `row_tiles` tiles of `size` or, for the first `larger`, one more pixels: or tiles of AMX.
    pieces = n.row_pixels if unit is None else e.ceiling(n.row_pixels, integer(TILE_PIXELS))
    size, larger = b.udiv(pieces, n.row_tiles), b.urem(pieces, n.row_tiles)
    row, in_row = b.udiv(first, n.row_tiles), b.urem(first, n.row_tiles)
    extra = e.least(in_row, larger)
    pixel, in_pieces = b.mul(row, n.row_pixels), b.add(b.mul(in_row, size), extra)
    pixel = b.add(pixel, in_pieces if unit is None else b.mul(in_pieces, integer(TILE_PIXELS)))

    values = replace(values, prefetches=_prefetches(e, p, variant, b.sub(stop, first)))

    if unit is not None:
        pixels = b.add(b.mul(b.add(b.mul(task.image, n.groups), task.group), p.chunks), task.chunk)
        unit = unit.for_task(e, values, pixels)
        stop = b.select(unit.multiplies, stop, first)

    def tiles(part: TileValues) -> None:
        _emit_tile_loop(e, p, part, sizes, _Range(first, stop, in_row, pixel, size, larger), unit)

    if unit is not None:
        tiles(values)  # steps are not split
    else:
        _emit_step_blocks(e, p, values, variant, tiles)


def _emit_step_blocks(e: Emitter, p: _Scalars, values: TileValues, variant: Variant,
                      tiles: Callable[[TileValues], None]) -> None:
    """The loop over blocks of steps; partial sums are kept in the output."""
    b = e.builder
    block_bytes = b.mul(p.ints.step_block, integer(4))

    def block(carried: list[ir.Value]) -> tuple[ir.Value, Sequence[ir.Value]]:
        steps, weights = carried
        following = e.at(steps, block_bytes)
        is_last = b.icmp_unsigned(">=", following, values.steps_end)
        end = b.select(is_last, values.steps_end, following)
        tiles(replace(values, steps=steps, weights=weights, steps_end=end, is_last=is_last,
                      is_first=b.icmp_unsigned("==", steps, values.steps)))
        next_weights = e.at(weights, b.mul(block_bytes, integer(variant.oc_tile * variant.lanes)))
        return b.not_(is_last), [following, next_weights]

    e.repeat("step_block", [values.steps, values.weights], block)


def _ahead(e: Emitter, p: _Scalars, values: TileValues, variant: Variant, tile: ir.Value) -> ir.Value:
    """Return the address that tile number `tile` prefetches. The tiles share the next block of weights, which follows
    this one."""
    b = e.builder
    block = b.mul(p.ints.step_block, integer(4 * variant.oc_tile * variant.lanes))
    share = b.mul(values.prefetches, integer(variant.prefetch_bytes))
    part = b.mul(tile, b.mul(p.ints.step_block, share))
    return e.at(values.weights, b.add(block, e.least(part, block)))


def _prefetches(e: Emitter, p: _Scalars, variant: Variant, tiles: ir.Value) -> ir.Value:
    """See `variants.prefetches`."""
    b, most = e.builder, integer(PREFETCH_TILES)
    weights = b.mul(p.ints.oc_groups, b.mul(p.ints.steps, integer(4 * variant.oc_tile * variant.lanes)))
    few = b.and_(b.icmp_signed("<", tiles, most), b.icmp_signed(">", weights, integer(KEPT_WEIGHTS)))
    return b.select(few, e.ceiling(most, tiles), integer(1))


@dataclass(frozen=True)
class _Range:
    """The tiles [first, stop) of a task: where the first one lies, and how rows are cut."""

    first: ir.Value
    stop: ir.Value
    in_row: ir.Value
    pixel: ir.Value
    size: ir.Value
    larger: ir.Value


def _emit_tile_loop(e: Emitter, p: _Scalars, values: TileValues, sizes: Sequence[Tile], r: _Range,
                    unit: Unit | None) -> None:
    """The loop over a chunk's tiles: one case per tile size, in registers."""
    b, variant = e.builder, sizes[0].variant

    def one(carried: list[ir.Value]) -> tuple[ir.Value, Sequence[ir.Value]]:
        tile, in_row, start = carried
        pixels = b.add(r.size, b.zext(b.icmp_signed("<", in_row, r.larger), I64))
        if unit is not None:
            before = b.mul(b.add(b.mul(in_row, r.size), e.least(in_row, r.larger)), integer(TILE_PIXELS))
            pixels = e.least(b.mul(pixels, integer(TILE_PIXELS)), b.sub(p.ints.row_pixels, before))
        here = replace(values.behind(e, start), ahead=_ahead(e, p, values, variant, b.sub(tile, r.first)))
        if unit is None:
            e.switch(pixels, {size.pixels: partial(emit_tile, e, here, size) for size in sizes}, "m")
        else:
            unit.emit(e, here, pixels, b.sub(tile, r.first))
        following, next_in_row = b.add(tile, integer(1)), b.add(in_row, integer(1))
        next_in_row = b.select(b.icmp_signed("==", next_in_row, p.ints.row_tiles), integer(0), next_in_row)
        return b.icmp_signed("<", following, r.stop), [following, next_in_row, b.add(start, pixels)]

    e.repeat("tile", [r.first, r.in_row, r.pixel], one)
