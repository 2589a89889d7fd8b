"""Elementwise ops: of one operand, of whose shape the result is, and of several, broadcast as in NumPy.

A row states how one element is computed (`Facts.scalar`). The reference, the CPU's kernels for every element type, its
chains and its generated code are made of this. Kernels that are more accurate or faster than the formula stand with
their element type (`targets/cpu/kernels/elementwise.py`, `wide.py`).

Unless said, the result is of the operands' element type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np

from ngraph_mxnet.ir.opdef import (
    DIVIDE,
    FINITE,
    ORDINAL,
    RATIO,
    REGISTRY,
    ROUNDS,
    SIMPLE,
    TOLERANT,
    TRANSCENDENTAL,
    Attrs,
    FactsOf,
    Function,
    OpDef,
    Scalar,
    TypeRule,
    by_result,
    register_op,
)
from ngraph_mxnet.ir.types import Attribute, Element, Float, TensorType, boolean
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
)

# ---- NumPy's functions ----------------------------------------------------------------------------------


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


def _rounding(function: Function) -> Function:
    """Integers are whole already (NumPy would turn them to floats)."""
    return lambda x: function(x) if x.dtype.kind == "f" else x


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


class _Arrays:
    """What formulas take, for arrays of one element type."""

    select = staticmethod(np.where)

    def __init__(self, number: Callable[[float], Any]) -> None:
        self.number, self.zero, self.half, self.one = number, number(0), number(0.5), number(1)

    def __getattr__(self, op: str) -> Function:
        return _NUMPY[op] if op in _NUMPY else REGISTRY[op].scalar(self)  # type: ignore[operator, misc]


arrays_of = cache(_Arrays)
"""The module of formulas for arrays, by their numbers' type."""
_NUMPY: dict[str, Function] = {}
"""NumPy's own function of an op: without a formula, for integers, or because it is faster or more accurate."""

# ---- formulas -------------------------------------------------------------------------------------------

_SQRT_HALF, _DENSITY = math.sqrt(0.5), 1 / math.sqrt(2 * math.pi)


def _clamped(m: Any) -> Function:
    def clamp(x: Any, lower: Any, upper: Any) -> Any:
        raised = m.select(x < lower, lower, x)
        return m.select(raised > upper, upper, raised)

    return clamp


def _gelu_gradient(m: Any) -> Function:
    def gelu_gradient(x: Any, head: Any) -> Any:
        density = m.exp(x * x * -m.half) * m.number(_DENSITY)
        return head * (m.half * (m.one + m.erf(x * m.number(_SQRT_HALF))) + x * density)

    return gelu_gradient


def _modulo(m: Any) -> Function:
    """The remainder with the divisor's sign; a zero has it too."""
    def mod(x: Any, y: Any) -> Any:
        rest = m.fmod(x, y)
        moved = m.select((rest < m.zero) != (y < m.zero), rest + y, rest)
        return m.select((rest == m.zero) | (y == m.zero), m.copysign(m.zero, y), moved)

    return mod


# ---- adjoints, in the notation of `autodiff.reverse.Expression` -------------------------------------------

_GAUSS = 2 / math.sqrt(math.pi)
_STEPS = 6
"""After so many steps four terms of the series leave an error below 1e-10."""


def _digamma(x: Any) -> Any:
    """Abramowitz and Stegun, Handbook of Mathematical Functions: 6.3.5 up to where 6.3.18 holds; 6.3.7 below 1/2."""
    turned = x < 0.5
    here = turned.select(1.0 - x, x)
    sum_ = here.reciprocal()
    for step in range(1, _STEPS):
        sum_ = sum_ + (here + float(step)).reciprocal()
    far = here + float(_STEPS)
    inverse = far.square().reciprocal()
    tail = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse * (1 / 240))))
    found = far.log() - 0.5 / far - tail - sum_
    within = (x - x.round()) * math.pi  # the cotangent has the period 1, and tan is no better than its operand
    return turned.select(found - math.pi / within.tan(), found)


def _over_hypotenuse(size: Any) -> Any:
    """1 / sqrt(size^2 + 1), also where the square is beyond the range."""
    most = size.maximum(1.0)
    return ((size.minimum(1.0) / most).square() + 1.0).rsqrt() / most


def _silu_adjoint(head: Any, y: Any, x: Any) -> Any:
    share = x.sigmoid()
    return [head * (share * ((1.0 - share) * x + 1.0))]


