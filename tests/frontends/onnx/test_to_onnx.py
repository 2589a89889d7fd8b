"""Models as ONNX: names, sizes that stay symbols, what is folded, and what keeps a file from being there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from mxnet.gluon import nn, rnn

import ngraph_mxnet
from ngraph_mxnet.base.errors import CalibrationError, ConfigError, ModelError, UnsupportedError
from ngraph_mxnet.frontends.onnx.model import read_model
from ngraph_mxnet.frontends.onnx.reference import runtime_results, runtime_version
from ngraph_mxnet.frontends.onnx.writer import file
from ngraph_mxnet.frontends.onnx.writer.document import WRITERS
from ngraph_mxnet.frontends.onnx.writer.file import OnnxFile
from ngraph_mxnet.frontends.onnx.writer.model import written
from ngraph_mxnet.ir.opdef import all_ops
from ngraph_mxnet.tools.cli.commands import main


def saved(folder: Path, net: Any, *shape: int) -> tuple[str, str]:
    """A net's symbol and parameters, written as Gluon does."""
    mx.random.seed(3)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    net(mx.nd.random.uniform(shape=shape))
    net.export(str(folder / "net"))
    return str(folder / "net-symbol.json"), str(folder / "net-0000.params")


def images() -> nn.HybridSequential:
    net = nn.HybridSequential(prefix="images_")
    with net.name_scope():
        net.add(nn.Conv2D(8, 3, padding=1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"), nn.Dropout(0.5),
                nn.MaxPool2D(3, 2, ceil_mode=True), nn.Conv2DTranspose(4, 4, 2, padding=1), nn.GlobalAvgPool2D(),
                nn.Flatten(), nn.Dense(5))
    return net


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def results(path: Path, *arrays: np.ndarray) -> list[np.ndarray]:
    """By our reading of the file, on the CPU."""
    executable = ngraph_mxnet.compile(str(path), "CPU")
    return [np.asarray(result) for result in executable(*arrays)]


@pytest.mark.parametrize("optimise", [False, True])
@pytest.mark.parametrize("opset", [17, 20, 23])
def test_a_net_of_images(tmp_path: Path, opset: int, optimise: bool) -> None:
    symbol, params = saved(tmp_path, images(), 2, 3, 16, 16)
    path = tmp_path / "net.onnx"
    found = ngraph_mxnet.to_onnx(symbol, path, params=params, opset=opset, optimise=optimise, data=(2, 3, 16, 16),
                                 metadata={"made": "by a test"})
    assert isinstance(found, OnnxFile) and found.bytes == path.stat().st_size
    assert found.inputs == {"data": "f32[2,3,16,16]"} and list(found.outputs) == ["images_dense0_fwd_output"]
    assert [one.difference is not None and one.difference < 1e-5 for one in found.compared]
    proto = onnx.load(path)
    assert proto.opset_import[0].version == opset
    assert {prop.key: prop.value for prop in proto.metadata_props} == {"made": "by a test"}
    assert ("BatchNormalization" in operators(path)) is not optimise
    assert {tensor.name for tensor in proto.graph.initializer} >= {"images_dense0_weight"}
    x = np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype(np.float32)
    expected = ngraph_mxnet.compile(symbol, "INTERPRETER", params=params, shapes={"data": x.shape})(x)[0]
    np.testing.assert_allclose(results(path, x)[0], expected, 1e-4, 1e-5)


def test_sizes_stay_symbols(tmp_path: Path) -> None:
    """Also such as are computed: what a flattened image has, and the size behind a convolution."""
    data = mx.sym.var("data")
    body = mx.sym.Convolution(data, num_filter=4, kernel=(3, 3), stride=(2, 2), pad=(1, 1), no_bias=True, name="conv")
    both = mx.sym.Reshape(mx.sym.transpose(body, axes=(0, 2, 3, 1)), shape=(0, -3, 0), name="rows")
    net = mx.sym.Group([both, mx.sym.slice_axis(body, axis=3, begin=1, end=None), mx.sym.reverse(body, axis=2)])
    net.save(str(tmp_path / "net-symbol.json"))
    weights = {"conv_weight": np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype(np.float32)}
    path, shape = tmp_path / "net.onnx", ("N", 3, "H:4..64", "W:4..64")
    found = ngraph_mxnet.to_onnx(str(tmp_path / "net-symbol.json"), path, params=weights, data=shape)
    assert found.inputs == {"data": "f32[N,3,H,W]"} and len({str(one.sizes) for one in found.compared}) == 2
    for shape in ((1, 3, 9, 5), (3, 3, 16, 33)):
        x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
        expected = ngraph_mxnet.compile(str(tmp_path / "net-symbol.json"), "INTERPRETER", params=weights,
                                        shapes={"data": shape})(x)
        for ours, right in zip(results(path, x), expected, strict=True):
            np.testing.assert_allclose(ours, right, 1e-4, 1e-5)


def test_sizes_that_can_not_stay_symbols_are_told(tmp_path: Path) -> None:
    mx.sym.slice(mx.sym.var("data"), begin=(0, None), end=(None, None), step=(1, -2), name="turned").save(
        str(tmp_path / "net-symbol.json"))
    with pytest.raises(UnsupportedError, match=r"can't stay ranges; give numbers:\n  L is \d+, for .*turned"):
        ngraph_mxnet.to_onnx(str(tmp_path / "net-symbol.json"), tmp_path / "net.onnx", params={}, data=(2, "L:3..64"))


@pytest.mark.parametrize("optimise", [False, True])
@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_relu"])
def test_recurrent_layers_are_layers(tmp_path: Path, mode: str, optimise: bool) -> None:
    """Whose inputs' product is part of the layer: no product is left beside it."""
    layers = {"lstm": rnn.LSTM, "gru": rnn.GRU, "rnn_relu": rnn.RNN}
    net = nn.HybridSequential()
    net.add(layers[mode](8, num_layers=2, bidirectional=True, input_size=6))
    symbol, params = saved(tmp_path, net, 5, 2, 6)
    path = tmp_path / "net.onnx"
    ngraph_mxnet.to_onnx(symbol, path, params=params, optimise=optimise, data=(5, 2, 6))
    assert operators(path).count({"lstm": "LSTM", "gru": "GRU", "rnn_relu": "RNN"}[mode]) == 4
    assert not {"MatMul", "Gemm"} & set(operators(path))


def test_a_projected_state(tmp_path: Path) -> None:
    net = nn.HybridSequential()
    net.add(rnn.LSTM(8, projection_size=3, input_size=6))
    symbol, params = saved(tmp_path, net, 5, 2, 6)
    ngraph_mxnet.to_onnx(symbol, tmp_path / "net.onnx", params=params, data=(5, 2, 6))
    assert "Scan" in operators(tmp_path / "net.onnx")


ATTENTIONS = {
    "a row of the mask is empty": ("bool", -1e18, True, True), "no weight is cleared": ("bool", -1e18, False, True),
    "scores of minus infinity": ("bool", -np.inf, False, False), "scores that count": ("bool", -5.0, True, False),
    "a mask that is added": ("f32", -1e18, False, True), "no mask": ("", -1e18, False, True),
    "float64": ("f64", -1e18, False, False),
}


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("case", ATTENTIONS)
def test_attention_where_it_says_the_same(case: str, rank: int) -> None:
    """From opset 23 on, as ONNX Runtime computes it, too."""
    masked, fill, zeroed, whole = ATTENTIONS[case]
    b, lead, element = ngraph_mxnet.Builder(), (2, 3)[4 - rank:], "f64" if masked == "f64" else "f32"
    operands = [b.parameter(name, (*lead, *sizes), element) for name, sizes in (("q", (5, 8)), ("k", (7, 8)),
                                                                               ("v", (7, 6)))]
    if masked:
        operands.append(b.parameter("m", (*(1,) * (rank - 2), 5, 7), masked))
    graph = b.results(b.apply("attention", *operands, scale=0.3, fill=fill, zeroed=zeroed))
    proto = written(graph, {}, 23)
    onnx.checker.check_model(proto, full_check=True)
    assert ("Attention" in {node.op_type for node in proto.graph.node}) is whole
    rng = np.random.default_rng(0)
    arrays = {value.name: rng.standard_normal(value.shape).astype(value.element.numpy) for value in graph.parameters}
    if masked == "bool":
        arrays["m"] = rng.random((*(1,) * (rank - 2), 5, 7)) > 0.5
        arrays["m"][..., 1, :] = np.isinf(fill)
    (expected,) = ngraph_mxnet.compile(graph, "INTERPRETER")(*arrays.values())
    found = [np.asarray(ngraph_mxnet.compile(proto, "INTERPRETER")(*arrays.values())[0])]
    if runtime_version() is not None:
        found += runtime_results(read_model(proto), arrays, [proto.graph.output[0].name])
    for one in found:
        np.testing.assert_allclose(one, expected, 1e-5, 1e-6)


def test_results_have_their_names() -> None:
    """A result that is an input, a constant, or the same as another one, takes a node that names it."""
    b = ngraph_mxnet.Builder()
    x = b.parameter("x", (2, 3))
    doubled = x + x
    graph = b.results(x, doubled, doubled, b.constant(np.ones(2, np.float32)))
    graph.names = ["same", "twice", "again", "ones"]
    proto = written(graph, {})
    onnx.checker.check_model(proto, full_check=True)
    assert [value.name for value in proto.graph.output] == ["same", "twice", "again", "ones"]
    found = ngraph_mxnet.compile(proto, "INTERPRETER")(np.ones((2, 3), np.float32))
    assert [float(array.reshape(-1)[0]) for array in map(np.asarray, found)] == [1, 2, 2, 1]


def test_results_of_one_name() -> None:
    """A block that is called twice gives them; ONNX knows no two values of a name."""
    b = ngraph_mxnet.Builder()
    x = b.parameter("x", (2,))
    graph = b.results(x + x, b.relu(x), x)
    graph.names = ["out", "out", "x"]
    proto = written(graph, {})
    onnx.checker.check_model(proto, full_check=True)
    assert [value.name for value in proto.graph.output] == ["out", "out_1", "x_1"]


def residual() -> nn.HybridSequential:
    class Block(nn.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.HybridSequential()
            self.body.add(nn.Conv2D(8, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.Conv2D(8, 3, padding=1),
                          nn.BatchNorm())

        def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803
            return F.relu(self.body(x) + x)

    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3, padding=1, activation="relu"), Block(), Block(), nn.MaxPool2D(2), nn.Flatten(), nn.Dense(5))
    return net


def preactivated() -> nn.HybridSequential:
    """Sums that are kept for the next one, and normalized for the next convolution."""
    class Block(nn.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.HybridSequential()
            self.body.add(nn.BatchNorm(), nn.Activation("relu"), nn.Conv2D(8, 3, padding=1, use_bias=False))

        def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803
            return self.body(x) + x

    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3, padding=1), Block(), Block(), Block(), nn.BatchNorm(), nn.Activation("relu"), nn.Flatten(),
            nn.Dense(5))
    return net


