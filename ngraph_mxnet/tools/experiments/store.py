"""A run: what one program measured, and all that it depends on; the store of runs; `record`, and measuring anew.

A run depends on command, environment, machine, versions and commit. Several processes measure two programs in turns, so
that what else the machine does is in both.
"""

from __future__ import annotations

import json
import math
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ngraph_mxnet.base import config
from ngraph_mxnet.base.append_only import Format, FormatError
from ngraph_mxnet.base.config import ROOT, cpu_info
from ngraph_mxnet.base.errors import NGraphError, listed
from ngraph_mxnet.base.installation import settings_in, versions_of, without_settings
from ngraph_mxnet.base.rendered import Facts
from ngraph_mxnet.base.version import __version__

LATENCY = "latency_ms"
"""The series that is compared if no other is asked for."""
PROCESS, ROUND = "process", "round"
"""The origins of a block of samples: a process of its own, or a turn within one process."""

Blocks = Sequence[Sequence[float]]
"""Samples of one series in the order in which they were measured: a list for each block."""


@dataclass(frozen=True)
class Run(Facts):
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
        facts: what `collect` found: command, environment variables, machine, packages, commit.
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
        """Return the median of all samples of the series; None if there are none."""
        found = [sample for block in self.samples.get(series, ()) for sample in block]
        return statistics.median(found) if found else None


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


NEWEST = "last"
"""The newest run; `last~1` is the one before."""
_FEWEST_DIGITS = 4
FORMAT = Format("runs", {
    "runs": """number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, session TEXT NOT NULL,
        kind TEXT NOT NULL, name TEXT NOT NULL, started TEXT NOT NULL, seconds REAL NOT NULL, status TEXT NOT NULL,
        blocks TEXT NOT NULL, settings TEXT NOT NULL, facts TEXT NOT NULL""",
    "metrics": """run INTEGER NOT NULL REFERENCES runs(number), name TEXT NOT NULL, step INTEGER NOT NULL, value REAL,
        PRIMARY KEY (run, name, step)""",
    "samples": """run INTEGER NOT NULL REFERENCES runs(number), series TEXT NOT NULL, block INTEGER NOT NULL,
        position INTEGER NOT NULL, value REAL, PRIMARY KEY (run, series, block, position)""",
}, application=0x6E675255, version=1)
_COLUMNS = "id, session, kind, name, started, seconds, status, blocks, settings, facts"


class StoreError(NGraphError):
    """A store of runs can't be read or written, or has no such run."""


def default_path() -> Path:
    """NGRAPH_RUNS, else `ngraph_mxnet/runs.sqlite` in XDG_DATA_HOME or ~/.local/share."""
    told = config.get("NGRAPH_RUNS")
    if told:
        return Path(told)
    home = os.environ.get("XDG_DATA_HOME", "")
    base = Path(home) if os.path.isabs(home) else Path.home() / ".local" / "share"
    return base / "ngraph_mxnet" / "runs.sqlite"


