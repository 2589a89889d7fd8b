"""A cache, in memory, of what this process once found or made."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from ngraph_mxnet.forks import ForkSafeLock


class Recent:
    """A bounded, least-recently-used table, for all threads."""

    def __init__(self, size: int) -> None:
        self._size, self._lock = size, ForkSafeLock()
        self._found: OrderedDict[Any, Any] = OrderedDict()

    def get(self, key: Any) -> Any:
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def take(self, key: Any) -> Any:
        """`get`, once."""
        with self._lock:
            return self._found.pop(key, None)

    def put(self, key: Any, found: Any) -> None:
        with self._lock:
            self._found[key] = found
            self._found.move_to_end(key)
            if len(self._found) > self._size:
                self._found.popitem(last=False)

    def drop_oldest(self) -> None:
        """Forgets the one used longest ago."""
        with self._lock:
            if self._found:
                self._found.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._found.clear()

    def values(self) -> list[Any]:
        """The one used longest ago first."""
        with self._lock:
            return list(self._found.values())
