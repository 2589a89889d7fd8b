"""Figures from the times of interleaved rounds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

#: The times of one peer in milliseconds: one list a round.
Rounds = Sequence[Sequence[float]]


def flat(rounds: Rounds) -> list[float]:
    """All times, sorted."""
    return sorted(time for round_ in rounds for time in round_)


def percentile(ordered: Sequence[float], percent: int) -> float:
    """Nearest rank: the smallest time that at least `percent` of 100 did not exceed."""
    return ordered[-(-len(ordered) * percent // 100) - 1]


def summarise(rounds: Rounds) -> dict[str, float]:
    """min, median, p90 and p99 over all rounds, in milliseconds."""
    ordered = flat(rounds)
    return {
        "min_ms": ordered[0],
        "median_ms": statistics.median(ordered),
        "p90_ms": percentile(ordered, 90),
        "p99_ms": percentile(ordered, 99),
    }


def ratio_of_medians(ours: Rounds, theirs: Rounds) -> float:
    """Ours over theirs: below 1, ours is faster."""
    return statistics.median(flat(ours)) / statistics.median(flat(theirs))


def paired_ratio(ours: Rounds, theirs: Rounds) -> float:
    """The median over the rounds of ours over theirs in the same round: what disturbs a whole round cancels out."""
    return statistics.median(
        statistics.median(mine) / statistics.median(other) for mine, other in zip(ours, theirs, strict=True)
    )


def geometric_mean(values: Sequence[float]) -> float:
    """The mean for ratios; the values are positive."""
    return math.exp(statistics.fmean(map(math.log, values)))


def relative_error(output: np.ndarray, reference: np.ndarray) -> float:
    """The largest difference, relative to the reference's largest value; NaN where there is one."""
    wide = reference.astype(np.float64)
    return float(np.abs(output.astype(np.float64) - wide).max() / np.abs(wide).max())
