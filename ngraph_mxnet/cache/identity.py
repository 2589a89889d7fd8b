"""What tells one build of this package from another, and one machine."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

import ngraph_mxnet


@functools.cache
def package_identity() -> str:
    """A digest of the name, size and modification time of every module and library of the package.

    The version alone would not do: while one works on the package it stays the same.
    """
    hasher = hashlib.sha256()
    root = str(Path(ngraph_mxnet.__file__).parent)
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            if name.endswith((".py", ".so")):
                status = os.stat(os.path.join(folder, name))
                hasher.update(f"{folder.removeprefix(root)}/{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return hasher.hexdigest()


def cpu_features() -> list[str]:
    """Those that this machine's CPU has, by name."""
    from ngraph_mxnet import _core

    return sorted(name for name, there in _core.cpu_features().items() if there)
