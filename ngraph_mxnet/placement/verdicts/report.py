"""The record of a partitioning: its regions, and what was left and why."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ngraph_mxnet.forks import ForkSafeLock
from ngraph_mxnet.ir.cost import Cost
from ngraph_mxnet.placement.verdicts.support import Verdict


@dataclass(frozen=True)
class Region:
    """Framework nodes that were proposed to run as one. `rejected`: why they do not; None when they do."""

    nodes: tuple[tuple[str, str], ...]  # (name, operator)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    cost: Cost = field(default_factory=Cost)
    rejected: str | None = None

    def ops(self) -> dict[str, int]:
        """How often each operator occurs, the most frequent first."""
        return dict(Counter(op for _, op in self.nodes).most_common())

    def to_dict(self) -> dict[str, Any]:
        return {
            "nodes": [{"name": name, "op": op} for name, op in self.nodes], "ops": self.ops(),
            "inputs": list(self.inputs), "outputs": list(self.outputs), "macs": self.cost.macs,
            "operations": self.cost.operations, "bytes": self.cost.bytes, "rejected": self.rejected,
        }


@dataclass
class Partition:
    """One partitioning of one graph on one backend."""

    backend: str
    verdicts: list[Verdict]
    reviewed: list[Region] = field(default_factory=list)

    @property
    def regions(self) -> list[Region]:
        """Those that run on the backend."""
        return [region for region in self.reviewed if region.rejected is None]

    def left(self) -> list[Verdict]:
        """The nodes that stay with the framework, each with its reason."""
        taken = {name for region in self.regions for name, _ in region.nodes}
        refused = {name: region.rejected
                   for region in self.reviewed if region.rejected for name, _ in region.nodes}
        return [
            verdict if not verdict.supported else Verdict(
                verdict.name, verdict.op, refused.get(verdict.name, "the framework put it in no region"))
            for verdict in self.verdicts if verdict.name not in taken
        ]

    def left_by_kind(self) -> dict[tuple[str, str], int]:
        """(operator, reason): how many nodes."""
        return count_kinds(self.left())

    def to_dict(self) -> dict[str, Any]:
        return {
            "backend": self.backend, "regions": [region.to_dict() for region in self.regions],
            "rejected": [region.to_dict() for region in self.reviewed if region.rejected],
            "left": [{"name": v.name, "op": v.op, "reason": v.reason} for v in self.left()],
        }


def count_kinds(verdicts: Iterable[Verdict]) -> dict[tuple[str, str], int]:
    """(operator, reason): how many of the unsupported nodes, the most frequent first."""
    return dict(Counter((v.op, v.reason) for v in verdicts if v.reason is not None).most_common())


class PartitionLog:
    """The last partitionings of this process."""

    def __init__(self, size: int = 16) -> None:
        self._lock = ForkSafeLock()
        self._kept: deque[Partition] = deque(maxlen=size)
        self._here = threading.local()

    def add(self, partition: Partition) -> None:
        with self._lock:
            self._kept.append(partition)
        for listener in getattr(self._here, "listeners", ()):
            listener.append(partition)

    def last(self) -> list[Partition]:
        """The last partitionings of all threads, the oldest first."""
        with self._lock:
            return list(self._kept)

    @contextmanager
    def listening(self) -> Iterator[list[Partition]]:
        """The partitionings that this thread adds within it."""
        heard: list[Partition] = []
        self._here.listeners = [*getattr(self._here, "listeners", ()), heard]
        try:
            yield heard
        finally:
            self._here.listeners = [one for one in self._here.listeners if one is not heard]
