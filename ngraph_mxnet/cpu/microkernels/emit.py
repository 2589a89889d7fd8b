"""Small helpers over `llvmlite.ir` for kernels of 16-float vectors and byte addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

__all__ = ["BYTE", "F32", "F64", "I1", "I32", "I64", "PTR", "VECTOR", "Emitter"]

BYTE, I1, I32, I64 = ir.IntType(8), ir.IntType(1), ir.IntType(32), ir.IntType(64)
F32, F64 = ir.FloatType(), ir.DoubleType()
PTR = ir.PointerType()
VECTOR = ir.VectorType(F32, 16)


class Emitter:
    """A builder at the end of a function's current block. `fma` names the multiply-add intrinsic."""

    def __init__(self, function: ir.Function, fma: str) -> None:
        self.function = function
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        module, name = function.module, f"{fma}.v16f32"
        kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
        self._fma = module.globals.get(name) or ir.Function(module, kind, name=name)

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
        """A float in all 16 lanes."""
        undefined = ir.Constant(VECTOR, ir.Undefined)
        lane = self.builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
        zeros = ir.Constant(ir.VectorType(I32, 16), [0] * 16)
        return self.builder.shuffle_vector(lane, undefined, zeros)

    def multiply_add(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """a * b + c."""
        return self.builder.call(self._fma, [a, b, c])

    def prefetch(self, pointer: ir.Value, level: int = 1) -> None:
        """Asks for a cache line to be read into the cache of that level."""
        module, name = self.function.module, "llvm.prefetch.p0"
        kind = ir.FunctionType(ir.VoidType(), [PTR, I32, I32, I32])
        callee = module.globals.get(name) or ir.Function(module, kind, name=name)
        self.builder.call(callee, [pointer, *(ir.Constant(I32, i) for i in (0, 4 - level, 1))])

    def clamp(self, value: ir.Value, lower: ir.Value, upper: ir.Value) -> ir.Value:
        """Minimum and maximum that keep NaN: a failed ordered comparison keeps `value`."""
        below = self.builder.fcmp_ordered(">", lower, value)
        value = self.builder.select(below, lower, value)
        above = self.builder.fcmp_ordered("<", upper, value)
        return self.builder.select(above, upper, value)

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
