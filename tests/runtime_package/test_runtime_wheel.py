"""The wheel: one for all Pythons, around a library that is built already."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_one_wheel_for_all_pythons(fake, fake_library, tmp_path):
    """Needs the package registry, for setuptools."""
    environment = {**os.environ, "NGRAPH_RUNTIME_PREBUILT": fake_library}
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path),
                    str(ROOT / "runtime")], env=environment, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    version = re.search(r'"(.+)"', (ROOT / "ngraph_mxnet" / "version.py").read_text().splitlines()[-1])
    assert version and wheel.name == f"ngraph_runtime-{version[1]}-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        archive.extractall(tmp_path / "site")
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
    modules = {f"ngraph_runtime/{path.name}" for path in (ROOT / "runtime" / "ngraph_runtime").glob("*.py")}
    assert names == {*modules, "ngraph_runtime/libngraph_runtime.so"}

    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    environment.pop("NGRAPH_RUNTIME_LIBRARY")
    code = "import ngraph_runtime, sys; print(ngraph_runtime.__version__, ngraph_runtime.load(sys.argv[1]).name)"
    done = subprocess.run([sys.executable, "-c", code, fake("twice")], env=environment, cwd=tmp_path,
                          stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == [version[1], "fake"]
