"""The fuzzer of values: trials are repeatable, what is wrong is found, made small, and kept so that it runs again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime of the extra bench is not installed")

from fuzzing.values import coverage, departures, findings, sizes, worker
from fuzzing.values.closeness import EXACT, Closeness, WrongError
from fuzzing.values.kinds import KINDS, check
from fuzzing.values.shrinking import Drawn, isolated
from fuzzing.values.trials import FAMILIES, Trial

import ngraph_mxnet
from ngraph_mxnet.bridges.onnx.rules.registry import all_rules
from ngraph_mxnet.targets.cpu.planning.algorithm import Layer, choose_tile

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


def broken(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    """ONNX models with a convolution do `act` with each result of ours."""
    kind = KINDS["onnx"]

    def ours(trial: Trial) -> list[list[Any]]:
        results = kind.ours(trial)
        return [[act(array) for array in each] for each in results] if "Conv" in trial.ops else results

    monkeypatch.setitem(KINDS, "onnx", type(kind)(ours, kind.reference, kind.judge, kind.judge_name))


def test_what_is_wrong_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken(monkeypatch, lambda array: array + np.asarray(1, array.dtype))
    monkeypatch.setattr(worker, "_SHRINKING", 8.0)
    session = worker.Session(tmp_path, 1, ["convolutions"])
    session.run(4, 60)
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
