"""Which cores the processes of a job that share a host run on: each its own, with one team of threads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ngraph_mxnet import cores

_LAUNCHERS = (("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"), ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
              ("SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"))
"""Variables of OpenMPI, MPICH and Slurm: the number of this process on its host, and the count of processes there."""


@dataclass(frozen=True)
class Placement:
    """The placement of this process on its host's CPUs.

    Attributes:
        cpus: those that it may use.
        pinned: whether it was this module that chose them.
        text: a sentence for people.
    """

    cpus: tuple[int, ...]
    pinned: bool
    text: str


def local_place(environ: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """Which of its host's processes this is, and how many these are, as the launcher says; None: it doesn't."""
    for rank, size in _LAUNCHERS:
        found = environ.get(rank, ""), environ.get(size, "")
        if all(text.isdecimal() for text in found) and int(found[0]) < int(found[1]):
            return int(found[0]), int(found[1])
    return None


def share(cpus_of_cores: Sequence[Sequence[int]], rank: int, size: int) -> list[int]:
    """The CPUs of this rank's cores, neighbours; none where there are more ranks than cores."""
    count = len(cpus_of_cores)
    if size > count:
        return []
    return sorted(cpu for core in cpus_of_cores[count * rank // size:count * (rank + 1) // size] for cpu in core)


def place(environ: Mapping[str, str] = os.environ, root: Path = cores.ROOT) -> Placement:
    """Gives this process its share of the host's cores, unless the launcher, or the user, has bound it already.

    All its threads move. To be called before the first graph is compiled: the threads of a graph are counted then.
    """
    allowed = sorted(os.sched_getaffinity(0))
    found = local_place(environ)
    if found is None or found[1] == 1:
        return Placement(tuple(allowed), False, f"alone on its host, on CPUs {allowed}")
    rank, size = found
    who = f"process {rank} of {size} on its host"
    if len(allowed) < (os.cpu_count() or 1):
        return Placement(tuple(allowed), False, f"{who}: bound to CPUs {allowed} before")
    mine = share(cores.cpus_of_cores(root), rank, size)
    if not mine:
        return Placement(tuple(allowed), False, f"{who}: not pinned, for there are more processes than cores, which "
                                                "will wait for each other")
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread), mine)
    return Placement(tuple(mine), True, f"{who}: pinned to CPUs {mine}")