STEPS = 0.05
"""How far results of 8 bits are apart, where sums of pairs are rounded once more: as far as they are from float32's."""


def in_8_bits(folder: Path, corrections: list[str] | None = None,
              net: Callable[[], Any] = residual) -> tuple[tuple[str, str], Any, np.ndarray]:
    """A net's files, what `quantize` makes of it, and samples."""
    files = saved(folder, net(), 1, 3, 8, 8)
    samples = np.random.default_rng(5).standard_normal((16, 3, 8, 8)).astype(np.float32)
    return files, ngraph_mxnet.quantize(files[0], samples, params=files[1], corrections=corrections, only_faster=False,
                                        progress=False), samples


@pytest.mark.parametrize(("net", "corrections", "in_float"), [
    (residual, [], 0), (residual, ["equalisation", "bias"], 0), (preactivated, [], 3)])
def test_a_recipe_in_pairs(tmp_path: Path, net: Callable[[], Any], corrections: list[str], in_float: int) -> None:
    """Weights are bytes, products read and give bytes but where a sum stays float32, and results are `quantize`'s
    but for single steps."""
    (symbol, params), quantized, samples = in_8_bits(tmp_path, corrections, net)
    path = tmp_path / "net.onnx"
    found = ngraph_mxnet.to_onnx(symbol, path, params=params, recipe=quantized.recipe, data=(1, 3, 8, 8))
    assert all(one.difference is not None and one.difference < 2e-2 for one in found.compared)
    proto = onnx.load(path)
    assert not [tensor for tensor in proto.graph.initializer
                if tensor.data_type == onnx.TensorProto.FLOAT and np.prod(tensor.dims) > 8]
    makers, to_float = {name: node for node in proto.graph.node for name in node.output}, 0
    for node in proto.graph.node:
        if node.op_type in ("Conv", "Gemm"):
            assert [makers[name].op_type for name in node.input] == ["DequantizeLinear"] * 3
            readers = {one.op_type for one in proto.graph.node if node.output[0] in one.input}
            to_float += not readers <= {"QuantizeLinear", "Relu"}
    assert to_float == in_float
    for x in samples[:4, None]:
        expected, (found_,) = quantized(x)[0], results(path, x)
        assert np.abs(found_ - expected).max() < STEPS * np.abs(expected).max()


