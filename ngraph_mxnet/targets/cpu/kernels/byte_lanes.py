"""Sixteen uint8 in memory as a value of `lanes.py`, and how real numbers become such."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ngraph_mxnet.targets.cpu.kernels.lanes import F32, LANES, lanes_at

__all__ = ["load_u8_lanes", "rounded_u8_lanes", "store_u8_lanes"]

_BYTES = ir.VectorType(ir.IntType(8), LANES)
_WORDS = ir.VectorType(ir.IntType(32), LANES)
_ROUNDING = 1.5 * 2.0**23
"""A float32 of a few bits more or less than this is a whole number, which its lowest bits hold."""


def _all_lanes(number: float) -> ir.Constant:
    return ir.Constant(ir.VectorType(ir.FloatType(), LANES), [number] * LANES)


@intrinsic
def load_u8_lanes(typingctx, base, index):
    """The 16 uint8 from `base[index]` on, as float32."""

    def generate(context, builder, signature, arguments):
        numbers = builder.load(lanes_at(builder, *arguments, _BYTES), align=1)
        return builder.sitofp(builder.zext(numbers, _WORDS), _all_lanes(0).type)

    return F32(base, types.int64), generate


@intrinsic
def store_u8_lanes(typingctx, base, index, value):
    """`base[index : index + 16] = value`, of whole numbers from 0 to 255."""

    def generate(context, builder, signature, arguments):
        whole = builder.bitcast(builder.fadd(arguments[2], _all_lanes(_ROUNDING)), _WORDS)
        slot = lanes_at(builder, arguments[0], arguments[1], _BYTES)
        builder.store(builder.trunc(whole, _BYTES), slot, align=1)
        return context.get_dummy_value()

    return types.none(base, types.int64, F32), generate


@intrinsic
def rounded_u8_lanes(typingctx, value, zero_point):
    """The nearest whole number, ties to even, plus the zero point, within 0 and 255; NaN becomes 0. The contractions of
    u8 store so, too."""

    def generate(context, builder, signature, arguments):
        number, zero = arguments
        lower, upper = builder.fsub(_all_lanes(0.0), zero), builder.fsub(_all_lanes(255.0), zero)
        bounded = builder.select(builder.fcmp_ordered(">", number, lower), number, lower)
        bounded = builder.select(builder.fcmp_ordered("<", bounded, upper), bounded, upper)
        nearest = builder.fsub(builder.fadd(bounded, _all_lanes(_ROUNDING)), _all_lanes(_ROUNDING))
        return builder.fadd(nearest, zero)

    return F32(F32, F32), generate
