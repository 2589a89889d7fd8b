"""The file of an audit: one SQLite database for all processes, in which rows are only added.

Each connection is opened for one transaction: a forked child has none of its parent's.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ngraph_mxnet.errors import AuditError

NAME = "audit.sqlite"
_FORMAT = 1
_PATIENCE = 60.0
"""Seconds to wait for other processes."""

_TABLES = {
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
}
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


@contextmanager
def _opened(path: str, *, uri: bool = False) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, uri=uri)) as connection:
        yield connection


def append(path: Path, rows: Mapping[str, Sequence[Sequence[Any]]]) -> None:
    """Add rows by table, all or none.

    Raises:
        sqlite3.Error: the file can't be written to, or is none of ours.
    """
    with _opened(str(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        _create(connection)
        for table, added in rows.items():
            _insert(connection, table, added)
        connection.execute("COMMIT")


def new_run(path: Path, row: Sequence[Any]) -> int:
    """Add a run, without its id, which is returned. Raises as `append`."""
    with _opened(str(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        _create(connection)
        marks = ", ".join("?" * len(row))
        run = connection.execute(f"INSERT INTO runs VALUES (NULL, {marks})", row).lastrowid
        connection.execute("COMMIT")
    assert run is not None
    return run


def _create(connection: sqlite3.Connection) -> None:
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found == _FORMAT:
        return
    if found or connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise sqlite3.DatabaseError(f"the file is of another format: found version {found}, expected {_FORMAT}")
    for table, columns in _TABLES.items():
        connection.execute(f"CREATE TABLE {table} ({columns})")
        for change in ("UPDATE", "DELETE"):
            connection.execute(f"CREATE TRIGGER {table}_{change} BEFORE {change} ON {table} "
                               "BEGIN SELECT RAISE(ABORT, 'rows of an audit are only added'); END")
    connection.execute(f"PRAGMA user_version = {_FORMAT}")


def _insert(connection: sqlite3.Connection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    if rows:
        connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)


class Reader:
    """Rows of a file, as mappings by column."""

    def __init__(self, path: Path) -> None:
        """Raises AuditError: it is no audit of this format."""
        self.path = path
        try:
            with _opened(f"{path.absolute().as_uri()}?mode=ro", uri=True) as connection:
                (version,) = connection.execute("PRAGMA user_version").fetchone()
        except sqlite3.Error as error:
            raise AuditError(f"{path} is no audit: {error}") from None
        if version != _FORMAT:
            raise AuditError(f"{path} is no audit of this package: found version {version}, expected {_FORMAT}")

    def rows(self, table: str, where: Mapping[str, Any], order: str = "rowid") -> list[dict[str, Any]]:
        """Those with these values, in this order."""
        conditions = " AND ".join(f"{column} = ?" for column in where) or "1"
        try:
            with _opened(f"{self.path.absolute().as_uri()}?mode=ro", uri=True) as connection:
                connection.row_factory = sqlite3.Row
                found: Iterable[sqlite3.Row] = connection.execute(
                    f"SELECT * FROM {table} WHERE {conditions} ORDER BY {order}", tuple(where.values()))
                return [dict(row) for row in found]
        except sqlite3.Error as error:
            raise AuditError(f"{self.path} can't be read: {error}") from None

    def runs(self) -> list[dict[str, Any]]:
        """All, the first one first; settings and versions by name."""
        found = self.rows("runs", {}, "id")
        for row in found:
            row["settings"], row["versions"] = json.loads(row["settings"]), json.loads(row["versions"])
        return found
