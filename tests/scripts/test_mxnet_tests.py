"""`scripts/mxnet_tests.py` on a checkout of a few tests that stand in for MXNet's."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import mxnet_tests
import numpy as np
import pytest
from click.testing import CliRunner
from mxnet_tests_comparison import difference

import ngraph_mxnet

ENTRIES = """
import os
import mxnet as mx
import pytest

def test_right():
    executor = mx.sym.relu(mx.sym.Variable("x")).simple_bind(mx.cpu(), x=(64, 64), grad_req="null")
    executor.arg_dict["x"][:] = -1
    assert executor.forward(is_train=False)[0].sum().asscalar() == 0
    net = mx.gluon.nn.Dense(4)
    net.initialize()
    net.hybridize()
    assert net(mx.nd.ones((2, 3))).shape == (2, 4)

def test_wrong_under_ngraph():
    from ngraph_mxnet.plugin.binding.executor import NGraphExecutor
    executor = mx.sym.exp(mx.sym.Variable("x")).simple_bind(mx.cpu(), x=(64, 64), grad_req="null")
    results = executor.forward(is_train=False)
    if os.environ.get("MXNET_SUBGRAPH_BACKEND"):
        assert isinstance(executor, NGraphExecutor)
        assert False, "only under NGRAPH"

def test_that_kills_its_process():
    os.abort()

def test_that_kills_its_process_no_more():
    pass

def test_last():
    pytest.skip("as MXNet's own do")
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout" / "tests" / "python" / "unittest"
    folder.mkdir(parents=True)
    (folder / "test_few.py").write_text(ENTRIES)
    return tmp_path / "checkout"


