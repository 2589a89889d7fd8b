"""One name for one argument, in all functions that take a model; a call's arrays by name; names of results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from onnx import helper
from onnx_models import model as onnx_model
from onnx_models import value

import ngraph_mxnet
from ngraph_mxnet.base.errors import CalibrationError, ConfigError, ModelError
from ngraph_mxnet.program.executable import InputError

SHAPES = {"data": (2, 3)}
X = np.arange(6, dtype=np.float32).reshape(2, 3)
GRAPH = ("graph @sum(%x: f32[2], %y: f32[2]) -> (f32[2]) {\n  %0: f32[2] = subtract(%x, %y)\n  return %0\n}\n")


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="dense")
    net.save(str(tmp_path / "net-symbol.json"))
    mx.nd.save(str(tmp_path / "net.params"), {"arg:dense_weight": mx.nd.ones((4, 3)), "arg:dense_bias": mx.nd.ones(4)})
    return str(tmp_path / "net-symbol.json"), str(tmp_path / "net.params")


def _take_parameters(model: str, folder: Path) -> dict[str, Callable[..., Any]]:
    return {
        "compile": lambda **given: ngraph_mxnet.compile(model, shapes=SHAPES, **given)(X),
        "export": lambda **given: ngraph_mxnet.export(model, folder / "out.ngraph", isas=["baseline"], data=(2, 3),
                                                      **given),
        "verify": lambda **given: ngraph_mxnet.verify(model, shapes=SHAPES, **given),
        "quantize": lambda **given: ngraph_mxnet.quantize(model, {"data": X}, only_faster=False, progress=False,
                                                          **given),
    }


@pytest.mark.parametrize("function", ["compile", "export", "verify", "quantize"])
def test_parameters_have_one_name_and_an_older_one(function: str, files: tuple[str, str], tmp_path: Path) -> None:
    model, path = files
    call, arrays = _take_parameters(model, tmp_path)[function], mx.nd.load(path)
    for name in ("params", "weights"):
        call(**{name: path})
        call(**{name: arrays})
    with pytest.raises(ConfigError, match="two names of one argument: give params="):
        call(params=path, weights=path)


def test_a_file_of_parameters_gives_what_its_arrays_give(files: tuple[str, str]) -> None:
    model, path = files
    (found,), (expected,) = (ngraph_mxnet.compile(model, params=given, shapes=SHAPES)(X)
                             for given in (path, mx.nd.load(path)))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(found, X @ np.ones((3, 4), np.float32) + 1)


@pytest.mark.parametrize("call", [
    lambda model, shapes: ngraph_mxnet.compile(model, params={}, shapes=shapes),
    lambda model, shapes: ngraph_mxnet.export(model, "none.ngraph", params={}, shapes=shapes),
    lambda model, shapes: ngraph_mxnet.verify(model, shapes=shapes),
    lambda model, shapes: ngraph_mxnet.quantize(model, [X], params={}, shapes=shapes),
    ngraph_mxnet.explain, ngraph_mxnet.explain_training,
    lambda model, shapes: ngraph_mxnet.explain_shapes(model, shapes, {"data": (0,)}),
])
def test_shapes_without_names_are_refused_with_an_example(call: Callable[..., Any], files: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"shapes: found \[1, 3\], expected a dict by the inputs' names, as shapes="):
        call(files[0], [1, 3])


@pytest.mark.parametrize(("call", "message"), [
    (lambda model: ngraph_mxnet.compile(model, params={}, shapes={"data": 3}), r"shapes: found \{'data': 3\}, exp"),
    (lambda model: ngraph_mxnet.compile(model, params={}, shapes={"data": "1,3"}), "shapes: found {'data': '1,3'}"),
    (lambda model: ngraph_mxnet.compile(model, params={}, shapes={"data": (-1, 3)}), "'data': found the size -1"),
    (lambda model: ngraph_mxnet.explain(model, {"data": ("N", 3)}), "'data': found the size 'N', expected a number"),
    (lambda model: ngraph_mxnet.explain_training(model, {"data": (1.5, 3)}), "'data': found the size 1.5, expected"),
    (lambda model: ngraph_mxnet.verify(model, shapes={"data": ("1..2", 3)}), "found the size '1..2', expected a num"),
    (lambda model: ngraph_mxnet.explain_shapes(model, SHAPES, {"data": "N"}), "axes: found {'data': 'N'}, expected"),
    (lambda model: ngraph_mxnet.explain_shapes(model, SHAPES, {"data": ["N"]}), "axis N of 'data' is to change; there"),
    (lambda model: ngraph_mxnet.compile(model, params=3, shapes=SHAPES), "params: found 3, expected arrays by name"),
    (lambda model: ngraph_mxnet.compile(model, 3, params={}, shapes=SHAPES), "no backend 3; known: CPU"),
    (lambda model: ngraph_mxnet.explain_shapes(model, SHAPES, {"data": 0}), "axes: found {'data': 0}, exp"),
    (lambda model: ngraph_mxnet.export(model, "none.ngraph", isas="avx2"), "isas: found 'avx2', expected a list"),
    (lambda model: ngraph_mxnet.export(model, "none.ngraph", metadata=3), "metadata: found 3, expected a dict"),
    (lambda model: ngraph_mxnet.verify(model, tolerance="1e-3"), "tolerance: found '1e-3', expected a number"),
    (lambda model: ngraph_mxnet.verify(model, seed="one"), "seed: found 'one', expected a number"),
    (lambda model: ngraph_mxnet.quantize(model, [X], keep="fc"), r"keep: found 'fc', expected a list, as \['conv0'\]"),
    (lambda model: ngraph_mxnet.quantize(model, [X], max_drop="1"), "max_drop: found '1', expected a number"),
])
def test_arguments_of_another_form_are_refused(call: Callable[[str], Any], message: str,
                                               files: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match=message):
        call(files[0])


def test_parameters_that_are_no_arrays_are_refused(files: tuple[str, str]) -> None:
    with pytest.raises(ModelError, match="parameter 'fc_weight': found 3, expected an array"):
        ngraph_mxnet.compile(files[0], params={"fc_weight": 3}, shapes=SHAPES)


def test_a_recipe_that_is_none_is_refused(files: tuple[str, str]) -> None:
    with pytest.raises(CalibrationError, match="option recipe: found 3, expected a recipe or a file of one"):
        ngraph_mxnet.compile(*files[:1], params=files[1], shapes=SHAPES, precision="int8", recipe=3)


def test_arrays_of_a_call_may_have_names() -> None:
    x, y = np.float32([5, 7]), np.float32([1, 2])
    exe = ngraph_mxnet.compile(GRAPH)
    for result in (exe(x, y), exe(x=x, y=y), exe(y=y, x=x), exe(x, y=y), exe({"x": x}, y=y),
                   exe.run_async(x, y=y).result()):
        np.testing.assert_array_equal(result[0], [4, 5])
    for arrays, named, message in (((x,), {"x": x}, "x: found two arrays"), ((x,), {"z": y}, "unknown z, missing y"),
                                   ((), {"x": x}, "unknown none, missing y"),
                                   ((x, y, y), {"y": y}, "found 3 inputs, expected 2")):
        with pytest.raises(InputError, match=message):
            exe(*arrays, **named)


def test_arrays_of_an_onnx_model_and_of_a_compiled_file_may_have_names(tmp_path: Path) -> None:
    model = onnx_model([helper.make_node("Relu", ["x"], ["y"])], [value("x", (2, 3))], [value("y", (2, 3))])
    np.testing.assert_array_equal(ngraph_mxnet.compile(model.SerializeToString())(x=-X)[0], np.zeros((2, 3)))
    ngraph_mxnet.export(model.SerializeToString(), tmp_path / "relu.ngraph", isas=["baseline"])
    np.testing.assert_array_equal(ngraph_mxnet.compile(tmp_path / "relu.ngraph")(x=X)[0], X)


def test_a_result_is_called_as_mxnet_calls_it(files: tuple[str, str], tmp_path: Path) -> None:
    model, path = files
    ngraph_mxnet.export(model, tmp_path / "out.ngraph", params=path, isas=["baseline"], shapes=SHAPES)
    symbol, arrays = mx.sym.load(model), mx.nd.load(path)
    made = [ngraph_mxnet.compile(model, params=path, shapes=SHAPES),
            ngraph_mxnet.compile(symbol, params=arrays, shapes=SHAPES), ngraph_mxnet.compile(tmp_path / "out.ngraph")]
    verified = ngraph_mxnet.verify(model, params=path, shapes=SHAPES)
    names = [*([port.name for port in exe.outputs] for exe in made), [name for name, _ in verified.outputs]]
    head = mx.sym.var("x")
    twice = mx.sym.Group([mx.sym.relu(head, name="a"), mx.sym.relu(head, name="b"), head])
    for backend in ("CPU", "INTERPRETER", "NNP"):
        exe = ngraph_mxnet.compile(twice, backend, params={}, shapes={"x": (2, 3)})
        assert [port.name for port in exe.outputs] == twice.list_outputs() == ["a_output", "b_output", "x"]
    assert names == [symbol.list_outputs()] * 4 == [["dense_output"]] * 4
