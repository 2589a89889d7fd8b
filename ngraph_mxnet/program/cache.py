"""The cache that outlives the process: programs, generated code and measurements, in files of a bounded folder.

Folders and files are such as nobody but the user can write to, and opened without following links. A key holds all
that an entry's content depends on; `place_for` adds what tells this build of the package from others.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ngraph_mxnet.base import config, registry
from ngraph_mxnet.base.version import __version__

logger = config.logger(__name__)

TEMPORARY = ".tmp"
"""How the names of files end that are being written."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MAGIC = b"ngraph_mxnet cache 2\n"
_DIGEST_BYTES = 32
_KEY, _SIZES = "key", "sizes"
_KEY_BYTES = 32
_NAME = re.compile(rf"[0-9a-f]{{64}}[-0-9A-Za-z]*({re.escape(TEMPORARY)})?")
"""Names of entries and of their temporary files. Nothing else in the folder is ours to remove."""
_STALE_SECONDS = 3600
"""Older temporary files are those of processes that died."""
_MOST_ENTRIES = 8192
_REFILL = 0.9
"""Share of the bounds that a clean-up leaves."""

_Made = TypeVar("_Made", bound="bytes | None")


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
    """Remove the file. Return True if the file was there and is gone."""
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


@dataclass(frozen=True)
class Entry:
    """One file; `used` is seconds since the epoch."""

    path: Path
    kind: str
    bytes: int
    used: float

    @property
    def is_temporary(self) -> bool:
        return self.path.suffix == TEMPORARY


