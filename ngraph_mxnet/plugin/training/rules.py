"""MXNet's operators in training: their rules, the variables that they write, and dropout's random numbers.

The variables are moving statistics and fixed gammas. Random numbers follow from a state that each step gets. This
module imports no adjoints: a program from the cache needs none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from math import inf, prod

import numpy as np

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import Attrs, canonical
from ngraph_mxnet.frontends.mxnet.rules.images import trained_pooling
from ngraph_mxnet.frontends.mxnet.rules.normalization import cross_entropy, picked_logarithms
from ngraph_mxnet.frontends.mxnet.rules.recurrent import recurrent_layers
from ngraph_mxnet.frontends.mxnet.rules.registry import Call, Lowering, Rule, axis_of, find_rule, normal_axis
from ngraph_mxnet.frontends.mxnet.symbol_json import SymbolNode
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.sizes import greatest, is_symbolic
from ngraph_mxnet.ops.compositions import converted, full, iota, moved_axis, places_of, reshaped, scalar, size_as
from ngraph_mxnet.ops.random import next_stream, state_of


@dataclass(frozen=True)
class Statistic:
    """A statistic that moves with each backward pass in training mode through its batch norm. As in MXNet, forward
    passes write no statistics. A backward pass writes those of the nodes that it comes through, whatever the gradient
    is there.

    Attributes:
        name: the variable, which becomes itself * momentum + the batch's * (1 - momentum).
        of: names of the wanted parameters, a gradient of any of which comes through the batch norm.
    """

    name: str
    momentum: float
    of: tuple[str, ...]


@dataclass(frozen=True)
class Gamma:
    """A gamma that a forward pass overwrites with ones; `name` of the variable, `of` as in `Statistic`."""

    name: str
    of: tuple[str, ...]


def dropped(b: Builder, x: Value, rate: float, axes: Collection[int] = ()) -> Value:
    """Each element is 0 with the probability `rate`, else x / (1 - rate); along `axes` all share their lot.

    Each call draws from a stream of its own. The mask is bool and what the gradient takes, too: saved from forward to
    backward it has a quarter of the bytes of x, and reading it costs less than drawing it again.

    Raises:
        UnsupportedError: all is dropped.
    """
    if rate <= 0:
        return x
    if rate >= 1:
        raise UnsupportedError(f"p={rate} drops everything")
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    mask = b.random_mask(state_of(b), shape=shape, keep=1 - rate, stream=next_stream(b))
    share = np.float32(1) / (np.float32(1) - np.float32(rate))  # as MXNet rounds it
    return b.select(mask, x * float(share), 0)


_ODD = "MXNet's own gradient is not that of what it computes"

#: By a pattern of names; the first that matches counts.
_LEFT: dict[str, str] = {
    r"_contrib_(quantize|dequantize|requantize|quantized_).*|_contrib_quantize_v2|_sg_mkldnn_.*":
        "MXNet has no gradients of quantised and fused graphs",
    r"_npi_(rarctan2_scalar|where_lscalar|where_rscalar|var|std)|_np_atleast_[123]d": _ODD,
    r"Convolution_v1|BatchNorm_v1": "it is an older form, whose gradient is another",
    r"_foreach|_while_loop|_cond": "MXNet records what its bodies do, trip by trip, and goes back through that",
    r"_contrib_SyncBatchNorm": "its statistics are those of several devices",
    r"IdentityAttachKLSparseReg": "its gradient depends on a moving average that it hides",
}


def why_not_trained(op: str) -> str | None:
    """Why an operator of this name is not trained; None when no reason is on record."""
    name = canonical(op)
    return next((reason for names, reason in _LEFT.items() if re.fullmatch(names, name)), None)


_TRAINING: dict[str, Rule] = {}
_PREDICTING: dict[str, Rule] = {}
"""The rules of operators that go back in another way when `backward` is in predict mode, after a forward pass in
training mode."""
_STATISTICS = ("BatchNorm", "_contrib_BatchNormWithReLU")
"""Operators whose outputs 1 and 2 are the batch's mean and biased variance; inputs 3 and 4 are the moving ones."""
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805
"""Constants of mshadow_op.h."""


