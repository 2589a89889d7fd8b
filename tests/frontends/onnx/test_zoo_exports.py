"""Every model of Gluon's vision zoo, written by `mx.onnx.export_model`, gives native MXNet's outputs."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

from peers.spec import ZOO

import ngraph_mxnet

DEEP = {"resnet101_v1", "resnet152_v1", "resnet101_v2", "resnet152_v2"}
"""With random weights of a hundred layers and more, rounding grows beyond the others' limit, in other runtimes too."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_outputs_are_those_of_mxnet(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NONE")
    import mxnet as mx
    from peers.export import write_model

    write_model(name, 1, tmp_path)
    inputs = np.load(tmp_path / f"{name}-b1.npy")[:2]
    symbol, arguments, states = mx.model.load_checkpoint(str(tmp_path / name), 0)
    executor = symbol.simple_bind(mx.cpu(), grad_req="null", data=inputs.shape[1:])
    executor.copy_params_from(arguments, states)
    exe = ngraph_mxnet.compile(tmp_path / f"{name}-b1.onnx", "CPU")
    for x in inputs:
        expected = executor.forward(is_train=False, data=mx.nd.array(x))[0].asnumpy()
        (found,) = exe(x)
        error = np.abs(found - expected).max() / np.abs(expected).max()
        assert found.shape == expected.shape
        assert error <= (1e-3 if name in DEEP else 1e-4), error
