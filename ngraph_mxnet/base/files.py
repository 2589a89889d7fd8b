"""Files that appear whole or not at all, and the numbers and texts in them."""

from __future__ import annotations

import errno
import io
import os
import secrets
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

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


ALIGNMENT = 64
"""The alignment, in bytes, of sections and of constants in DATA."""


def text_field(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack("<I", len(encoded)) + encoded


class FieldReader:
    """Reads them; what is missing raises struct.error or ValueError."""

    def __init__(self, content: memoryview) -> None:
        self._content, self._position = content, 0

    def numbers(self, form: str) -> tuple[Any, ...]:
        size = struct.calcsize("<" + form)
        return struct.unpack("<" + form, self.bytes(size))

    def number(self, form: str = "I") -> int:
        (found,) = self.numbers(form)
        return int(found)

    def many(self, least: int) -> int:
        """How many of something follow that takes at least so many bytes each."""
        found = self.number()
        if found * least > len(self._content) - self._position:
            raise ValueError(f"{found} of {least} bytes or more at {self._position} of {len(self._content)}")
        return found

    def bytes(self, size: int) -> memoryview:
        if size > len(self._content) - self._position:
            raise ValueError(f"it ends at {len(self._content)}, {size} bytes at {self._position} are missing")
        self._position += size
        return self._content[self._position - size:self._position]

    def text(self) -> str:
        return str(self.bytes(self.number()), "utf-8")


def constant_at(offset: int, size: int, data: memoryview) -> np.ndarray:
    """The bytes of a constant in DATA; ValueError if it lies outside."""
    if offset % ALIGNMENT or size > len(data) or offset > len(data) - size:
        raise ValueError(f"a constant of {size} bytes at {offset} of {len(data)}")
    return np.frombuffer(data, np.uint8, size, offset) if size else np.empty(0, np.uint8)
