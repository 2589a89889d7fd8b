"""The file of an audit: one SQLite database for all processes, in which rows are only added."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from ngraph_mxnet.append_only import Format
from ngraph_mxnet.errors import AuditError

NAME = "audit.sqlite"
HASH = "hash"
"""In a run's versions, that of its hashes: they are compared with those of the same version. Without one it is 1."""
_FORMAT = Format("rows of an audit", {
    "runs": "id INTEGER PRIMARY KEY, started REAL, host TEXT, process INTEGER, parent INTEGER, command TEXT, "
            "settings TEXT, versions TEXT",
    "graphs": "run INTEGER, id INTEGER, name TEXT, backend TEXT, digest TEXT, nodes INTEGER, constants INTEGER, "
              "prepared INTEGER, prepared_bytes INTEGER, peak_before INTEGER, PRIMARY KEY (run, id)",
    "tensors": "run INTEGER, graph INTEGER, place INTEGER, kind TEXT, name TEXT, node TEXT, element TEXT, shape TEXT, "
               "PRIMARY KEY (run, graph, place)",
    "calls": "run INTEGER, id INTEGER, graph INTEGER, number INTEGER, weights INTEGER, begin REAL, seconds REAL, "
             "thread INTEGER, PRIMARY KEY (run, id)",
    "checkpoints": "run INTEGER, id INTEGER, graph INTEGER, begin REAL, digest TEXT, tensors INTEGER, bytes INTEGER, "
                   "resident INTEGER, peak INTEGER, PRIMARY KEY (run, id)",
    "statistics": "run INTEGER, owner INTEGER, place INTEGER, min, max, mean REAL, norm REAL, nan INTEGER, "
                  "infinite INTEGER, zeros INTEGER, denormals INTEGER, hash BLOB, PRIMARY KEY (run, owner, place)",
    "losses": "run INTEGER, calls INTEGER",
}, application=0x6E674175, version=1)
"""`owner` is a call or a checkpoint: their ids are one sequence. `calls.weights`, `graphs.constants` are checkpoints.
"""


def location(path: str | Path) -> Path:
    """The file, of that or of its folder.

    Raises:
        AuditError: there is none.
    """
    found = Path(path).expanduser()
    found = found / NAME if found.is_dir() else found
    if not found.is_file():
        raise AuditError(f"there is no audit at {path}: expected a folder that NGRAPH_AUDIT named, or its {NAME}")
    return found


BATCH = 256 if sqlite3.sqlite_version_info >= (3, 32) else 64
"""Rows that one statement adds. Other threads of Python get their turn at each: beside a busy one, rows that are added
one by one take ten times as long. SQLite before 3.32 takes 999 values at most."""


def append(path: Path, rows: Mapping[str, Sequence[Sequence[Any]]],
           batches: Iterable[tuple[str, list[Any]]] = ()) -> None:
    """Add rows by table, all or none.

    Args:
        batches: further rows of a table, at most BATCH, as values one after the other.

    Raises:
        sqlite3.Error: the file can't be written to, or is none of ours.
    """
    with _FORMAT.adding(path) as database:
        for table, added in rows.items():
            for begin in range(0, len(added), BATCH):
                _insert(database, table, list(chain.from_iterable(added[begin:begin + BATCH])))
        for table, values in batches:
            _insert(database, table, values)


def new_run(path: Path, row: Sequence[Any]) -> int:
    """Add a run, without its id, which is returned. Raises as `append`."""
    with _FORMAT.adding(path) as database:
        marks = ", ".join("?" * len(row))
        run = database.execute(f"INSERT INTO runs VALUES (NULL, {marks})", row).lastrowid
    assert run is not None
    return run


def _insert(database: sqlite3.Connection, table: str, values: list[Any]) -> None:
    if values:
        database.execute(_insertion(table, len(values)), values)


@cache
def _insertion(table: str, values: int) -> str:
    columns = len(_columns(table))
    row = f"({', '.join('?' * columns)})"
    return f"INSERT INTO {table} VALUES {', '.join([row] * (values // columns))}"


def _columns(table: str) -> list[str]:
    found = _FORMAT.tables[table].partition(", PRIMARY KEY (")[0]
    return [column.split()[0] for column in found.split(", ")]


class Reader:
    """Rows of a file, as mappings by column."""

    def __init__(self, path: Path) -> None:
        """Raises AuditError: it is no audit of this format."""
        self.path = path
        with self._reading():
            pass

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            with _FORMAT.reading(self.path) as database:
                yield database
        except sqlite3.Error as error:
            raise AuditError(f"{self.path} is no audit of this package: {error}") from None

    def rows(self, table: str, where: Mapping[str, Any], order: str = "rowid") -> list[dict[str, Any]]:
        """Return the rows of `table` whose columns have the values in `where`, ordered by `order`."""
        conditions = " AND ".join(f"{column} = ?" for column in where) or "1"
        with self._reading() as database:
            database.row_factory = sqlite3.Row
            found: Iterable[sqlite3.Row] = database.execute(
                f"SELECT * FROM {table} WHERE {conditions} ORDER BY {order}", tuple(where.values()))
            return [dict(row) for row in found]

    def runs(self) -> list[dict[str, Any]]:
        """All, the first one first; settings and versions by name."""
        found = self.rows("runs", {}, "id")
        for row in found:
            row["settings"], row["versions"] = json.loads(row["settings"]), json.loads(row["versions"])
        return found
