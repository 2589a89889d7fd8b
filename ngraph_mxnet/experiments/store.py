"""A run: what one program measured, and all that it depends on."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import statistics
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ngraph_mxnet import config
from ngraph_mxnet.append_only import Format, FormatError
from ngraph_mxnet.errors import NGraphError, listed

LATENCY = "latency_ms"
"""The series that is compared if no other is asked for."""
PROCESS, ROUND = "process", "round"
"""The origins of a block of samples: a process of its own, or a turn within one process."""

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
        """Return the median of all samples of the series; None if there are none."""
        found = [sample for block in self.samples.get(series, ()) for sample in block]
        return statistics.median(found) if found else None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


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
        """Write a run, and the file and its folder if they are not there.

        Raises:
            StoreError: it can't be written, or has the run already.
        """
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
        """All, the oldest first; of a kind, and whose name contains `name`.

        Raises:
            StoreError: there is no such file, or it can't be read.
        """
        with self._reading() as database:
            found = database.execute(f"SELECT number, {_COLUMNS} FROM runs ORDER BY number").fetchall()
            return [self._run(database, row) for row in found
                    if kind in (None, row[3]) and (name is None or name in row[4])]

    def find(self, wanted: str) -> Run:
        """A run by the first digits of its id, `last`, or `last~N`: N before the newest.

        Raises:
            StoreError: there is none, or several, or the file can't be read.
        """
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
