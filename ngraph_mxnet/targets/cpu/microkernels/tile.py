"""The register tile of a contraction: the values that it needs, and its code."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from llvmlite import ir

from ngraph_mxnet.targets.cpu.microkernels.emit import (
    EIGHT,
    F32,
    F64,
    I32,
    I64,
    WORDS,
    Emitter,
    call_activation,
    integer,
)
from ngraph_mxnet.targets.cpu.microkernels.params import QUANTIZED_CONTRACTION
from ngraph_mxnet.targets.cpu.microkernels.tables import PIXEL_TENSORS
from ngraph_mxnet.targets.cpu.microkernels.variants import ACTIVATIONS, FIRST_CALLED, Tile, Variant

__all__ = ["Stored", "TileValues", "emit_tile", "finish", "prefetch_weights", "so_far"]


@dataclass(frozen=True)
class Stored:
    """A blocked tensor that a tile stores or adds, from the tile's first channel block on."""

    start: ir.Value
    block_stride: ir.Value
    offsets: ir.Value
    """Where the pixel table says where the tile's first pixel lies."""
    is_narrow: ir.Value
    """The tensor is bf16, or u8. Only variants of such types ask."""

    def places(self, e: Emitter, block: int, pixels: int) -> list[ir.Value]:
        """The tile's pixels of a channel block."""
        start = self.block(e, block)
        return [e.at(start, e.load_offset(self.offsets, integer(m))) for m in range(pixels)]

    def block(self, e: Emitter, block: int) -> ir.Value:
        """Where a channel block begins."""
        return e.at(self.start, e.builder.mul(self.block_stride, integer(block))) if block else self.start


@dataclass(frozen=True)
class TileValues:
    """The values that a tile needs. Pointers are already moved to its image, group and output block."""

    input: ir.Value
    weights: ir.Value
    ahead: ir.Value
    """Weights of the next block of steps, of which this tile prefetches a part."""
    prefetches: ir.Value
    """How many times `prefetch_bytes` it prefetches at each step."""
    bias: ir.Value
    scale2: ir.Value
    shift2: ir.Value
    slopes: ir.Value
    factor: ir.Value
    addend: ir.Value
    output: Stored
    residual: Stored
    output2: Stored
    offsets: ir.Value
    """Where the pixel table says where the tile's first pixel lies in the input."""
    steps: ir.Value
    """The block's entries of the step table, up to `steps_end`."""
    steps_end: ir.Value
    is_first: ir.Value
    """This block of steps starts at the bias, the others at what the output holds."""
    is_last: ir.Value
    pixel_stride: ir.Value
    blocks_left: ir.Value
    """Output blocks from this one to the end of the group: a wide tile may have to store one only."""
    ends_early: ir.Value
    """For half blocks: nobody else stores the upper half of this tile's block."""
    has_residual: ir.Value
    activation: ir.Value
    """Its number, see `variants.ACTIVATIONS`."""
    has_output2: ir.Value
    floats: ir.Value

    def behind(self, e: Emitter, pixels: ir.Value) -> TileValues:
        """Those of a tile that begins so many entries of the pixel table later."""
        entries = e.builder.mul(pixels, integer(4))
        moved = {name: replace(stored, offsets=e.at(stored.offsets, entries)) for name in PIXEL_TENSORS[1:]
                 for stored in (getattr(self, name),)}
        return replace(self, offsets=e.at(self.offsets, entries), **moved)


def _floats(e: Emitter, v: TileValues, names: str) -> list[ir.Value]:
    """Vectors of the named `floats`, loaded here so that no register holds them during the sums."""
    loaded = [e.load(e.at(v.floats, 8 * QUANTIZED_CONTRACTION.floats.index(name)), F64, 8) for name in names.split()]
    return [e.splat(e.builder.fptrunc(value, F32)) for value in loaded]


def _clamped(e: Emitter, v: TileValues, values: Sequence[ir.Value], bounds: str) -> list[ir.Value]:
    lower, upper = _floats(e, v, bounds)
    return [e.clamp(value, lower, upper) for value in values]


