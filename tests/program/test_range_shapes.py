"""Ranges of sizes that a user tells: how they are written, and models that are compiled for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ngraph_mxnet
from ngraph_mxnet.base.errors import ConfigError, ModelError
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.ir.ranges import bindings_to_try, checked_shape, has_ranges, symbolic_shapes
from ngraph_mxnet.ir.sizes import symbols_in
from ngraph_mxnet.program.executable import InputError
from ngraph_mxnet.program.ranges import RangeExecutable

rng = np.random.default_rng(0)


@pytest.mark.parametrize(("size", "low", "high"), [
    ("1..32", 1, 32), ("8..", 8, 1 << 46), ("H", 1, 1 << 46), ("H:8..640", 8, 640), (" W_2:0..9", 0, 9),
])
def test_what_is_a_range(size: str, low: int, high: int) -> None:
    (found,) = symbolic_shapes({"data": (size,)})["data"]
    assert found.bounds == (low, high)
    assert has_ranges({"data": (3, size)}) and not has_ranges({"data": (3, 4)})


def test_numbers_are_numbers() -> None:
    assert checked_shape("data", (np.int64(3), "4", "5..5")) == (3, 4, 5)


@pytest.mark.parametrize("size", ["", "..", "..3", "5..4", "a..b", "H:", "H:x", "min", "1,2", "-1..3", 1.5, True, None])
def test_what_is_none(size: Any) -> None:
    with pytest.raises(ConfigError, match=r"input 'data': found the size .*, expected a number, a range as '1\.\.32'"):
        checked_shape("data", (1, size))


def test_one_name_is_one_size() -> None:
    found = symbolic_shapes({"a": ("1..32", 3, "H", "W"), "b": ("1..32", "H:8..640"), "c": ("H",)})
    assert [(str(size), size.bounds) for size in (found["a"][2], found["b"][1], found["c"][0])] == [("H", (8, 640))] * 3
    assert [(atom.text, atom.high) for atom in symbols_in(*found.values())][:2] == [("N", 32), ("H", 640)]
    assert str(found["b"][0]) == "N2"
    with pytest.raises(ConfigError, match=r"size H: found 1\.\.9 and 8\.\.640, expected one range"):
        symbolic_shapes({"a": ("H:8..640",), "b": ("H:1..9",)})


def test_sizes_to_try_lie_within() -> None:
    symbols = symbols_in(*symbolic_shapes({"a": ("1..32", "8..", "H:0..3")}).values())
    for binding in bindings_to_try(symbols):
        assert all(atom.low <= binding[atom.text] <= atom.high for atom in symbols)


# ---- ONNX ------------------------------------------------------------------------------------------------------


def convolved(kernel: int = 3) -> bytes:
    """data[batch,3,h,w] and scale[batch,1,1,1]; its mean is out."""
    weights = numpy_helper.from_array(rng.standard_normal((16, 3, kernel, kernel), np.float32), "w")
    nodes = [helper.make_node("Conv", ["data", "w"], ["c"], strides=[2, 2]), helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("Mul", ["r", "scale"], ["m"]), helper.make_node("GlobalAveragePool", ["m"], ["out"])]
    inputs = [helper.make_tensor_value_info("data", TensorProto.FLOAT, ["batch", 3, "h", "w"]),
              helper.make_tensor_value_info("scale", TensorProto.FLOAT, ["batch", 1, 1, 1])]
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "net", inputs, outputs, [weights])
    return bytes(onnx.helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


RANGES = {"data": ("1..32", 3, "H", "W:6.."), "scale": ("1..32", 1, 1, 1)}


def test_an_onnx_model_for_a_range() -> None:
    content = convolved()
    run = ngraph_mxnet.compile(content, "CPU", shapes=RANGES)
    assert isinstance(run, RangeExecutable)
    assert [str(port) for port in run.inputs] == ["data: f32[batch,3,H,W]", "scale: f32[batch,1,1,1]"]
    for batch, height, width in ((2, 20, 30), (32, 7, 6), (1, 64, 65), (2, 20, 30)):
        arrays = (rng.standard_normal((batch, 3, height, width), np.float32),
                  rng.standard_normal((batch, 1, 1, 1), np.float32))
        expected = ngraph_mxnet.compile(content, "INTERPRETER")(*arrays)
        np.testing.assert_allclose(run(*arrays)[0], expected[0], rtol=1e-4, atol=1e-5)
    assert 1 <= len(run.templates) <= 2


@pytest.mark.parametrize(("data", "scale", "text"), [
    ((33, 3, 8, 8), (33, 1, 1, 1), r"input 'data': found shape \(33, 3, 8, 8\), expected f32\[batch,3,H,W\] with"),
    ((1, 3, 8, 5), (1, 1, 1, 1), r"input 'data': .* with W from 6"),
    ((2, 3, 8, 8), (3, 1, 1, 1), r"input 'scale': found shape \(3, 1, 1, 1\), expected \(2, 1, 1, 1\)"),
    ((2, 4, 8, 8), (2, 1, 1, 1), r"input 'data': found shape \(2, 4, 8, 8\), expected \(2, 3, 8, 8\)"),
])
def test_sizes_out_of_a_range(data: tuple[int, ...], scale: tuple[int, ...], text: str) -> None:
    run = ngraph_mxnet.compile(convolved(), "CPU", shapes=RANGES)
    with pytest.raises(InputError, match=text):
        run(np.zeros(data, np.float32), np.zeros(scale, np.float32))


def test_what_an_onnx_model_does_not_allow() -> None:
    with pytest.raises(ModelError, match="'data'"):
        ngraph_mxnet.compile(convolved(), "CPU", shapes={**RANGES, "data": ("1..32", "C", "H", "W")})
    with pytest.raises(ModelError, match="no inputs"):
        ngraph_mxnet.compile(convolved(), "CPU", shapes={**RANGES, "date": ("N",)})
    with pytest.raises(ConfigError, match=r"found the size '1\.\.\.3'"):
        ngraph_mxnet.compile(convolved(), "CPU", shapes={**RANGES, "scale": ("1...3", 1, 1, 1)})


@pytest.mark.parametrize("backend", ["INTERPRETER", "NNP"])
def test_backends_without_templates(backend: str) -> None:
    """They compile each set of sizes for itself."""
    content = convolved()
    run = ngraph_mxnet.compile(content, backend, shapes=RANGES)
    arrays = (rng.standard_normal((2, 3, 9, 8), np.float32), np.ones((2, 1, 1, 1), np.float32))
    expected = ngraph_mxnet.compile(content, "INTERPRETER")(*arrays)
    np.testing.assert_allclose(run(*arrays)[0], expected[0], rtol=0.1 if backend == "NNP" else 1e-5, atol=0.1)


def test_a_graphs_ranges_are_in_its_types() -> None:
    b = Builder()
    graph = b.results(b.relu(b.parameter("x", (2, 3))))
    with pytest.raises(ConfigError, match="graphs hold their own"):
        ngraph_mxnet.compile(graph, shapes={"x": ("1..4", 3)})
