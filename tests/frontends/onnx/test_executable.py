"""`ngraph_mxnet.compile` of ONNX models and MXNet symbols: ports, shapes bound at the call, threads."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx_models import F32, I64, model, network, value

import ngraph_mxnet
from ngraph_mxnet.base.errors import ConfigError, ModelError, UnsupportedError
from ngraph_mxnet.frontends.onnx import executable
from ngraph_mxnet.program.executable import InputError


class Tensor:
    """What another framework would pass."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def images(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 3, 8, 8), dtype=np.float32)


def wanted(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return ReferenceEvaluator(proto).run(None, feeds)


@pytest.mark.parametrize("backend", ["CPU", "INTERPRETER"])
def test_every_way_in(backend: str, tmp_path: Path) -> None:
    proto, x = network(), images(2)
    path = tmp_path / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    (expected,) = wanted(proto, {"x": x})
    for source in (proto, proto.SerializeToString(), path, str(path)):
        exe = ngraph_mxnet.compile(source, backend)
        assert [str(port) for port in exe.inputs] == ["x: float32[batch, 3, 8, 8]"]
        assert [str(port) for port in exe.outputs] == ["y: float32[batch, 10]"]
        for result in (exe(x), exe({"x": x}), exe.run_async(x).result()):
            np.testing.assert_allclose(result[0], expected, rtol=1e-4, atol=1e-5)


def test_each_set_of_shapes_is_compiled_once(compiled: list[str]) -> None:
    """The one that was not used for longest goes."""
    exe, most = ngraph_mxnet.compile(network(), "OWN_INTERPRETER"), executable.MOST_PROGRAMS
    assert not compiled
    every = [(count, count) for count in range(1, most + 1)]
    for count, programs in [*every, (1, most), (most + 1, most + 1), (1, most + 1), (2, most + 2)]:
        assert exe(images(count))[0].shape == (count, 10)
        assert sum("for a range: " not in each for each in compiled) == programs


def test_fixed_shapes_are_compiled_at_once() -> None:
    exe = ngraph_mxnet.compile(network(), "CPU", shapes={"x": (2, 3, 8, 8)})
    assert exe.inputs[0].shape == (2, 3, 8, 8)
    with pytest.raises(InputError, match=r"'x': found shape \(1, 3, 8, 8\)"):
        exe(images(1))
    with pytest.raises(ModelError, match=r"'x': found shape \(2, 4, 8, 8\), expected \(batch, 3, 8, 8\)"):
        ngraph_mxnet.compile(network(), shapes={"x": (2, 4, 8, 8)})
    with pytest.raises(ModelError, match="are no inputs"):
        ngraph_mxnet.compile(network(), shapes={"z": (2,)})


def test_a_symbol_is_one_size_everywhere() -> None:
    add = helper.make_node("Add", ["a", "b"], ["y"])
    exe = ngraph_mxnet.compile(model([add], [value("a", ["n"]), value("b", ["n"])], [value("y", ["n"])]), "INTERPRETER")
    ones = np.ones(3, np.float32)
    assert exe(ones, ones)[0].tolist() == [2, 2, 2]
    with pytest.raises(ModelError, match=r"'b': found n=1, expected 3 as in input 'a'"):
        exe(ones, ones[:1])


def test_a_question_mark_is_no_symbol() -> None:
    """PaddlePaddle names so every dimension that it does not know."""
    relu = helper.make_node("Relu", ["x"], ["y"])
    exe = ngraph_mxnet.compile(model([relu], [value("x", ["?", "?"])], [value("y", ["?", "?"])]), "INTERPRETER")
    assert exe.inputs[0].shape == exe.outputs[0].shape == (None, None)
    assert exe(np.ones((2, 3), np.float32))[0].shape == (2, 3)


@pytest.mark.parametrize("backend", ["CPU", "INTERPRETER"])
def test_a_shape_that_is_an_input(backend: str) -> None:
    """A program is for the elements that decide about shapes, and only for these."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["r"]), helper.make_node("Mul", ["r", "factor"], ["y"])]
    exe = ngraph_mxnet.compile(model(nodes, [value("x", [6]), value("shape", [2], I64), value("factor", [1])],
                                     [value("y", [None, None])]), backend)
    x = np.arange(6, dtype=np.float32)
    for shape, factor in [((2, 3), 1), ((3, 2), 2), ((2, 3), 3), ((-1, 1), 4)]:
        (result,) = exe(x, np.array(shape), np.array([factor], np.float32))
        np.testing.assert_array_equal(result, x.reshape(shape) * factor)
    assert len(list(exe.stages)) == 3


def test_wrong_inputs_are_named() -> None:
    exe = ngraph_mxnet.compile(network(), "INTERPRETER")
    for arrays, text in [((), "found 0 inputs, expected 1"), (({"z": images(1)},), "unknown z, missing x"),
                         ((images(1).astype(np.float64),), "found dtype float64, expected float32"),
                         ((images(1)[0],), "found shape")]:
        with pytest.raises(InputError, match=text):
            exe(*arrays)


def test_several_threads() -> None:
    exe = ngraph_mxnet.compile(network(), "CPU")
    batches = [images(count) for count in (1, 2, 3)] * 4
    alone = [exe(x)[0] for x in batches]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda x: exe(x)[0], batches))
    for left, right in zip(alone, together, strict=True):
        np.testing.assert_array_equal(left, right)


def test_options_that_do_not_belong() -> None:
    with pytest.raises(ConfigError, match="ONNX models hold their own"):
        ngraph_mxnet.compile(network(), weights={"w": np.zeros(1)})
    with pytest.raises(ConfigError, match="no backend"):
        ngraph_mxnet.compile(network(1), "GPU")


def test_outputs_are_named_and_own_memory() -> None:
    """An input returned as it is, one value under two names, a weight."""
    nodes = [helper.make_node("Identity", ["x"], ["same"]), helper.make_node("Relu", ["x"], ["a"]),
             helper.make_node("Relu", ["x"], ["b"])]
    proto = model(nodes, [value("x", [2])], [value(name, [2]) for name in ("same", "a", "b", "w")],
                  {"w": np.ones(2, np.float32)})
    exe = ngraph_mxnet.compile(proto, "CPU")
    x = np.array([-1, 2], np.float32)
    results = exe(x)
    assert [port.name for port in exe.outputs] == ["same", "a", "b", "w"]
    assert [r.tolist() for r in results] == [[-1, 2], [0, 2], [0, 2], [1, 1]]
    results[0][:] = 7
    assert x.tolist() == [-1, 2]


def test_unsupported_names_the_node() -> None:
    dice = helper.make_node("Bernoulli", ["x"], ["y"], name="dice")
    with pytest.raises(UnsupportedError, match="node dice Bernoulli"):
        ngraph_mxnet.compile(model([dice], [value("x", [2])], [value("y", [2])]), "CPU")(np.ones(2, np.float32))


def test_older_operators_are_converted() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Add", ["a", "a"], ["y"])]
    proto = model(nodes, [value("x", [2])], [value("y", [2])], opset=5)
    assert ngraph_mxnet.compile(proto, "CPU")(np.array([-1, 3], np.float32))[0].tolist() == [0, 6]


def test_functions_of_the_model_are_inlined() -> None:
    nodes = [helper.make_node("Mul", ["a", "a"], ["s"]), helper.make_node("Add", ["s", "a"], ["r"])]
    function = helper.make_function("own", "Poly", ["a"], ["r"], nodes, [helper.make_opsetid("", 21)])
    call = helper.make_node("Poly", ["x"], ["y"], domain="own")
    graph = helper.make_graph([call], "g", [value("x", [2])], [value("y", [2])])
    proto = helper.make_model(graph, functions=[function],
                              opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("own", 1)])
    assert ngraph_mxnet.compile(proto, "CPU")(np.array([1, 3], np.float32))[0].tolist() == [2, 12]


def test_mxnet_symbols(tmp_path: Path) -> None:
    import mxnet as mx

    symbol = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="dense")
    weights = {"arg:dense_weight": mx.nd.array(np.arange(6).reshape(3, 2)), "arg:dense_bias": mx.nd.ones(3)}
    path = tmp_path / "net-symbol.json"
    path.write_text(symbol.tojson())
    x = np.array([[1, 2]], np.float32)
    for source in (symbol, path, str(path)):
        exe = ngraph_mxnet.compile(source, "CPU", weights=weights, shapes={"data": (1, 2)})
        assert exe(x)[0].tolist() == [[3, 9, 15]]


def test_mxnet_is_not_imported() -> None:
    code = ("import sys, numpy as np, ngraph_mxnet\n"
            "from onnx import helper, TensorProto as T\n"
            "v = lambda n: helper.make_tensor_value_info(n, T.FLOAT, [2])\n"
            "g = helper.make_graph([helper.make_node('Relu', ['x'], ['y'])], 'g', [v('x')], [v('y')])\n"
            "m = helper.make_model(g, opset_imports=[helper.make_opsetid('', 21)])\n"
            "print(ngraph_mxnet.compile(m)(np.array([-1, 1], np.float32))[0].tolist(), 'mxnet' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[0.0, 1.0] False"


def test_element_types_and_dtypes() -> None:
    cast = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT32)
    exe = ngraph_mxnet.compile(model([cast], [value("x", [2], F32)], [value("y", [2], TensorProto.INT32)]), "CPU")
    assert exe.outputs[0].dtype == "int32"
    assert exe(np.array([1.7, -1.7], np.float32))[0].tolist() == [1, -1]


def test_profile() -> None:
    exe = ngraph_mxnet.compile(network(), "CPU", threads=1)
    found = exe.profile(images(2), rounds=3)
    assert found.rounds == 3 and found.threads == 1
    (conv,) = [row for row in found.rows if "onnx:conv Conv" in row.origin and "contraction" in row.kernel]
    assert conv.gflop == pytest.approx(2 * 2 * 4 * 64 * 27 / 1e9)
    assert found.to_dict()["memory"][0]["planned"] > 0
    with pytest.raises(InputError, match="found 0 inputs"):
        exe.profile()
    with pytest.raises(ConfigError, match="which only the backend CPU has"):
        ngraph_mxnet.compile(network(), "INTERPRETER").profile(images(1))


def test_profile_needs_the_recorder(tmp_path: Path) -> None:
    """NGRAPH_PROFILE has it, which a process reads once."""
    (tmp_path / "net.onnx").write_bytes(network(2).SerializeToString())
    program = """
import numpy, ngraph_mxnet
ngraph_mxnet.compile("net.onnx", "CPU").profile(numpy.ones((2, 3, 8, 8), numpy.float32))"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False,
                          env={**os.environ, "NGRAPH_PROFILE": str(tmp_path / "trace.json")})
    assert done.returncode == 1 and "ConfigError: " in done.stderr and "a process has one recorder" in done.stderr


