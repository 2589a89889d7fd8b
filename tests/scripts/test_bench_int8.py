"""`scripts/bench_int8.py` without the peers that the `bench` extra installs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest


def test_what_others_made_of_a_model_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the makers, which are processes, is what Python runs at its start."""
    import bench_int8

    asked = tmp_path / "asked"
    (tmp_path / "sitecustomize.py").write_text(f"""
import os, sys
if "peers.quantize" in sys.orig_argv:
    with open({str(asked)!r}, "a") as file:
        print(sys.orig_argv[sys.orig_argv.index("peers.quantize") + 1], file=file)
    os._exit(0)
""")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    for batch in (1, 2):  # what MXNet exported
        (tmp_path / f"net-b{batch}.npy").write_text("")

    def made(batch: int) -> list[str]:
        asked.unlink(missing_ok=True)
        assert bench_int8.export("net", batch, tmp_path, tuple(bench_int8.MADE_BY), sys.executable) == str(
            tmp_path / "net")
        return asked.read_text().split()

    assert made(2) == ["openvino", "onnxruntime", "ngraph", "to-onnx"]
    for ending in ("-int8.xml", "-int8.onnx", "-recipe.json"):
        (tmp_path / f"net-b2{ending}").write_text("")
    assert made(2) == ["ngraph", "to-onnx"]
    assert made(1) == ["openvino", "onnxruntime", "ngraph", "to-onnx"]
