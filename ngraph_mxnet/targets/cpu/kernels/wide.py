"""Elementwise kernels of the rarer element types, on the strided convention (`strided.py`), plain scalar loops.

Arithmetic is done in float64 and in int64; the lowering converts other integers to int64 and back, which wraps as
arithmetic in their own type would. A kernel takes every op of its kind: `WIDE_CODES` numbers them. The number of a
unary op is the float `code`, its parameter the float `parameter`; that of an op of two operands is the first tensor, an
int64 that is broadcast. `select_<bytes>` chooses among elements of any type, bool is a byte of 0 or 1, a float16 its
bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ngraph_mxnet.targets.cpu.kernels.elementwise import COMPARISON
from ngraph_mxnet.targets.cpu.kernels.pointers import inline, select
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.kernels.strided import ternary_kernel, unary_kernel
from ngraph_mxnet.targets.cpu.params.record import KERNELS
from ngraph_mxnet.targets.cpu.params.strided import WIDE_CODES

__all__ = ["BINARY_F64", "BINARY_I64", "UNARY_F64", "UNARY_I64", "narrow_f16", "widen_f16"]

F = np.float64
ZERO, HALF, ONE = F(0), F(0.5), F(1)
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


_absolute, _floor, _ceiling = _double("llvm.fabs.f64"), _double("llvm.floor.f64"), _double("llvm.ceil.f64")
_square_root, _copy_sign = _double("llvm.sqrt.f64"), _double("copysign", 2)
_exp, _expm1, _log1p, _erf = _double("exp"), _double("expm1"), _double("log1p"), _double("erf")
_log_gamma, _true_gamma, _log, _modulo = _double("lgamma"), _double("tgamma"), _double("log"), _double("fmod", 2)

_SQRT_HALF, _TWO_OVER_ROOT_PI, _DENSITY = F(np.sqrt(0.5)), F(2 / np.sqrt(np.pi)), F(1 / np.sqrt(2 * np.pi))


@inline
def _sign(x, p):
    return select(x > ZERO, ONE, select(x < ZERO, -ONE, x))


@inline
def _softplus(x, p):
    return select(x > ZERO, x, select(x == x, ZERO, x)) + _log1p(_exp(-_absolute(x)))


@inline
def _erfinv(x, p):
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


def _libm(name: str) -> Callable:
    function = _double(name)
    return inline(lambda x, p: function(x))


UNARY_F64: dict[str, Callable] = {
    "abs": inline(lambda x, p: _absolute(x)),
    "acos": _libm("acos"),
    "acosh": _libm("acosh"),
    "asin": _libm("asin"),
    "asinh": _libm("asinh"),
    "atan": _libm("atan"),
    "atanh": _libm("atanh"),
    "cbrt": _libm("cbrt"),
    "ceiling": inline(lambda x, p: _ceiling(x)),
    "cos": _libm("cos"),
    "cosh": _libm("cosh"),
    "elu": inline(lambda x, p: x if x > ZERO else p * _expm1(x)),
    "erf": inline(lambda x, p: _erf(x)),
    "erfinv": _erfinv,
    "exp": inline(lambda x, p: _exp(x)),
    "expm1": inline(lambda x, p: _expm1(x)),
    "floor": inline(lambda x, p: _floor(x)),
    "gamma": inline(lambda x, p: _true_gamma(x)),
    "gelu": inline(lambda x, p: HALF * x * (ONE + _erf(x * _SQRT_HALF))),
    "leaky_relu": inline(lambda x, p: select(x > ZERO, x, x * p)),
    "lgamma": inline(lambda x, p: _log_gamma(x)),
    "log": inline(lambda x, p: _log(x)),
    "log10": _libm("log10"),
    "log1p": inline(lambda x, p: _log1p(x)),
    "log2": _libm("log2"),
    "negative": inline(lambda x, p: -x),
    "reciprocal": inline(lambda x, p: ONE / x),
    "relu": inline(lambda x, p: select(x < ZERO, ZERO, x)),
    "round": _libm("nearbyint"),
    "rsqrt": inline(lambda x, p: ONE / _square_root(x)),
    "sigmoid": inline(lambda x, p: ONE / (ONE + _exp(-x))),
    "sign": _sign,
    "silu": inline(lambda x, p: x / (ONE + _exp(-x))),
    "sin": _libm("sin"),
    "sinh": _libm("sinh"),
    "softplus": _softplus,
    "softsign": inline(lambda x, p: x / (ONE + _absolute(x))),
    "sqrt": inline(lambda x, p: _square_root(x)),
    "square": inline(lambda x, p: x * x),
    "tan": _libm("tan"),
    "tanh": _libm("tanh"),
    "trunc": _libm("trunc"),
}
"""float64, parameter to float64."""


@inline
def _mod(x, y):
    """The remainder with the divisor's sign; a zero has it too. x mod 0 is 0."""
    rest = _modulo(x, y)
    moved = select((rest < ZERO) != (y < ZERO), rest + y, rest)
    return select((rest == ZERO) | (y == ZERO), _copy_sign(ZERO, y), moved)