def _activated(e: Emitter, v: TileValues, block: int, values: Sequence[ir.Value]) -> list[ir.Value]:
    """A hard swish, or what is below 0 times its channel's slope, of a channel block's values, if that is asked for."""
    def gated() -> list[ir.Value]:
        parameters = _floats(e, v, "slope offset scale shift")
        return [e.gate(value, parameters) for value in values]

    def sloped() -> list[ir.Value]:
        slopes = e.load(e.at(v.slopes, 64 * block), e.vector)
        return [e.sloped(value, slopes) for value in values]

    has_gate, has_slopes = (e.equals(v.activation, ACTIVATIONS[name]) for name in ("hard_swish", "prelu"))
    return e.when(e.builder.or_(has_gate, has_slopes), values, lambda: e.either(has_gate, gated, sloped))


def _scaled(e: Emitter, v: TileValues, block: int, values: Sequence[ir.Value]) -> list[ir.Value]:
    """The second output of a channel block before its clamp."""
    scale, shift = (e.load(e.at(p, 64 * block), e.vector) for p in (v.scale2, v.shift2))
    return [e.multiply_add(value, scale, shift) for value in values]


def _byte_epilogue(e: Emitter, v: TileValues, variant: Variant, block: int, sums: Sequence[ir.Value]) -> list:
    """Factor and addend, residual, clamp, activation, output and second output of one channel block."""
    b = e.builder
    factor, addend = (e.load(e.at(p, 64 * block), e.vector) for p in (v.factor, v.addend))
    numbers = [b.sitofp(value, e.vector) for value in sums] if variant.whole else sums
    values = [e.multiply_add(value, factor, addend) for value in numbers]

    def add_residual() -> list[ir.Value]:
        (scale,), at = _floats(e, v, "residual_scale"), v.residual.places(e, block, len(sums))

        def add(load: Callable[[ir.Value], ir.Value]) -> list[ir.Value]:
            return [e.multiply_add(load(place), scale, value) for place, value in zip(at, values, strict=True)]

        return e.either(v.residual.is_narrow, lambda: add(e.load_u8), lambda: add(lambda p: e.load(p, e.vector)))

    values = e.when(v.has_residual, values, add_residual)
    # Bytes without an activation are clamped as they are stored.
    needed = b.or_(b.or_(b.not_(e.equals(v.activation, 0)), v.has_output2), b.not_(v.output.is_narrow))
    values = e.when(needed, values, lambda: _activated(e, v, block, _clamped(e, v, values, "lower upper")))
    at = v.output.places(e, block, len(sums))
    e.either(v.output.is_narrow, lambda: _store_bytes(e, v, values, at, "least most zero_point"),
             lambda: _store_floats(e, values, at))

    def second_output() -> list[ir.Value]:
        results, at = _scaled(e, v, block, values), v.output2.places(e, block, len(sums))
        return e.either(v.output2.is_narrow, lambda: _store_bytes(e, v, results, at, "lower2 upper2 zero_point2"),
                        lambda: _store_floats(e, _clamped(e, v, results, "lower2 upper2"), at))

    e.when(v.has_output2, [], second_output)
    return []


def _store_floats(e: Emitter, values: Sequence[ir.Value], at: Sequence[ir.Value]) -> list[ir.Value]:
    for value, place in zip(values, at, strict=True):
        e.builder.store(value, place, align=4)
    return []


def _store_bytes(e: Emitter, v: TileValues, values: Sequence[ir.Value], at: Sequence[ir.Value],
                 names: str) -> list[ir.Value]:
    lower, upper, zero_point = _floats(e, v, names)
    whole = e.builder.fptosi(zero_point, WORDS)
    for value, place in zip(values, at, strict=True):
        e.store_u8(value, place, (lower, upper), whole)
    return []


def emit_tile(e: Emitter, v: TileValues, tile: Tile) -> None:
    """A tile at the builder's position."""
    finish(e, v, tile.variant, _accumulate(e, v, tile), tile.pixels)


def finish(e: Emitter, v: TileValues, variant: Variant, sums: Sequence[ir.Value], pixels: int) -> None:
    """What is stored of the sums of so many pixels, block by block."""
    epilogue = _byte_epilogue if variant.u8 else _epilogue
    for block in range(variant.blocks):
        mine = sums[block * pixels : (block + 1) * pixels]
        if block:
            present = e.builder.icmp_signed(">", v.blocks_left, integer(block))
            e.when(present, [], functools.partial(epilogue, e, v, variant, block, mine))
        else:
            epilogue(e, v, variant, block, mine)
    if not variant.u8:
        called = e.builder.icmp_signed(">=", v.activation, integer(FIRST_CALLED))
        e.when(e.builder.and_(v.is_last, called), [], lambda: _called_activation(e, v, variant, pixels))


