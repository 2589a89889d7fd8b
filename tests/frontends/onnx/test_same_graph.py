"""One model through MXNet's symbol and through ONNX is one graph."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ngraph_mxnet.frontends.mxnet.importer import import_symbol
from ngraph_mxnet.frontends.onnx.importer import import_model
from ngraph_mxnet.frontends.onnx.model import read_model
from ngraph_mxnet.ir import Graph, print_graph
from ngraph_mxnet.passes.pipelines import optimize


def nameless(graph: Graph) -> str:
    """The body's text with values numbered as they appear, and without origins."""
    optimize(graph)
    names: dict[str, str] = {}
    text = re.sub(r"\s+# .*", "", print_graph(graph).partition("\n")[2])
    return re.sub(r"%[\w.]+", lambda match: names.setdefault(match[0], f"%{len(names)}"), text)


@pytest.mark.parametrize("name", [pytest.param("resnet50_v2", marks=pytest.mark.slow), "resnet18_v2"])
def test_resnet(name: str, tmp_path: Path) -> None:
    import mxnet as mx

    net: Any = getattr(mx.gluon.model_zoo.vision, name)(classes=10)
    net.initialize(mx.init.Uniform(0.1))
    net.hybridize()
    shape = (1, 3, 64, 64)
    net(mx.nd.ones(shape))
    for parameter in net.collect_params(".*gamma").values():  # a scale of ones would be none for ONNX
        if parameter.grad_req != "null":
            parameter.set_data(mx.nd.random.uniform(0.5, 2, parameter.shape))
    net.export(str(tmp_path / "net"))
    symbol, parameters = tmp_path / "net-symbol.json", tmp_path / "net-0000.params"
    mx.onnx.export_model(str(symbol), str(parameters), [shape], np.float32, str(tmp_path / "net.onnx"))
    shapes = {key.partition(":")[2]: array.shape for key, array in mx.nd.load(str(parameters)).items()}
    ours = nameless(import_symbol(symbol.read_text(), {**shapes, "data": shape}))
    theirs = nameless(import_model(read_model(tmp_path / "net.onnx")).graph)
    assert " residual=" in ours
    assert theirs == ours