@inline
def _gelu_gradient(x, head):
    density = _exp(x * x * -HALF) * _DENSITY
    return head * (HALF * (ONE + _erf(x * _SQRT_HALF)) + x * density)


BINARY_F64: dict[str, Callable] = {
    "add": inline(lambda x, y: x + y),
    "atan2": _double("atan2", 2),
    "divide": inline(lambda x, y: x / y),
    "gelu_gradient": _gelu_gradient,
    "maximum": inline(lambda x, y: select((x > y) | (x != x), x, y)),
    "minimum": inline(lambda x, y: select((x < y) | (x != x), x, y)),
    "mod": _mod,
    "multiply": inline(lambda x, y: x * y),
    "power": _double("pow", 2),
    "prelu": inline(lambda x, y: select(x > ZERO, x, x * y)),
    "subtract": inline(lambda x, y: x - y),
}
"""float64, float64 to float64."""

# ---- int64 -----------------------------------------------------------------------------------------------


@inline
def _quotient(x, y):
    """Truncates towards 0; x / 0 is 0, and the least / -1 wraps to itself."""
    if y == NONE:
        return NONE
    if y == np.int64(-1):
        return NONE - x
    return _divided(x, y)


@intrinsic
def _divided(typingctx, x, y):
    """C's division of int64, by neither 0 nor -1."""

    def generate(context, builder, signature, arguments):
        return builder.sdiv(*arguments)

    return types.int64(types.int64, types.int64), generate


@inline
def _modulus(x, y):
    """The remainder with the divisor's sign; x mod 0 is 0."""
    rest = x - _quotient(x, y) * y
    moved = select((rest != NONE) & ((rest < NONE) != (y < NONE)), rest + y, rest)
    return select(y == NONE, NONE, moved)


@intrinsic
def _divided_unsigned(typingctx, x, y):
    """The same, of the bits as uint64."""

    def generate(context, builder, signature, arguments):
        return builder.udiv(*arguments)

    return types.int64(types.int64, types.int64), generate


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


UNARY_I64: dict[str, Callable] = {
    "abs": inline(lambda x, p: select(x < NONE, NONE - x, x)),
    "bitwise_not": inline(lambda x, p: ~x),
    "negative": inline(lambda x, p: NONE - x),
    "relu": inline(lambda x, p: select(x < NONE, NONE, x)),
    "sign": inline(lambda x, p: select(x > NONE, np.int64(1), select(x < NONE, np.int64(-1), NONE))),
    "square": inline(lambda x, p: x * x),
}
"""int64 to int64; the parameter is not read."""

BINARY_I64: dict[str, Callable] = {
    "add": inline(lambda x, y: x + y),
    "bitwise_and": inline(lambda x, y: x & y),
    "bitwise_or": inline(lambda x, y: x | y),
    "bitwise_xor": inline(lambda x, y: x ^ y),
    "divide": _quotient,
    "divide_unsigned": _quotient_unsigned,
    "maximum": inline(lambda x, y: select(x > y, x, y)),
    "minimum": inline(lambda x, y: select(x < y, x, y)),
    "mod": _modulus,
    "mod_unsigned": _modulus_unsigned,
    "multiply": inline(lambda x, y: x * y),
    "power": _integer_power,
    "subtract": inline(lambda x, y: x - y),
}
"""int64, int64 to int64; sums, differences and products wrap. Those called unsigned take the bits as uint64."""

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


def _choice(kind: str, table: Mapping[str, Callable]) -> Callable:
    """`(code, x, y)` to the op's result; LLVM makes one jump of all the comparisons."""
    names = WIDE_CODES[kind]
    assert set(names) == set(table)
    return _among([table[name] for name in names], 0)


def _among(expressions: Sequence[Callable], first: int) -> Callable:
    """The choice among those numbered from `first` on; a tree, as Numba compiles the callees inside the caller."""
    if len(expressions) == 1:
        (only,) = expressions
        return inline(lambda code, x, y: only(x, y))
    half = len(expressions) // 2
    middle = first + half
    lower, upper = _among(expressions[:half], first), _among(expressions[half:], middle)

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


def _unary(kind: str, table: Mapping[str, Callable], element: types.Type) -> None:
    choose = _choice(kind, table)
    code, parameter = map(KERNELS[kind].floats.index, ("code", "parameter"))
    expression = inline(lambda x, floats: choose(types.int64(floats[code]), x, floats[parameter]))
    _register(kind, unary_kernel(expression, element, element, "strided"), f"({element}) -> {element}")


def _binary(kind: str, table: Mapping[str, Callable], element: types.Type, out: types.Type) -> None:
    choose = _choice(kind, table)
    loops = ternary_kernel(choose, (types.int64, element, element), out)
    _register(kind, loops, f"(op's number, {element}, {element}) -> {out}")


_unary("unary_f64", UNARY_F64, types.float64)
_unary("unary_i64", UNARY_I64, types.int64)
_binary("binary_f64", BINARY_F64, types.float64, types.float64)
_binary("binary_i64", BINARY_I64, types.int64, types.int64)
_binary("compare_f64", COMPARISON, types.float64, types.uint8)
_binary("compare_i64", COMPARISON, types.int64, types.uint8)

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
