"""What MXNet's registry tells of operators beside their maths: shapes of inputs, names of outputs.

`WANTED` has the shapes of weights, states and labels, from the first input and the attributes. `EQUAL` says which axes
of an operator's inputs have equal sizes: they tell the sizes that a symbol leaves open. `OUTPUTS` has names. All three
are as MXNet 1.9.1's, with which tests compare them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from ngraph_mxnet.frontends.mxnet.attrs import Attrs, canonical
from ngraph_mxnet.frontends.mxnet.symbol_json import SymbolNode
from ngraph_mxnet.ir.sizes import is_one
from ngraph_mxnet.ir.types import Shape
from ngraph_mxnet.ops.recurrent import GATES

Wanted = Callable[[Attrs, Shape], Mapping[int, Shape]]
"""The shapes of further inputs by their places. It may raise IndexError or ZeroDivisionError where the data don't
fit."""


def _dense(attrs: Attrs, data: Shape) -> Mapping[int, Shape]:
    units = attrs.int("num_hidden")
    depth = prod(data[1:]) if attrs.bool("flatten", True) else data[-1]
    return {1: (units, depth), 2: (units,)}


def _has_channels_first(attrs: Attrs) -> bool:
    return not attrs.has("layout") or attrs.text("layout")[:2] == "NC"


def _convolution(attrs: Attrs, data: Shape) -> Mapping[int, Shape]:
    filters, kernel, groups = attrs.int("num_filter"), attrs.ints("kernel"), attrs.int("num_group", 1)
    if not _has_channels_first(attrs):
        return {1: (filters, *kernel, data[-1] // groups), 2: (filters,)}
    return {1: (filters, data[1] // groups, *kernel), 2: (filters,)}


def _deconvolution(attrs: Attrs, data: Shape) -> Mapping[int, Shape]:
    if not _has_channels_first(attrs):
        return {}
    filters, groups = attrs.int("num_filter"), attrs.int("num_group", 1)
    return {1: (data[1], filters // groups, *attrs.ints("kernel")), 2: (filters,)}


def _deformable(attrs: Attrs, data: Shape) -> Mapping[int, Shape]:
    weights = _convolution(attrs, data)
    return {3: weights[1], 4: weights[2]}


def _prelu(attrs: Attrs, data: Shape) -> Mapping[int, Shape]:
    return {1: (data[1],)} if attrs.text("act_type", "leaky") == "prelu" else {}


def _per_axis(axis: int, count: int) -> Wanted:
    """So many inputs with a number for each place along an axis, by default this one."""
    return lambda attrs, data: dict.fromkeys(range(1, 1 + count), (data[attrs.int("axis", axis)],))


def _per_channel(attrs: Attrs, data: Shape) -> Mapping[int, Shape]:
    return {1: (data[1],), 2: (data[1],)}


def _per_group(attrs: Attrs, data: Shape) -> Mapping[int, Shape]:
    groups = attrs.int("num_groups", 1)
    return {1: (groups,), 2: (groups,)}


def _recurrent(attrs: Attrs, data: Shape) -> Mapping[int, Shape]:
    """The vector of all parameters: of each layer and direction the weights of input and state, then two biases."""
    mode, units, layers = attrs.text("mode"), attrs.int("state_size"), attrs.int("num_layers")
    directions = 2 if attrs.bool("bidirectional", False) else 1
    projection = attrs.int("projection_size", None)
    gates = GATES[{"rnn_relu": "relu", "rnn_tanh": "tanh"}.get(mode, mode)] * units
    given = units if projection is None else projection
    depths = data[2] + given * directions * (layers - 1)  # of all layers together
    projections = 0 if projection is None else projection * units * layers
    size = directions * (gates * (depths + (given + 2) * layers) + projections)
    return {1: (size,), 2: (layers * directions, data[1], given), 3: (layers * directions, data[1], units)}


def _embedding(attrs: Attrs, data: Shape) -> Mapping[int, Shape]:
    return {1: (attrs.int("input_dim"), attrs.int("output_dim"))}


def _class_label(attrs: Attrs, data: Shape) -> Mapping[int, Shape]:
    return {1: (data[0], prod(data[2:])) if attrs.bool("multi_output", False) else data[:-1]}


def _lengths(attrs: Attrs, data: Shape) -> Mapping[int, Shape]:
    return {1: (data[1 - attrs.int("axis", 0)],)} if attrs.bool("use_sequence_length", False) else {}


def _same(attrs: Attrs, data: Shape) -> Mapping[int, Shape]:
    return {1: data}


def _value_label(attrs: Attrs, data: Shape) -> Mapping[int, Shape]:
    return {1: data[:1] if len(data) == 2 and is_one(data[1]) else data}


WANTED: dict[str, Wanted] = {
    **dict.fromkeys(("Convolution", "Convolution_v1"), _convolution),
    **dict.fromkeys(("BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm", "_contrib_BatchNormWithReLU"),
                    _per_axis(1, 4)),
    **dict.fromkeys(("LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"), _value_label),
    **dict.fromkeys(("elemwise_add", "elemwise_sub", "elemwise_mul", "elemwise_div", "_maximum", "_minimum", "_power",
                     "_hypot", "_mod", "_grad_add"), _same),
    **dict.fromkeys(("SequenceLast", "SequenceMask", "SequenceReverse"), _lengths),
    "Deconvolution": _deconvolution,
    "Embedding": _embedding,
    "FullyConnected": _dense,
    "GroupNorm": _per_group,
    "InstanceNorm": _per_channel,
    "LayerNorm": _per_axis(-1, 2),
    "LeakyReLU": _prelu,
    "RNN": _recurrent,
    "SVMOutput": lambda attrs, data: {1: data[:-1]},
    "SoftmaxOutput": _class_label,
    "_contrib_ModulatedDeformableConvolution": _deformable,
}

LENIENT = {"LeakyReLU"}
"""Operators that also take weights of other shapes: prelu's may be one number, or one for each element."""

