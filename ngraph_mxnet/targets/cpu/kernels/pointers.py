"""The operations that kernels need beyond plain Numba: raw pointers, bit tricks and calls to libm.

All are Numba intrinsics: a few LLVM instructions each, without bounds checks, wraparound or exceptions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce, wraps
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from ngraph_mxnet.targets.cpu.params.record import Kernels, named

__all__ = [
    "FLOATS",
    "INTS",
    "TENSORS",
    "absolute",
    "emits",
    "from_bf16",
    "image_row",
    "inline",
    "libm",
    "load",
    "log_exponent",
    "log_mantissa",
    "offset_of",
    "parameter",
    "pointer",
    "power_of_two",
    "reader",
    "round_bf16",
    "rounding",
    "scratch",
    "select",
    "shift",
    "square_root",
    "store",
    "to_bf16",
    "widen_bf16",
]

TENSORS = types.CPointer(types.CPointer(types.uint8))
INTS = types.CPointer(types.int64)
FLOATS = types.CPointer(types.float64)

inline = njit(error_model="numpy", fastmath={"contract"}, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""Decorates a helper of kernels. It becomes an LLVM function of its own, which LLVM inlines everywhere."""



def emits(signature: Callable[..., Any]) -> Callable[[Callable], Any]:
    """Decorator: an intrinsic, made of a function that emits its instructions.

    Args:
        signature: gives the Numba signature for the operands' types.

    The function takes an `ir.IRBuilder` and the operands' values. It gives the result, or None where there is none.
    """

    def declare(emit: Callable) -> Any:
        def generate(context, builder, signature, arguments):
            result = emit(builder, *arguments)
            return context.get_dummy_value() if result is None else result

        @wraps(emit)
        def typed(typingctx, *operands):
            return signature(*operands), generate

        return intrinsic(typed)

    return declare


_MAGIC_BITS = 0x3F800000
_SQRT_HALF_BITS = 0x3F3504F3


def _mark(instruction: ir.Instruction, builder: ir.IRBuilder, *, is_store: bool) -> None:
    """Say that inputs and output do not overlap, so that loops vectorise without run-time checks.

    An output may still be exactly one of the inputs: elementwise kernels read an element only to make the
    same element, and a store can't move above the load that it depends on.
    """
    module = builder.module
    domain = module.add_metadata(["ng_elementwise"])
    scopes = [module.add_metadata([module.add_metadata([name, domain])]) for name in ("ng_in", "ng_out")]
    instruction.set_metadata("alias.scope", scopes[is_store])
    instruction.set_metadata("noalias", scopes[not is_store])


@intrinsic
def pointer(typingctx, tensors, index, element):
    """`tensors[index]` as a pointer to `element` (a Numba type)."""
    result = types.CPointer(element.dtype)

    def generate(context, builder, signature, arguments):
        slot = builder.gep(arguments[0], [arguments[1]], inbounds=True)
        return builder.bitcast(builder.load(slot), context.get_value_type(result))

    return result(tensors, index, element), generate


def reader(record: Kernels) -> Callable:
    """A function of `ints` and `floats`: the record's numbers as a named tuple, with one for each group.

    What is not used is not read."""
    named_type = named((*record.groups, *record.floats))
    fields = [types.BaseTuple.from_types(each, type(each)) if isinstance(each, tuple) else each
              for each in record.read([types.int64] * len(record.ints))]

    @intrinsic
    def read(typingctx, ints, floats):
        result = types.BaseTuple.from_types(fields + [types.float64] * len(record.floats), named_type)

        def generate(context, builder, signature, arguments):
            numbers, values = ([builder.load(builder.gep(base, [ir.IntType(64)(number)], inbounds=True))
                                for number in range(len(names))]
                               for base, names in zip(arguments, (record.ints, record.floats), strict=True))
            groups = [context.make_tuple(builder, kind, each) if isinstance(each, tuple) else each
                      for kind, each in zip(fields, record.read(numbers), strict=True)]
            return context.make_tuple(builder, signature.return_type, groups + values)

        return result(ints, floats), generate

    return read


@emits(lambda base, count: base(base, types.int64))
def shift(builder, base, count):
    """`base + count` elements."""
    return builder.gep(base, [count], inbounds=True)


@intrinsic
def offset_of(typingctx, strides, places):
    """How far away a place is: the sum of each of `places` by its stride, of the first of `strides`."""

    def generate(context, builder, signature, arguments):
        return reduce(builder.add, [builder.mul(*(builder.extract_value(numbers, i) for numbers in arguments),
                                                flags=["nsw"]) for i in range(len(places))])

    return types.int64(strides, types.UniTuple(types.int64, len(places))), generate


@inline
def image_row(task, blocks, rows):
    """The image, block and row of a task, which are numbered so, the last fastest."""
    plane = task // rows
    return plane // blocks, plane % blocks, task % rows


@intrinsic(prefer_literal=True)
def scratch(typingctx, count):
    """`count` (a literal) float32 on the stack, aligned to 64 bytes and uninitialised; valid during the call."""
    size = count.literal_value

    def generate(context, builder, signature, arguments):
        with builder.goto_entry_block():
            room = builder.alloca(ir.ArrayType(ir.FloatType(), size))
        room.align = 64
        return builder.bitcast(room, context.get_value_type(signature.return_type))

    return types.CPointer(types.float32)(count), generate