def _called_activation(e: Emitter, v: TileValues, variant: Variant, pixels: int) -> list[ir.Value]:
    """Apply an activation function to what the tile has stored."""
    for block in range(variant.blocks):
        base = v.output.block(e, block)

        def call(base: ir.Value = base) -> list[ir.Value]:
            call_activation(e, min(16, variant.oc_tile), v.activation, base, v.output.offsets, integer(pixels))
            return []

        if block:
            e.when(e.builder.icmp_signed(">", v.blocks_left, integer(block)), [], call)
        else:
            call()
    return []


def prefetch_weights(e: Emitter, ahead: ir.Value, size: int, times: ir.Value | None) -> ir.Value:
    """Fetch `size` bytes from `ahead` on, so many times if given; return the address behind them."""
    def fetch(place: ir.Value) -> ir.Value:
        for line in range(0, size, 64):
            e.prefetch(e.at(place, line), level=2)
        return e.at(place, size)

    def turn(place: list[ir.Value]) -> tuple[ir.Value, list[ir.Value]]:
        behind = fetch(*place)
        return e.builder.icmp_unsigned("!=", behind, end), [behind]

    if times is None:
        return fetch(ahead)
    end = e.at(ahead, e.builder.mul(times, integer(size)))
    (behind,) = e.repeat("prefetch", [ahead], turn)
    return behind


def _input_pointers(e: Emitter, v: TileValues, variant: Variant, pixels: int) -> list[ir.Value]:
    """Return pointers to the start of the tile's pixels. For constant strides there is one for every fourth pixel
    only."""
    zero = integer(0)
    if not variant.rows:
        indices = [integer(m) for m in range(pixels)]
        return [e.at(v.input, e.load_offset(v.offsets, m)) for m in indices]
    pointers = [e.at(v.input, e.load_offset(v.offsets, zero))]
    four = e.builder.shl(v.pixel_stride, integer(2))
    while 4 * len(pointers) < pixels:
        pointers.append(e.at(pointers[-1], four))
    return pointers


