"""Templates of ONNX models on disk: a new process takes them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import model, value

import ngraph_mxnet
from ngraph_mxnet.program.cache import open_store

rng = np.random.default_rng(0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "template"


def net(seed: int = 0) -> bytes:
    random = np.random.default_rng(seed)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["y"])]
    made: onnx.ModelProto = model(nodes, [value("x", ["n", 24, "h", "w_"])], [value("y", ["n", 32, "h", "w_"])],
                                  {"w": random.standard_normal((32, 24, 3, 3)).astype(np.float32)})
    return bytes(made.SerializeToString())


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal((shape[0], 24, *shape[1:])).astype(np.float32)


def called(content: bytes, *sizes: tuple[int, ...], **options: Any) -> None:
    """As by a new process: an executable knows nothing of others."""
    run = ngraph_mxnet.compile(content, "CPU", **options)
    for size in sizes:
        expected = ngraph_mxnet.compile(content, "INTERPRETER")(images(*size))
        np.testing.assert_allclose(run(images(*size))[0], expected[0], rtol=1e-3, atol=1e-3)


def entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


def test_a_second_executable_imports_nothing(folder: Path, imports: list[str]) -> None:
    content = net()
    called(content, (1, 8, 8), (2, 9, 8), (3, 20, 30))
    assert len(entries(folder)) >= 1
    before, kept = imports.count("imported model g"), len(entries(folder))
    run = ngraph_mxnet.compile(content, "CPU")
    for size in ((1, 8, 8), (2, 9, 8), (4, 31, 17)):
        run(images(*size))
    assert imports.count("imported model g") == before and len(entries(folder)) == kept
    # Weights are the model's; they are not kept again.
    assert sum(path.stat().st_size for path in entries(folder)) < 3 * 32 * 24 * 9 * 4


def test_what_a_template_depends_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called(net(), (1, 8, 8), (2, 9, 8))
    count = len(entries(folder))
    called(net(1), (1, 8, 8), (2, 9, 8))
    assert len(entries(folder)) > count
    count = len(entries(folder))
    called(net(), (1, 8, 8), (2, 9, 8), threads=1)
    assert len(entries(folder)) > count
    count = len(entries(folder))
    monkeypatch.setenv("NGRAPH_CPU_WINOGRAD", "0")
    called(net(), (1, 8, 8), (2, 9, 8))
    assert len(entries(folder)) > count


def test_entries_that_are_none(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = net()
    called(content, (1, 8, 8), (2, 9, 8))
    for path in entries(folder):
        path.write_bytes(path.read_bytes()[:-1])
    called(content, (1, 8, 8), (2, 9, 8))  # the store accepts none that was changed
    store = open_store()
    assert store is not None
    for path in entries(folder):
        path.unlink()
    real = store.get
    with caplog.at_level(logging.WARNING), pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(store), "get",
                      lambda self, kind, key: b"[]\nnone" if kind == "template" else real(kind, key))
        called(content, (1, 8, 8), (2, 9, 8))
    assert "does not load, it is compiled anew" in caplog.text
