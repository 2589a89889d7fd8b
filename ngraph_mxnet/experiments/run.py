"""A run: what one program measured, and all that it depends on."""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

LATENCY = "latency_ms"
"""The series that is compared if no other is asked for."""
PROCESS, ROUND = "process", "round"
"""What a block of samples is from: a process of its own, or a turn within one process."""

Blocks = Sequence[Sequence[float]]
"""Samples of one series in the order in which they were measured: a list for each block."""


@dataclass(frozen=True)
class Run:
    """
    Attributes:
        kind: the program that measured: bench, quantize, bench_peers, or a script's own name.
        name: what was measured, as a model's.
        id: 32 hexadecimal digits.
        session: the id of the call of the program that recorded it, which may have recorded others, too.
        started: UTC, in ISO 8601.
        status: finished or failed.
        blocks: what a block of samples is from: process or round.
        settings: what the program was asked for, by name.
        metrics: each with its values by step.
        samples: the single measurements of each series.
        facts: what `facts.collect` found: command, environment variables, machine, packages, commit.
    """

    kind: str
    name: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    session: str = ""
    started: str = field(default_factory=lambda: now())
    seconds: float = 0.0
    status: str = "finished"
    blocks: str = PROCESS
    settings: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    samples: Mapping[str, Blocks] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def median(self, series: str = LATENCY) -> float | None:
        """Of all samples; None where there are none."""
        found = [sample for block in self.samples.get(series, ()) for sample in block]
        return statistics.median(found) if found else None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
