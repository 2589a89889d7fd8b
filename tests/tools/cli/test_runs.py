"""`python -m ngraph_mxnet runs`, and what `bench` and `quantize` record."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

from ngraph_mxnet.tools.cli.commands import main
from ngraph_mxnet.tools.cli.runs import runs
from ngraph_mxnet.tools.experiments.store import Run, Store

FACTS = {"command": ["-m", "ngraph_mxnet", "bench", "a.onnx"], "folder": "/nowhere", "variables": {}, "threads": 2,
         "affinity": [0], "packages": {"numpy": "1"}, "source": {"commit": "0123456789", "dirty": True}}


def blocks(level: float) -> list[list[float]]:
    return [[level * (1 + 0.001 * process), level] for process in range(5)]


BASE = Run("bench", "a.onnx", "a" * 32, session="one", settings={"rounds": 2}, samples={"latency_ms": blocks(1.0)},
           metrics={"first_result_ms": [(0, 5.0), (1, 6.0)]}, facts=FACTS)
SLOW = replace(BASE, id="b" * 32, session="two", samples={"latency_ms": blocks(1.2)},
               facts={**FACTS, "packages": {"numpy": "2"}})
TRAINING = Run("train", "digits", "c" * 32, session="three", samples={"epoch_ms": [[7.0]]}, facts=FACTS)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """With three runs, in NGRAPH_RUNS; the folder is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NGRAPH_RUNS", str(tmp_path / "runs.sqlite"))
    store = Store(tmp_path / "runs.sqlite")
    for run in (BASE, SLOW, TRAINING):
        store.add(run)
    return store


@pytest.fixture
def model(tmp_path: Path) -> str:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    weights = numpy_helper.from_array(np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "net.onnx")
    return "net.onnx"


def invoked(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), prog_name="python -m ngraph_mxnet")


def succeeds(*arguments: str) -> Any:
    result = invoked(*arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) if "--json" in arguments else result.stdout


def test_list() -> None:
    rows = succeeds("runs", "list", "--json")
    assert [row["run"][0] for row in rows] == ["a", "b", "c"]
    assert rows[0] | {"started": ""} == {
        "run": "a" * 32, "started": "", "kind": "bench", "name": "a.onnx", "status": "finished", "threads": 2,
        "blocks": 5, "samples": 10, "median_ms": pytest.approx(1.0), "commit": "01234567+"}
    text = succeeds("runs", "list", "--kind", "bench", "--limit", "1")
    assert "bbbbbbbb" in text and "5 x 2" in text and "aaaaaaaa" not in text
    assert succeeds("runs", "list", "--name", "igit", "--json")[0]["kind"] == "train"


def test_show() -> None:
    text = succeeds("runs", "show", "aaaa")
    for part in ("python -m ngraph_mxnet bench a.onnx", "setting rounds", "6, the last of 2", "01234567+",
                 "of 10 in 5 blocks, a process each"):
        assert part in text
    found = succeeds("runs", "show", "last", "--json")
    assert found[0]["samples"] == {"epoch_ms": [[7.0]]}


def test_compare_and_the_gate() -> None:
    found = succeeds("runs", "compare", "aaaa", "bbbb", "--json")
    assert found["verdict"] == "slower" and not found["paired"] and found["ratio"] == pytest.approx(1.2)
    assert found["low"] < 1.2 < found["high"] and found["differences"] == {"packages.numpy": ["1", "2"]}
    assert succeeds("runs", "compare", "bbbb", "aaaa", "--json", "--fail-if-slower", "1")["verdict"] == "faster"
    assert "packages.numpy" in succeeds("runs", "compare", "aaaa", "bbbb", "--fail-if-slower", "1.25")
    failed = invoked("runs", "compare", "aaaa", "bbbb", "--fail-if-slower", "1.05")
    assert failed.exit_code == 1 and "1.05 was allowed" in failed.stderr and "slower" in failed.stdout
    assert "can't tell" in succeeds("runs", "compare", "aaaa", "aaaa", "--fail-if-slower", "1")


def test_export_as_csv_and_json(tmp_path: Path) -> None:
    succeeds("runs", "export", "--csv", "out.csv")
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    samples = [float(row["value"]) for row in rows if row["run"] == "b" * 32 and row["what"] == "sample"]
    assert samples == [sample for block in SLOW.samples["latency_ms"] for sample in block]
    assert len(rows) == 10 + 10 + 2 + 2 + 1
    assert [one["id"] for one in succeeds("runs", "export", "cccc", "--json")] == ["c" * 32]


