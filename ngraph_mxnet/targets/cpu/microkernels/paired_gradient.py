"""IR of the weight gradient kernel of bf16, `ng_weight_gradient_bf16__avx512`; `params.py` describes it.

The dot product of bf16 adds the products of two numbers. Here these are two pixels, neighbours in a row of the head
gradient. A task arranges each chunk on its stack, in pairs of a channel's numbers: all head blocks of its group, and
one data block after the other. A column of taps that moves the data by half a pair finds the pairs in another copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from llvmlite import ir

from ngraph_mxnet.targets.cpu.microkernels.emit import BYTE, I32, PTR, WORDS, integer
from ngraph_mxnet.targets.cpu.microkernels.params import BF16_WEIGHT_GRADIENT, DATA_ROOM, HEAD_ROOM
from ngraph_mxnet.targets.cpu.microkernels.variants import Isa
from ngraph_mxnet.targets.cpu.microkernels.weight_gradient import TILES, Chunk, Dense, Task, Walk
from ngraph_mxnet.targets.cpu.params.record import PIXEL

__all__ = ["build_paired_gradient"]


def build_paired_gradient(module: ir.Module, isa: Isa, compiled_for: Isa, multiply_add: str) -> None:
    """Add the kernel to `module`."""
    _Paired(module, isa, compiled_for, multiply_add).build()


class _Paired(Dense):
    """All pairs of an input channel and an output channel, over pairs of pixels."""

    def __init__(self, module: ir.Module, isa: Isa, compiled_for: Isa, multiply_add: str) -> None:
        super().__init__(module, isa, BF16_WEIGHT_GRADIENT, multiply_add, 16, compiled_for)
        n, b = self.n, self.e.builder
        self.heads, self.pairs, self.zeros = map(self.room, (HEAD_ROOM, DATA_ROOM, PIXEL))
        b.store(ir.Constant(WORDS, None), self.zeros, align=PIXEL)
        width, size = self.e.ceiling(n.width, integer(2)), integer(PIXEL)
        self.line_pairs = b.add(width, b.mul(b.sub(self.e.ceiling(n.taps.w, n.phases), integer(1)), n.shift))
        self.line = b.mul(self.line_pairs, size)
        self.more_lines = b.add(b.mul(b.sub(n.taps.h, integer(1)), n.lines.tap), integer(1))
        image = b.mul(self.line, self.lines(n.row_chunk))
        self.phase = b.mul(image, n.image_chunk)
        row = b.mul(width, size)
        head = b.mul(row, n.row_chunk)
        self.walk = Walk(width, (image, b.mul(self.line, n.lines.row), PIXEL), (head, row, PIXEL))

    def room(self, size: int) -> ir.Value:
        """So many bytes on the stack."""
        found = self.e.builder.alloca(ir.ArrayType(BYTE, size))
        found.align, found.type = PIXEL, PTR  # of bytes, as all pointers here
        return found

    def lines(self, rows: ir.Value) -> ir.Value:
        """How many lines of data so many rows of the head gradient meet."""
        b = self.e.builder
        return b.add(b.mul(b.sub(rows, integer(1)), self.n.lines.row), self.more_lines)

    def chunk(self, part: Chunk, task: Task) -> None:
        """What the chunk adds to the task's sums."""
        e, n, b = self.e, self.n, self.e.builder
        taps = b.mul(n.taps.h, n.taps.w)

        def arrange_head(block: ir.Value) -> None:
            source = e.at(part.head, b.mul(block, n.head.block))
            target = e.at(self.heads, b.mul(b.sub(block, task.heads[0]), self.head_block()))
            self.each_width(n.narrow.head, lambda size: self.arrange(
                part.images, part.rows, (source, n.head.image, n.head.row, integer(16 * size)),
                (target, *self.walk.head[:2]), self.walk.width,
                b.mul(b.sub(n.width, integer(1)), integer(16 * size)), size))

        def arrange_data(source: ir.Value, phase: ir.Value) -> None:
            begin = b.mul(phase, n.tap.column)
            last = b.add(b.mul(b.sub(n.width, integer(1)), n.data.pixel),
                         b.mul(b.sub(n.taps.w, integer(1)), n.tap.column))
            target = e.at(self.pairs, b.mul(phase, self.phase))
            self.each_width(n.narrow.data, lambda size: self.arrange(
                part.images, self.lines(part.rows), (e.at(source, begin), n.data.image, n.lines.step, n.data.pixel),
                (target, self.walk.data[0], self.line), self.line_pairs, b.sub(last, begin), size))

        def data(block: ir.Value) -> None:
            source = e.at(part.data, b.mul(block, n.data.block))
            e.loop(integer(0), n.phases, lambda phase: arrange_data(source, phase))
            e.loop(*task.heads, lambda head: e.loop(integer(0), taps, lambda tap: tiles(head, block, tap)),
                   len(TILES[self.isa]))

        def tiles(head: ir.Value, data: ir.Value, tap: ir.Value) -> None:
            row, column = b.udiv(tap, n.taps.w), b.urem(tap, n.taps.w)
            place = b.add(b.mul(b.urem(column, n.phases), self.phase),
                          b.mul(b.mul(b.udiv(column, n.phases), n.shift), integer(PIXEL)))
            place = b.add(place, b.mul(b.mul(row, n.lines.tap), self.line))
            here = replace(part, data=e.at(self.pairs, place),
                           head=e.at(self.heads, b.mul(b.sub(head, task.heads[0]), self.head_block())))
            self.tiles(lambda visit: here, integer(0), task, head, data, tap)

        e.loop(*task.heads, arrange_head)
        e.loop(*task.datas, data)

    # ---- arranging ----------------------------------------------------------------------------------------

    def each_width(self, narrow: ir.Value, body: Callable[[int], None]) -> None:
        """`body` for elements of 4 bytes, or of 2 of an operand that is bf16."""
        self.e.switch(narrow, {0: lambda: body(4), 1: lambda: body(2)}, "narrow")

    def arrange(self, images: ir.Value, lines: ir.Value, source: tuple[ir.Value, ...], target: tuple[ir.Value, ...],
                pairs: ir.Value, last: ir.Value, size: int) -> None:
        """Write pairs of bf16. `source`: from where, and the bytes between images, lines and pixels; `target`: to
        where, and those between images and lines. A pixel more than `last` bytes from a line's first counts as 0."""
        e, b = self.e, self.e.builder
        start, image_step, line_step, pixel = source
        out, *out_steps = target

        def line(image: ir.Value, number: ir.Value) -> None:
            begin = e.at(start, b.add(b.mul(image, image_step), b.mul(number, line_step)))
            place = e.at(out, b.add(b.mul(image, out_steps[0]), b.mul(number, out_steps[1])))

            def at(distance: ir.Value) -> ir.Value:
                return b.select(b.icmp_signed("<=", distance, last), e.at(begin, distance), self.zeros)

            def pair(number: ir.Value) -> None:
                first = b.mul(b.mul(number, integer(2)), pixel)
                e.store_pairs(at(first), at(b.add(first, pixel)), e.at(place, b.mul(number, integer(PIXEL))),
                              narrow=size == 2)

            e.loop(integer(0), pairs, pair)

        e.loop(integer(0), images, lambda image: e.loop(integer(0), lines, lambda number: line(image, number)))

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