@intrinsic
def load(typingctx, base, index):
    """`base[index]` of an elementwise input."""

    def generate(context, builder, signature, arguments):
        slot = builder.gep(arguments[0], [arguments[1]], inbounds=True)
        value = builder.load(slot, align=base.dtype.bitwidth // 8)
        _mark(value, builder, is_store=False)
        return value

    return base.dtype(base, types.int64), generate


@intrinsic
def store(typingctx, base, index, value):
    """`base[index] = value` of an elementwise output; the value is converted to the element type."""

    def generate(context, builder, signature, arguments):
        slot = builder.gep(arguments[0], [arguments[1]], inbounds=True)
        converted = context.cast(builder, arguments[2], value, base.dtype)
        write = builder.store(converted, slot, align=base.dtype.bitwidth // 8)
        _mark(write, builder, is_store=True)
        return context.get_dummy_value()

    return types.none(base, types.int64, value), generate


@emits(lambda floats, index: types.float32(floats, types.int64))
def parameter(builder, floats, index):
    """`floats[index]` as float32, known not to change while the output is written."""
    value = builder.load(builder.gep(floats, [index], inbounds=True))
    _mark(value, builder, is_store=False)
    return builder.fptrunc(value, ir.FloatType())


@intrinsic
def select(typingctx, condition, yes, no):
    """`yes if condition else no` without a branch: both are computed."""

    def generate(context, builder, signature, arguments):
        return builder.select(arguments[0], arguments[1], arguments[2])

    return (yes(types.boolean, yes, yes), generate) if yes == no else None


@emits(lambda biased: types.float32(types.float32))
def power_of_two(builder, biased):
    """2**n for `biased = n + 1.5 * 2**23`, -126 <= n <= 127: the sum's low bits are n."""
    bits = builder.bitcast(biased, ir.IntType(32))
    scaled = builder.add(builder.shl(bits, bits.type(23)), bits.type(_MAGIC_BITS))
    return builder.bitcast(scaled, ir.FloatType())


def to_bf16(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """IR for float32 (or a vector) as the bits of bf16: to nearest, ties to even; NaN stays NaN."""
    wide, narrow = (_shaped_like(x, ir.IntType(bits)) for bits in (32, 16))
    bits = builder.bitcast(x, wide)
    odd = builder.and_(builder.lshr(bits, _constant(wide, 16)), _constant(wide, 1))
    rounded = builder.add(bits, builder.add(odd, _constant(wide, 0x7FFF)))
    quiet = builder.or_(bits, _constant(wide, 1 << 22))
    rounded = builder.select(builder.fcmp_unordered("uno", x, x), quiet, rounded)
    return builder.trunc(builder.lshr(rounded, _constant(wide, 16)), narrow)


def from_bf16(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """IR for the bits of bf16 (or a vector) as float32."""
    wide = _shaped_like(x, ir.IntType(32))
    bits = builder.shl(builder.zext(x, wide), _constant(wide, 16))
    return builder.bitcast(bits, _shaped_like(x, ir.FloatType()))


def _shaped_like(x: ir.Value, element: ir.Type) -> ir.Type:
    return ir.VectorType(element, x.type.count) if isinstance(x.type, ir.VectorType) else element


def _constant(kind: ir.Type, number: int) -> ir.Constant:
    return ir.Constant(kind, [number] * kind.count if isinstance(kind, ir.VectorType) else number)


@emits(lambda x: types.uint16(types.float32))
def round_bf16(builder, x):
    """float32 to the bits of bf16."""
    return to_bf16(builder, x)


@emits(lambda x: types.float32(types.uint16))
def widen_bf16(builder, x):
    """The bits of bf16 to float32."""
    return from_bf16(builder, x)


def _log_bits(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    bits = builder.bitcast(x, ir.IntType(32))
    return builder.add(bits, bits.type(_MAGIC_BITS - _SQRT_HALF_BITS))


@emits(lambda x: types.float32(types.float32))
def log_exponent(builder, x):
    """e of x = m * 2**e with m in [sqrt(1/2), sqrt(2)), for a positive normal x."""
    bits = _log_bits(builder, x)
    return builder.sitofp(builder.sub(builder.ashr(bits, bits.type(23)), bits.type(127)), ir.FloatType())


@emits(lambda x: types.float32(types.float32))
def log_mantissa(builder, x):
    """m of x = m * 2**e with m in [sqrt(1/2), sqrt(2)), for a positive normal x."""
    bits = _log_bits(builder, x)
    mantissa = builder.and_(bits, bits.type(0x007FFFFF))
    return builder.bitcast(builder.add(mantissa, bits.type(_SQRT_HALF_BITS)), ir.FloatType())


def _external(name: str, arity: int) -> Callable:
    """A float32 function known to LLVM (`llvm.*`) or to libm."""

    def generate(context, builder, signature, arguments):
        single = ir.FloatType()
        function_type = ir.FunctionType(single, [single] * arity)
        function = builder.module.globals.get(name) or ir.Function(builder.module, function_type, name)
        function.attributes.add("nounwind")
        return builder.call(function, arguments)

    if arity == 1:

        @intrinsic
        def call(typingctx, x):
            return types.float32(types.float32), generate
    else:

        @intrinsic
        def call(typingctx, x, y):
            return types.float32(types.float32, types.float32), generate

    return call


def libm(name: str, arity: int = 1) -> Callable:
    """libm's float32 function `name`."""
    return _external(name, arity)


def rounding(name: str) -> Callable:
    """LLVM's float32 `name`: floor, ceil, trunc or nearbyint (ties to even)."""
    return _external(f"llvm.{name}.f32", 1)


square_root = _external("llvm.sqrt.f32", 1)
absolute = _external("llvm.fabs.f32", 1)