def test_export_to_mlflow(tmp_path: Path, store: Store) -> None:
    """As its file store reads it; docs/experiments.md says with which version that was tried."""
    store.add(replace(BASE, id="d" * 32, status="failed", settings={"a/b:c": "x" * 9000, "..": 1}))
    assert "4 runs added, 0 were there" in succeeds("runs", "export", "--mlflow", "mlruns")
    assert "0 runs added, 4 were there" in succeeds("runs", "export", "--mlflow", "mlruns")
    experiments = {json.loads((folder / "meta.yaml").read_text())["name"]: folder
                   for folder in (tmp_path / "mlruns").iterdir()}
    assert set(experiments) == {"ngraph_mxnet bench", "ngraph_mxnet train"}
    run, failed = (experiments["ngraph_mxnet bench"] / (digit * 32) for digit in "ad")
    meta = json.loads((run / "meta.yaml").read_text())
    assert (meta["run_id"], meta["status"], meta["lifecycle_stage"]) == ("a" * 32, 3, "active")
    assert meta["experiment_id"] == run.parent.name and json.loads((failed / "meta.yaml").read_text())["status"] == 4
    lines = [line.split() for line in (run / "metrics" / "latency_ms").read_text().splitlines()]
    assert [(float(value), int(step)) for _, value, step in lines] == list(
        zip((s for block in BASE.samples["latency_ms"] for s in block), range(10), strict=True))
    assert (run / "params" / "rounds").read_text() == "2" and (run / "tags" / "mlflow.runName").read_text() == "a.onnx"
    assert {path.name: len(path.read_text()) for path in (failed / "params").iterdir()} == {"a_b_c": 6000, "_": 1}


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    succeeds("runs", "plot", "aaaa", "bbbb", "-o", "runs.svg")
    assert "latency_ms" in (tmp_path / "runs.svg").read_text() or (tmp_path / "runs.svg").stat().st_size > 10_000
    assert invoked("runs", "plot", "aaaa", "-o", "runs.nonsense").exit_code == 1


