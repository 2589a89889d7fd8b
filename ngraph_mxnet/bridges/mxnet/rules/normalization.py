"""Normalizations at inference. With `output_mean_var` their statistics are outputs too; without, MXNet's further
outputs are for its own gradients, and do not exist here."""

from __future__ import annotations

from math import prod

import numpy as np

from ngraph_mxnet.bridges.mxnet.rules.registry import FLOATS, image_shape, normal_axis, rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.tensors import along_axis, scalar
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value

# Attributes that matter to training, calibration or GPUs only.
_IGNORED = ["momentum", "use_global_stats", "cudnn_off", "min_calib_range", "max_calib_range", "ndev", "key"]


Outputs = list[Value]


@rule("BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm", operands=5, parameters=[1, 2, 3, 4],
      ignored=_IGNORED)
def batch_norm(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Outputs:
    """With the moving statistics; `fix_gamma` makes gamma 1; any channel axis. Rank 2 and up.

    The statistics of `output_mean_var` are the moving mean and 1 / sqrt(moving variance + eps).
    """
    return _batch_norm(b, inputs, attrs)


def _batch_norm(b: Builder, inputs: list[Value], attrs: Attrs) -> Outputs:
    x, gamma, beta, mean, variance = inputs
    if attrs.bool("fix_gamma", True):
        gamma = b.constant(np.ones(gamma.shape, gamma.type.element.numpy))
    axis, epsilon = normal_axis(attrs.int("axis", 1), len(x.shape)), attrs.float("eps", 1e-3)
    statistics = []
    if attrs.bool("output_mean_var", False):
        statistics = [b.identity(mean), b.rsqrt(b.add(variance, scalar(b, epsilon, variance)))]
    if axis == 1:
        return [b.batch_norm(x, gamma, beta, mean, variance, epsilon=epsilon), *statistics]
    order = list(range(len(x.shape)))
    order.insert(1, order.pop(axis))
    back = tuple(int(i) for i in np.argsort(order))
    normal = b.batch_norm(b.transpose(x, order=order), gamma, beta, mean, variance, epsilon=epsilon)
    return [b.transpose(normal, order=back), *statistics]


@rule("_contrib_BatchNormWithReLU", operands=5, parameters=[1, 2, 3, 4], ignored=_IGNORED)
def batch_norm_relu(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Outputs:
    """BatchNorm, then ReLU."""
    normal, *statistics = _batch_norm(b, inputs, attrs)
    return [b.relu(normal), *statistics]


@rule("LayerNorm", operands=3, parameters=[1, 2])
def layer_norm(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Outputs:
    """Over any one axis; `output_mean_var` gives the mean and the standard deviation too."""
    x, epsilon = inputs[0], attrs.float("eps", 1e-5)
    axis = normal_axis(attrs.int("axis", -1), len(x.shape))
    statistics = _statistics(b, x, (axis,), epsilon) if attrs.bool("output_mean_var", False) else []
    return [b.layer_norm(*inputs, axis=axis, epsilon=epsilon), *statistics]


def _statistics(b: Builder, x: Value, axes: tuple[int, ...], epsilon: float) -> Outputs:
    """The mean and sqrt(biased variance + epsilon) over `axes`, which stay as 1."""
    mean = b.reduce_mean(x, axes=axes, keep_dims=True)
    variance = b.reduce_mean(b.square(b.subtract(x, mean)), axes=axes, keep_dims=True)
    return [mean, b.sqrt(b.add(variance, scalar(b, epsilon, x)))]


def _standardize(b: Builder, x: Value, axes: tuple[int, ...], epsilon: float) -> Value:
    """(x - mean) / sqrt(biased variance + epsilon) over `axes`."""
    mean, deviation = _statistics(b, x, axes, epsilon)
    return b.divide(b.subtract(x, mean), deviation)


@rule("InstanceNorm", operands=3, parameters=[1, 2])
def instance_norm(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Over the spatial axes of each channel, of which there is one at least."""
    x, gamma, beta = inputs
    rank = len(x.shape)
    if rank < 3:
        raise UnsupportedError(f"found {x.type}, expected rank 3 or more")
    normal = _standardize(b, x, tuple(range(2, rank)), attrs.float("eps", 1e-3))
    return b.add(b.multiply(normal, along_axis(b, gamma, 1, rank)), along_axis(b, beta, 1, rank))


@rule("GroupNorm", operands=3, parameters=[1, 2])
def group_norm(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Outputs:
    """Over each group of channels and all spatial axes; gamma and beta are one for each group.

    `output_mean_var` gives the mean and sqrt(variance + eps), one for each image and group.
    """
    x, gamma, beta = inputs
    groups = attrs.int("num_groups", 1)
    if gamma.shape != (groups,) or x.shape[1] % groups:
        raise UnsupportedError(f"gamma {gamma.type} is not one for each of {groups} groups of {x.type}")
    grouped = b.reshape(x, shape=(x.shape[0], groups, prod(x.shape[1:]) // groups))
    epsilon = attrs.float("eps", 1e-5)
    mean, deviation = _statistics(b, grouped, (2,), epsilon)
    normal = b.divide(b.subtract(grouped, mean), deviation)
    out = b.add(b.multiply(normal, along_axis(b, gamma, 1, 3)), along_axis(b, beta, 1, 3))
    statistics = [mean, deviation] if attrs.bool("output_mean_var", False) else []
    return [b.reshape(out, shape=x.shape), *(b.reshape(v, shape=(x.shape[0], groups)) for v in statistics)]


@rule("LRN", operands=1)
def lrn(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Across the channels of images; `nsize` is odd."""
    (x,) = inputs
    image_shape(x)
    size, alpha, beta, bias = attrs.int("nsize"), attrs.float("alpha", 1e-4), attrs.float("beta", 0.75), attrs.float(
        "knorm", 2.0)
    if beta == 0:  # anything to the power of 0 is 1, also what has no logarithm
        return x
    return b.lrn(x, size=size, alpha=alpha, beta=beta, bias=bias)


@rule("Dropout", operands=1, types=FLOATS, ignored=["p", "axes", "cudnn_off"])
def dropout(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The identity at inference; `mode=always` drops then too and stays with MXNet."""
    attrs.choice("mode", "training", ("training",))
    return inputs[0]
