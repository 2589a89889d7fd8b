"""IR of the depthwise 3x3 kernels: one pass along a row, nine weights in registers, each input loaded once a row.

`ng_depthwise3x3_s<stride>__<isa>`: operands are input (its first logical element, inside a halo of zeros as wide as
the padding), weights `[blocks][9][16]`, bias `[blocks][16]`, output, slopes `[blocks][16]`; `ints` are those of
`DEPTHWISE`, `floats` the clamp's lower and upper bound, then slope, offset, scale and shift of a hard swish (see
`params.py`); the entry `activation` of `ints` says which follows the clamp. Tasks are numbered over (image, chunk of
rows, block), last fastest.

The sums run along the columns of the input: a column's pixels serve the outputs whose window they begin, continue
and end, so that an output's nine products come from three loads (six at stride 2). The channels of a block are cut
into vectors of the machine's own width: nine weights of 16 channels would not fit AVX2's registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from ngraph_mxnet.targets.cpu.microkernels.emit import F32, Emitter, call_activation, integer, kernel_function
from ngraph_mxnet.targets.cpu.microkernels.params import DEPTHWISE, STRIDES, depthwise_symbol
from ngraph_mxnet.targets.cpu.microkernels.variants import ACTIVATIONS, FIRST_CALLED, Isa
from ngraph_mxnet.targets.cpu.params.record import PIXEL

__all__ = ["build_depthwise"]

_TAPS = 3


def build_depthwise(module: ir.Module, isa: Isa, vectors: int, multiply_add: str) -> None:
    """Add the kernels of both strides to `module`; a block of 16 channels is `vectors` registers."""
    for stride in STRIDES:
        _Kernel(module, isa, stride, vectors, multiply_add).build()


class _Kernel:
    def __init__(self, module: ir.Module, isa: Isa, stride: int, vectors: int, multiply_add: str) -> None:
        self.stride, self.vectors, self.lanes = stride, vectors, 16 // vectors
        self.e = Emitter(kernel_function(module, depthwise_symbol(stride, isa)), multiply_add, lanes=self.lanes)

    def build(self) -> None:
        e = self.e
        b = e.builder
        floats, begin, end = e.function.args[2:]
        n = e.ints(DEPTHWISE[self.stride])
        source, weights, bias, target, slopes = e.operands(5)
        numbers = [e.splat(b.fptrunc(e.load(e.at(floats, 8 * i), ir.DoubleType(), 8), F32)) for i in range(6)]
        has_gate, has_slopes = (e.equals(n.activation, ACTIVATIONS[name]) for name in ("hard_swish", "prelu"))
        called = b.icmp_signed(">=", n.activation, integer(FIRST_CALLED))
        chunk = n.chunk_rows
        chunks = e.ceiling(n.height, chunk)

        def task(number: ir.Value) -> None:
            rows, block = b.udiv(number, n.blocks), b.urem(number, n.blocks)
            image, part = b.udiv(rows, chunks), b.urem(rows, chunks)
            first = b.mul(part, chunk)
            stop = e.least(b.add(first, chunk), n.height)
            read = e.at(e.at(source, n.first), b.add(b.mul(image, n.input.image), b.mul(block, n.input.block)))
            write = e.at(target, b.add(b.mul(image, n.output.image), b.mul(block, n.output.block)))
            *own, sloping = (e.at(start, b.mul(block, integer(size * PIXEL)))
                             for start, size in ((weights, _TAPS**2), (bias, 1), (slopes, 1)))
            left = b.sub(n.channels, b.mul(block, integer(16)))

            def row(y: ir.Value) -> None:
                top = e.at(read, b.mul(b.mul(y, integer(self.stride)), n.input.row))
                rows = [e.at(top, b.mul(integer(i), n.input.row)) for i in range(_TAPS)]
                for part in range(self.vectors):
                    shift = part * 4 * self.lanes
                    here = e.at(write, b.add(b.mul(y, n.output.row), integer(shift)))
                    used = b.icmp_signed(">", left, integer(part * self.lanes))

                    def compute(shift: int = shift, here: ir.Value = here) -> list[ir.Value]:
                        self.row([e.at(r, shift) for r in rows], [e.at(p, shift) for p in own], here, n.width,
                                 numbers[:2])
                        e.when(has_gate, [], lambda: self.gate(here, n.width, numbers[2:]))
                        return e.when(has_slopes, [], lambda: self.sloped(here, n.width, e.at(sloping, shift)))

                    def clear(here: ir.Value = here) -> list[ir.Value]:
                        return self.pixels(here, n.width, lambda _: ir.Constant(e.vector, None))

                    if part:
                        e.either(used, compute, clear)
                    else:
                        compute()
                written = e.at(write, b.mul(y, n.output.row))
                e.when(called, [], lambda: self.called(n.activation, written, n.width))

            self.e.loop(first, stop, row)

        self.e.loop(begin, end, task)
        b.ret_void()

    def row(self, rows: Sequence[ir.Value], own: Sequence[ir.Value], target: ir.Value, width: ir.Value,
            bounds: Sequence[ir.Value]) -> None:
        """One output row of `lanes` channels."""
        e = self.e
        b = e.builder
        taps = [[e.load(e.at(own[0], (i * _TAPS + j) * PIXEL), e.vector) for i in range(_TAPS)]
                for j in range(_TAPS)]
        bias = e.load(own[1], e.vector)

        def column(offset: ir.Value | int) -> list[ir.Value]:
            return [e.load(e.at(row, offset), e.vector) for row in rows]

        def add(total: ir.Value, j: int, pixels: Sequence[ir.Value]) -> ir.Value:
            for weight, pixel in zip(taps[j], pixels, strict=True):
                total = e.multiply_add(weight, pixel, total)
            return total

        first = column(0)
        if self.stride == 1:
            second = column(PIXEL)
            starts = [add(add(bias, 0, first), 1, second), add(bias, 0, second)]
        else:
            starts = [add(bias, 0, first)]

        def pixel(carried: list[ir.Value]) -> tuple[ir.Value, Sequence[ir.Value]]:
            x, *sums = carried
            offset = b.mul(x, integer(self.stride * PIXEL))
            last = column(b.add(offset, integer(2 * PIXEL)))
            if self.stride == 1:
                out = add(sums[0], 2, last)
                following = [add(sums[1], 1, last), add(bias, 0, last)]
            else:
                out = add(add(sums[0], 1, column(b.add(offset, integer(PIXEL)))), 2, last)
                following = [add(bias, 0, last)]
            b.store(e.clamp(out, *bounds), e.at(target, b.mul(x, integer(PIXEL))), align=4)
            nearer = b.add(x, integer(1))
            return b.icmp_signed("<", nearer, width), [nearer, *following]

        e.repeat("pixel", [integer(0), *starts], pixel)

    def gate(self, target: ir.Value, width: ir.Value, parameters: Sequence[ir.Value]) -> list[ir.Value]:
        """The gate on an output row, in a loop of its own: the sums leave no registers for its parameters."""
        return self.pixels(target, width, lambda place: self.e.gate(self.e.load(place, self.e.vector), parameters))

    def sloped(self, target: ir.Value, width: ir.Value, slopes: ir.Value) -> list[ir.Value]:
        """The same of slopes."""
        own = self.e.load(slopes, self.e.vector)
        return self.pixels(target, width, lambda place: self.e.sloped(self.e.load(place, self.e.vector), own))

    def called(self, kind: ir.Value, target: ir.Value, width: ir.Value) -> list[ir.Value]:
        """Another activation on an output row, of all channels of the block."""
        call_activation(self.e, 16, kind, target, None, width)
        return []

    def pixels(self, target: ir.Value, width: ir.Value, value: Callable[[ir.Value], ir.Value]) -> list[ir.Value]:
        """An output row of the values, by their places."""
        def pixel(x: ir.Value) -> None:
            place = self.e.at(target, self.e.builder.mul(x, integer(PIXEL)))
            self.e.builder.store(value(place), place, align=4)

        self.e.loop(integer(0), width, pixel)
        return []
