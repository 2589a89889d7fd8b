"""Compiled files that are verified: what agrees, how a difference is told, and what is missing or does not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon import nn
from onnx import numpy_helper
from onnx_models import network
from planted_faults import BACKEND

import ngraph_mxnet
from ngraph_mxnet.base import registry
from ngraph_mxnet.base.errors import ConfigError, ModelError, PackageError
from ngraph_mxnet.frontends.mxnet.model import random_weights
from ngraph_mxnet.program.executable import InputError
from ngraph_mxnet.targets.interpreter import InterpreterBackend

SHAPE = (2, 3, 8, 8)
GRAPH = """graph @net(%x: f32[2,8], %w: f32[8,4] weight) -> (f32[2,4]) {
  %0: f32[2,4] = matmul(%x, %w)   # the product
  %1: f32[2,4] = tanh(%0)         # the tanh
  return %1
}
"""


@pytest.fixture(scope="module")
def symbol() -> mx.sym.Symbol:
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(4, 3, activation="relu", prefix="first_"), nn.BatchNorm(prefix="norm_"),
                nn.Conv2D(4, 3, prefix="second_"), nn.GlobalAvgPool2D(), nn.Dense(5, prefix="dense_"))
    return net(mx.sym.var("data"))


@pytest.fixture(scope="module")
def weights(symbol: mx.sym.Symbol) -> dict[str, np.ndarray]:
    found = symbol.infer_shape(data=SHAPE)
    names = symbol.list_arguments() + symbol.list_auxiliary_states()
    return random_weights({name: shape for name, shape in zip(names, [*found[0], *found[2]], strict=True)
                           if name != "data"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, symbol: mx.sym.Symbol, weights: dict[str, np.ndarray]) -> Path:
    """With `net.ngraph`, `two.ngraph` of two sets of shapes, both with references, and `range.ngraph`."""
    path = tmp_path_factory.mktemp("files")
    for name, shapes in (("net", SHAPE), ("two", [SHAPE, (1, 3, 9, 9)])):
        ngraph_mxnet.export(symbol, path / f"{name}.ngraph", weights=weights, data=shapes, isas=["baseline", "avx2"],
                            with_references=True)
    ngraph_mxnet.export(symbol, path / "range.ngraph", weights=weights, data=("1..4", 3, 8, 8), isas=["avx2"])
    return path


def changed(weights: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    return {**weights, name: weights[name] + np.float32(0.5)}


@pytest.mark.parametrize("against", ["mxnet", "interpreter"])
def test_a_file_agrees_with_its_model(folder: Path, symbol: Any, weights: Any, against: str) -> None:
    found = ngraph_mxnet.verify(folder / "net.ngraph", against, of=symbol, params=weights)
    assert found.agrees and found.precision == "f32" and found.model == "net.ngraph"
    assert found.inputs == ["data float32[2, 3, 8, 8], random of seed 7"]
    assert found.note is not None and "none of the model's values" in found.note
    ((name, difference),) = found.outputs
    assert name == "net_dense_fwd_output" and difference.reference.norm > 0


def test_other_weights_are_named(folder: Path, symbol: Any, weights: Any) -> None:
    found = ngraph_mxnet.verify(folder / "net.ngraph", of=symbol, params=changed(weights, "net_second_weight"))
    assert not found.agrees and found.diverging is None and found.unnamed is not None
    assert "its weights net_second_weight are others than the model's" in found.unnamed
    assert f"ngraph_mxnet {ngraph_mxnet.__version__} made" in found.unnamed


def test_another_graph_is_told(folder: Path, symbol: Any, weights: Any) -> None:
    found = ngraph_mxnet.verify(folder / "net.ngraph", of=symbol * 2, params=weights)
    assert not found.agrees and "it was made of another graph than the model's" in (found.unnamed or "")


def runs_files(monkeypatch: pytest.MonkeyPatch, name: str, function: str) -> None:
    """This backend of a test runs compiled files, by a function of this module."""
    place = replace(registry.TARGETS[name], load_file=f"{__name__}:{function}")
    monkeypatch.setitem(registry.TARGETS, name, place)


def run_on_the_cpu(path: Any, options: Any) -> Any:
    return ngraph_mxnet.compile(path)


def run_wrong(path: Any, options: Any) -> Any:
    run = ngraph_mxnet.compile(path)
    return lambda *arrays: [run(*arrays)[0] + 1]


def test_a_fault_of_the_compiler_is_named_in_the_model(tmp_path: Path, register: Any, monkeypatch: Any) -> None:
    """The backend made the file, and still computes the same node wrong."""
    register(BACKEND, "planted_faults:FaultyBackend")
    runs_files(monkeypatch, BACKEND, "run_on_the_cpu")
    weights = {"w": np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32)}
    wrong = GRAPH.replace("tanh(%0)", "sigmoid(%0)")
    ngraph_mxnet.export(wrong, tmp_path / "wrong.ngraph", weights=weights)
    found = ngraph_mxnet.verify(tmp_path / "wrong.ngraph", of=GRAPH, params=weights, backend=BACKEND,
                                at="the product|matmul")
    assert found.diverging is not None and found.diverging.origin == "the product"
    right = ngraph_mxnet.verify(tmp_path / "wrong.ngraph", of=GRAPH, params=weights, backend="CPU")
    assert right.diverging is None and "another graph" in (right.unnamed or "")


def test_an_onnx_model(tmp_path: Path) -> None:
    model = network(2)
    ngraph_mxnet.export(model, tmp_path / "net.ngraph", isas=["avx2"])
    assert ngraph_mxnet.verify(tmp_path / "net.ngraph", "interpreter", of=model).agrees
    other = network(2)
    kernel = other.graph.initializer[0]
    kernel.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(kernel) * 2, kernel.name))
    found = ngraph_mxnet.verify(tmp_path / "net.ngraph", "interpreter", of=other)
    assert not found.agrees and f"its weights {kernel.name} are others" in (found.unnamed or "")


def test_several_shapes_and_ranges(folder: Path, symbol: Any, weights: Any) -> None:
    for shape in (SHAPE, (1, 3, 9, 9)):
        assert ngraph_mxnet.verify(folder / "two.ngraph", of=symbol, params=weights, shapes={"data": shape}).agrees
    for batch in (1, 3):
        assert ngraph_mxnet.verify(folder / "range.ngraph", of=symbol, params=weights,
                                   inputs={"data": np.ones((batch, 3, 8, 8), np.float32)}).agrees
    found = ngraph_mxnet.verify(folder / "range.ngraph", of=symbol, params=changed(weights, "net_second_weight"),
                                shapes={"data": SHAPE})
    assert "does not tell of what it was made for these shapes" in (found.unnamed or "")
    with pytest.raises(InputError, match=r"two\.ngraph: input data: found shape \[3,3,8,8\], expected \["):
        ngraph_mxnet.verify(folder / "two.ngraph", of=symbol, params=weights, shapes={"data": (3, 3, 8, 8)})


def test_the_results_that_a_file_holds(folder: Path) -> None:
    found = ngraph_mxnet.verify(folder / "two.ngraph")
    assert found.agrees and [name for name, _ in found.outputs] == [
        "net_dense_fwd_output of set 0", "net_dense_fwd_output of set 1"]
    assert found.reference == f"the results that the file holds, made by ngraph_mxnet {ngraph_mxnet.__version__}"
    assert found.inputs[0] == "data of set 0 float32[2, 3, 8, 8], stored in the file"


def test_results_that_are_not_those_that_a_file_holds(folder: Path, own_backend: Any,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    own_backend(InterpreterBackend)
    runs_files(monkeypatch, "OWN", "run_wrong")
    found = ngraph_mxnet.verify(folder / "net.ngraph", backend="OWN")
    assert not found.agrees and [name for name, _ in found.outputs] == ["net_dense_fwd_output"]
    assert "none of the model's values: give the model that it was made of" in (found.unnamed or "")


@pytest.mark.parametrize(("arguments", "error", "text"), [
    ({}, ConfigError, "holds no results to compare with .*give the model that it was made of"),
    ({"against": "mxnet"}, ConfigError, "against: of the model that the file was made of, which is missing"),
    ({"shapes": {"data": SHAPE}, "params": {"w": 1}}, ConfigError, "shapes, params: of the model"),
    ({"of": "symbol"}, ModelError, "a symbol needs its weights"),
    ({"of": "file"}, ConfigError, "found a compiled file, which has none of the model's values"),
    ({"of": GRAPH}, ModelError, "file reads data, and the inputs of the model are"),
])
def test_what_does_not_fit(folder: Path, symbol: Any, arguments: dict[str, Any], error: type, text: str) -> None:
    given = {"symbol": symbol, "file": folder / "net.ngraph"}
    if isinstance(arguments.get("of"), str):
        arguments = {**arguments, "of": given.get(arguments["of"], arguments["of"])}
    with pytest.raises(error, match=text):
        ngraph_mxnet.verify(folder / "range.ngraph", **arguments)


def test_another_backend_runs_no_files(folder: Path, symbol: Any, weights: Any) -> None:
    with pytest.raises(ConfigError, match="backend INTERPRETER runs no compiled files"):
        ngraph_mxnet.verify(folder / "net.ngraph", of=symbol, params=weights, backend="INTERPRETER")


def test_models_are_made_of_nothing(symbol: Any, weights: Any) -> None:
    with pytest.raises(ConfigError, match="of: is for compiled files, and the model is a symbol"):
        ngraph_mxnet.verify(symbol, of=symbol, params=weights, shapes={"data": SHAPE})


def test_a_model_with_other_outputs(folder: Path, symbol: Any, weights: Any) -> None:
    with pytest.raises(ModelError, match="the file gives 1 outputs, and the model"):
        ngraph_mxnet.verify(folder / "net.ngraph", of=mx.sym.Group([symbol, symbol * 2]), params=weights)


def test_a_damaged_file(folder: Path, tmp_path: Path) -> None:
    content = bytearray((folder / "net.ngraph").read_bytes())
    content[-100] ^= 255
    (tmp_path / "net.ngraph").write_bytes(content)
    with pytest.raises(PackageError, match="damaged"):
        ngraph_mxnet.verify(tmp_path / "net.ngraph")
