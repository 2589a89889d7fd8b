"""The fuzzer of values: trials are repeatable, what is wrong is found, made small, and kept so that it runs again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime of the extra bench is not installed")

from fuzzing import frame
from fuzzing.values import coverage, departures, findings, interpretation, sizes, worker
from fuzzing.values.closeness import EXACT, Closeness, WrongError
from fuzzing.values.drawing import chance
from fuzzing.values.families.convolutions import MOST_WORK, Window, draw_window
from fuzzing.values.families.symbols import is_bindable
from fuzzing.values.kinds import KINDS, check
from fuzzing.values.setups import EMULATION, Setup
from fuzzing.values.shrinking import Drawn, isolated
from fuzzing.values.trials import FAMILIES, Trial

import ngraph_mxnet
from ngraph_mxnet import _core
from ngraph_mxnet.frontends.onnx.rules.registry import all_rules
from ngraph_mxnet.ir import Builder, print_graph
from ngraph_mxnet.ir.opdef import REGISTRY
from ngraph_mxnet.ir.types import f32
from ngraph_mxnet.targets.cpu.planning.algorithm import Layer, choose_tile

# isort: split
import mxnet as mx
from tile_machine import emulated_tiles, runs_natively

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "fuzz_values.py"
worker.load_families()


def drawn(family: str, seed: str) -> Trial | None:
    found: list[Trial] = []
    Drawn(FAMILIES[family], found.append).try_one(seed)
    return found[0] if found else None


def first(family: str) -> Trial:
    return next(trial for number in range(20) if (trial := drawn(family, str(number))) is not None)


@pytest.mark.parametrize("family", FAMILIES)
def test_trials_are_repeatable_and_kept(family: str, tmp_path: Path) -> None:
    trial, again = first(family), first(family)
    findings.save(trial, tmp_path / "found")
    loaded = findings.load(tmp_path / "found")
    for other in (again, loaded):
        for name in ("kind", "model", "ops", "closeness"):
            assert getattr(other, name) == getattr(trial, name)
        assert other.setup.data() == trial.setup.data()
        for feeds, expected in zip(other.calls, trial.calls, strict=True):
            assert feeds.keys() == expected.keys()
            assert all(np.array_equal(feeds[name], expected[name], equal_nan=feeds[name].dtype.kind == "f")
                       for name in feeds)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_trial_of_each_family(family: str) -> None:
    assert check(first(family)) in ("right", "unjudged", "refused")


def test_thresholds_are_the_planners() -> None:
    found = sizes.image_sizes(64, 64, "avx2", 1, 40)
    assert found
    for size in found:
        tiles = [choose_tile(Layer(1, 64, 64, each, each), "avx2", 1) for each in (size - 1, size)]
        assert tiles[0] != tiles[1]


def test_what_is_near() -> None:
    EXACT.check("x", [np.array([np.nan, 1.0, np.inf])], [np.array([np.nan, 1.0, np.inf])])
    Closeness(steps=1).check("x", [np.array([3], np.uint8)], [np.array([4], np.uint8)])
    for found, expected in (([1.0], [1.001]), ([np.nan], [1.0]), ([np.inf], [1e30]), ([1.0], [np.float32(1.0)])):
        with pytest.raises(WrongError):
            Closeness().check("x", [np.array(found)], [np.asarray(expected)])
    with pytest.raises(WrongError):
        Closeness(steps=1).check("x", [np.array([3], np.uint8)], [np.array([5], np.uint8)])


def test_what_rounding_moves() -> None:
    """Twice as far as an element moves it may be off; where it is sometimes no number, it may be any."""
    def items(*numbers: float, dtype: Any = np.float32) -> list[np.ndarray]:
        return [np.array(numbers, dtype)]

    EXACT.check("x", items(0.5, 1.0), items(0.0, 1.0), [items(0.0, 1.0), items(0.25, 1.0)])
    EXACT.check("x", items(0.5), items(np.inf), [items(np.inf), items(1.0)])
    EXACT.check("x", items(5, dtype=np.uint8), items(3, dtype=np.uint8),
                [items(3, dtype=np.uint8), items(4, dtype=np.uint8)])
    for found, runs in ((0.75, (0.0, 0.25)), (0.25, (0.0, 0.0)), (0.25, (np.nan, np.nan)), (0.25, ())):
        with pytest.raises(WrongError):
            EXACT.check("x", items(found), items(0.0), [items(each) for each in runs])


def between_steps(data: float, rows: int = 1, inner: int = 3) -> Trial:
    """A product that is quantised and used again: one step of 0.5 moves all results by 0.5."""
    b = Builder()
    x, w = b.parameter("x", (rows, inner), f32), b.parameter("w", (inner, rows), f32)
    scale, point = b.constant(np.float32(0.5)), b.constant(np.uint8(128))
    stepped = b.node("quantize", [b.node("matmul", [x, w], {}).output, scale, point], {}).output
    graph = b.results(b.node("dequantize", [stepped, scale, point], {}).output)
    feeds = {"x": np.zeros((rows, inner), np.float32), "w": np.ones((inner, rows), np.float32)}
    feeds["x"][:, :3] = data, 1.0, -1.0
    return Trial("graph", print_graph(graph).encode(), [feeds], Setup(), Closeness(), ("quantize",))


def test_a_sum_between_two_steps_may_go_to_either(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = KINDS["graph"]

    def ours(trial: Trial) -> list[list[Any]]:
        return [[array + np.float32(0.5) for array in each] for each in kind.ours(trial)]

    monkeypatch.setitem(KINDS, "graph", replace(kind, ours=ours))
    assert check(between_steps(0.75)) == "moves with rounding"
    for trial in (between_steps(0.6), replace(between_steps(0.75), closeness=EXACT)):
        with pytest.raises(WrongError, match="interpreter"):
            check(trial)


def test_nan_as_an_integer_is_unspecified(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of 8-bit values that are all 0, which MXNet divides by their range."""
    b = Builder()
    graph = b.results(b.node("convert", [b.parameter("x", (2,), f32)], {"element": "i32"}).output)
    kind = KINDS["graph"]
    monkeypatch.setitem(KINDS, "graph", replace(kind, ours=lambda trial: [[np.array([7, 1], np.int32)]]))
    for number in (np.nan, np.inf, 2.0 ** 31, 1.0):
        trial = Trial("graph", print_graph(graph).encode(), [{"x": np.array([number, 1.5], np.float32)}], Setup(),
                      EXACT, ("convert",))
        if number == 1.0:
            with pytest.raises(WrongError, match="interpreter"):
                check(trial)
        else:
            assert check(trial) == "unspecified"