def _hard_swish_adjoint(head: Any, y: Any, x: Any, slope: float, offset: float, scale: float, shift: float) -> Any:
    gate = x * slope + offset
    inside = (gate > 0.0) & (gate < 1.0)
    return [head * (gate.clamp(lower=0.0, upper=1.0) + (x * slope).where(inside)) * scale]


def _gelu_gradient_adjoint(head: Any, y: Any, x: Any, of: Any) -> Any:
    density = (x.square() * -0.5).exp() * _DENSITY
    return head * of * density * (2.0 - x.square()), x.apply("gelu_gradient", head)


def _divide_adjoint(head: Any, y: Any, a: Any, b: Any) -> Any:
    share = head / b
    return share, -(share * y)


def _atan2_adjoint(head: Any, y: Any, a: Any, b: Any) -> Any:
    share = head / (a * a + b * b)
    return share * b, -(share * a)


# ---- the rows -------------------------------------------------------------------------------------------

SCALARS: dict[str, OpDef] = {}
"""The ops of the rows below. Compiled files know an op by its place among those of its kind: a new row goes to the end
of its table."""


def _type_rule(domain: str, kind: str) -> TypeRule:
    def rule(types: Types, attrs: Attrs) -> TensorType:
        require_domain(types, domain)
        if attrs.keys() == CLAMP.keys():
            require_clamp(attrs)
        if len(types) == 1:
            return types[0]
        element = common_element(types)
        return TensorType(boolean if kind == "comparison" else element, broadcast_shape([t.shape for t in types]))

    return rule


def _row(name: str, domain: str, facts: FactsOf, doc: str, scalar: Scalar, derivative: Function | None = None,
         numpy: Function | None = None, *, adjoint: Function | None = None, operands: int = 1,
         attrs: Mapping[str, Attribute] | None = None) -> None:
    schema = tuple(attrs or ())

    @in_f32
    def reference(inputs: Any, attrs: Attrs) -> np.ndarray:
        number = inputs[0].dtype.type
        numbers = [attrs[key] if numpy else number(attrs[key]) for key in schema]
        found = np.asarray(getattr(arrays_of(number), name)(*inputs, *numbers))
        # The cast matters for the error function, which is of f64.
        return found if found.dtype == bool else found.astype(number, copy=False)

    if isinstance(scalar, str) and numpy is None:
        numpy = getattr(np, scalar)  # which is called as C's function
    if numpy:
        _NUMPY[name] = numpy
    if derivative:
        adjoint = _along(derivative)
    kind = facts.get("kind", "logical" if domain == BOOL else "arithmetic")
    SCALARS[name] = declare(name, doc, _type_rule(domain, kind), reference, operands=operands, attrs=attrs,
                            **{**facts, "kind": kind, "scalar": scalar, "domain": domain, "adjoint": adjoint})


def _along(derivative: Function) -> Function:
    return lambda head, y, x: [head * derivative(x, y)]


def _binary(name: str, domain: str, facts: FactsOf, doc: str, scalar: Scalar, adjoint: Function | None = None,
            numpy: Function | None = None) -> None:
    """T[A], T[B] -> T[broadcast(A, B)]."""
    _row(name, domain, facts, doc, scalar, None, numpy, adjoint=adjoint, operands=2)


def _step(number: int) -> FactsOf:
    return {"step": number}


def _work(**rates: float) -> FactsOf:
    return {"work": by_result(**rates)}


_CALLS: FactsOf = {**TRANSCENDENTAL, "float32": "call"}
_WIDE: FactsOf = {**TRANSCENDENTAL, "float32": "wide"}
_COPIES: FactsOf = {"kind": "copy", "work": by_result(move=1), "selects": True, "same_bytes": True}
_COMMUTES: FactsOf = {"commutative": True}
_SIGNED: FactsOf = {"signed": True}

_row("abs", NUMBER, SIMPLE | FINITE | _step(1), "|x|", "fabs", lambda x, y: x.sign(), np.abs)
_row("acos", FLOAT, _CALLS, "arc cosine; NaN outside [-1, 1]", "acos", lambda x, y: -(1.0 - x * x).rsqrt(), np.arccos)
_row("acosh", FLOAT, _CALLS, "inverse hyperbolic cosine; NaN below 1", "acosh",
     lambda x, y: (x.abs() - 1.0).rsqrt() * (x.abs() + 1.0).rsqrt(), np.arccosh)
