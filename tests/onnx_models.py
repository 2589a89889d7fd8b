"""Small models for the tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F32, I64 = TensorProto.FLOAT, TensorProto.INT64


def value(name: str, shape: Sequence[Any], dtype: int = F32) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes: Sequence[onnx.NodeProto], inputs: Sequence[onnx.ValueInfoProto],
          outputs: Sequence[onnx.ValueInfoProto], weights: dict[str, np.ndarray] | None = None,
          opset: int = 21) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "small", list(inputs), list(outputs), tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def network(batch: Any = "batch", channels: int = 4) -> onnx.ModelProto:
    """Convolution, activation, pooling, classifier: [batch, 3, 8, 8] to [batch, 10]."""
    random = np.random.default_rng(5)
    weights = {name: random.standard_normal(shape) for name, shape in
               {"w": (channels, 3, 3, 3), "b": (channels,), "dense": (10, channels)}.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["conv"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["conv"], ["relu"], name="relu"),
        helper.make_node("GlobalAveragePool", ["relu"], ["pooled"], name="pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], name="flat"),
        helper.make_node("Gemm", ["flat", "dense"], ["y"], name="dense", transB=1),
    ]
    return model(nodes, [value("x", [batch, 3, 8, 8])], [value("y", [batch, 10])],
                 {name: array.astype(np.float32) for name, array in weights.items()})
