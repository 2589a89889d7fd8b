"""`scripts/bench_int8.py` without the peers that the `bench` extra installs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest


def test_what_others_made_of_a_model_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import bench_int8

    made: list[str] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        made.append(command[3])
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(bench_int8.driver, "export", lambda model, batch, folder: str(folder / model))
    monkeypatch.setattr(bench_int8.subprocess, "run", run)
    kinds = tuple(bench_int8.MADE_BY)
    assert bench_int8.export("net", 2, tmp_path, kinds, "python3") == str(tmp_path / "net")
    assert made == ["openvino", "onnxruntime", "ngraph"]
    for ending in ("-int8.xml", "-int8.onnx", "-recipe.json"):
        (tmp_path / f"net-b2{ending}").write_text("")
    made.clear()
    bench_int8.export("net", 2, tmp_path, kinds, "python3")
    assert made == ["ngraph"]
    bench_int8.export("net", 1, tmp_path, kinds, "python3")
    assert made == ["ngraph", "openvino", "onnxruntime", "ngraph"]
