"""Softmax, and the output layers, which at inference give their prediction.

A label stays an input of the graph, read by no one: MXNet binds it.
"""

from __future__ import annotations

from math import inf

from ngraph_mxnet.bridges.mxnet.rules.common import normal_axis, within_length
from ngraph_mxnet.bridges.mxnet.rules.registry import FLOATS, MOVED, NUMBERS, Lowering, add_rule, rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.tensors import iota, scalar
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import f64


def over_axis(b: Builder, op: str, x: Value, axis: int) -> Value:
    """`softmax` or `log_softmax`; float64 in several ops, as kernels of these two take float32 only."""
    if x.type.element is not f64:
        return b.apply(op, x, axis=axis)
    shifted = b.subtract(x, b.reduce_max(x, axes=(axis % x.type.rank,), keep_dims=True))
    power = b.exp(shifted)
    total = b.reduce_sum(power, axes=(axis % x.type.rank,), keep_dims=True)
    return b.divide(power, total) if op == "softmax" else b.subtract(shifted, b.log(total))


def _softmax(op: str, *, negated: bool = False) -> Lowering:
    def lower(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
        """Any axis, with a temperature; `use_length`: what lies at or behind a length along the axis gets 0."""
        x = inputs[0]
        axis, temperature = normal_axis(attrs.int("axis", -1), len(x.shape)), attrs.float("temperature", 1.0)
        if negated:
            x = b.negative(x)
        if temperature != 1:
            x = b.divide(x, scalar(b, temperature, x))
        if not attrs.bool("use_length", False):
            return over_axis(b, op, x, axis)
        if len(inputs) < 2:
            raise UnsupportedError("use_length=True, but there is no input of lengths")
        kept = within_length(b, x, inputs[1], axis)
        y = over_axis(b, op, b.select(kept, x, scalar(b, -inf, x)), axis)
        return b.select(kept, y, scalar(b, 0, x))

    return lower


add_rule(_softmax("softmax"), "softmax", operands=(1, 2), types=NUMBERS, result="dtype")
add_rule(_softmax("log_softmax"), "log_softmax", operands=(1, 2), types=NUMBERS, result="dtype")
add_rule(_softmax("softmax", negated=True), "softmin", operands=(1, 2), types=NUMBERS, result="dtype")


@rule("SoftmaxActivation", operands=1, types=FLOATS)
def softmax_activation(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """mode=channel: over axis 1; mode=instance: over the last axis, whatever MXNet's text says."""
    mode = attrs.choice("mode", "instance", ("instance", "channel"))
    return over_axis(b, "softmax", inputs[0], 1 if mode == "channel" else -1)


@rule("SoftmaxOutput", operands=(1, 2), types=FLOATS,
      ignored=["grad_scale", "ignore_label", "use_ignore", "normalization", "out_grad", "smooth_alpha"])
def softmax_output(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """multi_output: over axis 1; preserve_shape: over the last axis; without either, of rank 2 only.

    Without either, MXNet's documentation says that all axes but 0 count as one, and its oneDNN kernel takes the last
    axis: what is of another rank stays with MXNet.
    """
    x = inputs[0]
    preserve = attrs.bool("preserve_shape", False)
    if attrs.bool("multi_output", False):
        return over_axis(b, "softmax", x, 1)
    if not preserve and len(x.shape) != 2:
        raise UnsupportedError(f"{x.type} without multi_output or preserve_shape: MXNet's kernels disagree")
    return over_axis(b, "softmax", x, -1)


@rule("LogisticRegressionOutput", operands=(1, 2), types=FLOATS, ignored=["grad_scale"])
def logistic_output(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The sigmoid of the data."""
    return b.sigmoid(inputs[0])


@rule("LinearRegressionOutput", "MAERegressionOutput", "SVMOutput", "MakeLoss", "make_loss", operands=(1, 2),
      types=MOVED, ignored=["grad_scale", "margin", "regularization_coefficient", "use_linear", "valid_thresh",
                            "normalization"])
def data_output(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The data."""
    return inputs[0]


@rule("softmax_cross_entropy", operands=2, types=FLOATS)
def softmax_cross_entropy(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The sum over rows of -log(softmax(row)[label]), the probability at least 1e-8, in shape (1,)."""
    x, label = inputs
    if x.type.rank != 2 or label.shape != x.shape[:1]:
        raise UnsupportedError(f"found {x.type} and {label.type}, expected a matrix and a label for each row")
    places = iota(b, x.shape[1], 0, 1, x.type.element.name)
    chosen = b.equal(b.trunc(b.reshape(label, shape=(x.shape[0], 1))), places)
    logs = b.log(b.maximum(over_axis(b, "softmax", x, 1), scalar(b, 1e-8, x)))
    total = b.reduce_sum(b.select(chosen, logs, scalar(b, 0, x)), axes=(0, 1))
    return b.reshape(b.negative(total), shape=(1,))
