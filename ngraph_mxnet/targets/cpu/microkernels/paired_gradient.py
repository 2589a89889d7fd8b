"""IR of the weight gradient kernels of bf16, `ng_weight_gradient_bf16__avx512` and that in AMX's tiles, which ends in
`_bf16_amx__avx512`; `params.py` describes them.

A product of bf16 adds the products of two numbers. Here these are two pixels, neighbours in a row of the head gradient.
A task arranges each chunk on its stack, in pairs of a channel's numbers: all head blocks of its group, and one data
block after the other. A column of taps that moves the data by half a pair finds the pairs in another copy.

In AMX a tile of sums is 16 input channels by 16 output channels, and a product adds 16 pairs. Those of the head
gradient are a tile as they are; those of the data are turned, so that a channel's pairs follow each other. A tap is
another pair to begin with, as the head gradient has as many pairs in a line as the data, with zeros behind its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from llvmlite import ir

from ngraph_mxnet.targets.cpu.microkernels import amx
from ngraph_mxnet.targets.cpu.microkernels.emit import BYTE, I32, I64, WORDS, integer, require_features
from ngraph_mxnet.targets.cpu.microkernels.params import (
    BF16_WEIGHT_GRADIENTS,
    DATA_ROOM,
    HEAD_ROOM,
    TILED_HEAD_ROOM,
)
from ngraph_mxnet.targets.cpu.microkernels.variants import AMX, Isa
from ngraph_mxnet.targets.cpu.microkernels.weight_gradient import TILES, Chunk, Dense, Task, Walk
from ngraph_mxnet.targets.cpu.params.record import PIXEL

__all__ = ["build_paired_gradients"]

_ROWS = 16
"""Of a tile: channels, or pairs."""
_HEADS = len(TILES["avx512"])
"""Head blocks of a tile of sums; of AMX's each is a tile."""


def build_paired_gradients(module: ir.Module, isa: Isa, compiled_for: Isa, multiply_add: str, features: str) -> None:
    """Add the kernels to `module`; that of AMX's tiles only for its own instruction set, with more `features`."""
    _Paired(module, isa, compiled_for, multiply_add).build()
    if isa == compiled_for:
        _Tiled(module, isa, compiled_for, multiply_add, features).build()