_row("asin", FLOAT, _CALLS, "arc sine; NaN outside [-1, 1]", "asin", lambda x, y: (1.0 - x * x).rsqrt(), np.arcsin)
_row("asinh", FLOAT, _CALLS, "inverse hyperbolic sine", "asinh", lambda x, y: _over_hypotenuse(x.abs()), np.arcsinh)
_row("atan", FLOAT, _CALLS, "arc tangent", "atan", lambda x, y: (x * x + 1.0).reciprocal(), np.arctan)
_row("atanh", FLOAT, _CALLS, "inverse hyperbolic tangent; NaN outside [-1, 1]", "atanh",
     lambda x, y: (1.0 - x * x).reciprocal(), np.arctanh)
_row("bitwise_not", INTEGER, SIMPLE, "every bit of x inverted", lambda m: lambda x: ~x)
_row("cbrt", FLOAT, _CALLS, "cube root, negative for negative x", "cbrt", lambda x, y: (y * y * 3.0).reciprocal())
_row("ceiling", NUMBER, SIMPLE | FINITE | ROUNDS, "the least whole number not below x", "ceil", None,
     _rounding(np.ceil))
_row("clamp", NUMBER, _work(simple=2) | ORDINAL | FINITE | TOLERANT,
     "min(max(x, lower), upper); NaN stays NaN. For integers the bounds are rounded inwards and saturate.", _clamped,
     None, clamp_array, attrs={"lower": Float(), "upper": Float()},
     adjoint=lambda head, y, x, lower, upper: [head.where((x >= lower) & (x <= upper))])
_row("cos", FLOAT, _CALLS, "cosine", "cos", lambda x, y: -x.sin())
_row("cosh", FLOAT, _CALLS, "hyperbolic cosine", "cosh", lambda x, y: x.sinh())
_row("elu", FLOAT, _work(transcendental=1, simple=2) | FINITE, "x where x > 0, else alpha * (e^x - 1).",
     lambda m: lambda x, alpha: m.select(x > m.zero, x, alpha * m.expm1(x)), attrs={"alpha": Float(1.0)},
     adjoint=lambda head, y, x, alpha: [(x > 0.0).select(head, head * (y + alpha))])
_row("erf", FLOAT, TRANSCENDENTAL | _step(13), "2/sqrt(pi) times the integral of exp(-t^2) from 0 to x", "erf",
     lambda x, y: (-(x * x)).exp() * _GAUSS, erf)
_row("erfinv", FLOAT, _WIDE, "the y with erf(y) = x; infinite at -1 and 1, NaN outside", "erfinv",
     lambda x, y: (y * y).exp() * (1 / _GAUSS), _erfinv)
_row("exp", FLOAT, TRANSCENDENTAL | _step(7), "e^x", "exp", lambda x, y: y)
_row("expm1", FLOAT, TRANSCENDENTAL, "e^x - 1, exact near 0", "expm1", lambda x, y: x.exp())
_row("floor", NUMBER, SIMPLE | FINITE | ROUNDS, "the greatest whole number not above x", "floor", None,
     _rounding(np.floor))
_row("gamma", FLOAT, _WIDE, "the gamma function; infinite at 0, NaN at negative whole numbers", "tgamma",
     lambda x, y: y * _digamma(x), _by_element(math.gamma, math.nan))
_row("gelu", FLOAT, _work(transcendental=1, simple=3) | _step(12), "x/2 (1 + erf(x / sqrt(2)))",
     lambda m: lambda x: m.half * x * (m.one + m.erf(x * m.number(_SQRT_HALF))),
     adjoint=lambda head, y, x: [x.apply("gelu_gradient", head)])
_row("hard_swish", FLOAT, _work(simple=4) | FINITE,
     "x * min(max(x * slope + offset, 0), 1) * scale + shift; the defaults are those of MobileNet v3.",
     lambda m: lambda x, slope, offset, scale, shift: x * m.clamp(x * slope + offset, m.zero, m.one) * scale + shift,
     attrs={"slope": Float(1 / 6), "offset": Float(0.5), "scale": Float(1.0), "shift": Float(0.0)},
     adjoint=_hard_swish_adjoint)
_row("identity", ANY, _COPIES | _step(0), "x", lambda m: lambda x: x, adjoint=lambda head, y, x: [head])
_row("leaky_relu", FLOAT, _work(simple=2) | FINITE, "x where x > 0, else slope * x. The default is MXNet's.",
     lambda m: lambda x, slope: m.select(x > m.zero, x, x * slope), attrs={"slope": Float(0.25)},
     adjoint=lambda head, y, x, slope: [(x > 0.0).select(head, head * slope)])
_row("lgamma", FLOAT, _WIDE, "log |gamma(x)|; infinite at 0 and negative whole numbers", "lgamma",
     lambda x, y: _digamma(x), _by_element(math.lgamma, math.inf))