def _step_pointers(
    e: Emitter, v: TileValues, variant: Variant, starts: Sequence[ir.Value], offset: ir.Value, pixels: int
) -> list[ir.Value]:
    """Return pointers to each pixel's value of this step."""
    moved = [e.at(start, offset) for start in starts]
    if not variant.rows:
        return moved
    # Multiples 0 to 3 of the stride beside four base registers: x86 scales an index by 2 for free.
    multiples = [integer(0), v.pixel_stride, e.builder.shl(v.pixel_stride, integer(1))]
    multiples.append(e.builder.mul(v.pixel_stride, integer(3)))
    return [e.at(moved[m // 4], multiples[m % 4]) if m % 4 else moved[m // 4] for m in range(pixels)]


def _accumulate(e: Emitter, v: TileValues, tile: Tile) -> list[ir.Value]:
    """Sums over all steps, bias included, block by block."""
    b, variant, pixels = e.builder, tile.variant, tile.pixels
    lanes, unroll = variant.lanes, tile.unroll
    starts = _input_pointers(e, v, variant, pixels)
    width = tile.sums * (2 if variant.short else 1)
    if variant.wide:
        initial: list[ir.Value] = [ir.Constant(WORDS, None)] * width
    elif variant.short:
        initial = [half for value in _bias(e, v, variant, pixels) for half in e.halves(value)]
    else:
        initial = so_far(e, v, variant, pixels)
    initial += [ir.Constant(initial[0].type, None)] * (width * (tile.sets - 1))

    prefetched = variant.prefetch_bytes * unroll // lanes
    add_products = _add_shorts if variant.wide else _add_bytes if variant.short else _add_products

    def turn(carried: list[ir.Value]) -> tuple[ir.Value, Sequence[ir.Value]]:
        step, weights, *sums = carried
        part = sums.pop() if unroll < lanes else None
        offset = b.sext(e.load(step, I32), I64)
        next_step = e.at(step, 4)
        following = []
        if prefetched:
            following.append(prefetch_weights(e, sums.pop(), prefetched, v.prefetches if tile.repeats else None))
        if part is not None:
            # Some lanes an iteration: the byte offset of the first one runs through 0 .. 60 (28 in bf16).
            offset = b.add(offset, part)
            next_part = b.and_(b.add(part, integer(4 * unroll)), integer(4 * lanes - 1))
            next_step = b.select(b.icmp_signed("==", next_part, integer(0)), next_step, step)
            following.append(next_part)
        places = _step_pointers(e, v, variant, starts, offset, pixels)
        if lanes == unroll and variant.kind == "k16" and variant.oc_tile == 16:
            _prefetch_inputs(e, v, variant, starts, next_step, pixels)
        values = add_products(e, variant, unroll, weights, places, sums)
        next_weights = e.at(weights, 4 * variant.oc_tile * unroll)
        return b.icmp_unsigned("!=", next_step, v.steps_end), [next_step, next_weights, *values, *following]

    first = [v.steps, v.weights, *initial, *[v.ahead] * (prefetched > 0), *[integer(0)] * (unroll < lanes)]
    values = e.repeat(f"steps_m{pixels}", first, turn)[2:2 + len(initial)]
    while len(values) > width:
        half = len(values) // 2
        add = b.add if variant.whole else b.fadd
        values = [add(x, y) for x, y in zip(values[:half], values[half:], strict=True)]
    if variant.wide:
        return _joined(e, values, _bias(e, v, variant, pixels))
    if variant.short:
        return [e.whole(*halves) for halves in zip(values[::2], values[1::2], strict=True)]
    return values


def _joined(e: Emitter, values: Sequence[ir.Value], bias: Sequence[ir.Value]) -> list[ir.Value]:
    """The sums of `_add_shorts`: even and odd channels of a four are in lanes beside each other."""
    b = e.builder
    joined = []
    for low, high, first in zip(values[::2], values[1::2], bias, strict=True):
        even, odd = (b.shuffle_vector(low, high, ir.Constant(WORDS, list(range(part, 32, 2)))) for part in (0, 1))
        joined.append(b.add(b.add(even, odd), first))
    return joined


def _add_shorts(e: Emitter, variant: Variant, unroll: int, weights: ir.Value, places: Sequence[ir.Value],
                sums: Sequence[ir.Value]) -> list[ir.Value]:
    """Add products like `_add_products`, for weights of i16. Two rows of weights hold a four of input channels, eight
    outputs each."""
    values = list(sums)
    for four in range(unroll // 2):
        rows = [e.load(e.at(weights, 64 * (2 * four + half)), WORDS, 64) for half in (0, 1)]
        for m, place in enumerate(places):
            x = e.splat_shorts(e.load(e.at(place, 4 * four), I32))
            for half, row in enumerate(rows):
                values[2 * m + half] = e.dot_shorts(x, row, values[2 * m + half])
    return values


def _add_bytes(e: Emitter, variant: Variant, unroll: int, weights: ir.Value, places: Sequence[ir.Value],
               sums: Sequence[ir.Value]) -> list[ir.Value]:
    """Add products like `_add_products`, for short sums, two fours of input channels at a time. The two halves of a
    pixel's outputs have a sum each. The halves come one after the other, for the registers' sake."""
    values = list(sums)
    for four in range(0, unroll, 2):
        for half in (0, 1):
            rows = [e.load(e.at(weights, 64 * (four + i) + 32 * half), EIGHT, 32) for i in (0, 1)]
            for m, place in enumerate(places):
                x = [e.splat(e.load(e.at(place, 4 * (four + i)), I32), 8) for i in (0, 1)]
                values[2 * m + half] = e.dot_bytes_twice(x, rows, values[2 * m + half])
            e.read_again()
    return values


def _prefetch_inputs(e: Emitter, v: TileValues, variant: Variant, starts: Sequence[ir.Value], next_step: ir.Value,
                     pixels: int) -> None:
    """Fetch the next step's input lines: worth 6 % on strided layers, nothing elsewhere.

    Wider tiles have no general register left for it. Prefetching the weights costs 3 % and gains at 7x7 only.
    """
    wrapped = e.builder.select(e.builder.icmp_unsigned("!=", next_step, v.steps_end), next_step, v.steps)
    offset = e.builder.sext(e.load(wrapped, I32), I64)
    for place in _step_pointers(e, v, variant, starts, offset, pixels):
        e.prefetch(place)


def _add_products(e: Emitter, variant: Variant, unroll: int, weights: ir.Value, places: Sequence[ir.Value],
                  sums: Sequence[ir.Value]) -> list[ir.Value]:
    """The sums with `unroll` lanes of a step added: the pixels at `places` times each block's weights.

    Lanes take turns with the sets of sums.
    """
    values, width = list(sums), len(places) * variant.blocks
    packed = variant.whole or (variant.bf16 and variant.kind == "k16")
    multiply_add = e.dot_bytes if variant.whole else e.dot if packed else e.multiply_add
    aligned = min(64, 4 * variant.oc_tile)
    for lane in range(unroll):
        first = lane * width % len(values)
        row = [
            e.load(e.at(weights, 4 * lane * variant.oc_tile + 64 * i), WORDS if packed else e.vector, aligned)
            for i in range(variant.blocks)
        ]
        for m, place in enumerate(places):
            if variant.kind == "depthwise":
                narrow = e.load_u8 if variant.u8 else e.load_bf16
                x = narrow(place) if variant.u8 or variant.bf16 else e.load(place, e.vector)
            else:
                x = e.splat(e.load(e.at(place, 4 * lane), I32 if packed else F32))
            for i in range(variant.blocks):
                at = first + i * len(places) + m
                values[at] = multiply_add(x, row[i], values[at])
    return values


def _bias(e: Emitter, v: TileValues, variant: Variant, pixels: int) -> list[ir.Value]:
    """Return the bias vectors that the sums begin at."""
    bias = [e.load(e.at(v.bias, 64 * i), WORDS if variant.whole else e.vector) for i in range(variant.blocks)]
    return [bias[i // pixels] for i in range(variant.blocks * pixels)]


def so_far(e: Emitter, v: TileValues, variant: Variant, pixels: int) -> list[ir.Value]:
    """The bias, or the sums of the steps before, block by block; in u8 steps are not split."""
    values = _bias(e, v, variant, pixels)
    if variant.u8:
        return values
    later = e.builder.not_(v.is_first)
    for block in range(variant.blocks):
        present = e.builder.and_(later, e.builder.icmp_signed(">", v.blocks_left, integer(block)))
        mine = slice(block * pixels, (block + 1) * pixels)

        def stored(block: int = block) -> list[ir.Value]:
            return [e.load(place, e.vector) for place in v.output.places(e, block, pixels)]

        values[mine] = e.when(present, values[mine], stored)
    return values


def _store(e: Emitter, v: TileValues, variant: Variant, results: Sequence[ir.Value], target: Stored,
           block: int) -> None:
    """Write the results of one channel block, rounded if need be; a half block's upper half is zeros."""
    where = target.places(e, block, len(results))

    def narrow() -> list[ir.Value]:
        for value, place in zip(results, where, strict=True):
            e.store_bf16(value, place)
        return []

    def zeros() -> list[ir.Value]:
        for place in where:
            e.builder.store(ir.Constant(e.vector, None), e.at(place, 4 * variant.oc_tile), align=4)
        return []

    if variant.bf16:
        e.either(target.is_narrow, narrow, lambda: _store_floats(e, results, where))
    else:
        _store_floats(e, results, where)
    if variant.half:
        e.when(v.ends_early, [], zeros)


def _epilogue(e: Emitter, v: TileValues, variant: Variant, block: int, sums: Sequence[ir.Value]) -> list[ir.Value]:
    """Residual, clamp, activation, outputs of one channel block; the bare sums before the last steps."""
    b = e.builder

    def add_residual() -> list[ir.Value]:
        where = v.residual.places(e, block, len(sums))

        def add(load: Callable[[ir.Value], ir.Value]) -> list[ir.Value]:
            return [b.fadd(value, load(p)) for value, p in zip(sums, where, strict=True)]

        def wide() -> list[ir.Value]:
            return add(lambda p: e.load(p, e.vector))

        return e.either(v.residual.is_narrow, lambda: add(e.load_bf16), wide) if variant.bf16 else wide()

    def finish() -> list[ir.Value]:
        return _activated(e, v, block, _clamped(e, v, e.when(v.has_residual, sums, add_residual), "lower upper"))

    values = e.when(v.is_last, sums, finish)
    _store(e, v, variant, values, v.output, block)

    def second_output() -> list[ir.Value]:
        _store(e, v, variant, _clamped(e, v, _scaled(e, v, block, values), "lower2 upper2"), v.output2, block)
        return []

    e.when(b.and_(v.is_last, v.has_output2), [], second_output)
    return []