def find_training_rule(op: str) -> Rule | None:
    """The rule of an operator for training, if there is one.

    Raises:
        UnsupportedError: it is not trained here, though it runs at inference.
    """
    why = why_not_trained(op)
    if why is not None:
        raise UnsupportedError(f"{op} is not trained: {why}")
    return _TRAINING.get(canonical(op)) or find_rule(op)


def find_predicting_rule(op: str) -> Rule | None:
    """Return the rule as `find_training_rule` does, for a `backward` in predict mode. MXNet's batch norm then takes the
    moving statistics for constants; a mask of dropout stays."""
    return find_training_rule(op) and (_PREDICTING.get(canonical(op)) or find_training_rule(op))


def fixes_gamma(node: SymbolNode) -> bool:
    """True if MXNet's forward pass writes ones into the node's gamma."""
    return canonical(node.op) in _STATISTICS and Attrs(node.attrs, node.origin).bool("fix_gamma", True)


def updates_statistics(node: SymbolNode, attrs: Attrs) -> bool:
    """True if a training step moves the node's moving mean and variance."""
    return canonical(node.op) in _STATISTICS and not attrs.bool("use_global_stats", False)


def why_modal(node: SymbolNode) -> str | None:
    """Why the operator does something else in training than at inference; None where it does the same."""
    attrs, op = Attrs(node.attrs, node.origin), canonical(node.op)
    if (op == "Dropout" and attrs.float("p", 0.5) > 0) or (op == "RNN" and attrs.float("p", 0.0) > 0):
        return f"{node.origin} drops elements in training only"
    if updates_statistics(node, attrs):
        return f"{node.origin} takes the batch's statistics in training only"
    return None


def _in_training(*names: str, ignored: Sequence[str] = (),
                 rules: dict[str, Rule] = _TRAINING) -> Callable[[Lowering], Lowering]:
    """Decorator: the lowering for training of operators that have a rule for inference."""

    def declare(lower: Lowering) -> Lowering:
        for name in names:
            own = find_rule(name)
            assert own is not None, name
            rules[canonical(name)] = replace(own, lower=lower, ignored=tuple(ignored))
        return lower

    return declare


@_in_training("SoftmaxActivation")
def _softmax_activation(b: Builder, attrs: Call, x: Value) -> Value:
    if x.rank != 2:
        raise UnsupportedError(f"{x.type}: MXNet's gradient is that of rows of a matrix")
    return _same(b, attrs, x)


def _same(b: Builder, attrs: Call, *inputs: Value) -> Value:
    """Lower the operator as at inference."""
    rule = find_rule(attrs.node.op)
    assert rule is not None
    attrs.ignore(*rule.ignored)
    lowered = rule.lower(b, attrs, *inputs)
    assert isinstance(lowered, Value)
    return lowered


_NOT_OF_NORMS = ("momentum", "cudnn_off", "min_calib_range", "max_calib_range")


@_in_training("BatchNorm", "_contrib_BatchNormWithReLU", ignored=_NOT_OF_NORMS)
def _batch_norm(b: Builder, attrs: Call, *inputs: Value) -> list[Value]:
    """With the batch's statistics, which the outputs behind it are; with the moving ones where `use_global_stats`."""
    return _normalized(b, attrs, *inputs)


@_in_training("BatchNorm", "_contrib_BatchNormWithReLU", ignored=_NOT_OF_NORMS, rules=_PREDICTING)
def _batch_norm_back_in_predict_mode(b: Builder, attrs: Call, *inputs: Value) -> list[Value]:
    return _normalized(b, attrs, *inputs, predicting=True)


