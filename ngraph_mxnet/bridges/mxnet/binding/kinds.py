"""What is compiled for the calls of a block, by their kind: signature and parameters' arrays."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

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
        self._made: OrderedDict[Hashable, Made] = OrderedDict()
        self._seen: Counter[Hashable] = Counter()
        self._count = 0

    def get(self, kind: Hashable) -> Made | None:
        """Raises TypeError for a kind that has no hash."""
        found = self._made.get(kind)
        if found is not None:
            self._made.move_to_end(kind)
        return found

    def is_due(self, kind: Hashable) -> bool:
        """Whether this call, of a kind that `get` does not find, is one to make something for."""
        self._seen[kind] += 1
        if self._seen[kind] > self._count // AT_ONCE:
            del self._seen[kind]
            return True
        if len(self._seen) > _MOST_SEEN:
            self._seen.clear()
        return False

    def put(self, kind: Hashable, made: Made) -> None:
        """What was made; it counts for what is due later, whatever it is."""
        self._count += 1
        while len(self._made) >= MOST_KINDS:
            self._made.popitem(last=False)
        self._made[kind] = made

    def values(self) -> list[Made]:
        """The one used longest ago first."""
        return list(self._made.values())