class Store:
    """The entries below `root`, of at most `limit` bytes together. It never raises for what the disk does.

    A folder that can't be written to is read; what can't be read is absent. A folder, or a file in it, that somebody
    else could have written is not used, which is told once.
    """

    def __init__(self, root: Path, limit: int, most_entries: int = _MOST_ENTRIES) -> None:
        self.root = root
        self.limit = limit
        self.most_entries = most_entries

    def get(self, kind: str, key: str) -> bytes | None:
        """The content of an entry, or None."""
        name = _name(key)
        try:
            with opened_folder(self.root) as root, opened_folder(Path(kind), root) as folder:
                data, _ = read_file(name, folder)
                secret = _secret(root)
                start = len(_MAGIC) + _DIGEST_BYTES
                content = data[start:]
                if secret and hmac.compare_digest(data[:start], _MAGIC + _digest(secret, kind, key, content)):
                    return content
                logger.warning("%s is damaged, or was not written by this cache: it is made anew",
                               self.root / kind / name)
                remove(name, folder)
        except OSError as error:
            self._log_unsafe(error)
        return None

    def put(self, kind: str, key: str, content: bytes) -> bool:
        """Keep `content`; False, with a line in the log, where the folder does not take it."""
        if not self.fits(kind, len(content)):
            return False
        try:
            with opened_folder(self.root, make=True) as root, opened_folder(Path(kind), root, make=True) as folder:
                secret = _secret(root, make=True)
                write_file(_name(key), folder, (_MAGIC, _digest(secret, kind, key, content), content))
                in_bounds = self._count(root, len(_MAGIC) + _DIGEST_BYTES + len(content))
        except OSError as error:
            self._not_kept(error)
            return False
        if not in_bounds:
            self.tidy()
        return True

    def fits(self, kind: str, size: int) -> bool:
        """True if one entry of `size` bytes can be kept at all. A larger entry would drive out all others, and then
        itself."""
        if size + len(_MAGIC) + _DIGEST_BYTES <= self.limit:
            return True
        log_once(logging.WARNING, f"NGRAPH_CACHE_MB: what is larger than {self.limit >> 20} MiB, all that {self.root} "
                                   f"may hold, is not kept: {kind}, {size / 2**20:.1f} MiB")
        return False

    def stem(self, kind: str, key: str) -> str | None:
        """Return the beginning of the paths of entries that other code writes; None where the folder can't be made.

        Those entries too appear by a rename, from names that end in `.tmp`, and `tidy` is called after each.
        `derived_key` is for the code that authenticates the entries.
        """
        try:
            with opened_folder(self.root, make=True) as root, opened_folder(Path(kind), root, make=True):
                return f"{self.root.absolute() / kind / _name(key)}-"
        except OSError as error:
            self._not_kept(error)
            return None

    def derived_key(self, purpose: str, size: int) -> bytes | None:
        """`size` secret bytes that are the same in all processes which use this folder; None where it keeps none."""
        try:
            with opened_folder(self.root, make=True) as root:
                return hashlib.shake_256(purpose.encode() + b"\0" + _secret(root, make=True)).digest(size)
        except OSError as error:
            self._not_kept(error)
            return None

    def entries(self) -> list[Entry]:
        """All entries, the one used last first."""
        found = (entry for entry in self._files() if not entry.is_temporary)
        return sorted(found, key=lambda entry: (-entry.used, entry.path))

    def clear(self) -> int:
        """Remove all entries; how many there were."""
        removed = 0
        for entry in self._files():
            with contextlib.suppress(OSError):
                entry.path.unlink()
                removed += not entry.is_temporary
        with contextlib.suppress(OSError), opened_folder(self.root) as root:
            remove(_SIZES, root)
        return removed

    def tidy(self) -> None:
        """Remove what processes that died left, what is larger than the bound, and beyond the bounds the entries used
        longest ago."""
        entries: list[Entry] = []
        for entry in self._files():
            if entry.bytes > self.limit or (entry.is_temporary and time.time() - entry.used > _STALE_SECONDS):
                with contextlib.suppress(OSError):
                    entry.path.unlink()
            elif not entry.is_temporary:
                entries.append(entry)
        total = sum(entry.bytes for entry in entries)
        if total > self.limit or len(entries) > self.most_entries:
            entries.sort(key=lambda entry: -entry.used)
            while entries and (total > _REFILL * self.limit or len(entries) > _REFILL * self.most_entries):
                entry = entries.pop()
                with contextlib.suppress(OSError):
                    entry.path.unlink()
                total -= entry.bytes
        with contextlib.suppress(OSError), opened_folder(self.root) as root:
            write_file(_SIZES, root, [struct.pack("<2Q", len(entries), total)])

    def is_safe(self) -> bool:
        """True if nobody else can have written the content of the folder, so far as the folder's permissions tell."""
        try:
            with opened_folder(self.root):
                return True
        except UnsafeError as error:
            self._log_unsafe(error)
            return False
        except OSError:
            return True  # it is made when the first entry is kept

    def _count(self, root: int, size: int) -> bool:
        """Note an entry; whether the folder is in its bounds, so far as the notes tell."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(_SIZES, flags, 0o600, dir_fd=root), "rb+", buffering=0) as file:
            fresh = os.fstat(file.fileno()).st_size == 0
            file.write(struct.pack("<Q", size))
            file.seek(0)
            noted = file.readall()
        if fresh or len(noted) % 8 or len(noted) < 24:
            return False
        count, total, *sizes = struct.unpack(f"<{len(noted) // 8}Q", noted)
        return count + len(sizes) <= self.most_entries and total + sum(sizes) <= self.limit

    def _files(self) -> Iterator[Entry]:
        """Yield the cache's own files, temporary ones included."""
        try:
            with opened_folder(self.root) as root, os.scandir(root) as kinds:
                for kind in kinds:
                    if kind.is_dir(follow_symlinks=False):
                        yield from self._files_of(kind.name, root)
        except OSError as error:
            self._log_unsafe(error)

    def _files_of(self, kind: str, root: int) -> Iterator[Entry]:
        with contextlib.suppress(OSError), opened_folder(Path(kind), root) as folder, os.scandir(folder) as files:
            for file in files:
                with contextlib.suppress(OSError):
                    status = file.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and _NAME.fullmatch(file.name):
                        yield Entry(self.root / kind / file.name, kind, status.st_size, status.st_mtime)

    def _not_kept(self, error: OSError) -> None:
        self._log_unsafe(error)
        if not isinstance(error, UnsafeError) and config.get("NGRAPH_CACHE_DIR"):  # the user's choice
            log_once(logging.WARNING, f"NGRAPH_CACHE_DIR: {self.root} does not take what is to be kept: {error}")
        logger.info("not kept in %s: %s", self.root, error)

    def _log_unsafe(self, error: OSError) -> None:
        if isinstance(error, UnsafeError):
            log_once(logging.WARNING, f"NGRAPH_CACHE_DIR: {self.root} is not used: {error}")


_logged: set[str] = set()


def log_once(level: int, message: str) -> None:
    """Log it, unless this process did."""
    if message not in _logged:
        _logged.add(message)
        logger.log(level, "%s", message)


def _name(key: str) -> str:
    return hashlib.sha256(_MAGIC + f"{__version__}\n{key}".encode()).hexdigest()


def _digest(secret: bytes, kind: str, key: str, content: bytes) -> bytes:
    hasher = hashlib.blake2b(key=secret, digest_size=_DIGEST_BYTES)
    for part in (kind.encode(), key.encode(), content):
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.digest()


