"""A table of what is compiled for the calls of a block, by their kind: signature and parameters' arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from ngraph_mxnet.recent import Recent

MOST_KINDS = 256
"""Kept of one block. Beyond, the one used longest ago is forgotten."""
MOST_BYTES = 256 << 20
"""The most bytes that the steps of a block's kinds save, each step counted once. Beyond, the kinds used longest ago are
forgotten."""
AS_LARGE = 16
"""So many kinds as large as the largest are kept, whatever they save."""
AT_ONCE = 4
"""So many kinds are compiled at their first call, the next so many at their second, and all others at their third:
compiling takes as long as some steps, and of sentences of all lengths many are rare. Kinds that only bind what was
compiled for a range of sizes don't count."""
_LATEST = 3
_MOST_SEEN = 1024

Made = TypeVar("Made")


class Kinds(Generic[Made]):
    """A table of what was made for each kind of call that is worth it. The calls alone, not time, decide which kind is
    due. So a program computes the same in each run."""

    def __init__(self, bytes_of: Callable[[Made], int], was_compiled: Callable[[Made], bool]) -> None:
        """
        Args:
            bytes_of: what a step of what was made saves.
            was_compiled: whether making it took as long as compiling does.
        """
        self._made, self._bytes_of, self._was_compiled = Recent(MOST_KINDS), bytes_of, was_compiled
        self._seen: Counter[Hashable] = Counter()
        self._count = 0

    def get_or_make(self, kind: Hashable, make: Callable[[], Made]) -> Made | None:
        """Return the result of `make` for this kind, or None where the kind is not due. A result counts for
        what is due later if making it took as long as compiling does.

        Raises:
            TypeError: the kind has no hash.
        """
        found: Made | None = self._made.get(kind)
        if found is None and self._is_due(kind):
            found = make()
            self._count += self._was_compiled(found)
            self.put(kind, found)
        return found

    def put(self, kind: Hashable, made: Made) -> None:
        """From now on this is what was made for the kind."""
        self._made.put(kind, made)
        sizes = list(map(self._bytes_of, self.values()))
        most = max(MOST_BYTES, AS_LARGE * max(sizes))
        while sum(sizes) > most:
            del sizes[0]
            self._made.drop_oldest()

    def _is_due(self, kind: Hashable) -> bool:
        self._seen[kind] += 1
        if self._seen[kind] > min(self._count // AT_ONCE, _LATEST - 1):
            del self._seen[kind]
            return True
        if len(self._seen) > _MOST_SEEN:
            self._seen.clear()
        return False

    def values(self) -> list[Made]:
        """The one used longest ago first."""
        return self._made.values()