Axes = Callable[[Attrs, Sequence[Shape]], Sequence[Sequence[tuple[int, int]]]]
"""Groups of (input, axis) of one size each."""


def every_axis(attrs: Attrs, shapes: Sequence[Shape]) -> Sequence[Sequence[tuple[int, int]]]:
    return [[(place, axis) for place in range(len(shapes))] for axis in range(len(shapes[0]))]


def _all_but(default: int) -> Axes:
    def axes(attrs: Attrs, shapes: Sequence[Shape]) -> Sequence[Sequence[tuple[int, int]]]:
        joined = attrs.int("dim", default) % len(shapes[0])
        return [group for axis, group in enumerate(every_axis(attrs, shapes)) if axis != joined]

    return axes


def _states(attrs: Attrs, shapes: Sequence[Shape]) -> Sequence[Sequence[tuple[int, int]]]:
    return [[(0, 1), *((place, 1) for place in range(2, min(len(shapes), 4)))]]


def _batches(attrs: Attrs, shapes: Sequence[Shape]) -> Sequence[Sequence[tuple[int, int]]]:
    return [[(0, 0), (1, 0)]]


def _choice(attrs: Attrs, shapes: Sequence[Shape]) -> list[list[tuple[int, int]]]:
    """A condition of one axis chooses among rows."""
    told = 1 if len(shapes[0]) == 1 else len(shapes[1])
    return [[(place, axis) for place in (0, 1, 2)[axis >= told:]] for axis in range(len(shapes[1]))]


EQUAL: dict[str, Axes] = {
    **{name: every_axis for name, wanted in WANTED.items() if wanted is _same},
    **dict.fromkeys(("add_n", "stack", "_equal", "_greater", "_greater_equal", "_lesser", "_lesser_equal", "_not_equal",
                     "_logical_and", "_logical_or", "_logical_xor"), every_axis),
    "Concat": _all_but(1),
    "RNN": _states,
    "batch_dot": _batches,
    "where": _choice,
}

LABELLED = {"SVMOutput", *(name for name, wanted in WANTED.items() if wanted in (_class_label, _value_label))}
"""Operators whose second input, the label, only the gradient reads."""

_RANGE = ("output", "min_output", "max_output")
_NUMBERED = ("output0", "output1")

OUTPUTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("_npi_concatenate", "_npi_dstack", "_npi_hstack", "_npi_matmul"), ("out",)),
    **dict.fromkeys(("BatchNorm", "BatchNorm_v1"), ("output", "mean", "var")),
    **dict.fromkeys(("GroupNorm", "LayerNorm"), ("output", "mean", "std")),
    **dict.fromkeys(("_contrib_box_nms", "_npi_average", "_npi_norm", "sort"), _NUMBERED),
    **dict.fromkeys(("_sg_mkldnn_fully_connected", *(f"_contrib_quantized_{name}" for name in (
        "act", "batch_norm", "concat", "conv", "elemwise_add", "elemwise_mul", "embedding", "flatten",
        "fully_connected", "pooling"))), _RANGE),
    "LeakyReLU": ("output", "mask"),
    "_npi_std": ("std",),
    "_npi_var": ("var",),
    "_sg_mkldnn_conv": ("output", "output_min", "output_max"),
    "make_loss": ("loss",),
}


def output_name(node: SymbolNode, place: int, count: int) -> str:
    """Return the name that MXNet gives to output `place` of a node's `count`; a variable's is its own."""
    if node.is_variable:
        return node.name
    name = canonical(node.op)
    numbered = count > 1 or name == "SliceChannel" or (
        name == "topk" and node.attrs.get("ret_typ", "indices") in ("value", "both"))
    names = OUTPUTS.get(name, ())
    if place < len(names):
        return f"{node.name}_{names[place]}"
    return f"{node.name}_output{place if numbered else ''}"
