"""Additions of other distributions to this package's tables: rules, lowerings, kernels, devices.

What is kept on disk is found by the content of this package's files. Nobody knows all the files of what was added, so a
process to which something was added finds nothing that another process kept, and no other finds what it keeps.
"""

from __future__ import annotations

import functools
import secrets
from typing import Any

_OWN = __name__.partition(".")[0]
_added: list[str] = []
"""The modules that added something, and folders."""


def is_outside(function: Any) -> bool:
    """True if a module of another distribution defines the function. A `partial` counts as the function that it
    wraps."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__module__", _OWN)).partition(".")[0] != _OWN


def note(added: Any) -> None:
    """Whoever fills a table tells of each function, or of the name of a folder with data; a function of this package
    does not count."""
    if isinstance(added, str) or is_outside(added):
        _added.append(added if isinstance(added, str) else added.__module__)


@functools.cache
def this_process() -> str:
    """A word that no other process has."""
    return secrets.token_hex(8)


def build() -> str:
    """Belongs to every key of what is kept on disk: empty unless something was added."""
    return this_process() if _added else ""
