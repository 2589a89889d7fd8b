"""What is compiled for the calls of a block, by their kind: signature and parameters' arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from ngraph_mxnet.recent import Recent

MOST_KINDS = 16
"""Kept of one block. Beyond, the one used longest ago is forgotten."""
AT_ONCE = 4
"""So many kinds are compiled at their first call, the next so many at their second, and so on: compiling takes as long
as some steps, and of sentences of all lengths most are rare."""
_MOST_SEEN = 1024

Made = TypeVar("Made")


class Kinds(Generic[Made]):
    """What was made for each kind that is worth it. What is due depends on the calls alone, not on time, so that a
    program computes the same in each run."""

    def __init__(self) -> None:
        self._made = Recent(MOST_KINDS)
        self._seen: Counter[Hashable] = Counter()
        self._count = 0

    def get_or_make(self, kind: Hashable, make: Callable[[], Made]) -> Made | None:
        """What `make` gives for this kind; None where it is not due. It counts for what is due later, whatever it is.

        Raises:
            TypeError: the kind has no hash.
        """
        found: Made | None = self._made.get(kind)
        if found is None and self._is_due(kind):
            self._count += 1
            found = make()
            self._made.put(kind, found)
        return found

    def replace(self, kind: Hashable, made: Made) -> None:
        """From now on this is what was made for the kind."""
        self._made.put(kind, made)

    def _is_due(self, kind: Hashable) -> bool:
        self._seen[kind] += 1
        if self._seen[kind] > self._count // AT_ONCE:
            del self._seen[kind]
            return True
        if len(self._seen) > _MOST_SEEN:
            self._seen.clear()
        return False

    def values(self) -> list[Made]:
        """The one used longest ago first."""
        return self._made.values()
