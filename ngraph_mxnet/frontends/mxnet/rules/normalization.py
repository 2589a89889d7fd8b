"""Normalizations at inference, losses, densities and optimizers' updates.

With `output_mean_var` a normalization's statistics are outputs too; without, MXNet's further outputs are for its own
gradients, and do not exist here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import inf, prod

import numpy as np

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import Attrs
from ngraph_mxnet.frontends.mxnet.rules.registry import (
    FLOATS,
    MOVED,
    NUMBERS,
    Lowering,
    add_rule,
    axis_of,
    image_shape,
    rule,
    within_length,
)
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import f64
from ngraph_mxnet.ops.compositions import affine, moments, moved_axis, require_small, scalar, size_as

# Attributes that matter to training, calibration or GPUs only.
_IGNORED = ["momentum", "use_global_stats", "cudnn_off", "min_calib_range", "max_calib_range", "ndev", "key"]


Outputs = list[Value]


@rule("BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm", operands=5, parameters=[1, 2, 3, 4],
      ignored=_IGNORED)
def batch_norm(b: Builder, attrs: Attrs, x: Value, gamma: Value, beta: Value, mean: Value, variance: Value) -> Outputs:
    """With the moving statistics; `fix_gamma` makes gamma 1; any channel axis. Rank 2 and up.

    The statistics of `output_mean_var` are the moving mean and 1 / sqrt(moving variance + eps).
    """
    if attrs.bool("fix_gamma", True):
        require_small(*gamma.shape)
        gamma = b.constant(np.ones(gamma.shape, gamma.element.numpy))
    axis, epsilon = axis_of(attrs, x, 1), attrs.float("eps", 1e-3)
    statistics = []
    if attrs.bool("output_mean_var", False):
        statistics = [b.identity(mean), b.rsqrt(variance + epsilon)]
    if axis == 1:
        return [b.batch_norm(x, gamma, beta, mean, variance, epsilon=epsilon), *statistics]
    normal = b.batch_norm(moved_axis(b, x, axis, 1), gamma, beta, mean, variance, epsilon=epsilon)
    return [moved_axis(b, normal, 1, axis), *statistics]


@rule("_contrib_BatchNormWithReLU", operands=5, parameters=[1, 2, 3, 4], ignored=_IGNORED)
def batch_norm_relu(b: Builder, attrs: Attrs, *inputs: Value) -> Outputs:
    """BatchNorm, then ReLU."""
    normal, *statistics = batch_norm(b, attrs, *inputs)
    return [b.relu(normal), *statistics]


@rule("LayerNorm", operands=3, parameters=[1, 2])
def layer_norm(b: Builder, attrs: Attrs, x: Value, gamma: Value, beta: Value) -> Outputs:
    """Over any one axis; `output_mean_var` gives the mean and the standard deviation too."""
    axis, epsilon = axis_of(attrs, x, -1), attrs.float("eps", 1e-5)
    normal = b.layer_norm(x, gamma, beta, axis=axis, epsilon=epsilon)
    if not attrs.bool("output_mean_var", False):
        return [normal]
    mean, _, variance = moments(b, x, (axis,))
    return [normal, mean, b.sqrt(variance + epsilon)]


@rule("InstanceNorm", operands=3, parameters=[1, 2])
def instance_norm(b: Builder, attrs: Attrs, x: Value, gamma: Value, beta: Value) -> Value:
    """Over the spatial axes of each channel, of which there is one at least."""
    if x.rank < 3:
        raise UnsupportedError(f"found {x.type}, expected rank 3 or more")
    _, centred, variance = moments(b, x, range(2, x.rank))
    return affine(b, centred / b.sqrt(variance + attrs.float("eps", 1e-3)), gamma, beta)


@rule("GroupNorm", operands=3, parameters=[1, 2])
def group_norm(b: Builder, attrs: Attrs, x: Value, gamma: Value, beta: Value) -> Outputs:
    """Over each group of channels and all spatial axes; gamma and beta are one for each group.

    `output_mean_var` gives the mean and sqrt(variance + eps), one for each image and group.
    """
    groups = attrs.int("num_groups", 1)
    if gamma.shape != (groups,) or x.shape[1] % groups:
        raise UnsupportedError(f"gamma {gamma.type} is not one for each of {groups} groups of {x.type}")
    grouped = b.reshape(x, shape=(x.shape[0], groups, prod(x.shape[1:]) // groups))
    mean, centred, variance = moments(b, grouped, (2,))
    deviation = b.sqrt(variance + attrs.float("eps", 1e-5))
    out = affine(b, centred / deviation, gamma, beta)
    statistics = [mean, deviation] if attrs.bool("output_mean_var", False) else []
    return [b.reshape(out, shape=x.shape), *(b.reshape(v, shape=(x.shape[0], groups)) for v in statistics)]


@rule("LRN", operands=1)
def lrn(b: Builder, attrs: Attrs, x: Value) -> Value:
    """Across the channels of images; `nsize` is odd."""
    image_shape(x)
    size, alpha, beta, bias = attrs.int("nsize"), attrs.float("alpha", 1e-4), attrs.float("beta", 0.75), attrs.float(
        "knorm", 2.0)
    if beta == 0:  # anything to the power of 0 is 1, also what has no logarithm
        return x
    return b.lrn(x, size=size, alpha=alpha, beta=beta, bias=bias)


@rule("Dropout", operands=1, types=FLOATS, ignored=["p", "axes", "cudnn_off"])
def dropout(b: Builder, attrs: Attrs, x: Value) -> Value:
    """The identity at inference; `mode=always` drops then too and stays with MXNet."""
    attrs.choice("mode", "training", ("training",))
    return x


def over_axis(b: Builder, op: str, x: Value, axis: int) -> Value:
    """`softmax` or `log_softmax`; float64 in several ops, as kernels of these two take float32 only."""
    if x.element is not f64:
        return b.apply(op, x, axis=axis)
    shifted = x - b.reduce_max(x, axes=(axis % x.rank,), keep_dims=True)
    power = b.exp(shifted)
    total = b.reduce_sum(power, axes=(axis % x.rank,), keep_dims=True)
    return power / total if op == "softmax" else shifted - b.log(total)


def _softmax(op: str, *, negated: bool = False) -> Lowering:
    def lower(b: Builder, attrs: Attrs, x: Value, lengths: Value | None = None) -> Value:
        """Any axis, with a temperature; `use_length`: what lies at or behind a length along the axis gets 0."""
        axis, temperature = axis_of(attrs, x, -1), attrs.float("temperature", 1.0)
        if negated:
            x = -x
        if temperature != 1:
            x = x / temperature
        if not attrs.bool("use_length", False):
            return over_axis(b, op, x, axis)
        if lengths is None:
            raise UnsupportedError("use_length=True, but there is no input of lengths")
        kept = within_length(b, x, lengths, axis)
        y = over_axis(b, op, b.select(kept, x, -inf), axis)
        return b.select(kept, y, 0)

    return lower


for _name in ("softmax", "log_softmax", "softmin"):
    add_rule(_softmax(_name.replace("min", "max"), negated=_name == "softmin"), _name, operands=(1, 2), types=NUMBERS,
             result="dtype")


@rule("SoftmaxActivation", operands=1, types=FLOATS)
def softmax_activation(b: Builder, attrs: Attrs, x: Value) -> Value:
    """mode=channel: over axis 1; mode=instance: over the last axis, whatever MXNet's text says."""
    mode = attrs.choice("mode", "instance", ("instance", "channel"))
    return over_axis(b, "softmax", x, 1 if mode == "channel" else -1)


