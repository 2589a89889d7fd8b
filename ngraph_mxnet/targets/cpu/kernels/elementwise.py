"""Elementwise kernels as tables of scalar expressions, on the strided convention (`strided.py`).

float32 unless the tables say so. Parameters, in the order of `floats`: clamp lower, upper; leaky_relu slope;
elu alpha; hard_swish slope, offset, scale, shift; fill_* value. `copy_N` and `fill_N` move elements of N bytes;
`fill_1` and `fill_8` convert the value to int8 and int64, `fill_2` to int16.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import types

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

__all__ = ["BINARY", "COMPARISON", "CONVERTED", "LIBM", "LIBM_BINARY", "LOGICAL", "UNARY"]

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
}
"""Numba's type for each element type that kernels handle; a bool is a byte of 0 or 1, a bf16 its bits."""

CONVERTED = ("f32", "f64", "i32", "i64", "i8", "u8", "bool")
"""`convert_<from>_<to>` exists for every two different of these."""

F = np.float32
ZERO, HALF, ONE = F(0), F(0.5), F(1)
SQRT_HALF = F(0.7071067811865476)
DENSITY = F(0.3989422804014327)
"""1 / sqrt(2 pi)."""
YES, NO = np.uint8(1), np.uint8(0)

_power, _modulo, _copy_sign = libm("powf", 2), libm("fmodf", 2), libm("copysignf", 2)


@inline
def _relu(x):
    return select(x < ZERO, ZERO, x)


@inline
def _clamp(x, lower, upper):
    raised = select(x < lower, lower, x)
    return select(raised > upper, upper, raised)


@inline
def _leaky_relu(x, slope):
    return select(x > ZERO, x, x * slope)


@inline
def _elu(x, alpha):
    return select(x > ZERO, x, alpha * maths.expm1(x))


@inline
def _hard_swish(x, slope, offset, scale, shift):
    return x * _clamp(x * slope + offset, ZERO, ONE) * scale + shift


@inline
def _gelu(x):
    return HALF * x * (ONE + maths.erf(x * SQRT_HALF))


@inline
def _silu(x):
    return x / (ONE + maths.exp(-x))


@inline
def _prelu(x, slope):
    return select(x > ZERO, x, x * slope)


@inline
def _gelu_gradient(x, head):
    density = maths.exp(x * x * -HALF) * DENSITY
    return head * (HALF * (ONE + maths.erf(x * SQRT_HALF)) + x * density)


@inline
def _sign(x):
    return select(x > ZERO, ONE, select(x < ZERO, -ONE, x))


@inline
def _softsign(x):
    return x / (ONE + absolute(x))


@inline
def _maximum(x, y):
    return select((x > y) | (x != x), x, y)


@inline
def _minimum(x, y):
    return select((x < y) | (x != x), x, y)


@inline
def _mod(x, y):
    """The remainder with the divisor's sign; a zero has it too. x mod 0 is 0."""
    rest = _modulo(x, y)
    moved = select((rest < ZERO) != (y < ZERO), rest + y, rest)
    return select((rest == ZERO) | (y == ZERO), _copy_sign(ZERO, y), moved)


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


UNARY: dict[str, tuple[Callable, int]] = {
    "abs": (absolute, 0),
    "ceiling": (rounding("ceil"), 0),
    "clamp": (_clamp, 2),
    "elu": (_elu, 1),
    "erf": (maths.erf, 0),
    "exp": (maths.exp, 0),
    "expm1": (maths.expm1, 0),
    "floor": (rounding("floor"), 0),
    "gelu": (_gelu, 0),
    "hard_swish": (_hard_swish, 4),
    "identity": (inline(lambda x: x), 0),
    "leaky_relu": (_leaky_relu, 1),
    "log": (maths.log, 0),
    "log1p": (maths.log1p, 0),
    "negative": (inline(lambda x: -x), 0),
    "reciprocal": (inline(lambda x: ONE / x), 0),
    "relu": (_relu, 0),
    "round": (rounding("nearbyint"), 0),
    "rsqrt": (inline(lambda x: ONE / square_root(x)), 0),
    "sigmoid": (maths.sigmoid, 0),
    "sign": (_sign, 0),
    "silu": (_silu, 0),
    "softplus": (maths.softplus, 0),
    "softsign": (_softsign, 0),
    "sqrt": (square_root, 0),
    "square": (inline(lambda x: x * x), 0),
    "tanh": (maths.tanh, 0),
    "trunc": (rounding("trunc"), 0),
}
"""float32 to float32: expression and number of parameters."""

