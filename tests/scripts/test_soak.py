"""`scripts/soak.py`, for a few thousand calls."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "soak.py"


@pytest.mark.parametrize("options", [(), ("--pauses", "5", "--disturb")])
def test_nothing_is_wrong_and_nothing_grows(options, tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    run = subprocess.run([sys.executable, SCRIPT, "--calls", "6000", "--forks", "3", *options], env=environment,
                         cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "wrong: 0;" in run.stdout and "3 forks" in run.stdout