_row("log", FLOAT, TRANSCENDENTAL | _step(8), "natural logarithm; -inf at 0, NaN below", "log",
     lambda x, y: x.reciprocal())
_row("log10", FLOAT, _CALLS, "logarithm to base 10", "log10", lambda x, y: x.reciprocal() * (1 / math.log(10)))
_row("log1p", FLOAT, TRANSCENDENTAL, "log(1 + x), exact near 0", "log1p", lambda x, y: (x + 1.0).reciprocal())
_row("log2", FLOAT, _CALLS, "logarithm to base 2", "log2", lambda x, y: x.reciprocal() * (1 / math.log(2)))
_row("logical_not", BOOL, SIMPLE, "not x; bool", lambda m: lambda x: x == m.zero)
_row("negative", NUMBER, SIMPLE | FINITE | _step(2), "-x; unsigned integers wrap", lambda m: lambda x: -x,
     adjoint=lambda head, y, x: [-head])
_row("reciprocal", FLOAT, DIVIDE | _step(16), "1/x", lambda m: lambda x: m.one / x, lambda x, y: -(y * y))
_row("relu", NUMBER, SIMPLE | FINITE | TOLERANT | _step(6), "max(x, 0); NaN stays NaN",
     lambda m: lambda x: m.select(x < m.zero, m.zero, x), None, lambda x: np.maximum(x, x.dtype.type(0)),
     adjoint=lambda head, y, x: [head.where(y > 0.0)])
_row("round", NUMBER, SIMPLE | FINITE | ROUNDS, "the nearest whole number, halves to the even one", "nearbyint", None,
     _rounding(np.rint))
_row("rsqrt", FLOAT, DIVIDE | _step(15), "1/sqrt(x)", lambda m: lambda x: m.one / m.sqrt(x),
     lambda x, y: y / x * -0.5)
_row("sigmoid", FLOAT, TRANSCENDENTAL | FINITE | _step(9), "1/(1 + e^-x)",
     lambda m: lambda x: m.one / (m.one + m.exp(-x)), lambda x, y: y * (1.0 - y))
_row("sign", NUMBER, SIMPLE | FINITE | _step(3), "-1, 0 or 1; NaN stays NaN",
     lambda m: lambda x: m.select(x > m.zero, m.one, m.select(x < m.zero, -m.one, x)))
_row("silu", FLOAT, _work(transcendental=1, simple=1) | FINITE | _step(11), "x/(1 + e^-x)",
     lambda m: lambda x: x / (m.one + m.exp(-x)), adjoint=_silu_adjoint)
_row("sin", FLOAT, _CALLS, "sine", "sin", lambda x, y: x.cos())
_row("sinh", FLOAT, _CALLS, "hyperbolic sine", "sinh", lambda x, y: x.cosh())
_row("softplus", FLOAT, TRANSCENDENTAL | _step(14), "log(1 + e^x), without overflow",
     lambda m: lambda x: m.relu(x) + m.log1p(m.exp(-m.abs(x))), lambda x, y: 1.0 - (-y).exp(),
     lambda x: np.logaddexp(x, x.dtype.type(0)))
_row("softsign", FLOAT, RATIO | FINITE, "x/(1 + |x|)", lambda m: lambda x: x / (m.one + m.abs(x)),
     lambda x, y: (x.abs() + 1.0).square().reciprocal())
_row("sqrt", FLOAT, DIVIDE | FINITE | _step(4), "square root; NaN below 0", "sqrt", lambda x, y: 0.5 / y)
_row("square", NUMBER, SIMPLE | FINITE | _step(5), "x^2; integers wrap", lambda m: lambda x: x * x,
     lambda x, y: x * 2.0)
_row("tan", FLOAT, _CALLS, "tangent", "tan", lambda x, y: y * y + 1.0)
_row("tanh", FLOAT, TRANSCENDENTAL | FINITE | _step(10), "hyperbolic tangent", "tanh", lambda x, y: 1.0 - y * y)
_row("trunc", NUMBER, SIMPLE | ROUNDS, "the whole part of x", "trunc", None, _rounding(np.trunc))

_binary("add", NUMBER, SIMPLE | FINITE | TOLERANT | _COMMUTES | _step(17), "a + b; integers wrap",
        lambda m: lambda x, y: x + y, lambda head, y, a, b: (head, head))
