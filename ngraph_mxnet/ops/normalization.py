"""Normalizations, softmax and dropout. All take float types only; vectors of parameters share the data's."""

from __future__ import annotations

from math import prod

import numpy as np

from ngraph_mxnet.ir.opdef import Attrs, Rates, Shapes, by_operand, by_result, register_op
from ngraph_mxnet.ir.types import Float, Int
from ngraph_mxnet.ops.common import (
    FLOAT,
    along_axis,
    common_element,
    in_f32,
    normal_axis,
    require,
    require_domain,
    require_rank,
    require_shape,
    same_type,
)


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


@register_op(
    "lrn",
    operands=1,
    attrs={
        "size": Int(),
        "alpha": Float(1e-4),
        "beta": Float(0.75),
        "bias": Float(2.0),
    },
    work=_lrn_work,
    counts=lambda operands, results, attrs: (0, prod(results[0]) * attrs["size"]),
)
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
