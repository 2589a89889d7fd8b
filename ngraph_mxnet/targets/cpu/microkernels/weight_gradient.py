"""IR of the weight gradient kernels, which `weight_gradient_params.py` describes.

`ng_weight_gradient__<isa>` keeps a tile of sums in registers: some input channels by one or two blocks of output
channels, of one tap. For each pixel it loads the head gradient's blocks and multiplies them with each channel's number
in all lanes. A tap is nothing but another place to begin in the data, so that all kernels, strides and dilations run
the same loop.

`ng_weight_gradient_depthwise_<side>__<isa>` keeps the sums of a register of channels: of nine taps, or a row of more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from llvmlite import ir

from ngraph_mxnet.targets.cpu.microkernels.emit import F32, I1, I64, PTR, Emitter
from ngraph_mxnet.targets.cpu.microkernels.params import (
    DEPTHWISE_GRADIENTS,
    WEIGHT_GRADIENT,
    gradient_symbol,
)
from ngraph_mxnet.targets.cpu.microkernels.variants import Isa
from ngraph_mxnet.targets.cpu.params.record import Kernels

__all__ = ["build_weight_gradients"]

_PIXEL = 64
"""Bytes of a block's pixel."""
_TILES: dict[Isa, tuple[int, ...]] = {"avx512": (16, 8, 8, 6), "avx2": (6,), "baseline": (3,)}
"""The most input channels of a tile by one, two, ... output blocks. On AVX-512 24 sums leave registers for 4 vectors of
the head gradient and a broadcast; of 16 registers 12 are sums."""

Body = Callable[[Sequence[ir.Value]], Sequence[ir.Value]]


