"""Models cut behind chosen results: outputs, or values within, by the framework's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import ngraph_mxnet
from ngraph_mxnet.base.errors import ConfigError, ModelError, UnsupportedError
from ngraph_mxnet.frontends.model import model_of
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.tools.cli.commands import main
from ngraph_mxnet.tools.verifying.verified import verify

SHAPE = (2, 3, 12, 12)
ALONE = r"cls_prob_output, det_output can be had alone, by results= or --result cls_prob_output"


def detector() -> Any:
    """As a training script leaves it: with targets, losses, and the detections for its metric."""
    data, label = mx.sym.var("data"), mx.sym.var("label")
    body = mx.sym.Convolution(data, kernel=(3, 3), pad=(1, 1), num_filter=4, name="conv")
    scores = mx.sym.Convolution(body, kernel=(1, 1), num_filter=6, name="scores")
    scores = mx.sym.reshape(mx.sym.transpose(scores, axes=(0, 2, 3, 1)), shape=(0, -1, 3))
    scores = mx.sym.transpose(scores, axes=(0, 2, 1))
    places = mx.sym.flatten(mx.sym.transpose(
        mx.sym.Convolution(body, kernel=(1, 1), num_filter=8, name="places"), axes=(0, 2, 3, 1)))
    anchors = mx.sym.contrib.MultiBoxPrior(body, sizes=(0.3, 0.5), ratios=(1,), name="anchors")
    targets = mx.sym.contrib.MultiBoxTarget(anchors, label, scores, name="targets")
    prob = mx.sym.SoftmaxOutput(scores, targets[2], multi_output=True, name="cls_prob")
    loss = mx.sym.MakeLoss(mx.sym.smooth_l1(targets[1] * (places - targets[0]), scalar=1.0), name="loc_loss")
    classes = mx.sym.MakeLoss(targets[2], grad_scale=0, name="cls_label")
    detections = mx.sym.contrib.MultiBoxDetection(prob, places, anchors, nms_threshold=0.5, nms_topk=20, name="det")
    return mx.sym.Group([prob, loss, classes, detections])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, dict[str, np.ndarray], list[np.ndarray]]:
    """The symbol and its weights as files, the inputs, and the outputs in MXNet."""
    prefix = str(tmp_path_factory.mktemp("detector") / "net")
    symbol, rng = detector(), np.random.default_rng(3)
    executor = symbol.simple_bind(mx.cpu(), data=SHAPE, label=(2, 4, 5), grad_req="null")
    for array in executor.arg_arrays:
        array[:] = rng.normal(0, 0.3, array.shape)
    inputs = {"data": rng.random(SHAPE, np.float32)}
    executor.arg_dict["data"][:] = inputs["data"]
    executor.arg_dict["label"][:] = -1
    weights = {name: array for name, array in executor.arg_dict.items() if not name.endswith(("data", "label"))}
    mx.model.save_checkpoint(prefix, 0, symbol, weights, {})
    return f"{prefix}-symbol.json", f"{prefix}-0000.params", inputs, [
        output.asnumpy() for output in executor.forward(is_train=False)]


def test_a_training_symbol_says_which_outputs_can_be_had(files: Any) -> None:
    symbol, params, *_ = files
    with pytest.raises(ModelError, match=f"shape of label is not known.*{ALONE}"):
        ngraph_mxnet.compile(symbol, "CPU", params=params, shapes={"data": SHAPE})
    with pytest.raises(UnsupportedError, match=rf"as a whole; {ALONE}:\n.*targets"):
        ngraph_mxnet.compile(symbol, "CPU", params=params, shapes={"data": SHAPE, "label": (2, 4, 5)})


@pytest.mark.parametrize("live", [False, True])
def test_its_detections_are_mxnets(files: Any, live: bool) -> None:
    path, params, inputs, expected = files
    model = mx.sym.load(path) if live else path
    weights = mx.nd.load(params) if live else params
    compiled = ngraph_mxnet.compile(model, "CPU", params=weights, shapes={"data": SHAPE},
                                    results=["det_output", "cls_prob_output"])
    assert [port.name for port in compiled.outputs] == ["det_output", "cls_prob_output"]
    assert [port.name for port in compiled.inputs] == ["data"]
    for found, wanted in zip(compiled(**inputs), (expected[3], expected[0]), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_it_is_verified_explained_exported_and_written(files: Any, tmp_path: Path) -> None:
    symbol, params, inputs, expected = files
    given = [symbol, "--params", params, "--shape", f"data={','.join(map(str, SHAPE))}", "--result", "det_output"]
    for command in (["verify", *given], ["verify", *given, "--against", "interpreter"], ["explain", *given],
                    ["compile", *given, "--isa", "baseline", "-o", str(tmp_path / "net.ngraph")],
                    ["to-onnx", *given, "-o", str(tmp_path / "net.onnx")], ["bench", *given, "--rounds", "1"]):
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.output
    for file in ("net.ngraph", "net.onnx"):
        (found,) = ngraph_mxnet.compile(tmp_path / file, "CPU")(**inputs)
        np.testing.assert_allclose(found, expected[3], rtol=1e-5, atol=1e-5)


def test_values_within_a_symbol_go_by_mxnets_names() -> None:
    data = mx.sym.var("data")
    parts = mx.sym.SliceChannel(data, num_outputs=2, name="parts")
    normal = mx.sym.BatchNorm(parts[1], name="norm")
    last = mx.sym.exp(normal, name="norm_exp")
    x = np.random.default_rng(0).random((2, 4), np.float32)
    weights = {"norm_gamma": np.ones(2, "f4"), "norm_beta": np.zeros(2, "f4"), "norm_moving_mean": np.zeros(2, "f4"),
               "norm_moving_var": np.ones(2, "f4")}
    within = ["parts_output1", "norm_output", "norm_exp_output"]
    assert set(within) <= set(last.get_internals().list_outputs())
    ours = ngraph_mxnet.compile(last, "CPU", params=weights, shapes={"data": (2, 4)}, results=within)(x)
    executor = last.get_internals().bind(mx.cpu(), {"data": mx.nd.array(x), **{
        name: mx.nd.array(weights[name]) for name in weights if "moving" not in name}}, aux_states={
        name: mx.nd.array(weights[name]) for name in weights if "moving" in name})
    theirs = dict(zip(last.get_internals().list_outputs(), executor.forward(), strict=True))
    for name, found in zip(within, ours, strict=True):
        np.testing.assert_allclose(found, theirs[name].asnumpy(), rtol=1e-5, err_msg=name)
    only = ngraph_mxnet.compile(last, "CPU", params={}, shapes={"data": (2, 4)}, results=["parts_output0"])
    np.testing.assert_array_equal(only(x)[0], x[:, :2])  # the norm's weights are not asked for


def test_values_within_a_block_and_an_onnx_model() -> None:
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(3, in_units=4, activation="relu"), mx.gluon.nn.Dense(2, in_units=3))
    net.initialize(mx.init.Xavier())
    x = np.random.default_rng(0).random((2, 4), np.float32)
    (found,) = ngraph_mxnet.compile(net, "CPU", shapes={"data": x.shape}, results=[f"{net[0].name}_fwd_output"])(x)
    wanted = x @ net[0].weight.data().asnumpy().T + net[0].bias.data().asnumpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)

    nodes = [helper.make_node("Relu", ["x"], ["hidden"]), helper.make_node("Mul", ["hidden", "z"], ["y"])]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in ("x", "z", "y")]
    model = helper.make_model(helper.make_graph(nodes, "two", infos[:2], infos[2:]),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = ngraph_mxnet.compile(model, "CPU", results=["hidden"])
    assert [port.name for port in compiled.inputs] == ["x"]
    np.testing.assert_array_equal(compiled(x - 0.5)[0], np.maximum(x - 0.5, 0))
    with pytest.raises(ModelError, match="no result is called hiden; there are hidden, y"):
        ngraph_mxnet.compile(model, "CPU", results=["hiden"])
    assert onnx.load_model_from_string(model.SerializeToString()) == model


def test_values_of_a_graph_go_by_their_names_in_its_text() -> None:
    b = Builder()
    x, z = b.parameter("x", (2,), "f32"), b.parameter("z", (2,), "f32")
    graph = b.results(b.multiply(b.negative(x), z))
    compiled = ngraph_mxnet.compile(graph, "CPU", results=["%0"])
    assert [port.name for port in compiled.inputs] == ["x"] and len(graph.results) == 1
    np.testing.assert_array_equal(compiled(np.float32([1, -2]))[0], [-1, 2])
    np.testing.assert_array_equal(
        ngraph_mxnet.compile(graph, "CPU", results=["output0"])(np.float32([1, 2]), np.float32([3, 4]))[0], [-3, -8])
    text = "graph @g(%x: f32[2], %w: f32[2] weight) -> (f32[2]) {\n  %0: f32[2] = exp(%x)\n" \
           "  %1: f32[2] = negative(%x)\n  %2: f32[2] = multiply(%1, %w)\n  %3: f32[2] = add(%0, %2)\n  return %3\n}\n"
    weights = {"w": np.float32([2, 3])}
    (product,) = ngraph_mxnet.compile(model_of(text, results=["%2"]), "CPU", params=weights)(np.float32([1, -2]))
    np.testing.assert_array_equal(product, [-2, 6])  # weights that come later find the same value
    assert verify(text, params=weights, results=["%2"]).agrees
    with pytest.raises(ModelError, match="no result is called %7; there are %"):
        ngraph_mxnet.compile(graph, "CPU", results=["%7"])


def test_what_can_not_be_chosen_is_told(tmp_path: Path) -> None:
    symbol = mx.sym.exp(mx.sym.var("data"), name="last")
    with pytest.raises(ModelError, match="no result is called lst_output; there are last_output"):
        ngraph_mxnet.compile(symbol.tojson(), "CPU", shapes={"data": (2,)}, results=["lst_output"])
    with pytest.raises(ConfigError, match=r"results: found 'last_output', expected a list, as \['fc1_output'\]"):
        ngraph_mxnet.compile(symbol.tojson(), "CPU", shapes={"data": (2,)}, results="last_output")
    ngraph_mxnet.export(symbol, tmp_path / "net.ngraph", params={}, data=(2,), isas=["baseline"])
    with pytest.raises(ConfigError, match=r"results \(--result\) are chosen of symbols, .*; compiled files hold"):
        ngraph_mxnet.compile(tmp_path / "net.ngraph", "CPU", results=["last_output"])
