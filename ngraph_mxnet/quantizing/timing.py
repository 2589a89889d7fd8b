"""How long calls take: of two executables by turns, so that what else the machine does is in both."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence

import numpy as np

from ngraph_mxnet.runtime.executable import Executable, Usage

_ROUNDS, _SECONDS = 15, 0.005
"""How often each has its turn, and how long one takes at least."""
_PROFILED, _TURNS = 10, 3
"""Calls of a turn whose kernels are timed, and turns."""


def seconds_of(executables: Sequence[Executable], arrays: Mapping[str, np.ndarray]) -> list[float]:
    """What a call of each takes, in the turn that took least: what others run only adds to it."""
    calls = [max(1, math.ceil(_SECONDS / max(_turn(one, arrays, 2), 1e-9))) for one in executables]
    rounds = [[_turn(one, arrays, count) for one, count in zip(executables, calls, strict=True)]
              for _ in range(_ROUNDS)]
    return [min(found) for found in zip(*rounds, strict=True)]


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
