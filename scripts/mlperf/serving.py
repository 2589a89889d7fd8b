"""Runs of a program that follow each other, and the latencies of requests that reach simulated engines at given times.

A run's transfers overlap with another's computing as far as the buffers that they share allow.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Collection
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
class Queue:
    """How requests reach engines, of which each holds at most `slots` in flight; they wait in order of arrival.

    `choice` is `blind` (any free slot, all alike) or `idlest` (a slot of the engine with the least left to do).
    `sharing` is `shared` (those in flight share the engine evenly) or `in turn` (it computes one after another).
    """

    choice: str
    sharing: str
    slots: int = 2


SUBMITTED = Queue("blind", "shared")
"""Two inferences in flight on every engine (the submission's scripts), in slots that a host fills without a look."""
ALTERNATIVES = (Queue("idlest", "shared"), Queue("blind", "in turn"), Queue("idlest", "in turn"))


def loadgen_arrivals(rate: float, count: int, seed: int) -> np.ndarray:
    """i64[count]: the nanoseconds at which LoadGen v0.5 sends the Server scenario's requests.

    `rate` (1/s) and `seed` are `target_qps` and `schedule_rng_seed` of its logs. The gaps are those of
    std::exponential_distribution on std::mt19937 in libstdc++, cut to nanoseconds.
    """
    low, high = np.random.RandomState(seed % 2**32).randint(0, 2**32, (count, 2), np.uint32).astype(float).T
    gaps = -np.log(1 - (low + high * 2.0**32) / 2.0**64) / rate
    return np.cumsum((gaps * 1e9).astype(np.int64))


def serve(arrivals: np.ndarray, alone: float, period: float, engines: int, queue: Queue, seed: int = 0) -> np.ndarray:
    """f64[n]: seconds from each request's arrival (f64[n], s, ascending) to its end, on `engines` alike.

    A lone inference takes `alone` seconds; an engine that always has others waiting ends one each `period`.

    Raises:
        NGraphError: no engine or no slot, or a time that is not positive.
    """
    if min(engines, queue.slots) < 1 or min(alone, period) <= 0:
        raise NGraphError(f"serving needs engines, slots and positive times, found {engines}, {queue.slots}, {alone} "
                          f"and {period} s")
    draw = random.Random(seed).random
    kind = {"shared": _Shared, "in turn": _InTurn}[queue.sharing]
    held = [kind(alone, period) for _ in range(engines)]
    free = [engine for engine in range(engines) for _ in range(queue.slots)]
    waiting: deque[int] = deque()
    events: list[tuple[float, int, int]] = []  # when an engine ends a request, the engine, its changes until then
    latencies, times = np.zeros(len(arrivals)), [*arrivals.tolist(), np.inf]

    def begin(engine: int, request: int, now: float) -> None:
        held[engine].begin(now, request)
        announce(engine)

    def announce(engine: int) -> None:
        heapq.heappush(events, (held[engine].next_end(), engine, held[engine].changes))

    first = 0
    while first < len(arrivals) or events:
        now, engine, changes = events[0] if events else (np.inf, 0, 0)
        if times[first] <= now:
            if free:
                chosen = (int(draw() * len(free)) if queue.choice == "blind"
                          else min(range(len(free)), key=lambda place: held[free[place]].left(times[first])))
                free[chosen], free[-1] = free[-1], free[chosen]
                begin(free.pop(), first, times[first])
            else:
                waiting.append(first)
            first += 1
            continue
        heapq.heappop(events)
        if changes != held[engine].changes:
            continue
        request = held[engine].end(now)
        latencies[request] = now - times[request]
        if waiting:
            held[engine].begin(now, waiting.popleft())
        else:
            free.append(engine)
        if held[engine].flying:
            announce(engine)
    return latencies


class _Shared:
    """An engine whose inferences in flight advance alike. `flying` has the mark that `done` must reach for each."""

    def __init__(self, alone: float, period: float) -> None:
        self.alone, self.period = alone, period
        self.flying: deque[tuple[float, int]] = deque()
        self.changes = 0
        self.done = self.now = 0.0

    def begin(self, now: float, request: int) -> None:
        self._advance(now)
        self.flying.append((self.done + 1, request))

    def end(self, now: float) -> int:
        self._advance(now)
        return self.flying.popleft()[1]

    def next_end(self) -> float:
        return self.now + (self.flying[0][0] - self.done) * self._seconds()

    def left(self, now: float) -> float:
        """The inferences that it has still to compute."""
        due = self.done + ((now - self.now) / self._seconds() if self.flying else 0.0)
        return sum(mark - due for mark, _ in self.flying)

    def _seconds(self) -> float:
        """Seconds that each in flight would take at the present rate."""
        return self.alone if len(self.flying) == 1 else len(self.flying) * self.period

    def _advance(self, now: float) -> None:
        if self.flying:
            self.done += (now - self.now) / self._seconds()
        self.now = now
        self.changes += 1


class _InTurn:
    """An engine that computes one after another; the transfers of the next overlap. `flying` has ends and requests."""

    def __init__(self, alone: float, period: float) -> None:
        self.alone, self.period = alone, period
        self.flying: deque[tuple[float, int]] = deque()
        self.changes = 0
        self.last = -np.inf

    def begin(self, now: float, request: int) -> None:
        self.last = max(now + self.alone, self.last + self.period)
        self.flying.append((self.last, request))
        self.changes += 1

    def end(self, now: float) -> int:
        self.changes += 1
        return self.flying.popleft()[1]

    def next_end(self) -> float:
        return self.flying[0][0]

    def left(self, now: float) -> float:
        """Seconds until the engine is idle."""
        return max(self.last - now, 0.0)
