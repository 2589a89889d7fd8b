"""Elementwise kernels of the rarer element types, on the strided convention (`strided.py`), plain scalar loops.

Arithmetic is done in float64 and in int64; the lowering converts other integers to int64 and back, which wraps as
arithmetic in their own type would. A kernel takes every op of its kind: `WIDE_CODES` numbers them. The number of a
unary op is the float `code`, its parameter the float `parameter`; that of an op of two operands is the first tensor, an
int64 that is broadcast. `select_<bytes>` chooses among elements of any type, bool is a byte of 0 or 1, a float16 its
bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ngraph_mxnet.ops.elementwise import SCALARS
from ngraph_mxnet.targets.cpu.kernels.elementwise import module_of
from ngraph_mxnet.targets.cpu.kernels.pointers import emits, inline, select
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.kernels.strided import ternary_kernel, unary_kernel
from ngraph_mxnet.targets.cpu.params.record import KERNELS
from ngraph_mxnet.targets.cpu.params.strided import WIDE_CODES

__all__ = ["among", "maths_f64", "maths_i64", "narrow_f16", "widen_f16"]

F = np.float64
ZERO, ONE = F(0), F(1)
NONE = np.int64(0)

# ---- float64 ---------------------------------------------------------------------------------------------


def _double(name: str, arity: int = 1) -> Callable:
    """A float64 function known to LLVM (`llvm.*`) or to libm."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.DoubleType(), [ir.DoubleType()] * arity)
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        function.attributes.add("nounwind")
        return builder.call(function, arguments)

    if arity == 1:
        return intrinsic(lambda typingctx, x: (types.float64(types.float64), generate))
    return intrinsic(lambda typingctx, x, y: (types.float64(types.float64, types.float64), generate))


_absolute, _square_root = _double("llvm.fabs.f64"), _double("llvm.sqrt.f64")
_exp, _expm1, _log, _erf = _double("exp"), _double("expm1"), _double("log"), _double("erf")
_TWO_OVER_ROOT_PI = F(2 / np.sqrt(np.pi))


@inline
def _erfinv(x):
    """Giles' approximation in single precision, then two steps of Newton's method on erf(y) = x."""
    w = -_log((ONE - x) * (ONE + x))
    small = w < F(5)
    w = select(small, w - F(2.5), _square_root(w) - F(3))
    a = select(small, F(2.81022636e-08), F(-0.000200214257))
    a = select(small, F(3.43273939e-07), F(0.000100950558)) + a * w
    a = select(small, F(-3.5233877e-06), F(0.00134934322)) + a * w
    a = select(small, F(-4.39150654e-06), F(-0.00367342844)) + a * w
    a = select(small, F(0.00021858087), F(0.00573950773)) + a * w
    a = select(small, F(-0.00125372503), F(-0.0076224613)) + a * w
    a = select(small, F(-0.00417768164), F(0.00943887047)) + a * w
    a = select(small, F(0.246640727), F(1.00167406)) + a * w
    a = select(small, F(1.50140941), F(2.83297682)) + a * w
    y = a * x
    y = y - (_erf(y) - x) / (_TWO_OVER_ROOT_PI * _exp(-y * y))
    y = y - (_erf(y) - x) / (_TWO_OVER_ROOT_PI * _exp(-y * y))
    edge = select(_absolute(x) == ONE, x * F(np.inf), F(np.nan))
    return select(_absolute(x) < ONE, y, edge)


maths_f64 = module_of(F, {
    "fabs": _absolute, "sqrt": _square_root, "ceil": _double("llvm.ceil.f64"), "floor": _double("llvm.floor.f64"),
    "exp": _exp, "expm1": _expm1, "log": _log, "erf": _erf, "erfinv": _erfinv,
    "fmod": _double("fmod", 2), "copysign": _double("copysign", 2),
    "elu": inline(lambda x, alpha: x if x > ZERO else alpha * _expm1(x)),  # a call of libm only where it is wanted
}, _double)

# ---- int64 -----------------------------------------------------------------------------------------------


@inline
def _quotient(x, y):
    """Truncates towards 0; x / 0 is 0, and the least / -1 wraps to itself."""
    if y == NONE:
        return NONE
    if y == np.int64(-1):
        return NONE - x
    return _divided(x, y)


@emits(lambda x, y: types.int64(types.int64, types.int64))
def _divided(builder, x, y):
    """C's division of int64, by neither 0 nor -1."""
    return builder.sdiv(x, y)


@inline
def _modulus(x, y):
    """The remainder with the divisor's sign; x mod 0 is 0."""
    rest = x - _quotient(x, y) * y
    moved = select((rest != NONE) & ((rest < NONE) != (y < NONE)), rest + y, rest)
    return select(y == NONE, NONE, moved)


@emits(lambda x, y: types.int64(types.int64, types.int64))
def _divided_unsigned(builder, x, y):
    """The same, of the bits as uint64."""
    return builder.udiv(x, y)


@inline
def _quotient_unsigned(x, y):
    if y == NONE:
        return NONE
    return _divided_unsigned(x, y)


@inline
def _modulus_unsigned(x, y):
    return select(y == NONE, NONE, x - _quotient_unsigned(x, y) * y)


@inline
def _integer_power(x, y):
    """By squaring; of negative exponents 1 / x^-y, truncated, and 0 of 0."""
    if y < NONE:
        odd = select((y & np.int64(1)) != NONE, x, np.int64(1))
        return select((x == np.int64(1)) | (x == np.int64(-1)), odd, NONE)
    result = np.int64(1)
    while y != NONE:
        if y & np.int64(1):
            result *= x
        x *= x
        y >>= np.int64(1)
    return result


