"""`ngraph_mxnet.export` of models of every kind: what is in the file gives what the executable gives, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from artefact_runs import isas_here, kernels, of, random_inputs, run
from mxnet.gluon import nn, rnn
from mxnet.gluon.model_zoo import vision
from onnx import helper
from onnx_models import network

import ngraph_mxnet
from ngraph_mxnet.base.errors import ConfigError, ModelError, UnsupportedError
from ngraph_mxnet.frontends.model import model_of
from ngraph_mxnet.program.artefact import Artefact, load

TEAMS = (1, 2, 5)


def exported(model: Any, tmp_path: Path, **arguments: Any) -> Artefact:
    ngraph_mxnet.export(model, tmp_path / "model.ngraph", **arguments)
    return load(tmp_path / "model.ngraph")


def block_of(name: str) -> tuple[mx.gluon.HybridBlock, tuple[int, ...]]:
    mx.random.seed(1)
    if name == "mobilenet0.25":
        block, shape = vision.mobilenet0_25(classes=20), (1, 3, 64, 64)
    elif name == "lstm":
        block, shape = rnn.LSTM(24, num_layers=2, bidirectional=True), (7, 2, 10)
    else:
        block = nn.HybridSequential()
        block.add(nn.Conv2D(16, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(), nn.Dense(5))
        shape = (2, 3, 12, 12)
    block.initialize(mx.init.Xavier())
    return block, shape


def compiled(block: mx.gluon.HybridBlock, shapes: Mapping[str, tuple[int, ...]], isa: str) -> Any:
    graph, weights = model_of(block).graph(shapes, "CPU")()
    return ngraph_mxnet.compile(graph, "CPU", weights=weights, isa=isa)


@pytest.mark.parametrize("name", ["conv", "lstm", "mobilenet0.25"])
def test_a_block(name: str, tmp_path: Path) -> None:
    block, shape = block_of(name)
    found = exported(block, tmp_path, data=shape)
    inputs = random_inputs(found.sets[0])
    for isa in isas_here()[:-1]:  # baseline, beside others, is without Winograd's algorithm: below
        program = of(found, isa)
        expected = compiled(block, {"data": shape}, isa)(*inputs)
        for threads in TEAMS:
            for result, wanted in zip(run(program, inputs, threads), expected, strict=True):
                np.testing.assert_array_equal(result, wanted, strict=True)
    own = block(mx.nd.array(inputs[0])).asnumpy()
    np.testing.assert_allclose(run(of(found, "baseline"), inputs)[0], own, rtol=1e-4, atol=1e-5)


def test_an_onnx_model_for_several_shapes(tmp_path: Path) -> None:
    found = exported(network(channels=16), tmp_path, x=[(1, 3, 8, 8), (4, 3, 8, 8)], metadata={"version": "3"},
                     with_references=True)
    assert [name for name, _ in found.sets[0].outputs] == ["y"] and found.meta.metadata == {"version": "3"}
    model = ngraph_mxnet.compile(network(channels=16), "CPU")
    for shapes in (0, 1):
        program = of(found, isas_here()[0], shapes)
        inputs = random_inputs(program)
        np.testing.assert_array_equal(run(program, inputs)[0], model(*inputs)[0], strict=True)
        np.testing.assert_allclose(run(program, found.references[shapes].inputs)[0],
                                   found.references[shapes].outputs[0], rtol=1e-5)
    model.save(tmp_path / "called.ngraph")  # for the shapes that it was called with
    assert load(tmp_path / "called.ngraph").sets[3].inputs == found.sets[3].inputs


def test_a_symbol_with_a_label(tmp_path: Path) -> None:
    """The label is no input; outputs have the symbol's names."""
    symbol = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="fc"), name="softmax")
    weights = {"arg:fc_weight": mx.nd.ones((4, 3)), "arg:fc_bias": mx.nd.ones(4)}
    found = exported(symbol, tmp_path, weights=weights, data=(2, 3))
    program = of(found, "baseline")
    assert [name for name, _ in program.inputs] == ["data"]
    assert [name for name, _ in program.outputs] == ["softmax_output"]
    np.testing.assert_allclose(run(program, random_inputs(program))[0], np.full((2, 4), 0.25), rtol=1e-6)


def test_several_inputs_of_a_block_are_given_in_its_order(tmp_path: Path) -> None:
    class Difference(mx.gluon.HybridBlock):
        def hybrid_forward(self, F: Any, a: Any, b: Any) -> Any:  # noqa: N803
            return F.broadcast_sub(a, b), [F.relu(b)]

    found = exported(Difference(), tmp_path, first=[(1, 3), (2, 3)], second=(1, 3))
    assert len(found.sets) == 6
    program = of(found, "baseline", 1)
    assert [(name, type_.shape) for name, type_ in program.inputs] == [("first", (2, 3)), ("second", (1, 3))]
    inputs = random_inputs(program)
    difference, positive = run(program, inputs)
    np.testing.assert_array_equal(difference, inputs[0] - inputs[1])
    np.testing.assert_array_equal(positive, np.maximum(inputs[1], 0))