@rule("SoftmaxOutput", operands=(1, 2), types=FLOATS,
      ignored=["grad_scale", "ignore_label", "use_ignore", "normalization", "out_grad", "smooth_alpha"])
def softmax_output(b: Builder, attrs: Attrs, x: Value, *_: Value) -> Value:
    """multi_output: over axis 1; preserve_shape: over the last axis; without either, of rank 2 only.

    Without either, MXNet's documentation says that all axes but 0 count as one, and its oneDNN kernel takes the last
    axis: what is of another rank stays with MXNet.
    """
    preserve = attrs.bool("preserve_shape", False)
    if attrs.bool("multi_output", False):
        return over_axis(b, "softmax", x, 1)
    if not preserve and x.rank != 2:
        raise UnsupportedError(f"{x.type} without multi_output or preserve_shape: MXNet's kernels disagree")
    return over_axis(b, "softmax", x, -1)


@rule("LogisticRegressionOutput", operands=(1, 2), types=FLOATS, ignored=["grad_scale"])
def logistic_output(b: Builder, attrs: Attrs, x: Value, *_: Value) -> Value:
    """The sigmoid of the data."""
    return b.sigmoid(x)


@rule("LinearRegressionOutput", "MAERegressionOutput", "SVMOutput", "MakeLoss", "make_loss", operands=(1, 2),
      types=MOVED, ignored=["grad_scale", "margin", "regularization_coefficient", "use_linear", "valid_thresh",
                            "normalization"])
