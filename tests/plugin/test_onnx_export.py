"""`mx.onnx.export_model` beside a current onnx."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from mxnet_helpers import mx
from onnx.reference import ReferenceEvaluator

import ngraph_mxnet
from ngraph_mxnet.plugin.binding.activation import OPSET


@pytest.mark.parametrize("parameters", ["file", "arrays"])
def test_weights_are_initialisers_only_and_results_agree(parameters: str, tmp_path: Path) -> None:
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Conv2D(4, 3, activation="relu"), mx.gluon.nn.GlobalAvgPool2D(), mx.gluon.nn.Dense(5))
    net.initialize(mx.init.Normal(0.5))
    net.hybridize()
    data = np.random.default_rng(0).standard_normal((2, 3, 8, 8), dtype=np.float32)
    expected = net(mx.nd.array(data)).asnumpy()
    net.export(str(tmp_path / "net"))
    symbol, weights = str(tmp_path / "net-symbol.json"), str(tmp_path / "net-0000.params")
    path = str(tmp_path / "net.onnx")
    if parameters == "arrays":
        symbol, weights = mx.sym.load(symbol), {k.partition(":")[2]: v for k, v in mx.nd.load(weights).items()}
    assert mx.onnx.export_model(symbol, weights, [data.shape], np.float32, path) == path
    model = onnx.load(path)
    assert [value.name for value in model.graph.input] == ["data"]
    assert model.opset_import[0].version == OPSET
    (found,) = ReferenceEvaluator(model).run(None, {"data": data})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ngraph_mxnet.compile(path, "CPU")(data)[0], expected, rtol=1e-4, atol=1e-5)
    # onnx is as it was.
    assert "onnx.mapping" not in sys.modules and not hasattr(onnx, "mapping")
    assert onnx.defs.onnx_opset_version() > OPSET


def test_an_operator_without_a_converter_is_told(tmp_path: Path) -> None:
    symbol = mx.sym.Correlation(mx.sym.var("a"), mx.sym.var("b"), name="odd")
    with pytest.raises(AttributeError, match="Correlation"):
        mx.onnx.export_model(symbol, {}, [(1, 2, 8, 8)] * 2, np.float32, str(tmp_path / "net.onnx"))
    assert "onnx.mapping" not in sys.modules