class _Paired(Dense):
    """All pairs of an input channel and an output channel, over pairs of pixels."""

    tiled, pair_bytes = False, PIXEL
    """In AMX's tiles; from a pair of the arranged data to the next."""

    def __init__(self, module: ir.Module, isa: Isa, compiled_for: Isa, multiply_add: str) -> None:
        super().__init__(module, isa, BF16_WEIGHT_GRADIENTS[self.tiled], multiply_add, 16, compiled_for)
        n, b = self.n, self.e.builder
        self.heads, self.pairs, self.zeros = (amx.memory_of(self.e, BYTE, size) for size in (
            TILED_HEAD_ROOM if self.tiled else HEAD_ROOM, DATA_ROOM, PIXEL))
        b.store(ir.Constant(WORDS, None), self.zeros, align=PIXEL)
        width = self.e.ceiling(n.width, integer(2))
        self.line_pairs = b.add(width, b.mul(b.sub(self.e.ceiling(n.taps.w, n.phases), integer(1)), n.shift))
        self.line = b.mul(self.line_pairs, integer(PIXEL))
        self.more_lines = b.add(b.mul(b.sub(n.taps.h, integer(1)), n.lines.tap), integer(1))
        self.phase, self.walk = self.places(width)

    def places(self, width: ir.Value) -> tuple[ir.Value, Walk]:
        """The bytes of a phase of the data, and how the pairs of a chunk are walked, of `width` in a row."""
        n, b = self.n, self.e.builder
        image = b.mul(self.line, self.lines(n.row_chunk))
        phase, row = b.mul(image, n.image_chunk), b.mul(width, integer(PIXEL))
        head = b.mul(row, n.row_chunk)
        return phase, Walk(width, (image, b.mul(self.line, n.lines.row), PIXEL), (head, row, PIXEL))

    def lines(self, rows: ir.Value) -> ir.Value:
        """How many lines of data so many rows of the head gradient meet."""
        b = self.e.builder
        return b.add(b.mul(b.sub(rows, integer(1)), self.n.lines.row), self.more_lines)

    def chunk(self, part: Chunk, task: Task) -> None:
        """What the chunk adds to the task's sums."""
        e, n, b = self.e, self.n, self.e.builder

        def arrange_head(block: ir.Value) -> None:
            source = e.at(part.head, b.mul(block, n.head.block))
            target = e.at(self.heads, b.mul(b.sub(block, task.heads[0]), self.head_block()))
            self.each_width(n.narrow.head, lambda size: self.arrange_head(
                part, (source, n.head.image, n.head.row, integer(16 * size)), target,
                b.mul(b.sub(n.width, integer(1)), integer(16 * size)), size))

        def arrange_data(source: ir.Value, phase: ir.Value) -> None:
            begin = b.mul(phase, n.tap.column)
            last = b.add(b.mul(b.sub(n.width, integer(1)), n.data.pixel),
                         b.mul(b.sub(n.taps.w, integer(1)), n.tap.column))
            target = e.at(self.pairs, b.mul(phase, self.phase))
            self.each_width(n.narrow.data, lambda size: self.arrange_data(
                part, (e.at(source, begin), n.data.image, n.lines.step, n.data.pixel), target, b.sub(last, begin),
                size))

        def data(block: ir.Value) -> None:
            source = e.at(part.data, b.mul(block, n.data.block))
            e.loop(integer(0), n.phases, lambda phase: arrange_data(source, phase))
            self.products(part, task, block)

        e.loop(*task.heads, arrange_head)
        e.loop(*task.datas, data)

    def products(self, part: Chunk, task: Task, block: ir.Value) -> None:
        """Those of a data block, which is arranged, with all head blocks."""
        e, n, b = self.e, self.n, self.e.builder

        def product(head: ir.Value, tap: ir.Value) -> None:
            row, column = b.udiv(tap, n.taps.w), b.urem(tap, n.taps.w)
            pairs = b.add(b.mul(b.mul(row, n.lines.tap), self.line_pairs), b.mul(b.udiv(column, n.phases), n.shift))
            place = b.add(b.mul(b.urem(column, n.phases), self.phase), b.mul(pairs, integer(self.pair_bytes)))
            here = replace(part, data=e.at(self.pairs, place),
                           head=e.at(self.heads, b.mul(b.sub(head, task.heads[0]), self.head_block())))
            self.product(here, task, head, block, tap)

        taps = b.mul(n.taps.h, n.taps.w)
        e.loop(*task.heads, lambda head: e.loop(integer(0), taps, lambda tap: product(head, tap)), _HEADS)

    def product(self, part: Chunk, task: Task, head: ir.Value, block: ir.Value, tap: ir.Value) -> None:
        """That of a data block with up to `_HEADS` head blocks, of a tap. `part` points at the arranged pairs."""
        self.tiles(lambda visit: part, integer(0), task, head, block, tap)

    # ---- arranging ----------------------------------------------------------------------------------------

    def each_width(self, narrow: ir.Value, body: Callable[[int], None]) -> None:
        """`body` for elements of 4 bytes, or of 2 of an operand that is bf16."""
        self.e.switch(narrow, {0: lambda: body(4), 1: lambda: body(2)}, "narrow")

    def arrange_head(self, part: Chunk, source: tuple[ir.Value, ...], target: ir.Value, last: ir.Value,
                     size: int) -> None:
        """The pairs of a head block."""
        self.arrange((part.images, part.rows, self.walk.width), source, (target, *self.walk.head[:2]), last, size)

    def arrange_data(self, part: Chunk, source: tuple[ir.Value, ...], target: ir.Value, last: ir.Value,
                     size: int) -> None:
        """The pairs of a phase of a data block."""
        self.arrange((part.images, self.lines(part.rows), self.line_pairs), source,
                     (target, self.walk.data[0], self.line), last, size)

    def arrange(self, counts: tuple[ir.Value, ...], source: tuple[ir.Value, ...], target: tuple[ir.Value, ...],
                last: ir.Value, size: int) -> None:
        """Write pairs of bf16: images, lines and pairs of a line. `source`: from where, and the bytes between images,
        lines and pixels; `target`: to where, and those between images and lines."""
        e, b = self.e, self.e.builder
        images, lines, pairs = counts
        start, image_step, line_step, pixel = source
        out, *out_steps = target

        def line(image: ir.Value, number: ir.Value) -> None:
            begin = e.at(start, b.add(b.mul(image, image_step), b.mul(number, line_step)))
            place = e.at(out, b.add(b.mul(image, out_steps[0]), b.mul(number, out_steps[1])))

            def store(pair: ir.Value) -> None:
                found = self.pair(begin, pair, pixel, last, size)
                b.store(found, e.at(place, b.mul(pair, integer(PIXEL))), align=PIXEL)

            e.loop(integer(0), pairs, store)

        e.loop(integer(0), images, lambda image: e.loop(integer(0), lines, lambda number: line(image, number)))

    def pair(self, line: ir.Value, number: ir.Value, pixel: ir.Value, last: ir.Value, size: int) -> ir.Value:
        """Pair `number` of a line. A pixel more than `last` bytes from the line's first counts as 0."""
        e, b = self.e, self.e.builder
        first = b.mul(b.mul(number, integer(2)), pixel)
        low, high = (b.select(b.icmp_signed("<=", distance, last), e.at(line, distance), self.zeros)
                     for distance in (first, b.add(first, pixel)))
        return e.load_pairs(low, high, narrow=size == 2)

    # ---- a tile -------------------------------------------------------------------------------------------

    def head_block(self) -> ir.Value:
        return self.e.builder.mul(self.walk.head[0], self.n.image_chunk)

    def prefetch(self, chunk: Chunk, data: ir.Value, head: ir.Value) -> None:
        """Nothing: what is arranged is in the cache."""

    def vector(self, place: ir.Value) -> ir.Value:
        return self.e.load(place, WORDS)

    def number(self, place: ir.Value) -> ir.Value:
        return self.e.splat(self.e.load(place, I32))

    def multiply(self, number: ir.Value, vector: ir.Value, total: ir.Value) -> ir.Value:
        return self.e.dot(number, vector, total)


