"""A folder of checked, immutable entries, shared by any number of processes.

An entry is a file `<kind>/<digest of the package's version and the key>`: a line that names the format, the SHA-256
of its key and content, the content. It appears by a rename, so nobody reads half of one; one that does not fit its
checksum is removed and counts as absent. Nothing is locked: two processes that make one entry make the same content.

The entries used longest ago go first when the folder outgrows its bound; a file's modification time is its last use.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ngraph_mxnet
from ngraph_mxnet import config

logger = config.logger(__name__)

_MAGIC = b"ngraph_mxnet cache 1\n"
_DIGEST_BYTES = 32
_TEMPORARY = ".tmp"
_STALE_SECONDS = 3600
"""Older temporary files are those of processes that died."""
_REFILL = 0.9
"""Share of the bound that a clean-up leaves."""


@dataclass(frozen=True)
class Entry:
    """One file; `used` is seconds since the epoch."""

    path: Path
    kind: str
    bytes: int
    used: float


class Store:
    """The entries below `root`, of at most `limit` bytes together. It never raises for what the disk does.

    A folder that can't be written to is read; what can't be read is absent.
    """

    def __init__(self, root: Path, limit: int) -> None:
        self.root = root
        self.limit = limit

    def get(self, kind: str, key: str) -> bytes | None:
        """The content of an entry, or None."""
        path = self._path(kind, key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        start = len(_MAGIC) + _DIGEST_BYTES
        content = data[start:]
        if data[:start] != _MAGIC + _digest(kind, key, content):
            logger.warning("%s is damaged: it is made anew", path)
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return content

    def put(self, kind: str, key: str, content: bytes) -> bool:
        """Keep `content`; False, with a line in the log, where the folder does not take it."""
        path = self._path(kind, key)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(_TEMPORARY, dir=path.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(_MAGIC + _digest(kind, key, content) + content)
                os.replace(name, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
        except OSError as error:
            logger.info("not kept in %s: %s", self.root, error)
            return False
        self.tidy()
        return True

    def stem(self, kind: str, key: str) -> str | None:
        """What the paths of entries begin with that somebody else writes; None where the folder can't be made.

        They too appear by a rename, from names that end in `.tmp`, and `tidy` is called after each.
        """
        path = self._path(kind, key)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            logger.info("not kept in %s: %s", self.root, error)
            return None
        return f"{path}-"

    def entries(self) -> list[Entry]:
        """All entries, the one used last first."""
        found = [
            Entry(path, path.parent.name, status.st_size, status.st_mtime)
            for path, status in self._files() if path.suffix != _TEMPORARY
        ]
        return sorted(found, key=lambda entry: (-entry.used, entry.path))

    def clear(self) -> int:
        """Remove all entries; how many there were."""
        removed = 0
        for path, _ in self._files():
            with contextlib.suppress(OSError):
                path.unlink()
                removed += path.suffix != _TEMPORARY
        return removed

    def _path(self, kind: str, key: str) -> Path:
        return self.root / kind / hashlib.sha256(f"{ngraph_mxnet.__version__}\n{key}".encode()).hexdigest()

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self.root.glob("*/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                if stat.S_ISREG(status.st_mode):
                    yield path, status

    def tidy(self) -> None:
        """Remove what processes that died left, and beyond the bound the entries used longest ago."""
        for path, status in list(self._files()):
            if path.suffix == _TEMPORARY and time.time() - status.st_mtime > _STALE_SECONDS:
                with contextlib.suppress(OSError):
                    path.unlink()
        entries = self.entries()
        total = sum(entry.bytes for entry in entries)
        if total <= self.limit:
            return
        for entry in reversed(entries):
            with contextlib.suppress(OSError):
                entry.path.unlink()
            total -= entry.bytes
            if total <= _REFILL * self.limit:
                return


def _digest(kind: str, key: str, content: bytes) -> bytes:
    hasher = hashlib.sha256()
    for part in (kind.encode(), key.encode(), content):
        hasher.update(len(part).to_bytes(8, "little") + part)
    return hasher.digest()


def open_store() -> Store | None:
    """The store of NGRAPH_CACHE_DIR and NGRAPH_CACHE_MB; None when it is off or not safe to read code from."""
    wanted = config.get("NGRAPH_CACHE_DIR")
    if wanted == "off":
        return None
    root = Path(wanted).expanduser() if wanted else _default_root()
    try:
        mode = root.stat().st_mode
    except OSError:
        mode = 0  # it is made when the first entry is kept
    if mode & stat.S_IWOTH:
        logger.warning("NGRAPH_CACHE_DIR: not used, as everyone may write to %s; make it your own: chmod o-w", root)
        return None
    return Store(root, config.get("NGRAPH_CACHE_MB") << 20)


def _default_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()) / "ngraph_mxnet"
