"""Small models for commands, with what a command line has to say of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


@pytest.fixture
def model(tmp_path: Path) -> list[str]:
    weights = numpy_helper.from_array(np.ones((3, 4), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], name="product"), helper.make_node("Relu", ["a"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("x", ["batch", 3]), ("y", ["batch", 4])))
    graph = helper.make_graph(nodes, "g", [x], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), tmp_path / "model.onnx")
    return [str(tmp_path / "model.onnx"), "--shape", "x=2,3"]


@pytest.fixture
def symbol(tmp_path: Path) -> list[str]:
    import mxnet as mx

    hidden = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="dense")
    mx.sym.Activation(hidden, act_type="relu", name="act").save(str(tmp_path / "model-symbol.json"))
    mx.nd.save(str(tmp_path / "model-0000.params"), {"arg:dense_weight": mx.nd.ones((4, 3)),
                                                     "arg:dense_bias": mx.nd.zeros(4)})
    return [str(tmp_path / "model-symbol.json"), "--shape", "data=2,3"]
