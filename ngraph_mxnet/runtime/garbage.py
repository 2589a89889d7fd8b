"""The cyclic garbage collector during a compilation."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_pausing: dict[int, int] = {}
"""How deep each thread is in `collector_paused`, of those that keep the collector off. Changed with the GIL only."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """No collection within it: a graph under work is all alive, and walking it over and over takes a fifth of the time.

    For the whole process, until the last of several threads leaves.
    """
    if not _pausing and not gc.isenabled():  # who turned it off keeps it off
        yield
        return
    thread = threading.get_ident()
    try:
        _pausing[thread] = _pausing.get(thread, 0) + 1
        gc.disable()
        yield
    finally:
        depth = _pausing.pop(thread, 0) - 1
        if depth > 0:
            _pausing[thread] = depth
        elif not _pausing:
            gc.enable()


def _forget_other_threads() -> None:
    """A forked child has none of those that would turn it on again."""
    mine = {thread: depth for thread, depth in _pausing.items() if thread == threading.get_ident()}
    if _pausing and not mine:
        gc.enable()
    _pausing.clear()
    _pausing.update(mine)


os.register_at_fork(after_in_child=_forget_other_threads)
