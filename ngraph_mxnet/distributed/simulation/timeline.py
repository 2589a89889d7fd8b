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
    """Seconds of a bucket's all-reduce while the ranks compute, and when they wait for it."""

    beside: float
    alone: float


@dataclass(frozen=True)
class Busy:
    """From `start` to `end` communication takes that share of the ranks' computing away."""

    start: float
    end: float
    taken_share: float


def timeline(trace: Trace, filled: Sequence[Bucket], sums: Sequence[Sum], factors: Seconds, scheme: Scheme,
             taken_share: float) -> Timeline:
    """
    Args:
        filled: the buckets.
        sums: of each bucket.
        factors: how many times as long as in the trace each rank computes.
        taken_share: as in `Cluster`; it is less while nobody looks at a message.
    """
    passes = (trace.forward_seconds + trace.backward_seconds) * factors
    busy: list[Busy] = []
    ready, start, end = (np.zeros(len(filled)) for _ in range(3))
    free = 0.0
    for number, (bucket, each) in enumerate(zip(filled, sums, strict=True)):
        work = (trace.forward_seconds + bucket.ready_seconds) * factors
        ready[number] = _computed(np.zeros_like(factors), work, busy).max()
        begins = ready[number] if scheme.overlap else passes.max()
        start[number] = max(begins, free)
        free = end[number] = start[number] + each.alone
        if each.beside and scheme.overlap:
            beside = Busy(start[number], start[number] + each.beside, taken_share * each.alone / each.beside)
            computed = _computed(np.zeros_like(factors), passes, [*busy, beside]).max()
            done = min(max(computed - start[number], 0.0) / each.beside, 1.0)
            free = end[number] = start[number] + done * each.beside + (1 - done) * each.alone
            busy.append(Busy(start[number], end[number], beside.taken_share))
    now = _computed(np.zeros_like(factors), passes, busy)
    updated = np.zeros(len(filled))
    for number, bucket in enumerate(filled):
        waits = end[number] if scheme.overlap and scheme.early_update else end[-1]
        work = trace.update_seconds * bucket.bytes / trace.bytes * factors
        now = _computed(np.maximum(now, waits), work, busy)
        updated[number] = now.max()
    return Timeline(ready, start, end, updated)


def _computed(begin: Seconds, work: Seconds, busy: Sequence[Busy]) -> Seconds:
    """When so many seconds of computing have ended that begin then."""
    now, left = begin, work
    for each in busy:
        if each.taken_share:
            alone = np.clip(each.start - now, 0, left)
            now, left = now + alone, left - alone
            rate = 1 - each.taken_share
            beside = np.clip(each.end - np.maximum(now, each.start), 0, None) * rate
            last = left <= beside  # where nothing computes beside, nothing is left
            now = np.where(last, now + (left / rate if rate else 0.0), np.maximum(now, each.end))
            left = np.where(last, 0, left - beside)
    return now + left
