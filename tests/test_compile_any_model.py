"""`ngraph_mxnet.compile` and `explain` of every kind of model, and what they say of everything else."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import onnx
import pytest
from mxnet.gluon import nn
from onnx import TensorProto, helper, numpy_helper

import ngraph_mxnet
from ngraph_mxnet.base.errors import ConfigError, GraphError, ModelError, NGraphError, PackageError
from ngraph_mxnet.frontends.model import model_of
from ngraph_mxnet.ir import parse_graph
from ngraph_mxnet.program.executable import InputError

TEXT = """
graph @small(%x: f32[2,3], %w: f32[4,3] weight) -> (f32[2,4]) {
  %0: f32[2,4] = matmul(%x, %w) {transpose_b=true}
  %1: f32[2,4] = relu(%0)
  return %1
}
"""
random = np.random.default_rng(5)
X, W = (random.standard_normal(shape).astype(np.float32) for shape in ((2, 3), (4, 3)))
EXPECTED = np.maximum(X @ W.T, 0)


def symbol() -> Any:
    return mx.sym.Activation(mx.sym.FullyConnected(mx.sym.var("x"), mx.sym.var("w"), num_hidden=4, no_bias=True),
                             act_type="relu")


def block() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=3, activation="relu", use_bias=False, weight_initializer=mx.init.Constant(0)))
    net.initialize()
    net[0].weight.set_data(mx.nd.array(W))
    return net


def onnx_model() -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], name="product"), helper.make_node("Relu", ["a"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, size]) for name, size in (("x", 3), ("y", 4)))
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(W.T.copy(), "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def saved(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def compiled() -> Any:
    return ngraph_mxnet.compile(TEXT, "CPU", weights={"w": W})


def compiled_file(folder: Path) -> str:
    compiled().save(folder / "compiled.ngraph")
    return str(folder / "compiled.ngraph")


def package_file(folder: Path) -> str:
    compiled().package().save(folder / "package")
    return str(folder / "package")


WITH_WEIGHTS = {"weights": {"w": W}}
WITH_SHAPES = {"shapes": {"x": (2, 3)}}
MODELS: dict[str, tuple[str, Callable[[Path], Any], dict[str, Any]]] = {
    "a graph": ("graph", lambda _: parse_graph(TEXT), WITH_WEIGHTS),
    "its text": ("graph", lambda _: TEXT, WITH_WEIGHTS),
    "a file of text": ("graph", lambda folder: saved(folder / "small.ngraph", TEXT), WITH_WEIGHTS),
    "a symbol": ("symbol", lambda _: symbol(), {**WITH_WEIGHTS, **WITH_SHAPES}),
    "a symbol's file": ("symbol", lambda folder: str(saved(folder / "m-symbol.json", symbol().tojson())),
                        {**WITH_WEIGHTS, **WITH_SHAPES}),
    "a symbol's JSON": ("symbol", lambda _: symbol().tojson(), {**WITH_WEIGHTS, **WITH_SHAPES}),
    "a block": ("Gluon block", lambda _: block(), WITH_SHAPES),
    "ONNX": ("ONNX model", lambda _: onnx_model(), {}),
    "ONNX as bytes": ("ONNX model", lambda _: onnx_model().SerializeToString(), {}),
    "an ONNX file": ("ONNX model", lambda folder: saved(folder / "m.onnx", onnx_model().SerializeToString()), {}),
    "a package": ("package", lambda _: compiled().package(), {}),
    "a package's file": ("package", package_file, {}),
    "a compiled file": ("compiled file", compiled_file, {}),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_kind(name: str, tmp_path: Path) -> None:
    kind, make, arguments = MODELS[name]
    model = make(tmp_path)
    assert model_of(model).kind == kind
    executable = ngraph_mxnet.compile(model, "CPU", **arguments)
    (result,) = executable(X)
    np.testing.assert_allclose(result, EXPECTED, rtol=1e-5, atol=1e-6)
    shown = repr(executable)
    assert re.fullmatch(r"<\w+ x: (f32\[2,3\]|float32\[2, 3\]) -> \w+: (f32\[2,4\]|float32\[2, 4\])>", shown), shown


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_every_kind(name: str, tmp_path: Path) -> None:
    kind, make, arguments = MODELS[name]
    model, sizes = model_of(make(tmp_path), arguments.get("weights")), arguments.get("shapes", {})
    assert model_of(model) is model
    assert list(model.inputs()) == ([] if kind == "Gluon block" else ["x"])
    if kind in ("package", "compiled file"):
        assert (model.summary() is None) == (kind == "package")
        with pytest.raises(ConfigError, match=f"found a {kind}, which has none of the model's values"):
            model.graph({})
        return
    assert [array.shape for array in model.weights(sizes).values()] == [(3, 4) if kind == "ONNX model" else (4, 3)]
    graph, weights, rest = model.first_part(sizes)
    assert rest is None and model.summary() is None and model.draws(sizes or {"x": (2, 3)}) == {}
    (result,) = ngraph_mxnet.compile(graph, "INTERPRETER", weights=weights)(X)
    np.testing.assert_allclose(result, EXPECTED, rtol=1e-5, atol=1e-6)


def test_a_model_keeps_its_weights() -> None:
    model, shapes = model_of(symbol(), {"w": W}), {"x": (2, 3)}
    np.testing.assert_allclose(ngraph_mxnet.compile(model, "CPU", shapes=shapes)(X)[0], EXPECTED, rtol=1e-5, atol=1e-6)
    found = ngraph_mxnet.verify(model, shapes=shapes, backend="CPU")
    assert found.agrees and found.weights == "given"
    found = ngraph_mxnet.verify(model, shapes=shapes, params={"w": W + 1}, reference_params={"w": W}, backend="CPU")
    assert not found.agrees and found.weights.startswith("given; other ones")


def test_nobody_else_asks_for_the_kind() -> None:
    package = Path(ngraph_mxnet.__file__).parent
    asked = re.compile(r"isinstance\([^)]*\b(Graph|Compiled|Package|File|Onnx|Symbol|Block)Model\b|"
                       r"\.kind [!=]= [\"'](graph|symbol|Gluon block|ONNX model|package|compiled file)\b")
    assert [path.name for path in package.rglob("*.py") if asked.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("name", ["a graph", "a symbol's file"])
def test_a_file_of_weights(name: str, tmp_path: Path) -> None:
    _, make, arguments = MODELS[name]
    path = str(tmp_path / "m-0000.params")
    mx.nd.save(path, {"arg:w": mx.nd.array(W)})
    shapes = arguments.get("shapes")
    for given in ({"weights": path}, {"params": path}):
        executable = ngraph_mxnet.compile(make(tmp_path), "CPU", shapes=shapes, **given)
        np.testing.assert_allclose(executable(X)[0], EXPECTED, rtol=1e-5, atol=1e-6)
    mx.nd.save(path, [mx.nd.array(W)])
    with pytest.raises(ModelError, match="can't read parameters by name from "):
        ngraph_mxnet.compile(make(tmp_path), "CPU", shapes=shapes, params=path)


def test_a_block_for_a_range_of_sizes() -> None:
    executable = ngraph_mxnet.compile(block(), "CPU", shapes={"x": ("1..8", 3)})
    for rows in (1, 5):
        data = random.standard_normal((rows, 3)).astype(np.float32)
        np.testing.assert_allclose(executable(data)[0], np.maximum(data @ W.T, 0), rtol=1e-5, atol=1e-6)
    assert "x: f32[N,3]" in repr(executable)


def test_a_block_of_other_element_types() -> None:
    net = nn.Embedding(5, 3)
    net.initialize()
    executable = ngraph_mxnet.compile(net, "CPU", shapes={"words": (4,)}, dtypes={"words": "int32"})
    words = np.array([4, 0, 1, 1], np.int32)
    assert executable(words)[0].tolist() == net.weight.data().asnumpy()[words].tolist()


def test_a_symbol_of_other_element_types() -> None:
    net = mx.sym.cast(mx.sym.var("x") + 1, dtype="float32")
    executable = ngraph_mxnet.compile(net, "CPU", shapes={"x": (2,)}, dtypes={"x": "int32"})
    assert executable(np.array([1, 2], np.int32))[0].tolist() == [2, 3]


WRONG: dict[str, tuple[Callable[[Path], Any], dict[str, Any], type[NGraphError], str]] = {
    "a number": (lambda _: 3, {}, ModelError, "found a int, expected a Graph or its text, an MXNet symbol or Gluon"),
    "nothing": (lambda _: None, {}, ModelError, "found a NoneType, expected a Graph"),
    "an array": (lambda _: X, {}, ModelError, "found a numpy.ndarray, expected a Graph"),
    "what is compiled": (lambda _: compiled(), {}, ModelError, "CPUExecutable, which is compiled already: call it"),
    "no file": (lambda folder: folder / "none.onnx", {}, ModelError, "none.onnx: No such file or directory"),
    "a folder": (lambda folder: folder, {}, ModelError, "Is a directory"),
    "an empty file": (lambda folder: saved(folder / "m.onnx", ""), {}, ModelError, "no graph with outputs"),
    "no text": (lambda folder: saved(folder / "m.ngraph", b"\xff\xfe"), {}, ModelError, "can't read"),
    "a wrong text": (lambda _: TEXT.replace("relu", "rely"), {}, GraphError, "no op 'rely'"),
    "a damaged package": (lambda folder: saved(folder / "p", Path(package_file(folder)).read_bytes()[:-9]), {},
                          PackageError, "cut off"),
    "a damaged compiled file": (lambda folder: saved(folder / "c", Path(compiled_file(folder)).read_bytes()[:-9]), {},
                                PackageError, "cut off"),
    "a block without shapes": (lambda _: block(), {}, ModelError, "a Gluon block needs the shapes of its inputs"),
    "a block of another rank": (lambda _: block(), {"shapes": {"x": (2, 4)}}, ModelError,
                                "FullyConnected expects (4, 4)"),
    "a block that needs arrays": (lambda _: nn.HybridLambda(lambda _, x: x.asnumpy()), WITH_SHAPES, ModelError,
                                  "makes no symbol with weights"),
    "a block of Python": (lambda _: nn.Lambda(lambda x: x), WITH_SHAPES, ConfigError,
                          "Lambda is a Block whose Python runs at every call: export a HybridBlock"),
    "a block and weights": (lambda _: block(), {**WITH_SHAPES, **WITH_WEIGHTS}, ConfigError,
                            "params (--params) are for graphs and symbols; Gluon blocks hold their own"),
    "ONNX and weights": (lambda _: onnx_model(), WITH_WEIGHTS, ConfigError, "ONNX models hold their own"),
    "a graph and shapes": (lambda _: parse_graph(TEXT), WITH_SHAPES, ConfigError, "graphs hold their own"),
    "a package and options": (lambda _: compiled().package(), {"threads": 2}, ConfigError, "takes no options"),
    "a compiled file and precision": (compiled_file, {"precision": "bf16"}, ConfigError, "it computes in f32"),
    "a compiled file and an unknown option": (compiled_file, {"speed": 1}, ConfigError, "has no option speed"),
}


@pytest.mark.parametrize("name", WRONG)
def test_everything_else_is_refused(name: str, tmp_path: Path) -> None:
    make, arguments, error, message = WRONG[name]
    with pytest.raises(error, match=re.escape(message)):
        ngraph_mxnet.compile(make(tmp_path), "CPU", **arguments)


def test_what_was_compiled_for_another_backend(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is compiled for CPU, and INTERPRETER is asked for"):
        ngraph_mxnet.compile(compiled().package(), "INTERPRETER")
    with pytest.raises(ConfigError, match="backend INTERPRETER runs no compiled files; such as do: CPU"):
        ngraph_mxnet.compile(compiled_file(tmp_path), "INTERPRETER")


def test_what_is_compiled_is_not_exported_or_quantised(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="found a compiled file, which has none of the model's values"):
        ngraph_mxnet.export(compiled_file(tmp_path), tmp_path / "again.ngraph")
    with pytest.raises(ConfigError, match="found a package, which has none of the model's values"):
        ngraph_mxnet.quantize(compiled().package(), {"x": X})


# ---- compiled files --------------------------------------------------------------------------------------------


def test_a_compiled_file_for_several_shapes_and_a_range(tmp_path: Path) -> None:
    path = tmp_path / "several.ngraph"
    ngraph_mxnet.export(block(), path, x=[(2, 3), (7, 3), ("1..5", 3)], isas=["baseline", "avx2"],
                        metadata={"version": "3"})
    found: Any = ngraph_mxnet.compile(path, "CPU", threads=1)
    assert found.metadata == {"version": "3"} and found.name == "several" and found.precision == "f32"
    assert str(found.inputs[0]).startswith("x: float32[2, 3] or [7, 3] or [N,3] with N 1..5")
    for rows in (2, 7, 4, 4):
        data = random.standard_normal((rows, 3)).astype(np.float32)
        np.testing.assert_allclose(found({"x": data})[0], np.maximum(data @ W.T, 0), rtol=1e-5, atol=1e-6)
    assert found.run_async(X).result()[0].shape == (2, 4)
    with pytest.raises(InputError, match=re.escape("found shape (6, 3)") + "|" + re.escape("found shape [6,3]")):
        found(np.zeros((6, 3), np.float32))
    with pytest.raises(InputError, match="found dtype float64, expected float32"):
        found(np.zeros((2, 3)))
    with pytest.raises(InputError, match="found 2 inputs, expected 1"):
        found(X, X)
    with pytest.raises(InputError, match="unknown y, missing x"):
        found({"y": X})


def test_a_compiled_file_for_one_shape(tmp_path: Path) -> None:
    found = ngraph_mxnet.compile(compiled_file(tmp_path), "CPU")
    first, second = found(X)[0], found(X)[0]
    assert not np.shares_memory(first, second)
    with pytest.raises(InputError, match=re.escape(": input x: found shape [3,3], expected [2,3]")):
        found(np.zeros((3, 3), np.float32))


# ---- explain ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a symbol", "a symbol's file", "a block", "ONNX", "ONNX as bytes", "an ONNX file"])
def test_explain(name: str, tmp_path: Path) -> None:
    _, make, _ = MODELS[name]
    found: Any = ngraph_mxnet.explain(make(tmp_path), {"x": (2, 3)}, backend="CPU", kernels=True)
    assert found.compiles and found.details is not None
    assert "all 2 nodes run on CPU" in str(found) or "2 of 2 nodes run on CPU" in str(found), str(found)
    assert repr(found) == str(found) and "<pre" in found._repr_html_()


def test_explain_of_ranges_and_training() -> None:
    for model in (block(), onnx_model()):
        found = ngraph_mxnet.explain_shapes(model, {"x": (2, 3)}, {"x": [0]}, backend="CPU")
        assert found.verdicts and str(found) == repr(found)
    assert ngraph_mxnet.explain_training(block(), {"x": (2, 3)}).compiles


def test_explain_refuses_others(tmp_path: Path) -> None:
    for model in (parse_graph(TEXT), TEXT, compiled_file(tmp_path)):
        with pytest.raises(ConfigError, match="expected a symbol, a Gluon block or an ONNX model"):
            ngraph_mxnet.explain(model)
    with pytest.raises(ConfigError, match=r"dtypes \(--dtype\) are for symbols and Gluon blocks"):
        ngraph_mxnet.explain(onnx_model(), dtypes={"x": "float32"})
    with pytest.raises(ConfigError, match="ONNX models are not trained"):
        ngraph_mxnet.explain_training(onnx_model(), {})
    with pytest.raises(ModelError, match="a Gluon block needs the shapes"):
        ngraph_mxnet.explain(block())


# ---- notebooks -------------------------------------------------------------------------------------------------


def test_a_graph_in_a_notebook() -> None:
    graph = parse_graph(TEXT)
    assert repr(graph) == "<Graph @small of 2 nodes: x: f32[2,3], w: f32[4,3] -> f32[2,4]>"
    svg = graph._repr_svg_()
    assert svg is not None and svg.startswith("<svg") and "f32[2,4]" in svg


@pytest.mark.parametrize(("nodes", "drawn"), [(300, True), (301, False)])
def test_a_large_graph_is_not_drawn(nodes: int, drawn: bool) -> None:
    """Which would take more than a hundred calls of functions for each node."""
    builder, calls = ngraph_mxnet.Builder(), []
    value = builder.parameter("x", (2,))
    for _ in range(nodes):
        value = builder.relu(value)
    graph = builder.results(value)
    sys.setprofile(lambda frame, event, _: calls.append(event) if event == "call" else None)
    try:
        svg = graph._repr_svg_()
    finally:
        sys.setprofile(None)
    assert (svg is not None) == drawn == (len(calls) > 5 * nodes), len(calls)


def test_a_profile_in_a_notebook() -> None:
    found = compiled().profile(X, rounds=2)
    assert repr(found) == str(found) and "contraction" in str(found)
    html = found._repr_html_()
    assert html.startswith("<pre ") and "contraction" in html and "<span style" in html