class Store:
    """Runs in a file. Each call opens it anew, so an object may be used by several threads, and after a fork."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, run: Run) -> None:
        """Write a run, and the file and its folder if they are not there. Raises StoreError: it can't be written, or
        has the run already."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self.path.parent} can't be made for the store of runs: {error.strerror}") from None
        values = (run.id, run.session or run.id, run.kind, run.name, run.started, run.seconds, run.status, run.blocks,
                  json.dumps(run.settings), json.dumps(run.facts))
        with self._explained(), FORMAT.adding(self.path) as database:
            marks = ", ".join("?" * len(values))
            number = database.execute(f"INSERT INTO runs ({_COLUMNS}) VALUES ({marks})", values).lastrowid
            database.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?)", (
                (number, name, step, value) for name, steps in run.metrics.items() for step, value in steps))
            database.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", (
                (number, series, block, position, value) for series, blocks in run.samples.items()
                for block, samples in enumerate(blocks) for position, value in enumerate(samples)))

    def runs(self, kind: str | None = None, name: str | None = None) -> list[Run]:
        """All, the oldest first; of a kind, and whose name contains `name`. Raises StoreError: there is no such file,
        or it can't be read."""
        with self._reading() as database:
            found = database.execute(f"SELECT number, {_COLUMNS} FROM runs ORDER BY number").fetchall()
            return [self._run(database, row) for row in found
                    if kind in (None, row[3]) and (name is None or name in row[4])]

    def find(self, wanted: str) -> Run:
        """A run by the first digits of its id, `last`, or `last~N`: N before the newest. Raises StoreError: there is
        none, or several, or the file can't be read."""
        with self._reading() as database:
            ids = [row[0] for row in database.execute("SELECT id FROM runs ORDER BY number")]
            base, _, back = wanted.partition("~")
            if base == NEWEST and (back.isdecimal() or wanted == NEWEST):
                found = ids[-1 - int(back or 0):][:1] if int(back or 0) < len(ids) else []
            else:
                enough = len(wanted) >= _FEWEST_DIGITS
                found = [one for one in ids if one == wanted or (enough and one.startswith(wanted))]
            if len(found) != 1:
                what = f"{len(found)} runs, {listed(found)}, begin with" if found else "no run is called"
                raise StoreError(f"{self.path}: {what} {wanted!r}; expected {_FEWEST_DIGITS} or more digits of one of "
                                 f"its {len(ids)} ids, {NEWEST}, or {NEWEST}~N")
            row = database.execute(f"SELECT number, {_COLUMNS} FROM runs WHERE id = ?", found).fetchone()
            return self._run(database, row)

    def _run(self, database: sqlite3.Connection, row: tuple[Any, ...]) -> Run:
        number, id_, session, kind, name, started, seconds, status, blocks, settings, facts = row
        metrics: dict[str, list[tuple[int, float]]] = {}
        for metric, step, value in database.execute(
                "SELECT name, step, value FROM metrics WHERE run = ? ORDER BY name, step", (number,)):
            metrics.setdefault(metric, []).append((step, _number(value)))
        samples: dict[str, dict[int, list[float]]] = {}
        for series, block, value in database.execute(
                "SELECT series, block, value FROM samples WHERE run = ? ORDER BY series, block, position", (number,)):
            samples.setdefault(series, {}).setdefault(block, []).append(_number(value))
        try:
            return Run(kind, name, id_, session, started, seconds, status, blocks, json.loads(settings), metrics,
                       {series: list(found.values()) for series, found in samples.items()}, json.loads(facts))
        except ValueError as error:
            raise StoreError(f"{self.path} is damaged: run {id_}: {error}") from None

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        if not self.path.is_file():
            raise StoreError(f"there is no store of runs at {self.path}: `bench --record` makes one, or say which with "
                             "--store or NGRAPH_RUNS")
        with self._explained(), FORMAT.reading(self.path) as database:
            yield database

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raises StoreError for whatever SQLite raises."""
        try:
            yield
        except FormatError as error:
            raise StoreError(f"{self.path} is no store of runs of this package: {error}") from None
        except sqlite3.OperationalError as error:
            raise StoreError(f"{self.path} can't be used as a store of runs: {error}") from None
        except sqlite3.IntegrityError as error:
            raise StoreError(f"{self.path}: the run can't be added: {error}") from None
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self.path} is damaged, or no store of runs: {error}; move it away to begin a new one"
                             ) from None


def _number(value: float | None) -> float:
    """SQLite keeps NaN as NULL."""
    return math.nan if value is None else value


NOT_RECORDED = ("NGRAPH_RUNS",)
"""Says where a run is recorded, which does not matter to it."""
PACKAGES = ("mxnet", "numpy", "onnx", "numba", "llvmlite", "onnxruntime", "openvino", "torch", "tensorflow")
_PACKAGE = Path(__file__).parents[2]


def collect(command: Sequence[str]) -> dict[str, Any]:
    """All of it, as plain data. `command`: what runs the program again with a Python in front: a script and its
    arguments, or -m and a module."""
    return {
        "command": list(command), "folder": os.getcwd(), "variables": variables(os.environ),
        "threads": config.threads(), "affinity": sorted(os.sched_getaffinity(0)), "machine": machine(),
        "load": os.getloadavg()[0], "python": platform.python_version(),
        "packages": {"ngraph-mxnet-backend": __version__, **versions_of(PACKAGES)}, "source": source(_PACKAGE),
    }


def own_command() -> list[str]:
    return list(sys.argv)


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that matter to a measurement."""
    return {name: value for name, value in settings_in(environment).items() if name not in NOT_RECORDED}


