"""The step `file` of `scripts/model_matrix.py`: a model as a file in a process without MXNet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from matrix import as_file, stages, weights, worker
from matrix.model import Model

import ngraph_mxnet

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "NGRAPH_RUNTIME_LIBRARY"
DATA = {"data": np.random.default_rng(0).standard_normal((2, 3, 9, 9)).astype(np.float32)}


class Net:
    """A block without constants."""

    def collect_params(self) -> dict[str, Any]:
        return {}


MODEL = Model(Net(), DATA)  # type: ignore[arg-type]


@pytest.fixture
def real_library(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE} names no built library")


def net() -> Any:
    hidden = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=8, name="first")
    hidden = mx.sym.BatchNorm(hidden, fix_gamma=False, name="norm")
    last = mx.sym.FullyConnected(mx.sym.Activation(hidden, act_type="relu"), num_hidden=4, name="last")
    return mx.sym.Group([last, mx.sym.log(last)])  # the second has NaNs


def facts(monkeypatch: pytest.MonkeyPatch, symbol: Any, **more: float) -> dict[str, Any]:
    """`more`: what is added to weights of the file alone."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    ours = weights.bind(symbol, MODEL, "NGRAPH")
    expected = [np.array(each) for each in stages.outputs(ours)]
    for name, number in more.items():
        ours.arg_dict[name][:] += number
    return as_file.facts(symbol, MODEL, ours, expected)


@pytest.mark.usefixtures("real_library")
def test_a_file_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    found = facts(monkeypatch, net())
    assert found.pop("file_bytes") > 4 * 8 * 27
    assert found == {"file": as_file.SAME_BITS, "file_difference": 0.0}


@pytest.mark.usefixtures("real_library")
def test_a_file_of_other_weights_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = facts(monkeypatch, net(), first_bias=1e-6)
    assert found["file"] == as_file.DIFFERS and 0 < found["file_difference"] < 1e-3


@pytest.mark.usefixtures("real_library")
def test_a_file_draws_its_own_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = mx.sym.broadcast_add(mx.sym.random.normal(shape=(2, 400)), mx.sym.sum(mx.sym.Variable("data")) * 0)
    found = facts(monkeypatch, drawn)
    assert found["file"] == as_file.SAME_MEANS and 0 < found["file_difference"] < 5


def test_what_cannot_be_compiled_whole_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = facts(monkeypatch, mx.sym.Group([net(), mx.sym.linalg.inverse(mx.sym.eye(4))]))
    assert found["file"] == as_file.REFUSED and "file_bytes" not in found
    assert "_linalg_inverse" in found["file_reason"]


def test_a_file_that_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/nowhere/library.so")
    found = facts(monkeypatch, net())
    assert found["file"] == as_file.BROKEN and "/nowhere/library.so" in found["file_reason"]


def test_bits_of_nan_count() -> None:
    quiet, other = (np.array([bits], np.uint32).view(np.float32) for bits in (0x7FC00000, 0x7FC00001))
    assert as_file.same_bits(quiet, quiet.copy())
    assert not as_file.same_bits(quiet, other)
    assert not as_file.same_bits(np.zeros(2), np.zeros((2, 1)))
    assert not as_file.same_bits(np.zeros(1), -np.zeros(1))


def test_a_process_with_the_compiler_fails() -> None:
    code = "import ngraph_mxnet, runpy, sys; sys.argv = ['alone', '--help']; " \
           "from matrix import alone; print(alone.strangers())"
    parts = [ROOT / "runtime", ROOT / "scripts", Path(ngraph_mxnet.__file__).parents[1]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, parts))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert "'ngraph_mxnet'" in done.stdout


def test_the_worker_tells_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no library runs it."""
    told: dict[str, Any] = {}
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    library = SimpleNamespace(build=lambda _: Traced(Net(), DATA))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "matrix.toys", library)
    worker.work("toys", "net", ["file"], {}, told.update)
    assert told["file"] == (as_file.SAME_BITS if os.environ.get(VARIABLE) else as_file.BROKEN) and "error" not in told


class Traced(Model):
    def trace(self) -> Any:
        return net()
