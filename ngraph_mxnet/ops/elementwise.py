"""Elementwise ops of several operands, broadcast as in NumPy; `ops/unary.py` has those of one."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ngraph_mxnet.ir.opdef import (
    DIVIDE,
    FINITE,
    ORDINAL,
    RATIO,
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
from ngraph_mxnet.ir.types import TensorType, boolean
from ngraph_mxnet.ops.common import (
    ANY,
    BOOL,
    FLOAT,
    INTEGER,
    NUMBER,
    Types,
    broadcast_shape,
    common_element,
    declare,
    in_f32,
    require_domain,
)
from ngraph_mxnet.ops.unary import erf

Function = Callable[[np.ndarray, np.ndarray], np.ndarray]


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