def build_weight_gradients(module: ir.Module, isa: Isa, vectors: int, multiply_add: str) -> None:
    """Add the kernels to `module`; a block of 16 channels is `vectors` registers."""
    _Dense(module, isa, WEIGHT_GRADIENT, multiply_add, lanes=16).build()
    for side, record in DEPTHWISE_GRADIENTS.items():
        _Depthwise(module, isa, record, multiply_add, lanes=16 // vectors, side=side).build()


@dataclass(frozen=True)
class _Chunk:
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


class _Kernel:
    """The loops over tasks, chunks and pixels."""

    def __init__(self, module: ir.Module, isa: Isa, record: Kernels, multiply_add: str, lanes: int) -> None:
        signature = ir.FunctionType(ir.VoidType(), [PTR, PTR, PTR, I64, I64])
        (name,) = record.element_bytes
        function = ir.Function(module, signature, name=gradient_symbol(name, isa))
        function.attributes.add("nounwind")
        self.isa = isa
        self.e = e = Emitter(function, multiply_add, lanes=lanes)
        tensors, ints = function.args[:2]
        self.n = {name: e.load(e.at(ints, 8 * i), I64, 8) for i, name in enumerate(record.ints)}
        self.data, self.head, self.sums = (e.load(e.at(tensors, 8 * i), PTR, 8) for i in range(3))

    def build(self) -> None:
        n, b = self.n, self.e.builder
        self.row_chunks = self.ceiling(n["height"], n["row_chunk"])
        self.image_chunks = self.ceiling(n["images"], n["image_chunk"])
        self.chunks = b.mul(self.row_chunks, self.image_chunks)
        if "batches" in n:
            self.chunks = b.mul(self.chunks, n["batches"])
        begin, end = self.e.function.args[3:]
        self.e.loop(begin, end, self.task)
        b.ret_void()

    def task(self, number: ir.Value) -> None:
        """Everything that belongs to a task; `each_chunk` calls back for its chunks."""
        raise NotImplementedError

    def each_chunk(self, copy: ir.Value, body: Callable[[_Chunk], None]) -> None:
        n, b, e = self.n, self.e.builder, self.e
        first = b.mul(copy, n["copy_chunks"])
        stop = self.least(b.add(first, n["copy_chunks"]), self.chunks)
        by_rows = b.icmp_signed("<", n["row_chunk"], n["height"])
        data_ahead, head_ahead = (b.select(by_rows, b.mul(n["row_chunk"], n[f"{name}_row"]),
                                           b.mul(n["image_chunk"], n[f"{name}_image"])) for name in ("data", "head"))

        def chunk(number: ir.Value) -> None:
            images = b.udiv(number, self.row_chunks)
            image = b.mul(b.urem(images, self.image_chunks), n["image_chunk"])
            row = b.mul(b.urem(number, self.row_chunks), n["row_chunk"])
            data, head = (e.at(e.at(start, b.mul(image, n[f"{name}_image"])), b.mul(row, n[f"{name}_row"]))
                          for name, start in (("data", e.at(self.data, n["first"])), ("head", self.head)))
            if "batches" in n:
                batch = b.udiv(images, self.image_chunks)
                data, head = e.at(data, b.mul(batch, n["data_batch"])), e.at(head, b.mul(batch, n["head_batch"]))
            begins = b.icmp_signed("==", number, first)
            if "adds" in n:
                begins = b.and_(begins, b.icmp_signed("==", n["adds"], _int(0)))
            body(_Chunk(data, head, self.least(n["image_chunk"], b.sub(n["images"], image)),
                        self.least(n["row_chunk"], b.sub(n["height"], row)), begins, data_ahead, head_ahead))

        self.e.loop(first, stop, chunk)

    def each_pixel(self, chunk: _Chunk, sums: Sequence[ir.Value], body: Body) -> Sequence[ir.Value]:
        """The sums after `body(data, head, *sums)` for each pixel of the chunk."""
        n, e = self.n, self.e

        def pixel(values: Sequence[ir.Value]) -> Sequence[ir.Value]:
            return [e.at(values[0], n["data_pixel"]), e.at(values[1], _PIXEL), *body(values)]

        def row(values: Sequence[ir.Value]) -> Sequence[ir.Value]:
            after = self.repeat(n["width"], values, pixel)
            return [e.at(values[0], n["data_row"]), e.at(values[1], n["head_row"]), *after[2:]]

        def image(values: Sequence[ir.Value]) -> Sequence[ir.Value]:
            after = self.repeat(chunk.rows, values, row)
            return [e.at(values[0], n["data_image"]), e.at(values[1], n["head_image"]), *after[2:]]

        return self.repeat(chunk.images, [chunk.data, chunk.head, *sums], image)[2:]

    def add(self, chunk: _Chunk, sums: Sequence[ir.Value], places: Sequence[ir.Value]) -> None:
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
        before, inside, after = b.block, self.e.block("repeat"), self.e.block("repeated")
        b.branch(inside)
        b.position_at_end(inside)
        left, *carried = [b.phi(value.type) for value in (count, *values)]
        results = [b.sub(left, _int(1)), *body(carried)]
        for phi, start, later in zip((left, *carried), (count, *values), results, strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(later, b.block)
        b.cbranch(b.icmp_signed(">", results[0], _int(0)), inside, after)
        b.position_at_end(after)
        return results[1:]

    def ceiling(self, count: ir.Value, size: ir.Value) -> ir.Value:
        b = self.e.builder
        return b.udiv(b.add(count, b.sub(size, _int(1))), size)

    def least(self, one: ir.Value, other: ir.Value) -> ir.Value:
        return self.e.builder.select(self.e.builder.icmp_signed("<", one, other), one, other)


class _Dense(_Kernel):
    """All pairs of an input channel and an output channel."""

    def task(self, number: ir.Value) -> None:
        n, b = self.n, self.e.builder
        groups = {name: self.ceiling(n[f"{name}_blocks"], n[f"{name}_group"]) for name in ("data", "head")}
        rest = b.udiv(number, groups["data"])
        copy = b.udiv(rest, groups["head"])
        ranges = []
        for name, digit in (("head", b.urem(rest, groups["head"])), ("data", b.urem(number, groups["data"]))):
            first = b.mul(digit, n[f"{name}_group"])
            ranges.append((first, self.least(b.add(first, n[f"{name}_group"]), n[f"{name}_blocks"])))
        taps = b.mul(n["taps_h"], n["taps_w"])
        tap_bytes = b.mul(n["lanes"], _int(_PIXEL))
        block_bytes = b.mul(taps, tap_bytes)
        head_bytes = b.mul(block_bytes, n["data_blocks"])
        sums = self.e.at(self.sums, b.mul(copy, b.mul(head_bytes, n["head_blocks"])))
        wide = len(_TILES[self.isa])

        def chunk(part: _Chunk) -> None:
            def heads(block: ir.Value) -> None:
                head = self.e.at(part.head, b.mul(block, n["head_block"]))
                target = self.e.at(sums, b.mul(block, head_bytes))
                left = b.sub(ranges[0][1], block)

                def datas(other: ir.Value) -> None:
                    data = self.e.at(part.data, b.mul(other, n["data_block"]))
                    is_last = b.icmp_signed("==", b.add(other, _int(1)), n["data_blocks"])
                    lanes = b.select(is_last, n["last_lanes"], n["lanes"])
                    inner = self.e.at(target, b.mul(other, block_bytes))

                    def tap(tap: ir.Value) -> None:
                        place = b.add(b.mul(b.udiv(tap, n["taps_w"]), n["tap_row"]),
                                      b.mul(b.urem(tap, n["taps_w"]), n["tap_column"]))
                        here = replace(part, data=self.e.at(data, place), head=head)
                        own = b.sub(block, ranges[0][0]), b.sub(other, ranges[1][0])
                        counts = [b.sub(stop, first) for first, stop in ranges]
                        before = b.add(b.mul(b.add(b.mul(b.udiv(own[0], _int(wide)), counts[1]), own[1]), taps), tap)

                        def ahead(visit: ir.Value) -> _Chunk:
                            distances = [self.distance(name, visit, mine, count, step) for name, mine, count, step in
                                         zip(("head", "data"), own, counts, (part.head_ahead, part.data_ahead),
                                             strict=True)]
                            return replace(here, head_ahead=distances[0], data_ahead=distances[1])

                        target = self.e.at(inner, b.mul(tap, tap_bytes))
                        self.tiles(ahead, before, lanes, left, target, head_bytes)

                    self.e.loop(_int(0), taps, tap)

                self.e.loop(*ranges[1], datas)

            self.e.loop(*ranges[0], heads, wide)

        self.each_chunk(copy, chunk)

    def distance(self, name: str, visit: ir.Value, own: ir.Value, count: ir.Value, step: ir.Value) -> ir.Value:
        """From an operand's block to what tile number `visit` of a chunk prefetches while it reads the block.

        Each of the first tiles prefetches a block of the next chunk, the others what is there already.
        """
        b = self.e.builder
        there = b.add(b.mul(b.sub(visit, own), self.n[f"{name}_block"]), step)
        return b.select(b.icmp_signed("<", visit, count), there, _int(0))

    def tiles(self, chunk: Callable[[ir.Value], _Chunk], before: ir.Value, lanes: ir.Value, blocks: ir.Value,
              sums: ir.Value, head_bytes: ir.Value) -> None:
        """The lanes of a block, in tiles whose sizes differ by at most one, by as many output blocks as there are.

        `chunk` gives the chunk for the number of a tile in it; as many as `before` taps were cut into tiles before.
        """
        e, b = self.e, self.e.builder
        tiles = _TILES[self.isa]
        done, invalid = e.block("tiles_done"), e.block("no_such_tile")
        switch = b.switch(self.least(blocks, _int(len(tiles))), invalid)
        for present, most in enumerate(tiles, 1):
            case = e.block(f"blocks{present}")
            switch.add_case(_int(present), case)
            b.position_at_end(case)
            self.parts(chunk, before, lanes, most, present, sums, head_bytes)
            b.branch(done)
        b.position_at_end(invalid)
        b.unreachable()
        b.position_at_end(done)

    def parts(self, chunk: Callable[[ir.Value], _Chunk], before: ir.Value, lanes: ir.Value, most: int, blocks: int,
              sums: ir.Value, head_bytes: ir.Value) -> None:
        """Tiles of at most so many lanes by `blocks` output blocks."""
        e, b = self.e, self.e.builder
        parts = self.ceiling(lanes, _int(most))
        size, larger = b.udiv(lanes, parts), b.urem(lanes, parts)

        def part(number: ir.Value) -> None:
            first = b.add(b.mul(number, size), self.least(number, larger))
            count = b.add(size, b.zext(b.icmp_signed("<", number, larger), I64))
            here = chunk(b.add(b.mul(before, parts), number))
            here = replace(here, data=e.at(here.data, b.mul(first, _int(4))))
            target = e.at(sums, b.mul(first, _int(_PIXEL)))
            done, invalid = e.block("tile_done"), e.block("no_such_tile")
            switch = b.switch(count, invalid)
            for channels in range(1, most + 1):
                case = e.block(f"tile{channels}x{blocks}")
                switch.add_case(_int(channels), case)
                b.position_at_end(case)
                self.tile(here, channels, blocks, target, head_bytes)
                b.branch(done)
            b.position_at_end(invalid)
            b.unreachable()
            b.position_at_end(done)

        self.e.loop(_int(0), parts, part)

    def tile(self, chunk: _Chunk, channels: int, blocks: int, target: ir.Value, head_bytes: ir.Value) -> None:
        e = self.e
        distances = self.multiples(self.n["head_block"], blocks)

        def pixel(values: Sequence[ir.Value]) -> Sequence[ir.Value]:
            data, head, *sums = values
            e.prefetch(e.at(data, chunk.data_ahead), 2)
            e.prefetch(e.at(head, chunk.head_ahead), 2)
            vectors = [e.load(e.at(head, distance), e.vector) for distance in distances]
            results = []
            for channel in range(channels):
                number = e.splat(e.load(e.at(data, 4 * channel), F32))
                for block, vector in enumerate(vectors):
                    results.append(e.multiply_add(number, vector, sums[channel * blocks + block]))
            return results

        sums = self.each_pixel(chunk, [ir.Constant(e.vector, None)] * (channels * blocks), pixel)
        rows = [e.at(target, distance) for distance in self.multiples(head_bytes, blocks)]
        self.add(chunk, sums, [e.at(row, channel * _PIXEL) for channel in range(channels) for row in rows])

    def multiples(self, number: ir.Value, count: int) -> list[ir.Value | int]:
        """0, 1, 2, ... times the number."""
        return [self.e.builder.mul(number, _int(i)) if i else 0 for i in range(count)]


class _Depthwise(_Kernel):
    """Each channel with itself."""

    def __init__(self, module: ir.Module, isa: Isa, record: Kernels, multiply_add: str, lanes: int, side: int) -> None:
        super().__init__(module, isa, record, multiply_add, lanes)
        self.side = side
        self.rows = side if side == 3 else 1
        """The number of rows of taps whose sums are in registers together."""

    def task(self, number: ir.Value) -> None:
        n, b, e = self.n, self.e.builder, self.e
        copy, block = b.udiv(number, n["blocks"]), b.urem(number, n["blocks"])
        target = e.at(self.sums, b.mul(number, _int(self.side**2 * _PIXEL)))
        data, head = b.mul(block, n["data_block"]), b.mul(block, n["head_block"])

        def chunk(part: _Chunk) -> None:
            whole = replace(part, data=e.at(part.data, data), head=e.at(part.head, head))
            e.loop(_int(0), _int(self.side // self.rows), lambda row: self.some_rows(
                replace(whole, data=e.at(whole.data, b.mul(row, n["tap_row"]))),
                e.at(target, b.mul(row, _int(self.side * _PIXEL)))))

        self.each_chunk(copy, chunk)

    def some_rows(self, chunk: _Chunk, target: ir.Value) -> None:
        """`rows` rows of taps, to their sums at `target`."""
        e, taps = self.e, self.rows * self.side
        for shift in range(0, _PIXEL, 4 * e.vector.count):
            here = replace(chunk, data=e.at(chunk.data, shift), head=e.at(chunk.head, shift))
            sums = self.each_pixel(here, [ir.Constant(e.vector, None)] * taps, self.pixel)
            self.add(here, sums, [e.at(target, tap * _PIXEL + shift) for tap in range(taps)])

    def pixel(self, values: Sequence[ir.Value]) -> Sequence[ir.Value]:
        e = self.e
        data, head, *sums = values
        vector = e.load(head, e.vector)
        rows = [data]
        while len(rows) < self.rows:
            rows.append(e.at(rows[-1], self.n["tap_row"]))
        met = [e.load(e.at(row, column * _PIXEL), e.vector) for row in rows for column in range(self.side)]
        return [e.multiply_add(value, vector, total) for value, total in zip(met, sums, strict=True)]


def _int(value: int) -> ir.Constant:
    return ir.Constant(I64, value)
