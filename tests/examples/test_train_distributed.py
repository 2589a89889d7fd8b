"""The example of training on several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jobs
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "train_distributed.py"


def test_two_processes_learn_digits():
    pytest.importorskip("sklearn", reason="sklearn is not installed")
    jobs.needs_mpi()
    env = {**os.environ, **jobs.AS_ROOT, "MXNET_SUBGRAPH_BACKEND": "NGRAPH"}
    words = [jobs.MPIRUN, "--oversubscribe", "-n", "2", sys.executable, str(SCRIPT), "--epochs", "4"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith("epoch 3: ") and last.endswith("2 processes")
    assert float(last.split()[-4]) > 0.95, last
