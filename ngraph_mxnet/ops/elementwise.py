"""Elementwise ops: of one operand, of whose shape the result is, and of several, broadcast as in NumPy.

Unless said, the result is of the operands' element type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from ngraph_mxnet.ir.opdef import (
    DIVIDE,
    FINITE,
    ORDINAL,
    RATIO,
    ROUNDS,
    SIMPLE,
    TOLERANT,
    TRANSCENDENTAL,
    Attrs,
    FactsOf,
    Reference,
    TypeRule,
    by_result,
    register_op,
)
from ngraph_mxnet.ir.types import Element, Float, TensorType, boolean
from ngraph_mxnet.ops.common import (
    ANY,
    BOOL,
    CLAMP,
    FLOAT,
    INTEGER,
    NUMBER,
    Types,
    broadcast_shape,
    clamp_array,
    common_element,
    declare,
    in_f32,
    require_clamp,
    require_domain,
    same_type,
)

Function = Callable[..., np.ndarray]


def erf(x: np.ndarray) -> np.ndarray:
    """The error function, in f64."""
    return np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64))


_normal_quantile = np.vectorize(NormalDist().inv_cdf, otypes=[np.float64])


def _erfinv(x: np.ndarray) -> np.ndarray:
    """From the quantiles of the normal distribution, two steps of Newton's method on erf(y) = x, in f64."""
    wide = x.astype(np.float64)
    inside = np.abs(wide) < 1
    y = _normal_quantile(np.clip((np.where(inside, wide, 0.0) + 1) / 2, 1e-300, 1 - 2.0**-53)) / math.sqrt(2)
    for _ in range(2):
        y = y - (erf(y) - np.where(inside, wide, 0.0)) * math.sqrt(math.pi) / 2 * np.exp(y * y)
    return np.where(inside, y, np.where(np.abs(wide) == 1, wide * np.inf, np.nan))


def _by_element(function: Callable[[float], float], at_pole: float) -> Function:
    def safe(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.copysign(math.inf, x) if x == 0 and at_pole != math.inf else at_pole

    return np.vectorize(safe, otypes=[np.float64])


_gamma, _lgamma = _by_element(math.gamma, math.nan), _by_element(math.lgamma, math.inf)


def _rounding(function: Function) -> Function:
    """Integers are whole already (NumPy would turn them to floats)."""
    return lambda x: function(x) if x.dtype.kind == "f" else x


def _softsign(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.abs(x))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + erf(x / math.sqrt(2)))


def _silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


