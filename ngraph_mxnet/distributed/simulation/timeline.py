"""One step on all ranks: what computes when, and which bucket is summed when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ngraph_mxnet.distributed.simulation.cluster import Scheme
from ngraph_mxnet.distributed.simulation.trace import Bucket, Trace

Seconds = np.ndarray
"""float64, [ranks]."""


@dataclass(frozen=True)
class Timeline:
    """Seconds from the step's start, which all ranks have in common.

    Attributes:
        ready: float64, [buckets]: when the last rank has its gradients of the bucket.
        start, end: float64, [buckets]: of its all-reduce.
        updated: float64, [buckets]: when the last rank has updated its weights of the bucket.
    """

    ready: np.ndarray
    start: np.ndarray
    end: np.ndarray
    updated: np.ndarray

    @property
    def seconds(self) -> float:
        """Of the step."""
        return float(self.updated[-1])


def timeline(trace: Trace, filled: Sequence[Bucket], all_reduces: Sequence[float], factors: Seconds, scheme: Scheme,
             taken_share: float) -> Timeline:
    """
    Args:
        filled: the buckets.
        all_reduces: seconds of each bucket's.
        factors: how many times as long as in the trace each rank computes.
        taken_share: as in `Cluster`.
    """
    passes = (trace.forward_seconds + trace.backward_seconds) * factors
    busy: list[tuple[float, float]] = []
    ready, start, end = (np.zeros(len(filled)) for _ in range(3))
    free = 0.0
    for number, (bucket, seconds) in enumerate(zip(filled, all_reduces, strict=True)):
        work = (trace.forward_seconds + bucket.ready_seconds) * factors
        ready[number] = _computed(np.zeros_like(factors), work, busy, taken_share).max()
        begins = ready[number] if scheme.overlap else passes.max()
        start[number] = max(begins, free)
        free = end[number] = start[number] + seconds
        if seconds and scheme.overlap:
            busy.append((start[number], end[number]))
    now = _computed(np.zeros_like(factors), passes, busy, taken_share)
    updated = np.zeros(len(filled))
    for number, bucket in enumerate(filled):
        waits = end[number] if scheme.overlap and scheme.early_update else end[-1]
        work = trace.update_seconds * bucket.bytes / trace.bytes * factors
        now = _computed(np.maximum(now, waits), work, busy, taken_share)
        updated[number] = now.max()
    return Timeline(ready, start, end, updated)


def _computed(begin: Seconds, work: Seconds, busy: Sequence[tuple[float, float]], taken_share: float) -> Seconds:
    """When so many seconds of computing have ended that begin then, with communication under way while `busy`."""
    if not taken_share:
        return begin + work
    now, left, rate = begin, work, 1 - taken_share
    for start, end in busy:
        alone = np.clip(start - now, 0, left)
        now, left = now + alone, left - alone
        beside = np.clip(end - np.maximum(now, start), 0, None) * rate
        last = left <= beside
        now = np.where(last, now + left / max(rate, np.finfo(float).tiny), np.maximum(now, end))
        left = np.where(last, 0, left - beside)
    return now + left