@pytest.mark.parametrize("backend", ["CPU", "INTERPRETER"])
def test_a_dlpack_tensor_is_read_where_it_lies(backend: str) -> None:
    """Even a transposed one gets as far as the program without a copy; only there, where rows must be whole, is one."""
    x = images(1)

    exe = ngraph_mxnet.compile(network(), backend)
    for array in (x, x.transpose(0, 1, 3, 2)):
        assert np.shares_memory(exe.checked((Tensor(array),))["x"], array)
        np.testing.assert_array_equal(exe(Tensor(array))[0], exe(np.ascontiguousarray(array))[0])
    program = exe.program({"x": x})
    assert np.shares_memory(program.checked((x,))[0], x)
    graph = ngraph_mxnet.Builder()
    value = graph.parameter("x", (2,), "f32")
    plain = ngraph_mxnet.compile(graph.results(graph.abs(value)), backend)
    for call in (plain, lambda array: plain.run_async(array).result()):
        assert call(Tensor(np.array([-1, 2], np.float32)))[0].tolist() == [1, 2]


def test_a_future_raises_what_the_call_raises() -> None:
    exe = ngraph_mxnet.compile(network(), "INTERPRETER")
    futures = [exe.run_async(images(count)) for count in (2, 1)]
    assert [future.result()[0].shape[0] for future in futures] == [2, 1]
    with pytest.raises(InputError, match="found shape"):
        exe.run_async(images(1)[0]).result()


def test_outputs_that_are_one_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the cache and for a range of sizes, too."""
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path))
    nodes = [helper.make_node("Tanh", ["x"], [name]) for name in ("y", "z")]
    proto = model(nodes, [value("x", ["n"])], [value("y", ["n"]), value("z", ["n"])])
    for _ in range(2):
        exe = ngraph_mxnet.compile(proto, "CPU")
        for size in (3, 4, 5):
            for _ in range(2):
                found = exe(np.ones(size, np.float32))
                assert [each.shape for each in found] == [(size,)] * 2