# name: (domain, facts, formula, function)
UNARY: dict[str, tuple[str, FactsOf, str, Function]] = {
    "abs": (NUMBER, SIMPLE | FINITE, "|x|", np.abs),
    "acos": (FLOAT, TRANSCENDENTAL, "arc cosine; NaN outside [-1, 1]", np.arccos),
    "acosh": (FLOAT, TRANSCENDENTAL, "inverse hyperbolic cosine; NaN below 1", np.arccosh),
    "asin": (FLOAT, TRANSCENDENTAL, "arc sine; NaN outside [-1, 1]", np.arcsin),
    "asinh": (FLOAT, TRANSCENDENTAL, "inverse hyperbolic sine", np.arcsinh),
    "atan": (FLOAT, TRANSCENDENTAL, "arc tangent", np.arctan),
    "atanh": (FLOAT, TRANSCENDENTAL, "inverse hyperbolic tangent; NaN outside [-1, 1]", np.arctanh),
    "cbrt": (FLOAT, TRANSCENDENTAL, "cube root, negative for negative x", np.cbrt),
    "ceiling": (NUMBER, SIMPLE | FINITE | ROUNDS, "the least whole number not below x", _rounding(np.ceil)),
    "cos": (FLOAT, TRANSCENDENTAL, "cosine", np.cos),
    "cosh": (FLOAT, TRANSCENDENTAL, "hyperbolic cosine", np.cosh),
    "erf": (FLOAT, TRANSCENDENTAL, "2/sqrt(pi) times the integral of exp(-t^2) from 0 to x", erf),
    "erfinv": (FLOAT, TRANSCENDENTAL, "the y with erf(y) = x; infinite at -1 and 1, NaN outside", _erfinv),
    "exp": (FLOAT, TRANSCENDENTAL, "e^x", np.exp),
    "expm1": (FLOAT, TRANSCENDENTAL, "e^x - 1, exact near 0", np.expm1),
    "floor": (NUMBER, SIMPLE | FINITE | ROUNDS, "the greatest whole number not above x", _rounding(np.floor)),
    "gamma": (FLOAT, TRANSCENDENTAL, "the gamma function; infinite at 0, NaN at negative whole numbers", _gamma),
    "gelu": (FLOAT, {"work": by_result(transcendental=1, simple=3)}, "x/2 (1 + erf(x / sqrt(2)))", _gelu),
    "lgamma": (FLOAT, TRANSCENDENTAL, "log |gamma(x)|; infinite at 0 and negative whole numbers", _lgamma),
    "log": (FLOAT, TRANSCENDENTAL, "natural logarithm; -inf at 0, NaN below", np.log),
    "log10": (FLOAT, TRANSCENDENTAL, "logarithm to base 10", np.log10),
    "log1p": (FLOAT, TRANSCENDENTAL, "log(1 + x), exact near 0", np.log1p),
    "log2": (FLOAT, TRANSCENDENTAL, "logarithm to base 2", np.log2),
    "negative": (NUMBER, SIMPLE | FINITE, "-x; unsigned integers wrap", np.negative),
    "reciprocal": (FLOAT, DIVIDE, "1/x", lambda x: 1 / x),
    "relu": (NUMBER, SIMPLE | FINITE | TOLERANT, "max(x, 0); NaN stays NaN", lambda x: np.maximum(x, x.dtype.type(0))),
    "round": (NUMBER, SIMPLE | FINITE | ROUNDS, "the nearest whole number, halves to the even one", _rounding(np.rint)),
    "rsqrt": (FLOAT, DIVIDE, "1/sqrt(x)", lambda x: 1 / np.sqrt(x)),
    "sigmoid": (FLOAT, TRANSCENDENTAL | FINITE, "1/(1 + e^-x)", _sigmoid),
    "sign": (NUMBER, SIMPLE | FINITE, "-1, 0 or 1; NaN stays NaN", np.sign),
    "silu": (FLOAT, {"work": by_result(transcendental=1, simple=1)} | FINITE, "x/(1 + e^-x)", _silu),
    "sin": (FLOAT, TRANSCENDENTAL, "sine", np.sin),
    "sinh": (FLOAT, TRANSCENDENTAL, "hyperbolic sine", np.sinh),
    "softplus": (FLOAT, TRANSCENDENTAL, "log(1 + e^x), without overflow", lambda x: np.logaddexp(x, x.dtype.type(0))),
    "softsign": (FLOAT, RATIO | FINITE, "x/(1 + |x|)", _softsign),
    "sqrt": (FLOAT, DIVIDE | FINITE, "square root; NaN below 0", np.sqrt),
    "square": (NUMBER, SIMPLE | FINITE, "x^2; integers wrap", np.square),
    "tan": (FLOAT, TRANSCENDENTAL, "tangent", np.tan),
    "tanh": (FLOAT, TRANSCENDENTAL | FINITE, "hyperbolic tangent", np.tanh),
    "trunc": (NUMBER, SIMPLE | ROUNDS, "the whole part of x", _rounding(np.trunc)),
}


def _unary_reference(function: Function) -> Reference:
    # The cast matters for rank 0, where NumPy 1 gives f32 op Python float -> f64.
    return in_f32(lambda inputs, attrs: np.asarray(function(inputs[0])).astype(inputs[0].dtype, copy=False))


for _name, (_domain, _facts, _doc, _function) in UNARY.items():
    declare(_name, _doc, same_type(_domain), _unary_reference(_function), kind="arithmetic", **_facts)

declare("identity", "x", same_type(ANY), lambda inputs, attrs: inputs[0],
        kind="copy", work=by_result(move=1), selects=True, same_bytes=True)
declare("bitwise_not", "every bit of x inverted", same_type(INTEGER), lambda inputs, attrs: np.invert(inputs[0]),
        kind="arithmetic", **SIMPLE)
declare("logical_not", "not x; bool", same_type(BOOL), lambda inputs, attrs: np.logical_not(inputs[0]),
        kind="logical", **SIMPLE)