@pytest.mark.parametrize("features", [None, {}])
def test_bf16_is_for_avx512(features: dict[str, bool] | None, tmp_path: Path, on_cpu: Callable[..., None]) -> None:
    """Also where the CPU has none of it: weights are rounded by the kernels of another instruction set."""
    if features is not None:
        on_cpu(features)
    found = exported(network(8, channels=16), tmp_path, precision="bf16")
    assert found.meta.precision == "bf16"
    names = {one.isa: kernels(one) for one in found.sets}
    assert any("bf16" in kernel for kernel in names["avx512"])
    assert not any("bf16" in kernel for isa in ("avx2", "baseline") for kernel in names[isa])


def test_a_model_that_can_not_be_compiled_whole_names_all_nodes(tmp_path: Path) -> None:
    data = mx.sym.var("data")
    symbol = mx.sym.linalg.inverse(mx.sym.linalg.inverse(data, name="one") + 1, name="two")
    with pytest.raises(UnsupportedError, match=r"one _linalg_inverse: (.|\n)*two _linalg_inverse: "):
        exported(symbol, tmp_path, weights={}, data=(3, 3))
    model = network(1)
    model.graph.node[1].op_type = model.graph.node[3].op_type = "Mystery"
    for place in (1, 3):
        model.graph.node[place].domain = "here"
    model.opset_import.append(helper.make_opsetid("here", 1))
    with pytest.raises(UnsupportedError, match=r"node relu Mystery: no rule(.|\n)*node flat Mystery: no rule"):
        exported(model.SerializeToString(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_all_refusals_of_an_onnx_model_are_listed(tmp_path: Path) -> None:
    """Also behind a node that is refused, where ONNX tells its type; else how many were not looked at."""
    model = network(1)
    nodes = model.graph.node
    nodes[1].attribute.append(helper.make_attribute("strange", 1))
    nodes[3].attribute.append(helper.make_attribute("odd", 1))
    nodes[4].domain, nodes[4].op_type = "here", "Mystery"
    model.opset_import.append(helper.make_opsetid("here", 1))
    nodes.append(helper.make_node("Relu", ["y"], ["z"], name="behind"))
    model.graph.output[0].name = "z"
    with pytest.raises(UnsupportedError) as caught:
        exported(model, tmp_path)
    title, *lines = str(caught.value).split("\n  ")
    assert title == "the model can't be compiled as a whole:"
    assert [line.split(":")[0] for line in lines[:3]] == ["node relu Relu", "node flat Flatten", "node dense Mystery"]
    assert "strange" in lines[0] and "odd" in lines[1] and "no rule for the operator here Mystery" in lines[2]
    assert lines[3:] == ["not looked at, since they read what these compute, of unknown types: 1 nodes"]


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ({}, ModelError, "needs the shapes of its"),
    ({"data": 3}, ConfigError, "data=3: expected a shape"),
    ({"data": [(1, 3), (1, 3)]}, ConfigError, "two sets of shapes are the same"),
    ({"data": [(1, 3), (2, 3)], "b": [(1,), (2,), (3,)]}, ConfigError, "differ in length: data 2, b 3"),
    ({"data": (1, 3), "weights": {"w": 1}}, ConfigError, "Gluon blocks hold their own"),
    ({"data": (1, 3), "isas": ["avx9"]}, ConfigError, "no instruction set avx9"),
    ({"data": (1, 3), "more": (1, 3)}, ModelError, "called with data, more makes no symbol"),
])
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], message: str, tmp_path: Path) -> None:
    block = nn.Dense(4)
    block.initialize()
    with pytest.raises(error, match=message):
        exported(block, tmp_path, **arguments)
    assert not list(tmp_path.iterdir())


def test_a_symbol_without_weights_needs_none(tmp_path: Path) -> None:
    symbol = mx.sym.dot(mx.sym.var("data"), mx.sym.var("other")) * 2
    shapes = {"data": (2, 3), "other": (3, 2)}
    written = ngraph_mxnet.to_onnx(symbol, tmp_path / "net.onnx", shapes=shapes)
    assert written.inputs == {"data": "f32[2,3]", "other": "f32[3,2]"}
    found = exported(symbol, tmp_path, **shapes)
    (result,) = run(of(found, "baseline"), [np.eye(2, 3, dtype=np.float32), np.eye(3, 2, dtype=np.float32)], 1)
    np.testing.assert_array_equal(result, 2 * np.eye(2))


def test_weights_whose_shapes_are_told_are_inputs(tmp_path: Path) -> None:
    symbol = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, no_bias=True, name="fc")
    told = {"data": (2, 3), "fc_weight": (4, 3)}
    assert list(ngraph_mxnet.to_onnx(symbol, tmp_path / "net.onnx", shapes=told).inputs) == list(told)


def test_weights_that_are_missing(tmp_path: Path) -> None:
    symbol = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="fc")
    with pytest.raises(ModelError, match="a symbol needs its weights"):
        exported(symbol, tmp_path, data=(2, 3))
    with pytest.raises(ModelError, match="no weights for fc_bias, fc_weight"):
        exported(symbol, tmp_path, weights={}, data=(2, 3))
    with pytest.raises(ModelError, match=r"Dense called with data makes no symbol with weights: .*initialized"):
        exported(nn.Dense(4), tmp_path, data=(2, 3))
