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

from collections.abc import Sequence

from llvmlite import ir

from ngraph_mxnet.targets.cpu.microkernels.emit import F32, I32, I64, PTR, Emitter, call_activation
from ngraph_mxnet.targets.cpu.microkernels.params import DEPTHWISE, STRIDES, depthwise_symbol
from ngraph_mxnet.targets.cpu.microkernels.variants import ACTIVATIONS, FIRST_CALLED, Isa

__all__ = ["build_depthwise"]

_TAPS = 3
_PIXEL = 64
"""Bytes of a block's pixel."""


def build_depthwise(module: ir.Module, isa: Isa, vectors: int, multiply_add: str) -> None:
    """Add the kernels of both strides to `module`; a block of 16 channels is `vectors` registers."""
    for stride in STRIDES:
        _Kernel(module, isa, stride, vectors, multiply_add).build()


class _Kernel:
    def __init__(self, module: ir.Module, isa: Isa, stride: int, vectors: int, multiply_add: str) -> None:
        signature = ir.FunctionType(ir.VoidType(), [PTR, PTR, PTR, I64, I64])
        function = ir.Function(module, signature, name=depthwise_symbol(stride, isa))
        function.attributes.add("nounwind")
        self.e = Emitter(function, multiply_add)
        self.stride, self.vectors = stride, vectors
        self.lanes = 16 // vectors
        self.vector = ir.VectorType(F32, self.lanes)
        name = f"{multiply_add}.v{self.lanes}f32"
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        self.fma = module.globals.get(name) or ir.Function(module, kind, name=name)

    def build(self) -> None:
        e = self.e
        b = e.builder
        tensors, ints, floats, begin, end = e.function.args
        n = {name: e.load(e.at(ints, 8 * i), I64, 8) for i, name in enumerate(DEPTHWISE[self.stride].ints)}
        source, weights, bias, target, slopes = (e.load(e.at(tensors, 8 * i), PTR, 8) for i in range(5))
        numbers = [self.splat(b.fptrunc(e.load(e.at(floats, 8 * i), ir.DoubleType(), 8), F32)) for i in range(6)]
        has_gate, has_slopes = (e.equals(n["activation"], ACTIVATIONS[name]) for name in ("hard_swish", "prelu"))
        called = b.icmp_signed(">=", n["activation"], _int(FIRST_CALLED))
        chunk = n["chunk_rows"]
        chunks = b.udiv(b.add(n["height"], b.sub(chunk, _int(1))), chunk)

        def task(number: ir.Value) -> None:
            rows, block = b.udiv(number, n["blocks"]), b.urem(number, n["blocks"])
            image, part = b.udiv(rows, chunks), b.urem(rows, chunks)
            first = b.mul(part, chunk)
            stop = b.add(first, chunk)
            stop = b.select(b.icmp_signed("<", stop, n["height"]), stop, n["height"])
            read = e.at(e.at(source, n["first"]), b.add(b.mul(image, n["in_image_stride"]),
                                                        b.mul(block, n["in_block_stride"])))
            write = e.at(target, b.add(b.mul(image, n["out_image_stride"]), b.mul(block, n["out_block_stride"])))
            own = e.at(weights, b.mul(block, _int(_TAPS * _TAPS * _PIXEL))), e.at(bias, b.mul(block, _int(_PIXEL)))
            sloping = e.at(slopes, b.mul(block, _int(_PIXEL)))
            left = b.sub(n["channels"], b.mul(block, _int(16)))

            def row(y: ir.Value) -> None:
                top = e.at(read, b.mul(b.mul(y, _int(self.stride)), n["in_row_stride"]))
                rows = [e.at(top, b.mul(_int(i), n["in_row_stride"])) for i in range(_TAPS)]
                for part in range(self.vectors):
                    shift = part * 4 * self.lanes
                    here = e.at(write, b.add(b.mul(y, n["out_row_stride"]), _int(shift)))
                    used = b.icmp_signed(">", left, _int(part * self.lanes))

                    def compute(shift: int = shift, here: ir.Value = here) -> list[ir.Value]:
                        self.row([e.at(r, shift) for r in rows], [e.at(p, shift) for p in own], here, n["width"],
                                 numbers[:2])
                        e.when(has_gate, [], lambda: self.gate(here, n["width"], numbers[2:]))
                        return e.when(has_slopes, [], lambda: self.sloped(here, n["width"], e.at(sloping, shift)))

                    def clear(here: ir.Value = here) -> list[ir.Value]:
                        self.zeros(here, n["width"])
                        return []

                    if part:
                        e.either(used, compute, clear)
                    else:
                        compute()
                written = e.at(write, b.mul(y, n["out_row_stride"]))
                e.when(called, [], lambda: self.called(n["activation"], written, n["width"]))

            self.e.loop(first, stop, row)

        self.e.loop(begin, end, task)
        b.ret_void()

    def row(self, rows: Sequence[ir.Value], own: Sequence[ir.Value], target: ir.Value, width: ir.Value,
            bounds: Sequence[ir.Value]) -> None:
        """One output row of `lanes` channels."""
        e = self.e
        b = e.builder
        taps = [[e.load(e.at(own[0], (i * _TAPS + j) * _PIXEL), self.vector) for i in range(_TAPS)]
                for j in range(_TAPS)]
        bias = e.load(own[1], self.vector)

        def column(offset: ir.Value | int) -> list[ir.Value]:
            return [e.load(e.at(row, offset), self.vector) for row in rows]

        def add(total: ir.Value, j: int, pixels: Sequence[ir.Value]) -> ir.Value:
            for weight, pixel in zip(taps[j], pixels, strict=True):
                total = b.call(self.fma, [weight, pixel, total])
            return total

        first = column(0)
        if self.stride == 1:
            second = column(_PIXEL)
            starts = [add(add(bias, 0, first), 1, second), add(bias, 0, second)]
        else:
            starts = [add(bias, 0, first)]
        before, head, after = b.block, e.block("pixel"), e.block("row_done")
        b.branch(head)
        b.position_at_end(head)
        x = b.phi(I64)
        sums = [b.phi(self.vector) for _ in starts]
        offset = b.mul(x, _int(self.stride * _PIXEL))
        last = column(b.add(offset, _int(2 * _PIXEL)))
        if self.stride == 1:
            out = add(sums[0], 2, last)
            following = [add(sums[1], 1, last), add(bias, 0, last)]
        else:
            out = add(add(sums[0], 1, column(b.add(offset, _int(_PIXEL)))), 2, last)
            following = [add(bias, 0, last)]
        b.store(e.clamp(out, *bounds), e.at(target, b.mul(x, _int(_PIXEL))), align=4)
        nearer = b.add(x, _int(1))
        for phi, start, later in zip([x, *sums], [_int(0), *starts], [nearer, *following], strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(later, head)
        b.cbranch(b.icmp_signed("<", nearer, width), head, after)
        b.position_at_end(after)

    def gate(self, target: ir.Value, width: ir.Value, parameters: Sequence[ir.Value]) -> list[ir.Value]:
        """The gate on an output row, in a loop of its own: the sums leave no registers for its parameters."""
        def fused(a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
            return self.e.builder.call(self.fma, [a, b, c])

        def pixel(x: ir.Value) -> None:
            place = self.e.at(target, self.e.builder.mul(x, _int(_PIXEL)))
            opened = self.e.gate(self.e.load(place, self.vector), parameters, fused)
            self.e.builder.store(opened, place, align=4)

        self.e.loop(_int(0), width, pixel)
        return []

    def sloped(self, target: ir.Value, width: ir.Value, slopes: ir.Value) -> list[ir.Value]:
        """The same of slopes."""
        own = self.e.load(slopes, self.vector)

        def pixel(x: ir.Value) -> None:
            place = self.e.at(target, self.e.builder.mul(x, _int(_PIXEL)))
            self.e.builder.store(self.e.sloped(self.e.load(place, self.vector), own), place, align=4)

        self.e.loop(_int(0), width, pixel)
        return []

    def called(self, kind: ir.Value, target: ir.Value, width: ir.Value) -> list[ir.Value]:
        """Another activation on an output row, of all channels of the block."""
        call_activation(self.e, 16, kind, target, None, width)
        return []

    def zeros(self, target: ir.Value, width: ir.Value) -> None:
        """An output row of zeros in `lanes` channels."""
        def pixel(x: ir.Value) -> None:
            place = self.e.at(target, self.e.builder.mul(x, _int(_PIXEL)))
            self.e.builder.store(ir.Constant(self.vector, None), place, align=4)

        self.e.loop(_int(0), width, pixel)

    def splat(self, scalar: ir.Value) -> ir.Value:
        undefined = ir.Constant(self.vector, ir.Undefined)
        lane = self.e.builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
        zeros = ir.Constant(ir.VectorType(I32, self.lanes), [0] * self.lanes)
        return self.e.builder.shuffle_vector(lane, undefined, zeros)


def _int(value: int) -> ir.Constant:
    return ir.Constant(I64, value)
