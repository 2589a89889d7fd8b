"""Processes that a script asks, a line of JSON each way. What libraries print in them goes to standard error."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

SCRIPTS = Path(__file__).resolve().parent
_PR_SET_PDEATHSIG = 1


def absolute_path() -> dict[str, str]:
    """PYTHONPATH for a process that starts in another folder: relative entries would mean something else there."""
    entries = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, entries))}


class Worker:
    """A process that serves `requests`."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: IO[str] | None = None, *,
                 folder: Path | None = SCRIPTS) -> None:
        """
        Args:
            command: begins with the interpreter.
            environment: all of it. A PYTHONPATH that is this process's is made absolute.
            log: takes what is printed for people; by default it goes where this process's does.
            folder: the working directory; None for this process's.

        Raises:
            OSError: it can't be started.
        """
        own = environment.get("PYTHONPATH") in (None, os.environ.get("PYTHONPATH"))
        self.process = subprocess.Popen(
            command, cwd=folder, env={**environment, **(absolute_path() if own else {})}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def send(self, **facts: Any) -> None:
        """Write a line; nothing happens if the process has ended."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(facts), file=self.process.stdin, flush=True)

    def answer(self, seconds: float | None = None) -> dict[str, Any] | None:
        """The next line; None if the process has ended.

        Raises:
            TimeoutError: there is none within these seconds.
        """
        assert self.process.stdout is not None
        if seconds is not None and not select.select([self.process.stdout], [], [], seconds)[0]:
            raise TimeoutError
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def kill(self) -> None:
        """Let it and what it started end, stopped or not; from any thread."""
        if self.alive:
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        self.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


def requests() -> tuple[Iterator[dict[str, Any]], Callable[..., None]]:
    """What the worker is asked until its input ends, and what sends facts back.

    The worker ends with the process that started it.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a stopped process would outlive a killed driver
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def send(**facts: Any) -> None:
        print(json.dumps(facts), file=answers, flush=True)

    return (json.loads(line) for line in sys.stdin), send