LIBM: dict[str, str] = {
    "acos": "acosf",
    "acosh": "acoshf",
    "asin": "asinf",
    "asinh": "asinhf",
    "atan": "atanf",
    "atanh": "atanhf",
    "cbrt": "cbrtf",
    "cos": "cosf",
    "cosh": "coshf",
    "log10": "log10f",
    "log2": "log2f",
    "sin": "sinf",
    "sinh": "sinhf",
    "tan": "tanf",
}
"""float32 to float32 by a call of libm for every element: correct, not fast."""

BINARY: dict[str, Callable] = {
    "add": inline(lambda x, y: x + y),
    "divide": inline(lambda x, y: x / y),
    "gelu_gradient": _gelu_gradient,
    "maximum": _maximum,
    "minimum": _minimum,
    "multiply": inline(lambda x, y: x * y),
    "prelu": _prelu,
    "subtract": inline(lambda x, y: x - y),
}
"""float32, float32 to float32."""

LIBM_BINARY: dict[str, Callable] = {"mod": _mod, "power": _power}
"""The same, with a call of libm for every element."""

COMPARISON: dict[str, Callable] = {
    "equal": inline(lambda x, y: x == y),
    "greater": inline(lambda x, y: x > y),
    "greater_equal": inline(lambda x, y: x >= y),
    "less": inline(lambda x, y: x < y),
    "less_equal": inline(lambda x, y: x <= y),
    "not_equal": inline(lambda x, y: x != y),
}
"""float32, float32 to bool; of the rarer types, too (`wide.py`)."""

LOGICAL: dict[str, Callable] = {
    "logical_and": inline(lambda x, y: (x != NO) & (y != NO)),
    "logical_or": inline(lambda x, y: (x != NO) | (y != NO)),
    "logical_xor": inline(lambda x, y: (x != NO) ^ (y != NO)),
}
"""bool, bool to bool."""

_identity = UNARY["identity"][0]
_not = inline(lambda x: x == NO)
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


def _add(
    name: str, expression: Callable, inputs: str, output: str, parameters: int = 0, loops: str = "full"
) -> None:
    kinds = tuple(inputs.split())
    bound = with_floats(expression, len(kinds), parameters)
    register(
        KernelRecord(
            name=name,
            function=strided_function(bound, tuple(ELEMENTS[k] for k in kinds), ELEMENTS[output], loops),
            doc=f"Elementwise {name}: ({', '.join(kinds)}) -> {output}, on the strided convention.",
            expression=expression,
            inputs=kinds,
            output=output,
            parameters=parameters,
            loops=loops,
        )
    )


for _name, (_expression, _parameters) in UNARY.items():
    _add(_name, _expression, "f32", "f32", _parameters)
for _name, _function in LIBM.items():
    _add(_name, libm(_function), "f32", "f32", loops="strided")
for _name, _expression in LIBM_BINARY.items():
    _add(_name, _expression, "f32 f32", "f32", loops="strided")
for _name, _expression in BINARY.items():
    _add(_name, _expression, "f32 f32", "f32")
for _name, _expression in COMPARISON.items():
    _add(_name, _expression, "f32 f32", "bool")
for _name, _expression in LOGICAL.items():
    _add(_name, _expression, "bool bool", "bool")
_add("logical_not", _not, "bool", "bool")
_add("select", _choose, "bool f32 f32", "f32")
for _bytes, _element in ((1, "i8"), (2, "i16"), (4, "i32"), (8, "i64")):
    _add(f"copy_{_bytes}", _identity, _element, _element, loops="moving" if _bytes == 4 else "full")
for _bytes, _element in ((1, "i8"), (2, "i16"), (4, "f32"), (8, "i64")):
    _add(f"fill_{_bytes}", _identity, "", _element, 1)
for _from in CONVERTED:
    for _to in CONVERTED:
        if _from != _to:
            _expression = _is_true if _to == "bool" else _identity
            _add(f"convert_{_from}_{_to}", _expression, _from, _to, loops="contiguous")
for _element, _bounds in (("u8", (0, 255)), ("i8", (-128, 127))):
    _add(f"quantize_{_element}", _quantized(*_bounds), "f32", _element, 2, loops="contiguous")
    _add(f"dequantize_{_element}", _dequantized, _element, "f32", 2, loops="contiguous")
_add("convert_f32_bf16", round_bf16, "f32", "bf16", loops="contiguous")
_add("convert_bf16_f32", widen_bf16, "bf16", "f32", loops="contiguous")
