"""The cyclic garbage collector during a compilation."""

from __future__ import annotations

import functools
import gc
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_pausing: dict[int, int] = {}
"""How deep each thread is in `collector_paused`, of those that keep the collector off. Changed with the GIL only."""


def collector_paused(function: Function) -> Function:
    """No collection within it: a graph under work is all alive, and walking it over and over takes a fifth of the time.

    For the whole process, until the last of several threads leaves. A decorator, no context manager: when a signal's
    handler raises inside a manager's own `__enter__`, nothing calls its `__exit__`.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not _pausing and not gc.isenabled():  # who turned it off keeps it off
            return function(*args, **kwargs)
        return _without_collector(function, args, kwargs)

    return call  # type: ignore[return-value]


def _without_collector(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    thread = threading.get_ident()
    _pausing[thread] = _pausing.get(thread, 0) + 1
    try:
        gc.disable()
        return function(*args, **kwargs)
    finally:
        # Nothing is called before the collector is on again: where a call returns, a signal's handler may raise.
        if _pausing[thread] == 1:
            del _pausing[thread]
        else:
            _pausing[thread] -= 1
        if not _pausing:
            gc.enable()


def _forget_other_threads() -> None:
    """A forked child has none of those that would turn it on again."""
    mine = {thread: depth for thread, depth in _pausing.items() if thread == threading.get_ident()}
    if _pausing and not mine:
        gc.enable()
    _pausing.clear()
    _pausing.update(mine)


os.register_at_fork(after_in_child=_forget_other_threads)
