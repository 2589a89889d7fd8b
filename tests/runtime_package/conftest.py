"""The package beside a library that is made for the tests, and the real one where it is built.

Runs on every Python that the package does: `python -m pytest --confcutdir=tests/runtime_package tests/runtime_package`
needs nothing else of this checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "runtime"))
VARIABLE = "NGRAPH_RUNTIME_LIBRARY"
REAL = os.environ.get(VARIABLE)


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("fake") / "libngraph_runtime.so"
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    source = Path(__file__).with_name("fake_runtime.c")
    subprocess.run([compiler, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
                    f"-I{ROOT / 'runtime' / 'include'}", "-o", str(path), str(source)], check=True)
    return str(path)


@pytest.fixture
def fake(fake_library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes the file of one of the fake library's models, by its word and what else the file has."""
    monkeypatch.setenv(VARIABLE, fake_library)

    def make(word: str, further: str = "") -> str:
        path = tmp_path / f"{word}.ngraph"
        path.write_text(f"{word} {further}")
        return str(path)

    return make


@pytest.fixture(scope="session")
def built_library() -> str:
    if not REAL:
        pytest.skip(f"{VARIABLE} names no built library")
    return REAL


@pytest.fixture
def real_library(built_library: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The one that models run on."""
    monkeypatch.setenv(VARIABLE, built_library)
    return built_library


@pytest.fixture(scope="session")
def export_small() -> Callable[[Path, int], None]:
    """Writes the file of x: f32 [3,40] times a weight of this seed, with references."""
    ngraph_mxnet = pytest.importorskip("ngraph_mxnet", reason="the other Pythons have the runtime alone")

    def export(path: Path, seed: int) -> None:
        builder = ngraph_mxnet.Builder(name="small")
        weight = np.random.default_rng(seed).standard_normal((40, 5), np.float32)
        graph = builder.results(builder.matmul(builder.parameter("x", (3, 40)), builder.constant(weight)))
        ngraph_mxnet.export(graph, path, with_references=True)

    return export


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory, export_small: Callable[[Path, int], None]) -> Path:
    path = tmp_path_factory.mktemp("small") / "small.ngraph"
    export_small(path, 0)
    return path
