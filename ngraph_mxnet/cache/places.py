"""The identity of a build of this package and of a machine, and the places of cache entries."""

from __future__ import annotations

import functools
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from ngraph_mxnet import registry
from ngraph_mxnet.cache.store import Store, get_or_make, open_store

PACKAGE = Path(__file__).parent.parent


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
            content = Path(path).read_bytes()
            hasher.update(f"{path.removeprefix(root)} {len(content)}\n".encode() + content)
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


def place_for(kind: str, key: str, *, small: bool = False) -> Place | None:
    """The place of what is made for a `kind` and `key`; None where nothing is kept."""
    store = open_store() if not small or small_made.get(kind, 0) < MOST_SMALL else None
    return Place(store, kind, f"{package_identity()}\n{key}", small) if store is not None else None