class _Tiled(_Paired):
    """The same in AMX's tiles."""

    tiled, pair_bytes = True, 4

    def __init__(self, module: ir.Module, isa: Isa, compiled_for: Isa, multiply_add: str, features: str) -> None:
        super().__init__(module, isa, compiled_for, multiply_add)
        require_features(self.e.function, features, AMX)
        amx.configure(self.e)

    def places(self, width: ir.Value) -> tuple[ir.Value, Walk]:
        e, n, b, row = self.e, self.n, self.e.builder, integer(_ROWS)
        self.head_pairs = b.mul(e.ceiling(b.mul(n.row_chunk, self.line_pairs), row), row)
        behind = b.add(b.mul(b.mul(b.sub(n.taps.h, integer(1)), n.lines.tap), self.line_pairs),
                       b.sub(self.line_pairs, width))
        self.data_pairs = b.add(self.head_pairs, b.mul(e.ceiling(behind, row), row))
        image, head = (b.mul(pairs, integer(PIXEL)) for pairs in (self.data_pairs, self.head_pairs))
        return b.mul(image, n.image_chunk), Walk(width, (image,), (head,))

    def finish(self) -> None:
        amx.release(self.e)

    def product(self, part: Chunk, task: Task, head: ir.Value, block: ir.Value, tap: ir.Value) -> None:
        e, b = self.e, self.e.builder
        sums = self.sums_of(task, head, block, tap)
        e.switch(e.least(b.sub(task.heads[1], head), integer(_HEADS)), {
            count: partial(self.multiply_tiles, part, sums, count) for count in range(1, _HEADS + 1)}, "heads")

    def multiply_tiles(self, part: Chunk, sums: ir.Value, count: int) -> None:
        """A tap of a data block, by `count` head blocks."""
        e, b, size = self.e, self.e.builder, integer(PIXEL)
        targets = [e.at(sums, distance) for distance in self.multiples(self.head_bytes, count)]

        def begin(*, first: bool) -> None:
            for number, target in enumerate(targets):
                amx.instruction(e, *(("tilezero", number) if first else ("tileloadd64", number, target, size)))

        def step(image: ir.Value, number: ir.Value) -> None:
            own = e.at(part.data, b.add(b.mul(image, self.walk.data[0]), b.mul(number, size)))
            amx.instruction(e, "tileloadd64", _HEADS, own, b.mul(self.data_pairs, integer(4)))
            of_head = e.at(part.head, b.add(b.mul(image, self.walk.head[0]), b.mul(number, integer(_ROWS * PIXEL))))
            for at, distance in enumerate(self.multiples(self.head_block(), count)):
                tile = _HEADS + 1 + at % (_HEADS - 1)
                amx.instruction(e, "tileloadd64", tile, e.at(of_head, distance), size)
                amx.instruction(e, "tdpbf16ps", at, _HEADS, tile)

        e.switch(b.zext(part.is_first, I64), {0: partial(begin, first=False), 1: partial(begin, first=True)}, "first")
        steps = b.udiv(self.head_pairs, integer(_ROWS))
        e.loop(integer(0), part.images, lambda image: e.loop(integer(0), steps, lambda number: step(image, number)))
        for number, target in enumerate(targets):
            amx.instruction(e, "tilestored64", number, target, size)

    # ---- arranging ----------------------------------------------------------------------------------------

    def arrange_head(self, part: Chunk, source: tuple[ir.Value, ...], target: ir.Value, last: ir.Value,
                     size: int) -> None:
        def write(image: ir.Value, group: ir.Value, pairs: Sequence[ir.Value]) -> None:
            b = self.e.builder
            place = self.e.at(target, b.add(b.mul(image, self.walk.head[0]), b.mul(group, integer(_ROWS * PIXEL))))
            for number, pair in enumerate(pairs):
                b.store(pair, self.e.at(place, number * PIXEL), align=PIXEL)

        self.each_group(part.images, part.rows, self.head_pairs, source, last, size, write)

    def arrange_data(self, part: Chunk, source: tuple[ir.Value, ...], target: ir.Value, last: ir.Value,
                     size: int) -> None:
        def write(image: ir.Value, group: ir.Value, pairs: Sequence[ir.Value]) -> None:
            b = self.e.builder
            place = self.e.at(target, b.add(b.mul(image, self.walk.data[0]), b.mul(group, integer(PIXEL))))
            for channel, row in enumerate(self.turned(pairs)):
                b.store(row, self.e.at(place, b.mul(self.data_pairs, integer(4 * channel))), align=PIXEL)

        self.each_group(part.images, self.lines(part.rows), self.data_pairs, source, last, size, write)

    def each_group(self, images: ir.Value, lines: ir.Value, pairs: ir.Value, source: tuple[ir.Value, ...],
                   last: ir.Value, size: int,
                   write: Callable[[ir.Value, ir.Value, Sequence[ir.Value]], None]) -> None:
        """`write(image, number, pairs)` for each 16 of so many `pairs` of an image: those of its lines one behind the
        other, and zeros behind them."""
        e, b = self.e, self.e.builder
        start, image_step, line_step, pixel = source

        def image(number: ir.Value) -> None:
            begin = e.at(start, b.mul(number, image_step))

            def group(carried: list[ir.Value]) -> tuple[ir.Value, Sequence[ir.Value]]:
                at, line, pair = carried
                found = []
                for _ in range(_ROWS):
                    is_there = b.icmp_signed("<", line, lines)
                    limit = b.select(is_there, last, integer(-1))
                    found.append(self.pair(e.at(begin, b.mul(line, line_step)), pair, pixel, limit, size))
                    following = b.add(pair, integer(1))
                    ends = b.icmp_signed("==", following, self.line_pairs)
                    line, pair = b.add(line, b.zext(ends, I64)), b.select(ends, integer(0), following)
                write(number, at, found)
                after = b.add(at, integer(1))
                return b.icmp_signed("<", b.mul(after, integer(_ROWS)), pairs), [after, line, pair]

            e.repeat("group", [integer(0)] * 3, group)

        e.loop(integer(0), images, image)

    def turned(self, rows: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """Sixteen vectors of 16 words, of which row i has column i of the others'."""
        b, found = self.e.builder, list(rows)
        for half in (8, 4, 2, 1):
            low = [lane if lane & half == 0 else lane - half + 16 for lane in range(16)]
            high = [lane + half if lane & half == 0 else lane + 16 for lane in range(16)]
            for at in range(16):
                if at & half == 0:
                    pair = found[at], found[at + half]
                    found[at], found[at + half] = (
                        b.shuffle_vector(*pair, ir.Constant(WORDS, mask)) for mask in (low, high))
        return found
