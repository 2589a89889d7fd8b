"""SQLite files to which rows are only added, by several processes at once if need be.

SQLite's usual journal is used and not its write-ahead log, which is faster but makes two more files and needs shared
memory, so that a file could not lie on a network's file system. A connection is opened for each transaction, so that a
forked child has none of its parent's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 60.0
"""How long a process waits for others that write."""


class FormatError(sqlite3.DatabaseError):
    """The file is another program's, or of another version; the text says what was found and expected."""


@dataclass(frozen=True)
class Format:
    """The format of one kind of SQLite file.

    Attributes:
        rows: the name of its rows in messages.
        tables: the columns of each table, in SQL.
        application: SQLite's application id, by which files are told apart.
        version: the version of the tables.
    """

    rows: str
    tables: Mapping[str, str]
    application: int
    version: int

    @contextmanager
    def adding(self, path: Path) -> Iterator[sqlite3.Connection]:
        """A transaction, of which there is all or nothing. The tables are made where the file is new or empty.

        Raises:
            FormatError: it is none of this format.
            sqlite3.Error: it can't be written to, or is damaged.
        """
        with _opened(path, "rwc") as database:
            database.execute("BEGIN IMMEDIATE")  # before anything is read: of two that find an empty file one waits
            try:
                if database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                    self._make(database)
                else:
                    self._check(database)
                yield database
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:  # SQLite ends it itself after some errors, as of a full disk
                    database.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self, path: Path) -> Iterator[sqlite3.Connection]:
        """Open a read transaction, in which all reads see one moment. Raises the errors of `adding`."""
        with _opened(path, "ro") as database:
            self._check(database)
            database.execute("BEGIN")
            yield database

    def _make(self, database: sqlite3.Connection) -> None:
        for table, columns in self.tables.items():
            database.execute(f"CREATE TABLE {table} ({columns})")
            for change in ("UPDATE", "DELETE"):
                database.execute(f"CREATE TRIGGER {table}_{change.lower()} BEFORE {change} ON {table} "
                                 f"BEGIN SELECT RAISE(ABORT, '{self.rows} are only added'); END")
        database.execute(f"PRAGMA application_id = {self.application}")
        database.execute(f"PRAGMA user_version = {self.version}")

    def _check(self, database: sqlite3.Connection) -> None:
        (application,), (version,) = (database.execute(f"PRAGMA {name}").fetchone()
                                      for name in ("application_id", "user_version"))
        if application != self.application:
            raise FormatError("it is another program's SQLite file, or empty")
        if version != self.version:
            raise FormatError(f"found version {version} of its tables, expected {self.version}")


@contextmanager
def _opened(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    address = f"{path.absolute().as_uri()}?mode={mode}"
    with closing(sqlite3.connect(address, timeout=_SECONDS, isolation_level=None, uri=True)) as database:
        database.execute("PRAGMA foreign_keys = ON")
        yield database
