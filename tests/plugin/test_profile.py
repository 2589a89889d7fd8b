"""`python -m ngraph_mxnet profile`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from native_runs import mx
from rich.console import Console

import ngraph_mxnet
from ngraph_mxnet.targets.cpu.machine.peak import Peak
from ngraph_mxnet.targets.cpu.program.trace import Label, Spans
from ngraph_mxnet.targets.cpu.report import profile_of

ROOT = Path(ngraph_mxnet.__file__).parents[1]
EVENT = np.dtype([("begin", "i8"), ("end", "i8"), ("tasks", "i8"), ("call", "u8"), ("label", "u4"), ("thread", "i4")])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    data = mx.sym.Variable("data")
    y = mx.sym.Convolution(data, kernel=(3, 3), num_filter=32, pad=(1, 1), name="conv0")
    y = mx.sym.Activation(y, act_type="relu", name="relu0")
    y = mx.sym.Pooling(y, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool0")
    path = tmp_path / "model-symbol.json"
    mx.sym.FullyConnected(y, num_hidden=10, name="fc0").save(str(path))
    return path


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])}
    line = [sys.executable, "-m", "ngraph_mxnet", "profile", *map(str, arguments)]
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)


def test_the_command_prints_json(model):
    shape = (2, 20, 32, 32)
    params = model.with_name("model-0000.params")
    shapes = dict(zip(mx.sym.load(str(model)).list_arguments(),
                      mx.sym.load(str(model)).infer_shape(data=shape)[0], strict=True))
    mx.nd.save(str(params), {f"arg:{name}": mx.nd.ones(s) for name, s in shapes.items() if name != "data"})
    done = command(model, "--shape", "data=2,20,32,32", "--params", params, "--threads", 2, "--rounds", 3, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["threads"] == 2 and found["rounds"] == 3 and found["dropped"] == 0
    (conv,) = [row for row in found["rows"] if "mx:conv0" in row["origin"] and "contraction" in row["kernel"]]
    assert conv["gflop"] == pytest.approx(2 * 2 * 32 * 32 * 32 * 20 * 9 / 1e9)
    assert conv["gflops"] == pytest.approx(conv["gflop"] / conv["ms"] * 1e3)
    assert conv["of_peak"] == pytest.approx(conv["gflops"] / found["peak"]["gflops"])
    assert sum(row["share"] for row in found["rows"]) < 1
    assert sum(row["ms"] for row in found["kinds"]) == pytest.approx(sum(row["ms"] for row in found["rows"]))
    (memory,) = found["memory"]
    assert 0 < memory["planned"] <= memory["separate"]
    assert found["wall_ms"] > 0 and found["waiting_ms"] >= 0 and found["outside_ms"] >= 0


def test_the_command_prints_tables_and_errors(model):
    done = command(model, "--shape", "data=1,3,16,16", "--rounds", 1)
    assert done.returncode == 0, done.stderr
    for text in ("Kernels by node", "conv0 + relu0", "Totals by kernel", "threads waiting", "Peak measured on",
                 "all intermediates"):
        assert text in done.stdout
    mx.nd.save(str(model.with_name("some.params")), {"arg:conv0_weight": mx.nd.ones((32, 3, 3, 3))})
    done = command(model, "--shape", "data=1,3,16,16", "--params", model.with_name("some.params"))
    assert done.returncode == 1 and "some.params has no conv0_bias, fc0_bias, fc0_weight" in done.stderr


def test_time_is_sorted_by_kernel_and_node():
    """Two threads, two rounds: of 10 ms each, 8 in the call."""
    labels = [Label("run", "call", "", 0, 0, 1), Label("ng_a__avx2", "kernel", "x", 2e9, 1e6, 4),
              Label("ng_a__avx2", "kernel", "x", 4e9, 1e6, 4), Label("ng_b__avx2", "kernel", "y", 0, 3e6, 1)]
    spans = [(0, 1, 9), (1, 1, 4), (1, 1, 4), (2, 4, 6), (3, 6, 8)]  # label, begin, end in milliseconds
    events = np.array([((begin + 10 * r) * 10**6, (end + 10 * r) * 10**6, 1, r, label, 1)
                       for r in range(2) for label, begin, end in spans], EVENT)
    limits = [(0, 10**7), (10**7, 2 * 10**7)]
    found = profile_of(Spans(labels, events, 0), limits, threads=2)
    a, b = found.rows
    assert (a.kernel, a.origin, a.calls, a.ms, a.gflop, a.megabytes) == ("a", "x", 2, 4.0, 6.0, 2.0)
    assert (b.kernel, b.ms, b.gflops, b.gigabytes) == ("b", 1.0, 0.0, 3.0)
    assert a.gflops == 1500
    assert (found.wall_ms, found.waiting_ms, found.outside_ms, found.total_ms) == (10, 3, 2, 10)
    shown = Console(width=120)
    with shown.capture() as text:
        shown.print(replace(found, isa="avx2", peak=Peak(2, 3000.0, 6.0)))
    assert "50.0 %" in text.get() and "40.0 %" in text.get()
