"""How long calls take: of two executables by turns, so that what else the machine does is in both."""

from __future__ import annotations

import math
import operator
import statistics
import time
from collections.abc import Mapping, Sequence

import numpy as np

from ngraph_mxnet.runtime.executable import Executable, Usage

_TURN_SECONDS = 0.005
"""What a turn takes at least."""
_FEWEST_ROUNDS, _MOST_ROUNDS, _SECONDS = 5, 25, 8.0
"""How often each has its turn: of large models less often, so that all take about so long."""
_PROFILED, _TURNS = 10, 3
"""Calls of a turn whose kernels are timed, and turns."""


def seconds_of(executables: Sequence[Executable], arrays: Mapping[str, np.ndarray]) -> list[float]:
    """What a call of each takes, in the median over turns: where others use the cores, too, the few quiet moments would
    tell of one of them alone."""
    single = [_turn(one, arrays, 2) for one in executables]
    calls = [max(1, math.ceil(_TURN_SECONDS / max(seconds, 1e-9))) for seconds in single]
    rounds = round(_SECONDS / max(sum(map(operator.mul, single, calls)), 1e-9))
    turns = [[_turn(one, arrays, count) for one, count in zip(executables, calls, strict=True)]
             for _ in range(max(_FEWEST_ROUNDS, min(_MOST_ROUNDS, rounds)))]
    return [statistics.median(found) for found in zip(*turns, strict=True)]


def _turn(executable: Executable, arrays: Mapping[str, np.ndarray], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        executable(arrays)
    return (time.perf_counter() - start) / calls


def usages_of(executables: Sequence[Executable], arrays: Mapping[str, np.ndarray]) -> list[Usage]:
    """What each takes: of each node the median over turns."""
    given = [one.checked((arrays,)) for one in executables]
    turns = [[one.usage(inputs, _PROFILED) for one, inputs in zip(executables, given, strict=True)]
             for _ in range(_TURNS)]
    return [_median(list(found)) for found in zip(*turns, strict=True)]


def _median(turns: Sequence[Usage]) -> Usage:
    origins = dict.fromkeys(origin for usage in turns for origin in usage.seconds)
    seconds = {origin: statistics.median(usage.seconds.get(origin, 0.0) for usage in turns) for origin in origins}
    return Usage(seconds, turns[0].weight_bytes, turns[0].arena_bytes)
