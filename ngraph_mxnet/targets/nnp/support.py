"""What Intel's software ran on the NNP-I: the ops of the node kinds of Glow's backend NNPI.

The facts are those of pytorch/glow at commit 05dd99b (Apache-2.0), `lib/Backends/NNPI/NNPI.cpp`: the node kinds that
the backend takes, with the elements of their operands. What Glow first makes of other kinds is in its importers and in
`lib/Optimizer/Lower/Lower.cpp`. No code of Glow is here. Of the NNP-T nothing of the kind is published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ops.bodies import has_bodies, nodes_within
from ngraph_mxnet.targets.nnp.device import Device

SOURCE = "pytorch/glow 05dd99b, lib/Backends/NNPI/NNPI.cpp"
CHOICES = ("published", "all")
_ENGINE = "ice"
"""The engine of the chip that Glow's backend is for."""


def only_published(device: Device, options: Mapping[str, Any], usual: str) -> bool:
    """True if only what is published of Intel's software runs; `usual` is what no option `support` means.

    Raises:
        ConfigError: the option is neither of CHOICES, or asks for what is published where nothing is.
    """
    given, known = options.get("support"), CHOICES if device.engine == _ENGINE else CHOICES[1:]
    if given is not None and given not in known:
        raise ConfigError(f"option support: found {given!r}, expected {' or '.join(known)} on {device.name}")
    return (given or usual) == "published" and device.engine == _ENGINE


def unpublished(node: Node) -> str | None:
    """Why Glow's backend does not run a node, as a phrase for people; None if it does."""
    if has_bodies(node.op.name):
        return next(filter(None, map(unpublished, nodes_within(node))), None)
    if node.op.kind == "constant":
        return None
    runs = RUNS.get(node.op.name)
    missing = runs.limit(node) if runs is not None else node.op.name
    if runs is None or missing is not None:
        return f"Intel's software for the NNP-I had no {missing} ({SOURCE})"
    others = {value.type.element.name for value in (*node.inputs, *node.outputs) if not value.type.element.is_float}
    if wrong := sorted(others - {*runs.integers.split()}):
        return f"Intel's software for the NNP-I ran {runs.kinds.split()[0]} on no {', '.join(wrong)} ({SOURCE})"
    return None


def _any(node: Node) -> str | None:
    return None


@dataclass(frozen=True)
class Runs:
    """The node `kinds` that stand for an op, and which `integers` they take beside real numbers. `limit` names what is
    missing for a node that they do not cover."""

    kinds: str
    integers: str = ""
    limit: Callable[[Node], str | None] = _any


def _none(name: str) -> Callable[[Node], str | None]:
    """The limit of an op of which no node is covered, by the name that Glow or users give it."""
    return lambda node: name


def _nearest(node: Node) -> str | None:
    return None if node.attrs["mode"] == "nearest" else f"{node.attrs['mode']} resize"


def _unit_steps(node: Node) -> str | None:
    return "slices with steps" if any(step != 1 for step in node.attrs["strides"]) else None


def _forward(node: Node) -> str | None:
    return "transposed convolutions" if any(step > 1 for step in node.attrs["data_dilations"]) else None


def _first(node: Node) -> str | None:
    return None if node.attrs["count"] else "argsort, except TopK"


def _lstm(node: Node) -> str | None:
    return "GRU" if node.attrs["cell"].startswith("gru") else None


_ALL = "i32 i64 bool"
_BYTES = "i8 u8 i32"
RUNS = {
    **{op: Runs(kind, "i32 i64") for op, kind in (
        ("add", "Add"), ("subtract", "Sub"), ("multiply", "Mul"), ("divide", "Div"), ("maximum", "Max"),
        ("minimum", "Min"), ("mod", "Fmod Modulo"))},
    **{op: Runs(kind, "i32") for op, kind in (
        ("power", "Pow"), ("sqrt", "Pow"), ("rsqrt", "Pow"), ("square", "Pow"), ("reciprocal", "Pow"),
        ("relu", "Relu"), ("tanh", "Tanh"), ("log", "Log"), ("sigmoid", "Sigmoid"), ("negative", "Neg"), ("abs", "Abs"),
        ("exp", "Exp"), ("softplus", "SoftPlus"), ("reduce_sum", "BatchedReduceAdd"),
        ("reduce_mean", "BatchedReduceMean"), ("reduce_min", "BatchedReduceMin"), ("reduce_max", "BatchedReduceMax"))},
    **{op: Runs(kind) for op, kind in (
        ("leaky_relu", "PRelu"), ("prelu", "PRelu"), ("clamp", "Clip"), ("gelu", "Gelu"), ("silu", "Swish"),
        ("hard_swish", "Add Clip Mul"), ("softmax", "SoftMax"), ("layer_norm", "LayerNormalization"),
        ("log_softmax", "BatchedReduceMax Sub Exp BatchedReduceAdd Log"), ("batch_norm", "BatchNormalization"),
        ("scale_shift", "Mul Add"), ("lrn", "LocalResponseNormalization"), ("avg_pool", "AvgPool"),
        ("max_pool", "MaxPool"), ("adaptive_avg_pool", "AdaptiveAvgPool"), ("attention", "BatchMatMul SoftMax"),
        ("matmul", "MatMul BatchMatMul FullyConnected"), ("lstm_cell", "LSTMUnit"))},
    **{op: Runs(kind, "i32 bool") for op, kind in (
        ("equal", "CmpEQ"), ("not_equal", "CmpNEQ"), ("less", "CmpLT"), ("less_equal", "CmpLTE"), ("greater", "CmpLT"),
        ("greater_equal", "CmpLTE"))},
    **{op: Runs(kind, _ALL) for op, kind in (
        ("concat", "Concat"), ("transpose", "Transpose"), ("broadcast", "Tile"), ("reshape", "Reshape"),
        ("convert", "ConvertTo"), ("identity", "Save"), ("stop_gradient", "Save"), ("dropout", "Save"),
        ("argmax", "ArgMax"), ("argmin", "ArgMin"))},
    **{op: Runs(kind, _BYTES) for op, kind in (
        ("quantize", "Quantize"), ("dequantize", "Dequantize"), ("integer_convolution", "Convolution"),
        ("quantized_convolution", "Convolution"), ("integer_matmul", "FullyConnected"),
        ("quantized_matmul", "FullyConnected"), ("lookup", "IntLookupTable"))},
    "convolution": Runs("Convolution Convolution3D", limit=_forward),
    "slice": Runs("Slice", _ALL, _unit_steps),
    "select": Runs("Select", "bool"),
    "gather": Runs("Gather Embedding SparseLengthsSum EmbeddingBag", "i32 i64"),
    "scatter_nd": Runs("ScatterData", "i32 i64"),
    "argsort": Runs("TopK", "i32 i64", _first),
    "resize": Runs("ResizeNearest", limit=_nearest),
    "roi_align": Runs("ROIAlign", "i32 i64"),
    "rnn": Runs("LSTMUnit FullyConnected", limit=_lstm),
    **{op: Runs("", limit=_none(kind)) for op, kind in (
        ("box_nms", "NonMaxSuppression"), ("gru_cell", "GRU"), ("gru_reset_first", "GRU"), ("gather_nd", "GatherND"),
        ("gather_elements", "GatherElements"), ("pad", "InsertTensor, of which Glow makes Pad"))},
}
