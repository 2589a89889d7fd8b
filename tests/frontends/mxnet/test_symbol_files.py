"""Models from files, without MXNet: symbols of old versions, weights, and what is told of mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ngraph_mxnet  # makes mxnet importable on current NumPy

# isort: split
import mxnet as mx

from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.frontends.model import Model, model_of
from ngraph_mxnet.frontends.mxnet.symbol_json import read_symbol
from ngraph_mxnet.ir import Graph
from ngraph_mxnet.program.compile import compile as compile_graph


def node(op: str, name: str, inputs: list[list[int]], key: str = "param", **attrs: str) -> dict[str, Any]:
    return {"op": op, key: attrs, "name": name, "inputs": inputs, "backward_source_id": -1}


def old_net(key: str = "param", version: int | None = None, length: int = 2) -> str:
    """A net as MXNet 0.8 wrote it: no auxiliary states, `axis=-1` for all axes, multipliers beside the parameters."""
    nodes = [
        node("null", "data", []),
        node("null", "conv_weight", []), node("null", "conv_bias", []),
        node("Convolution", "conv", [[0, 0], [1, 0], [2, 0]], key, kernel="(3L, 3L)", num_filter="4", no_bias="False",
             weight_lr_mult="2.0"),
        node("null", "bn_gamma", []), node("null", "bn_beta", []),
        node("BatchNorm", "bn", [[3, 0], [4, 0], [5, 0]], key, eps="0.001", fix_gamma="True", momentum="0.9"),
        node("Activation", "act", [[6, 0]], key, act_type="tanh"),
        node("null", "left_over", []),
        node("Flatten", "flat", [[7, 0]], key),
        node("null", "fc_weight", []), node("null", "fc_bias", []),
        node("FullyConnected", "fc", [[9, 0], [10, 0], [11, 0]], key, num_hidden="3"),
        node("null", "label", []),
        node("SoftmaxOutput", "softmax", [[12, 0], [13, 0]], key),
    ]
    nodes.append(node("argmax", "best", [[12, 0]], key, axis="-1"))
    for one in nodes:
        one["inputs"] = [[*edge, 0][:length] for edge in one["inputs"]]
    root: dict[str, Any] = {"nodes": nodes, "arg_nodes": [0, 1, 2, 4, 5, 8, 10, 11, 13],
                            "heads": [[14, 0, 0][:length], [15, 0, 0][:length]]}
    if version is not None:
        root["attrs"] = {"mxnet_version": ["int", version]}
    return json.dumps(root)


SHAPES = {"data": (2, 3, 6, 6)}


def made(model: Model, shapes: dict[str, tuple[int, ...]] = SHAPES) -> tuple[Graph, dict[str, np.ndarray]]:
    """The graph and the weights that it reads."""
    return model.graph(shapes)()  # type: ignore[operator]  # they are numbers


@pytest.mark.parametrize(("key", "version", "length"), [
    ("param", None, 2), ("attr", 800, 2), ("attr", 904, 3), ("attrs", 10000, 3), ("attrs", 10901, 3)])
def test_symbols_of_all_versions(key: str, version: int | None, length: int, tmp_path: Path) -> None:
    text = old_net(key, version, length)
    if version is not None and version >= 900:  # with the states, which these versions wrote
        mx.sym.load_json(old_net()).save(str(tmp_path / "net-symbol.json"))
        root = json.loads((tmp_path / "net-symbol.json").read_text())
        root["attrs"] = {"mxnet_version": ["int", version]}
        text = json.dumps(root)
    (tmp_path / "net-symbol.json").write_text(text)
    symbol = mx.sym.load(str(tmp_path / "net-symbol.json"))
    found = read_symbol(tmp_path / "net-symbol.json")
    assert [one.name for one in found.arguments()] == symbol.list_inputs()

    model = model_of(tmp_path / "net-symbol.json")
    assert list(model.inputs()) == ["data"]
    graph, weights = made(model.with_random_weights(SHAPES))
    assert [value.name for value in graph.results] == symbol.list_outputs() == ["softmax_output", "best_output"]
    arguments, _, states = symbol.infer_shape(**SHAPES)
    shapes = dict(zip([*symbol.list_arguments(), *symbol.list_auxiliary_states()], [*arguments, *states], strict=True))
    assert {value.name: value.shape for value in graph.parameters} == {
        name: shape for name, shape in shapes.items() if name not in ("bn_gamma", "label")}

    data = np.random.default_rng(0).standard_normal(SHAPES["data"]).astype(np.float32)
    given = {"data": data, "bn_gamma": np.ones(4, "f"), "label": np.zeros(2, "f"), **weights}
    arrays = {name: mx.nd.array(array) for name, array in given.items()}
    executor = symbol.bind(mx.cpu(), {name: arrays[name] for name in symbol.list_arguments()}, grad_req="null",
                           aux_states={name: arrays[name] for name in symbol.list_auxiliary_states()})
    for ours, theirs in zip(compile_graph(graph, "CPU", weights=weights)(data), executor.forward(is_train=False),
                            strict=True):
        np.testing.assert_allclose(ours, theirs.asnumpy(), rtol=1e-5, atol=1e-6)


def saved(folder: Path) -> tuple[Path, Path]:
    (folder / "net-symbol.json").write_text(old_net())
    _, weights = made(model_of(folder / "net-symbol.json").with_random_weights(SHAPES))
    mx.nd.save(str(folder / "net-0000.params"), {f"arg:{name}": mx.nd.array(array) for name, array in weights.items()})
    return folder / "net-symbol.json", folder / "net-0000.params"


def test_mistakes(tmp_path: Path) -> None:
    symbol, params = saved(tmp_path)
    model = model_of(symbol, params)
    with pytest.raises(ModelError, match="no input is called datum; the inputs: data"):
        made(model, {"datum": (1, 3, 6, 6)})
    with pytest.raises(ModelError, match=r"conv_weight has shape .4, 3, 3, 3., mx:conv Convolution expects .4, 5, 3"):
        made(model, {"data": (1, 5, 6, 6)})
    with pytest.raises(ModelError, match=r"fc_weight has shape .3, 64., mx:fc FullyConnected expects .3, 144."):
        made(model, {"data": (1, 3, 8, 8)})
    with pytest.raises(ModelError, match="input data: found dtype 'float31', expected one such as float32 or int8"):
        made(model_of(symbol, params, {"data": "float31"}))
    mx.nd.save(str(params), {"arg:conv_weight": mx.nd.zeros((4, 3, 3, 3))})
    with pytest.raises(ModelError, match=r"net-0000\.params has no bn_beta, bn_moving_mean, bn_moving_var, conv_bias"):
        made(model_of(symbol, params))
    symbol.write_text("{")
    with pytest.raises(ModelError, match="symbol JSON does not parse"):
        read_symbol(symbol)
    with pytest.raises(ModelError, match=r"can't read .*gone-symbol\.json: No such file"):
        read_symbol(tmp_path / "gone-symbol.json")


def test_all_that_can_not_be_lowered_is_told(tmp_path: Path) -> None:
    data = mx.sym.Variable("data")
    net = mx.sym.Group([mx.sym.Correlation(data, data, name="first"),
                        mx.sym.Correlation(mx.sym.relu(data), data, name="second")])
    net.save(str(tmp_path / "net-symbol.json"))
    with pytest.raises(UnsupportedError) as raised:
        made(model_of(tmp_path / "net-symbol.json"))
    lines = str(raised.value).splitlines()
    assert lines[0] == "the model can't be compiled as a whole:"
    assert [line.split(":")[0] for line in lines[1:]] == ["  first Correlation", "  second Correlation"]


ALONE = """
import sys
sys.modules["mxnet"] = None  # not to be imported
import ngraph_mxnet
import numpy as np
compiled = ngraph_mxnet.compile(sys.argv[1], params=sys.argv[2], shapes={"data": (2, 3, 6, 6)})
found = compiled(np.ones((2, 3, 6, 6), np.float32))
ngraph_mxnet.export(sys.argv[1], sys.argv[3] + ".ngraph", params=sys.argv[2], data=(2, 3, 6, 6))
np.save(sys.argv[3], found[0])
"""


def test_without_mxnet(tmp_path: Path) -> None:
    symbol, params = saved(tmp_path)
    done = subprocess.run([sys.executable, "-c", ALONE, str(symbol), str(params), str(tmp_path / "found.npy")],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    compiled = ngraph_mxnet.compile(mx.sym.load(str(symbol)), params=str(params), shapes=SHAPES)
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy"), compiled(np.ones(SHAPES["data"], np.float32))[0])