def test_outliers_do_not_flatten_a_plot(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    samples = [*(1.0 + number / 1000 for number in range(98)), 500.0, 700.0]
    store.add([Run("bench", "spiky", id="e" * 32, samples={"latency_ms": [samples]})])
    succeeds("runs", "plot", "eeee", "-o", "runs.svg")
    assert "2 of 100 samples are above 1.194, the largest is 700" in (tmp_path / "runs.svg").read_text()


def test_plot_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = invoked("runs", "plot", "aaaa", "-o", "runs.svg")
    assert result.exit_code == 1 and "pip install matplotlib" in result.stderr


@pytest.mark.parametrize(("line", "status", "message"), [
    ("runs show nonsense", 1, "no run is called 'nonsense'"),
    ("runs show", 2, "Missing argument 'RUN'"),
    ("runs show aaaa --store other.sqlite", 1, "there is no store of runs at other.sqlite"),
    ("runs list --store net.onnx", 1, "net.onnx is damaged, or no store of runs"),
    ("runs list --store .", 2, "is a directory"),
    ("runs list --limit 0", 2, "0 is not in the range"),
    ("runs compare aaaa", 2, "Missing argument 'NEW'"),
    ("runs compare aaaa cccc", 1, "no samples of latency_ms, expected one of: epoch_ms"),
    ("runs compare aaaa bbbb --confidence 1", 2, "1.0 is not in the range"),
    ("runs compare aaaa bbbb --fail-if-slower 0.9", 2, "0.9 is not in the range"),
    ("runs compare aaaa cccc --rerun", 1, "is of train, expected one of bench"),
    ("runs compare aaaa bbbb --rerun", 1, "ran in /nowhere, which is not there"),
    ("runs plot aaaa", 2, "Missing option '-o'"),
    ("runs plot aaaa --of nothing -o x.svg", 1, "nothing"),
    ("runs export", 2, "say one of --mlflow FOLDER, --csv FILE and --json"),
    ("runs export --json --csv x.csv", 2, "say one of"),
    ("runs export --csv none/x.csv", 1, "none/x.csv"),
    ("runs export --mlflow net.onnx/below", 1, "net.onnx"),
    ("runs melt", 2, "No such command 'melt'"),
    ("bench net.onnx --against nonsense", 1, "no run is called 'nonsense'"),
    ("bench net.onnx --against cccc", 1, "is of train, expected one of bench"),
    ("bench net.onnx --against aaaa --no-record", 2, "--against records both runs"),
    ("bench net.onnx --processes 0", 2, "0 is not in the range"),
    ("bench net.onnx --shape y=1,2 --processes 2", 1, "no input is called y"),
])
def test_mistakes(line: str, status: int, message: str, model: str, store: Store, tmp_path: Path) -> None:
    if "--of nothing" in line and importlib.util.find_spec("matplotlib") is None:
        message = "pip install matplotlib"
    before = sorted(os.listdir())
    result = invoked(*line.split())
    assert result.exit_code == status and message in result.stderr, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert len(store.runs()) == 3 and sorted(os.listdir()) == before


def test_bench_records_processes_and_measures_in_turns(model: str, store: Store,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = succeeds("bench", model, "--rounds", "4", "--processes", "2", "--json")
    run = store.find("last")
    assert found["run"] == run.id and found["processes"] == 2 and found["median_ms"] == run.median()
    assert {name: [len(block) for block in found] for name, found in run.samples.items()} == {
        "latency_ms": [4, 4], "cpu_ms": [1, 1]}
    assert run.facts["command"] == ["-m", "ngraph_mxnet", "bench", model, "--rounds", "4", "--processes", "2", "--json"]
    assert run.facts["variables"]["OMP_NUM_THREADS"] == "1"
    assert run.settings == {"model": model, "rounds": 4, "callers": 1, "pause": 0.0, "busy": 0}
    found = succeeds("bench", model, "--rounds", "6", "--threads", "2", "--processes", "2", "--against", "last",
                     "--json")
    base, new = store.runs()[-2:]
    assert found["comparison"]["base"] == base.id and found["run"] == new.id and found["comparison"]["paired"]
    assert base.session == new.session != run.session
    assert [len(one.samples["latency_ms"][0]) for one in (base, new)] == [4, 6]
    assert found["comparison"]["differences"]["threads"] == [1, 2]
    again = succeeds("runs", "compare", "last~1", "last", "--rerun", "--processes", "2", "--json")
    assert again["paired"] and len(store.runs()) == 8 and "expected 3 or more" in again["reason"]


def test_nothing_is_recorded_unasked(model: str, store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    succeeds("bench", model, "--rounds", "1", "--no-record")
    assert len(store.runs()) == 3
    monkeypatch.delenv("NGRAPH_RUNS")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    assert "recorded" not in succeeds("bench", model, "--rounds", "1")
    assert succeeds("bench", model, "--rounds", "1", "--processes", "2", "--json")["run"] is None
    assert not (tmp_path / "home").exists() and len(store.runs()) == 3
    succeeds("bench", model, "--rounds", "1", "--processes", "1", "--record")
    assert [row["name"] for row in succeeds("runs", "list", "--json")] == [model]
    assert (tmp_path / "home" / "ngraph_mxnet" / "runs.sqlite").exists()


def test_quantize_records(model: str, store: Store) -> None:
    np.savez("data.npz", x=np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32))
    succeeds("quantize", model, "--calibration", "data.npz", "--shape", "x=2,3", "--method", "minmax",
             "--even-if-slower")
    run = store.find("last")
    assert run.kind == "quantize" and run.settings["method"] == "minmax" and run.settings["samples"] == "data.npz"
    assert run.metrics["layers_in_8_bits"] == [(0, 1.0)] and run.metrics["float_ms"][0][1] > 0


def test_reproduce(model: str, store: Store) -> None:
    succeeds("bench", model, "--rounds", "3", "--processes", "3")
    before = store.find("last")
    script = Path(__file__).resolve().parents[3] / "scripts" / "reproduce.py"

    def reproduced(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=False,
                              timeout=120)

    done = reproduced("last", "--json")
    assert done.returncode == 0, done.stderr
    found, run = json.loads(done.stdout), store.find("last")
    assert (found["base"], found["new"]) == (before.id, run.id) and found["comparison"]["low"] is not None
    assert [len(block) for block in run.samples["latency_ms"]] == [3, 3, 3]
    assert run.facts["command"] == before.facts["command"] and run.settings == before.settings
    failed = reproduced("aaaa")
    assert failed.returncode == 1 and "which is not there" in failed.stderr
    assert "warning: packages.numpy was 1, is" in failed.stderr
    assert "warning: files were changed since the commit" in failed.stderr


@pytest.mark.parametrize("name", sorted(runs.commands))
def test_the_help(name: str, golden: Callable[[str, str], None]) -> None:
    result = CliRunner().invoke(main, ["runs", name, "--help"], prog_name="ngraph-mxnet", terminal_width=100)
    assert result.exit_code == 0
    golden(f"help/runs/{name}.txt", result.output)


def test_every_golden_is_of_a_command() -> None:
    folder = Path(__file__).parents[2] / "golden" / "help" / "runs"
    assert {path.stem for path in folder.iterdir()} == set(runs.commands)
