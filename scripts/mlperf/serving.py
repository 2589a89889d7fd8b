"""Batches on simulated instances: runs that follow each other, and how long requests wait that arrive at random.

A run's transfers overlap with another's computing as far as the buffers that they share allow. Requests arrive at
random as in MLPerf's Server scenario.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ngraph_mxnet.base.errors import NGraphError
from ngraph_mxnet.targets.nnp.device import Device
from ngraph_mxnet.targets.nnp.hazards import order
from ngraph_mxnet.targets.nnp.program import Buffer, Program
from ngraph_mxnet.targets.nnp.timing import Timeline, simulate


@dataclass(frozen=True)
class Stream:
    """Simulated runs, one after the other: when the `first` ends, and the mean time between the ends of later ones."""

    timeline: Timeline
    first: float
    period: float


def repeated(program: Program, times: int, kept: Collection[Buffer] = ()) -> Program:
    """`program` so many times in one, ordered anew. `kept` and the constants must hold the same after a run as before.

    Raises:
        NGraphError: the program overwrites one of them.
    """
    _require_kept(program, [*kept, *program.constants])
    count = len(program.instructions)
    again = [replace(instruction, after=tuple(earlier + run * count for earlier in instruction.after))
             for run in range(times) for instruction in program.instructions]
    return order(replace(program, instructions=again))


def _require_kept(program: Program, kept: Collection[Buffer]) -> None:
    places: dict[str, list[Buffer]] = {}
    for buffer in kept:
        places.setdefault(buffer.memory, []).append(buffer)
    written = dict.fromkeys(tile.buffer for instruction in program.instructions for tile in instruction.writes)
    for buffer in written:
        for constant in places.get(buffer.memory, ()):
            if buffer.offset < constant.end and constant.offset < buffer.end:
                raise NGraphError(f"{program.name} can't be repeated: {buffer.name} overwrites {constant.name} in "
                                  f"{buffer.memory}, which is loaded before the first run only")


def stream(program: Program, device: Device | None = None, times: int = 4, kept: Collection[Buffer] = ()) -> Stream:
    """Simulate `times` runs, at least two; the first is no part of the period.

    Raises:
        NGraphError: see `repeated` and `timing.simulate`.
    """
    if times < 2:
        raise NGraphError(f"a period takes at least two runs, found {times}")
    timeline = simulate(repeated(program, times, kept), device)
    ends = timeline.end.reshape(times, -1).max(axis=1, initial=0.0)
    return Stream(timeline, float(ends[0]), float(ends[-1] - ends[0]) / (times - 1))


@dataclass(frozen=True)
class Served:
    """The result of a run.

    `latencies` has the simulated seconds of each request, in order of arrival. `counts[b - 1]` is the number of batches
    of size b.
    """

    latencies: np.ndarray
    counts: np.ndarray

    def percentile(self, percent: float) -> float:
        return float(np.percentile(self.latencies, percent, method="higher"))


def poisson_arrivals(rate: float, count: int, seed: int = 0) -> np.ndarray:
    """f64[count]: times in s of requests that arrive independently, `rate` a second on average."""
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))


@dataclass(frozen=True)
class Batch:
    """A batch on one instance: simulated `seconds` from its start to its results, and the `period`, after which the
    instance starts the next one (shorter where transfers overlap with computing)."""

    seconds: float
    period: float


def serve(arrivals: np.ndarray, batches: Sequence[Batch], instances: int) -> Served:
    """Run the requests that arrive at `arrivals` (s, ascending) on `instances` alike.

    A batch of b is `batches[b - 1]`. Requests wait in one queue in the order of their arrival; an idle instance takes
    at once as many as are waiting, at most `len(batches)`.

    Raises:
        NGraphError: no instance, no batch, or a time that is not positive.
    """
    if instances < 1 or not batches or min(min(batch.seconds, batch.period) for batch in batches) <= 0:
        raise NGraphError(f"serving needs instances and positive times, found {instances} and {list(batches)}")
    free = [0.0] * instances  # when each instance is idle next: a heap
    times, most, count = arrivals.tolist(), len(batches), len(arrivals)
    ends: list[float] = []
    counts = [0] * most
    first = 0
    while first < count:
        start = max(free[0], times[first])
        size = bisect.bisect_right(times, start, first, min(first + most, count)) - first
        heapq.heapreplace(free, start + batches[size - 1].period)
        ends += [start + batches[size - 1].seconds] * size
        counts[size - 1] += 1
        first += size
    return Served(np.array(ends) - arrivals, np.array(counts))


def highest_rate(batches: Sequence[Batch], instances: int, bound: float, *, percent: float = 99,
                 count: int = 270_336, seed: int = 0) -> tuple[float, Served]:
    """The highest rate of Poisson arrivals, to one part in a thousand, at which `percent` of the requests are answered
    within `bound` seconds; and what came of it. `count` is the least that MLPerf Inference v0.5 asks of a Server run.

    Raises:
        NGraphError: not even a lone request is answered within the bound.
    """
    if batches and batches[0].seconds > bound:
        raise NGraphError(f"a lone request takes {batches[0].seconds:.4g} s, the bound is {bound:.4g} s")
    low, high = 0.0, instances * max(size / batch.period for size, batch in enumerate(batches, 1))
    best: tuple[float, Served] | None = None
    while high - low > high / 1000 or best is None:
        rate = (low + high) / 2
        served = serve(poisson_arrivals(rate, count, seed), batches, instances)
        if served.percentile(percent) <= bound:
            low, best = rate, (rate, served)
        else:
            high = rate
    return best
