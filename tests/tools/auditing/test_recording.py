"""What is recorded of which calls, whoever makes them, and where the numbers come from."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ngraph_mxnet
from ngraph_mxnet.base.errors import AuditError, ConfigError
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.program.differences import statistics
from ngraph_mxnet.program.recorder import NAME, PERIOD
from ngraph_mxnet.tools.audits import Run, open_run

X = np.random.default_rng(0).standard_normal((4, 6)).astype("f4")
W = np.random.default_rng(1).standard_normal((6, 5)).astype("f4")


def net(name: str = "net") -> Graph:
    b = Builder(name=name)
    x, w = b.parameter("x", X.shape), b.weight("w", W.shape)
    b.origin = "toy:fc Dense"
    y = b.matmul(x, w)
    b.origin = "toy:act Tanh"
    y = b.tanh(y)
    b.origin = "toy:exp"
    return b.results(y, b.exp(b.parameter("unused", (2,))))


def call(executable: Any, scale: float = 1.0) -> None:
    executable({"x": X * np.float32(scale), **({"w": W} if len(executable.inputs) > 2 else {}),
                "unused": np.zeros(2, "f4")})


def by_name(run: Run, number: int = -1) -> dict[str, Any]:
    return {each.tensor.name: each for each in run.calls[number].tensors}


@pytest.mark.parametrize("backend", ["CPU", "INTERPRETER", "NNP", "HYBRID"])
@pytest.mark.parametrize("as_constant", [True, False])
def test_borders(backend: str, as_constant: bool, tmp_path: Path) -> None:
    with ngraph_mxnet.audit(tmp_path):
        executable = ngraph_mxnet.compile(net(), backend, weights={"w": W} if as_constant else {})
        for _ in range(3):
            call(executable)
    run = open_run(tmp_path)
    assert [each.number for each in run.calls] == [0, 1, 2] and run.lost == 0
    found = by_name(run)
    assert list(found) == ["x", "unused", "result 0", "result 1"]
    assert found["x"].tensor.node == "toy:fc Dense" and found["result 0"].tensor.node == "toy:act Tanh"
    wanted = statistics(X)
    assert found["x"].statistics[:4] == wanted[:4] and found["x"].statistics.mean == pytest.approx(wanted.mean)
    (checkpoint,) = run.checkpoints
    (weight,) = checkpoint.tensors
    assert weight.tensor.name == "w" and weight.statistics.norm == pytest.approx(statistics(W).norm)
    assert checkpoint.columns["bytes"] == W.nbytes and checkpoint.columns["peak"] > 1 << 20
    assert [each.checkpoints for each in run.calls] == [[checkpoint]] * 3
    (graph,) = run.graphs
    assert graph.columns["backend"] == backend and len(graph.columns["digest"]) == 64


@pytest.mark.parametrize("backend", ["CPU", "INTERPRETER"])
def test_values(backend: str, tmp_path: Path) -> None:
    with ngraph_mxnet.audit(tmp_path, tensors="all"):
        executable = ngraph_mxnet.compile(net(), backend)
        call(executable)
        results = executable({"x": X, "w": W, "unused": np.zeros(2, "f4")})
    found = by_name(open_run(tmp_path))
    assert {"toy:fc Dense", "toy:act Tanh"} <= found.keys()
    assert found["toy:fc Dense"].statistics.norm == pytest.approx(statistics(X @ W).norm, rel=1e-5)
    assert found["toy:act Tanh"].statistics.norm == pytest.approx(statistics(results[0]).norm, rel=1e-6)
    np.testing.assert_array_equal(results[0], ngraph_mxnet.compile(net(), backend)(X, W, np.zeros(2, "f4"))[0])


def test_a_backend_that_shows_no_values_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with ngraph_mxnet.audit(tmp_path, tensors="all"):
        call(ngraph_mxnet.compile(net(), "NNP"))
    assert "the backend NNP does not show others" in caplog.text
    assert "result 0" in by_name(open_run(tmp_path))


@pytest.mark.parametrize("tensors", ["borders", "all"])
@pytest.mark.parametrize(("calls", "numbers"), [("all", [0, 1, 2, 3, 4, 5]), ("first:2", [0, 1]), ("every:3", [0, 3])])
def test_chosen_calls(tensors: str, calls: str, numbers: list[int], tmp_path: Path) -> None:
    with ngraph_mxnet.audit(tmp_path, calls=calls, tensors=tensors):
        executable = ngraph_mxnet.compile(net())
        for _ in range(6):
            call(executable)
    assert [each.number for each in open_run(tmp_path).calls] == numbers


def test_weights_are_recorded_once_for_each_content(tmp_path: Path) -> None:
    with ngraph_mxnet.audit(tmp_path):
        executable = ngraph_mxnet.compile(net())
        for scale in (1, 1, 2, 1):
            executable(X, W * np.float32(scale), np.zeros(2, "f4"))
    run = open_run(tmp_path)
    first, second = run.checkpoints
    assert [each.checkpoints for each in run.calls] == [[first], [first], [second], [first]]
    assert first.columns["digest"] != second.columns["digest"]


def test_every_model_of_onnx_is_seen(tmp_path: Path) -> None:
    """Its calls go past `Executable`."""
    from onnx import TensorProto, helper

    nodes = [helper.make_node("Relu", ["x"], ["t"], name="first"), helper.make_node("Neg", ["t"], ["y"], name="second")]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3])] for name in "xy"]
    model = helper.make_model(helper.make_graph(nodes, "net", *ends), opset_imports=[helper.make_opsetid("", 17)])
    for tensors in ("borders", "all"):
        with ngraph_mxnet.audit(tmp_path / tensors, tensors=tensors):
            executable = ngraph_mxnet.compile(model)
            for rows in (2, 2, 5, 5, 7):
                executable(np.ones((rows, 3), "f4"))
        assert [each.tensors[0].statistics.shape for each in open_run(tmp_path / tensors).calls] == [
            (rows, 3) for rows in (2, 2, 5, 5, 7)]


@pytest.mark.parametrize("backend", ["CPU", "INTERPRETER"])
@pytest.mark.parametrize("tensors", ["borders", "all"])
def test_a_range_of_sizes(backend: str, tensors: str, tmp_path: Path) -> None:
    """It is compiled for each set of sizes."""
    graph = ngraph_mxnet.parse_graph("""
        graph @rows<N: 1..9>(%x: f32[N,4]) -> (f32[N,4]) {
          %0: f32[N,4] = exp(%x)
          return %0
        }""")
    with ngraph_mxnet.audit(tmp_path, tensors=tensors):
        executable = ngraph_mxnet.compile(graph, backend)
        for rows in (2, 3, 2):
            executable(np.ones((rows, 4), "f4"))
    calls = open_run(tmp_path).calls
    assert [each.tensors[0].statistics.shape[0] for each in calls] == [2, 3, 2]
    assert {len(each.tensors) for each in calls} == {2 if tensors == "borders" else 3}


# ---- threads, forks, processes ----------------------------------------------------------------------------


def test_threads(tmp_path: Path) -> None:
    with ngraph_mxnet.audit(tmp_path):
        executable = ngraph_mxnet.compile(net(), weights={"w": W})
        threads = [threading.Thread(target=lambda: [call(executable) for _ in range(200)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    run = open_run(tmp_path)
    assert sorted(each.number for each in run.calls) == list(range(800)) and run.lost == 0
    assert {len(each.tensors) for each in run.calls} == {4}


def test_calls_of_several_transactions(tmp_path: Path) -> None:
    """Memory of those that were written serves the next ones."""
    scales = [float(number) for number in range(300)]
    with ngraph_mxnet.audit(tmp_path):
        executable = ngraph_mxnet.compile(net(), weights={"w": W})
        for number, scale in enumerate(scales):
            if number % 100 == 99:
                time.sleep(1.5 * PERIOD)
            call(executable, scale)
    run = open_run(tmp_path)
    assert [each.number for each in run.calls] == list(range(300)) and run.lost == 0
    maxima = [by_name(run, number)["x"].statistics.max for number in range(300)]
    assert maxima == [pytest.approx(float((X * np.float32(scale)).max())) for scale in scales]
    assert {len(each.tensors) for each in run.calls} == {4}


def test_a_forked_child_has_a_run_of_its_own(tmp_path: Path) -> None:
    with ngraph_mxnet.audit(tmp_path) as audit:
        executable = ngraph_mxnet.compile(net(), weights={"w": W})
        call(executable)
        children = [multiprocessing.get_context("fork").Process(target=call, args=(executable, scale))
                    for scale in (2, 3)]
        for child in children:
            child.start()
        for child in children:
            child.join(60)
            assert child.exitcode == 0
        call(executable)
        assert audit is not None
    runs = [open_run(f"{tmp_path / NAME}@{number}") for number in (1, 2, 3)]
    (parent,) = [run for run in runs if run.columns["process"] == os.getpid()]
    assert len(parent.calls) == 2
    children_runs = [run for run in runs if run is not parent]
    assert {run.columns["parent"] for run in children_runs} == {os.getpid()}
    for run in children_runs:
        (only,) = run.calls
        assert only.checkpoints[0].tensors[0].tensor.name == "w"  # each run is whole
    maxima = sorted(by_name(run)["x"].statistics.max for run in children_runs)
    assert maxima == pytest.approx([2 * X.max(), 3 * X.max()])


def test_rows_are_only_added(tmp_path: Path) -> None:
    with ngraph_mxnet.audit(tmp_path):
        call(ngraph_mxnet.compile(net()))
    connection = sqlite3.connect(tmp_path / NAME)
    for change in ("DELETE FROM calls", "UPDATE statistics SET mean = 0"):
        with pytest.raises(sqlite3.IntegrityError, match="only added"):
            connection.execute(change)
    connection.close()


def test_after_its_end_nothing_is_recorded(tmp_path: Path) -> None:
    with ngraph_mxnet.audit(tmp_path, guard="nan"):
        executable = ngraph_mxnet.compile(net(), weights={"w": W})
        call(executable)
    call(executable, float("nan"))
    call(ngraph_mxnet.compile(net()))
    assert len(open_run(tmp_path).calls) == 1


def test_a_file_that_can_not_be_written_to_ends_the_audit_alone(tmp_path: Path,
                                                                 caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / NAME).write_bytes(b"something else" * 100)
    with ngraph_mxnet.audit(tmp_path):
        call(ngraph_mxnet.compile(net()))
    assert "the audit ends" in caplog.text and str(tmp_path / NAME) in caplog.text
    assert (tmp_path / NAME).read_bytes() == b"something else" * 100


# ---- bounds -----------------------------------------------------------------------------------------------


def logs(name: str = "logs") -> Graph:
    """NaN begins at one of several nodes."""
    b = Builder(name=name)
    x = b.parameter("x", (3,))
    b.origin = "toy:double"
    x = b.add(x, x)
    b.origin = "toy:log"
    x = b.log(x)
    b.origin = "toy:tanh"
    return b.results(b.tanh(x))


@pytest.mark.parametrize("backend", ["CPU", "INTERPRETER"])
@pytest.mark.parametrize("tensors", ["borders", "all"])
def test_a_guard_names_the_node(backend: str, tensors: str, tmp_path: Path) -> None:
    with ngraph_mxnet.audit(guard="nan", tensors=tensors):
        executable = ngraph_mxnet.compile(logs(), backend)
        executable(np.ones(3, "f4"))
        with pytest.raises(AuditError, match=r"graph logs: .*toy:log.* has 1 NaN and 0 infinite numbers"):
            executable(np.array([1, -1, 2], "f4"))
        executable(np.ones(3, "f4"))


def test_a_guard_says_what_was_given() -> None:
    with ngraph_mxnet.audit(guard="nan"):
        executable = ngraph_mxnet.compile(net(), weights={"w": W})
        with pytest.raises(AuditError, match=r"toy:fc Dense.*NaN or infinite numbers were given in x"):
            call(executable, float("inf"))


@pytest.mark.parametrize(("guard", "value", "is_outside"), [
    ("-1:1", 0.9, False), ("-1:1", 1.5, True), ("-1:1", -1.5, True), ("-1:1", np.nan, True), ("-1:1", np.inf, True),
    ("-inf:inf", np.inf, False), ("-inf:inf", np.nan, True), ("nan", np.inf, True), ("nan", 3e38, False),
    ("-inf:1", -3e38, False),
])
def test_bounds(guard: str, value: float, is_outside: bool) -> None:
    b = Builder(name="net")
    with ngraph_mxnet.audit(guard=guard):
        executable = ngraph_mxnet.compile(b.results(b.negative(b.negative(b.parameter("x", (5,))))))
        x = np.array([0, 0, 0, value, 0], "f4")
        if is_outside:
            with pytest.raises(AuditError, match=f"the guard is {guard}"):
                executable(x)
        else:
            np.testing.assert_array_equal(executable(x)[0], x)


def test_what_stopped_is_recorded(tmp_path: Path) -> None:
    with ngraph_mxnet.audit(tmp_path, guard="nan"):
        executable = ngraph_mxnet.compile(logs())
        with pytest.raises(AuditError):
            executable(np.array([1, -1, 2], "f4"))
    assert by_name(open_run(tmp_path))["result 0"].statistics.nan == 1


@pytest.mark.parametrize(("arguments", "message"), [
    ({}, "needs a folder to record in, or a guard"), ({"guard": "1:0"}, "guard: found '1:0', expected nan or LOW:HIGH"),
    ({"guard": "nan:1"}, "guard: found"), ({"guard": "1"}, "guard: found"),
    ({"guard": "nan", "calls": "every:0"}, "calls: found 'every:0', expected all, first:N or every:N"),
    ({"guard": "nan", "calls": "some"}, "calls: found"), ({"guard": "nan", "tensors": "few"}, "tensors: found 'few'"),
])
def test_mistakes(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ngraph_mxnet.audit(**arguments)


def test_one_audit_at_a_time(tmp_path: Path) -> None:
    with (ngraph_mxnet.audit(tmp_path), pytest.raises(ConfigError, match="another audit is in force")):
        ngraph_mxnet.audit(tmp_path)
