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


@dataclass(frozen=True)
class Sum:
    """Seconds of a bucket's all-reduce while the ranks compute, and when they wait for it: its messages wait for looks
    while they do, in which the next bucket's are sent."""

    beside: float
    alone: float


def timeline(trace: Trace, filled: Sequence[Bucket], sums: Sequence[Sum], factors: Seconds, scheme: Scheme,
             taken_share: float) -> Timeline:
    """
    Args:
        filled: the buckets.
        sums: of each bucket.
        factors: how many times as long as in the trace each rank computes.
        taken_share: as in `Cluster`.
    """
    passes = (trace.forward_seconds + trace.backward_seconds) * factors
    none = np.zeros_like(factors)
    busy: list[tuple[float, float]] = []
    ready, start, end = (np.zeros(len(filled)) for _ in range(3))
    free = 0.0
    for number, (bucket, each) in enumerate(zip(filled, sums, strict=True)):
        work = (trace.forward_seconds + bucket.ready_seconds) * factors
        ready[number] = _computed(none, work, busy, taken_share).max()
        begins = ready[number] if scheme.overlap else passes.max()
        start[number] = max(begins, free)
        free = end[number] = start[number] + each.alone
        if scheme.overlap and each.beside:
            busy.append((start[number], free))
            computing = max(_computed(none, passes, busy, taken_share).max() - start[number], 0.0)
            beside = min(computing / each.beside, 1.0)
            end[number] = start[number] + beside * each.beside + (1 - beside) * each.alone
    now = _computed(none, passes, busy, taken_share)
    updated = np.zeros(len(filled))
    for number, bucket in enumerate(filled):
        waits = end[number] if scheme.overlap and scheme.early_update else end.max()
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
        last = left <= beside  # where nothing computes beside, nothing is left
        now = np.where(last, now + (left / rate if rate else 0.0), np.maximum(now, end))
        left = np.where(last, 0, left - beside)
    return now + left
