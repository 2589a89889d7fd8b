"""Small helpers over `llvmlite.ir` for kernels of 16-float vectors and byte addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from ngraph_mxnet.targets.cpu.microkernels.bf16 import dot_pairs, round_lanes, round_pairs
from ngraph_mxnet.targets.cpu.microkernels.variants import ACTIVATIONS, FIRST_CALLED, Isa
from ngraph_mxnet.targets.cpu.params.record import Kernels

if TYPE_CHECKING:
    import llvmlite.binding as llvm

__all__ = [
    "BYTE", "EIGHT", "F32", "F64", "I1", "I32", "I64", "PTR", "VECTOR", "WORDS", "Emitter", "activate",
    "activation_module", "call_activation", "integer", "kernel_function", "require_features",
]


BYTE, I1, I32, I64 = ir.IntType(8), ir.IntType(1), ir.IntType(32), ir.IntType(64)
F32, F64 = ir.FloatType(), ir.DoubleType()
PTR = ir.PointerType()
VECTOR = ir.VectorType(F32, 16)
EIGHT = ir.VectorType(I32, 8)
WORDS = ir.VectorType(I32, 16)
"""Sixteen int32, pairs of bf16 or fours of bytes: the first of each in the lowest bits."""


def integer(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


_HALVES = ir.VectorType(ir.IntType(16), 16)
_BYTES = ir.VectorType(BYTE, 16)
_ROUNDING = 1.5 * 2.0**23
"""A float32 of a few bits more or less than this is a whole number, which its lowest bits hold."""


def kernel_function(module: ir.Module, name: str) -> ir.Function:
    """The C function of a kernel, which `module` is to define."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, PTR, PTR, I64, I64]), name=name)
    function.attributes.add("nounwind")
    return function


class _Featured(ir.values.FunctionAttributes):
    """With features of its own for the compiler, in place of the module's; llvmlite has no such attribute."""

    def __init__(self, features: str) -> None:
        super().__init__()
        self._features = features

    def _to_list(self, ret_type: ir.Type) -> list[str]:
        return [*super()._to_list(ret_type), f'"target-features"="{self._features}"']


def require_features(function: ir.Function, features: str, more: Sequence[str]) -> None:
    """Compile the function for the module's features and more."""
    function.attributes = _Featured(",+".join((features, *more)))
    function.attributes.add("nounwind")