def test_whole_numbers_are_exact() -> None:
    """What a place in an image is computed of does not move to the place before."""
    b = Builder()
    x = b.parameter("x", (3,), f32)
    places = b.node("convert", [b.node("add", [b.node("floor", [x], {}).output, x], {}).output], {"element": "i32"})
    graph = b.results(places.output)
    moved = interpretation.nudging(lambda trial: [[ngraph_mxnet.compile(graph, "INTERPRETER")(
        np.array([2.0, 2.25, 2.0 - 2.0 ** -22], np.float32))]])
    found = np.array([moved(between_steps(0.6), number)[0] for number in range(8)]).reshape(8, 3)
    assert (np.ptp(found, axis=0) == [0, 0, 1]).all() and (found[:, 0] == 4).all()


def test_a_gradient_beside_a_kink_moves_where_bf16_is_read() -> None:
    symbol = mx.sym.identity(mx.sym.Activation(mx.sym.FullyConnected(
        mx.sym.var("data"), num_hidden=1, no_bias=True, name="dense"), act_type="relu"))
    data = np.array([[1.0, 1.0]], np.float32)
    feeds = {"data": data, "dense_weight": np.array([[1.0, -0.999]], np.float32), "head 0": data[:, :1],
             "before dense_weight": 0 * data, "before data": 0 * data}
    notes = {"requests": {"data": "null", "dense_weight": "write"}, "way": "executor"}
    for setup, apart in ((Setup(), False), (Setup({"precision": "bf16"}), True)):
        trial = Trial("training", symbol.tojson().encode(), [feeds], setup, Closeness(), (), notes)
        moved = KINDS["training"].moved
        assert moved is not None
        gradients = [moved(trial, number)[0][1] for number in range(8)]
        assert (np.ptp(gradients, axis=0) > 0.5).all() == apart


