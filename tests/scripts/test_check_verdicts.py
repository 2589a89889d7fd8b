"""`scripts/check_verdicts.py` with few processes: what it counts, not whether it is right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ngraph_mxnet.tools.experiments.store import Store

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_verdicts.py"


@pytest.mark.slow
def test_what_it_counts(tmp_path: Path) -> None:
    store = tmp_path / "runs.sqlite"
    done = subprocess.run([sys.executable, SCRIPT, "--equal", "2", "--slower", "1", "--processes", "3", "--rounds", "5",
                           "--store", store], capture_output=True, text=True, check=False, timeout=300)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    pairs = [line for line in lines if line.get("series") == "latency_ms" and "pair" in line]
    assert [pair["pair"] for pair in pairs] == ["equal", "slower", "equal"], done.stderr
    counts = {(line["pairs"], line["recorded"]): line["verdicts"] for line in lines
              if line.get("series") == "latency_ms" and "pairs" in line}
    assert {key: sum(verdicts.values()) for key, verdicts in counts.items()} == {
        ("equal", "in turns"): 2, ("slower", "in turns"): 1, ("slower", "apart"): 1,
        ("equal", "apart"): 1}
    names = [run.name for run in Store(store).runs()]
    assert names == ["equal.onnx", "equal.onnx", "equal.onnx", "slower.onnx", "equal.onnx", "equal.onnx"]
    wanted = {"equal": "can't tell", "slower": "slower"}
    assert done.returncode == (0 if all(pair["verdict"] == wanted[pair["pair"]] for pair in pairs) else 1)
