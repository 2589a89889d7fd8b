"""Folders and files that nobody but the user can write to, opened without following links."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

TEMPORARY = ".tmp"
"""How the names of files end that are being written."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UnsafeError(OSError):
    """Somebody else may have written what is found there, or may do so; the message says why, and what to do."""


@contextlib.contextmanager
def opened_folder(path: Path, parent: int | None = None, *, make: bool = False) -> Iterator[int]:
    """The descriptor of a folder of the user's own; `path` is a name in the folder `parent`, if given.

    Raises:
        UnsafeError: it is a link or no folder, belongs to somebody else, or others may write to it.
        OSError: whatever else the disk does, FileNotFoundError where there is none and `make` is not set.
    """
    if make:
        _make(path, parent)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except NotADirectoryError:
        kind = "a link: name the folder that it leads to" if _is_link(path, parent) else "no folder"
        raise UnsafeError(f"{path} is {kind}") from None
    try:
        _check(os.fstat(descriptor), path)
        yield descriptor
    finally:
        os.close(descriptor)


def read_file(name: str, folder: int) -> tuple[bytes, int]:
    """Content of a file in the folder, and its permissions; it counts as used now.

    Raises:
        UnsafeError: it is not a regular file of the user's own, or others may write to it.
        OSError: it can't be read.
    """
    # A pipe would block without O_NONBLOCK; on files it has no effect.
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with open(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnsafeError(f"{name} is no regular file")
        _check(status, Path(name))
        content = file.readall()
        with contextlib.suppress(OSError):
            os.utime(descriptor)
    return content, stat.S_IMODE(status.st_mode)


def write_file(name: str, folder: int, parts: Iterable[bytes], *, replace: bool = True) -> None:
    """Make a file that only the user can read; it appears whole or not at all.

    Raises:
        FileExistsError: it exists, and is not to be replaced.
        OSError: the folder does not take it.
    """
    temporary = f"{name}-{secrets.token_hex(8)}{TEMPORARY}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            file.writelines(parts)
        if replace:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        remove(temporary, folder)
        raise
    if not replace:
        remove(temporary, folder)


def remove(name: str, folder: int) -> bool:
    """Whether the file was there and is gone."""
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        return False
    return True


def _make(path: Path, parent: int | None) -> None:
    """The folder and those above it that are missing, for the user alone whatever the umask."""
    if parent is None and not path.parent.exists():
        _make(path.parent, None)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700, dir_fd=parent)


def _is_link(path: Path, parent: int | None) -> bool:
    return stat.S_ISLNK(os.stat(path, dir_fd=parent, follow_symlinks=False).st_mode)


def _check(status: os.stat_result, path: Path) -> None:
    if status.st_uid != os.geteuid():
        raise UnsafeError(f"{path} belongs to user {status.st_uid}, and this is user {os.geteuid()}")
    if status.st_mode & _OTHERS_WRITE:
        raise UnsafeError(f"others may write to {path} (mode {stat.S_IMODE(status.st_mode):o}); make it your own: "
                          f"remove what is in it, and chmod go-w")
