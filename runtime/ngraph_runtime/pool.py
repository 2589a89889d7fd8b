"""The threads that `run_async` uses: a few for the whole process, made when the first is needed."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Lock


class _Shared:
    """The pool, or None; a forked child has none, for its parent's threads are not in it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.lock = Lock()
        self.pool: ThreadPoolExecutor | None = None


_shared = _Shared()
os.register_at_fork(after_in_child=_shared.forget)


def shared_pool() -> ThreadPoolExecutor:
    with _shared.lock:
        if _shared.pool is None:
            # One more than there are cores: while all compute, the next call's arrays are made ready.
            count = len(os.sched_getaffinity(0)) + 1
            _shared.pool = ThreadPoolExecutor(count, thread_name_prefix="ngraph_runtime")
        return _shared.pool
