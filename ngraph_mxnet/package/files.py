"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_TEMPORARY = ".tmp"


def write_file(path: str | Path, parts: Iterable[bytes]) -> None:
    """Write `parts` one after the other into a new file, which then takes the place of an older one.

    Raises:
        OSError: it can't be written.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}-{secrets.token_hex(8)}{_TEMPORARY}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.writelines(parts)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
