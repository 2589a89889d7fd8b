"""What a profile holds: kernels at nodes, what they took, what is not in kernels. `profile` measures and shows it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ngraph_mxnet.targets.cpu.machine.peak import Peak
from ngraph_mxnet.targets.cpu.planning.memory import MemoryUse


@dataclass(frozen=True)
class Row:
    """A kernel at one node: per forward pass. `calls` are instructions of the Program."""

    kernel: str
    origin: str
    calls: int
    ms: float
    gflop: float
    megabytes: float

    @property
    def gflops(self) -> float:
        """GFLOP a second."""
        return self.gflop / self.ms * 1e3 if self.ms else 0.0

    @property
    def gigabytes(self) -> float:
        """A second."""
        return self.megabytes / self.ms if self.ms else 0.0


@dataclass(frozen=True)
class ProfileData:
    """Medians over the forward passes. `waiting_ms` is the threads' time inside calls but in no kernel: barriers,
    phases with too few tasks for all, a core taken by another process. `outside_ms` is what is left: Python, and MXNet
    with what it runs itself. `memory`: of each region."""

    threads: int
    isa: str
    rounds: int
    peak: Peak
    rows: list[Row]
    wall_ms: float
    waiting_ms: float
    outside_ms: float
    dropped: int = 0
    memory: tuple[MemoryUse, ...] = ()

    @property
    def total_ms(self) -> float:
        """The sum of the parts, which shares refer to; medians of parts differ a little from the whole's."""
        return sum(row.ms for row in self.rows) + self.waiting_ms + self.outside_ms

    def kinds(self) -> list[Row]:
        """One row a kernel, over all nodes."""
        groups: dict[str, list[Row]] = defaultdict(list)
        for row in self.rows:
            groups[row.kernel].append(row)
        return slowest_first(total(kernel, "", rows) for kernel, rows in groups.items())

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        def row(r: Row) -> dict[str, Any]:
            return {**asdict(r), "share": r.ms / self.total_ms,
                    "gflops": r.gflops, "of_peak": r.gflops / self.peak.gflops,
                    "gigabytes": r.gigabytes, "of_copy": r.gigabytes / self.peak.gigabytes}

        return {**asdict(self), "rows": [row(r) for r in self.rows], "kinds": [row(r) for r in self.kinds()]}


def total(kernel: str, origin: str, rows: Sequence[Row]) -> Row:
    """The rows as one."""
    return Row(kernel, origin, sum(r.calls for r in rows), sum(r.ms for r in rows), sum(r.gflop for r in rows),
               sum(r.megabytes for r in rows))


def slowest_first(rows: Iterable[Row]) -> list[Row]:
    """The rows, those first that take the most time."""
    return sorted(rows, key=lambda row: -row.ms)
