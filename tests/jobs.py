"""Jobs of several processes, for tests of what trains over MPI."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MPIRUN = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""What OpenMPI wants to hear from root, as whom containers run."""

PRELUDE = """
import json, sys
import mxnet as mx, numpy as np
from mxnet import autograd, gluon

def tell(**facts):
    with open(f"{sys.argv[1]}/{kv.rank}.json", "w") as file:
        json.dump(facts, file)
"""


def needs_mpi() -> None:
    """Skips the test where there is no MPI."""
    pytest.importorskip("mpi4py", reason="mpi4py of the extra mpi is not installed")
    if MPIRUN is None:
        pytest.skip("no mpirun")


def run_job(folder: Path, script: str, ranks: int = 2, timeout: float = 120, **environment: str
            ) -> tuple[subprocess.CompletedProcess[str], list[Any]]:
    """Runs the script, behind `PRELUDE`, in so many processes; what each has told, None of those that told nothing."""
    path = folder / "script.py"
    path.write_text(PRELUDE + script)
    env = {**os.environ, **AS_ROOT, "MXNET_SUBGRAPH_BACKEND": "NGRAPH", "OMP_NUM_THREADS": "1", **environment}
    assert MPIRUN is not None
    done = subprocess.run([MPIRUN, "--oversubscribe", "-n", str(ranks), sys.executable, str(path), str(folder)],
                          env=env, capture_output=True, text=True, timeout=timeout, check=False)
    told = [folder / f"{rank}.json" for rank in range(ranks)]
    return done, [json.loads(file.read_text()) if file.exists() else None for file in told]


def job(folder: Path, script: str, ranks: int = 2, **environment: str) -> list[Any]:
    """What each process has told; all must have ended well."""
    done, told = run_job(folder, script, ranks, **environment)
    assert done.returncode == 0 and None not in told, done.stdout + done.stderr
    return told