def _secret(root: int, *, make: bool = False) -> bytes:
    """The folder's key, made at random if there is none; of no bytes where there is none and it is not to be made.

    Raises:
        UnsafeError: others may read it.
        OSError: it can't be read or made.
    """
    for _ in range(2):
        with contextlib.suppress(FileNotFoundError):
            secret, mode = read_file(_KEY, root)
            if mode & 0o077:
                raise UnsafeError(f"others may read its file {_KEY!r} (mode {mode:o}): remove it")
            if len(secret) == _KEY_BYTES:
                return secret
            remove(_KEY, root)  # it appeared whole, and was damaged since
        if not make:
            return b""
        # Of several processes the first one's is everybody's.
        with contextlib.suppress(FileExistsError):
            write_file(_KEY, root, [secrets.token_bytes(_KEY_BYTES)], replace=False)
    raise OSError(f"its file {_KEY!r} can't be made")


def wanted_folder() -> Path | None:
    """The folder that NGRAPH_CACHE_DIR names; None when it is off.

    Raises:
        RuntimeError: it is below a home folder that this user does not have.
    """
    wanted = config.get("NGRAPH_CACHE_DIR")
    if wanted == "off":
        return None
    return Path(wanted).expanduser() if wanted else _default_root()


def _default_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()) / "ngraph_mxnet"


def open_store() -> Store | None:
    """The store of NGRAPH_CACHE_DIR and NGRAPH_CACHE_MB; None when it is off, not safe to read code from, or below a
    home folder that this user does not have."""
    try:
        root = wanted_folder()
    except RuntimeError as error:
        log_once(logging.WARNING, f"nothing is kept on disk: {error}; NGRAPH_CACHE_DIR may name a folder")
        return None
    store = Store(root, config.get("NGRAPH_CACHE_MB") << 20) if root is not None else None
    return store if store is not None and store.is_safe() else None


PACKAGE = Path(__file__).parents[1]


def package_identity() -> str:
    """Return a text that tells this build of the package, with what was added to the package, from others."""
    return digest_of_files() + registry.outside_build()


@functools.cache
def digest_of_files(package: Path = PACKAGE) -> str:
    """A digest of the content of every module, library and table of the package, which is in this folder.

    To read all of them takes as long as binding a small model, so the store keeps what was read. It is found by size,
    inode and the times of the last change to content and to the inode, the latter of which no program can set: files
    of equal size and modification time, as reproducible builds and unpacked archives have them, are told apart.
    """
    root = str(package)
    files, statuses = [], []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            if name.endswith((".py", ".so", ".json")):
                path = os.path.join(folder, name)
                status = os.stat(path)
                files.append(path)
                statuses.append((path, status.st_size, status.st_dev, status.st_ino, status.st_mtime_ns,
                                 status.st_ctime_ns))

    def read() -> bytes:
        hasher = hashlib.blake2b(digest_size=32)
        for path in files:
            with open(path, "rb", buffering=0) as file:
                content = file.read()
            hasher.update(f"{path.removeprefix(root)} {len(content)}\n".encode())
            hasher.update(content)
        return hasher.hexdigest().encode()

    return get_or_make("identity", repr(statuses), read).decode()


@functools.cache
def cpu_features() -> tuple[str, ...]:
    """Return the names of the features that this machine's CPU has."""
    import ngraph_mxnet._core as _core

    return tuple(sorted(name for name, there in _core.cpu_features().items() if there))


MOST_SMALL = 64
"""Small entries of a kind that one process keeps. To look one up and keep it takes as long as making it: it pays where
the next process need not load the compiler, and not in a process that makes hundreds."""

small_made: dict[str, int] = {}
"""How many small entries of each kind this process has made."""


@dataclass(frozen=True)
class Place:
    """The place in the folder where one thing is kept, or may be kept. `small` says that the thing takes no time to
    make."""

    store: Store
    kind: str
    key: str
    small: bool

    def get(self) -> bytes | None:
        return self.store.get(self.kind, self.key)

    def put(self, content: bytes | None) -> None:
        """Keep the content, unless it is None."""
        if content is not None:
            if self.small:
                small_made[self.kind] = small_made.get(self.kind, 0) + 1
            self.store.put(self.kind, self.key, content)


def place_for(kind: str, key: str, *, small: bool = False, of_build: bool = True) -> Place | None:
    """The place of what is made for a `kind` and `key`; None where nothing is kept. `of_build`: it depends on this
    build of the package, too."""
    store = open_store() if not small or small_made.get(kind, 0) < MOST_SMALL else None
    if store is None:
        return None
    return Place(store, kind, f"{package_identity()}\n{key}" if of_build else key, small)


def get_or_make(kind: str, key: str, make: Callable[[], _Made], *, small: bool = False,
                of_build: bool = False) -> bytes | _Made:
    """The entry of a `kind` and `key`, which hold all that its content depends on, or what `make` gives.

    What was made is put, unless it is None. Where there is no store it is made in every process.
    """
    place = place_for(kind, key, small=small, of_build=of_build)
    entry = place.get() if place is not None else None
    if entry is not None:
        return entry
    made = make()
    if place is not None:
        place.put(made)
    return made
