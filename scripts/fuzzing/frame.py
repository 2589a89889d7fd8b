"""What drives a fuzzer's worker: a process that dies is started anew, and what it had in hand is a finding."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Tally:
    """What the processes of a run did."""

    tried: int
    starts: int
    seconds: float
    killed: tuple[Path, ...]
    """What was in hand of the processes that died, as files or folders of the findings."""


class WorkerError(Exception):
    """The worker failed outside of what it tries."""


def count(folder: Path) -> int:
    """How many were tried in `folder`, by this run and earlier ones."""
    counter = folder / "tried"
    return int(counter.read_text() or 0) if counter.exists() else 0


def drive(module: str, folder: Path, runs: int, arguments: Callable[[int, int, float], list[object]],
          settings: Mapping[str, str], seconds: float = float("inf"), patience: float = float("inf")) -> Tally:
    """Start `python -m module` until `runs` are tried, or until the time is over.

    `arguments` gives the command line from the runs that are left, the number of the start and the seconds that are
    left. The worker writes `tried`, and `current` for as long as it has something in hand. If `current` has not been
    written for `patience` seconds, SIGALRM ends the worker: one that stands still uses up no time of the CPU.

    Raises:
        WorkerError: it failed with nothing in hand.
    """
    folder.mkdir(parents=True, exist_ok=True)
    first, begin, starts = count(folder), time.monotonic(), 0
    killed: list[Path] = []
    while (left := runs - (count(folder) - first)) > 0 and (rest := begin + seconds - time.monotonic()) > 0:
        with (folder / "log").open("wb") as log:
            line = [sys.executable, "-m", module, *map(str, arguments(left, starts, rest))]
            with subprocess.Popen(line, cwd=SCRIPTS, stdout=log, stderr=subprocess.STDOUT,
                                  env={**os.environ, **settings}) as worker:
                code = _wait(worker, folder / "current", patience)
        starts += 1
        if code:
            if not (folder / "current").exists():
                raise WorkerError(f"the worker failed; {folder / 'log'} says why")
            name = signal.Signals(-code).name if code < 0 else f"exit{code}"
            killed.append(folder / f"killed-{name}-{count(folder)}")
            os.replace(folder / "current", killed[-1])
    return Tally(count(folder) - first, starts, time.monotonic() - begin, tuple(killed))


def _wait(worker: subprocess.Popen[bytes], current: Path, patience: float) -> int:
    """How the worker ends. Only seconds count in which this process runs, too: both may be stopped for a while."""
    before, waited = 0, 0
    while waited < patience:
        with suppress(subprocess.TimeoutExpired):
            return worker.wait(timeout=1)
        written = 0
        with suppress(FileNotFoundError):
            written = current.stat().st_mtime_ns
        before, waited = written, waited + 1 if written and written == before else 0
    worker.send_signal(signal.SIGALRM)
    return worker.wait()
