"""The values of the environment variables that this package reads (`variables.py` is their table), and of usable cores.

A value is read when it is asked for, so that a program may set it before the first compile. A text that is not allowed
counts as unset, and one message says so: nothing that a variable holds stops a model. Cores are those that the process
may use: by its affinity, without hyper-threads, within its control group's quota. `docs_table()` is the documentation's
table.
"""

from __future__ import annotations

import difflib
import functools
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.base.variables import TABLE, Variable

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


VARIABLES: dict[str, Variable] = {variable.name: variable for variable in TABLE}

_warned: set[str] = set()
"""The messages about variables that were logged already."""


def get(name: str) -> Any:
    """The value of variable `name`.

    Raises:
        KeyError: this module does not declare it.
    """
    return _value(VARIABLES[name])


def _value(variable: Variable) -> Any:
    """The default also when the text is not allowed, which is told once."""
    try:
        return variable.checked()
    except ConfigError as error:
        if str(error) not in _warned:
            _warned.add(str(error))
            value = int(variable.default) if isinstance(variable.default, bool) else variable.default
            used = "it counts as unset" if value is None else f"{value} is used"
            logger(__name__).warning("%s; %s", error, used)
        return variable.default


def threads() -> int:
    """Threads for one graph: OMP_NUM_THREADS, else NGRAPH_INTRA_OP_PARALLELISM, else `usable_cores`."""
    return get("OMP_NUM_THREADS") or get("NGRAPH_INTRA_OP_PARALLELISM") or usable_cores()


def told_axes() -> dict[str, tuple[int, ...]]:
    """The axes by input whose sizes change, as NGRAPH_DYNAMIC tells them."""
    told = get("NGRAPH_DYNAMIC")
    return told if isinstance(told, dict) else {}


def compile_settings() -> str:
    """The settings that what is compiled depends on, as text."""
    settings = [f"{v.name}={_value(v)}" for v in TABLE if v.compiles]
    return " ".join([*settings, f"threads={threads()}"])


class _Console(logging.StreamHandler):
    """Writes to stderr as long as no handler of the program's gets our records, whenever it installs one."""

    def emit(self, record: logging.LogRecord) -> None:
        package = logging.getLogger("ngraph_mxnet")
        if len(package.handlers) > 1 or (package.propagate and logging.getLogger().handlers):
            return
        self.stream = sys.stderr
        super().emit(record)


def logger(name: str) -> logging.Logger:
    """The logger `name`, a module of this package, at NGRAPH_LOG_LEVEL or the program's own level."""
    package = logging.getLogger("ngraph_mxnet")
    if package.level == logging.NOTSET:
        package.setLevel(logging.WARNING)  # should the variable itself be told of
        package.addHandler(_Console())
        package.setLevel(get("NGRAPH_LOG_LEVEL").upper())
    return logging.getLogger(name)


_RUNTIME = "NGRAPH_RUNTIME_"
"""The prefix of the names of ngraph-runtime's variables."""


def unknown() -> dict[str, str | None]:
    """The variables that are set and look like ours but are not, and which of ours is meant, None if none is near."""
    found: dict[str, str | None] = {}
    for name in sorted(os.environ):
        if name.startswith("NGRAPH_") and not name.startswith(_RUNTIME) and name not in VARIABLES:
            found[name] = next(iter(difflib.get_close_matches(name, VARIABLES, 1)), None)
    return found


def warn_of_misspelt() -> None:
    """Warn once of each variable that is set and whose name is nearly one of ours."""
    for name, meant in unknown().items():
        if meant and name not in _warned:
            _warned.add(name)
            logger(__name__).warning("%s is set, but there is no such variable: did you mean %s?", name, meant)


def not_allowed() -> list[str]:
    """The messages on the values that are not allowed, which are then no warnings any more."""
    found = []
    for variable in TABLE:
        try:
            variable.checked()
        except ConfigError as error:
            found.append(str(error))
    _warned.update(found)
    return found


def as_written(value: Any) -> Any:
    """A variable's value as a user writes it: a switch as 0 or 1."""
    return int(value) if isinstance(value, bool) else value


def docs_table() -> str:
    """All variables as a Markdown table."""
    rows = ["| variable | type | default | allowed | meaning |", "|---|---|---|---|---|"]
    for v in TABLE:
        default = "unset" if v.default is None else f"`{as_written(v.default)}`"
        rows.append(f"| `{v.name}` | {v.kind} | {default} | {v.allowed} | {v.help} |")
    return "\n".join(rows) + "\n"