def data_output(b: Builder, attrs: Attrs, x: Value, *_: Value) -> Value:
    """The data."""
    return x


@rule("softmax_cross_entropy", operands=2, types=FLOATS)
def softmax_cross_entropy(b: Builder, attrs: Attrs, x: Value, label: Value) -> Value:
    """The sum over rows of -log(softmax(row)[label]), the probability at least 1e-8, in shape (1,)."""
    return cross_entropy(b, *picked_logarithms(b, x, label))


def picked_logarithms(b: Builder, x: Value, label: Value) -> tuple[Value, Value]:
    """Return log_softmax of each row of a matrix at the row's label, and if the label is a class; both [rows, 1].

    Raises:
        UnsupportedError: x is no matrix, or there is not one label for each row.
    """
    if x.rank != 2 or label.shape != x.shape[:1]:
        raise UnsupportedError(f"found {x.type} and {label.type}, expected a matrix and a label for each row")
    labels = b.trunc(b.reshape(label, shape=(x.shape[0], 1)))
    picked = b.gather_elements(over_axis(b, "log_softmax", x, 1), b.convert(labels, element="i64"), axis=1)
    return picked, (labels >= 0) & (labels < size_as(b, x.shape[1], labels))


def cross_entropy(b: Builder, picked: Value, is_class: Value) -> Value:
    """The sum of the logarithms, each at least log(1e-8), where the label is a class; negative, in shape (1,)."""
    logs = b.select(is_class, b.maximum(picked, math.log(1e-8)), 0)
    return b.reshape(-b.reduce_sum(logs, axes=(0, 1)), shape=(1,))


Log = Callable[..., Value]
"""Makes the logarithm of the density from a builder, samples, and parameters that broadcast to them."""


def _density(log: Log) -> Lowering:
    def lower(b: Builder, attrs: Attrs, sample: Value, *parameters: Value) -> Value:
        """Samples have the shape of the parameters, and axes behind it for several samples of each."""
        shape = parameters[0].shape
        if sample.shape[: len(shape)] != shape or any(value.shape != shape for value in parameters):
            raise UnsupportedError(f"found samples {sample.type} and parameters "
                                   f"{', '.join(str(value.type) for value in parameters)}")
        ones = (1,) * (sample.rank - len(shape))
        spread = [b.broadcast(b.reshape(value, shape=(*shape, *ones)), shape=sample.shape) for value in parameters]
        return _result(b, log(b, sample, *spread), attrs)

    return lower


