"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_TEMPORARY = ".tmp"


@contextmanager
def new_file(path: str | Path) -> Iterator[BinaryIO]:
    """A new file to write, which takes the place of an older one when the block ends, and is removed if that fails.

    Raises:
        OSError: it can't be written.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}-{secrets.token_hex(8)}{_TEMPORARY}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def write_file(path: str | Path, parts: Iterable[bytes]) -> None:
    """Write `parts` one after the other as `new_file` does. Raises OSError where it can't be written."""
    with new_file(path) as file:
        file.writelines(parts)
