"""IR of the weight gradient kernels, which `params.py` describes.

`ng_weight_gradient__<isa>` keeps a tile of sums in registers: some input channels by one or two blocks of output
channels, of one tap. For each pixel it loads the head gradient's blocks and multiplies them with each channel's number
in all lanes. A tap is nothing but another place to begin in the data, so that all kernels, strides and dilations run
the same loop.

`ng_weight_gradient_bf16__avx512` is in `paired_gradient.py`.

`ng_weight_gradient_depthwise_<side>__<isa>` keeps the sums of a register of channels: of nine taps, or a row of more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from llvmlite import ir

from ngraph_mxnet.targets.cpu.microkernels.emit import F32, I1, I64, Emitter, integer, kernel_function
from ngraph_mxnet.targets.cpu.microkernels.params import (
    DEPTHWISE_GRADIENTS,
    WEIGHT_GRADIENT,
    gradient_symbol,
)
from ngraph_mxnet.targets.cpu.microkernels.variants import Isa
from ngraph_mxnet.targets.cpu.params.record import PIXEL, Kernels

__all__ = ["TILES", "Chunk", "Dense", "Task", "Walk", "build_weight_gradients"]

TILES: dict[Isa, tuple[int, ...]] = {"avx512": (16, 8, 8, 6), "avx2": (6,), "baseline": (3,)}
"""The most input channels of a tile by one, two, ... output blocks. On AVX-512 24 sums leave registers for 4 vectors of
the head gradient and a broadcast; of 16 registers 12 are sums."""

Body = Callable[[Sequence[ir.Value]], Sequence[ir.Value]]


def build_weight_gradients(module: ir.Module, isa: Isa, vectors: int, multiply_add: str) -> None:
    """Add the kernels to `module`; a block of 16 channels is `vectors` registers."""
    Dense(module, isa, WEIGHT_GRADIENT, multiply_add, lanes=16).build()
    for side, record in DEPTHWISE_GRADIENTS.items():
        _Depthwise(module, isa, record, multiply_add, lanes=16 // vectors, side=side).build()


@dataclass(frozen=True)
class Chunk:
    """Pointers to its first pixel of the first block, how much there is of it, and whether its sums are the first.

    `data_ahead` and `head_ahead`: how far away what is prefetched lies.
    """

    data: ir.Value
    head: ir.Value
    images: ir.Value
    rows: ir.Value
    is_first: ir.Value
    data_ahead: ir.Value
    head_ahead: ir.Value


class Walk(NamedTuple):
    """How many pixels a row of a chunk has, and the bytes from an image, a row and a pixel to the next."""

    width: ir.Value
    data: Any
    head: Any


class Task(NamedTuple):
    """The head and the data blocks of a task, each from a first one to before the last, and where its sums begin."""

    heads: tuple[ir.Value, ir.Value]
    datas: tuple[ir.Value, ir.Value]
    sums: ir.Value


class _Kernel:
    """The loops over tasks, chunks and pixels."""

    def __init__(self, module: ir.Module, isa: Isa, record: Kernels, multiply_add: str, lanes: int,
                 compiled_for: Isa = "baseline") -> None:
        (name,) = record.element_bytes
        self.isa = isa
        function = kernel_function(module, gradient_symbol(name, isa))
        self.e = e = Emitter(function, multiply_add, compiled_for, lanes=lanes)
        self.n = n = e.ints(record)
        self.data, self.head, self.sums = e.operands(3)
        self.walk = Walk(n.width, (n.data.image, n.data.row, n.data.pixel), (n.head.image, n.head.row, PIXEL))

    def build(self) -> None:
        n, b = self.n, self.e.builder
        self.row_chunks = self.e.ceiling(n.height, n.row_chunk)
        self.image_chunks = self.e.ceiling(n.images, n.image_chunk)
        self.chunks = b.mul(self.row_chunks, self.image_chunks)
        if "batches" in n._fields:
            self.chunks = b.mul(self.chunks, n.batches)
        begin, end = self.e.function.args[3:]
        self.e.loop(begin, end, self.task)
        self.finish()
        b.ret_void()

    def finish(self) -> None:
        """What follows the last task of a call."""

    def task(self, number: ir.Value) -> None:
        """Everything that belongs to a task; `each_chunk` calls back for its chunks."""
        raise NotImplementedError

    def each_chunk(self, copy: ir.Value, body: Callable[[Chunk], None]) -> None:
        n, b, e = self.n, self.e.builder, self.e
        first = b.mul(copy, n.copy_chunks)
        stop = self.e.least(b.add(first, n.copy_chunks), self.chunks)
        by_rows = b.icmp_signed("<", n.row_chunk, n.height)
        data_ahead, head_ahead = (
            b.select(by_rows, b.mul(n.row_chunk, strides.row), b.mul(n.image_chunk, strides.image))
            for strides in (n.data, n.head))

        def chunk(number: ir.Value) -> None:
            images = b.udiv(number, self.row_chunks)
            image = b.mul(b.urem(images, self.image_chunks), n.image_chunk)
            row = b.mul(b.urem(number, self.row_chunks), n.row_chunk)
            data, head = (e.at(e.at(start, b.mul(image, strides.image)), b.mul(row, strides.row))
                          for strides, start in ((n.data, e.at(self.data, n.first)), (n.head, self.head)))
            if "batches" in n._fields:
                batch = b.udiv(images, self.image_chunks)
                data, head = e.at(data, b.mul(batch, n.batch.data)), e.at(head, b.mul(batch, n.batch.head))
            begins = b.icmp_signed("==", number, first)
            if "adds" in n._fields:
                begins = b.and_(begins, b.icmp_signed("==", n.adds, integer(0)))
            body(Chunk(data, head, self.e.least(n.image_chunk, b.sub(n.images, image)),
                        self.e.least(n.row_chunk, b.sub(n.height, row)), begins, data_ahead, head_ahead))

        self.e.loop(first, stop, chunk)

    def each_pixel(self, chunk: Chunk, sums: Sequence[ir.Value], body: Body) -> Sequence[ir.Value]:
        """The sums after `body(data, head, *sums)` for each pixel of the chunk."""
        e, walk = self.e, self.walk
        images, rows, pixels = zip(walk.data, walk.head, strict=True)

        def moved(values: Sequence[ir.Value], steps: Sequence[ir.Value | int]) -> list[ir.Value]:
            return [e.at(place, step) for place, step in zip(values, steps, strict=False)]

        def pixel(values: Sequence[ir.Value]) -> Sequence[ir.Value]:
            return [*moved(values, pixels), *body(values)]

        def row(values: Sequence[ir.Value]) -> Sequence[ir.Value]:
            after = self.repeat(walk.width, values, pixel)
            return [*moved(values, rows), *after[2:]]

        def image(values: Sequence[ir.Value]) -> Sequence[ir.Value]:
            after = self.repeat(chunk.rows, values, row)
            return [*moved(values, images), *after[2:]]

        return self.repeat(chunk.images, [chunk.data, chunk.head, *sums], image)[2:]

    def add(self, chunk: Chunk, sums: Sequence[ir.Value], places: Sequence[ir.Value]) -> None:
        """Add the sums to those of the chunks before."""
        b, e = self.e.builder, self.e
        later = b.xor(chunk.is_first, ir.Constant(I1, 1))
        total = e.when(later, sums, lambda: [b.fadd(value, e.load(place, e.vector))
                                             for value, place in zip(sums, places, strict=True)])
        for value, place in zip(total, places, strict=True):
            b.store(value, place, align=4)

    # ---- loops and numbers ------------------------------------------------------------------------------

    def repeat(self, count: ir.Value, values: Sequence[ir.Value], body: Body) -> Sequence[ir.Value]:
        """`values = body(values)`, `count` times, at least once."""
        b = self.e.builder

        def turn(carried: list[ir.Value]) -> tuple[ir.Value, Sequence[ir.Value]]:
            following = [b.sub(carried[0], integer(1)), *body(carried[1:])]
            return b.icmp_signed(">", following[0], integer(0)), following

        return self.e.repeat("repeat", [count, *values], turn)[1:]


class Dense(_Kernel):
    """All pairs of an input channel and an output channel."""

    def task(self, number: ir.Value) -> None:
        n, b = self.n, self.e.builder
        of_data, of_head = (self.e.ceiling(*sizes) for sizes in zip(n.blocks, n.group, strict=True))
        rest = b.udiv(number, of_data)
        copy = b.udiv(rest, of_head)
        ranges = []
        for digit, size, blocks in ((b.urem(rest, of_head), n.group.head, n.blocks.head),
                                    (b.urem(number, of_data), n.group.data, n.blocks.data)):
            first = b.mul(digit, size)
            ranges.append((first, self.e.least(b.add(first, size), blocks)))
        taps = b.mul(n.taps.h, n.taps.w)
        self.tap_bytes = b.mul(n.lanes, integer(PIXEL))
        self.block_bytes = b.mul(taps, self.tap_bytes)
        self.head_bytes = b.mul(self.block_bytes, n.blocks.data)
        sums = self.e.at(self.sums, b.mul(copy, b.mul(self.head_bytes, n.blocks.head)))
        own = Task(ranges[0], ranges[1], sums)
        self.each_chunk(copy, lambda part: self.chunk(part, own))

    def chunk(self, part: Chunk, task: Task) -> None:
        """What the chunk adds to the task's sums."""
        n, b = self.n, self.e.builder
        wide, taps = len(TILES[self.isa]), b.mul(n.taps.h, n.taps.w)
        ranges = task.heads, task.datas

        def heads(block: ir.Value) -> None:
            head = self.e.at(part.head, b.mul(block, n.head.block))

            def datas(other: ir.Value) -> None:
                data = self.e.at(part.data, b.mul(other, n.data.block))

                def tap(tap: ir.Value) -> None:
                    place = b.add(b.mul(b.udiv(tap, n.taps.w), n.tap.row),
                                  b.mul(b.urem(tap, n.taps.w), n.tap.column))
                    here = replace(part, data=self.e.at(data, place), head=head)
                    own = b.sub(block, ranges[0][0]), b.sub(other, ranges[1][0])
                    counts = [b.sub(stop, first) for first, stop in ranges]
                    before = b.add(b.mul(b.add(b.mul(b.udiv(own[0], integer(wide)), counts[1]), own[1]), taps), tap)

                    def ahead(visit: ir.Value) -> Chunk:
                        distances = [
                            self.distance(strides.block, visit, mine, count, step) for strides, mine, count, step in
                            zip((n.head, n.data), own, counts, (part.head_ahead, part.data_ahead), strict=True)]
                        return replace(here, head_ahead=distances[0], data_ahead=distances[1])

                    self.tiles(ahead, before, task, block, other, tap)

                self.e.loop(integer(0), taps, tap)

            self.e.loop(*task.datas, datas)

        self.e.loop(*task.heads, heads, wide)

    def distance(self, block: ir.Value, visit: ir.Value, own: ir.Value, count: ir.Value, step: ir.Value) -> ir.Value:
        """From an operand's block, of `block` bytes, to what tile number `visit` of a chunk prefetches meanwhile.

        Each of the first tiles prefetches a block of the next chunk, the others what is there already.
        """
        b = self.e.builder
        there = b.add(b.mul(b.sub(visit, own), block), step)
        return b.select(b.icmp_signed("<", visit, count), there, integer(0))

    def tiles(self, chunk: Callable[[ir.Value], Chunk], before: ir.Value, task: Task, head: ir.Value, data: ir.Value,
              tap: ir.Value) -> None:
        """The lanes of a data block, in tiles whose sizes differ by at most one, by as many head blocks as there are.

        `chunk` gives the chunk for the number of a tile in it; as many as `before` taps were cut into tiles before.
        """
        n, b, tiles = self.n, self.e.builder, TILES[self.isa]
        lanes = b.select(b.icmp_signed("==", b.add(data, integer(1)), n.blocks.data), n.last_lanes, n.lanes)
        sums = self.sums_of(task, head, data, tap)
        self.e.switch(self.e.least(b.sub(task.heads[1], head), integer(len(tiles))), {
            present: partial(self.parts, chunk, before, lanes, most, present, sums)
            for present, most in enumerate(tiles, 1)}, "blocks")

    def sums_of(self, task: Task, head: ir.Value, data: ir.Value, tap: ir.Value) -> ir.Value:
        """Where those of a tap of a data block and a head block begin."""
        b, place = self.e.builder, task.sums
        for number, size in ((head, self.head_bytes), (data, self.block_bytes), (tap, self.tap_bytes)):
            place = self.e.at(place, b.mul(number, size))
        return place

    def parts(self, chunk: Callable[[ir.Value], Chunk], before: ir.Value, lanes: ir.Value, most: int, blocks: int,
              sums: ir.Value) -> None:
        """Tiles of at most so many lanes by `blocks` head blocks."""
        e, b = self.e, self.e.builder
        parts = self.e.ceiling(lanes, integer(most))
        size, larger = b.udiv(lanes, parts), b.urem(lanes, parts)

        def part(number: ir.Value) -> None:
            first = b.add(b.mul(number, size), self.e.least(number, larger))
            count = b.add(size, b.zext(b.icmp_signed("<", number, larger), I64))
            here = chunk(b.add(b.mul(before, parts), number))
            here = replace(here, data=e.at(here.data, b.mul(first, integer(4))))
            target = e.at(sums, b.mul(first, integer(PIXEL)))
            e.switch(count, {channels: partial(self.tile, here, channels, blocks, target)
                             for channels in range(1, most + 1)}, f"tile_{blocks}x")

        self.e.loop(integer(0), parts, part)

    def tile(self, chunk: Chunk, channels: int, blocks: int, target: ir.Value) -> None:
        """`channels` sums by `blocks` head blocks."""
        e = self.e
        distances = self.multiples(self.head_block(), blocks)

        def pixel(values: Sequence[ir.Value]) -> Sequence[ir.Value]:
            data, head, *sums = values
            self.prefetch(chunk, data, head)
            vectors = [self.vector(e.at(head, distance)) for distance in distances]
            results = []
            for channel in range(channels):
                number = self.number(e.at(data, 4 * channel))
                for block, vector in enumerate(vectors):
                    results.append(self.multiply(number, vector, sums[channel * blocks + block]))
            return results

        sums = self.each_pixel(chunk, [ir.Constant(e.vector, None)] * (channels * blocks), pixel)
        rows = [e.at(target, distance) for distance in self.multiples(self.head_bytes, blocks)]
        self.add(chunk, sums, [e.at(row, channel * PIXEL) for channel in range(channels) for row in rows])

    def head_block(self) -> ir.Value:
        """Bytes from a head block to the next where tiles read them."""
        return self.n.head.block

    def prefetch(self, chunk: Chunk, data: ir.Value, head: ir.Value) -> None:
        """Of what follows, at each pixel."""
        self.e.prefetch(self.e.at(data, chunk.data_ahead), 2)
        self.e.prefetch(self.e.at(head, chunk.head_ahead), 2)

    def vector(self, place: ir.Value) -> ir.Value:
        """A head block's numbers at a pixel."""
        return self.e.load(place, self.e.vector)

    def number(self, place: ir.Value) -> ir.Value:
        """A channel's number at a pixel, in all lanes."""
        return self.e.splat(self.e.load(place, F32))

    def multiply(self, number: ir.Value, vector: ir.Value, total: ir.Value) -> ir.Value:
        return self.e.multiply_add(number, vector, total)

    def multiples(self, number: ir.Value, count: int) -> list[ir.Value | int]:
        """0, 1, 2, ... times the number."""
        return [self.e.builder.mul(number, integer(i)) if i else 0 for i in range(count)]


