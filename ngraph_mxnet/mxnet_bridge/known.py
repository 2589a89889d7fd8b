"""What was once found out of a graph, by its digest: in memory for this process, on disk for the next ones."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ngraph_mxnet import config
from ngraph_mxnet.cache import place_for
from ngraph_mxnet.forks import ForkSafeLock

logger = config.logger(__name__)


class Memory:
    """A bounded, least-recently-used table, for all threads."""

    def __init__(self, size: int = 1024) -> None:
        self._size, self._lock = size, ForkSafeLock()
        self._found: OrderedDict[Any, Any] = OrderedDict()

    def get(self, key: Any) -> Any:
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
            return self._found.get(key)

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


memory = Memory()


SMALL_NODES = 16
"""A graph of so many nodes, variables too, is small: nothing that is found out of it takes long."""


def recall(kind: str, key: str, make: Callable[[], Any], nodes: int) -> Any:
    """What `make` gives, plain data that JSON has; made once for a `kind` and `key`, of a graph of so many nodes. None
    is not remembered."""
    found = memory.get((kind, key))
    if found is None:
        place = place_for(kind, key, small=nodes <= SMALL_NODES)
        content = place.get() if place is not None else None
        found = make() if content is None else json.loads(content)
        if found is None:
            return None
        if content is None and place is not None:
            place.put(json.dumps(found).encode())
        memory.put((kind, key), found)
    return found
