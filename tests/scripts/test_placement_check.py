"""HYBRID's predictions against simulations, on small models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import placement_check
import pytest
from click.testing import CliRunner
from placement.models import MODELS, dlrm, mlp, transformer
from placement_check import DEVICES, main, row, summary_of

SMALL = {"mlp": lambda: mlp(4, 64, 2), "dlrm": lambda: dlrm(8, 2000, 3, 16),
         "transformer": lambda: transformer(1, 16, 32, 1)}


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is measured is measured once."""
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path))


def test_there_are_twenty_models_of_many_kinds():
    ops = set[str]()
    for make in MODELS.values():
        graph = make()
        ops |= {node.op.name for node in graph.nodes}
    assert len(MODELS) == 20
    assert {"convolution", "matmul", "attention", "gather", "rnn", "box_nms", "argsort", "resize"} <= ops


@pytest.mark.parametrize("name", SMALL)
def test_a_call_takes_what_is_predicted_and_no_longer_than_on_one_device(name: str):
    found = row(name, SMALL[name], DEVICES[0])
    assert abs(found["error"]) <= 0.25
    assert found["simulated_seconds"] <= 1.02 * min(found["cpu_seconds"], found["nnp_seconds"])
    assert found["of_better"] <= 1.02


@pytest.mark.parametrize(("changed", "holds"), [
    ({}, True), ({"error": -0.26}, False), ({"error": 0.11}, False), ({"of_better": 1.03}, False),
    ({"node_error": None}, True), ({"node_error": 3.0}, True),
])
def test_the_summary_tells_what_is_off(changed: dict[str, Any], holds: bool):
    assert summary_of([{"error": -0.05, "of_better": 0.9, "node_error": 0.5, **changed}])["holds"] == holds


def test_as_json(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(placement_check, "MODELS", SMALL)
    done = CliRunner().invoke(main, ["--json", "--model", "mlp", "--device", "nnp-i-1100"], catch_exceptions=False)
    found = json.loads(done.stdout)
    assert [one["model"] for one in found["rows"]] == ["mlp"] and done.exit_code == 0
    assert "mlp" in CliRunner().invoke(main, ["--model", "mlp", "--device", "nnp-i-1100"]).stdout