_binary("atan2", FLOAT, _WIDE, "the angle of the point (b, a), in (-pi, pi]", "atan2", _atan2_adjoint, np.arctan2)
_binary("bitwise_and", INTEGER, SIMPLE | _COMMUTES, "a & b", lambda m: lambda x, y: x & y)
_binary("bitwise_or", INTEGER, SIMPLE | _COMMUTES, "a | b", lambda m: lambda x, y: x | y)
_binary("bitwise_xor", INTEGER, SIMPLE | _COMMUTES, "a ^ b", lambda m: lambda x, y: x ^ y)
_binary("divide", NUMBER, DIVIDE | _SIGNED | _step(20), "a / b; integers truncate towards 0, and x / 0 is 0",
        lambda m: lambda x, y: x / y, _divide_adjoint, _divide)
_binary("gelu_gradient", FLOAT, _work(transcendental=2, simple=8),
        "b times the derivative of gelu at a: (1 + erf(a / sqrt(2))) / 2 + a e^(-a^2 / 2) / sqrt(2 pi)", _gelu_gradient,
        _gelu_gradient_adjoint)
_binary("logical_and", BOOL, SIMPLE | _COMMUTES, "a and b", lambda m: lambda x, y: (x != m.zero) & (y != m.zero))
_binary("logical_or", BOOL, SIMPLE | _COMMUTES, "a or b", lambda m: lambda x, y: (x != m.zero) | (y != m.zero))
_binary("logical_xor", BOOL, SIMPLE | _COMMUTES, "a or b, not both",
        lambda m: lambda x, y: (x != m.zero) ^ (y != m.zero))
_binary("maximum", NUMBER, SIMPLE | FINITE | ORDINAL | _COMMUTES | _step(21), "the greater; NaN if either is",
        lambda m: lambda x, y: m.select((x > y) | (x != x), x, y),
        lambda head, y, a, b: (head.where(a >= b), head.where(a < b)), np.maximum)
_binary("minimum", NUMBER, SIMPLE | FINITE | ORDINAL | _COMMUTES | _step(22), "the lesser; NaN if either is",
        lambda m: lambda x, y: m.select((x < y) | (x != x), x, y),
        lambda head, y, a, b: (head.where(a <= b), head.where(a > b)), np.minimum)
_binary("mod", NUMBER, RATIO | _SIGNED | {"float32": "call"},
        "a - b floor(a / b): the sign follows b; a mod 0 is 0 (MXNet's)", _modulo,
        lambda head, y, a, b: (head, -(head * (a / b).floor())), _mod)
_binary("multiply", NUMBER, SIMPLE | FINITE | _COMMUTES | _step(19), "a * b; integers wrap",
        lambda m: lambda x, y: x * y, lambda head, y, a, b: (head * b, head * a))
_binary("power", NUMBER, _CALLS, "a to the power b; integers wrap, 1 / a^-b is truncated, and 1 / 0 is 0", "pow",
        lambda head, y, a, b: (head * (b * a.power(b - 1.0)), head * (y * a.log())), _power)
_binary("prelu", FLOAT, _work(simple=2) | FINITE, "a where a > 0, else a * b",
        lambda m: lambda x, y: m.select(x > m.zero, x, x * y),
        lambda head, y, a, b: ((a > 0.0).select(head, head * b), (head * a).where(a <= 0.0)))  # MXNet's
_binary("subtract", NUMBER, SIMPLE | FINITE | _step(18), "a - b; integers wrap", lambda m: lambda x, y: x - y,
        lambda head, y, a, b: (head, -head))

_COMPARES: FactsOf = {"kind": "comparison", **SIMPLE, **ORDINAL}
_binary("equal", ANY, _COMPARES | _COMMUTES, "a == b", lambda m: lambda x, y: x == y)
_binary("greater", ANY, _COMPARES, "a > b", lambda m: lambda x, y: x > y)
_binary("greater_equal", ANY, _COMPARES, "a >= b", lambda m: lambda x, y: x >= y)
_binary("less", ANY, _COMPARES, "a < b", lambda m: lambda x, y: x < y)
_binary("less_equal", ANY, _COMPARES, "a <= b", lambda m: lambda x, y: x <= y)
_binary("not_equal", ANY, _COMPARES | _COMMUTES, "a != b", lambda m: lambda x, y: x != y)


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


@register_op("select", operands=3, kind="choice", **SIMPLE)
def select(types, attrs):
    """bool[C], T[A], T[B] -> T[broadcast(C, A, B)]: a where the condition holds, else b."""
    require_domain(types[:1], BOOL)
    return TensorType(common_element(types, first=1), broadcast_shape([t.shape for t in types]))


@select.reference
def _(inputs, attrs):
    return np.where(*inputs)