def _result(b: Builder, log: Value, attrs: Attrs) -> Value:
    return log if attrs.bool("is_log", False) else b.exp(log)


def _uniform(b: Builder, sample: Value, low: Value, high: Value) -> Value:
    """The density of any sample: MXNet does not look whether it is between the bounds."""
    return -b.log(high - low)


def _normal(b: Builder, sample: Value, mean: Value, deviation: Value) -> Value:
    scaled = (sample - mean) / deviation
    square = scaled * scaled * -0.5
    return square - (b.log(deviation) + math.log(2 * math.pi) / 2)


def _gamma(b: Builder, sample: Value, shape: Value, rate: Value) -> Value:
    powers = shape * b.log(rate) + _less_one(b, shape) * b.log(sample)
    return powers - rate * sample - b.lgamma(shape)


def _exponential(b: Builder, sample: Value, rate: Value) -> Value:
    return b.log(rate) - rate * sample


def _poisson(b: Builder, sample: Value, rate: Value) -> Value:
    return sample * b.log(rate) - _log_factorial(b, sample) - rate


def _negative_binomial(b: Builder, sample: Value, limit: Value, failure: Value) -> Value:
    ways = b.lgamma(sample + limit) - _log_factorial(b, sample) - b.lgamma(limit)
    success = b.log(1 - failure)
    return ways + (limit * b.log(failure) + sample * success)


def _generalized_negative_binomial(b: Builder, sample: Value, mean: Value, dispersion: Value) -> Value:
    one = scalar(b, 1, sample)
    limit, failure = one / dispersion, one / (mean * dispersion + one)
    return _negative_binomial(b, sample, limit, failure)


def _less_one(b: Builder, x: Value) -> Value:
    return x - 1


def _log_factorial(b: Builder, x: Value) -> Value:
    return b.lgamma(x + 1)


for _name, _log, _operands in (
        ("uniform", _uniform, 3), ("normal", _normal, 3), ("gamma", _gamma, 3), ("exponential", _exponential, 2),
        ("poisson", _poisson, 2), ("negative_binomial", _negative_binomial, 3),
        ("generalized_negative_binomial", _generalized_negative_binomial, 3)):
    add_rule(_density(_log), f"_random_pdf_{_name}", operands=_operands)


@rule("_random_pdf_dirichlet", operands=2)
def dirichlet(b: Builder, attrs: Attrs, sample: Value, alpha: Value) -> Value:
    """Samples [*D, ..., K] and concentrations [*D, K] -> [*D, ...]."""
    lead, last = alpha.shape[:-1], alpha.shape[-1:]
    if sample.shape[: len(lead)] != lead or sample.shape[-1:] != last or sample.rank < 2:
        raise UnsupportedError(f"found samples {sample.type} and concentrations {alpha.type}")
    ones = (1,) * (sample.rank - alpha.rank)
    alpha = b.reshape(alpha, shape=(*lead, *ones, *last))
    axes = (sample.rank - 1,)
    powers = b.reduce_sum(_less_one(b, alpha) * b.log(sample), axes=axes)
    whole = b.lgamma(b.reduce_sum(alpha, axes=axes)) - b.reduce_sum(b.lgamma(alpha), axes=axes)
    return _result(b, powers + whole, attrs)


@rule("sgd_update", operands=2, types=FLOATS, ignored=["lazy_update"])
def sgd_update(b: Builder, attrs: Attrs, weight: Value, gradient: Value) -> Value:
    """weight - lr (clip(rescale_grad gradient) + wd weight), clipped where `clip_gradient` is not negative."""
    bound = attrs.float("clip_gradient", -1.0)
    step = gradient * attrs.float("rescale_grad", 1.0)
    if bound >= 0:
        step = b.clamp(step, lower=-bound, upper=bound)
    step = step + weight * attrs.float("wd", 0.0)
    return weight - step * attrs.float("lr")
