"""How long calls take: of executables by turns, so that what else the machine does is in all of them."""

from __future__ import annotations

import math
import operator
import statistics
import time
from collections.abc import Mapping, Sequence

import numpy as np

from ngraph_mxnet.runtime.executable import Executable, Usage

_TURN_SECONDS = 0.005
"""The least seconds of a turn."""
_FEWEST_ROUNDS, _MOST_ROUNDS, _SECONDS = 5, 25, 8.0
"""How often each has its turn: of large models less often, so that all take about so long."""
_BUSY_ALONE, _BUSY_BESIDE = 2.0, 1.25
"""How many times as long as its thread works a call may take: of calls on one thread, whose CPU time counts, and of
others."""
_PROFILED, _TURNS = 10, 3
"""Calls of a turn whose kernels are timed, and turns."""


class Stopwatch:
    """Times calls that run on so many threads, and notices whether others had the cores meanwhile.

    What runs on one thread is timed by that thread's CPU time, which does not count what others take. On several
    threads it is the wall clock: then what else the machine does shows in how much longer a call takes than its thread
    works.
    """

    def __init__(self, threads: int) -> None:
        self._clock = time.thread_time if threads == 1 else time.perf_counter
        self._most_busy = _BUSY_ALONE if threads == 1 else _BUSY_BESIDE
        self._busy: list[float] = []

    @property
    def doubt(self) -> str | None:
        """Why times are not to be believed, as a sentence; None if they are."""
        busy = statistics.median(self._busy) if self._busy else 1.0
        if busy <= self._most_busy:
            return None
        return (f"The machine was too busy for these times to be believed: calls took {busy:.1f} times as long as "
                "their thread had a core. Run it again where nothing else runs, or with --even-if-slower")

    def seconds_of(self, executables: Sequence[Executable], arrays: Mapping[str, np.ndarray]) -> list[float]:
        """Return the seconds of a call of each executable: the median over turns. Turns are about equally long and
        follow each other. Otherwise, where others use the cores too, the few quiet moments would tell of one executable
        alone."""
        single = [self._turn(one, arrays, 2) for one in executables]
        calls = [max(1, math.ceil(_TURN_SECONDS / max(seconds, 1e-9))) for seconds in single]
        rounds = round(_SECONDS / max(sum(map(operator.mul, single, calls)), 1e-9))
        turns = [[self._turn(one, arrays, count) for one, count in zip(executables, calls, strict=True)]
                 for _ in range(max(_FEWEST_ROUNDS, min(_MOST_ROUNDS, rounds)))]
        return [statistics.median(found) for found in zip(*turns, strict=True)]

    def _turn(self, executable: Executable, arrays: Mapping[str, np.ndarray], calls: int) -> float:
        wall, cpu, start = time.perf_counter(), time.thread_time(), self._clock()
        for _ in range(calls):
            executable(arrays)
        seconds = self._clock() - start
        self._busy.append((time.perf_counter() - wall) / max(time.thread_time() - cpu, 1e-9))
        return seconds / calls


def usages_of(executables: Sequence[Executable], arrays: Mapping[str, np.ndarray]) -> list[Usage]:
    """Return the usage of each executable: the median over turns for each node."""
    given = [one.checked((arrays,)) for one in executables]
    turns = [[one.usage(inputs, _PROFILED) for one, inputs in zip(executables, given, strict=True)]
             for _ in range(_TURNS)]
    return [_median(list(found)) for found in zip(*turns, strict=True)]


def _median(turns: Sequence[Usage]) -> Usage:
    origins = dict.fromkeys(origin for usage in turns for origin in usage.seconds)
    seconds = {origin: statistics.median(usage.seconds.get(origin, 0.0) for usage in turns) for origin in origins}
    return Usage(seconds, turns[0].weight_bytes, turns[0].arena_bytes)
