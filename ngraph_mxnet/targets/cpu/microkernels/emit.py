"""Small helpers over `llvmlite.ir` for kernels of 16-float vectors and byte addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

__all__ = ["BYTE", "F32", "F64", "I1", "I32", "I64", "PAIRS", "PTR", "VECTOR", "Emitter"]

BYTE, I1, I32, I64 = ir.IntType(8), ir.IntType(1), ir.IntType(32), ir.IntType(64)
F32, F64 = ir.FloatType(), ir.DoubleType()
PTR = ir.PointerType()
VECTOR = ir.VectorType(F32, 16)
PAIRS = ir.VectorType(I32, 16)
"""Sixteen pairs of bf16: the first of each in the lower half."""


class _BFloat(ir.Type):
    """LLVM's bf16, which llvmlite does not have."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


_BF16 = _BFloat()
_BF16_LANES = ir.VectorType(_BF16, 16)
_HALVES = ir.VectorType(ir.IntType(16), 16)


class Emitter:
    """A builder at the end of a function's current block. `fma` names the multiply-add intrinsic.

    `vector` has `lanes` floats, 16 or 8; bf16 has 16. `native_bf16`: the target has AVX512_BF16; else `dot` and
    `to_bf16` are made of other instructions, for tests.
    """

    def __init__(self, function: ir.Function, fma: str, *, native_bf16: bool = False, lanes: int = 16) -> None:
        self.function = function
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        self._native_bf16 = native_bf16
        self._lanes = lanes
        self.vector = ir.VectorType(F32, lanes)
        self._fma = self._intrinsic(f"{fma}.v{lanes}f32", self.vector, [self.vector] * 3)

    def _intrinsic(self, name: str, result: ir.Type, operands: Sequence[ir.Type]) -> ir.Function:
        module = self.function.module
        return module.globals.get(name) or ir.Function(module, ir.FunctionType(result, operands), name=name)

    def block(self, name: str) -> ir.Block:
        """A new, empty block."""
        return self.function.append_basic_block(name)

    def at(self, pointer: ir.Value, offset: ir.Value | int) -> ir.Value:
        """Pointer moved by bytes."""
        if isinstance(offset, int):
            if offset == 0:
                return pointer
            offset = ir.Constant(I64, offset)
        return self.builder.gep(pointer, [offset], source_etype=BYTE)

    def load(self, pointer: ir.Value, kind: ir.Type, align: int = 4) -> ir.Value:
        """Load; vectors are only assumed to be aligned as floats unless told."""
        return self.builder.load(pointer, align=align, typ=kind)

    def load_offset(self, table: ir.Value, index: ir.Value) -> ir.Value:
        """Entry of an int32 table, as i64."""
        entry = self.builder.gep(table, [index], source_etype=I32)
        return self.builder.sext(self.load(entry, I32), I64)

    def splat(self, scalar: ir.Value) -> ir.Value:
        """A float, or a pair of bf16 as i32, in all lanes."""
        undefined = ir.Constant(ir.VectorType(scalar.type, self._lanes), ir.Undefined)
        lane = self.builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
        zeros = ir.Constant(ir.VectorType(I32, self._lanes), [0] * self._lanes)
        return self.builder.shuffle_vector(lane, undefined, zeros)

    def multiply_add(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """a * b + c."""
        return self.builder.call(self._fma, [a, b, c])

    def dot(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """c plus, lane by lane, the products of both elements of the pairs a and b."""
        if self._native_bf16:
            lanes = ir.VectorType(_BF16, 32)
            callee = self._intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", VECTOR, [VECTOR, lanes, lanes])
            return self.builder.call(callee, [c, *(self.builder.bitcast(pairs, lanes) for pairs in (a, b))])
        (low_a, high_a), (low_b, high_b) = (self._widen_pairs(pairs) for pairs in (a, b))
        return self.multiply_add(low_a, low_b, self.multiply_add(high_a, high_b, c))

    def _widen_pairs(self, pairs: ir.Value) -> tuple[ir.Value, ir.Value]:
        low = self.builder.shl(pairs, ir.Constant(PAIRS, [16] * 16))
        high = self.builder.and_(pairs, ir.Constant(PAIRS, [0xFFFF0000] * 16))
        return self.builder.bitcast(low, VECTOR), self.builder.bitcast(high, VECTOR)

    def load_bf16(self, pointer: ir.Value) -> ir.Value:
        """Sixteen bf16 as floats."""
        bits = self.builder.zext(self.load(pointer, _HALVES, 2), PAIRS)
        return self.builder.bitcast(self.builder.shl(bits, ir.Constant(PAIRS, [16] * 16)), VECTOR)

    def store_bf16(self, value: ir.Value, pointer: ir.Value) -> None:
        """Sixteen floats as bf16, to nearest, ties to even; NaN stays NaN."""
        b = self.builder
        if self._native_bf16:
            convert = self._intrinsic("llvm.x86.avx512bf16.cvtneps2bf16.512", _BF16_LANES, [VECTOR])
            b.store(b.call(convert, [value]), pointer, align=2)
            return

        def constant(number: int) -> ir.Constant:
            return ir.Constant(PAIRS, [number] * 16)

        bits = b.bitcast(value, PAIRS)
        odd = b.and_(b.lshr(bits, constant(16)), constant(1))
        rounded = b.add(bits, b.add(odd, constant(0x7FFF)))
        rounded = b.select(b.fcmp_unordered("uno", value, value), b.or_(bits, constant(1 << 22)), rounded)
        b.store(b.trunc(b.lshr(rounded, constant(16)), _HALVES), pointer, align=2)

    def prefetch(self, pointer: ir.Value, level: int = 1) -> None:
        """Asks for a cache line to be read into the cache of that level."""
        callee = self._intrinsic("llvm.prefetch.p0", ir.VoidType(), [PTR, I32, I32, I32])
        self.builder.call(callee, [pointer, *(ir.Constant(I32, i) for i in (0, 4 - level, 1))])

    def clamp(self, value: ir.Value, lower: ir.Value, upper: ir.Value) -> ir.Value:
        """Minimum and maximum that keep NaN: a failed ordered comparison keeps `value`."""
        below = self.builder.fcmp_ordered(">", lower, value)
        value = self.builder.select(below, lower, value)
        above = self.builder.fcmp_ordered("<", upper, value)
        return self.builder.select(above, upper, value)

    def gate(self, value: ir.Value, parameters: Sequence[ir.Value],
             multiply_add: Callable[[ir.Value, ir.Value, ir.Value], ir.Value] | None = None) -> ir.Value:
        """A hard swish by slope, offset, scale and shift: value * clamp(value * slope + offset, 0, 1) * scale + shift.

        `multiply_add` is for vectors of another width than the emitter's.
        """
        slope, offset, scale, shift = parameters
        fused = multiply_add or self.multiply_add
        zero, one = (ir.Constant(value.type, [number] * value.type.count) for number in (0.0, 1.0))
        opened = self.clamp(fused(value, slope, offset), zero, one)
        return fused(self.builder.fmul(value, opened), scale, shift)

    def loop(self, begin: ir.Value, end: ir.Value, body: Callable[[ir.Value], None], step: int = 1) -> None:
        """`body(number)` for the numbers from `begin` on, below `end`."""
        b = self.builder
        before, head, inside, after = b.block, *(self.block(name) for name in ("head", "body", "after"))
        b.branch(head)
        b.position_at_end(head)
        number = b.phi(I64)
        number.add_incoming(begin, before)
        b.cbranch(b.icmp_signed("<", number, end), inside, after)
        b.position_at_end(inside)
        body(number)
        number.add_incoming(b.add(number, ir.Constant(I64, step)), b.block)
        b.branch(head)
        b.position_at_end(after)

    def either(
        self, condition: ir.Value, yes: Callable[[], Sequence[ir.Value]], no: Callable[[], Sequence[ir.Value]]
    ) -> list:
        """`yes()` if the condition holds, else `no()`; merged by phis."""
        b, after = self.builder, self.block("joined")
        inside = [self.block("yes"), self.block("no")]
        b.cbranch(condition, *inside)
        results, leaving = [], []
        for block, body in zip(inside, (yes, no), strict=True):
            b.position_at_end(block)
            results.append(body())
            leaving.append(b.block)
            b.branch(after)
        b.position_at_end(after)
        merged = []
        for values in zip(*results, strict=True):
            phi = b.phi(values[0].type)
            for value, block in zip(values, leaving, strict=True):
                phi.add_incoming(value, block)
            merged.append(phi)
        return merged

    def when(
        self, condition: ir.Value, values: Sequence[ir.Value], body: Callable[[], Sequence[ir.Value]]
    ) -> list:
        """`body()` if the condition holds, else `values`; merged by phis."""
        before, inside, after = self.builder.block, self.block("then"), self.block("after")
        self.builder.cbranch(condition, inside, after)
        self.builder.position_at_end(inside)
        results = body()
        leaving = self.builder.block
        self.builder.branch(after)
        self.builder.position_at_end(after)
        merged = []
        for old, new in zip(values, results, strict=True):
            phi = self.builder.phi(old.type)
            phi.add_incoming(old, before)
            phi.add_incoming(new, leaving)
            merged.append(phi)
        return merged
