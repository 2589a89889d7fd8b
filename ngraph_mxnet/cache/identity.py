"""What tells one build of this package from another, and one machine."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

from ngraph_mxnet import outside
from ngraph_mxnet.cache.store import get_or_make

PACKAGE = Path(__file__).parent.parent


def package_identity() -> str:
    """What tells this build of the package, and what was added to it, from others."""
    return digest_of_files() + outside.build()


@functools.cache
def digest_of_files() -> str:
    """A digest of the content of every module, library and table of the package.

    To read all of them takes as long as binding a small model, so the store keeps what was read. It is found by size,
    inode and the times of the last change to content and to the inode, the latter of which no program can set: files
    of equal size and modification time, as reproducible builds and unpacked archives have them, are told apart.
    """
    root = str(PACKAGE)
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
    """Those that this machine's CPU has, by name."""
    import ngraph_mxnet._core as _core

    return tuple(sorted(name for name, there in _core.cpu_features().items() if there))
