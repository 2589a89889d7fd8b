"""Every command of a symbol's files where MXNet can't be imported: it works, or says what MXNet is needed for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest

import ngraph_mxnet

HIDDEN = "import sys; sys.modules['mxnet'] = None; from ngraph_mxnet.__main__ import main; main()"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a command in a folder with a whole model, and one that has an operator without a rule."""
    folder = tmp_path_factory.mktemp("models")
    data = mx.sym.var("data")
    body = mx.sym.Activation(mx.sym.Convolution(data, kernel=(3, 3), num_filter=4, name="conv"), act_type="relu")
    whole = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(body, num_hidden=3, name="fc"), name="softmax")
    spatial = mx.sym.GridGenerator(mx.sym.var("theta"), transform_type="affine", target_shape=(40, 40), name="grid")
    parted = mx.sym.relu(mx.sym.linalg.inverse(spatial, name="odd") + 1, name="last")
    rng = np.random.default_rng(0)
    shapes, _, _ = whole.infer_shape(data=(2, 3, 8, 8))
    weights = {f"arg:{name}": mx.nd.array(rng.normal(0, 0.3, shape)) for name, shape in zip(
        whole.list_arguments(), shapes, strict=True) if name not in ("data", "softmax_label")}
    whole.save(str(folder / "net-symbol.json"))
    parted.save(str(folder / "odd-symbol.json"))
    mx.nd.save(str(folder / "net-0000.params"), weights)
    np.save(folder / "x.npy", rng.random((2, 3, 8, 8), np.float32))

    def done(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", HIDDEN, *words], cwd=folder, capture_output=True, text=True,
                              check=False, timeout=300, env={**os.environ, "NGRAPH_CACHE_DIR": "off"})

    done.folder = folder  # type: ignore[attr-defined]
    return done


MODEL = ("net-symbol.json", "--params", "net-0000.params")
SHAPE = ("--shape", "data=2,3,8,8")


@pytest.mark.parametrize("words", [
    ("explain", *MODEL, *SHAPE), ("explain", *MODEL, *SHAPE, "--kernels"),
    ("explain", *MODEL, *SHAPE, "--shapes", "data:0"), ("verify", *MODEL, *SHAPE), ("verify", MODEL[0], *SHAPE),
    ("profile", *MODEL, *SHAPE, "--rounds", "2"), ("bench", *MODEL, *SHAPE, "--rounds", "2"),
    ("show", *MODEL, *SHAPE), ("report", *MODEL, *SHAPE, "--rounds", "1", "-o", "net.html"),
    ("compile", *MODEL, *SHAPE, "--isa", "baseline", "-o", "net.ngraph"), ("run", *MODEL, "--input", "data=x.npy"),
    ("to-onnx", *MODEL, *SHAPE, "-o", "net.onnx"),
], ids=lambda words: " ".join((words[0], *words[4:])))
def test_commands_of_a_whole_model(run: Run, words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_is_judged_as_with_mxnet(run: Run) -> None:
    """One region of the same nodes, costs and precision."""
    found = json.loads(run("explain", *MODEL, *SHAPE, "--json").stdout)
    symbol = mx.sym.load(str(run.folder / MODEL[0]))  # type: ignore[attr-defined]
    told = ngraph_mxnet.explain(symbol, {"data": (2, 3, 8, 8)}).to_dict()
    assert found["regions"] == json.loads(json.dumps(told["regions"])) and found["left"] == []
    assert [node["name"] for node in found["regions"][0]["nodes"]][-1] == "softmax"


def test_the_interpreter_is_the_reference(run: Run) -> None:
    found = json.loads(run("verify", *MODEL, *SHAPE, "--json").stdout)
    assert found["reference"] == "the interpreter of the IR" and found["agrees"] and found["weights"] == "given"
    done = run("verify", *MODEL, *SHAPE, "--against", "mxnet")
    assert done.returncode == 2 and "against: found 'mxnet', expected one of interpreter" in done.stderr


def test_what_needs_mxnet_says_so(run: Run) -> None:
    done = run("explain", *MODEL, *SHAPE, "--train")
    assert done.returncode == 1 and "MXNet trains models, and it is not installed here: pip install" in done.stderr
    assert "Traceback" not in done.stderr
    done = run("bench", "odd-symbol.json", "--shape", "theta=1,6")
    assert done.returncode == 1 and "odd _linalg_inverse" in done.stderr and "Traceback" not in done.stderr


def test_nodes_behind_an_operator_without_a_rule_are_told(run: Run) -> None:
    done = run("explain", "odd-symbol.json", "--shape", "theta=1,6", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    left = {(entry["op"], entry["reason"]) for entry in found["left"]}
    assert ("relu", "the shape or type of input 0 is unknown") in left
    assert [[node["name"] for node in region["nodes"]] for region in found["regions"]] == [["grid"]]


def test_sparse_variables_stay_with_mxnet_where_it_is(tmp_path: Path) -> None:
    """Where it is not, files are compiled with dense arrays."""
    symbol = mx.sym.dot(mx.sym.var("data"), mx.sym.var("weight", stype="row_sparse", shape=(3, 2)), name="product")
    symbol.save(str(tmp_path / "net-symbol.json"))
    found = ngraph_mxnet.explain(tmp_path / "net-symbol.json", {"data": (4, 3)})
    assert not found.compiles and "a variable has sparse storage" in str(found)