maths_i64 = module_of(np.int64, {
    "fabs": inline(lambda x: select(x < NONE, NONE - x, x)),
    "divide": _quotient, "divide_unsigned": _quotient_unsigned, "mod": _modulus, "mod_unsigned": _modulus_unsigned,
    "pow": _integer_power,
}, _double)
"""Sums, differences and products wrap. The functions called unsigned take the bits as uint64."""

# ---- float16 ---------------------------------------------------------------------------------------------


@intrinsic
def _bits(typingctx, x):
    """A float32's bits as uint32, and back."""
    result = types.uint32 if x == types.float32 else types.float32

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(result))

    return result(x), generate


U = np.uint32
_SCALE = np.float32(2.0**112)
_SMALLEST_NORMAL, _TOO_LARGE, _INFINITY, _HALF_BITS = U(0x38800000), U(0x47800000), U(0x7F800000), U(0x3F000000)


@inline
def widen_f16(h):
    """The bits of float16 to float32, exactly: the exponent is corrected by a product, subnormals' too."""
    value = _bits(types.uint32((h & U(0x7FFF)) << U(13))) * _SCALE
    bits = _bits(value)
    bits = select(value >= np.float32(65536), types.uint32(bits | _INFINITY), bits)
    return _bits(types.uint32(bits | ((types.uint32(h) & U(0x8000)) << U(16))))


@inline
def narrow_f16(x):
    """float32 to the bits of float16: to nearest, ties to even. In integers, so that every CPU rounds alike.

    A subnormal result gets its rounding from the sum with 0.5, whose last bit has the value of its own.
    """
    bits = _bits(x)
    size = types.uint32(bits & U(0x7FFFFFFF))
    odd = types.uint32((size >> U(13)) & U(1))
    normal = types.uint32((size - U(0x38000000) + U(0xFFF) + odd) >> U(13))
    subnormal = types.uint32(_bits(_bits(size) + np.float32(0.5)) - _HALF_BITS)
    special = select(size > _INFINITY, U(0x7E00), U(0x7C00))
    small = select(size < _SMALLEST_NORMAL, subnormal, normal)
    return types.uint16(select(size >= _TOO_LARGE, special, small) | ((bits >> U(16)) & U(0x8000)))


# ---- the kernels -----------------------------------------------------------------------------------------


def among(expressions: Sequence[Callable], first: int = 0) -> Callable:
    """`(code, x, y)` to the result of the expression of this number; a tree of comparisons, so few are made."""
    if len(expressions) == 1:
        (only,) = expressions
        return inline(lambda code, x, y: only(x, y))
    half = len(expressions) // 2
    middle = first + half
    lower, upper = among(expressions[:half], first), among(expressions[half:], middle)

    @inline
    def choose(code, x, y):
        if code < middle:
            return lower(code, x, y)
        return upper(code, x, y)

    return choose


def _register(name: str, loops: Callable, doc: str) -> None:
    body = inline(loops)

    def call(tensors, ints, floats, begin, end):
        body(tensors, ints, floats, begin, end)

    call.__doc__ = f"{doc}, on the strided convention."
    kernel(name)(call)


def _unary(kind: str, of: ModuleType, element: types.Type) -> None:
    choose = among([_with_parameter(getattr(of, name), len(SCALARS[name].schema)) for name in WIDE_CODES[kind]])
    code, parameter = map(KERNELS[kind].floats.index, ("code", "parameter"))
    expression = inline(lambda x, floats: choose(types.int64(floats[code]), x, floats[parameter]))
    _register(kind, unary_kernel(expression, element, element, "strided"), f"({element}) -> {element}")


def _with_parameter(expression: Callable, count: int) -> Callable:
    return expression if count else inline(lambda x, parameter: expression(x))


def _binary(kind: str, of: ModuleType, element: types.Type, out: types.Type) -> None:
    choose = among([getattr(of, name) for name in WIDE_CODES[kind]])
    loops = ternary_kernel(choose, (types.int64, element, element), out)
    _register(kind, loops, f"(op's number, {element}, {element}) -> {out}")


for _kind, _of, _element in (("f64", maths_f64, types.float64), ("i64", maths_i64, types.int64)):
    _unary(f"unary_{_kind}", _of, _element)
    _binary(f"binary_{_kind}", _of, _element, _element)
    _binary(f"compare_{_kind}", _of, _element, types.uint8)

for _bytes, _element in ((1, types.int8), (2, types.int16), (4, types.int32), (8, types.int64)):
    _choose = inline(lambda condition, x, y: select(condition != np.uint8(0), x, y))
    _register(f"select_{_bytes}", ternary_kernel(_choose, (types.uint8, _element, _element), _element),
              f"(bool, two elements of {_bytes} bytes) -> one of these")

_NUMBA = {"i16": types.int16, "u16": types.uint16, "u32": types.uint32, "i64": types.int64, "u64": types.uint64,
          "f32": types.float32, "f64": types.float64}
_widened = inline(lambda x, floats: widen_f16(x))
_narrowed = inline(lambda x, floats: narrow_f16(x))
_register("convert_f16_f32", unary_kernel(_widened, types.uint16, types.float32, "contiguous"), "f16 to f32")
_register("convert_f32_f16", unary_kernel(_narrowed, types.float32, types.uint16, "contiguous"), "f32 to f16")

# int64 has the bits of uint64, and int16 those of uint16: the lowering needs no kernels between them.
_same = inline(lambda x, floats: x)
for _from, _to in (("i16", "i64"), ("u16", "i64"), ("u32", "i64"), ("i64", "i16"), ("u64", "f64"), ("u64", "f32"),
                   ("f64", "u64")):
    _register(f"convert_{_from}_{_to}", unary_kernel(_same, _NUMBA[_from], _NUMBA[_to], "strided"), f"{_from} to {_to}")
