"""Fork-safe locks, pools, pauses of the garbage collector, and tables of what was once found or made.

A forked child must not take over the locks of threads that it does not have.
"""

from __future__ import annotations

import functools
import gc
import os
import threading
import weakref
from _thread import RLock
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")

_forks = 0


def count() -> int:
    """How many forks, after the import of this module, led to this process: what it was before is the parent's."""
    return _forks


class ForkSafeLock(RLock):  # type: ignore[misc]  # which is final in name only
    """A lock, for `with`, that a forked child finds free unless the forking thread itself holds it.

    Python's own, for a method in Python that takes a lock would not release it when a signal's handler raises before it
    returns; and reentrant, since a handler may call what the thread is in. Python 3.14 calls handlers between the call
    that takes a lock and the body of `with`: one that raises there leaves any lock taken.
    """

    def __init__(self) -> None:
        _locks.add(self)

    def is_mine(self) -> bool:
        """True if this thread holds the lock."""
        return self._is_owned()  # type: ignore[attr-defined]

    def _after_fork(self) -> None:
        if not self.is_mine():
            self._at_fork_reinit()  # type: ignore[attr-defined]


_locks: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


class ForkSafePool:
    """A pool of threads, started when first used; a forked child has one of its own."""

    def __init__(self, name: str, threads: int | None = None) -> None:
        self._threads, self._name = threads, name
        self._lock = ForkSafeLock()
        self._pool: ThreadPoolExecutor | None = None
        self._of = _forks

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """`ThreadPoolExecutor.submit`."""
        with self._lock:
            if self._pool is None or self._of != _forks:
                self._pool, self._of = ThreadPoolExecutor(self._threads, thread_name_prefix=self._name), _forks
            return self._pool.submit(function, *arguments)


def _after_fork_in_child() -> None:
    global _forks
    _forks += 1
    for lock in list(_locks):
        lock._after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)


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

    def get_or_make(self, key: Any, make: Callable[[], Any]) -> Any:
        """Threads may make the same at once; the last one stays."""
        found = self.get(key)
        if found is None:
            found = make()
            self.put(key, found)
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

    def __iter__(self) -> Iterator[Any]:
        """The keys, the one used longest ago first."""
        with self._lock:
            return iter(list(self._found))

    def values(self) -> list[Any]:
        """The one used longest ago first."""
        with self._lock:
            return list(self._found.values())


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