def _normalized(b: Builder, attrs: Call, x: Value, gamma: Value, beta: Value, mean: Value, variance: Value, *,
                predicting: bool = False) -> list[Value]:
    if attrs.bool("output_mean_var", False):
        raise UnsupportedError("output_mean_var in training")
    if attrs.bool("fix_gamma", True):
        gamma = b.constant(np.ones(gamma.shape, gamma.element.numpy))
    axis, epsilon = axis_of(attrs, x, 1), attrs.float("eps", 1e-3)
    wide = x if axis == 1 else moved_axis(b, x, axis, 1)
    made: list[Value] = []
    is_global = attrs.bool("use_global_stats", False)
    if is_global or predicting:
        made = [b.batch_norm(wide, gamma, beta, b.stop_gradient(mean), b.stop_gradient(variance), epsilon=epsilon)]
    if not is_global:
        moved = made
        made = list(b.node("batch_norm_training", [wide, gamma, beta], {"epsilon": epsilon}).outputs)
        if moved:  # goes back in the place of what it is
            made[0] = b.own_gradient(made[0], moved[0], full(b, 1, wide), scaled=True)
    normal = made[0] if axis == 1 else moved_axis(b, made[0], 1, axis)
    return [b.relu(normal) if canonical(attrs.node.op) == "_contrib_BatchNormWithReLU" else normal, *made[1:]]


@_in_training("LayerNorm", "GroupNorm")
def _with_statistics(b: Builder, attrs: Call, *inputs: Value) -> list[Value]:
    """Nothing goes back from the statistics."""
    rule = find_rule(attrs.node.op)
    assert rule is not None
    lowered = rule.lower(b, attrs, *inputs)
    assert not isinstance(lowered, Value)
    return [lowered[0], *(b.stop_gradient(value) for value in lowered[1:])]


@_in_training("LeakyReLU")
def _leaky_relu(b: Builder, attrs: Call, *inputs: Value) -> Value:
    if attrs.node.attrs.get("act_type") == "rrelu":
        raise UnsupportedError("rrelu draws random numbers when it trains")
    y = _same(b, attrs, *inputs)
    if attrs.node.attrs.get("act_type") != "selu":
        return y
    # MXNet's gradient (selu_grad in mshadow_op.h) below 0 is scale * (alpha + y), the derivative scale * alpha + y.
    below = (y + _SELU_ALPHA) * _SELU_SCALE
    slope = b.select(y > 0, full(b, _SELU_SCALE, y), below)
    return b.own_gradient(y, inputs[0], slope, scaled=True)


_in_training("Pooling", ignored=["cudnn_off"])(trained_pooling)


@_in_training("Pooling_v1")
def _pooling_v1(b: Builder, attrs: Call, *inputs: Value) -> Value:
    if attrs.choice("pool_type", "max", ("max", "avg", "sum")) == "max" and not attrs.bool("global_pool", False):
        raise UnsupportedError("MXNet's gradient goes to all of a window's greatest elements, not to one of them")
    return _same(b, attrs, *inputs)


@_in_training("hard_sigmoid")
def _hard_sigmoid(b: Builder, attrs: Call, x: Value) -> Value:
    """Nothing goes back from its corners, where a clamp passes on what comes."""
    y = _same(b, attrs, x)
    inside = (y > 0) & (y < 1)
    slope = b.select(inside, attrs.float("alpha", 0.2), scalar(b, 0, y))
    return b.own_gradient(y, x, slope, scaled=True)


@_in_training("Dropout", ignored=["cudnn_off"])
def _dropout(b: Builder, attrs: Attrs, x: Value) -> Value:
    """Along `axes` there is one mask for all places."""
    attrs.choice("mode", "training", ("training", "always"))
    return dropped(b, x, attrs.float("p", 0.5), [normal_axis(axis, x.rank) for axis in attrs.ints("axes", ())])


@_in_training("RNN", ignored=["lstm_state_clip_min", "lstm_state_clip_max", "lstm_state_clip_nan"])
def _rnn(b: Builder, attrs: Attrs, *inputs: Value) -> list[Value]:
    """Lower an RNN. Dropout with probability `p` applies to what a layer gives to the next layer."""
    rate = attrs.float("p", 0.0)
    return recurrent_layers(b, attrs, inputs, lambda x: dropped(b, x, rate))


@_in_training("BlockGrad")
def _block_grad(b: Builder, attrs: Attrs, x: Value, *_: Value) -> Value:
    return b.stop_gradient(x)


