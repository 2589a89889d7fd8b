"""`python -m ngraph_mxnet explain|run|bench|profile` of ONNX models, and of symbols where they are new."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import ngraph_mxnet
from ngraph_mxnet.targets.interpreter import InterpreterBackend, InterpreterExecutable
from ngraph_mxnet.tools.cli.commands import main

ROOT = Path(ngraph_mxnet.__file__).parents[1]


def save(path: Path, op: str = "Relu", batch: Any = "batch", dtype: int = TensorProto.FLOAT,
         **attributes: Any) -> str:
    """Two inputs, x [batch, 3] and y [batch, 3]: op(x), then their sum."""
    nodes = [helper.make_node(op, ["x"], ["a"], name="first", **attributes),
             helper.make_node("Add", ["a", "y"], ["sum"])]
    x, y, result = (helper.make_tensor_value_info(name, dtype, [batch, 3]) for name in ("x", "y", "sum"))
    model = helper.make_model(helper.make_graph(nodes, "g", [x, y], [result]),
                              opset_imports=[helper.make_opsetid("", 21)])
    onnx.save(model, path)
    return str(path)


@pytest.fixture
def model(tmp_path: Path) -> str:
    return save(tmp_path / "model.onnx")


@pytest.fixture
def x(tmp_path: Path) -> str:
    np.save(tmp_path / "x.npy", np.array([[-1, 2, 3]], np.float32))
    return str(tmp_path / "x.npy")


def command(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments))


def succeeds(*arguments: str) -> Any:
    result = command(*arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) if "--json" in arguments else result.output


def test_run(model: str, x: str, tmp_path: Path) -> None:
    (found,) = succeeds("run", model, "--input", x, "--input", f"y={x}", "--output", str(tmp_path / "out.npz"),
                        "--json")["outputs"]
    assert found == {"name": "sum", "dtype": "float32", "shape": [1, 3], "min": -1, "mean": 3, "max": 6,
                     "not_finite": 0}
    assert np.load(tmp_path / "out.npz")["sum"].tolist() == [[-1, 4, 6]]
    text = succeeds("run", model, "--input", x, "--input", x, "--backend", "interpreter")
    assert "float32" in text and "[1, 3]" in text


def test_a_result_without_finite_elements(tmp_path: Path) -> None:
    path = save(tmp_path / "model.onnx", "Log")
    np.save(tmp_path / "x.npy", np.full((1, 3), -1, np.float32))
    file = str(tmp_path / "x.npy")
    (found,) = succeeds("run", path, "--input", file, "--input", file, "--json")["outputs"]
    assert found["not_finite"] == 3 and found["min"] is None
    assert "-" in succeeds("run", path, "--input", file, "--input", file)


def test_bench(model: str, x: str) -> None:
    found = succeeds("bench", model, "--shape", "x=2,3", "--shape", "y=2,3", "--rounds", "3", "--threads", "1",
                     "--json")
    assert found["rounds"] == 3 and found["threads"] == 1
    assert 0 < found["min_ms"] <= found["median_ms"] <= found["p90_ms"] and found["first_result_ms"] > 0
    assert (found["inputs"], found["precision"]) == ({"x": "float32[2,3]", "y": "float32[2,3]"}, "f32")
    text = succeeds("bench", model, "--input", x, "--shape", "y=1,3", "--rounds", "1", "--precision", "bf16")
    assert text.startswith(f"{Path(model).name}, x float32[1,3], y float32[1,3], bf16: ") and "median" in text


def test_bench_with_pauses_beside_busy_processes(model: str) -> None:
    start = time.perf_counter()
    found = succeeds("bench", model, "--shape", "x=2,3", "--shape", "y=2,3", "--rounds", "20", "--pause", "5", "--busy",
                     "1", "--json")
    assert time.perf_counter() - start > 0.1
    assert (found["pause_ms"], found["busy"]) == (5, 1)
    assert found["median_ms"] <= found["p90_ms"] <= found["p99_ms"] and found["cpu_ms"] > 0


def test_bench_of_several_callers(model: str, own_backend: Callable[..., None]) -> None:
    """All of them call, and at once: each waits for the others in its second call."""
    together = threading.Barrier(3, timeout=30)
    calls: dict[int, int] = {}

    class Called(InterpreterExecutable):
        def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
            calls[threading.get_ident()] = calls.get(threading.get_ident(), 0) + 1
            if calls[threading.get_ident()] == 2 and threading.current_thread() is not threading.main_thread():
                together.wait()
            return super().run(arrays)

    own_backend(InterpreterBackend, options={"threads": "any"}, compile=lambda self, graph, options: Called(graph))
    found = succeeds("bench", model, "--shape", "x=2,3", "--shape", "y=2,3", "--rounds", "4", "--callers", "3",
                     "--threads", "1", "--backend", "OWN", "--json")
    assert found["callers"] == 3 and found["per_second"] > 0 and 0 < found["min_ms"] <= found["p90_ms"]
    assert sum(calls.values()) >= 3 * 4 and len(calls) == 4


def test_explain(model: str) -> None:
    told = succeeds("explain", model, "--json")
    assert told["inputs"] == ["x: f32[1,3]", "y: f32[1,3]"]
    assert told["notices"][0] == "told for a batch of 1, which the model leaves open: x, y"
    given = succeeds("explain", model, "--shape", "x=2,3", "--shape", "y=2,3", "--json")
    assert given["notices"] == told["notices"][1:]
    found = succeeds("explain", model, "--shape", "x=2,3", "--shape", "y=2,3", "--kernels", "--json")
    assert found["compiles"] and found["backend"] == "CPU"
    assert found["operators"] == {"Relu": 1, "Add": 1} and found["opsets"] == {"": 21}
    assert found["inputs"] == ["x: f32[2,3]", "y: f32[2,3]"] and found["outputs"] == ["sum: f32[2,3]"]
    assert found["ops"] and found["kernels"] == [] and found["memory"]["prepared"] == 0
    text = succeeds("explain", model, "--shape", "x=2,3", "--shape", "y=2,3")
    assert "all 2 nodes run on CPU" in text and "Ops of the optimised graph" in text


def test_explain_of_a_model_in_parts(tmp_path: Path) -> None:
    """Which branch does not fit, and operators that only a branch has."""
    def branch(op: str) -> onnx.GraphProto:
        return helper.make_graph([helper.make_node(op, ["x"], ["r"], name=f"its{op}")], "branch", [],
                                 [helper.make_tensor_value_info("r", TensorProto.FLOAT, [3])])

    nodes = [helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
             helper.make_node("Cast", ["most"], ["any"], to=TensorProto.BOOL),
             helper.make_node("If", ["any"], ["y"], name="choice", then_branch=branch("Relu"),
                              else_branch=branch("Nonsense"))]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
    path = str(tmp_path / "parts.onnx")
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)]),
              path)
    found = succeeds("explain", path, "--json")
    assert found["compiles"] and found["unknown"] == ["Nonsense"] and found["ops"] == {"reduce_max": 1, "convert": 1}
    assert found["inputs"] == ["x: f32[3]"] and found["outputs"] == ["y"]
    assert found["rest"] == ("node choice If: which branch is taken depends on the data, and else_branch can't be "
                             "lowered for these inputs: node itsNonsense Nonsense: no rule for the operator Nonsense")
    text = " ".join(succeeds("explain", path).split())
    assert "its first part runs on CPU, as 2 ops; what follows is compiled at a call" in text
    np.save(tmp_path / "data.npy", np.array([-1, 0, 2], np.float32))
    (result,) = succeeds("run", path, "--input", f"x={tmp_path / 'data.npy'}", "--json")["outputs"]
    assert result["shape"] == [3]


def test_explain_of_a_model_with_a_loop(tmp_path: Path) -> None:
    """Its first part is what is before the loop, which is run between programs."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Sin", ["a"], ["b"])], "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("a", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []),
         helper.make_tensor_value_info("b", TensorProto.FLOAT, [3])])
    nodes = [helper.make_node("Exp", ["x"], ["e"]),
             helper.make_node("Loop", ["trips", "", "e"], ["y"], name="loop", body=body)]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(np.array(5000), "trips")])
    path = str(tmp_path / "loop.onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    found = succeeds("explain", path, "--json")
    assert found["compiles"] and found["unknown"] == [] and found["ops"] == {"exp": 1}
    assert found["rest"] == "node loop Loop: its trips come to 20000 nodes, more than 1024"
    np.save(tmp_path / "data.npy", np.array([-1, 0, 2], np.float32))
    (result,) = succeeds("run", path, "--input", f"x={tmp_path / 'data.npy'}", "--json")["outputs"]
    assert result["shape"] == [3]


def test_explain_says_why_not(tmp_path: Path) -> None:
    result = command("explain", save(tmp_path / "a.onnx", "Nonsense", 2), "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1 and not found["compiles"]
    assert found["unknown"] == ["Nonsense"] and "node first Nonsense" in found["reason"]
    result = command("explain", save(tmp_path / "b.onnx", "LRN", 2, TensorProto.DOUBLE, size=1))
    text = result.output
    assert result.exit_code == 1
    assert "it does not compile for CPU" in text and "without a rule" not in text
    assert "all 2 nodes" in succeeds("explain", str(tmp_path / "b.onnx"), "--backend", "interpreter")


def test_profile(model: str) -> None:
    found = succeeds("profile", model, "--shape", "x=2,3", "--shape", "y=2,3", "--rounds", "2", "--json")
    assert found["rounds"] == 2 and found["rows"]


@pytest.mark.parametrize(("arguments", "message"), [
    (["run", "MODEL"], "no array for x: float32[batch, 3], y: float32[batch, 3]: give each with --input"),
    (["bench", "MODEL", "--input", "X", "--shape", "x=2,3"], "found an array of shape (1, 3) and the shape (2, 3)"),
    (["run", "MODEL", "--input", "z=X"], "no input is called z"),
    (["run", "MODEL", "--input", "X", "--input", "X", "--input", "X"], "found 3 inputs, expected 2"),
    (["run", "MODEL", "--input", "MODEL"], "is no .npy or .npz file that can be read"),
    (["run", "MODEL", "--input", "none.npy"], "none.npy is no .npy or .npz file that can be read"),
    (["run", "MODEL", "--input", "X", "--input", "X", "--output", "none/out.npz"], "none/out.npz: No such file"),
    (["run", "MODEL", "--params", "X"], "params (--params) are for graphs and symbols"),
    (["run", "MODEL", "--backend", "toaster"], "no backend 'toaster'"),
    (["run", "X"], "is no ONNX model, or was cut off"),
    (["bench", "MODEL"], "as an argument, --shape x=D,D,... on the command line"),
    (["bench", "MODEL", "--shape", "x=1,4", "--shape", "y=1,4"], "found shape (1, 4)"),
    (["show", "MODEL"], "give its shape to compile for, as in shapes={'x': (1, 3)}, on the command line --shape x=1,3"),
    (["explain", "MODEL", "--dtype", "x=float32"], "dtypes (--dtype) are for symbols and Gluon blocks"),
    (["explain", "MODEL", "--kernels", "--backend", "interpreter"], "has no kernels to tell of"),
])
def test_mistakes_are_named(model: str, x: str, arguments: list[str], message: str) -> None:
    result = command(*(argument.replace("MODEL", model).replace("X", x) for argument in arguments))
    assert result.exit_code != 0
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output


@pytest.fixture
def symbol(tmp_path: Path) -> str:
    import mxnet as mx

    dense = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="dense")
    path = tmp_path / "model-symbol.json"
    mx.sym.SoftmaxOutput(dense, name="softmax").save(str(path))
    mx.nd.save(str(tmp_path / "model-0000.params"), {"arg:dense_weight": mx.nd.array([[1, 0, 0], [0, 1, 0]]),
                                                     "arg:dense_bias": mx.nd.zeros(2)})
    return str(path)


def test_symbols(symbol: str, x: str) -> None:
    params = symbol.replace("-symbol.json", "-0000.params")
    (found,) = succeeds("run", symbol, "--input", f"data={x}", "--params", params, "--json")["outputs"]
    assert found["shape"] == [1, 2] and found["max"] == pytest.approx(1 / (1 + np.exp(-3)))
    assert succeeds("bench", symbol, "--shape", "data=4,3", "--rounds", "2", "--json")["rounds"] == 2
    for arguments, message in [
            (["run", symbol, "--input", x], "a symbol needs the shapes of its data inputs"),
            (["run", symbol, "--input", f"data={x}"], "a symbol needs its weights"),
            (["bench", symbol, "--shape", "date=1,3"], "no input is called date"),
            (["profile", symbol], "a symbol needs the shapes of its data inputs"),
            (["bench", symbol, "--shape", "data=1,4", "--params", params], "FullyConnected expects (2, 4)")]:
        result = command(*arguments)
        assert result.exit_code != 0
        assert message in " ".join(result.output.split()), result.output


def test_an_error_in_a_graphs_text_names_its_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.ngraph"
    path.write_text("")
    result = command("run", str(path))
    assert result.exit_code == 1
    assert result.output == f"Error: {path}: empty text: expected 'graph @name(...) -> (...) {{'\n"


def test_as_a_user_runs_it(model: str, x: str) -> None:
    """In a process of its own: no MXNet, no colour when it is not wanted."""
    line = [sys.executable, "-X", "importtime", "-m", "ngraph_mxnet", "run", model, "--input", x, "--input", x]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FORCE_COLOR": "1", "NO_COLOR": "1"}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "float32" in done.stdout and "\033[3" not in done.stdout
    assert " mxnet\n" not in done.stderr