def run(checkout: Path, *options: str) -> tuple[int, str]:
    """In a process of its own, as the tests' processes count as children of this one too."""
    package = str(Path(ngraph_mxnet.__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {str(mxnet_tests.SCRIPTS)!r}); import mxnet_tests; mxnet_tests.main()"
    done = subprocess.run([sys.executable, "-c", code, str(checkout), "--files", "test_few", *options],
                          capture_output=True, text=True, check=False, timeout=300, cwd=package)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_outcomes_of_all_ways(checkout: Path, tmp_path: Path) -> None:
    status, output = run(checkout, "--json", str(tmp_path / "all.json"))
    runs = {run["way"]: run["tests"] for run in json.loads((tmp_path / "all.json").read_text())}
    assert status == 1, output
    outcomes = {way: [test["outcome"] for test in tests.values()] for way, tests in runs.items()}
    failing = ["passed", "failed", "died", "passed", "skipped"]
    alone = ["passed", "passed", "died", "passed", "skipped"]
    assert outcomes == {"alone": alone, "ngraph": failing, "trained": failing, "compared": failing,
                        "stepped": failing}, output
    assert runs["compared"]["test_right"]["compared"] == 2 and runs["ngraph"]["test_right"]["compared"] == 0
    told = "test_few::test_wrong_under_ngraph, ngraph: failed, alone passed; AssertionError: only under NGRAPH"
    assert told in output
    assert runs["alone"]["test_that_kills_its_process"]["message"] == "SIGABRT"
    assert not list(checkout.rglob("__pycache__"))


def test_a_mismatch_fails_the_test(checkout: Path) -> None:
    """Compiled results are spoilt before they are compared; a process that dies is replaced."""
    spoil = """
from ngraph_mxnet.plugin.binding.executor import NGraphExecutor
right = NGraphExecutor.forward
def forward(self, is_train=False, **kwargs):
    outputs = right(self, is_train, **kwargs)
    outputs[0] += 1
    return outputs
NGraphExecutor.forward = forward
"""
    folder = checkout / "tests" / "python" / "unittest"
    (folder / "conftest.py").write_text(spoil)
    status, output = run(checkout, "--ways", "compared", "-k", "not test_right")
    assert status == 1
    assert "test_few, compared: {'failed': 1, 'died': 1, 'passed': 1, 'skipped': 1}" in output
    assert "compared: executor of exp0, output 0: 4096 of 4096 elements of float32[64, 64] differ" in output


STEPS = """
import mxnet as mx
from mxnet import autograd
from mxnet.gluon import loss, nn

def net_of(*layers):
    net = nn.HybridSequential()
    net.add(*layers)
    net.initialize()
    net.hybridize()
    return net

def test_executor():
    net = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=4, name="fc")
    executor = mx.sym.BatchNorm(net, name="bn").simple_bind(mx.cpu(), x=(8, 3), grad_req="add")
    executor.arg_dict["x"][:] = mx.nd.random.normal(shape=(8, 3))
    executor.arg_dict["fc_weight"][:] = mx.nd.random.normal(shape=(4, 3))
    for _ in range(2):
        executor.forward(is_train=True)
        executor.backward(mx.nd.random.normal(shape=(8, 4)))

def test_block():
    net, of_two = net_of(nn.Dense(4), nn.BatchNorm(), nn.Dense(2)), loss.L2Loss()
    with autograd.record():
        found = of_two(net(mx.nd.random.normal(shape=(8, 3))), mx.nd.ones((8, 2)))
    found.backward()

def test_that_drops():
    net = net_of(nn.Dense(4), nn.Dropout(0.5), nn.Dense(2))
    with autograd.record():
        found = net(mx.nd.ones((8, 3)))
    found.backward()
"""


def test_steps_are_compared(checkout: Path, tmp_path: Path) -> None:
    """Passes of an executor, calls of a block and of a loss; but none that draw. A spoilt gradient is found in each."""
    folder = checkout / "tests" / "python" / "unittest"
    (folder / "test_few.py").write_text(STEPS)
    status, output = run(checkout, "--ways", "stepped", "--json", str(tmp_path / "all.json"))
    [tests] = [entry["tests"] for entry in json.loads((tmp_path / "all.json").read_text())]
    counts = {name: (test["outcome"], test["compared"], test["left_out"]) for name, test in tests.items()}
    assert status == 0, output
    assert counts == {"test_executor": ("passed", 4, 0), "test_block": ("passed", 2, 0),
                      "test_that_drops": ("passed", 0, 1)}
    (folder / "conftest.py").write_text("""
import mxnet_tests_comparison
right = mxnet_tests_comparison.difference
def difference(found, expected):
    return right(found * 2 if found.shape == (4, 3) else found, expected)
mxnet_tests_comparison.difference = difference
""")
    status, output = run(checkout, "--ways", "stepped")
    assert status == 1
    assert "test_few::test_executor, stepped: step of bn, gradient of fc_weight: " in output
    assert re.search(r"test_few::test_block, stepped: recorded .*, gradient of dense0_weight: ", output)


def test_wrong_command_lines(tmp_path: Path) -> None:
    result = CliRunner().invoke(mxnet_tests.main, [str(tmp_path)])
    assert result.exit_code == 2 and "is it a clone of apache/mxnet?" in result.output
    result = CliRunner().invoke(mxnet_tests.main, [str(tmp_path), "--ways", "backwards"])
    assert result.exit_code == 2 and "found way 'backwards'" in result.output


def test_differences() -> None:
    ones = np.ones((2, 2), np.float32)
    assert difference(ones, ones * np.float32(1 + 1e-6)) is None
    assert difference(ones, ones[:1]) == "found float32[2, 2], expected float32[1, 2]"
    assert difference(ones, ones.astype(np.float64)) == "found float32[2, 2], expected float64[2, 2]"
    assert "2 of 4 elements" in str(difference(ones, np.array([[1, 2], [3, 1]], np.float32)))
    nan = np.array([np.nan, np.inf])
    assert difference(nan, nan) is None and difference(nan, -nan) is not None
    assert difference(np.array([1, 2]), np.array([1, 3])) is not None
