"""Where the time of a model's forward pass goes, kernel by kernel, as the executor runs it: branches at once and all.

A kernel's time is that of all threads together, divided by their number: so the kernels and the time outside of them
add up to the whole, and a kernel's rate compares with the peak of all threads.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ngraph_mxnet.cpu.isa import Isa
from ngraph_mxnet.cpu.memory import MemoryUse
from ngraph_mxnet.cpu.peak import Peak
from ngraph_mxnet.cpu.trace import Label, Spans
from ngraph_mxnet.errors import ConfigError
from ngraph_mxnet.runtime.trace import recorder

_WARM_UP = 3
_EVENTS_PER_THREAD = 1 << 17


@dataclass(frozen=True)
class Row:
    """A kernel at one node: per forward pass. `calls` are instructions of the Program."""

    kernel: str
    origin: str
    calls: int
    ms: float
    gflop: float
    megabytes: float

    @property
    def gflops(self) -> float:
        """GFLOP a second."""
        return self.gflop / self.ms * 1e3 if self.ms else 0.0

    @property
    def gigabytes(self) -> float:
        """A second."""
        return self.megabytes / self.ms if self.ms else 0.0


@dataclass(frozen=True)
class Profile:
    """Medians over the forward passes. `waiting_ms` is the threads' time inside calls but in no kernel: barriers,
    phases with too few tasks for all, a core taken by another process. `outside_ms` is what is left: Python, and MXNet
    with what it runs itself. `memory`: of each region."""

    threads: int
    isa: str
    rounds: int
    peak: Peak
    rows: list[Row]
    wall_ms: float
    waiting_ms: float
    outside_ms: float
    dropped: int = 0
    memory: tuple[MemoryUse, ...] = ()

    @property
    def total_ms(self) -> float:
        """The sum of the parts, which shares refer to; medians of parts differ a little from the whole's."""
        return sum(row.ms for row in self.rows) + self.waiting_ms + self.outside_ms

    def kinds(self) -> list[Row]:
        """One row a kernel, over all nodes."""
        groups: dict[str, list[Row]] = defaultdict(list)
        for row in self.rows:
            groups[row.kernel].append(row)
        return _slowest_first(_total(kernel, "", rows) for kernel, rows in groups.items())

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        def row(r: Row) -> dict[str, Any]:
            return {**asdict(r), "share": r.ms / self.total_ms,
                    "gflops": r.gflops, "of_peak": r.gflops / self.peak.gflops,
                    "gigabytes": r.gigabytes, "of_copy": r.gigabytes / self.peak.gigabytes}

        return {**asdict(self), "rows": [row(r) for r in self.rows], "kinds": [row(r) for r in self.kinds()]}

    def __rich__(self) -> Any:
        from ngraph_mxnet.cpu.profile_table import render

        return render(self)


def _total(kernel: str, origin: str, rows: Sequence[Row]) -> Row:
    return Row(kernel, origin, sum(r.calls for r in rows), sum(r.ms for r in rows), sum(r.gflop for r in rows),
               sum(r.megabytes for r in rows))


def _slowest_first(rows: Any) -> list[Row]:
    return sorted(rows, key=lambda row: -row.ms)


def profiled(forward: Callable[[], Any], rounds: int, isa: Isa, threads: int, memory: tuple[MemoryUse, ...]) -> Profile:
    """Run `forward`, which runs Programs on `threads` threads, and compare with the machine's peak.

    Raises:
        ConfigError: NGRAPH_PROFILE is set.
    """
    from ngraph_mxnet.cpu.peak import measure_peak  # its kernels need a compiler, which running a graph does not

    if recorder() is not None:
        raise ConfigError("NGRAPH_PROFILE is set: a process has one recorder; unset it")
    peak = measure_peak(isa, threads)
    return replace(measure(forward, threads, rounds), isa=isa, peak=peak, memory=memory)


def measure(forward: Callable[[], Any], threads: int, rounds: int) -> Profile:
    """Run `forward` and sort its time; peak and instruction set are left to the caller."""
    from ngraph_mxnet import _core

    for _ in range(_WARM_UP):
        forward()
    _core.trace_start(_EVENTS_PER_THREAD)
    limits = []
    try:
        for _ in range(rounds):
            begin = time.perf_counter_ns()
            forward()
            limits.append((begin, time.perf_counter_ns()))
    finally:
        _core.trace_stop()
        spans = Spans.take()
    return profile_of(spans, limits, threads)


def profile_of(spans: Spans, limits: Sequence[tuple[int, int]], threads: int) -> Profile:
    """Medians over the rounds, which last from one limit to the other, in nanoseconds."""
    events = spans.events
    busy = np.zeros((len(limits), len(spans.labels)))
    for number, (begin, end) in enumerate(limits):
        inside = events[(events["begin"] >= begin) & (events["end"] <= end)]
        np.add.at(busy[number], inside["label"], (inside["end"] - inside["begin"]) / 1e6)
    kernels = [i for i, label in enumerate(spans.labels) if label.category == "kernel"]
    calls = [i for i, label in enumerate(spans.labels) if label.category == "call"]
    in_kernels, in_calls = busy[:, kernels].sum(1) / threads, busy[:, calls].sum(1)
    wall = np.array([(end - begin) / 1e6 for begin, end in limits])
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for i in kernels:
        if busy[:, i].any():
            row = _row(spans.labels[i], float(np.median(busy[:, i])) / threads)
            groups[row.kernel, row.origin].append(row)
    rows = _slowest_first(_total(*key, parts) for key, parts in groups.items())
    return Profile(threads, "", len(limits), Peak(threads, 0, 0), rows, float(np.median(wall)),
                   float(np.median(in_calls - in_kernels)), float(np.median(wall - in_calls)), spans.dropped)


def _row(label: Label, ms: float) -> Row:
    return Row(label.kernel, label.origin, 1, ms, label.operations / 1e9, label.bytes / 1e6)