@register_op("clamp", operands=1, attrs={"lower": Float(), "upper": Float()}, kind="arithmetic",
             work=by_result(simple=2), ordinal=True, keeps_finite=True, tolerant=True)
def clamp(types, attrs):
    """min(max(x, lower), upper); NaN stays NaN. For integers the bounds are rounded inwards and saturate."""
    require_domain(types, NUMBER)
    require_clamp(attrs)
    return types[0]


@clamp.reference
@in_f32
def _(inputs, attrs):
    return clamp_array(inputs[0], attrs["lower"], attrs["upper"])


assert list(clamp.schema) == list(CLAMP)  # fused ops have the same bounds, with defaults


@register_op("leaky_relu", operands=1, attrs={"slope": Float(0.25)}, kind="arithmetic",
             work=by_result(simple=2), keeps_finite=True)
def leaky_relu(types, attrs):
    """x where x > 0, else slope * x. The default is MXNet's."""
    return same_type(FLOAT)(types, attrs)


@leaky_relu.reference
@in_f32
def _(inputs, attrs):
    (x,) = inputs
    return np.where(x > 0, x, x * x.dtype.type(attrs["slope"]))


@register_op("elu", operands=1, attrs={"alpha": Float(1.0)}, kind="arithmetic",
             work=by_result(transcendental=1, simple=2), keeps_finite=True)
def elu(types, attrs):
    """x where x > 0, else alpha * (e^x - 1)."""
    return same_type(FLOAT)(types, attrs)


@elu.reference
@in_f32
def _(inputs, attrs):
    (x,) = inputs
    return np.where(x > 0, x, x.dtype.type(attrs["alpha"]) * np.expm1(x))


@register_op("hard_swish", operands=1,
             attrs={"slope": Float(1 / 6), "offset": Float(0.5), "scale": Float(1.0), "shift": Float(0.0)},
             kind="arithmetic", work=by_result(simple=4), keeps_finite=True)
def hard_swish(types, attrs):
    """x * min(max(x * slope + offset, 0), 1) * scale + shift; the defaults are those of MobileNet v3."""
    return same_type(FLOAT)(types, attrs)


@hard_swish.reference
@in_f32
def _(inputs, attrs):
    (x,) = inputs
    slope, offset, scale, shift = (x.dtype.type(attrs[name]) for name in ("slope", "offset", "scale", "shift"))
    return x * clamp_array(x * slope + offset, 0.0, 1.0) * scale + shift


@register_op("convert", operands=1, attrs={"element": Element()}, kind="copy", work=by_result(move=1))
def convert(types, attrs):
    """x as element type `element`: floats truncate to integers, non-zero is true.

    A float outside the integer's range, NaN included, gives an unspecified value.
    """
    return TensorType(attrs["element"], types[0].shape)


@convert.reference
def _(inputs, attrs):
    with np.errstate(all="ignore"):
        return inputs[0].astype(attrs["element"].numpy)


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return a / b
    # In Python's integers: the magnitude of a type's least number does not fit the type. That number / -1 wraps.
    mask = (1 << 8 * a.dtype.itemsize) - 1

    def quotient(x: int, y: int) -> int:
        return (0 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)) & mask

    exact = np.asarray(np.frompyfunc(quotient, 2, 1)(a.astype(object), b.astype(object)))
    return exact.astype(f"u{a.dtype.itemsize}").view(a.dtype)


