"""Files that a command writes: whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click


def write_whole(path: Path, text: str) -> None:
    """Into a new file beside it first, so that nobody finds half of it, and an older one stays if that fails. A pipe
    is written to as it is, and so is whatever else is no file.

    Raises:
        ClickException: it can't be written.
    """
    path, temporary = Path(os.path.realpath(path)), None
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
            return
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp's own is for the user alone
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise click.ClickException(f"{path}: {error.strerror}") from None


def _umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found