def test_sums_that_cancel_leave_a_rounding() -> None:
    """As a layer norm's gradient of one value, of which the CPU keeps more digits of one term than of the other."""
    trials = [trial for number in range(80) if (trial := drawn("one op", str(number))) is not None]
    floors = {trial.ops[0]: trial.closeness.floor for trial in trials}
    assert {REGISTRY[op].elementwise for op in floors} == {True, False}
    assert all((floor < 1e-30) == REGISTRY[op].elementwise for op, floor in floors.items())


def test_sizes_of_0_are_not_bound() -> None:
    symbol = mx.sym.identity(mx.sym.Deconvolution(mx.sym.var("data"), kernel=(2, 2), pad=(1, 1), num_filter=2))
    assert is_bindable(symbol, (1, 1, 5, 5)) and not is_bindable(symbol, (1, 1, 5, 1))


def test_convolutions_are_of_bounded_work() -> None:
    """Also those whose windows are wide and dilated, which take images at least as wide."""
    windows: list[Window] = []
    window = SimpleNamespace(name="window", draw=lambda draw: draw_window(draw, transposed=chance(draw)))
    for number in range(300):
        Drawn(window, windows.append).try_one(str(number))  # type: ignore[arg-type]
    work = [np.prod(each.data[1:]) * np.prod(each.weights) / each.data[1] for each in windows]
    assert len(work) > 200 and max(work) < 4 * MOST_WORK


