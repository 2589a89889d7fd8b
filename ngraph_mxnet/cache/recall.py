"""What this build of the package once made, from the folder or made anew."""

from __future__ import annotations

from collections.abc import Callable

from ngraph_mxnet.cache.identity import package_identity
from ngraph_mxnet.cache.store import open_store

MOST_SMALL = 64
"""Small entries of a kind that one process keeps. To look one up and keep it takes as long as making it: it pays where
the next process need not load the compiler, and not in a process that makes hundreds."""

small_made: dict[str, int] = {}
"""How many small entries of each kind this process has made."""


def recall_bytes(kind: str, key: str, make: Callable[[], bytes | None], *, small: bool = False) -> bytes | None:
    """What `make` gives, made once for a `kind` and `key`. None is not kept, and `small` says that it took no time."""
    store = open_store() if not small or small_made.get(kind, 0) < MOST_SMALL else None
    if store is None:
        return make()
    key = f"{package_identity()}\n{key}"
    content = store.get(kind, key)
    if content is None:
        content = make()
        if content is not None:
            if small:
                small_made[kind] = small_made.get(kind, 0) + 1
            store.put(kind, key, content)
    return content
