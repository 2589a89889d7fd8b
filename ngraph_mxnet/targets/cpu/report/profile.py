"""The time of a model's forward pass, kernel by kernel, as the executor runs it: branches at once and all.

A kernel's time is that of all threads together, divided by their number: so the kernels and the time outside of them
add up to the whole, and a kernel's rate compares with the peak of all threads.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ngraph_mxnet.errors import ConfigError
from ngraph_mxnet.rendered import Rendered
from ngraph_mxnet.runtime.trace import Event, recorder
from ngraph_mxnet.targets.cpu.machine.isa import Isa
from ngraph_mxnet.targets.cpu.machine.peak import Peak
from ngraph_mxnet.targets.cpu.program.builder import MemoryUse
from ngraph_mxnet.targets.cpu.program.trace import Label, Spans
from ngraph_mxnet.targets.cpu.report.facts import ProfileData, Row, slowest_first, total

_WARM_UP = 3
_EVENTS_PER_THREAD = 1 << 17


@dataclass(frozen=True, repr=False)
class Profile(Rendered, ProfileData):
    """Shows itself as tables."""

    def __rich__(self) -> Any:
        from ngraph_mxnet.targets.cpu.report.tables import render

        return render(self)


def profiled(forward: Callable[[], Any], rounds: int, isa: Isa, threads: int, memory: tuple[MemoryUse, ...]) -> Profile:
    """Run `forward`, which runs Programs on `threads` threads, and compare with the machine's peak.

    Raises:
        ConfigError: NGRAPH_PROFILE is set.
    """
    from ngraph_mxnet.targets.cpu.machine.peak import (
        measure_peak,  # its kernels need a compiler, which running a graph does not
    )

    _require_recorder()
    peak = measure_peak(isa, threads)
    return replace(measure(forward, threads, rounds), isa=isa, peak=peak, memory=memory)


def seconds_by_origin(forward: Callable[[], Any], threads: int, rounds: int) -> dict[str, float]:
    """Return the seconds that the kernels of each node take, by the node's origin. Measure as `profiled` does, without
    the machine's peak."""
    _require_recorder()
    found: dict[str, float] = defaultdict(float)
    for row in measure(forward, threads, rounds).rows:
        node = row.origin  # op (origin), as nodes are printed
        found[node.partition(" (")[2].removesuffix(")")] += row.ms / 1e3
    return dict(found)


def traced(forward: Callable[[], Any]) -> list[Event]:
    """The spans of one call of `forward`, after a few that are not recorded, as events of a Chrome trace.

    Raises:
        ConfigError: NGRAPH_PROFILE is set.
    """
    from ngraph_mxnet import _core

    _require_recorder()
    for _ in range(_WARM_UP):
        forward()
    _core.trace_start(_EVENTS_PER_THREAD)
    try:
        forward()
    finally:
        _core.trace_stop()
        spans = Spans.take()
    return spans.chrome_events()


def _require_recorder() -> None:
    if recorder() is not None:
        raise ConfigError("NGRAPH_PROFILE is set: a process has one recorder; unset it")


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
    rows = slowest_first(total(*key, parts) for key, parts in groups.items())
    return Profile(threads, "", len(limits), Peak(threads, 0, 0), rows, float(np.median(wall)),
                   float(np.median(in_calls - in_kernels)), float(np.median(wall - in_calls)), spans.dropped)


def _row(label: Label, ms: float) -> Row:
    return Row(label.kernel, label.origin, 1, ms, label.operations / 1e9, label.bytes / 1e6)
