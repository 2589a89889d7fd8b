"""Runs each model in a process of its own, and keeps what it told."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[1]
#: Left over from the shell, they would change what is measured.
CLEARED = ("OMP_", "GOMP_", "KMP_", "MXNET_", "MKLDNN_", "DNNL_", "NGRAPH_")
LOG_LINES = 3


class MatrixError(RuntimeError):
    """A library's models can't be listed; the text says why."""


@dataclass(frozen=True)
class Entry:
    """A model to examine."""

    library: str
    name: str
    genre: str

    @property
    def file_name(self) -> str:
        return f"{self.library}-{re.sub(r'[^A-Za-z0-9_.]+', '-', self.name)}.json"


@dataclass(frozen=True)
class Plan:
    """How models are examined. `pythons`: each library's interpreter; `seconds`: the longest one model may take."""

    pythons: dict[str, str]
    steps: tuple[str, ...]
    threads: int
    seconds: float
    folder: Path


def list_models(plan: Plan, library: str) -> list[Entry]:
    """The library's models.

    Raises:
        MatrixError: its environment is missing or broken.
    """
    try:
        done = subprocess.run(_command(plan, library), cwd=SCRIPTS, env=_environment(plan), capture_output=True,
                              text=True)  # fmt: skip
    except OSError as error:
        raise MatrixError(f"{library}: {error}; scripts/model_matrix.sh makes the environments") from None
    if done.returncode:
        raise MatrixError(f"{library}: {_last(done.stderr)}")
    return [Entry(library, name, genre) for name, genre in json.loads(done.stdout).items()]


def kept(plan: Plan, entry: Entry) -> dict[str, Any] | None:
    """What an earlier run found, if it did all of the plan's steps."""
    path = plan.folder / entry.file_name
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return found if set(plan.steps) <= set(found["steps"]) else None


def examine(plan: Plan, entry: Entry) -> dict[str, Any]:
    """Run the model's process to its end, and keep what it told in a file of the plan's folder."""
    found: dict[str, Any] = {"library": entry.library, "model": entry.name, "genre": entry.genre,
                             "steps": list(plan.steps), "threads": plan.threads}  # fmt: skip
    start = time.perf_counter()
    process = subprocess.Popen(_command(plan, entry.library, entry.name, *plan.steps), cwd=SCRIPTS,
                               env=_environment(plan), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)  # fmt: skip
    try:
        told, log = process.communicate(timeout=plan.seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        told, log = process.communicate()
    for line in told.splitlines():
        if line.endswith("}"):
            found.update(json.loads(line))
    if not found.pop("done", False):
        found["failure"] = _failure(process.returncode, log, time.perf_counter() - start >= plan.seconds, plan.seconds)
    found["seconds"] = round(time.perf_counter() - start, 1)
    (plan.folder / entry.file_name).write_text(json.dumps(found, indent=1) + "\n")
    return found


def _command(plan: Plan, library: str, *rest: str) -> list[str]:
    return [plan.pythons[library], "-m", "matrix.worker", library, *rest]


def _environment(plan: Plan) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(CLEARED)}
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return {**inherited, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths)), "MXNET_SUBGRAPH_VERBOSE": "0",
            "OMP_NUM_THREADS": str(plan.threads), "NGRAPH_CACHE_DIR": str(plan.folder / "cache")}  # fmt: skip


def _failure(code: int, log: str, timed_out: bool, seconds: float) -> str:
    if timed_out:
        return f"not done within {seconds:g} s"
    if code < 0:
        return f"crash: {signal.Signals(-code).name}"
    return _last(log)


def _last(log: str) -> str:
    """The error at the end of what a process printed."""
    lines = [line for line in log.strip().splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return (errors[-1] if errors else " ".join(lines[-LOG_LINES:]) or "no message")[:400]
