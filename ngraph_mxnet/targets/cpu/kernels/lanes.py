"""Sixteen lanes as one value: `<16 x float>` and `<16 x double>` in kernels.

A blocked pixel is one such value whatever the ISA; LLVM splits it into registers. `+ - * /` work lane by lane
between values of one type.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

from ngraph_mxnet.targets.cpu.kernels.pointers import emits, from_bf16, inline, to_bf16

__all__ = [
    "F32",
    "F64",
    "LANES",
    "Lanes",
    "clamp_lanes",
    "greater_lanes",
    "greatest_of_row",
    "lane",
    "load_bf16_lanes",
    "load_first_lanes",
    "load_lanes",
    "maximum_lanes",
    "maximum_of_lanes",
    "minimum_lanes",
    "minimum_of_lanes",
    "narrow",
    "product_of_lanes",
    "splat",
    "store_bf16_lanes",
    "store_first_lanes",
    "store_lanes",
    "store_pairs",
    "sum_of_lanes",
    "sum_of_row",
    "transpose_lanes",
    "transpose_pairs",
    "widen",
]

LANES = 16


class Lanes(types.Type):
    """Numba type of 16 lanes of float32 or float64."""

    def __init__(self, element: types.Float):
        self.element = element
        super().__init__(f"Lanes({element})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        element = ir.FloatType() if kind.element == types.float32 else ir.DoubleType()
        super().__init__(manager, kind, ir.VectorType(element, LANES))


F32 = Lanes(types.float32)
F64 = Lanes(types.float64)


def _arithmetic(function: object, method: str) -> None:
    @infer_global(function)
    class Same(AbstractTemplate):
        def generic(self, args, kws):
            if len(args) == 2 and isinstance(args[0], Lanes) and args[0] == args[1]:
                return signature(args[0], *args)
            return None

    @lower_builtin(function, Lanes, Lanes)
    def lower(context, builder, signature, arguments):
        return getattr(builder, method)(*arguments, flags=("contract",))


for _function, _method in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _arithmetic(_function, _method)


def lanes_at(builder: ir.IRBuilder, base: ir.Value, index: ir.Value, vector: ir.Type) -> ir.Value:
    return builder.bitcast(builder.gep(base, [index], inbounds=True), vector.as_pointer())


@intrinsic
def load_lanes(typingctx, base, index):
    """The 16 elements from `base[index]` on; any alignment."""
    result = Lanes(base.dtype)

    def generate(context, builder, signature, arguments):
        slot = lanes_at(builder, *arguments, context.get_value_type(result))
        return builder.load(slot, align=base.dtype.bitwidth // 8)

    return result(base, types.int64), generate


@intrinsic
def store_lanes(typingctx, base, index, value):
    """`base[index : index + 16] = value`."""

    def generate(context, builder, signature, arguments):
        slot = lanes_at(builder, arguments[0], arguments[1], arguments[2].type)
        builder.store(arguments[2], slot, align=base.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.none(base, types.int64, value), generate


def _first(builder: ir.IRBuilder, count: ir.Value) -> ir.Value:
    """The mask of the first `count` lanes."""
    kind = ir.VectorType(ir.IntType(32), LANES)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), builder.trunc(count, kind.element), kind.element(0))
    limit = builder.shuffle_vector(one, one, ir.Constant(kind, [0] * LANES))
    return builder.icmp_signed("<", ir.Constant(kind, list(range(LANES))), limit)


def _masked(builder: ir.IRBuilder, name: str, result: ir.Type, arguments: list[ir.Value]) -> ir.Value:
    kind = ir.FunctionType(result, [value.type for value in arguments])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, arguments)


@emits(lambda base, index, count, others: F32(base, types.int64, types.int64, F32))
def load_first_lanes(builder, base, index, count, others):
    """The `count` float32 from `base[index]` on, and `others` in the other lanes, whose memory is not touched."""
    operands = [lanes_at(builder, base, index, others.type), ir.IntType(32)(4), _first(builder, count), others]
    return _masked(builder, "llvm.masked.load.v16f32.p0", others.type, operands)


@emits(lambda base, index, value, count: types.none(base, types.int64, F32, types.int64))
def store_first_lanes(builder, base, index, value, count):
    """`base[index : index + count] = value[:count]`; the memory of the other lanes is not touched."""
    operands = [value, lanes_at(builder, base, index, value.type), ir.IntType(32)(4), _first(builder, count)]
    _masked(builder, "llvm.masked.store.v16f32.p0", ir.VoidType(), operands)


_HALVES = ir.VectorType(ir.IntType(16), LANES)


@emits(lambda base, index: F32(base, types.int64))
def load_bf16_lanes(builder, base, index):
    """The 16 bf16 (uint16) from `base[index]` on, as float32."""
    return from_bf16(builder, builder.load(lanes_at(builder, base, index, _HALVES), align=2))


@emits(lambda base, index, value: types.none(base, types.int64, F32))
def store_bf16_lanes(builder, base, index, value):
    """`base[index : index + 16] = value`, rounded to bf16."""
    builder.store(to_bf16(builder, value), lanes_at(builder, base, index, _HALVES), align=2)


@emits(lambda base, index, first, second: types.none(base, types.int64, F32, F32))
def store_pairs(builder, base, index, first, second):
    """`base[index : index + 32] = first[0], second[0], first[1], ...`, rounded to bf16."""
    halves = [to_bf16(builder, value) for value in (first, second)]
    order = [lane + LANES * of for lane in range(LANES) for of in range(2)]
    mask = ir.Constant(ir.VectorType(ir.IntType(32), 2 * LANES), order)
    pairs = builder.shuffle_vector(*halves, mask)
    builder.store(pairs, lanes_at(builder, base, index, pairs.type), align=2)


@intrinsic
def splat(typingctx, x):
    """16 lanes of x."""

    def generate(context, builder, signature, arguments):
        vector = context.get_value_type(signature.return_type)
        first = builder.insert_element(ir.Constant(vector, ir.Undefined), arguments[0], ir.IntType(32)(0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return builder.shuffle_vector(first, first, mask)

    return Lanes(x)(x), generate


def _better(comparison: str) -> Callable:
    """IR for the lanes of `first` where they compare so with `second` or are NaN, else those of `second`."""

    def generate(builder: ir.IRBuilder, first: ir.Value, second: ir.Value) -> ir.Value:
        better = builder.fcmp_ordered(comparison, first, second)
        nan = builder.fcmp_unordered("uno", first, first)
        return builder.select(builder.or_(better, nan), first, second)

    return generate


maximum_lanes = emits(lambda x, y: x(x, x))(_better(">"))
"""Lane by lane the larger; NaN if either is."""
minimum_lanes = emits(lambda x, y: x(x, x))(_better("<"))
"""Lane by lane the smaller; NaN if either is."""


@emits(lambda x, y: x(x, x))
def greater_lanes(builder, x, y):
    """Lane by lane x where it is above y, else y, also where either is NaN: one instruction."""
    return builder.select(builder.fcmp_ordered(">", x, y), x, y)


@emits(lambda x, lower, upper: x(x, x, x))
def clamp_lanes(builder, x, lower, upper):
    """Minimum and maximum, lane by lane, that keep NaN: a failed ordered comparison keeps x."""
    x = builder.select(builder.fcmp_ordered(">", lower, x), lower, x)
    return builder.select(builder.fcmp_ordered("<", upper, x), upper, x)


@emits(lambda mask, x: x(x, x))
def where_positive(builder, mask, x):
    """x in the lanes where the mask is above 0, else 0."""
    zeros = ir.Constant(x.type, None)
    return builder.select(builder.fcmp_ordered(">", mask, zeros), x, zeros)


def _where(comparison: str, ordered: bool) -> Callable:
    @emits(lambda a, b, x: x(a, b, x))
    def where(builder, a, b, x):
        compare = builder.fcmp_ordered if ordered else builder.fcmp_unordered
        return builder.select(compare(comparison, a, b), x, ir.Constant(x.type, None))

    return where


where_above = _where(">", ordered=True)
"""x in the lanes where a is above b, else 0."""
where_not_below = _where(">=", ordered=True)
"""x in the lanes where a is b or above it, else 0."""
where_equal = _where("==", ordered=True)
"""x in the lanes where a is b, else 0."""
where_unequal = _where("!=", ordered=False)
"""x in the lanes where a is not b or either is NaN, else 0."""


@emits(lambda x: F64(F32))
def widen(builder, x):
    """float32 lanes as float64."""
    return builder.fpext(x, ir.VectorType(ir.DoubleType(), LANES))


@emits(lambda x: F32(F64))
def narrow(builder, x):
    """float64 lanes as float32."""
    return builder.fptrunc(x, ir.VectorType(ir.FloatType(), LANES))


@emits(lambda x, index: x.element(x, types.int64))
def lane(builder, x, index):
    """Element `index`."""
    return builder.extract_element(x, builder.trunc(index, ir.IntType(32)))


def _fold(combine: Callable) -> Callable:
    """Combine all lanes in a fixed tree: lane i with lane i + half, halving each time."""

    @emits(lambda x: x.element(x))
    def fold(builder, x):
        i32, half = ir.IntType(32), LANES // 2
        while half:
            order = [*range(half, 2 * half), *range(LANES - half)]
            x = combine(builder, x, builder.shuffle_vector(x, x, ir.Constant(ir.VectorType(i32, LANES), order)))
            half //= 2
        return builder.extract_element(x, i32(0))

    return fold


sum_of_lanes = _fold(ir.IRBuilder.fadd)
product_of_lanes = _fold(ir.IRBuilder.fmul)
maximum_of_lanes = _fold(_better(">"))
minimum_of_lanes = _fold(_better("<"))


@inline
def greatest_of_row(row, size):
    """The greatest of the first `size` elements, a multiple of 16, or -inf; NaN may be passed over."""
    best = splat(np.float32(-np.inf))
    for i in range(0, size, LANES):
        best = greater_lanes(load_lanes(row, i), best)
    return maximum_of_lanes(best)


@inline
def sum_of_row(row, size):
    """The sum of the first `size` elements, a multiple of 16, in float64 but for sums of four."""
    fours = size // (4 * LANES) * (4 * LANES)
    total = splat(0.0)
    for i in range(0, fours, 4 * LANES):
        total = total + widen((load_lanes(row, i) + load_lanes(row, i + LANES))
                              + (load_lanes(row, i + 2 * LANES) + load_lanes(row, i + 3 * LANES)))
    for i in range(fours, size, LANES):
        total = total + widen(load_lanes(row, i))
    return sum_of_lanes(total)


_EIGHT = ir.VectorType(ir.FloatType(), 8)
# Rounds of a transpose of 8 x 8: the distance of the rows paired, and the masks of the two results. They keep
# to halves of 4 until the last, as AVX2's shuffles do.
_ROUNDS = (
    (1, (0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)),
    (2, (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)),
    (4, (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)),
)
_COLUMN = (0, 2, 1, 3, 4, 6, 5, 7)
"""The number of the row in which the rounds leave each column."""


def _transposed(builder: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """The columns of an 8 x 8 matrix."""
    mask_type = ir.VectorType(ir.IntType(32), 8)
    for distance, low, high in _ROUNDS:
        result = list(rows)
        for i in range(8):
            if i & distance == 0:
                pair = rows[i], rows[i + distance]
                result[i] = builder.shuffle_vector(*pair, ir.Constant(mask_type, low))
                result[i + distance] = builder.shuffle_vector(*pair, ir.Constant(mask_type, high))
        rows = result
    return [rows[i] for i in _COLUMN]


def _of_two_tiles(source, source_stride, target, target_stride):
    return types.none(source, types.int64, target, types.int64)


@emits(_of_two_tiles)
def transpose_lanes(builder, source, source_stride, target, target_stride):
    """Copy a 16 x 16 float32 tile transposed; the strides separate its rows, elements are contiguous."""
    i64 = ir.IntType(64)

    def row(start: ir.Value, stride: ir.Value, index: int, column: int) -> ir.Value:
        at = builder.add(builder.mul(stride, i64(index)), i64(column))
        return lanes_at(builder, start, at, _EIGHT)

    for top in (0, 8):
        for left in (0, 8):
            rows = [builder.load(row(source, source_stride, top + i, left), align=4) for i in range(8)]
            for i, column in enumerate(_transposed(builder, rows)):
                builder.store(column, row(target, target_stride, left + i, top), align=4)


@emits(_of_two_tiles)
def transpose_pairs(builder, source, source_stride, target, target_stride):
    """A 16 x 16 float32 tile, rounded to bf16, to 8 x 16 pairs: pair (k, j) is elements 2 k and 2 k + 1 of row j.

    The strides separate rows, in elements of their tensors: float32 and bf16.
    """
    i64, vector = ir.IntType(64), ir.VectorType(ir.FloatType(), LANES)
    for first in (0, 8):
        rows = []
        for j in range(first, first + 8):
            row = builder.load(lanes_at(builder, source, builder.mul(source_stride, i64(j)), vector), align=4)
            rows.append(builder.bitcast(to_bf16(builder, row), _EIGHT))
        for k, column in enumerate(_transposed(builder, rows)):
            at = builder.add(builder.mul(target_stride, i64(k)), i64(2 * first))
            builder.store(column, lanes_at(builder, target, at, _EIGHT), align=2)
