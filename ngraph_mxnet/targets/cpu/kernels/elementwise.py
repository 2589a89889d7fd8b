"""Elementwise kernels of float32 and bool, made of the formulas in the ops' rows, on the strided convention
(`strided.py`).

And those that move and convert elements. `copy_N` and `fill_N` move elements of N bytes; `fill_1` and `fill_8` convert
the value to int8 and int64, `fill_2` to int16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import permutations
from types import ModuleType

import numpy as np
from numba import types

from ngraph_mxnet.ops.elementwise import SCALARS
from ngraph_mxnet.targets.cpu.kernels import maths
from ngraph_mxnet.targets.cpu.kernels.pointers import (
    absolute,
    inline,
    libm,
    parameter,
    round_bf16,
    rounding,
    select,
    square_root,
    widen_bf16,
)
from ngraph_mxnet.targets.cpu.kernels.record import KernelRecord, register
from ngraph_mxnet.targets.cpu.kernels.strided import binary_kernel, fill_kernel, ternary_kernel, unary_kernel
from ngraph_mxnet.targets.cpu.params.strided import CONVERTED, STRIDED

__all__ = ["maths_f32", "module_of"]

ELEMENTS = {
    "f32": types.float32,
    "f64": types.float64,
    "i32": types.int32,
    "i64": types.int64,
    "i8": types.int8,
    "u8": types.uint8,
    "bool": types.uint8,
    "i16": types.int16,
    "bf16": types.uint16,
    **{f"b{size}": types.Integer.from_bitwidth(8 * size) for size in (1, 2, 4, 8)},
}
"""Numba's type for each element type that kernels handle; a bool is a byte of 0 or 1, a bf16 its bits."""

NO = np.uint8(0)


def module_of(number: Callable, own: Mapping[str, Callable], other: Callable[[str, int], Callable]) -> ModuleType:
    """The module that the ops' formulas take, for one element type: the function of each op, and numbers.

    Args:
        own: functions by op, which go before formulas, or by the name that stands in place of a formula.
        other: makes the function of such a name, of so many operands, that `own` lacks.
    """
    made = ModuleType("scalars")
    vars(made).update(own, select=select, number=number, zero=number(0), half=number(0.5), one=number(1))
    for name, op in SCALARS.items():
        if name not in own:
            scalar = op.scalar or name
            setattr(made, name, inline(scalar(made)) if callable(scalar) else
                    own.get(scalar) or other(scalar, op.least))
    return made


maths_f32 = module_of(np.float32, {
    **{name: getattr(maths, name) for name in maths.__all__}, "fabs": absolute, "sqrt": square_root,
    **{name: rounding(name) for name in ("ceil", "floor", "nearbyint", "trunc")},
    "fmod": libm("fmodf", 2), "copysign": libm("copysignf", 2),
}, lambda name, arity: libm(f"{name}f", arity))
_maths_bool = module_of(np.uint8, {}, libm)
"""A bool is a byte of 0 or 1."""

_nearest = rounding("nearbyint")


def _quantized(least: int, greatest: int) -> Callable:
    """round(x / scale) + zero point, within these; NaN becomes the least."""
    lower, upper = np.float32(least), np.float32(greatest)

    @inline
    def quantized(x, scale, zero_point):
        number = _nearest(x / scale) + zero_point
        bounded = select(number > lower, number, lower)
        return select(bounded < upper, bounded, upper)

    return quantized


@inline
def _dequantized(q, scale, zero_point):
    return (np.float32(q) - zero_point) * scale


_identity = maths_f32.identity
_is_true = inline(lambda x: x != 0)
_choose = inline(lambda condition, x, y: select(condition != NO, x, y))


def with_floats(expression: Callable, arity: int, parameters: int) -> Callable:
    """`expression` taking the kernel's `floats` in place of its parameters."""
    if arity == 3:
        return inline(lambda x, y, z: expression(x, y, z))
    if arity == 2:
        return inline(lambda x, y: expression(x, y))
    if arity == 0:
        return inline(lambda floats: expression(parameter(floats, 0)))
    if parameters == 0:
        return inline(lambda x, floats: expression(x))
    if parameters == 1:
        return inline(lambda x, floats: expression(x, parameter(floats, 0)))
    if parameters == 2:
        return inline(lambda x, floats: expression(x, parameter(floats, 0), parameter(floats, 1)))
    return inline(lambda x, floats: expression(x, parameter(floats, 0), parameter(floats, 1), parameter(floats, 2),
                                               parameter(floats, 3)))


def strided_function(expression: Callable, inputs: tuple, output: object, loops: str) -> Callable:
    """The kernel function around `expression` (as `with_floats` makes it); Numba types of the elements."""
    if not inputs:
        return fill_kernel(expression, output)
    if len(inputs) == 1:
        return unary_kernel(expression, inputs[0], output, loops)
    if len(inputs) == 2:
        return binary_kernel(expression, inputs[0], output, loops)
    return ternary_kernel(expression, inputs, output)


def _add(name: str, expression: Callable, loops: str = "full", output: str = "") -> None:
    elements, floats = STRIDED[name]
    *inputs, out = elements.split()
    out = output or out
    count = len(floats.split())
    bound = with_floats(expression, len(inputs), count)
    register(
        KernelRecord(
            name=name,
            function=strided_function(bound, tuple(ELEMENTS[k] for k in inputs), ELEMENTS[out], loops),
            doc=f"Elementwise {name}: ({', '.join(inputs)}) -> {out}, on the strided convention.",
            expression=expression,
            inputs=tuple(inputs),
            output=out,
            parameters=count,
            loops=loops,
        )
    )


for _name, _op in SCALARS.items():
    if _name in STRIDED:
        _maths = _maths_bool if _op.kind == "logical" else maths_f32
        _add(_name, getattr(_maths, _name), "full" if _op.float32 == "vector" else "strided")
_add("select", _choose)
for _size in (1, 2, 4, 8):
    _add(f"copy_{_size}", _identity, "moving" if _size == 4 else "full")
    _add(f"fill_{_size}", _identity, output="f32" if _size == 4 else "")
for _from, _to in permutations(CONVERTED, 2):
    _add(f"convert_{_from}_{_to}", _is_true if _to == "bool" else _identity, "contiguous")
for _element, _bounds in (("u8", (0, 255)), ("i8", (-128, 127))):
    _add(f"quantize_{_element}", _quantized(*_bounds), "contiguous")
    _add(f"dequantize_{_element}", _dequantized, "contiguous")
_add("convert_f32_bf16", round_bf16, "contiguous")
_add("convert_bf16_f32", widen_bf16, "contiguous")
