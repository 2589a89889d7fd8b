"""The inner loops of a contraction in the tiles of Intel's AMX.

Four tiles hold sums: of 16 pixels by 64 outputs, of 32 by 32, or of 64 by 16. So four products are under way: one takes
52 cycles, and the next one that adds to another tile may begin after 16.

A step has 16 input channels: half of what a product of bf16 takes, and a quarter of one of bytes. So the pixels' steps
are copied into a panel first, where a tile of input is 16 rows of 64 bytes, one behind the other. The panel stays for
all outputs of the same pixels that follow in a call. Where a tile of input can be read in place, as of most matrices,
nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from llvmlite import ir

from ngraph_mxnet.targets.cpu.microkernels.bf16 import tile_configuration, tile_instruction
from ngraph_mxnet.targets.cpu.microkernels.emit import BYTE, F32, I1, I32, I64, PTR, WORDS, Emitter, integer
from ngraph_mxnet.targets.cpu.microkernels.tables import PIXEL_TENSORS
from ngraph_mxnet.targets.cpu.microkernels.tile import TileValues, finish, prefetch_weights, so_far
from ngraph_mxnet.targets.cpu.microkernels.variants import PANEL_TILES, TILE_PIXELS, Variant

__all__ = ["Unit", "configure", "instruction", "memory_of", "release"]

_TILES, _SUMS = 8, 4
"""Tiles, of which the first ones are the sums."""
_ROW = 64
"""Bytes of a tile's row."""
_TILE = TILE_PIXELS * _ROW
_CHUNK = 4
"""Pixels that are copied, or stored, together."""
_KEPT = "bias scale2 shift2 slopes factor addend blocks_left".split()
_BLOCK = 16
"""Products of a panel that does not stay."""


def _step_bytes(variant: Variant) -> int:
    """The bytes of a pixel that a step reads: words, as many as there are rows of weights."""
    return 4 * variant.lanes