class Emitter:
    """A builder at the end of a function's current block. `fma` names the multiply-add intrinsic.

    `vector` has `lanes` floats; bf16 and u8 have 16. `target` is the instruction set of what compiles it:
    that of avx512 has AVX512_BF16, and those with `vnni` have AVX512_VNNI or AVX-VNNI; others make the same of other
    instructions, for tests.
    """

    def __init__(self, function: ir.Function, fma: str, target: Isa = "baseline", *, lanes: int = 16,
                 vnni: bool = False) -> None:
        self.function = function
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        self._target = target
        self._vnni = vnni
        self._lanes = lanes
        self.vector = ir.VectorType(F32, lanes)
        self._fma = self._intrinsic(f"{fma}.v{lanes}f32", self.vector, [self.vector] * 3)

    def _intrinsic(self, name: str, result: ir.Type, operands: Sequence[ir.Type]) -> ir.Function:
        module = self.function.module
        return module.globals.get(name) or ir.Function(module, ir.FunctionType(result, operands), name=name)

    def operands(self, count: int) -> list[ir.Value]:
        """The pointers that a kernel gets."""
        return [self.load(self.at(self.function.args[0], 8 * i), PTR, 8) for i in range(count)]

    def ints(self, record: Kernels) -> Any:
        """The ints that a kernel gets, as `record.read` gives them."""
        return record.read([self.load(self.at(self.function.args[1], 8 * i), I64, 8) for i in range(len(record.ints))])

    def least(self, one: ir.Value, other: ir.Value) -> ir.Value:
        return self.builder.select(self.builder.icmp_signed("<", one, other), one, other)

    def ceiling(self, count: ir.Value, size: ir.Value) -> ir.Value:
        """`count / size`, rounded up."""
        return self.builder.udiv(self.builder.add(count, self.builder.sub(size, integer(1))), size)

    def block(self, name: str) -> ir.Block:
        """A new, empty block."""
        return self.function.append_basic_block(name)

    def at(self, pointer: ir.Value, offset: ir.Value | int) -> ir.Value:
        """Pointer moved by bytes."""
        if isinstance(offset, int):
            if offset == 0:
                return pointer
            offset = integer(offset)
        return self.builder.gep(pointer, [offset], source_etype=BYTE)

    def load(self, pointer: ir.Value, kind: ir.Type, align: int = 4) -> ir.Value:
        """Load; vectors are only assumed to be aligned as floats unless told."""
        return self.builder.load(pointer, align=align, typ=kind)

    def load_offset(self, table: ir.Value, index: ir.Value) -> ir.Value:
        """Entry of an int32 table, as i64."""
        entry = self.builder.gep(table, [index], source_etype=I32)
        return self.builder.sext(self.load(entry, I32), I64)

    def splat(self, scalar: ir.Value, lanes: int = 0) -> ir.Value:
        """A float, or an i32, in all lanes."""
        count = lanes or self._lanes
        undefined = ir.Constant(ir.VectorType(scalar.type, count), ir.Undefined)
        lane = self.builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
        zeros = ir.Constant(ir.VectorType(I32, count), [0] * count)
        return self.builder.shuffle_vector(lane, undefined, zeros)

    def multiply_add(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """a * b + c."""
        return self.builder.call(self._fma, [a, b, c])

    def dot(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """c plus, lane by lane, the products of both elements of the pairs a and b."""
        if self._target == "avx512":
            return dot_pairs(self.builder, a, b, c)
        (low_a, high_a), (low_b, high_b) = (self._widen_pairs(pairs) for pairs in (a, b))
        return self.multiply_add(low_a, low_b, self.multiply_add(high_a, high_b, c))

    def _widen_pairs(self, pairs: ir.Value) -> tuple[ir.Value, ir.Value]:
        low = self.builder.shl(pairs, ir.Constant(WORDS, [16] * 16))
        high = self.builder.and_(pairs, ir.Constant(WORDS, [0xFFFF0000] * 16))
        return self.builder.bitcast(low, VECTOR), self.builder.bitcast(high, VECTOR)

    def load_bf16(self, pointer: ir.Value) -> ir.Value:
        """Sixteen bf16 as floats."""
        bits = self.builder.zext(self.load(pointer, _HALVES, 2), WORDS)
        return self.builder.bitcast(self.builder.shl(bits, ir.Constant(WORDS, [16] * 16)), VECTOR)

    def store_bf16(self, value: ir.Value, pointer: ir.Value) -> None:
        """Sixteen floats as bf16, to nearest, ties to even; NaN stays NaN."""
        b = self.builder
        if self._target == "avx512":
            b.store(round_lanes(b, value), pointer, align=2)
            return
        b.store(b.trunc(b.lshr(self._rounded(value), self._words(16)), _HALVES), pointer, align=2)

    def _rounded(self, value: ir.Value) -> ir.Value:
        """Return words whose higher halves are the bf16 of sixteen floats."""
        b = self.builder
        bits = b.bitcast(value, WORDS)
        odd = b.and_(b.lshr(bits, self._words(16)), self._words(1))
        rounded = b.add(bits, b.add(odd, self._words(0x7FFF)))
        return b.select(b.fcmp_unordered("uno", value, value), b.or_(bits, self._words(1 << 22)), rounded)

    def load_pairs(self, low: ir.Value, high: ir.Value, *, narrow: bool) -> ir.Value:
        """Sixteen pairs of bf16, as words, of the sixteen numbers at `low` and those at `high`: floats, rounded as by
        `store_bf16`, or bf16 if `narrow`."""
        b = self.builder
        turned = ir.Constant(ir.VectorType(I32, 32), [at // 2 + 16 * (at % 2) for at in range(32)])
        if narrow:
            pairs = b.shuffle_vector(self.load(low, _HALVES, 2), self.load(high, _HALVES, 2), turned)
        elif self._target == "avx512":
            found = round_pairs(b, self.load(low, VECTOR), self.load(high, VECTOR))
            pairs = b.shuffle_vector(found, ir.Constant(found.type, ir.Undefined), turned)
        else:
            low, high = (self._rounded(self.load(place, VECTOR)) for place in (low, high))
            pairs = b.or_(b.lshr(low, self._words(16)), b.and_(high, self._words(0xFFFF0000)))
        return b.bitcast(pairs, WORDS)

    def dot_bytes(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """c plus, lane by lane, the products of the four u8 of a and the four i8 of b."""
        if self._vnni:
            lanes = 16 if self._target == "avx512" else 8
            words = ir.VectorType(I32, lanes)
            callee = self._intrinsic(f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", words, [words] * 3)
            return self._joined([self.builder.call(callee, [self._part(operand, first, lanes) for operand in (c, a, b)])
                                 for first in range(0, 16, lanes)])
        for lane in range(4):
            x = self.builder.and_(self.builder.lshr(a, self._words(8 * lane)), self._words(0xFF))
            y = self.builder.ashr(self.builder.shl(b, self._words(24 - 8 * lane)), self._words(24))
            c = self.builder.add(c, self.builder.mul(x, y))
        return c

    def dot_bytes_twice(self, a: Sequence[ir.Value], b: Sequence[ir.Value], c: ir.Value) -> ir.Value:
        """c plus the products of two such pairs a and b, of which those of two neighbours in both fit 16 bits; all are
        eight lanes."""
        bytes_, shorts, words = (ir.VectorType(ir.IntType(bits), 256 // bits) for bits in (8, 16, 32))
        if self._target == "avx2":
            pairs = self._intrinsic("llvm.x86.avx2.pmadd.ub.sw", shorts, [bytes_, bytes_])
            fours = self._intrinsic("llvm.x86.avx2.pmadd.wd", words, [shorts, shorts])
            products = [self.builder.call(pairs, [self.builder.bitcast(operand, bytes_) for operand in both])
                        for both in zip(a, b, strict=True)]
            both = self.builder.call(fours, [self.builder.add(*products), ir.Constant(shorts, [1] * 16)])
            return self._pinned(self.builder.add(both, c))
        wide = [self.builder.shuffle_vector(operand, operand, ir.Constant(WORDS, [*range(8)] * 2))
                for operand in (*a, *b, c)]
        found = self.dot_bytes(wide[1], wide[3], self.dot_bytes(wide[0], wide[2], wide[4]))
        return self._part(found, 0, 8)

    def _pinned(self, value: ir.Value) -> ir.Value:
        """The value, a register. LLVM is not to see that it might add up later sums first, which takes more
        registers than there are."""
        return self.builder.asm(ir.FunctionType(value.type, [value.type]), "", "=x,0", [value], False)

    def read_again(self) -> None:
        """Loads behind this place are not made one with those before it."""
        self.builder.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], True)

    def halves(self, words: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Sixteen i32 as two times eight."""
        return self._part(words, 0, 8), self._part(words, 8, 8)

    def whole(self, low: ir.Value, high: ir.Value) -> ir.Value:
        """Two times eight i32 as sixteen."""
        return self.builder.shuffle_vector(low, high, ir.Constant(WORDS, list(range(16))))

    def _part(self, words: ir.Value, first: int, count: int) -> ir.Value:
        lanes = ir.Constant(ir.VectorType(I32, count), list(range(first, first + count)))
        return words if count == 16 else self.builder.shuffle_vector(words, words, lanes)

    def splat_shorts(self, four: ir.Value) -> ir.Value:
        """Four u8, an i32, as i16 in eight times four lanes: sixteen i32, of which each holds a pair."""
        words = self.splat(four, 8)
        bytes_ = ir.VectorType(BYTE, 32)
        # Bytes and zeros in turn: within each 16 bytes the lower eight, twice, for all fours are the same.
        places = [16 * (at // 16) + at % 16 // 2 for at in range(32)]
        mask = [place + 32 * (at % 2) for at, place in enumerate(places)]
        shorts = self.builder.shuffle_vector(self.builder.bitcast(words, bytes_), ir.Constant(bytes_, None),
                                             ir.Constant(ir.VectorType(I32, 32), mask))
        half = self.builder.bitcast(shorts, EIGHT)
        return self.whole(half, half)

    def dot_shorts(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """c plus, lane by lane, the products of both i16 of the pairs a and b."""
        name, lanes = {"avx512": ("avx512.pmaddw.d.512", 16), "avx2": ("avx2.pmadd.wd", 8),
                       "baseline": ("sse2.pmadd.wd", 4)}[self._target]
        shorts, words = ir.VectorType(ir.IntType(16), 2 * lanes), ir.VectorType(I32, lanes)
        callee = self._intrinsic(f"llvm.x86.{name}", words, [shorts, shorts])
        sums = []
        for first in range(0, 16, lanes):
            x, y, z = (self._part(operand, first, lanes) for operand in (a, b, c))
            products = self.builder.call(callee, [self.builder.bitcast(operand, shorts) for operand in (x, y)])
            sums.append(self._pinned(self.builder.add(products, z)))
        return self._joined(sums)

    def _joined(self, parts: list[ir.Value]) -> ir.Value:
        """Vectors of i32 as one, of 1, 2 or 4."""
        while len(parts) > 1:
            parts = [self.builder.shuffle_vector(low, high, ir.Constant(
                ir.VectorType(I32, 2 * low.type.count), list(range(2 * low.type.count))))
                for low, high in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    def load_u8(self, pointer: ir.Value) -> ir.Value:
        """Sixteen u8 as floats."""
        return self.builder.uitofp(self.builder.zext(self.load(pointer, _BYTES, 1), WORDS), VECTOR)

    def store_u8(self, value: ir.Value, pointer: ir.Value, bounds: Sequence[ir.Value], zero_point: ir.Value) -> None:
        """Sixteen floats within bounds, to nearest, ties to even, plus `zero_point`, a vector of int32, as u8. NaN
        becomes the lower bound; both are such that the sum is from 0 to 255."""
        b = self.builder
        lower, upper = bounds
        bounded = b.select(b.fcmp_ordered(">", value, lower), value, lower)
        bounded = b.select(b.fcmp_ordered("<", bounded, upper), bounded, upper)
        whole = b.bitcast(b.fadd(bounded, ir.Constant(VECTOR, [_ROUNDING] * 16)), WORDS)
        b.store(b.trunc(b.add(whole, zero_point), _BYTES), pointer, align=1)

    def _words(self, number: int) -> ir.Constant:
        return ir.Constant(WORDS, [number] * 16)

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

    def gate(self, value: ir.Value, parameters: Sequence[ir.Value]) -> ir.Value:
        """A hard swish by four numbers: value * clamp(value * slope + offset, 0, 1) * scale + shift."""
        slope, offset, scale, shift = parameters
        zero, one = (ir.Constant(value.type, [number] * value.type.count) for number in (0.0, 1.0))
        opened = self.clamp(self.multiply_add(value, slope, offset), zero, one)
        return self.multiply_add(self.builder.fmul(value, opened), scale, shift)

    def sloped(self, value: ir.Value, slopes: ir.Value) -> ir.Value:
        """Return the value where it is above 0, and the value times the slope elsewhere. NaN stays NaN."""
        zero = ir.Constant(value.type, [0.0] * value.type.count)
        return self.builder.select(self.builder.fcmp_ordered(">", value, zero), value,
                                   self.builder.fmul(value, slopes))

    def equals(self, value: ir.Value, number: int) -> ir.Value:
        """Compare an i64 with a number for equality."""
        return self.builder.icmp_signed("==", value, integer(number))

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
        number.add_incoming(b.add(number, integer(step)), b.block)
        b.branch(head)
        b.position_at_end(after)

    def switch(self, value: ir.Value, cases: Mapping[int, Callable[[], None]], name: str) -> None:
        """The case of the value, which is one of them; their blocks have names that end in it."""
        b, invalid, done = self.builder, self.block(f"{name}_none"), self.block(f"{name}_case_done")
        switch = b.switch(value, invalid)
        for number, body in cases.items():
            case = self.block(f"{name}{number}")
            switch.add_case(integer(number), case)
            b.position_at_end(case)
            body()
            b.branch(done)
        b.position_at_end(invalid)
        b.unreachable()
        b.position_at_end(done)

    def repeat(self, name: str, first: Sequence[ir.Value],
               body: Callable[[list[ir.Value]], tuple[ir.Value, Sequence[ir.Value]]]) -> list[ir.Value]:
        """A loop of at least one turn. `body` gets the values, which are `first` in the first turn, and gives whether
        there is another turn and the values as they follow; the last of these."""
        b = self.builder
        before, inside, after = b.block, self.block(name), self.block(f"{name}_done")
        b.branch(inside)
        b.position_at_end(inside)
        carried = [b.phi(value.type) for value in first]
        again, following = body([*carried])
        for phi, start, later in zip(carried, first, following, strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(later, b.block)
        b.cbranch(again, inside, after)
        b.position_at_end(after)
        return list(following)

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


_SIGNATURE = ir.FunctionType(ir.VoidType(), [I64, PTR, PTR, I64])
_LANES = (16, 8)
_CALLED = {name: number for name, number in ACTIVATIONS.items() if number >= FIRST_CALLED}


def activate(module: ir.Module, lanes: int) -> ir.Function:
    """The function for pixels of so many floats, declared in `module`."""
    name = f"ng_activate_{lanes}"
    return module.globals.get(name) or ir.Function(module, _SIGNATURE, name=name)


def call_activation(e: Emitter, lanes: int, kind: ir.Value, base: ir.Value, offsets: ir.Value | None,
                    count: ir.Value) -> None:
    """Emit a call of it."""
    table = offsets if offsets is not None else ir.Constant(PTR, None)
    e.builder.call(activate(e.function.module, lanes), [kind, base, table, count])


def activation_module(machine: llvm.TargetMachine, multiply_add: str) -> llvm.ModuleRef:
    """An optimised module that defines the functions and exports nothing else."""
    from ngraph_mxnet.targets.cpu.kernels import ALL_KERNELS
    from ngraph_mxnet.targets.cpu.kernels.compiler import expression_module, new_module, optimize

    text = ir.Module("activations")
    for lanes in _LANES:
        _define(text, lanes, multiply_add)
    module = new_module(str(text), machine)
    for name in _CALLED:
        module.link_in(expression_module(ALL_KERNELS[name], f"ng_expression_{name}", machine))
    exported = {f"ng_activate_{lanes}" for lanes in _LANES}
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and value.name not in exported:
            value.linkage = "internal"
    optimize(module, machine, vectorize=True)
    return module


def _define(module: ir.Module, lanes: int, multiply_add: str) -> None:
    function = activate(module, lanes)
    function.attributes.add("nounwind")
    e = Emitter(function, multiply_add)
    b = e.builder
    kind, base, offsets, count = function.args
    done = e.block("done")
    cases = {number: e.block(name) for name, number in _CALLED.items()}
    switch = b.switch(kind, done)
    for name, number in _CALLED.items():
        switch.add_case(integer(number), cases[number])
        b.position_at_end(cases[number])
        symbol = f"ng_expression_{name}"
        expression = module.globals.get(symbol) or ir.Function(module, ir.FunctionType(F32, [F32]), name=symbol)
        _pixels(e, expression, base, offsets, count, lanes)
        b.branch(done)
    b.position_at_end(done)
    b.ret_void()


def _pixels(e: Emitter, expression: ir.Function, base: ir.Value, offsets: ir.Value, count: ir.Value,
            lanes: int) -> None:
    """The expression of every float of every pixel."""
    b, zero = e.builder, integer(0)
    has_table = b.icmp_unsigned("!=", offsets, ir.Constant(PTR, None))

    def pixel(number: ir.Value) -> None:
        neighbour = b.mul(number, integer(64))
        (offset,) = e.when(has_table, [neighbour], lambda: [e.load_offset(offsets, number)])
        place = e.at(base, offset)

        def lane(at: ir.Value) -> None:
            element = e.at(place, b.mul(at, integer(4)))
            b.store(b.call(expression, [e.load(element, F32)]), element, align=4)

        e.loop(zero, integer(lanes), lane)

    e.loop(zero, count, pixel)