def test_the_interpreters_work_is_bounded() -> None:
    assert check(between_steps(0.6, 100)) == "right"
    assert check(between_steps(0.6, 200, int(interpretation.MOST_OPERATIONS) // 200**2)) == "too large"


def broken(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    """ONNX models with a convolution do `act` with each result of ours."""
    kind = KINDS["onnx"]

    def ours(trial: Trial) -> list[list[Any]]:
        results = kind.ours(trial)
        return [[act(array) for array in each] for each in results] if "Conv" in trial.ops else results

    monkeypatch.setitem(KINDS, "onnx", type(kind)(ours, kind.reference, kind.judge, kind.judge_name))


def test_what_is_wrong_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken(monkeypatch, lambda array: array + np.asarray(1, array.dtype))
    session = worker.Session(tmp_path, 1, ["convolutions"])
    for number in range(4):
        session.one(number, time.monotonic() + 8)
    session.keep()
    (found,) = tmp_path.glob("wrong-*")
    trial = findings.load(found)
    assert trial.ops == ("Conv",) and trial.size[2] < 300
    with pytest.raises(WrongError, match="interpreter"):
        check(trial)
    assert "--replay" in (found / "why.txt").read_text()
    assert sum(json.loads((tmp_path / "tally.json").read_text()).values()) == 4


def test_what_ends_a_process_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, lambda array: os.kill(os.getpid(), 11))
    drawn = Drawn(FAMILIES["convolutions"], isolated(lambda trial: KINDS["onnx"].ours(trial)))
    with pytest.raises(RuntimeError, match="signal 11"):
        drawn.try_one("3")


def test_the_judge_alone_runs_what_ended_a_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What it raises is no answer: only whether it ends the process, too."""
    kind, asked = KINDS["onnx"], []

    def judge(trial: Trial) -> list[list[Any]]:
        asked.append(trial.ops)
        raise ValueError("no answer")

    monkeypatch.setitem(KINDS, "onnx", type(kind)(kind.ours, kind.reference, judge, kind.judge_name))
    path = tmp_path / "killed-SIGSEGV-1"
    path.write_text(json.dumps({"family": "convolutions", "seed": "3", "judging": False}))
    worker.run_judge(path)
    assert len(asked) == 1


def _without_end(trial: Trial) -> None:
    while True:
        pass


def test_what_takes_too_long_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolated(_without_end, seconds=1)(between_steps(0.6))
    seen: list[Trial] = []

    def attempt(trial: Trial) -> None:
        seen.append(trial)
        if len(seen) > 1:
            _without_end(trial)
        raise WrongError("x", "wrong")

    drawn = Drawn(FAMILIES["convolutions"], attempt)
    with pytest.raises(WrongError):
        drawn.try_one("3")
    assert drawn.shrink(0.5)[0] is seen[0] and len(seen) == 2
    path = tmp_path / "killed-SIGPROF-7"
    path.write_text(json.dumps({"family": "convolutions", "seed": "3"}))
    monkeypatch.setitem(KINDS, "onnx", replace(KINDS["onnx"], ours=_without_end))
    worker.shrink_crash(path, 60.0)
    (found,) = tmp_path.glob("wrong-*")
    assert "too slow" in (found / "why.txt").read_text() and findings.load(found).model == seen[0].model


def test_a_worker_that_stands_still_is_ended(tmp_path: Path) -> None:
    (tmp_path / "current").write_text("{}")
    tally = frame.drive("timeit", tmp_path, 1, lambda *told: ["-n1", "-r1", "import time; time.sleep(60)"], {},
                        seconds=0.5, patience=1.0)
    assert [path.name for path in tally.killed] == ["killed-SIGALRM-0"] and tally.seconds < 30


def test_whose_process_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that dies while a judge runs is no finding."""
    kind, seen = KINDS["onnx"], []

    def telling(run: Any) -> Any:
        def told(trial: Trial) -> Any:
            seen.append(json.loads((tmp_path / "current").read_text())["judging"])
            return run(trial)

        return told

    monkeypatch.setitem(KINDS, "onnx", type(kind)(telling(kind.ours), kind.reference, telling(kind.judge), "x"))
    worker.Session(tmp_path, 1, ["quantised convolutions"]).run(1, 60)
    assert seen in ([False, True], [False, False, True])  # twice where it comes from the cache, too
    assert not (tmp_path / "current").exists()


def test_departures_say_how_we_know() -> None:
    judges = {kind.judge_name for kind in KINDS.values() if kind.judge}
    for row in departures.DEPARTURES:
        assert row.against in judges and row.ops and len(row.proof.split()) > 4
    assert len({row.name for row in departures.DEPARTURES}) == len(departures.DEPARTURES)


def test_coverage_knows_all_that_there_is(tmp_path: Path) -> None:
    there = coverage.there_are()
    assert set(there["ONNX rules"]) >= {op for domain, op in all_rules() if not domain}
    assert "contraction" in " ".join(there["kernels"]) and "convolution" in there["lowerings"]
    report = coverage.report(tmp_path / "none")
    assert f"kernels: 0 of {len(there['kernels'])} ran; never " in report


def test_the_script(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(ngraph_mxnet.__file__).parents[1])}
    done = subprocess.run([sys.executable, str(SCRIPT), str(tmp_path), "--runs", "3", "--family", "convolutions",
                           "--coverage"], capture_output=True, text=True, check=False, env=environment, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 trials of seed 1" in done.stdout and "0 findings" in done.stdout and "lowerings: " in done.stdout


@pytest.mark.skipif(not _core.cpu_features()["avx512bf16"], reason="the CPU has no AVX512_BF16")
def test_trials_on_emulated_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EMULATION, "amx")
    assert "amx" in {first(family).setup.emulates for family in ("one op", "random graphs")}
    b, random = Builder(), np.random.default_rng(0)
    graph = b.results(b.matmul(*(b.parameter(name, (40, 40)) for name in "xy")))
    feeds = {name: random.standard_normal((40, 40)).astype(np.float32) for name in "xy"}
    trial = Trial("graph", print_graph(graph).encode(), [feeds], Setup({"precision": "bf16"}, emulates="amx"),
                  Closeness(), ("matmul",))
    with emulated_tiles() as ran:
        assert check(trial) == "right"
        assert ran()["tdpbf16ps"] > 0 or runs_natively()