def machine(root: Path = ROOT) -> dict[str, Any]:
    """CPU with its flags, number of CPUs, frequency governor and system; `root` holds `proc` and `sys`."""
    try:
        fields = cpu_info(root)
    except OSError:
        fields = {}
    try:
        governor = (root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").read_text().strip()
    except OSError:
        governor = None  # as in most virtual machines
    return {"cpu": fields.get("model name", platform.machine()), "family": fields.get("cpu family"),
            "model": fields.get("model"), "flags": fields.get("flags", "").split(), "cpus": os.cpu_count(),
            "governor": governor, "system": platform.platform()}


def source(folder: Path) -> dict[str, Any] | None:
    """Commit of the checkout that has this folder, and whether it was changed since; None if there is none."""
    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True,
                              timeout=20)
        return done.stdout.strip()

    try:
        if not git("ls-files", "--", "."):  # installed into a folder of somebody's checkout
            return None
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None


def differences(base: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the facts in which two runs differ, by dotted name. The load, which differs every time, is left out."""
    ours, theirs = (_flat("", {**one, "load": None}) for one in (base, new))
    return {name: (ours.get(name), theirs.get(name)) for name in sorted({*ours, *theirs})
            if ours.get(name) != theirs.get(name)}


def _flat(prefix: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {prefix: value}
    return {name: found for key, inner in value.items()
            for name, found in _flat(f"{prefix}.{key}" if prefix else str(key), inner).items()}


class Recording:
    """Collects metrics and samples of a run in this process."""

    def __init__(self) -> None:
        self.metrics: dict[str, list[tuple[int, float]]] = {}
        self.samples: dict[str, list[float]] = {}

    def metric(self, name: str, value: float) -> None:
        """The next value of a metric, as an epoch's loss."""
        steps = self.metrics.setdefault(name, [])
        steps.append((len(steps), float(value)))

    def sample(self, series: str, value: float) -> None:
        """One more measurement of a series, as `latency_ms`."""
        self.samples.setdefault(series, []).append(float(value))


@contextmanager
def record(kind: str, name: str, settings: Mapping[str, Any], store: str | Path | None = None) -> Iterator[Recording]:
    """Record what happens within as a run, with status failed if it raises.

    Args:
        kind: the program, as `train_digits`.
        name: what it measures.
        settings: what JSON can hold; other values become text.
        store: the file; by default that of NGRAPH_RUNS, or the user's.

    Raises:
        StoreError: it can't be written.
    """
    found = collect(own_command())
    run = Run(kind, name, settings=plain(settings), facts=found)
    recording, status, start = Recording(), "failed", time.perf_counter()
    try:
        yield recording
        status = "finished"
    finally:
        Store(Path(store) if store is not None else default_path()).add(replace(
            run, seconds=time.perf_counter() - start, status=status, metrics=recording.metrics,
            samples={series: [block] for series, block in recording.samples.items()}))


def add_runs(store: Store, runs: Sequence[Run]) -> list[Run]:
    """Add runs of one session, of one call of a program. Returns them as they are in the store."""
    session = uuid.uuid4().hex
    added = [replace(run, session=session, settings=plain(run.settings)) for run in runs]
    for run in added:
        store.add(run)
    return added


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """With texts for what JSON can't hold; without what was not given."""
    given = {name: value for name, value in settings.items() if value not in (None, (), {})}
    found: dict[str, Any] = json.loads(json.dumps(given, default=str))
    return found


SAMPLES = "--samples"
"""The option by which a program measures in its own process alone and prints `samples` and `metrics` as JSON."""
_LINES = 5
"""The most lines shown of what a process printed before it failed."""


class ProgramError(NGraphError):
    """A program that was to be measured failed."""


def measured(wanted: Sequence[Run], processes: int, advance: Callable[[], None] = lambda: None) -> list[Run]:
    """Each of these runs anew, in so many processes: with its command, variables and affinity.

    The processes of one run come in turns with those of the others, each first equally often.

    Args:
        advance: called after each process.

    Raises:
        ProgramError: a process failed.
    """
    started, start = now(), time.perf_counter()
    answers: list[list[Mapping[str, Any]]] = [[] for _ in wanted]
    environments = [environment_of(run.facts) for run in wanted]
    for turn in range(processes):
        order = range(len(wanted)) if turn % 2 == 0 else reversed(range(len(wanted)))
        for index in order:
            answers[index].append(_answer(wanted[index].facts, environments[index]))
            advance()
    seconds = time.perf_counter() - start
    return [replace(Run(run.kind, run.name), started=started, seconds=seconds, blocks=PROCESS, settings=run.settings,
                    facts=_facts_now(run.facts), **_joined(found)) for run, found in zip(wanted, answers, strict=True)]


def environment_of(recorded: Mapping[str, Any]) -> dict[str, str]:
    """This process's environment, with a run's variables and none others of their kind."""
    return {**without_settings(os.environ), **recorded["variables"]}


def affinity_of(recorded: Mapping[str, Any]) -> set[int]:
    """The run's CPUs, where this process may use them all; else its own."""
    wanted, allowed = set(recorded["affinity"]), os.sched_getaffinity(0)
    return wanted if wanted <= allowed else allowed


def pinned(command: Sequence[str], recorded: Mapping[str, Any]) -> list[str]:
    """This Python with the command, on the run's CPUs."""
    code = ("import os, sys; os.sched_setaffinity(0, map(int, sys.argv[1].split(','))); "
            "os.execv(sys.argv[2], sys.argv[2:])")
    cpus = ",".join(map(str, sorted(affinity_of(recorded))))
    return [sys.executable, "-I", "-S", "-c", code, cpus, sys.executable, *command]


def _answer(recorded: Mapping[str, Any], environment: Mapping[str, str]) -> Mapping[str, Any]:
    command = [*recorded["command"], SAMPLES]
    if not Path(recorded["folder"]).is_dir():
        raise ProgramError(f"{' '.join(command)} ran in {recorded['folder']}, which is not there")
    done = subprocess.run(pinned(command, recorded), cwd=recorded["folder"], env=environment, capture_output=True,
                          text=True)
    if done.returncode:
        said = "\n".join((done.stderr.strip() or "it printed nothing").splitlines()[-_LINES:])
        raise ProgramError(f"{' '.join(command)} ended with status {done.returncode}: {said}")
    try:
        answer: Mapping[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return {"samples": dict(answer["samples"]), "metrics": dict(answer["metrics"])}
    except (IndexError, KeyError, TypeError, ValueError):
        raise ProgramError(f"{' '.join(command)} printed {done.stdout[-200:]!r}, expected samples as JSON") from None


def _joined(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A block for each process, and a step of each metric."""
    return {"samples": {series: [answer["samples"][series] for answer in answers] for series in answers[0]["samples"]},
            "metrics": {name: [(step, answer["metrics"][name]) for step, answer in enumerate(answers)]
                        for name in answers[0]["metrics"]}}


def _facts_now(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a run that was made anew. Command, folder, variables and threads are those recorded, and the
    affinity follows the recorded one. All else is collected now, since the recorded facts are of another time and
    another source."""
    kept = {name: recorded[name] for name in ("command", "folder", "variables", "threads")}
    return {**collect(recorded["command"]), **kept, "affinity": sorted(affinity_of(recorded))}


_BUSY = "print(flush=True)\nwhile True: pass"


@contextmanager
def busy_processes(count: int, cpus: Iterable[int] | None = None) -> Iterator[None]:
    """So many processes that compute all the time, on these CPUs, or those of this process. They have begun when the
    block does."""
    chosen = None if cpus is None else set(cpus)
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            started.append(subprocess.Popen([sys.executable, "-S", "-c", _BUSY], stdout=subprocess.PIPE))
        for process in started:
            if chosen is not None:
                os.sched_setaffinity(process.pid, chosen)
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
