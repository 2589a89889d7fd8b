"""Normalizations at inference. Statistics that MXNet gives as further outputs do not exist here: a node whose
second output is read stays with MXNet."""

from __future__ import annotations

from math import prod

import numpy as np

from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.mxnet_bridge.attrs import Attrs
from ngraph_mxnet.mxnet_bridge.rules.common import along_axis, normal_axis, scalar
from ngraph_mxnet.mxnet_bridge.rules.registry import rule
from ngraph_mxnet.mxnet_bridge.symbol_json import SymbolNode

# Training's, calibration's and the GPU's attributes.
_IGNORED = ["momentum", "use_global_stats", "cudnn_off", "min_calib_range", "max_calib_range", "ndev", "key"]


def _refuse_statistics(attrs: Attrs) -> None:
    if attrs.bool("output_mean_var", False):
        raise UnsupportedError("output_mean_var=True is not supported")


@rule("BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm", operands=5, parameters=[1, 2, 3, 4],
      ignored=_IGNORED)
def batch_norm(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """With the moving statistics; `fix_gamma` makes gamma 1; any channel axis. Rank 2 and up."""
    _refuse_statistics(attrs)
    x, gamma, *rest = inputs
    if attrs.bool("fix_gamma", True):
        gamma = b.constant(np.ones(gamma.shape, gamma.type.element.numpy))
    axis, epsilon = normal_axis(attrs.int("axis", 1), len(x.shape)), attrs.float("eps", 1e-3)
    if axis == 1:
        return b.batch_norm(x, gamma, *rest, epsilon=epsilon)
    order = list(range(len(x.shape)))
    order.insert(1, order.pop(axis))
    back = tuple(int(i) for i in np.argsort(order))
    return b.transpose(b.batch_norm(b.transpose(x, order=order), gamma, *rest, epsilon=epsilon), order=back)


@rule("_contrib_BatchNormWithReLU", operands=5, parameters=[1, 2, 3, 4], ignored=_IGNORED)
def batch_norm_relu(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """BatchNorm, then ReLU."""
    return b.relu(batch_norm(b, inputs, attrs, node))


@rule("LayerNorm", operands=3, parameters=[1, 2])
def layer_norm(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value | list[Value]:
    """Over any one axis; `output_mean_var` gives the mean and the standard deviation too."""
    x, epsilon = inputs[0], attrs.float("eps", 1e-5)
    axis = normal_axis(attrs.int("axis", -1), len(x.shape))
    out = b.layer_norm(*inputs, axis=axis, epsilon=epsilon)
    if not attrs.bool("output_mean_var", False):
        return out
    mean = b.reduce_mean(x, axes=(axis,), keep_dims=True)
    variance = b.reduce_mean(b.square(b.subtract(x, mean)), axes=(axis,), keep_dims=True)
    return [out, mean, b.sqrt(b.add(variance, scalar(b, epsilon, x)))]


def _standardize(b: Builder, x: Value, axes: tuple[int, ...], epsilon: float) -> Value:
    """(x - mean) / sqrt(biased variance + epsilon) over `axes`."""
    centred = b.subtract(x, b.reduce_mean(x, axes=axes, keep_dims=True))
    variance = b.reduce_mean(b.square(centred), axes=axes, keep_dims=True)
    return b.divide(centred, b.sqrt(b.add(variance, scalar(b, epsilon, x))))


@rule("InstanceNorm", operands=3, parameters=[1, 2])
def instance_norm(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Over the spatial axes of each channel."""
    x, gamma, beta = inputs
    rank = len(x.shape)
    normal = _standardize(b, x, tuple(range(2, rank)), attrs.float("eps", 1e-3))
    return b.add(b.multiply(normal, along_axis(b, gamma, 1, rank)), along_axis(b, beta, 1, rank))


@rule("GroupNorm", operands=3, parameters=[1, 2])
def group_norm(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Over each group of channels and all spatial axes; gamma and beta are one for each group."""
    _refuse_statistics(attrs)
    x, gamma, beta = inputs
    groups = attrs.int("num_groups", 1)
    if gamma.shape != (groups,):
        raise UnsupportedError(f"gamma {gamma.type} is not one for each of {groups} groups")
    grouped = b.reshape(x, shape=(x.shape[0], groups, prod(x.shape[1:]) // groups))
    normal = _standardize(b, grouped, (2,), attrs.float("eps", 1e-5))
    out = b.add(b.multiply(normal, along_axis(b, gamma, 1, 3)), along_axis(b, beta, 1, 3))
    return b.reshape(out, shape=x.shape)


@rule("LRN", operands=1)
def lrn(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Across channels; `nsize` is odd."""
    return b.lrn(inputs[0], size=attrs.int("nsize"), alpha=attrs.float("alpha", 1e-4),
                 beta=attrs.float("beta", 0.75), bias=attrs.float("knorm", 2.0))


@rule("Dropout", operands=1, ignored=["p", "axes", "cudnn_off"])
def dropout(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The identity at inference; `mode=always` drops then too and stays with MXNet."""
    attrs.choice("mode", "training", ("training",))
    return inputs[0]
