"""NGRAPH_PROFILE: what the executor records, and the file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from test_core import INPUT, OUTPUT, call, doubling, run, spin

import ngraph_mxnet
from ngraph_mxnet import _core
from ngraph_mxnet.program.trace import Recorder
from ngraph_mxnet.targets.cpu.program.trace import Spans

ROOT = Path(ngraph_mxnet.__file__).parents[1]


@pytest.fixture
def recording():
    _core.trace_start(1000)
    yield
    _core.trace_stop()
    _core.trace_take()


def test_nothing_is_recorded_when_off():
    _core.trace_take()
    executable = doubling(100)
    run(executable, np.ones(100, np.float32))
    assert Spans.take().events.size == 0


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_each_call_has_its_span_and_every_task_of_its_kernels(recording, threads):
    executable = doubling(1001, levels=3, threads=threads)
    values = np.arange(1001, dtype=np.float32)
    for _ in range(4):
        np.testing.assert_array_equal(run(executable, values), values * 8)
    spans = Spans.take()
    assert spans.dropped == 0
    category = np.array([label.category for label in spans.labels])[spans.events["label"]]
    whole, kernels = spans.events[category == "call"], spans.events[category == "kernel"]
    assert len(whole) == 4 == len(set(whole["call"]))
    assert len(np.unique(kernels["label"])) == 3
    for number, begin, end in whole[["call", "begin", "end"]]:
        mine = kernels[kernels["call"] == number]
        assert (mine["begin"] >= begin).all() and (mine["end"] <= end).all() and (mine["begin"] <= mine["end"]).all()
        for label in np.unique(kernels["label"]):
            parts = mine[mine["label"] == label]
            assert parts["tasks"].sum() == 1001
            assert len(np.unique(parts["thread"])) <= threads
    assert Spans.take().events.size == 0  # taken once


def test_the_last_events_are_kept():
    executable = doubling(10, threads=1)
    _core.trace_start(6)
    try:
        for _ in range(10):
            run(executable, np.ones(10, np.float32))
    finally:
        _core.trace_stop()
    spans = Spans.take()
    calls = spans.events["call"]
    assert len(calls) == 6 and spans.dropped == 14
    assert set(calls) == set(range(int(calls.max()) - 2, int(calls.max()) + 1))


def test_spans_of_both_threads_overlap(recording):
    program = _core.BoundProgram([[call(spin, [(INPUT, 0, 0), (OUTPUT, 0, 0)], 12, [200_000])]], 0, [])
    spec = [("f32", (12,))]
    executable = _core.Executable(program, None, 0, [], spec, spec, 2)
    for _ in range(50):  # on a busy machine one thread may do all the work
        run(executable, np.ones(12, np.float32))
        events = Spans.take().events
        if len(np.unique(events["thread"])) == 2:
            return
    pytest.fail("one thread did everything")


SCRIPT = """
import os, sys
import numpy as np
from ngraph_mxnet import Builder, compile

b = Builder()
x = b.parameter("x", (1, 20, 24, 24))
b.origin = "mx:conv0 Convolution"
y = b.convolution(x, b.weight("w", (40, 20, 3, 3)), pads_begin=(1, 1), pads_end=(1, 1))
b.origin = "mx:relu0 Activation"
graph = b.results(b.relu(y))
executable = compile(graph, "CPU", threads=3)
arrays = [np.ones(p.shape, np.float32) for p in graph.parameters]
for _ in range(3):
    total = executable(*arrays)[0].sum()
print(total)
{more}
"""

FORK = """
import multiprocessing
pid = os.fork()
if pid == 0:
    executable(*arrays)
    sys.exit()
os.waitpid(pid, 0)
idle = os.fork()
if idle == 0:
    sys.exit()
