"""Ops that only a graph that is differentiated needs: where a framework's gradients are no derivatives, and what a
layer computes of its batch when it trains."""

from __future__ import annotations

from math import inf, prod

import numpy as np

from ngraph_mxnet.ir.opdef import Attrs, by_operand, by_result, register_op
from ngraph_mxnet.ir.types import Bool, Float, Int, Ints, TensorType, boolean, i32
from ngraph_mxnet.ops.common import (
    ANY,
    FLOAT,
    INTEGER,
    along_axis,
    common_element,
    contiguous,
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


WORDS = 4
"""Numbers of 32 bits that one counter gives."""
ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
KEY_STEPS = 0x9E3779B9, 0xBB67AE85
MOST_STREAMS = 1 << 32
_MASK = 0xFFFFFFFF


def philox(counter: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Philox4x32-10.

    Args:
        counter: uint64 [N, 4], each less than 2^32.
        key: uint64 [2], each less than 2^32.

    Returns:
        uint64 [N, 4], each less than 2^32.
    """
    a, b, c, d = (counter[:, word].astype(np.uint64) for word in range(WORDS))
    low, high = (int(word) for word in key)
    mask, half = np.uint64(_MASK), np.uint64(32)
    for _ in range(ROUNDS):
        first, second = a * np.uint64(MULTIPLIERS[0]), c * np.uint64(MULTIPLIERS[1])
        a, b, c, d = (second >> half) ^ b ^ np.uint64(low), second & mask, (first >> half) ^ d ^ np.uint64(
            high), first & mask
        low, high = (low + KEY_STEPS[0]) & _MASK, (high + KEY_STEPS[1]) & _MASK
    return np.stack([a, b, c, d], axis=1)


def threshold(attrs: Attrs) -> int:
    """A place of `random_mask` is true if its word is less than this, which is from 0 to 2^32."""
    return round(attrs["keep"] * 2**32)


@register_op("random_mask", operands=1, attrs={"shape": Ints(), "keep": Float(), "stream": Int(0)},
             work=by_result(simple=25))
def random_mask(types, attrs):
    """state i32[4], the low and high word of a key, then of a step -> bool[shape]: each true with probability `keep`.

    Element e in row-major order is true if word e mod 4 of philox(counter, key) is less than keep 2^32, where the
    counter is the words (e div 4, stream, the step's low and high word). Words are the bits of the state's elements.
    """
    require(types[0] == TensorType(i32, (4,)), "operand 0", types[0], "i32[4]")
    keep, stream, shape = attrs["keep"], attrs["stream"], attrs["shape"]
    require(0 <= keep <= 1, "keep", keep, "a number from 0 to 1")
    require(0 <= stream < MOST_STREAMS, "stream", stream, f"an integer from 0 up to {MOST_STREAMS - 1}")
    require(all(size >= 0 for size in shape) and prod(shape) <= WORDS << 32, "shape", list(shape),
            f"at most {WORDS << 32} elements")
    return TensorType(boolean, tuple(shape))


@random_mask.reference
def _(inputs, attrs):
    words = contiguous(inputs[0]).view(np.uint32).astype(np.uint64)
    count = prod(attrs["shape"])
    blocks = -(-count // WORDS)
    counter = np.empty((blocks, WORDS), np.uint64)
    counter[:, 0] = np.arange(blocks)
    counter[:, 1], counter[:, 2:] = attrs["stream"], words[2:]
    return (philox(counter, words[:2]).reshape(-1)[:count] < np.uint64(threshold(attrs))).reshape(attrs["shape"])
