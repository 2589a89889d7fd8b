"""Where the folder has, or may get, what this build of the package makes; whoever asks may turn down what is there."""

from __future__ import annotations

from dataclasses import dataclass

from ngraph_mxnet.cache.identity import package_identity
from ngraph_mxnet.cache.store import Store, open_store

MOST_SMALL = 64
"""Small entries of a kind that one process keeps. To look one up and keep it takes as long as making it: it pays where
the next process need not load the compiler, and not in a process that makes hundreds."""

small_made: dict[str, int] = {}
"""How many small entries of each kind this process has made."""


@dataclass(frozen=True)
class Place:
    """Where the folder keeps, or may keep, one thing. `small` says that it takes no time to make."""

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
