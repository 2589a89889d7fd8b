"""Has models examined in other processes, and keeps what these send."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import workers

from ngraph_mxnet.base.installation import without_settings

SCRIPTS = Path(__file__).resolve().parents[1]
LOG_LINES = 3
#: Importing a library takes longer than a small model; what a model leaves behind may burden the next ones.
MODELS_PER_PROCESS = 10


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
    """How models are examined. `pythons`: each library's interpreter; `seconds`: the longest one model may take; `run`:
    what is to be kept of this run beside the threads: when, of which commit, on which machine; `library`: that of the
    runtime, which runs files."""

    pythons: dict[str, str]
    steps: tuple[str, ...]
    threads: int
    seconds: float
    folder: Path
    run: Mapping[str, str] = field(default_factory=dict)
    library: Path | None = None


def list_models(plan: Plan, library: str) -> list[Entry]:
    """The library's models.

    Raises:
        MatrixError: its environment is missing or broken.
    """
    try:
        worker = Worker(plan, library)
    except OSError as error:
        raise MatrixError(f"{library}: {error}; scripts/model_matrix.sh makes the environments") from None
    listed = worker.genres()
    worker.end()
    if listed is None:
        raise MatrixError(f"{library}: {_last(worker.log())}")
    return [Entry(library, name, genre) for name, genre in listed.items()]


def kept(plan: Plan, entry: Entry) -> dict[str, Any] | None:
    """What an earlier run found, if it did all of the plan's steps."""
    path = plan.folder / entry.file_name
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return found if set(plan.steps) <= set(found["steps"]) else None


class Examiner:
    """Has models examined, each in the process of its library that is free; one that ends is replaced."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._idle: dict[str, list[Worker]] = {}
        self._lock = threading.Lock()

    def examine(self, entry: Entry, known: Mapping[str, str]) -> dict[str, Any]:
        """Examine the model, and keep what is told in a file of the plan's folder.

        Args:
            known: models by their graphs' digests; one with such a graph is not examined again.
        """
        with self._lock:
            idle = self._idle.setdefault(entry.library, [])
            worker = idle.pop() if idle else None
        if worker is None:
            worker = Worker(self._plan, entry.library)
            worker.genres()
        found = _with_earlier(self._plan, entry, worker.examine(entry, known))
        if worker.served < MODELS_PER_PROCESS and worker.alive:
            with self._lock:
                self._idle[entry.library].append(worker)
        else:
            worker.end()
        (self._plan.folder / entry.file_name).write_text(json.dumps(found, indent=1) + "\n")
        return found

    def close(self) -> None:
        """End all processes."""
        for worker in (worker for idle in self._idle.values() for worker in idle):
            worker.end()


def _with_earlier(plan: Plan, entry: Entry, found: dict[str, Any]) -> dict[str, Any]:
    """With what earlier runs found by other steps, if the model's graph is still the same."""
    path = plan.folder / entry.file_name
    earlier = json.loads(path.read_text()) if path.exists() else {}
    if "failure" in earlier or "failure" in found or "digest" not in found or earlier.get("digest") != found["digest"]:
        return found
    steps = [*{**dict.fromkeys(earlier["steps"]), **dict.fromkeys(found["steps"])}]
    return {**earlier, **found, "steps": steps, "runs": {**earlier.get("runs", {}), **found["runs"]}}


def _runs(plan: Plan) -> dict[str, dict[str, Any]]:
    """By step, the run that its figures are of. Every step but regions and file compares outputs, too."""
    steps = dict.fromkeys(plan.steps)
    if steps.keys() - {"regions", "file"}:
        steps["run"] = None
    return {step: {**plan.run, "threads": plan.threads} for step in steps}


class Worker:
    """A process of `matrix.worker`. Raises: OSError: it can't be started."""

    def __init__(self, plan: Plan, library: str) -> None:
        self._plan = plan
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # lives as long as the process
        # Files of models are large, and a process that is killed leaves them behind.
        self._folder = tempfile.TemporaryDirectory(prefix="model-matrix-")
        self.served = 0
        self._worker = workers.Worker([plan.pythons[library], "-m", "matrix.worker", library],
                                      {**_environment(plan), "TMPDIR": self._folder.name}, self._log)

    def genres(self) -> dict[str, Any] | None:
        """What it sends first; None at its end."""
        return self._worker.answer()

    @property
    def alive(self) -> bool:
        return self._worker.alive

    def log(self) -> str:
        """The end of what it printed for people."""
        self._log.seek(0)
        return self._log.read()[-20000:]

    def end(self) -> None:
        self._worker.close()
        self._folder.cleanup()

    def examine(self, entry: Entry, known: Mapping[str, str]) -> dict[str, Any]:
        """What it sends of the model, and why it failed if it did."""
        plan = self._plan
        found: dict[str, Any] = {"library": entry.library, "model": entry.name, "genre": entry.genre,
                                 "steps": list(plan.steps), "runs": _runs(plan), "step": "start"}
        self.served += 1
        start = time.perf_counter()
        self._worker.send(model=entry.name, steps=plan.steps, known=dict(known))
        timer = threading.Timer(plan.seconds, self._worker.kill)
        timer.start()
        while not found.get("done") and (told := self._worker.answer()) is not None:
            found.update(told)
        timer.cancel()
        seconds = time.perf_counter() - start
        if not found.pop("done", False):
            code = self._worker.process.wait()
            found["failure"] = _failure(code, self.log(), seconds >= plan.seconds, plan.seconds)
        found["seconds"] = round(seconds, 1)
        return found


def _environment(plan: Plan) -> dict[str, str]:
    runtime = {} if plan.library is None else {"NGRAPH_RUNTIME_LIBRARY": str(plan.library)}
    return {**without_settings(os.environ), **runtime, "MXNET_SUBGRAPH_VERBOSE": "0",
            "OMP_NUM_THREADS": str(plan.threads), "NGRAPH_CACHE_DIR": str(plan.folder / "cache")}


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