os.waitpid(idle, 0)
worker = multiprocessing.get_context("fork").Process(target=executable, args=arrays)
worker.start()
worker.join()
print(pid, idle, worker.pid)
"""


def run_script(folder: Path, profile: str | None, more: str = "") -> tuple[list[str], str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("NGRAPH_", "OMP_"))}
    environment["PYTHONPATH"] = str(ROOT)
    environment["NGRAPH_CPU_WINOGRAD"] = "0"  # one instruction a convolution, whose bytes are easily told
    if profile is not None:
        environment["NGRAPH_PROFILE"] = profile
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(more=more)], cwd=folder, env=environment, check=True,
                          capture_output=True, text=True, timeout=120)
    return done.stdout.split(), done.stderr


def spans_of(path: Path) -> dict[str, list[dict]]:
    """By category."""
    trace = json.loads(path.read_text())
    assert trace["otherData"] == {"dropped events": 0}
    found: dict[str, list[dict]] = {}
    for event in trace["traceEvents"]:
        assert {"name", "ph", "pid", "tid"} <= set(event)
        if event["ph"] == "X":
            assert event["dur"] >= 0
            found.setdefault(event["cat"], []).append(event)
    return found


def test_a_script_and_its_forked_children_write_their_traces(tmp_path):
    untraced, _ = run_script(tmp_path, None)
    assert not list(tmp_path.iterdir())
    (tmp_path / "trace.json").write_text("an old one")
    os.utime(tmp_path / "trace.json", (time.time() - 60,) * 2)
    (total, child, _idle, worker), errors = run_script(tmp_path, "trace.json", FORK)
    assert [total] == untraced and "NGRAPH_PROFILE" not in errors
    assert {p.name for p in tmp_path.iterdir()} == {"trace.json", f"trace.{child}.json", f"trace.{worker}.json"}

    spans = spans_of(tmp_path / "trace.json")
    assert len(spans["call"]) == 3 and len(spans["prepare"]) == 1
    assert {"passes", "lower", "plan and bind", "compile main"} <= {event["name"] for event in spans["compile"]}
    assert "clamp_fusion" in {event["name"] for event in spans["pass"]}
    contractions = [event for event in spans["kernel"] if event["name"].startswith("contraction")]
    assert "mx:conv0 Convolution + mx:relu0 Activation" in contractions[0]["args"]["origin"]
    operations = sum(event["args"]["GFLOP"] for event in contractions)
    assert operations == pytest.approx(3 * 2 * 40 * 24 * 24 * 20 * 9 / 1e9)
    for event in contractions:
        rate = event["args"]["GFLOP"] / event["dur"] * 1e6
        assert event["args"]["GFLOP/s"] == pytest.approx(rate, rel=0.01, abs=0.01)
    touched = sum(event["args"]["bytes"] for event in contractions)
    assert touched == pytest.approx(3 * 4 * (60 * 24 * 24 + 40 * 20 * 9), rel=0.01)

    for name in (child, worker):
        spans = spans_of(tmp_path / f"trace.{name}.json")
        assert len(spans["call"]) == 1 and set(spans) == {"call", "kernel"}
        assert {event["pid"] for event in spans["kernel"]} == {int(name)}


def test_the_number_of_the_process(tmp_path):
    (_, child, _, worker), _ = run_script(tmp_path, "a%p.json", FORK)
    names = {p.name for p in tmp_path.iterdir()}
    assert {f"a{child}.json", f"a{worker}.json"} < names and len(names) == 3


@pytest.mark.parametrize(("path", "why"), [("no/such/trace.json", "there is no folder"), (".", "it is a folder")])
def test_a_bad_path_is_told_once_and_nothing_else_changes(tmp_path, path, why):
    (_total,), errors = run_script(tmp_path, path)
    assert errors.count("NGRAPH_PROFILE=") == 1 and why in errors and "no trace is recorded" in errors
    assert not list(tmp_path.iterdir())


def test_a_folder_that_vanished_is_told(tmp_path):
    (tmp_path / "gone").mkdir()
    (_total,), errors = run_script(tmp_path, "gone/trace.json", "os.rmdir('gone')")
    assert "the trace could not be written" in errors


def test_processes_that_run_at_once_do_not_overwrite_each_other(tmp_path):
    first, second = (Recorder(tmp_path / "trace.json") for _ in range(2))
    for recorder in (first, second):
        recorder.add("span", "test", 0.0, 1.0, {})
        recorder.write()
        recorder.write()  # once only
    assert {p.name for p in tmp_path.iterdir()} == {"trace.json", f"trace.{os.getpid()}.json"}
