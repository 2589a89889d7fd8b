"""The environment variable that names MXNet's subgraph backend, as Python and as libmxnet see it.

libmxnet reads it at every bind and compares it with the names of registered backends, case and all. Python
decides what a bind is to use; for the time of one call libmxnet is shown the name that makes it so:
* `NGRAPH`: bind a symbol that is partitioned already (there are no names left by which more would be);
* empty: as if the variable were not set, MXNet's own default;
* `NONE`: no backend at all.

`os.environ` never changes, so a child process sees what the user has set.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE = "MXNET_SUBGRAPH_BACKEND"
BACKEND = "NGRAPH"

_activated = False
_problem: str | None = None

#: Held while anything of MXNet's partitioner, which is one object per process, or the variable is in use.
lock = threading.RLock()


def names_backend(name: object) -> bool:
    """Whether the text names our backend; the case of its letters does not matter."""
    return isinstance(name, str) and name.upper() == BACKEND


def requested() -> bool:
    """Whether the user's environment asks for our backend now."""
    return names_backend(os.environ.get(VARIABLE))


def activated() -> bool:
    """Whether the activation was done, well or not."""
    return _activated


def finish_activation(problem: str | None) -> None:
    """Record the outcome: `problem` says why the library is not usable."""
    global _activated, _problem
    _activated, _problem = True, problem


def problem() -> str | None:
    """Why the backend is not usable in this process; None when it is."""
    return _problem if _activated else "ngraph_mxnet is not activated"


@contextmanager
def native_backend() -> Iterator[None]:
    """libmxnet binds as if the variable were not set."""
    with _shown_to_libmxnet(""):
        yield


@contextmanager
def no_backend() -> Iterator[None]:
    """libmxnet binds the graph as it is written.

    Its default backend folds batch norm and drops dropout in a graph bound without gradients, even when that
    graph is then run in training mode.
    """
    with _shown_to_libmxnet("NONE"):
        yield


@contextmanager
def ngraph_backend() -> Iterator[None]:
    """libmxnet binds with our backend."""
    with _shown_to_libmxnet(BACKEND):
        yield


@contextmanager
def _shown_to_libmxnet(value: str) -> Iterator[None]:
    with lock:
        os.putenv(VARIABLE, value)
        try:
            yield
        finally:
            users = os.environ.get(VARIABLE)
            if users is None:
                os.unsetenv(VARIABLE)
            else:
                os.putenv(VARIABLE, users)


def _renew_lock() -> None:
    """A forked child has one thread: a lock that another thread held would never be released."""
    global lock
    lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)
