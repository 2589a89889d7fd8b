"""The example of training on several processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "train_distributed.py"


def test_two_processes_learn_digits():
    for module in ("mpi4py", "sklearn"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    mpirun = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if mpirun is None:
        pytest.skip("no mpirun")
    env = {**os.environ, "MXNET_SUBGRAPH_BACKEND": "NGRAPH", "OMPI_ALLOW_RUN_AS_ROOT": "1",
           "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run([mpirun, "--oversubscribe", "-n", "2", sys.executable, str(SCRIPT), "--epochs", "4"], env=env,
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith("epoch 3: ") and last.endswith("2 processes")
    assert float(last.split()[-4]) > 0.95, last
