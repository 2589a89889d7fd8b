"""Reductions over axes; normalizations, softmax and dropout.

Normalizations, softmax and dropout take float types only; vectors of parameters share the data's.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from ngraph_mxnet.ir.opdef import (
    ORDINAL,
    TOLERANT,
    Attrs,
    FactsOf,
    Rates,
    Reference,
    Shapes,
    TypeRule,
    by_operand,
    by_result,
    register_op,
)
from ngraph_mxnet.ir.types import Bool, Float, Int, Ints, Shape, TensorType, i64
from ngraph_mxnet.ops.common import (
    FLOAT,
    NUMBER,
    Arrays,
    Types,
    along_axis,
    common_element,
    declare,
    in_f32,
    normal_axes,
    normal_axis,
    require,
    require_domain,
    require_rank,
    require_shape,
    same_type,
)

Function = Callable[..., np.ndarray]


def _accumulate_in_f64(function: Function) -> Function:
    """f32 sums are defined by their exact value, as far as f64 gives it; integers wrap in their own type."""

    def reduce(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
        accumulator = np.float64 if x.dtype.kind == "f" else x.dtype
        return function(x, axis=axis, keepdims=keepdims, dtype=accumulator)

    return reduce


# name: (domain, needs an element, facts, formula, function); T[S] -> T[S without axes]
REDUCTIONS: dict[str, tuple[str, bool, FactsOf, str, Function]] = {
    "reduce_sum": (NUMBER, False, {}, "sum over `axes`; 0 of none", _accumulate_in_f64(np.sum)),
    "reduce_mean": (FLOAT, True, TOLERANT, "mean over `axes`", _accumulate_in_f64(np.mean)),
    "reduce_prod": (NUMBER, False, {}, "product over `axes`; 1 of none", _accumulate_in_f64(np.prod)),
    "reduce_max": (NUMBER, True, ORDINAL, "greatest over `axes`; NaN if one is", np.max),
    "reduce_min": (NUMBER, True, ORDINAL, "least over `axes`; NaN if one is", np.min),
}

# name: (formula, function); T[S] -> i64[S without axis]
ARG_REDUCTIONS: dict[str, tuple[str, Function]] = {
    "argmax": ("index of the first greatest along `axis`; of the first NaN if there is one", np.argmax),
    "argmin": ("index of the first least along `axis`; of the first NaN if there is one", np.argmin),
}


def reduced_shape(shape: Shape, axes: tuple[int, ...], keep_dims: bool) -> Shape:
    """`shape` with `axes` (normal, distinct) left out, or 1 when they are kept."""
    if keep_dims:
        return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))
    return tuple(dim for axis, dim in enumerate(shape) if axis not in axes)


def _rule(domain: str, needs_element: bool) -> TypeRule:
    def rule(types: Types, attrs: Attrs) -> TensorType:
        require_domain(types, domain)
        axes = normal_axes(attrs["axes"], types[0].rank)
        if needs_element:
            require(prod(types[0].shape[a] for a in axes) > 0, "operand 0", types[0], f"elements along {list(axes)}")
        return types[0].with_shape(reduced_shape(types[0].shape, axes, attrs["keep_dims"]))

    return rule


def _arg_rule(types: Types, attrs: Attrs) -> TensorType:
    require_domain(types, NUMBER)
    axis = normal_axis(attrs["axis"], types[0].rank)
    require(types[0].shape[axis] > 0, "operand 0", types[0], f"elements along {axis}")
    return TensorType(i64, reduced_shape(types[0].shape, (axis,), attrs["keep_dims"]))


def _reference(function: Function) -> Reference:
    @in_f32
    def reference(inputs: Arrays, attrs: Attrs) -> np.ndarray:
        (x,) = inputs
        axes = normal_axes(attrs["axes"], x.ndim)
        return np.asarray(function(x, axis=axes, keepdims=attrs["keep_dims"])).astype(x.dtype)

    return reference


def _arg_reference(function: Function) -> Reference:
    def reference(inputs: Arrays, attrs: Attrs) -> np.ndarray:
        return np.asarray(function(inputs[0], axis=attrs["axis"], keepdims=attrs["keep_dims"])).astype(np.int64)

    return reference


for _name, (_domain, _needs, _facts, _doc, _function) in REDUCTIONS.items():
    declare(_name, _doc, _rule(_domain, _needs), _reference(_function),
            attrs={"axes": Ints(), "keep_dims": Bool(False)}, kind="reduction", work=by_operand(simple=1), **_facts)

for _name, (_doc, _function) in ARG_REDUCTIONS.items():
    declare(_name, _doc, _arg_rule, _arg_reference(_function), attrs={"axis": Int(), "keep_dims": Bool(False)},
            kind="position", work=by_operand(simple=2), **ORDINAL)


def require_channel_vectors(types, axis):
    """Operands 1 and up are vectors T[D], D the size of operand 0 along `axis`."""
    require_domain(types[:1], FLOAT)
    common_element(types)
    for position, type_ in enumerate(types[1:], 1):
        require_shape(type_, (types[0].shape[axis],), position=position)


@register_op("batch_norm", operands=5, attrs={"epsilon": Float(1e-5)}, work=by_result(simple=2))
def batch_norm(types, attrs):
    """T[N, C, ...], gamma, beta, mean, variance each T[C] -> T[N, C, ...].

    (data - mean) / sqrt(variance + epsilon) * gamma + beta, with the channels on axis 1: inference only.
    """
    require_rank(types[0], 2)
    require_channel_vectors(types, 1)
    return types[0]


@batch_norm.reference
@in_f32
def _(inputs, attrs):
    data = inputs[0]
    gamma, beta, mean, variance = (along_axis(v, 1, data.ndim) for v in inputs[1:])
    epsilon = data.dtype.type(attrs["epsilon"])
    return (data - mean) / np.sqrt(variance + epsilon) * gamma + beta


@register_op("batch_norm_factors", operands=4, attrs={"epsilon": Float(1e-5)}, work=by_result(divide=1, simple=4))
def batch_norm_factors(types, attrs):
    """gamma, beta, mean, variance each T[C] -> scale T[C], shift T[C]: batch_norm(x) is x * scale + shift.

    scale = gamma / sqrt(variance + epsilon) and shift = beta - mean * scale.
    """
    require_rank(types[0], 1, 1)
    require_channel_vectors(types, 0)
    return [types[0], types[0]]


@batch_norm_factors.reference
@in_f32
def _(inputs, attrs):
    gamma, beta, mean, variance = inputs
    scale = gamma / np.sqrt(variance + gamma.dtype.type(attrs["epsilon"]))
    return [scale, beta - mean * scale]


@register_op("layer_norm", operands=3, attrs={"axis": Int(-1), "epsilon": Float(1e-5)}, kind="row",
             work=by_operand(simple=6))
def layer_norm(types, attrs):
    """T[S], gamma T[D], beta T[D] -> T[S], D the size along `axis`.

    (data - m) / sqrt(v + epsilon) * gamma + beta, m and v the mean and the biased variance along `axis`.
    """
    require_channel_vectors(types, normal_axis(attrs["axis"], types[0].rank))
    return types[0]


@layer_norm.reference
@in_f32
def _(inputs, attrs):
    data = inputs[0].astype(np.float64)
    axis = normal_axis(attrs["axis"], data.ndim)
    gamma, beta = (along_axis(v, axis, data.ndim) for v in inputs[1:])
    mean = data.mean(axis=axis, keepdims=True)
    variance = np.square(data - mean).mean(axis=axis, keepdims=True)
    return ((data - mean) / np.sqrt(variance + attrs["epsilon"]) * gamma + beta).astype(inputs[0].dtype)


def _softmax_type(types, attrs):
    require_domain(types, FLOAT)
    normal_axis(attrs["axis"], types[0].rank)
    return types[0]


@register_op("softmax", operands=1, attrs={"axis": Int(-1)}, kind="row", work=by_operand(simple=4, transcendental=1))
def softmax(types, attrs):
    """e^(x - m) / sum of e^(x - m) along `axis`, m the greatest along it."""
    return _softmax_type(types, attrs)


@softmax.reference
@in_f32
def _(inputs, attrs):
    (x,) = inputs
    powers = np.exp(x - x.max(axis=attrs["axis"], keepdims=True)) if x.size else x
    return powers / powers.sum(axis=attrs["axis"], keepdims=True)


@register_op("log_softmax", operands=1, attrs={"axis": Int(-1)}, kind="row",
             work=by_operand(simple=4, transcendental=1))
def log_softmax(types, attrs):
    """x - m - log(sum of e^(x - m)) along `axis`, m the greatest along it."""
    return _softmax_type(types, attrs)


@log_softmax.reference
@in_f32
def _(inputs, attrs):
    (x,) = inputs
    centred = x - x.max(axis=attrs["axis"], keepdims=True) if x.size else x
    return centred - np.log(np.exp(centred).sum(axis=attrs["axis"], keepdims=True))


@register_op("dropout", operands=1, attrs={"rate": Float(0.5)}, kind="copy", work=by_result(move=1),
             selects=True, same_bytes=True)
def dropout(types, attrs):
    """At inference, the operand. `rate` in [0, 1] is the share that training drops."""
    require(0 <= attrs["rate"] <= 1, "rate", attrs["rate"], "a number from 0 to 1")
    return same_type(FLOAT)(types, attrs)


@dropout.reference
def _(inputs, attrs):
    return inputs[0]


def _lrn_work(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
    return by_result(simple=attrs["size"] + 3, transcendental=1)(operands, results, attrs)


@register_op("lrn", operands=1, attrs={"size": Int(), "alpha": Float(1e-4), "beta": Float(0.75), "bias": Float(2.0)},
             work=_lrn_work, counts=lambda operands, results, attrs: (0, prod(results[0]) * attrs["size"]))
def lrn(types, attrs):
    """T[N, C, ...] -> same: data * (bias + alpha / size * s)^-beta (MXNet's LRN, whose defaults these are).

    s is the sum of squares of the `size` channels around each, channels outside being 0; `size` is odd.
    """
    require_domain(types, FLOAT)
    require_rank(types[0], 2)
    require(attrs["size"] >= 1 and attrs["size"] % 2 == 1, "size", attrs["size"], "an odd positive integer")
    return types[0]


@lrn.reference
@in_f32
def _(inputs, attrs):
    (data,) = inputs
    half, channels = attrs["size"] // 2, data.shape[1]
    squares = np.pad(np.square(data), [(half, half) if axis == 1 else (0, 0) for axis in range(data.ndim)])
    total = sum(squares[:, offset : offset + channels] for offset in range(attrs["size"]))
    scale = data.dtype.type(attrs["bias"]) + data.dtype.type(attrs["alpha"] / attrs["size"]) * total
    return data * scale ** data.dtype.type(-attrs["beta"])