def test_a_runtime_computes_pairs_in_bytes(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime of the extra bench is not installed")
    (symbol, params), quantized, samples = in_8_bits(tmp_path, [])
    quantized.save_recipe(tmp_path / "recipe.json")
    path = tmp_path / "net.onnx"
    told = CliRunner().invoke(main, ["to-onnx", symbol, "--params", params, "--shape", "data=1,3,8,8", "--recipe",
                                     str(tmp_path / "recipe.json"), "-o", str(path)])
    assert told.exit_code == 0, told.output
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    assert operators(tmp_path / "optimised.onnx").count("QLinearConv") == 5
    assert not {"Conv", "FusedConv", "Gemm"} & set(operators(tmp_path / "optimised.onnx"))
    for x in samples[:4, None]:
        expected = quantized(x)[0]
        assert np.abs(session.run(None, {"data": x})[0] - expected).max() < STEPS * np.abs(expected).max()


def test_a_recipe_of_another_model(tmp_path: Path) -> None:
    _, quantized, _ = in_8_bits(tmp_path, [])
    symbol, params = saved(tmp_path, images(), 2, 3, 16, 16)
    with pytest.raises(CalibrationError, match="fits none of"):
        ngraph_mxnet.to_onnx(symbol, tmp_path / "o.onnx", params=params, recipe=quantized.recipe, data=(2, 3, 16, 16))
    assert not (tmp_path / "o.onnx").exists()


def pairs() -> onnx.ModelProto:
    """As quantisers write them: a convolution and a product between pairs, with biases of i32."""
    rng = np.random.default_rng(2)
    arrays = {
        "w": rng.integers(-127, 128, (4, 3, 3, 3), np.int8), "ws": rng.uniform(0.01, 0.02, 4).astype(np.float32),
        "wz": np.zeros(4, np.int8), "b": rng.integers(-999, 999, 4, np.int32), "bz": np.zeros(4, np.int32),
        "v": rng.integers(-127, 128, (64, 5), np.int8), "vs": np.float32(0.02), "vz": np.int8(0),
        "xs": np.float32(0.03), "xz": np.uint8(120), "ys": np.float32(0.05), "yz": np.uint8(0)}
    arrays["bs"] = arrays["xs"] * arrays["ws"]
    node = onnx.helper.make_node
    nodes = [node("QuantizeLinear", ["x", "xs", "xz"], ["x8"]), node("DequantizeLinear", ["x8", "xs", "xz"], ["xr"]),
             node("DequantizeLinear", ["w", "ws", "wz"], ["wr"], axis=0),
             node("DequantizeLinear", ["b", "bs", "bz"], ["br"], axis=0),
             node("Conv", ["xr", "wr", "br"], ["c"], kernel_shape=[3, 3]), node("Relu", ["c"], ["r"]),
             node("QuantizeLinear", ["r", "ys", "yz"], ["r8"]), node("DequantizeLinear", ["r8", "ys", "yz"], ["rr"]),
             node("Flatten", ["rr"], ["f"]), node("DequantizeLinear", ["v", "vs", "vz"], ["vr"]),
             node("MatMul", ["f", "vr"], ["y"])]
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(nodes, "pairs", [info("x", onnx.TensorProto.FLOAT, (1, 3, 6, 6))],
                                   [info("y", onnx.TensorProto.FLOAT, (1, 5))],
                                   [onnx.numpy_helper.from_array(np.asarray(array), name)
                                    for name, array in arrays.items()])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def test_pairs_are_read_and_written_as_such(tmp_path: Path) -> None:
    """Again and again: the same operators, the same bytes, the same bits."""
    first = tmp_path / "0.onnx"
    onnx.save(pairs(), first)
    x = np.random.default_rng(1).standard_normal((1, 3, 6, 6)).astype(np.float32)
    expected = ngraph_mxnet.compile(str(first), "INTERPRETER")(x)[0]
    for number in range(2):
        path = tmp_path / f"{number + 1}.onnx"
        ngraph_mxnet.to_onnx(tmp_path / f"{number}.onnx", path)
        assert Counter(operators(path)) == {"QuantizeLinear": 2, "DequantizeLinear": 5, "Conv": 1, "Relu": 1,
                                            "Reshape": 1, "Gemm": 1}
        numbers = {tensor.data_type for tensor in onnx.load(path).graph.initializer if np.prod(tensor.dims) > 4}
        assert numbers == {onnx.TensorProto.INT8}
        np.testing.assert_array_equal(ngraph_mxnet.compile(str(path), "INTERPRETER")(x)[0], expected)


@pytest.mark.parametrize(("size", "out", "node"), [(480, 240, "Gather"), (300, 17, "Resize"), (32, 64, "Resize")])
def test_images_are_taken_at_the_models_places(tmp_path: Path, size: int, out: int, node: str) -> None:
    """ONNX's places are exact, MXNet's are rounded: a large image tells the two apart."""
    symbol = mx.sym.contrib.BilinearResize2D(mx.sym.var("data"), height=out, width=out)
    image = np.random.default_rng(2).standard_normal((1, 3, size, size)).astype(np.float32)
    path = tmp_path / "resized.onnx"
    ngraph_mxnet.to_onnx(symbol.tojson(), path, data=image.shape)
    assert node in operators(path)
    expected = symbol.bind(mx.cpu(), {"data": mx.nd.array(image)}).forward()[0].asnumpy()
    found = {"read": results(path, image)[0]}
    if runtime_version() is not None:
        found["run"] = runtime_results(read_model(path), {"data": image}, [onnx.load(path).graph.output[0].name])[0]
    for result in found.values():
        np.testing.assert_allclose(result, expected, atol=2e-5)


def test_weights_in_a_file_of_their_own(tmp_path: Path) -> None:
    symbol, params = saved(tmp_path, images(), 2, 3, 16, 16)
    path = tmp_path / "net.onnx"
    found = ngraph_mxnet.to_onnx(symbol, path, params=params, external_data=True, data=(2, 3, 16, 16))
    data = tmp_path / "net.onnx.data"
    assert found.bytes == path.stat().st_size + data.stat().st_size
    again = tmp_path / "again.onnx"
    ngraph_mxnet.to_onnx(path, again, data=(2, 3, 16, 16))  # an ONNX model is written anew
    x = np.ones((2, 3, 16, 16), np.float32)
    np.testing.assert_allclose(results(again, x)[0], results(path, x)[0], 1e-5, 1e-6)


def test_weights_that_fit_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They lie in a file of their own, and are not compared, which is told."""
    monkeypatch.setattr(file, "LIMIT", 1000)
    symbol, params = saved(tmp_path, images(), 2, 3, 16, 16)
    found = ngraph_mxnet.to_onnx(symbol, tmp_path / "net.onnx", params=params, data=(2, 3, 16, 16))
    assert "not compared, weights of 2 GB" in str(found) and (tmp_path / "net.onnx.data").exists()
    x = np.ones((2, 3, 16, 16), np.float32)
    expected = ngraph_mxnet.compile(symbol, "CPU", params=params, shapes={"data": x.shape})(x)
    np.testing.assert_allclose(results(tmp_path / "net.onnx", x)[0], expected[0], 1e-4, 1e-5)


def test_what_onnx_does_not_have_is_named(tmp_path: Path) -> None:
    graph = ngraph_mxnet.parse_graph(
        "graph @g(%x: f32[2]) -> (i32[2]) {\n  %0: i32[2] = bitcast(%x) {element=i32}   # mx:bits view\n  return %0\n}")
    with pytest.raises(UnsupportedError, match=r"bitcast .*bits.*ONNX has no operators"):
        ngraph_mxnet.to_onnx(graph, tmp_path / "net.onnx")
    assert not (tmp_path / "net.onnx").exists()


def test_no_such_opset(tmp_path: Path) -> None:
    graph = ngraph_mxnet.parse_graph("graph @g(%x: f32[2]) -> (f32[2]) {\n  %0: f32[2] = relu(%x)\n  return %0\n}")
    with pytest.raises(ConfigError, match="opset 13: expected one from 17 to 23"):
        ngraph_mxnet.to_onnx(graph, tmp_path / "net.onnx", opset=13)


def test_a_wrong_writer_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written is compared before it is there."""
    graph = ngraph_mxnet.parse_graph("graph @g(%x: f32[2]) -> (f32[2]) {\n  %0: f32[2] = sigmoid(%x)\n  return %0\n}")
    monkeypatch.setitem(WRITERS, "sigmoid", lambda d, node, x: d.add("Tanh", x))
    with pytest.raises(ModelError, match=r"output output0 .* differs by .* No file was written"):
        ngraph_mxnet.to_onnx(graph, tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())
    found = ngraph_mxnet.to_onnx(graph, tmp_path / "net.onnx", compare=False)
    assert "not compared, as asked" in str(found) and operators(tmp_path / "net.onnx") == ["Tanh"]


def test_the_command(tmp_path: Path) -> None:
    symbol, params = saved(tmp_path, images(), 2, 3, 16, 16)
    path = tmp_path / "net.onnx"
    arguments = ["to-onnx", symbol, "--params", params, "--shape", "data=N,3,16,16", "-o", str(path)]
    told = CliRunner().invoke(main, [*arguments, "--json"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert found["file"] == str(path) and found["inputs"] == {"data": "f32[N,3,16,16]"} and found["nodes"]["Conv"] == 1
    assert all(one["difference"] < 1e-5 for one in found["compared"])
    shown = CliRunner().invoke(main, arguments)
    assert "read back, on the CPU, N=2: differs by" in shown.output
    quick = CliRunner().invoke(main, [*arguments, "--no-compare", "--json"])
    assert [one["reason"] for one in json.loads(quick.stdout)["compared"]] == ["as asked"]
    twice = CliRunner().invoke(main, [*arguments, "--shape", "data=1,3,16,16"])
    assert twice.exit_code == 2 and "one set of shapes" in twice.output


def _looped(F: Any, x: Any, state: Any) -> Any:  # noqa: N803 - MXNet's name
    def body(step: Any, carried: Any) -> Any:
        made = F.tanh(step + carried)
        first = F.reshape(F.slice_axis(carried, axis=0, begin=0, end=1), shape=(-1,))
        _, total = F.contrib.foreach(lambda row, total: (row, total + row), made, first)
        return made, F.broadcast_add(carried, F.expand_dims(total, axis=0))

    return F.contrib.foreach(body, x, state)[0]


def _counted(F: Any, x: Any, state: Any) -> Any:  # noqa: N803
    rows, (_, last) = F.contrib.while_loop(
        lambda i, carried: F.broadcast_lesser(F.sum(carried), F.sum(x) + 9),
        lambda i, carried: ([carried * 2], [i + 1, F.broadcast_add(F.abs(carried), i)]), [F.zeros((1,)), state],
        max_iterations=7)
    return F.sum(F.slice_axis(rows[0], axis=0, begin=0, end=1), axis=0) + last  # MXNet leaves later rows undefined


def _chosen(F: Any, x: Any, state: Any) -> Any:  # noqa: N803
    return F.contrib.cond(F.sum(state) > 0, lambda: F.relu(x), lambda: F.contrib.cond(
        F.sum(x) > 0, lambda: F.tanh(x), lambda: F.broadcast_add(x, F.sum(state))))


def _in_runtime(path: Path, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    pytest.importorskip("onnxruntime", reason="onnxruntime of the extra bench is not installed")
    model = read_model(path)
    return runtime_results(model, given, [output.name for output in model.proto.graph.output])


@pytest.mark.parametrize(("function", "op"), [(_looped, "Scan"), (_counted, "Loop"), (_chosen, "If")])
@pytest.mark.parametrize("opset", [17, 23])
def test_loops_and_choices_stay_such(tmp_path: Path, function: Callable[..., Any], op: str, opset: int) -> None:
    """They run as MXNet runs them, one trip and one side at a time; also loops and choices in bodies."""
    symbol = function(mx.sym, mx.sym.var("x"), mx.sym.var("state"))
    symbol.save(str(tmp_path / "net-symbol.json"))
    path = tmp_path / "net.onnx"
    shapes = {name: {"x": (4, 3, 2), "state": (3, 2)}[name] for name in symbol.list_arguments()}
    found = ngraph_mxnet.to_onnx(tmp_path / "net-symbol.json", path, params={}, opset=opset, **shapes)
    assert operators(path).count(op) == 1 and all(one.difference is not None for one in found.compared)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        given = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}
        executor = symbol.bind(mx.cpu(), {name: mx.nd.array(array) for name, array in given.items()})
        expected = executor.forward()[0].asnumpy()
        np.testing.assert_allclose(_in_runtime(path, given)[0], expected, 1e-5, 1e-5)


LOOPS = {
    "counted": ("""(float[4,3] x, float[3] s) => (float[3] y, float[4,3] r) <int64 n = {4}> {
        y, r = Loop<body = b (int64 i, bool before, float[3] old) => (bool after, float[3] new, float[3] row)
            <float[3] w = {1,2,3}> {
            after = Identity(before)  place = Gather<axis=0>(x, i)  new = Add(old, place)  row = Mul(new, w) }>(n, , s)
        }""", ["Scan"]),
    "with a condition": ("""(float[3] s, int64 n, bool begins) => (float[3] y) <float most = {20}> {
        y = Loop<body = b (int64 i, bool before, float[3] old) => (bool after, float[3] new) {
            size = ReduceSum<keepdims=0>(old)  after = Less(size, most)
            up = Abs(old)  new = Add(up, up) }>(n, begins, s)
        }""", ["Less", "And", "Loop"]),
    "without a limit": ("""(float[3] s) => (float[3] y) <bool begins = {1}, float most = {20}> {
        y = Loop<body = b (int64 i, bool before, float[3] old) => (bool after, float[3] new) {
            size = ReduceMax<keepdims=0>(old)  after = Less(size, most)
            up = Exp(old)  new = Add(up, old) }>(, begins, s)
        }""", ["Loop"]),
    "scanned": ("""(float[N,3] x, float[3] s) => (float[3] y, float[3,N] r) {
        y, r = Scan<num_scan_inputs=1, scan_output_axes=[1], scan_input_directions=[1], body =
            b (float[3] old, float[3] place) => (float[3] new, float[3] row) {
            new = Add(old, place)  row = Tanh(new) }>(s, x)
        }""", ["Scan"]),
    "chosen": ("""(float[4,3] x, float[3] s, bool c) => (float[3] y) <int64 n = {4}> {
        y = If<then_branch = a () => (float[3] p) {
                p = Loop<body = b (int64 i, bool before, float[3] old) => (bool after, float[3] new) {
                    after = Identity(before)  place = Gather<axis=0>(x, i)  new = Mul(old, place) }>(n, , s) },
            else_branch = d () => (float[3] q) <float[3] w = {1,2,3}> { q = Mul(s, w) }>(c)
        }""", ["If"]),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_of_an_onnx_model_stay_such(tmp_path: Path, name: str) -> None:
    text, expected = LOOPS[name]
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g ' + text)
    onnx.checker.check_model(model)
    path, again = tmp_path / "model.onnx", tmp_path / "again.onnx"
    onnx.save(model, path)
    sizes = {value.name: ("N", 3) for value in model.graph.input if name == "scanned" and value.name == "x"}
    found = ngraph_mxnet.to_onnx(path, again, **sizes)
    assert all(one.difference is not None for one in found.compared)
    assert [op for op in operators(again) if op in ("Less", "And", "Loop", "Scan", "If")] == expected
    for seed, trips in enumerate((0, 1, 3, 9)):
        rng = np.random.default_rng(seed)
        arrays = {"x": rng.standard_normal((4, 3)).astype(np.float32), "c": np.array(seed % 2 == 1),
                  "s": rng.uniform(0.1, 1, 3).astype(np.float32), "n": np.array(trips), "begins": np.array(seed != 2)}
        given = {value.name: arrays[value.name] for value in model.graph.input}
        wanted = [np.asarray(each) for each in ngraph_mxnet.compile(str(path), "INTERPRETER")(*given.values())]
        for read, right in zip(results(again, *given.values()), wanted, strict=True):
            np.testing.assert_allclose(read, right, rtol=1e-5, atol=1e-6)
        if runtime_version() is not None:
            for run, right in zip(_in_runtime(again, given), wanted, strict=True):
                np.testing.assert_allclose(run, right, rtol=1e-5, atol=1e-6)


def test_a_loop_of_any_length(tmp_path: Path) -> None:
    """Compiled, it has a bound; in ONNX it has none."""
    loop = mx.sym.contrib.foreach(lambda row, total: (mx.sym.tanh(row), total + row), mx.sym.var("x"), mx.sym.var("y"))
    mx.sym.Group([loop[0], loop[1]]).save(str(tmp_path / "net-symbol.json"))
    path = tmp_path / "net.onnx"
    found = ngraph_mxnet.to_onnx(tmp_path / "net-symbol.json", path, params={}, x=("T", "N"), y=("N",))
    assert operators(path) == ["Scan"] and len(found.compared) >= 2
    x, y = np.random.default_rng(1).standard_normal((7000, 3)).astype(np.float32), np.zeros(3, np.float32)
    rows, total = _in_runtime(path, {"x": x, "y": y})
    np.testing.assert_allclose(rows, np.tanh(x), 1e-5, 1e-6)
    np.testing.assert_allclose(total, x.sum(0), 1e-3, 1e-3)


def test_what_onnx_does_not_have_in_a_body_is_named(tmp_path: Path) -> None:
    text = """graph @g(%x: f32[3,2]) -> (i32[3,2]) {
  %0: i32[3,2] = foreach(%x)   # mx:loop _foreach
    body @body(%x0: f32[2]) -> (i32[2]) {
      %0: i32[2] = bitcast(%x0) {element=i32}   # mx:bits view
      return %0
    }
  return %0
}
"""
    with pytest.raises(UnsupportedError, match=r"bitcast .*bits.*ONNX has no operators"):
        ngraph_mxnet.to_onnx(ngraph_mxnet.parse_graph(text), tmp_path / "net.onnx")


OTHER_OPS = {
    "bitcast": "ONNX has none before opset 26", "fused": "passes of targets make it",
    "log_softmax_pick": "passes of targets and of training make it",
    "random_mask": "training draws it",
    "quantized_convolution": "passes of quantisation make it", "quantized_matmul": "passes of quantisation make it",
    "own_gradient": "training alone has it",
}


@pytest.mark.parametrize("rows", [4, "N"])
def test_only_the_file_draws(tmp_path: Path, rows: Any) -> None:
    """What is compared has the same uniform numbers on both sides; the file's runtime draws its own."""
    path, mean = tmp_path / "drawn.onnx", mx.sym.Variable("x")
    told = ngraph_mxnet.to_onnx(mx.sym.sample_normal(mean, mean * mean), path, params={}, x=(rows, 5000))
    assert told.inputs == {"x": f"f32[{rows},5000]"} and all(one.difference < 1e-5 for one in told.compared)
    op = "RandomUniform" if rows == 4 else "RandomUniformLike"
    assert operators(path).count(op) == 1
    if runtime_version() is not None:
        import onnxruntime

        assert len(told.compared) > 1
        onnxruntime.set_seed(1234567)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        first, second = (session.run(None, {"x": np.full((4, 5000), 2, np.float32)})[0] for _ in range(2))
        assert (first != second).any() and first.shape == (4, 5000)
        assert first.mean() == pytest.approx(2, abs=0.12) and first.std() == pytest.approx(4, rel=0.03)


def test_choices_may_differ_for_a_rounding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few do; many are a fault."""
    scores = mx.sym.Variable("x")
    chosen = mx.sym.sample_multinomial(mx.sym.softmax(scores), shape=(1000,))
    ngraph_mxnet.to_onnx(chosen, tmp_path / "chosen.onnx", params={}, x=(3, 500))
    monkeypatch.setitem(WRITERS, "cumsum", lambda d, node, x: d.add("Identity", x))
    with pytest.raises(ModelError, match="differs by"):
        ngraph_mxnet.to_onnx(chosen, tmp_path / "wrong.onnx", params={}, x=(3, 500))
    assert not (tmp_path / "wrong.onnx").exists()


def test_every_op_of_inference_is_written() -> None:
    for_training = {name for name in all_ops() if name.endswith(("_gradient", "_training"))}
    assert set(all_ops()) - for_training - set(OTHER_OPS) <= set(WRITERS)
    assert not set(WRITERS) & set(OTHER_OPS)
