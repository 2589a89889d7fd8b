"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import io
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

_TEMPORARY = ".tmp"


@contextmanager
def new_file(path: str | Path) -> Iterator[BinaryIO]:
    """A new file to write, which takes the place of an older one when the block ends, and is removed if that fails.

    Raises:
        OSError: it can't be written; `filename` is the path, so that it isn't taken for another file's error.
    """
    path = Path(path)
    with replacement(path) as temporary:
        with _errors_of(path):
            raw = _File(temporary, path)
        with io.BufferedWriter(raw) as file:
            yield file


@contextmanager
def replacement(path: Path) -> Iterator[Path]:
    """Yield the path where the block is to write a file. That file takes the place of an older one, as the file of
    `new_file` does.

    Raises:
        OSError: as `new_file`.
    """
    if path.exists() and not path.is_file():  # a device would be replaced by a file
        raise FileExistsError(errno.EEXIST, "expected a file or nothing there, found neither", str(path))
    temporary = path.with_name(f"{path.name}-{secrets.token_hex(8)}{_TEMPORARY}")
    try:
        yield temporary
        with _errors_of(path):
            os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


class _File(io.FileIO):
    """A new file, whose errors name another path: the one that it is to have."""

    def __init__(self, path: Path, named: Path) -> None:
        super().__init__(path, "x")
        self._named = named

    def write(self, data: Any, /) -> int:
        with _errors_of(self._named):
            return super().write(data)


def require_writable(path: str | Path) -> None:
    """Refuse a path where `new_file` could make none, before there is anything to write.

    Raises:
        OSError: its folder is missing, or can't be written to, or something else than a file is there.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "expected a file or nothing there, found neither", str(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"there is no folder {path.parent}", str(path))
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def write_file(path: str | Path, parts: Iterable[bytes]) -> None:
    """Write `parts` one after the other as `new_file` does. Raises OSError where it can't be written."""
    with new_file(path) as file:
        file.writelines(parts)