@_in_training("_contrib_box_iou", "_contrib_box_decode", "_ravel_multi_index", "_unravel_index")
def _nothing_back(b: Builder, attrs: Call, *inputs: Value) -> Value:
    """MXNet's gradients are zeros."""
    return _same(b, attrs, *(b.stop_gradient(value) for value in inputs))


@_in_training("_random_pdf_poisson", "_random_pdf_negative_binomial", "_random_pdf_generalized_negative_binomial")
def _counts(b: Builder, attrs: Call, sample: Value, *parameters: Value) -> Value:
    """Nothing goes back to samples that are counts (random/pdf_op.h)."""
    return _same(b, attrs, b.stop_gradient(sample), *parameters)


@_in_training("_contrib_round_ste", "_contrib_sign_ste")
def _straight_through(b: Builder, attrs: Call, x: Value) -> Value:
    ones = full(b, 1, x)
    return b.own_gradient(_same(b, attrs, x), x, ones, scaled=True)


@_in_training("_contrib_gradientmultiplier")
def _multiplied(b: Builder, attrs: Attrs, x: Value) -> Value:
    factor = full(b, attrs.float("scalar", 0.0), x)
    return b.own_gradient(x, x, factor, scaled=True)


@_in_training("SoftmaxOutput")
def _softmax_output(b: Builder, attrs: Call, x: Value, label: Value) -> Value:
    """The softmax less the label's one-hot row, or less a label of the data's shape.

    With `out_grad` times the softmax once more: MXNet passes the output where its text promises the output's gradient,
    which no one reads. `smooth_alpha` counts without `multi_output` only.
    """
    multiple = attrs.bool("multi_output", False)
    y = _same(b, attrs, x, label)
    squared = attrs.bool("out_grad", False)
    scale = attrs.float("grad_scale", 1.0)
    if label.shape == x.shape:
        gradient = (y - converted(b, label, y)) * scale
        return b.own_gradient(y, x, gradient * y if squared else gradient)
    axis = 1 if multiple else x.rank - 1
    classes, places = x.shape[axis], [size for own, size in enumerate(x.shape) if own != axis]
    if label.size != prod(places):
        raise UnsupportedError(f"labels {label.type} for {x.type}")
    wanted = [1 if own == axis else size for own, size in enumerate(x.shape)]
    labels = reshaped(b, converted(b, label, y), wanted)
    alpha = attrs.float("smooth_alpha", 0.0)
    if alpha and not multiple:
        numbers = iota(b, classes, axis, x.rank, y.element.name)
        chosen = b.equal(b.trunc(labels), numbers)
        target = b.select(chosen, 1 - alpha, scalar(b, alpha / (classes - 1) if classes > 1 else inf, y))
        gradient = y - target
    else:
        gradient = _less_one_at(b, y, b.trunc(labels), axis)
    kept = b.not_equal(b.trunc(labels), float(int(attrs.float("ignore_label", -1.0))))
    if attrs.bool("use_ignore", False):
        gradient = b.select(kept, gradient, 0)
    normalization = attrs.choice("normalization", "null", ("null", "batch", "valid"))
    inner = prod(x.shape[2:]) if multiple else 1
    if normalization == "valid":
        count = b.maximum(b.reduce_sum(b.convert(kept, element=y.element), axes=range(x.rank)), 1)
        gradient = gradient * scale / count
    else:
        batch = x.shape[0] if multiple else label.size
        share = inner * (batch if normalization == "batch" else 1)
        gradient = gradient * _shared(b, scale, share, y)
    return b.own_gradient(y, x, gradient * y if squared else gradient)


def _shared(b: Builder, scale: float, count: int, like: Value) -> Value:
    """scale / count, of a size."""
    return scale / size_as(b, count, like) if is_symbolic(count) else scalar(b, scale / count, like)


