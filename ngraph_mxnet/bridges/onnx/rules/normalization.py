"""Normalizations."""

from __future__ import annotations

from math import prod

import numpy as np

from ngraph_mxnet.bridges.onnx.rules.common import normal_axis
from ngraph_mxnet.bridges.onnx.rules.registry import Call, rule
from ngraph_mxnet.bridges.onnx.tensors import element_of
from ngraph_mxnet.compositions.tensors import along_axis, converted, reshaped, scalar
from ngraph_mxnet.errors import ModelError, UnsupportedError
from ngraph_mxnet.ir import Builder, Value


@rule("BatchNormalization")
def batch_normalization(b: Builder, call: Call) -> Value | list[Value]:
    """By the statistics that are inputs; with `training_mode` by the data's own, and the running ones are results."""
    x, *vectors = (call.input(i) for i in range(5))
    momentum = call.attrs.float("momentum", 0.9)
    if call.opset < 7:
        call.attrs.ignore("is_test", "consumed_inputs")
    if call.opset < 9 and not call.attrs.bool("spatial", True):
        raise UnsupportedError("spatial=0: statistics of each activation")
    scale = call.static_value(vectors[0])
    if scale is not None and (scale == 1).all():  # most frameworks write ones for no scale: a constant folds
        vectors[0] = b.constant(scale)
    if call.attrs.bool("training_mode"):
        return _with_own_statistics(b, x, vectors, momentum, call.attrs.float("epsilon", 1e-5))
    vectors = [converted(b, vector, x) for vector in vectors]
    return b.batch_norm(x, *vectors, epsilon=call.attrs.float("epsilon", 1e-5))


def _with_own_statistics(b: Builder, x: Value, vectors: list[Value], momentum: float, epsilon: float) -> list[Value]:
    axes = tuple(i for i in range(x.type.rank) if i != 1)
    mean = b.reduce_mean(x, axes=axes)
    centred = b.subtract(x, along_axis(b, mean, 1, x.type.rank))
    found = [mean, b.reduce_mean(b.square(centred), axes=axes)]
    out = b.batch_norm(x, *(converted(b, vector, x) for vector in (*vectors[:2], *found)), epsilon=epsilon)
    running = []
    for old, new in zip(vectors[2:], found, strict=True):
        new = converted(b, new, old)
        running.append(b.add(b.multiply(old, scalar(b, momentum, old)), b.multiply(new, scalar(b, 1 - momentum, old))))
    return [out, *running]


def standardized(b: Builder, x: Value, axes: tuple[int, ...], epsilon: float) -> tuple[Value, Value, Value]:
    """(x - mean) / sqrt(biased variance + epsilon) over `axes`, the mean, and 1 / that root."""
    mean = b.reduce_mean(x, axes=axes, keep_dims=True)
    centred = b.subtract(x, mean)
    variance = b.reduce_mean(b.square(centred), axes=axes, keep_dims=True)
    inverse = b.rsqrt(b.add(variance, scalar(b, epsilon, x)))
    return b.multiply(centred, inverse), mean, inverse


@rule("InstanceNormalization")
def instance_normalization(b: Builder, call: Call) -> Value:
    x, gamma, beta = (call.input(i) for i in range(3))
    rank = x.type.rank
    normal, _, _ = standardized(b, x, tuple(range(2, rank)), call.attrs.float("epsilon", 1e-5))
    return b.add(b.multiply(normal, along_axis(b, gamma, 1, rank)), along_axis(b, beta, 1, rank))


@rule("LayerNormalization")
def layer_normalization(b: Builder, call: Call) -> list[Value]:
    """Over the axes from `axis` on; the mean and 1 / deviation where they are read."""
    x, gamma, beta = call.input(0), call.input(1), call.optional(2)
    axis, epsilon = normal_axis(call.attrs.int("axis", -1), x.type.rank), call.attrs.float("epsilon", 1e-5)
    stash = element_of(call.attrs.int("stash_type", 1))
    size, shape = prod(x.shape[axis:]), x.shape
    wide = x if x.type.element == stash else b.convert(x, element=stash)
    if gamma.type.size == size and (beta is None or beta.type.size == size) and call.outputs == 1:
        rows = reshaped(b, wide, (*shape[:axis], size))
        zeros = b.constant(np.zeros(size), wide.type.element)
        scale = converted(b, reshaped(b, gamma, (size,)), wide)
        shift = zeros if beta is None else converted(b, reshaped(b, beta, (size,)), wide)
        return [converted(b, reshaped(b, b.layer_norm(rows, scale, shift, epsilon=epsilon), shape), x)]
    normal, mean, inverse = standardized(b, wide, tuple(range(axis, x.type.rank)), epsilon)
    out = b.multiply(converted(b, normal, x), gamma)
    return [out if beta is None else b.add(out, beta), mean, inverse]


