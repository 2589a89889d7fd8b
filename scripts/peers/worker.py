"""A peer's process: reads one JSON command a line, answers with one JSON object a line.

    python -m peers.worker KIND THREADS CPU,CPU,... [CACHE]
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from workers import requests


def memory_mib(field: str) -> float:
    """`VmRSS`, what is resident now, or `VmHWM`, its peak since the process began."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def timed(run: Callable[[Any], Any], inputs: Sequence[Any], count: int, first: int, pause: float) -> dict[str, Any]:
    """Milliseconds of `count` calls, the inputs in turn from number `first`, with `pause` milliseconds of rest behind
    each; and of CPU time of all threads, those that stay awake in the rest included."""
    run(inputs[(first - 1) % len(inputs)])  # not timed: brings this process's weights back into the caches
    time.sleep(pause / 1e3)
    milliseconds, cpu_milliseconds = [], []
    for index in range(first, first + count):
        value = inputs[index % len(inputs)]
        start, cpu_start = time.perf_counter(), time.process_time()
        run(value)
        milliseconds.append((time.perf_counter() - start) * 1e3)
        if pause:
            time.sleep(pause / 1e3)
        cpu_milliseconds.append((time.process_time() - cpu_start) * 1e3)
    return {"ms": milliseconds, "cpu_ms": cpu_milliseconds}


class Worker:
    """The commands; each returns the answer."""

    def __init__(self, kind: str, threads: int, cache: str | None) -> None:
        import numpy as np

        from peers.adapters import make_adapter

        self.numpy = np
        start = time.perf_counter()
        self.adapter = make_adapter(kind, threads, cache)
        self.import_ms = (time.perf_counter() - start) * 1e3

    def compile(self, prefix: str, batch: int) -> dict[str, Any]:
        """Read the model and run it once; `compile_ms` is from bind or compile to the first result."""
        imported = memory_mib("VmRSS")
        self.inputs = self.adapter.native(self.numpy.load(f"{prefix}-b{batch}.npy"))
        start = time.perf_counter()
        self.adapter.load(prefix, batch)
        loaded, cpu_loaded = time.perf_counter(), time.process_time()
        self.adapter.compile()
        self.adapter.run(self.inputs[0])
        done, cpu_done = time.perf_counter(), time.process_time()
        return {
            "load_ms": (loaded - start) * 1e3,
            "compile_ms": (done - loaded) * 1e3,
            "compile_cpu_ms": (cpu_done - cpu_loaded) * 1e3,
            "import_ms": self.import_ms,
            "imported_mib": imported,
            "detail": self.adapter.detail(),
        }

    def outputs(self, path: str) -> dict[str, Any]:
        """Write the outputs for all inputs, stacked."""
        arrays = [self.adapter.array(self.adapter.run(value)).copy() for value in self.inputs]
        self.numpy.save(path, self.numpy.stack(arrays))
        return {"count": len(arrays)}

    def burst(self, count: int, first: int, pause: float) -> dict[str, Any]:
        """Time forward passes; see `timed`."""
        return timed(self.adapter.run, self.inputs, count, first, pause)

    def peak(self) -> dict[str, Any]:
        """The largest resident memory so far."""
        return {"peak_mib": memory_mib("VmHWM")}


def serve(make: Callable[[str, int, str | None], Any]) -> None:
    """Serve until the input ends; `make` is called with kind, threads and cache at the first command."""
    commands, send = requests()
    kind, threads, cpus, *cache = sys.argv[1:]
    os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    worker: Any = None
    for command in commands:
        try:
            if worker is None:
                worker = make(kind, int(threads), cache[0] if cache else None)
            send(**getattr(worker, command.pop("do"))(**command))
        except Exception as error:
            traceback.print_exc()
            send(error=f"{error}", kind=type(error).__name__)


if __name__ == "__main__":
    serve(Worker)
