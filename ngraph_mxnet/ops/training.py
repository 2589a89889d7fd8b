"""Ops that only a graph that is differentiated needs: where a framework's gradients are no derivatives, and what a
layer computes of its batch when it trains."""

from __future__ import annotations

from math import inf

import numpy as np

from ngraph_mxnet.ir.opdef import by_operand, by_result, register_op
from ngraph_mxnet.ir.types import Bool, Float, Int
from ngraph_mxnet.ops.common import (
    ANY,
    FLOAT,
    INTEGER,
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
from ngraph_mxnet.ops.movement import OUTSIDE, gather_elements, inside
from ngraph_mxnet.ops.reduction import log_softmax, require_channel_vectors


@register_op("stop_gradient", operands=1, kind="copy", work=by_result(move=1), selects=True, same_bytes=True)
def stop_gradient(types, attrs):
    """x; nothing goes back through it."""
    return same_type(ANY)(types, attrs)


@stop_gradient.reference
def _(inputs, attrs):
    return inputs[0]


@register_op("own_gradient", operands=3, attrs={"scaled": Bool(False)}, work=by_result(move=1))
def own_gradient(types, attrs):
    """y T[S], x T[R], g T[R] -> y: what goes back to x is g, whatever the gradient of y is.

    With `scaled`, S is R and g is multiplied by the gradient of y. Nothing goes back to y and g.
    """
    require_domain(types, FLOAT)
    common_element(types)
    require_shape(types[2], types[1].shape, position=2)
    if attrs["scaled"]:
        require_shape(types[0], types[1].shape, position=0)
    return types[0]


@own_gradient.reference
def _(inputs, attrs):
    return inputs[0]


@register_op("batch_norm_training", operands=3, attrs={"epsilon": Float(1e-5)}, work=by_operand(simple=5))
def batch_norm_training(types, attrs):
    """x T[N, C, ...], gamma T[C], beta T[C] -> y T[N, C, ...], mean T[C], variance T[C].

    batch_norm with the statistics of x itself, over all axes but 1; the variance is the biased one.
    """
    require_rank(types[0], 2)
    require_channel_vectors(types, 1)
    return [types[0], types[1], types[1]]


@batch_norm_training.reference
@in_f32
def _(inputs, attrs):
    x = inputs[0].astype(np.float64)
    gamma, beta = (along_axis(v, 1, x.ndim) for v in inputs[1:])
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    mean, variance = x.mean(axis=axes), x.var(axis=axes)
    spread = along_axis(1 / np.sqrt(variance + attrs["epsilon"]), 1, x.ndim)
    y = (x - along_axis(mean, 1, x.ndim)) * spread * gamma + beta
    return [array.astype(inputs[0].dtype) for array in (y, mean, variance)]


@register_op("batch_norm_statistics", operands=1, work=by_operand(simple=3))
def batch_norm_statistics(types, attrs):
    """x T[N, C, ...] -> mean T[C], variance T[C]: over all axes but 1; the variance is the biased one."""
    require_rank(types[0], 2)
    require_domain(types, FLOAT)
    vector = types[0].with_shape(types[0].shape[1:2])
    return [vector, vector]


@batch_norm_statistics.reference
@in_f32
def _(inputs, attrs):
    x = inputs[0].astype(np.float64)
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    return [array.astype(inputs[0].dtype) for array in (x.mean(axis=axes), x.var(axis=axes))]


@register_op("batch_norm_gradient", operands=5, attrs={"epsilon": Float(1e-5)}, work=by_operand(simple=8))
def batch_norm_gradient(types, attrs):
    """x T[N, C, ...], gamma, mean, variance T[C], head T[N, C, ...] -> T[N, C, ...], T[C], T[C]: of the first result of
    batch_norm_training by x, gamma and beta.

    With s = 1 / sqrt(variance + epsilon), z = (x - mean) s and m the mean over all axes but 1, by x it is
    gamma s (head - m(head) - z m(head z)).
    """
    require_rank(types[0], 2)
    require_channel_vectors(types[:4], 1)
    require_shape(types[4], types[0].shape, position=4)
    return [types[0], types[1], types[1]]


@batch_norm_gradient.reference
@in_f32
def _(inputs, attrs):
    x, head = inputs[0].astype(np.float64), inputs[4].astype(np.float64)
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    gamma, mean, variance = (along_axis(v.astype(np.float64), 1, x.ndim) for v in inputs[1:4])
    spread = 1 / np.sqrt(variance + attrs["epsilon"])
    normal = (x - mean) * spread
    of_beta, of_gamma = head.sum(axis=axes), (head * normal).sum(axis=axes)
    count = max(x.size // max(x.shape[1], 1), 1)
    drift = along_axis(of_beta, 1, x.ndim) + normal * along_axis(of_gamma, 1, x.ndim)
    return [array.astype(inputs[0].dtype) for array in (gamma * spread * (head - drift / count), of_gamma, of_beta)]


@register_op("batch_norm_relu_gradient", operands=6, attrs={"epsilon": Float(1e-5)}, work=by_operand(simple=8))
def batch_norm_relu_gradient(types, attrs):
    """x T[N, C, ...], gamma, mean, variance T[C], y, head T[N, C, ...] -> T[N, C, ...], T[C], T[C]: batch_norm_gradient
    of the head where y, the relu of batch_norm_training's first result, is above 0, and of 0 elsewhere."""
    require_shape(types[4], types[0].shape, position=4)
    return batch_norm_gradient.infer([*types[:4], types[5]], attrs)


@batch_norm_relu_gradient.reference
def _(inputs, attrs):
    x, gamma, mean, variance, y, head = inputs
    kept = np.where(y > 0, head, np.zeros((), head.dtype))
    return batch_norm_gradient.evaluate([x, gamma, mean, variance, kept], attrs)


@register_op("layer_norm_gradient", operands=3, attrs={"axis": Int(-1), "epsilon": Float(1e-5)},
             work=by_operand(simple=10))
def layer_norm_gradient(types, attrs):
    """x T[S], gamma T[D], head T[S] -> T[S], T[D], T[D]: of layer_norm by x, gamma and beta.

    With s = 1 / sqrt(v + epsilon), z = (x - m) s and g = head gamma, by x it is s (g - mean(g) - z mean(g z)), with
    means along `axis`.
    """
    require_channel_vectors(types[:2], normal_axis(attrs["axis"], types[0].rank))
    require_shape(types[2], types[0].shape, position=2)
    common_element(types)
    return [types[0], types[1], types[1]]


@layer_norm_gradient.reference
@in_f32
def _(inputs, attrs):
    x, gamma, head = (array.astype(np.float64) for array in inputs)
    axis = normal_axis(attrs["axis"], x.ndim)
    others = tuple(own for own in range(x.ndim) if own != axis)
    centred = x - x.mean(axis=axis, keepdims=True)
    spread = 1 / np.sqrt(np.square(centred).mean(axis=axis, keepdims=True) + attrs["epsilon"])
    normal, scaled = centred * spread, head * along_axis(gamma, axis, x.ndim)
    drift = normal * (scaled * normal).mean(axis=axis, keepdims=True)
    by_x = spread * (scaled - scaled.mean(axis=axis, keepdims=True) - drift)
    found = (by_x, (head * normal).sum(axis=others), head.sum(axis=others))
    return [array.astype(inputs[0].dtype) for array in found]


def _pick_types(types):
    x, indices, *rows = types
    require_domain([x], FLOAT)
    require(indices.element.numpy.kind in INTEGER, "operand 1", indices, "an integer type")
    require_rank(x, 1)
    require(x.shape[-1] > 0 or x.size == 0, "operand 0", x, "elements along the last axis")
    for position, type_ in enumerate([indices, *rows], 1):
        require_shape(type_, (*x.shape[:-1], 1), position=position)
    common_element([x, *rows])


@register_op("log_softmax_pick", operands=2, attrs={"mode": OUTSIDE}, work=by_operand(simple=3, transcendental=1))
def log_softmax_pick(types, attrs):
    """x T[S, D], indices integer [S, 1] -> picked, greatest, logarithm T[S, 1]: of each row the element of log_softmax
    at its index, m, the greatest element (of NaN -inf), and log(sum of e^(x - m)).

    It is gather_elements of log_softmax, which no one else reads; `mode` is that op's.
    """
    _pick_types(types)
    return [types[0].with_shape(types[1].shape)] * 3


@log_softmax_pick.reference
@in_f32
def _(inputs, attrs):
    x, indices = inputs
    (logarithms,) = log_softmax.evaluate([x], {"axis": -1})
    (picked,) = gather_elements.evaluate([logarithms, indices], {"axis": -1, **attrs})
    greatest = np.fmax.reduce(x, axis=-1, keepdims=True, initial=-inf)
    total = np.exp(x - greatest).sum(axis=-1, keepdims=True)
    return [picked, greatest, np.log(total)]


@register_op("log_softmax_pick_gradient", operands=5, attrs={"mode": OUTSIDE},
             work=by_operand(simple=3, transcendental=1))
def log_softmax_pick_gradient(types, attrs):
    """x T[S, D], indices integer [S, 1], greatest, logarithm, head T[S, 1] -> T[S, D]: of log_softmax_pick by x.

    It is the head at the row's index, less head e^(x - greatest - logarithm).
    """
    _pick_types(types)
    return types[0]


@log_softmax_pick_gradient.reference
@in_f32
def _(inputs, attrs):
    x, indices, greatest, logarithm, head = inputs
    by_x = -head * np.exp(x - greatest - logarithm)
    if x.size:
        at = inside(indices, x.shape[-1], attrs["mode"])
        np.put_along_axis(by_x, at, np.take_along_axis(by_x, at, -1) + head, -1)
    return by_x


_BOUNDS = {"lower": Float(-inf), "upper": Float(inf), "above": Bool(False)}


@register_op("clamp_gradient", operands=2, attrs=_BOUNDS, work=by_result(simple=3))
def clamp_gradient(types, attrs):
    """x, head T[S] -> T[S]: the head where lower <= x <= upper, else 0. With `above`, x = lower is outside: of a relu,
    whose result x may be, too."""
    require_domain(types, FLOAT)
    common_element(types)
    require_shape(types[1], types[0].shape, position=1)
    return types[0]


@clamp_gradient.reference
def _(inputs, attrs):
    x, head = inputs
    inside = (x > attrs["lower"] if attrs["above"] else x >= attrs["lower"]) & (x <= attrs["upper"])
    return np.where(inside, head, np.zeros((), head.dtype))