@rule("RMSNormalization", "SimplifiedLayerNormalization")  # the latter is what ONNX Runtime's exporters write
def rms_normalization(b: Builder, call: Call) -> Value:
    """x / sqrt(mean of squares + epsilon) over the axes from `axis` on, times a scale."""
    x, gamma = call.input(0), call.input(1)
    axis, epsilon = normal_axis(call.attrs.int("axis", -1), x.type.rank), call.attrs.float("epsilon", 1e-5)
    stash = element_of(call.attrs.int("stash_type", 1))
    wide = x if x.type.element == stash else b.convert(x, element=stash)
    return b.multiply(converted(b, over_root_mean_square(b, wide, axis, epsilon), x), gamma)


def over_root_mean_square(b: Builder, x: Value, axis: int, epsilon: float) -> Value:
    mean = b.reduce_mean(b.square(x), axes=tuple(range(axis, x.type.rank)), keep_dims=True)
    return b.multiply(x, b.rsqrt(b.add(mean, scalar(b, epsilon, x))))


@rule("GroupNormalization")
def group_normalization(b: Builder, call: Call) -> Value:
    """Scale and bias are one number a group before opset 21, one a channel from there on."""
    x, gamma, beta = (call.input(i) for i in range(3))
    groups, epsilon = call.attrs.int("num_groups"), call.attrs.float("epsilon", 1e-5)
    call.attrs.ignore("stash_type")
    if groups < 1 or x.shape[1] % groups:
        raise ModelError(f"num_groups={groups} does not divide {x.shape[1]} channels")
    each = x.shape[1] // groups
    split = b.reshape(x, shape=(x.shape[0], groups, each, prod(x.shape[2:])))
    normal, _, _ = standardized(b, split, (2, 3), epsilon)
    shape = (1, groups, 1, 1) if gamma.type.size == groups != x.shape[1] or call.opset < 21 else (1, groups, each, 1)
    scaled = b.multiply(normal, b.reshape(gamma, shape=shape))
    return b.reshape(b.add(scaled, b.reshape(beta, shape=shape)), shape=x.shape)


@rule("LRN")
def lrn(b: Builder, call: Call) -> Value:
    return b.lrn(call.input(0), size=call.attrs.int("size"), alpha=call.attrs.float("alpha", 1e-4),
                 beta=call.attrs.float("beta", 0.75), bias=call.attrs.float("bias", 1.0))


@rule("LpNormalization")
def lp_normalization(b: Builder, call: Call) -> Value:
    """x / norm along `axis`; 0 where the norm is 0."""
    x = call.input(0)
    axis, power = normal_axis(call.attrs.int("axis", -1), x.type.rank), call.attrs.int("p", 2)
    if power not in (1, 2):
        raise ModelError(f"p={power}, expected 1 or 2")
    terms = b.abs(x) if power == 1 else b.square(x)
    total = b.reduce_sum(terms, axes=(axis,), keep_dims=True)
    norm = total if power == 1 else b.sqrt(total)
    zero = scalar(b, 0, x)
    empty = b.equal(norm, zero)
    return b.select(empty, zero, b.divide(x, b.select(empty, scalar(b, 1, x), norm)))


@rule("MeanVarianceNormalization")
def mean_variance_normalization(b: Builder, call: Call) -> Value:
    """(x - mean) / (deviation + 1e-9) over `axes`."""
    x = call.input(0)
    axes = tuple(sorted({normal_axis(axis, x.type.rank) for axis in call.attrs.ints("axes", (0, 2, 3))}))
    mean = b.reduce_mean(x, axes=axes, keep_dims=True)
    centred = b.subtract(x, mean)
    deviation = b.sqrt(b.reduce_mean(b.square(centred), axes=axes, keep_dims=True))
    return b.divide(centred, b.add(deviation, scalar(b, 1e-9, x)))
