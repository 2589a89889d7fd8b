"""The wheel: one for all Pythons, around a library that is built already; and the source distribution."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PREBUILT = "NGRAPH_RUNTIME_PREBUILT"


def version() -> str:
    found = re.search(r'"(.+)"', (ROOT / "ngraph_mxnet" / "base" / "version.py").read_text().splitlines()[-1])
    assert found
    return found[1]


def wheel_names(source: Path, library: str, folder: Path) -> tuple[Path, set[str]]:
    """The wheel of a source folder or archive, and what it holds beside its metadata. Needs the package registry, for
    setuptools."""
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(source)],
                   env={**os.environ, PREBUILT: library}, check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
        return wheel, {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.mark.slow
def test_one_wheel_for_all_pythons(fake, fake_library, tmp_path):
    wheel, names = wheel_names(ROOT / "runtime", fake_library, tmp_path)
    assert wheel.name == f"ngraph_runtime-{version()}-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    modules = {str(path.relative_to(ROOT / "runtime")) for path in (ROOT / "runtime" / "ngraph_runtime").rglob("*.py")}
    assert names == {*modules, "ngraph_runtime/libngraph_runtime.so", "ngraph_runtime/py.typed"}

    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    environment.pop("NGRAPH_RUNTIME_LIBRARY")
    code = "import ngraph_runtime, sys; print(ngraph_runtime.__version__, ngraph_runtime.load(sys.argv[1]).name)"
    done = subprocess.run([sys.executable, "-c", code, fake("twice")], env=environment, cwd=tmp_path,
                          stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == [version(), "fake"]


@pytest.mark.slow
def test_the_source_distribution_has_all_that_the_build_needs(fake_library, tmp_path):
    """CMake finds all its files there, and the wheel is the checkout's."""
    command = [sys.executable, "-m", "venv", str(tmp_path / "venv")]
    subprocess.run(command, check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "setuptools>=77"], check=True)
    code = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
    done = subprocess.run([python, "-c", code, str(tmp_path)], cwd=ROOT / "runtime", stdout=subprocess.PIPE, text=True,
                          check=True)
    archive = tmp_path / done.stdout.split()[-1]
    assert archive.name == f"ngraph_runtime-{version()}.tar.gz"
    _, names = wheel_names(archive, fake_library, tmp_path / "dist")
    assert names == wheel_names(ROOT / "runtime", fake_library, tmp_path / "other")[1]

    if shutil.which("cmake") is None or importlib.util.find_spec("numba") is None:
        return  # what compiles the library is not here; on the Python that the package is tested with it is
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path)
    source = tmp_path / f"ngraph_runtime-{version()}"
    subprocess.run(["cmake", "-S", str(source), "-B", str(tmp_path / "build"), f"-DPython_EXECUTABLE={sys.executable}"],
                   check=True, stdout=subprocess.DEVNULL)
    assert (source / "csrc/artefact/artefact.h").exists()