def _less_one_at(b: Builder, y: Value, labels: Value, axis: int) -> Value:
    """y, less 1 where the place along `axis` is the label: of a million classes one element a row changes."""
    shape, classes = y.shape, y.shape[axis]
    places = [size for own, size in enumerate(shape) if own != axis]
    rest = iter(b.reshape(places_of(b, places, own), shape=(1, prod(places))) for own in range(len(places)))
    labels = b.reshape(labels, shape=(1, prod(places)))
    chosen = b.clamp(b.convert(labels, element="i64"), lower=0, upper=classes - 1)
    indices = b.concat(*(chosen if own == axis else next(rest) for own in range(len(shape))), axis=0)
    is_class = (labels >= 0) & (labels < classes)
    ones = b.select(is_class, -1, scalar(b, 0, y))
    return b.scatter_nd(y, indices, b.reshape(ones, shape=(prod(places),)), reduction="add")


@_in_training("softmax_cross_entropy")
def _softmax_cross_entropy(b: Builder, attrs: Call, x: Value, label: Value) -> Value:
    """The value has a least probability, the gradient has none: it is that of logarithms that add 0 to the value."""
    picked, is_class = picked_logarithms(b, x, converted(b, label, x))
    y = cross_entropy(b, picked, is_class)
    logs = b.select(is_class, picked, 0)
    zeros, back = (full(b, number, logs) for number in (0, -1))
    nothing = b.reduce_sum(b.own_gradient(zeros, logs, back, scaled=True), axes=(0, 1))
    return b.stop_gradient(y) + b.reshape(nothing, shape=y.shape)


@_in_training("LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput")
def _regression(b: Builder, attrs: Call, x: Value, label: Value) -> Value:
    """The output less the label, or its sign, over the label's elements of one row."""
    y = b.sigmoid(x) if canonical(attrs.node.op) == "LogisticRegressionOutput" else x
    difference = y - reshaped(b, converted(b, label, y), y.shape)
    if canonical(attrs.node.op) == "MAERegressionOutput":
        difference = b.sign(difference)
    count = greatest(label.size // greatest(label.shape[0], 1), 1)
    return b.own_gradient(y, x, difference * _shared(b, attrs.float("grad_scale", 1.0), count, y))


@_in_training("MakeLoss")
def _make_loss(b: Builder, attrs: Attrs, x: Value) -> Value:
    """A constant for each element. As a batch count all axes but the last, as MXNet takes x for a matrix."""
    scale = attrs.float("grad_scale", 1.0)
    normalization, threshold = attrs.choice("normalization", "null", ("null", "batch", "valid")), attrs.float(
        "valid_thresh", 0.0)
    share = _shared(b, scale, prod(x.shape[:-1]) if normalization == "batch" else 1, x)
    if normalization == "valid":
        valid = b.convert(x > threshold, element=x.element)
        share = share / b.maximum(b.reduce_sum(valid, axes=range(x.rank)), 1)
    return b.own_gradient(x, x, b.broadcast(share, shape=x.shape))


@_in_training("make_loss")
def _ones(b: Builder, attrs: Attrs, x: Value) -> Value:
    return b.own_gradient(x, x, full(b, 1, x))


@_in_training("SVMOutput")
def _svm_output(b: Builder, attrs: Attrs, x: Value, label: Value) -> Value:
    """Hinge losses of one class against the rest, linear or squared."""
    margin = attrs.float("margin", 1.0)
    factor, linear = attrs.float("regularization_coefficient", 1.0), attrs.bool("use_linear", False)
    if x.rank != 2 or label.shape != x.shape[:1]:
        raise UnsupportedError(f"found {x.type} and {label.type}, expected a matrix and a label for each row")
    columns = iota(b, x.shape[1], 0, 1, x.element.name)
    chosen = b.equal(b.trunc(b.reshape(converted(b, label, x), shape=(x.shape[0], 1))), columns)
    signed = b.select(chosen, x, -x)
    missed, zero = margin - signed, scalar(b, 0, x)
    size = scalar(b, factor, x) if linear else missed * (2 * factor)
    hinge = b.select(missed > zero, b.broadcast(size, shape=x.shape), zero)
    return b.own_gradient(x, x, b.select(chosen, -hinge, hinge))
