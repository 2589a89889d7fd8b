"""`python -m ngraph_mxnet verify`: its exit status, what it prints, and mistakes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from mxnet.gluon import nn
from onnx import numpy_helper
from onnx_models import network

import ngraph_mxnet
from ngraph_mxnet.targets.interpreter import InterpreterBackend
from ngraph_mxnet.tools.cli.commands import main

FOLDERS = os.pathsep.join([str(Path(ngraph_mxnet.__file__).parents[1]), os.environ["PYTHONPATH"]])
SYMBOL = ("net-symbol.json", "--params", "net-0000.params", "--shape", "data=2,3,8,8")


def command(*arguments: Any) -> Any:
    return CliRunner().invoke(main, ["verify", *map(str, arguments)])


def agrees(*arguments: Any) -> Any:
    result = command(*arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) if "--json" in arguments else result.output


def differs(*arguments: Any) -> Any:
    result = command(*arguments)
    assert result.exit_code == 1 and (result.exception is None or isinstance(result.exception, SystemExit))
    return json.loads(result.stdout) if "--json" in arguments else " ".join(result.output.split())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With models, their weights, other weights, and inputs; the current one."""
    mx.random.seed(1)
    np.random.seed(1)
    net = nn.HybridSequential(prefix="")
    net.add(nn.Conv2D(4, 3, activation="relu", prefix="first_"), nn.Conv2D(4, 3, prefix="second_"),
            nn.GlobalAvgPool2D(), nn.Dense(5, prefix="dense_"))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    net(mx.nd.zeros((1, 3, 8, 8)))
    monkeypatch.chdir(tmp_path)
    net.export("net", 0)
    weights = mx.nd.load("net-0000.params")
    changed = weights["arg:second_weight"].asnumpy()
    changed[1, 2, 0, 1] += 1
    mx.nd.save("other.params", {**weights, "arg:second_weight": mx.nd.array(changed)})
    mx.nd.save("lacking.params", {name: array for name, array in weights.items() if "second_w" not in name})
    mx.nd.save("x.params", {"x": mx.nd.ones(3)})
    model = network(2)
    onnx.save(model, "net.onnx")
    onnx.save(network("batch"), "open.onnx")
    dense = numpy_helper.to_array(model.graph.initializer[2]) * 2
    model.graph.initializer[2].CopyFrom(numpy_helper.from_array(dense, "dense"))
    onnx.save(model, "other.onnx")
    onnx.save(network(2, channels=7), "wide.onnx")
    images = np.random.default_rng(2).standard_normal((2, 3, 8, 8)).astype(np.float32)
    np.savez("data.npz", data=images)
    np.savez("x.npz", x=images)
    np.savez("two.npz", data=images, x=images)
    np.save("x.npy", images)
    np.save("double.npy", images.astype(np.float64))
    np.save("small.npy", images[:, :, :4])
    Path("text.onnx").write_text("no model")
    Path("text-symbol.json").write_text("no model")
    return tmp_path


def test_a_symbol_against_mxnet(folder: Path) -> None:
    found = agrees(*SYMBOL, "--json")
    assert found["agrees"] and found["diverging"] is None
    assert found["reference"] == "MXNet 1.9.1's own operators" and found["backend"] == "CPU"
    assert found["inputs"] == ["data float32[2, 3, 8, 8], random of seed 7"] and found["weights"] == "given"
    (output,) = found["outputs"]
    assert output["name"] == "dense_fwd_output" and output["agrees"] and 0 <= output["share"] < 1e-5
    assert output["ours"]["shape"] == [2, 5] and "1e-3" not in found["tolerance"]
    assert found["tolerance"].startswith("0.001 of the largest magnitude")


def test_inputs_are_given_or_random(folder: Path) -> None:
    by_name = agrees(*SYMBOL[:3], "--inputs", "data.npz", "--json")
    assert by_name["inputs"] == ["data float32[2, 3, 8, 8], given"]
    seeds = [agrees(*SYMBOL, "--seed", seed, "--json")["outputs"][0]["reference"]["norm"] for seed in (7, 8, 8)]
    assert seeds[0] != seeds[1] == seeds[2]
    assert seeds[0] == agrees(*SYMBOL, "--json")["outputs"][0]["reference"]["norm"]
    random = agrees("net-symbol.json", "--shape", "data=2,3,8,8", "--json")
    assert random["weights"].startswith("random")


def test_other_weights_are_named(folder: Path) -> None:
    found = differs(*SYMBOL, "--reference-params", "other.params", "--json")
    place = found["diverging"]
    assert place["origin"] == "mx:second_fwd Convolution" and place["name"] == "second_fwd_output"
    assert place["computes_wrong"] and place["differing_weights"] == ["second_weight"]
    assert place["difference"]["index"][1] == 1 and place["difference"]["beyond"] > 0
    assert [operand["name"] for operand in place["operands"]] == ["first_relu_fwd_output"]
    assert any(line.startswith("> ") and "convolution" in line for line in place["ir"])
    text = differs(*SYMBOL, "--reference-params", "other.params")
    for expected in ("The first value that differs: second_fwd_output of mx:second_fwd Convolution",
                     "the outputs differ", "computes another value, with other weights: second_weight", "Most does [",
                     "may be fused otherwise than in the whole"):
        assert expected in text


