"""IR of the contraction kernels: the loops over tasks and tiles around `tile.emit_tile`.

`params` states what a kernel computes. The IR uses vectors of 16 floats, or 8 for half blocks, on every ISA; the
code generator splits them into the registers there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from llvmlite import ir

from ngraph_mxnet.targets.cpu.microkernels.depthwise import build_depthwise
from ngraph_mxnet.targets.cpu.microkernels.emit import I1, I64, PTR, Emitter
from ngraph_mxnet.targets.cpu.microkernels.params import (
    CONTRACTION,
    FLAG_OUTPUT2,
    FLAG_OUTPUT2_NARROW,
    FLAG_OUTPUT_NARROW,
    FLAG_RESIDUAL,
    FLAG_RESIDUAL_NARROW,
    ORDER_PIXELS,
    QUANTIZED_CONTRACTION,
    Operand,
)
from ngraph_mxnet.targets.cpu.microkernels.peak import build_peak
from ngraph_mxnet.targets.cpu.microkernels.tables import PIXEL_TENSORS
from ngraph_mxnet.targets.cpu.microkernels.tile import (
    KEPT_WEIGHTS,
    PREFETCH_TILES,
    TileValues,
    emit_tile,
    prefetch_bytes,
)
from ngraph_mxnet.targets.cpu.microkernels.variants import Isa, Variant, symbol, variants
from ngraph_mxnet.targets.cpu.microkernels.weight_gradient import build_weight_gradients

__all__ = ["MULTIPLY_ADD", "build_module"]

_VECTORS_PER_BLOCK: dict[Isa, int] = {"avx512": 1, "avx2": 2, "baseline": 4}

# Without FMA instructions llvm.fma is a library call; fmuladd becomes a product and a sum.
MULTIPLY_ADD: dict[Isa, str] = {"avx512": "llvm.fma", "avx2": "llvm.fma", "baseline": "llvm.fmuladd"}


def build_module(isa: Isa, compiled_for: Isa, vnni: str) -> ir.Module:
    """All kernels of an ISA, of the instructions of another one perhaps. `vnni`: the compiler's features for those that
    need VNNI, unless they are of another ISA."""
    module = ir.Module(name=f"contraction_{isa}")
    for variant in variants(isa):
        _build_kernel(module, variant, isa, compiled_for, vnni if isa == compiled_for else "")
    build_depthwise(module, isa, _VECTORS_PER_BLOCK[isa], MULTIPLY_ADD[isa])
    build_weight_gradients(module, isa, _VECTORS_PER_BLOCK[isa], MULTIPLY_ADD[isa])
    build_peak(module, isa, MULTIPLY_ADD[isa])
    return module


@dataclass(frozen=True)
class _Scalars:
    """The kernel's parameters and pointers, loaded once."""

    ints: dict[str, ir.Value]
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


class _Featured(ir.values.FunctionAttributes):
    """With features of its own for the compiler, in place of the module's; llvmlite has no such attribute."""

    def __init__(self, features: str) -> None:
        super().__init__()
        self._features = features

    def _to_list(self, ret_type: ir.Type) -> list[str]:
        return [*super()._to_list(ret_type), f'"target-features"="{self._features}"']


