"""Jobs of several processes, with what each said and when."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

PROGRAM = Path(__file__).with_name("rank_program.py")
SILENCE = 2.0
"""Of most jobs here, so that tests are short; a stopped rank is seen within half a second more."""


@dataclass
class RankRun:
    """One rank's process. `lines`: (time of the monotonic clock, stream, text)."""

    process: subprocess.Popen[str]
    lines: list[tuple[float, str, str]] = field(default_factory=list)
    ended: float = 0.0
    threads: list[threading.Thread] = field(default_factory=list)

    def time_of(self, text: str) -> float | None:
        return next((when for when, _, line in self.lines if text in line), None)

    def output(self, stream: str) -> str:
        return "".join(text for _, where, text in self.lines if where == stream)

    @property
    def status(self) -> int | None:
        return self.process.returncode

    def told(self) -> list[tuple[float, str]]:
        """What the watch printed, and when."""
        return [(when, line) for when, stream, line in self.lines
                if stream == "err" and line.startswith("ngraph_mxnet: ")]


class Job:
    """Ranks with these actions of `rank_program`, of which a test ends all that are left."""

    def __init__(self, folder: Path, actions: Sequence[str], silence: float = SILENCE, **environment: str) -> None:
        self.runs: list[RankRun] = []
        for rank, action in enumerate(actions):
            command = [sys.executable, str(PROGRAM), str(rank), str(len(actions)), str(folder), str(silence), action]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       env={**os.environ, "PYTHONFAULTHANDLER": "", **environment})
            run = RankRun(process)
            self.runs.append(run)
            run.threads = [threading.Thread(target=self._read, args=(run, *stream), daemon=True)
                           for stream in (("out", process.stdout), ("err", process.stderr))]
            run.threads.append(threading.Thread(target=self._await, args=(run,), daemon=True))
            for thread in run.threads:
                thread.start()

    @staticmethod
    def _read(run: RankRun, stream: str, pipe: IO[str]) -> None:
        for line in pipe:
            run.lines.append((time.monotonic(), stream, line))

    @staticmethod
    def _await(run: RankRun) -> None:
        run.process.wait()
        run.ended = time.monotonic()

    def await_line(self, rank: int, text: str, seconds: float = 20) -> float:
        """When the rank said this."""
        end = time.monotonic() + seconds
        while (found := self.runs[rank].time_of(text)) is None:
            assert time.monotonic() < end, f"rank {rank} has not said {text!r}: {self.runs[rank].lines}"
            time.sleep(0.01)
        return found

    def await_ends(self, ranks: Sequence[int] | None = None, seconds: float = 30) -> None:
        """Of these ranks, or all; the test fails where one hangs."""
        end = time.monotonic() + seconds
        for rank in range(len(self.runs)) if ranks is None else ranks:
            self.runs[rank].process.wait(max(end - time.monotonic(), 0.01))
            for thread in self.runs[rank].threads:
                thread.join(1)  # a child that a rank leaves behind may hold its pipes

    def close(self) -> None:
        for run in self.runs:
            for child in re.findall(r"child (\d+)", run.output("out")):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)
            run.process.kill()
            run.process.wait()