def test_the_interpreter_as_reference(folder: Path) -> None:
    assert agrees(*SYMBOL, "--against", "interpreter", "--json")["reference"] == "the interpreter of the IR"
    assert agrees("net.onnx", "--against", "interpreter", "--json")["agrees"]
    found = differs("net.onnx", "--against", "interpreter", "--reference-params", "other.onnx", "--json")
    assert found["diverging"]["origin"] == "onnx:dense Gemm" and found["diverging"]["differing_weights"] == ["dense"]
    assert agrees("open.onnx", "--input", "x.npy", "--against", "interpreter", "--json")["agrees"]
    assert agrees("open.onnx", "--shape", "x=1,3,8,8", "--against", "interpreter", "--json")["agrees"]


def test_onnxruntime_as_reference(folder: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime of the extra bench is not installed")
    assert agrees("net.onnx", "--inputs", "x.npz", "--json")["reference"].startswith("ONNX Runtime ")
    found = differs("net.onnx", "--against", "onnxruntime", "--reference-params", "other.onnx", "--json")
    assert found["diverging"]["origin"] == "onnx:dense Gemm" and found["diverging"]["name"] == "y"


def test_without_onnxruntime(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert agrees("net.onnx", "--json")["reference"] == "the interpreter of the IR"
    result = command("net.onnx", "--against", "onnxruntime")
    assert result.exit_code == 2 and "ONNX Runtime is not installed: pip install onnxruntime" in result.output


def test_the_backend_and_its_precision(folder: Path) -> None:
    assert agrees(*SYMBOL, "--backend", "INTERPRETER", "--json")["backend"] == "INTERPRETER"
    narrow = agrees("net.onnx", "--against", "interpreter", "--backend", "NNP", "--option", "precision=f16", "--json")
    assert narrow["precision"] == "f16" and narrow["tolerance"].startswith("0.01 of")
    assert agrees(*SYMBOL, "--tolerance", "0.5", "--reference-params", "other.params", "--threads", "1",
                  "--json")["tolerance"].startswith("0.5 of")


@pytest.mark.parametrize(("arguments", "message"), [
    (["none-symbol.json"], "does not exist"),
    (["text-symbol.json", "--shape", "data=1,3"], "symbol JSON does not parse"),
    (["text.onnx"], "is no ONNX model"),
    (["net-symbol.json"], "a symbol needs the shapes of its data inputs"),
    (["net-symbol.json", "--shape", "data=1,3,8,8", "--params", "net.onnx"], "can't read parameters by name"),
    (["net-symbol.json", "--shape", "data=1,3,8,8", "--params", "lacking.params"], "has no second_weight"),
    ([*SYMBOL, "--shape", "image=1,3"], "no input is called image"),
    (["net-symbol.json", "--shape", "data=1,5,8,8", "--params", "net-0000.params"], "weight"),
    (["net-symbol.json", "--shape", "data=1,3,2,2"], "MXNet can't infer the model's shapes"),
    ([*SYMBOL, "--input", "data=double.npy"], "found dtype float64, expected float32"),
    ([*SYMBOL, "--input", "data=small.npy"], "found shape (2, 3, 4, 8), expected (2, 3, 8, 8)"),
    ([*SYMBOL, "--input", "x.npy", "--input", "x.npy"], "found 2 inputs, expected 1"),
    ([*SYMBOL, "--input", "image=x.npy"], "no input is called image"),
    ([*SYMBOL, "--inputs", "data=two.npz"], "holds 2 arrays, which have names of their own: give it without data="),
    ([*SYMBOL, "--inputs", "text.onnx"], "is no .npy or .npz file"),
    ([*SYMBOL, "--against", "onnxruntime"], "expected one of mxnet, interpreter"),
    ([*SYMBOL, "--backend", "GPU"], "no backend 'GPU'"),
    ([*SYMBOL, "--option", "colour=red"], "has no option colour"),
    ([*SYMBOL, "--tolerance", "-1"], "-1"),
    ([*SYMBOL, "--tolerance", "nan"], "nan"),
    ([*SYMBOL, "--dtype", "data=float99"], "found dtype 'float99'"),
    ([*SYMBOL, "--reference-params", "x.params"], "none of the reference's weights x is one of the model's"),
    ([*SYMBOL[::3], "data=2,3,8,8", "--reference-params", "other.params"], "the model has none: params="),
    (["open.onnx"], "the model leaves a dimension open"),
    (["open.onnx", "--input", "small.npy"], "expected x: float32[batch, 3, 8, 8]"),
    (["net.onnx", "--input", "y=x.npy"], "no input is called y"),
    (["net.onnx", "--params", "net-0000.params"], "ONNX models hold their own"),
    (["net.onnx", "--against", "mxnet"], "expected one of onnxruntime, interpreter"),
    (["net.onnx", "--reference-params", "text.onnx"], "is no ONNX model"),
    (["net.onnx", "--reference-params", "wide.onnx"], "initialiser 'w' of the reference's weights: found"),
])
def test_what_can_not_be_run(folder: Path, arguments: list[str], message: str) -> None:
    result = command(*arguments)
    said = " ".join(result.output.replace("│", "").split())
    assert result.exit_code == 2, said
    assert message in said and "Traceback" not in said
    assert result.stdout == ""


def test_a_wrong_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_BACKEND", "GPU")
    result = command(*SYMBOL)
    assert result.exit_code == 2 and "NGRAPH_BACKEND='GPU' is not allowed" in result.output


def test_a_fault_of_ours_is_no_difference(folder: Path, own_backend: Callable[..., None]) -> None:
    def crash(*args: Any, **options: Any) -> None:
        raise ZeroDivisionError("a fault")

    own_backend(InterpreterBackend, compile=crash)
    result = command(*SYMBOL, "--backend", "OWN")
    assert result.exit_code == 2 and "ZeroDivisionError: a fault" in result.stderr


def as_a_user(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": FOLDERS, **variables}
    return subprocess.run([sys.executable, "-m", "ngraph_mxnet", "verify", *arguments], capture_output=True, text=True,
                          check=False, cwd=folder, env=environment, timeout=120)


def test_as_a_process(folder: Path) -> None:
    """MXNet says nothing of backends; with the variable set, its own operators are the reference all the same."""
    done = as_a_user(folder, *SYMBOL, MXNET_SUBGRAPH_BACKEND="NGRAPH")
    assert done.returncode == 0 and done.stderr == "" and "the outputs agree" in done.stdout
    done = as_a_user(folder, *SYMBOL, "--reference-params", "other.params", "--json")
    assert done.returncode == 1 and done.stderr == ""
    assert json.loads(done.stdout)["diverging"]["origin"] == "mx:second_fwd Convolution"


def test_no_color_is_respected(folder: Path) -> None:
    """On a terminal: with colours, and with NO_COLOR without."""
    def shown(**variables: str) -> str:
        terminal, inner = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "150", "PYTHONPATH": FOLDERS, **variables}
        process = subprocess.Popen([sys.executable, "-m", "ngraph_mxnet", "verify", "net.onnx", "--against",
                                    "interpreter", "--reference-params", "other.onnx"], stdout=inner, stderr=inner,
                                   cwd=folder, env=environment)
        os.close(inner)
        text = b""
        try:
            while chunk := os.read(terminal, 65536):
                text += chunk
        except OSError:
            pass  # the other end is closed
        os.close(terminal)
        assert process.wait(60) == 1
        return text.decode()

    colour = re.compile(r"\x1b\[[0-9;]*3[0-9]m")
    assert colour.search(shown()) and not colour.search(shown(NO_COLOR="1"))


def test_compiled_files(folder: Path) -> None:
    made = CliRunner().invoke(main, ["compile", *SYMBOL, "--with-reference", "--isa", "avx2", "-o", "net.ngraph"])
    assert made.exit_code == 0, made.output
    found = agrees("net.ngraph", "--of", *SYMBOL[:3], "--json")
    assert found["reference"] == "MXNet 1.9.1's own operators" and found["outputs"][0]["name"] == "dense_fwd_output"
    assert agrees("net.ngraph", "--json")["inputs"] == ["data float32[2, 3, 8, 8], stored in the file"]
    text = differs("net.ngraph", "--of", "net-symbol.json", "--params", "other.params")
    assert "its weights second_weight are others than the model's" in text
    missing = command("net.ngraph", "--of", "net-symbol.json")
    assert missing.exit_code == 2 and "--params MODEL-0000.params" in missing.stderr
    alone = command("net.ngraph", "--against", "mxnet")
    assert alone.exit_code == 2 and "against: of the model that the file was made of" in alone.stderr


def test_a_table_of_which_few_rows_are_right_differs(folder: Path) -> None:
    """Tokens are drawn from all rows, also where MXNet has them as float32."""
    class Bag(mx.gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__(prefix="")
            self.table, self.out = nn.Embedding(1000, 16, prefix="table_"), nn.Dense(4, in_units=16, prefix="out_")

        def hybrid_forward(self, F: Any, tokens: Any) -> Any:  # noqa: N803
            return self.out(self.table(tokens).mean(axis=1))

    net = Bag()
    net.initialize()
    net.hybridize()
    net(mx.nd.ones((1, 32)))
    net.export("bag", 0)
    weights = mx.nd.load("bag-0000.params")
    weights["arg:table_weight"][5:] = 9
    mx.nd.save("broken.params", weights)
    given = ("bag-symbol.json", "--params", "bag-0000.params", "--shape", "data=1,32")
    assert "whole numbers from 0 to 999" in agrees(*given)
    assert "table" in differs(*given, "--reference-params", "broken.params")