def _build_kernel(module: ir.Module, variant: Variant, isa: Isa, compiled_for: Isa, vnni: str) -> None:
    signature = ir.FunctionType(ir.VoidType(), [PTR, PTR, PTR, I64, I64])
    function = ir.Function(module, signature, name=symbol(variant, isa))
    has_vnni = variant.needs_vnni and bool(vnni)
    if has_vnni:
        function.attributes = _Featured(vnni)
    function.attributes.add("nounwind")
    e = Emitter(function, MULTIPLY_ADD[isa], compiled_for, lanes=8 if variant.half else 16, vnni=has_vnni)
    b = e.builder
    begin, end = function.args[3:]
    p = _load_scalars(e, variant)

    entry, head, body, done = b.block, e.block("task"), e.block("decode"), e.block("done")
    b.branch(head)
    b.position_at_end(head)
    task = b.phi(I64)
    task.add_incoming(begin, entry)
    b.cbranch(b.icmp_signed("<", task, end), body, done)
    b.position_at_end(body)
    _emit_tiles(e, p, _decode(e, p, task), variant, max(1, _VECTORS_PER_BLOCK[isa] // (2 if variant.half else 1)))
    task.add_incoming(b.add(task, ir.Constant(I64, 1)), b.block)
    b.branch(head)
    b.position_at_end(done)
    b.ret_void()


def _load_scalars(e: Emitter, variant: Variant) -> _Scalars:
    b = e.builder
    tensors, ints, floats = e.function.args[:3]
    values = {name: e.load(e.at(ints, 8 * i), I64, 8) for i, name in enumerate(CONTRACTION.ints)}
    record = QUANTIZED_CONTRACTION if variant.u8 else CONTRACTION
    operands = [e.load(e.at(tensors, 8 * i), PTR, 8) for i in range(len(record.tensors))]
    tiles = b.mul(values["rows"], values["row_tiles"])
    chunk = values["chunk_tiles"]
    chunks = b.udiv(b.add(tiles, b.sub(chunk, ir.Constant(I64, 1))), chunk)
    return _Scalars(values, operands, floats, tiles, chunks)


def _decode(e: Emitter, p: _Scalars, task: ir.Value) -> _Task:
    """Digits of `task` in the radices of its order; see `params`."""
    b = e.builder
    pixels_outer = b.icmp_signed("==", p.ints["order"], ir.Constant(I64, ORDER_PIXELS))

    def either(channels: ir.Value, pixels: ir.Value) -> ir.Value:
        return b.select(pixels_outer, pixels, channels)

    images, groups, oc_groups = (p.ints[name] for name in ("images", "groups", "oc_groups"))
    digits = []
    radices = [either(p.chunks, oc_groups), either(images, p.chunks), either(oc_groups, groups)]
    for radix in radices:
        digits.append(b.urem(task, radix))
        task = b.udiv(task, radix)
    d0, d1, d2, d3 = *digits, task
    return _Task(image=either(d1, d3), group=either(d3, d2), oc_group=either(d2, d0), chunk=either(d0, d1))


def _weights(e: Emitter, p: _Scalars, task: _Task, variant: Variant) -> ir.Value:
    """Return a pointer to the weights of a task."""
    b = e.builder
    panel = b.mul(p.ints["steps"], ir.Constant(I64, 4 * variant.oc_tile * variant.lanes))
    group = e.at(p.operands[Operand.WEIGHTS], b.mul(task.group, p.ints["weight_group_stride"]))
    return e.at(group, b.mul(task.oc_group, panel))


def _tile_values(e: Emitter, p: _Scalars, task: _Task, variant: Variant) -> TileValues:
    """Pointers and strides of a task; `offsets` still at the table's start."""
    b = e.builder
    n = p.ints
    zero, one = ir.Constant(I64, 0), ir.Constant(I64, 1)
    odd = b.and_(task.oc_group, one)
    if variant.half:
        first, in_block = b.lshr(task.oc_group, one), b.mul(odd, ir.Constant(I64, 32))
    else:
        first, in_block = b.mul(task.oc_group, ir.Constant(I64, variant.blocks)), zero

    def channels(operand: Operand) -> ir.Value:
        group = e.at(p.operands[operand], b.mul(task.group, n["channel_group_stride"]))
        return e.at(group, b.mul(task.oc_group, ir.Constant(I64, 4 * variant.oc_tile)))

    def image_block(operand: Operand, prefix: str) -> ir.Value:
        image = e.at(p.operands[operand], b.mul(task.image, n[f"{prefix}_image_stride"]))
        group = e.at(image, b.mul(task.group, n[f"{prefix}_group_stride"]))
        return e.at(group, b.add(b.mul(first, n[f"{prefix}_block_stride"]), in_block))

    def flag(bit: int) -> ir.Value:
        return b.icmp_signed("!=", b.and_(n["flags"], ir.Constant(I64, bit)), ir.Constant(I64, 0))

    image = e.at(p.operands[Operand.INPUT], b.mul(task.image, n["in_image_stride"]))
    row_bytes = b.mul(b.mul(n["rows"], n["row_pixels"]), ir.Constant(I64, 4))
    offsets = [p.operands[Operand.PIXELS]]
    while len(offsets) < len(PIXEL_TENSORS):
        offsets.append(e.at(offsets[-1], row_bytes))
    steps = p.operands[Operand.STEPS]
    return TileValues(
        input=e.at(image, b.mul(task.group, n["in_group_stride"])),
        weights=_weights(e, p, task, variant),
        ahead=p.operands[Operand.WEIGHTS],
        prefetches=one,
        bias=channels(Operand.BIAS),
        scale2=channels(Operand.SCALE2),
        shift2=channels(Operand.SHIFT2),
        slopes=channels(Operand.SLOPES),
        factor=channels(Operand.FACTOR) if variant.u8 else p.operands[Operand.SHIFT2],
        addend=channels(Operand.ADDEND) if variant.u8 else p.operands[Operand.SHIFT2],
        output=image_block(Operand.OUTPUT, "out"),
        residual=image_block(Operand.RESIDUAL, "res"),
        output2=image_block(Operand.OUTPUT2, "out2"),
        offsets=offsets,
        steps=steps,
        steps_end=e.at(steps, b.mul(n["steps"], ir.Constant(I64, 4))),
        is_first=ir.Constant(I1, 1),
        is_last=ir.Constant(I1, 1),
        pixel_stride=n["pixel_stride"],
        out_block_stride=n["out_block_stride"],
        res_block_stride=n["res_block_stride"],
        out2_block_stride=n["out2_block_stride"],
        blocks_left=b.sub(n["out_blocks"], first),
        ends_early=b.and_(b.icmp_signed("==", b.add(task.oc_group, one), n["oc_groups"]),
                          b.icmp_signed("==", odd, zero)),
        has_residual=flag(FLAG_RESIDUAL),
        activation=n["activation"],
        has_output2=flag(FLAG_OUTPUT2),
        is_narrow=[flag(bit) for bit in (FLAG_OUTPUT_NARROW, FLAG_RESIDUAL_NARROW, FLAG_OUTPUT2_NARROW)],
        floats=p.floats,
    )


def _emit_tiles(e: Emitter, p: _Scalars, task: _Task, variant: Variant, vectors_per_block: int) -> None:
    """The tiles of a task, for one block of steps after the other."""
    b = e.builder
    n = p.ints
    values = _tile_values(e, p, task, variant)
    first = b.mul(task.chunk, n["chunk_tiles"])
    stop = b.add(first, n["chunk_tiles"])
    stop = b.select(b.icmp_signed("<", stop, p.tiles), stop, p.tiles)
    # A row is cut into `row_tiles` tiles of `size` or, for the first `larger`, one more pixels.
    size, larger = b.udiv(n["row_pixels"], n["row_tiles"]), b.urem(n["row_pixels"], n["row_tiles"])
    row, in_row = b.udiv(first, n["row_tiles"]), b.urem(first, n["row_tiles"])
    extra = b.select(b.icmp_signed("<", in_row, larger), in_row, larger)
    pixel = b.add(b.mul(row, n["row_pixels"]), b.add(b.mul(in_row, size), extra))

    values = replace(values, prefetches=_prefetches(e, p, variant, b.sub(stop, first)))

    def tiles(part: TileValues) -> None:
        _emit_tile_loop(e, p, part, variant, vectors_per_block, _Range(first, stop, in_row, pixel, size, larger))

    _emit_step_blocks(e, p, values, variant, tiles)


def _emit_step_blocks(e: Emitter, p: _Scalars, values: TileValues, variant: Variant,
                      tiles: Callable[[TileValues], None]) -> None:
    """The loop over blocks of steps; partial sums are kept in the output."""
    b = e.builder
    block_bytes = b.mul(p.ints["step_block"], ir.Constant(I64, 4))
    before, body, done = b.block, e.block("step_block"), e.block("task_done")
    b.branch(body)
    b.position_at_end(body)
    steps, weights = b.phi(values.steps.type), b.phi(values.weights.type)
    following = e.at(steps, block_bytes)
    is_last = b.icmp_unsigned(">=", following, values.steps_end)
    end = b.select(is_last, values.steps_end, following)
    tiles(replace(values, steps=steps, weights=weights, steps_end=end, is_last=is_last,
                  is_first=b.icmp_unsigned("==", steps, values.steps)))
    for phi, initial, next_value in (
        (steps, values.steps, following),
        (weights, values.weights,
         e.at(weights, b.mul(block_bytes, ir.Constant(I64, variant.oc_tile * variant.lanes)))),
    ):
        phi.add_incoming(initial, before)
        phi.add_incoming(next_value, b.block)
    b.cbranch(is_last, done, body)
    b.position_at_end(done)


def _ahead(e: Emitter, p: _Scalars, values: TileValues, variant: Variant, tile: ir.Value) -> ir.Value:
    """Return the address that tile number `tile` prefetches. The tiles share the next block of weights, which follows
    this one."""
    b = e.builder
    block = b.mul(p.ints["step_block"], ir.Constant(I64, 4 * variant.oc_tile * variant.lanes))
    share = b.mul(values.prefetches, ir.Constant(I64, prefetch_bytes(variant)))
    part = b.mul(tile, b.mul(p.ints["step_block"], share))
    return e.at(values.weights, b.add(block, b.select(b.icmp_signed("<", part, block), part, block)))


def _prefetches(e: Emitter, p: _Scalars, variant: Variant, tiles: ir.Value) -> ir.Value:
    """How much each of a task's tiles fetches: fewer than `PREFETCH_TILES` fetch more, unless L2 has the weights."""
    b = e.builder
    one, most = ir.Constant(I64, 1), ir.Constant(I64, PREFETCH_TILES)
    weights = b.mul(p.ints["oc_groups"], b.mul(p.ints["steps"], ir.Constant(I64, 4 * variant.oc_tile * variant.lanes)))
    few = b.and_(b.icmp_signed("<", tiles, most), b.icmp_signed(">", weights, ir.Constant(I64, KEPT_WEIGHTS)))
    return b.select(few, b.udiv(b.add(b.sub(tiles, one), most), tiles), one)


@dataclass(frozen=True)
class _Range:
    """The tiles [first, stop) of a task: where the first one lies, and how rows are cut."""

    first: ir.Value
    stop: ir.Value
    in_row: ir.Value
    pixel: ir.Value
    size: ir.Value
    larger: ir.Value


def _emit_tile_loop(e: Emitter, p: _Scalars, values: TileValues, variant: Variant, vectors_per_block: int,
                    r: _Range) -> None:
    """The loop over a chunk's tiles: one case per tile size."""
    b = e.builder
    n = p.ints
    one, zero = ir.Constant(I64, 1), ir.Constant(I64, 0)
    before, body, done = b.block, e.block("tile"), e.block("tiles_done")
    latch, invalid = e.block("tile_done"), e.block("no_such_tile")
    b.branch(body)
    b.position_at_end(body)
    tile, tile_in_row, start = (b.phi(I64) for _ in range(3))
    pixels = b.add(r.size, b.zext(b.icmp_signed("<", tile_in_row, r.larger), I64))
    offsets = [e.at(row, b.mul(start, ir.Constant(I64, 4))) for row in values.offsets]
    values = replace(values, offsets=offsets, ahead=_ahead(e, p, values, variant, b.sub(tile, r.first)))
    switch = b.switch(pixels, invalid)
    for count in range(1, variant.tile + 1):
        case = e.block(f"m{count}")
        switch.add_case(ir.Constant(I64, count), case)
        b.position_at_end(case)
        emit_tile(e, values, variant, count, vectors_per_block)
        b.branch(latch)
    b.position_at_end(invalid)
    b.unreachable()

    b.position_at_end(latch)
    next_tile, next_in_row = b.add(tile, one), b.add(tile_in_row, one)
    next_in_row = b.select(b.icmp_signed("==", next_in_row, n["row_tiles"]), zero, next_in_row)
    for phi, initial, following in (
        (tile, r.first, next_tile),
        (tile_in_row, r.in_row, next_in_row),
        (start, r.pixel, b.add(start, pixels)),
    ):
        phi.add_incoming(initial, before)
        phi.add_incoming(following, latch)
    b.cbranch(b.icmp_signed("<", next_tile, r.stop), body, done)
    b.position_at_end(done)
