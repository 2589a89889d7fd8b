"""`--help` of the scripts: at once, and nothing is built or installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
SHELL = ("latency.sh", "test.sh", "model_matrix.sh", "mxnet_tests.sh", "build_wheels.sh", "old_userland.sh")


@pytest.mark.parametrize("script", SHELL)
def test_of_shell_scripts(script: str) -> None:
    """Without any Python on the path, so no environment can be made."""
    environment = {**os.environ, "PATH": "/usr/bin:/bin", "PYTHON": "/nowhere/python"}
    done = subprocess.run(["bash", str(SCRIPTS / script), "--help"], capture_output=True, text=True, check=False,
                          env=environment, timeout=20)
    assert done.returncode == 0 and done.stderr == ""
    assert f"scripts/{script} " in done.stdout and "#" not in done.stdout


def test_of_the_operator_table() -> None:
    """By a Python without this package and MXNet."""
    page = SCRIPTS.parent / "docs" / "operators.md"
    before = page.stat().st_mtime_ns
    done = subprocess.run([sys.executable, "-I", "-S", str(SCRIPTS / "operator_table.py"), "--help"],
                          capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 0 and "docs/operators.md" in done.stdout, done.stderr
    assert page.stat().st_mtime_ns == before
