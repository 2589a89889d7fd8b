"""The trace of one training step of one rank, and its buckets of gradients.

A trace is a JSON object: `"format": "ngraph-mxnet step trace"`, `"version": 1`, and the fields of `Trace`; times are in
seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from ngraph_mxnet.distributed.plan import make_plan
from ngraph_mxnet.distributed.simulation.cluster import Scheme, made, read_as, require, write_as

FORMAT, VERSION = "ngraph-mxnet step trace", 1
FLOAT = np.dtype(np.float32)


@dataclass(frozen=True)
class Gradient:
    """`ready_seconds`: from the backward pass's start until nothing writes the gradient any more.

    Raises:
        SimulationError: the bytes are none of float32, or the time is negative.
    """

    name: str
    bytes: int
    ready_seconds: float

    def __post_init__(self) -> None:
        require(self.bytes > 0 and self.bytes % FLOAT.itemsize == 0, f"gradient {self.name}, bytes", self.bytes,
                "more than 0, of float32")
        require(0 <= self.ready_seconds < float("inf"), f"gradient {self.name}, ready_seconds", self.ready_seconds,
                "0 or more")


@dataclass(frozen=True)
class Trace:
    """A step without communication: the forward pass, the backward pass, the update of all weights.

    Attributes:
        batch: samples of this rank's batch.
        threads: that computed.
        gradients: float32, in the order in which they become final.
        ranks: how many trained on this machine at once while it was recorded.
        source: how the times were found.

    Raises:
        SimulationError: a number is out of bounds, or the gradients are not in order.
    """

    model: str
    batch: int
    threads: int
    cpu: str
    forward_seconds: float
    backward_seconds: float
    update_seconds: float
    gradients: tuple[Gradient, ...]
    rank: int = 0
    ranks: int = 1
    source: str = ""

    def __post_init__(self) -> None:
        require(self.batch > 0, "batch", self.batch, "more than 0")
        require(self.threads > 0, "threads", self.threads, "more than 0")
        require(0 <= self.rank < self.ranks, "rank", self.rank, f"below ranks, {self.ranks}")
        for name in ("forward_seconds", "backward_seconds", "update_seconds"):
            value = getattr(self, name)
            require(value >= 0 and isfinite(value), name, value, "0 or more")
        require(self.compute_seconds > 0, "the seconds of all", 0, "more than 0")
        require(bool(self.gradients), "gradients", "none", "one at least")
        before = 0.0
        for gradient in self.gradients:
            ready = gradient.ready_seconds
            require(before <= ready <= self.backward_seconds, f"gradient {gradient.name}, ready_seconds", ready,
                    f"from {before}, that of the one before, to backward_seconds, {self.backward_seconds}")
            before = ready

    @property
    def compute_seconds(self) -> float:
        """Seconds that the whole step computes."""
        return self.forward_seconds + self.backward_seconds + self.update_seconds

    @property
    def bytes(self) -> int:
        """Bytes of all gradients."""
        return sum(gradient.bytes for gradient in self.gradients)

    @staticmethod
    def load(path: str | Path) -> Trace:
        """
        Raises:
            SimulationError: it can't be read, or is not such a file.
        """
        return read_as(path, FORMAT, VERSION, _trace)

    def save(self, path: str | Path) -> None:
        """
        Raises:
            OSError: it can't be written.
        """
        write_as(path, FORMAT, VERSION, asdict(self) | {"gradients": [asdict(each) for each in self.gradients]})


def _trace(content: Mapping[str, Any]) -> Trace:
    gradients = content.get("gradients", [])
    require(isinstance(gradients, list), "gradients", type(gradients).__name__, "a list")
    return made(Trace, {**content, "gradients": tuple(made(Gradient, each, "a gradient") for each in gradients)},
                "trace")


@dataclass(frozen=True)
class Bucket:
    """Gradients that one all-reduce takes; `ready_seconds`: of the last of them."""

    bytes: int
    ready_seconds: float


def buckets(gradients: Sequence[Gradient], full_bytes: int | None) -> list[Bucket]:
    """The gradients in their order, in the buckets of `make_plan`; with `full_bytes` of 0 each is one."""
    if full_bytes == 0:
        return [Bucket(gradient.bytes, gradient.ready_seconds) for gradient in gradients]
    sizes = [gradient.bytes // FLOAT.itemsize for gradient in gradients]
    plan = make_plan(sizes, [FLOAT] * len(sizes), range(len(sizes)), full_bytes)
    return [Bucket(sum(slot.bytes for slot in each.slots), gradients[each.slots[-1].gradient].ready_seconds)
            for each in plan]


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
        """Seconds of the step."""
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