def _mod(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(b == 0, a.dtype.type(0), np.mod(a, b))


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return np.power(a, b)
    zero, one = a.dtype.type(0), a.dtype.type(1)  # with Python's numbers, NumPy 1 turns arrays of rank 0 into int64
    inverse = np.where(np.abs(a) == one, np.where(b & one, a, one), zero)
    return np.where(b < zero, inverse, np.power(a, np.maximum(b, zero)))


def _gelu_gradient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    density = np.exp(a * a * -0.5) * (1 / math.sqrt(2 * math.pi))
    found = b * ((1 + erf(a * math.sqrt(0.5))) * 0.5 + a * density)
    return np.asarray(found).astype(a.dtype, copy=False)


def _prelu(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(a > 0, a, a * b)


# name: (domain, commutative, facts, formula, function); T[A], T[B] -> T[broadcast(A, B)]
ARITHMETIC: dict[str, tuple[str, bool, FactsOf, str, Function]] = {
    "add": (NUMBER, True, SIMPLE | FINITE | TOLERANT, "a + b; integers wrap", np.add),
    "subtract": (NUMBER, False, SIMPLE | FINITE, "a - b; integers wrap", np.subtract),
    "multiply": (NUMBER, True, SIMPLE | FINITE, "a * b; integers wrap", np.multiply),
    "divide": (NUMBER, False, DIVIDE, "a / b; integers truncate towards 0, and x / 0 is 0", _divide),
    "power": (NUMBER, False, TRANSCENDENTAL,
              "a to the power b; integers wrap, 1 / a^-b is truncated, and 1 / 0 is 0", _power),
    "maximum": (NUMBER, True, SIMPLE | FINITE | ORDINAL, "the greater; NaN if either is", np.maximum),
    "minimum": (NUMBER, True, SIMPLE | FINITE | ORDINAL, "the lesser; NaN if either is", np.minimum),
    "mod": (NUMBER, False, RATIO, "a - b floor(a / b): the sign follows b; a mod 0 is 0 (MXNet's)", _mod),
    "gelu_gradient": (FLOAT, False, {"work": by_result(transcendental=2, simple=8)},
                      "b times the derivative of gelu at a: (1 + erf(a / sqrt(2))) / 2 + a e^(-a^2 / 2) / sqrt(2 pi)",
                      _gelu_gradient),
    "prelu": (FLOAT, False, {"work": by_result(simple=2)} | FINITE, "a where a > 0, else a * b", _prelu),
    "atan2": (FLOAT, False, TRANSCENDENTAL, "the angle of the point (b, a), in (-pi, pi]", np.arctan2),
    "bitwise_and": (INTEGER, True, SIMPLE, "a & b", np.bitwise_and),
    "bitwise_or": (INTEGER, True, SIMPLE, "a | b", np.bitwise_or),
    "bitwise_xor": (INTEGER, True, SIMPLE, "a ^ b", np.bitwise_xor),
    "logical_and": (BOOL, True, SIMPLE, "a and b", np.logical_and),
    "logical_or": (BOOL, True, SIMPLE, "a or b", np.logical_or),
    "logical_xor": (BOOL, True, SIMPLE, "a or b, not both", np.logical_xor),
}

# name: (commutative, formula, function); T[A], T[B] -> bool[broadcast(A, B)]
COMPARISONS: dict[str, tuple[bool, str, Function]] = {
    "equal": (True, "a == b", np.equal),
    "not_equal": (True, "a != b", np.not_equal),
    "greater": (False, "a > b", np.greater),
    "greater_equal": (False, "a >= b", np.greater_equal),
    "less": (False, "a < b", np.less),
    "less_equal": (False, "a <= b", np.less_equal),
}


def _arithmetic_rule(domain: str) -> TypeRule:
    def rule(types: Types, attrs: Attrs) -> TensorType:
        require_domain(types, domain)
        return TensorType(common_element(types), broadcast_shape([t.shape for t in types]))

    return rule


def _comparison_rule(types: Types, attrs: Attrs) -> TensorType:
    require_domain(types, ANY)
    common_element(types)
    return TensorType(boolean, broadcast_shape([t.shape for t in types]))


def _reference(function: Function) -> Reference:
    return in_f32(lambda inputs, attrs: np.asarray(function(*inputs)))


for _name, (_domain, _commutative, _facts, _doc, _function) in ARITHMETIC.items():
    declare(_name, _doc, _arithmetic_rule(_domain), _reference(_function), operands=2, commutative=_commutative,
            kind="logical" if _domain == BOOL else "arithmetic", **_facts)

for _name, (_commutative, _doc, _function) in COMPARISONS.items():
    declare(_name, _doc, _comparison_rule, _reference(_function), operands=2, commutative=_commutative,
            kind="comparison", **SIMPLE | ORDINAL)


@register_op("select", operands=3, kind="choice", **SIMPLE)
def select(types, attrs):
    """bool[C], T[A], T[B] -> T[broadcast(C, A, B)]: a where the condition holds, else b."""
    require_domain(types[:1], BOOL)
    return TensorType(common_element(types, first=1), broadcast_shape([t.shape for t in types]))


@select.reference
def _(inputs, attrs):
    return np.where(*inputs)