class _Depthwise(_Kernel):
    """Each channel with itself."""

    def __init__(self, module: ir.Module, isa: Isa, record: Kernels, multiply_add: str, lanes: int, side: int) -> None:
        super().__init__(module, isa, record, multiply_add, lanes)
        self.side = side
        self.rows = side if side == 3 else 1
        """The number of rows of taps whose sums are in registers together."""

    def task(self, number: ir.Value) -> None:
        n, b, e = self.n, self.e.builder, self.e
        copy, block = b.udiv(number, n.blocks), b.urem(number, n.blocks)
        target = e.at(self.sums, b.mul(number, integer(self.side**2 * PIXEL)))
        data, head = b.mul(block, n.data.block), b.mul(block, n.head.block)

        def chunk(part: Chunk) -> None:
            whole = replace(part, data=e.at(part.data, data), head=e.at(part.head, head))
            e.loop(integer(0), integer(self.side // self.rows), lambda row: self.some_rows(
                replace(whole, data=e.at(whole.data, b.mul(row, n.tap.row))),
                e.at(target, b.mul(row, integer(self.side * PIXEL)))))

        self.each_chunk(copy, chunk)

    def some_rows(self, chunk: Chunk, target: ir.Value) -> None:
        """`rows` rows of taps, to their sums at `target`."""
        e, taps = self.e, self.rows * self.side
        for shift in range(0, PIXEL, 4 * e.vector.count):
            here = replace(chunk, data=e.at(chunk.data, shift), head=e.at(chunk.head, shift))
            sums = self.each_pixel(here, [ir.Constant(e.vector, None)] * taps, self.pixel)
            self.add(here, sums, [e.at(target, tap * PIXEL + shift) for tap in range(taps)])

    def pixel(self, values: Sequence[ir.Value]) -> Sequence[ir.Value]:
        e = self.e
        data, head, *sums = values
        vector = e.load(head, e.vector)
        rows = [data]
        while len(rows) < self.rows:
            rows.append(e.at(rows[-1], self.n.tap.row))
        met = [e.load(e.at(row, column * PIXEL), e.vector) for row in rows for column in range(self.side)]
        return [e.multiply_add(value, vector, total) for value, total in zip(met, sums, strict=True)]
