"""Busy processes beside what is measured, as on a machine that others use too."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_BUSY = "print(flush=True)\nwhile True: pass"


@contextmanager
def busy_processes(count: int, cpus: Iterable[int] | None = None) -> Iterator[None]:
    """So many processes that compute all the time, on these CPUs, or those of this process. They have begun when the
    block does."""
    chosen = None if cpus is None else set(cpus)
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            started.append(subprocess.Popen([sys.executable, "-S", "-c", _BUSY], stdout=subprocess.PIPE))
        for process in started:
            if chosen is not None:
                os.sched_setaffinity(process.pid, chosen)
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