@dataclass(frozen=True)
class Unit:
    """What a call of a kernel keeps beside the unit's tiles."""

    variant: Variant
    panel: ir.Value
    """Tiles of input `[tile of pixels][product][16][64]`."""
    content: ir.Value
    """Where it stands of which chunk the panel holds all: its number, or -1."""
    sums: ir.Value
    """The tiles of sums, as `[pixel][output]`."""
    kept: ir.Value
    """What `finish` needs of the tile whose sums these are."""
    rest: ir.Value
    """The weights of a last product of fewer steps, with zeros behind them."""
    multiplies: ir.Value
    """There is a task; behind the last one there are only results."""
    products: ir.Value
    """How many products make all steps."""
    rest_steps: ir.Value
    """Steps of the last product, if those are fewer; else 0."""
    joined: ir.Value
    """Each pixel's steps lie one behind the other, and are whole products."""
    held: ir.Value
    """Products of a tile that the panel holds at once."""
    stays: ir.Value
    """The panel holds a whole chunk."""
    is_there: ir.Value
    """It holds this one. It and what follows belong to a task."""
    rest_place: ir.Value
    """Where the weights of the last product of fewer steps stand; null if there is none."""

    @staticmethod
    def of(e: Emitter, variant: Variant, table: ir.Value, steps: ir.Value, chunk_tiles: ir.Value) -> Unit:
        """At the start of a function, whose stack holds them. The unit is configured.

        Args:
            table: where the input of each of the `steps` lies.
            chunk_tiles: as in the kernel's parameters.
        """
        b = e.builder

        memory = partial(memory_of, e)
        configure(e)
        content, kept = memory(I64), memory(I64, 1 + len(_KEPT) + 2 * len(PIXEL_TENSORS[1:]))
        b.store(integer(-1), content, align=8)
        b.store(integer(0), kept, align=8)
        rest = memory(WORDS, TILE_PIXELS * variant.blocks)
        e.loop(integer(0), integer(TILE_PIXELS * variant.blocks),
               lambda row: _ignored(b.store(ir.Constant(WORDS, None), e.at(rest, b.mul(row, integer(_ROW))), align=64)))
        in_product = _ROW // _step_bytes(variant)
        products, rest_steps = e.ceiling(steps, integer(in_product)), b.urem(steps, integer(in_product))
        first = e.load_offset(table, integer(0))

        def follows(carried: list[ir.Value]) -> tuple[ir.Value, Sequence[ir.Value]]:
            number, _ = carried
            here = b.sub(e.load_offset(table, number), first)
            is_next = b.icmp_signed("==", here, b.mul(number, integer(_step_bytes(variant))))
            following = b.add(number, integer(1))
            return b.and_(is_next, b.icmp_signed("<", following, steps)), [following, is_next]

        _, joined = e.repeat("joined", [integer(0), ir.Constant(I1, 1)], follows)
        most = b.udiv(integer(PANEL_TILES // variant.pixel_tiles), products)
        stays = b.icmp_signed("<=", chunk_tiles, most)
        return Unit(variant, memory(WORDS, PANEL_TILES * TILE_PIXELS), content,
                    memory(F32, _SUMS * TILE_PIXELS * _ROW // 4), kept, rest, ir.Constant(I1, 1), products, rest_steps,
                    b.and_(joined, e.equals(rest_steps, 0)),
                    b.select(stays, products, e.least(products, integer(_BLOCK))), stays,
                    ir.Constant(I1, 0), ir.Constant(PTR, None))

    def for_task(self, e: Emitter, v: TileValues, chunk: ir.Value) -> Unit:
        """That of a task, of the pixels of a chunk of this number. The chunk's tiles will all be emitted."""
        b, variant = e.builder, self.variant
        is_there = b.icmp_signed("==", e.load(self.content, I64, 8), chunk)
        b.store(b.select(self.stays, chunk, integer(-1)), self.content, align=8)
        place = e.at(v.weights, b.mul(b.sub(self.products, integer(1)), integer(self._weight_bytes)))
        row_bytes = 4 * variant.lanes * variant.oc_tile

        def copy(at: ir.Value) -> None:
            moved = b.mul(at, integer(_ROW))
            b.store(e.load(e.at(place, moved), WORDS, 64), e.at(self.rest, moved), align=64)

        e.loop(integer(0), b.mul(self.rest_steps, integer(row_bytes // _ROW)), copy)
        is_whole = e.equals(self.rest_steps, 0)
        return replace(self, is_there=is_there, rest_place=b.select(is_whole, ir.Constant(PTR, None), place))

    @property
    def _weight_bytes(self) -> int:
        """Bytes of a product's weights."""
        return _ROW * self.variant.oc_tile

    def emit(self, e: Emitter, v: TileValues, pixels: ir.Value, number: ir.Value) -> None:
        """The products of the tile of this number in its chunk, of so many pixels, and the results of the tile before;
        only the latter unless `multiplies`. While the unit multiplies, the CPU gets on to those results."""
        b = e.builder
        parts = e.ceiling(pixels, integer(TILE_PIXELS))
        each = integer(self.variant.pixel_tiles * _TILE)
        start = e.at(self.panel, b.select(self.stays, b.mul(number, b.mul(self.products, each)), integer(0)))

        def multiply() -> list[ir.Value]:
            in_place, between = self._in_place(e, v, pixels)
            source = _Source(start, pixels, b.not_(b.or_(in_place, self.is_there)), in_place, between)
            e.switch(parts, {count: partial(self._accumulate, e, v, source, count)
                             for count in range(1, self.variant.pixel_tiles + 1)}, "parts")
            return []

        e.when(self.multiplies, [], multiply)
        count, before = self._before(e, v)
        whole = b.and_(count, integer(-_CHUNK))
        e.loop(integer(0), whole, lambda first: self._finish(e, before, first, _CHUNK), step=_CHUNK)
        e.loop(whole, count, lambda first: self._finish(e, before, first, 1))
        e.when(self.multiplies, [], lambda: self._store(e))
        for place, value in zip(self._places(e), [pixels, *_kept(v)], strict=True):
            b.store(value, place, align=8)

    def _places(self, e: Emitter) -> list[ir.Value]:
        """Where the pixels of the tile before and its values are kept."""
        return [e.at(self.kept, 8 * number) for number in range(1 + len(_KEPT) + 2 * len(PIXEL_TENSORS[1:]))]

    def _before(self, e: Emitter, v: TileValues) -> tuple[ir.Value, TileValues]:
        """The pixels of the tile before, and the values of `v` with those of its task and place."""
        count, *places = self._places(e)
        values = iter([e.load(place, value.type, 8) for place, value in zip(places, _kept(v), strict=True)])
        own = {name: next(values) for name in _KEPT}
        tensors = {name: replace(getattr(v, name), start=next(values), offsets=next(values))
                   for name in PIXEL_TENSORS[1:]}
        return e.load(count, I64, 8), replace(v, **own, **tensors)

    def _store(self, e: Emitter) -> list[ir.Value]:
        """Store the sums; of a tile of fewer pixels also those that nobody reads."""
        row = 4 * self.variant.oc_tile
        for tile in range(self.variant.pixel_tiles * self.variant.blocks):
            part, block = divmod(tile, self.variant.blocks)
            place = e.at(self.sums, row * TILE_PIXELS * part + _ROW * block)
            instruction(e, "tilestored64", tile, place, integer(row))
        return []

    def _in_place(self, e: Emitter, v: TileValues, pixels: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Whether whole tiles of pixels, at one stride, can be read where they lie; and the stride."""
        b = e.builder
        is_whole = e.equals(b.and_(pixels, integer(TILE_PIXELS - 1)), 0)

        def look() -> list[ir.Value]:
            first = e.load_offset(v.offsets, integer(0))
            stride = b.sub(e.load_offset(v.offsets, integer(1)), first)

            def compare(carried: list[ir.Value]) -> tuple[ir.Value, Sequence[ir.Value]]:
                pixel, _ = carried
                wanted = b.add(first, b.mul(pixel, stride))
                alike = b.icmp_signed("==", e.load_offset(v.offsets, pixel), wanted)
                following = b.add(pixel, integer(1))
                return b.and_(alike, b.icmp_signed("<", following, pixels)), [following, alike]

            _, alike = e.repeat("pixels", [integer(0), ir.Constant(I1, 1)], compare)
            return [alike, stride]

        found, stride = e.when(b.and_(self.joined, is_whole), [ir.Constant(I1, 0), integer(0)], look)
        return found, stride

    def _accumulate(self, e: Emitter, v: TileValues, source: _Source, parts: int) -> None:
        """Add all products of `parts` tiles of pixels in the tiles."""
        b, variant = e.builder, self.variant
        blocks, row = variant.blocks, integer(4 * variant.oc_tile)
        for tile in range(parts * blocks):
            instruction(e, "tilezero", tile)
        pitch = b.mul(self.held, integer(_TILE))
        origin = e.at(v.input, b.add(e.load_offset(v.offsets, integer(0)), e.load_offset(v.steps, integer(0))))
        apart = b.select(source.in_place, source.between, integer(_ROW))
        advance = b.select(source.in_place, integer(_ROW), integer(_TILE))
        tile_pitch = b.select(source.in_place, b.mul(source.between, integer(TILE_PIXELS)), pitch)
        step_bytes = integer(4 * _ROW // _step_bytes(variant))
        times = b.mul(v.prefetches, integer(_ROW // _step_bytes(variant)))
        fetch_bytes = b.mul(times, integer(variant.prefetch_bytes))

        def multiply(carried: list[ir.Value]) -> tuple[ir.Value, Sequence[ir.Value]]:
            left, data, weights, fetched = carried
            here = b.select(b.icmp_unsigned("==", weights, self.rest_place), self.rest, weights)
            for part in range(parts):
                input_tile = _SUMS + part % max(1, 4 - blocks)
                instruction(e, "tileloadd64", input_tile, e.at(data, b.mul(tile_pitch, integer(part))), apart)
                for block in range(blocks):
                    packed = _TILES - 1 - block % min(blocks, 3)
                    if not part:
                        instruction(e, "tileloadd64", packed, e.at(here, _ROW * block), row)
                    instruction(e, "tdpbusd" if variant.u8 else "tdpbf16ps", part * blocks + block, input_tile, packed)
            prefetch_weights(e, fetched, variant.prefetch_bytes, times)
            remaining = b.sub(left, integer(1))
            return b.icmp_signed("!=", remaining, integer(0)), [
                remaining, e.at(data, advance), e.at(weights, self._weight_bytes), e.at(fetched, fetch_bytes)]

        def some(carried: list[ir.Value]) -> tuple[ir.Value, Sequence[ir.Value]]:
            """Those that the panel holds at once."""
            left, steps, data, weights, fetched = carried
            count = e.least(left, self.held)
            following = e.at(steps, b.mul(count, step_bytes))
            is_last = b.icmp_signed("==", count, left)
            end = b.select(is_last, v.steps_end, following)

            def copy() -> list[ir.Value]:
                for part in range(parts):
                    self._copy(e, v, source, part, e.at(source.start, b.mul(pitch, integer(part))), steps, end)
                return []

            e.when(source.copies, [], copy)
            _, _, weights, fetched = e.repeat("products", [count, data, weights, fetched], multiply)
            # What is read in place is read on; the panel is filled anew.
            behind = e.at(data, b.select(source.in_place, b.mul(count, integer(_ROW)), integer(0)))
            return b.not_(is_last), [b.sub(left, count), following, behind, weights, fetched]

        data = b.select(source.in_place, origin, source.start)
        e.repeat("blocks", [self.products, v.steps, data, v.weights, v.ahead], some)

    def _copy(self, e: Emitter, v: TileValues, source: _Source, part: int, target: ir.Value, steps: ir.Value,
              end: ir.Value) -> None:
        """The steps up to `end` of the pixels of a tile, with zeros behind those of the last product."""
        b = e.builder
        first = integer(TILE_PIXELS * part)
        count = e.least(b.sub(source.pixels, first), integer(TILE_PIXELS))
        behind = v.behind(e, first)
        whole = b.and_(count, integer(-_CHUNK))

        def copy(pixels: int, pixel: ir.Value) -> None:
            self._copy_pixels(e, behind.behind(e, pixel), pixels, e.at(target, b.mul(pixel, integer(_ROW))), steps, end)

        e.loop(integer(0), whole, partial(copy, _CHUNK), step=_CHUNK)
        e.loop(whole, count, partial(copy, 1))

    def _copy_pixels(self, e: Emitter, v: TileValues, pixels: int, target: ir.Value, steps: ir.Value,
                     end: ir.Value) -> None:
        """The same of a few pixels that follow each other in the pixel table."""
        b, size = e.builder, _step_bytes(self.variant)
        in_product = _ROW // size
        starts = [e.at(v.input, e.load_offset(v.offsets, integer(m))) for m in range(pixels)]
        count = b.lshr(b.sub(b.ptrtoint(end, I64), b.ptrtoint(steps, I64)), integer(2))
        products = b.udiv(count, integer(in_product))

        def move(offset: ir.Value, to: ir.Value, count: int = 1) -> list[ir.Value]:
            kind = ir.VectorType(I32, count * size // 4)
            for m, start in enumerate(starts):
                b.store(e.load(e.at(start, offset), kind, 1), e.at(to, _ROW * m), align=size)
            return []

        def product(number: ir.Value) -> None:
            to, step = e.at(target, b.mul(number, integer(_TILE))), b.mul(number, integer(in_product))
            for at in range(0, in_product, 2):
                here = e.at(to, size * at)
                first, second = (e.load_offset(steps, b.add(step, integer(n))) for n in (at, at + 1))
                e.either(e.equals(b.sub(second, first), size), partial(move, first, here, 2),
                         partial(_apart, move, (first, here), (second, e.at(here, size))))

        e.loop(integer(0), products, product)
        done, last = b.mul(products, integer(in_product)), e.at(target, b.mul(products, integer(_TILE)))

        def rest() -> list[ir.Value]:
            for m in range(pixels):
                b.store(ir.Constant(WORDS, None), e.at(last, _ROW * m), align=64)
            e.loop(done, count, lambda step: _ignored(move(
                e.load_offset(steps, step), e.at(last, b.mul(b.sub(step, done), integer(size))))))
            return []

        e.when(b.icmp_signed("!=", done, count), [], rest)

    def _finish(self, e: Emitter, v: TileValues, first: ir.Value, count: int) -> None:
        """Store the results of `count` pixels from `first` on."""
        b, variant = e.builder, self.variant
        row, here = b.mul(first, integer(4 * variant.oc_tile)), v.behind(e, first)
        sums = so_far(e, here, variant, count)
        for block in range(variant.blocks):
            places = e.at(e.at(self.sums, _ROW * block), row)
            for pixel in range(count):
                at = block * count + pixel
                added = e.load(e.at(places, 4 * variant.oc_tile * pixel), WORDS if variant.u8 else e.vector, 64)
                sums[at] = b.add(sums[at], added) if variant.u8 else b.fadd(sums[at], added)
        finish(e, here, variant, sums, count)


@dataclass(frozen=True)
class _Source:
    """Where a tile's input comes from."""

    start: ir.Value
    """Its place in the panel."""
    pixels: ir.Value
    copies: ir.Value
    """It is to be copied there."""
    in_place: ir.Value
    """It is read where it lies, at a stride of `between`."""
    between: ir.Value


def _kept(v: TileValues) -> list[ir.Value]:
    """What results depend on beside sums that differs from tile to tile."""
    tensors = [getattr(v, name) for name in PIXEL_TENSORS[1:]]
    return [*(getattr(v, name) for name in _KEPT), *(place for each in tensors for place in (each.start, each.offsets))]


def _ignored(_: object) -> None:
    """For what has no value."""


def _apart(move: Callable[[ir.Value, ir.Value], list[ir.Value]], *pieces: tuple[ir.Value, ir.Value]) -> list[ir.Value]:
    return [value for piece in pieces for value in move(*piece)]


def memory_of(e: Emitter, kind: ir.Type, count: int = 1) -> ir.Value:
    """Memory on the function's stack, at its start."""
    found = e.builder.alloca(ir.ArrayType(kind, count))
    found.align, found.type = 64, PTR  # of bytes, as all pointers here
    return found


def configure(e: Emitter) -> None:
    """Configure the unit for whole tiles, at the start of a function."""
    configuration = memory_of(e, BYTE, 64)
    e.builder.store(ir.Constant(ir.ArrayType(BYTE, 64), bytearray(tile_configuration())), configuration, align=64)
    instruction(e, "ldtilecfg", configuration)


def release(e: Emitter) -> None:
    """Leave the unit as it was found: what a thread keeps there makes each switch to another one slower."""
    instruction(e, "tilerelease")


def instruction(e: Emitter, name: str, *operands: ir.Value | int) -> None:
    """An instruction; an int is a tile."""
    tile_instruction(e.builder, name, *operands)
