"""How many cores this process may use: by its affinity, without hyper-threads, within its control group's quota."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def usable_cores(root: Path = ROOT) -> int:
    """Physical cores that this process may keep busy, at least 1. `root` holds `proc` and `sys`.

    A quota of 2.5 CPUs gives 2: threads that wait for each other suffer when all are stopped for the rest of a
    period, because they had more.

    Read once for each affinity: every bind asks.
    """
    return _usable_cores(root, frozenset(os.sched_getaffinity(0)))


@functools.lru_cache(maxsize=16)
def _usable_cores(root: Path, affinity: frozenset[int]) -> int:
    cores, quota = physical_cores(root), cpu_quota(root)
    return cores if quota is None else max(1, min(cores, int(quota)))


def physical_cores(root: Path = ROOT) -> int:
    """Physical cores among the CPUs that this process may run on; the CPUs where nothing tells."""
    return max(len(cpus_of_cores(root)), 1)


def cpus_of_cores(root: Path = ROOT) -> list[list[int]]:
    """The CPUs that this process may run on, those of a physical core together; cores in the order of their first."""
    cores: dict[tuple[str, ...], list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        names = (_read(folder / name) for name in ("physical_package_id", "core_id"))
        package, core = names
        cores.setdefault((package, core) if package and core else (f"cpu{cpu}",), []).append(cpu)
    return list(cores.values())


def cpu_quota(root: Path = ROOT) -> float | None:
    """CPUs' worth of time that the control groups allow; None without a limit.

    A group has the least of its own and its ancestors' limits. In a container the path that `proc` tells may be
    the host's, and only the hierarchy's top be visible: what does not exist does not limit.
    """
    limits = [limit for group in _groups(root) if (limit := _limit(group)) is not None]
    return min(limits, default=None)


def _groups(root: Path) -> Iterator[Path]:
    """Folders that may limit this process: its groups and their ancestors, of both versions of cgroups."""
    mounted = root / "sys/fs/cgroup"
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2; beside version 1 it is mounted as "unified"
            tops = [mounted, mounted / "unified"]
        elif "cpu" in controllers.split(","):
            tops = [mounted / "cpu", mounted / controllers]
        else:
            continue
        parts = [part for part in path.split("/") if part]
        for top in tops:
            yield from (top.joinpath(*parts[:count]) for count in range(len(parts), -1, -1))


def _limit(group: Path) -> float | None:
    quota, period = ((_read(group / "cpu.max") or "max 1").split() + ["100000"])[:2]
    if quota == "max":
        quota, period = (_read(group / f"cpu.cfs_{name}_us") or "-1" for name in ("quota", "period"))
    try:
        return float(quota) / float(period) if float(quota) > 0 and float(period) > 0 else None
    except ValueError:
        return None


def _read(path: Path) -> str | None:
    """The file's text without the blanks around it; None where there is none."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def cpu_info(root: Path = ROOT) -> dict[str, str]:
    """Return the fields of the first CPU in `/proc/cpuinfo`, by name. Raises OSError if the file can't be read."""
    fields: dict[str, str] = {}
    for line in (root / "proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return fields
