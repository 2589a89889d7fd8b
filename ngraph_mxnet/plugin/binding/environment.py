"""The environment variable that names MXNet's subgraph backend, as Python and as libmxnet see it.

libmxnet reads it at every bind and compares it with the names of registered backends, case and all. Python
decides what a bind is to use; for the time of one call libmxnet is shown the name that makes it so:
* `NGRAPH`: bind the symbol as it is written. A symbol for us is partitioned already, and to libmxnet's partitioner our
  backend supports no node;
* empty: as if the variable were not set, MXNet's own default.

`os.environ` never changes, so a child process sees what the user has set.

The C environment gets one string of ours in place of the user's, once, and from then on only the bytes of its value
change. `putenv` and `setenv` would move the environment's pointers while other threads, libmxnet's among them, walk
over them in `getenv` to read other variables. Who reads this variable itself holds `lock`, except for binds that do not
come through Python.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ngraph_mxnet_autoload.names import BACKEND, VARIABLE

Result = TypeVar("Result")

_activated = False
_problem: str | None = None

#: Held while the variable is in use, and while bodies of Gluon blocks are made.
lock = threading.RLock()

_NAME = VARIABLE.encode()
_PREFIX = _NAME + b"="
_ROOM = 64
"""Bytes for a value and the zero after it; names of backends are shorter."""

_libc = ctypes.PyDLL(None)  # with the GIL held, as are Python's own changes of the environment
_libc.calloc.restype = ctypes.c_void_p
_libc.getenv.restype = ctypes.c_void_p
_libc.getenv.argtypes = [ctypes.c_char_p]
_libc.putenv.argtypes = [ctypes.c_void_p]
_shown: int | None = None
"""Address of the string; it is never freed, for the environment may point to it until the process ends."""


def names_backend(name: object) -> bool:
    """True if the text names our backend. The case of its letters does not matter."""
    return isinstance(name, str) and name.upper() == BACKEND


_read: tuple[bytes | None, bool] = (None, False)
"""A value that the variable had, and whether it names our backend."""


def requested() -> bool:
    """True if the user's environment asks for our backend now. Every call reads the variable. `os.environ.get` takes 2
    microseconds, so the decoded value is remembered."""
    global _read
    raw = os.environ._data.get(_NAME)  # type: ignore[attr-defined]
    known, named = _read
    if raw != known:
        named = raw is not None and names_backend(os.fsdecode(raw))
        _read = raw, named
    return named


def activated() -> bool:
    """True if the activation is finished, whether it succeeded or failed."""
    return _activated


def finish_activation(problem: str | None) -> None:
    """Record the outcome: `problem` says why the library is not usable."""
    global _activated, _problem
    _activated, _problem = True, problem


def problem() -> str | None:
    """Why the backend is not usable in this process; None when it is."""
    return _problem if _activated else "ngraph_mxnet is not activated"


# Functions that call, no context managers: a signal's handler may raise inside a manager's own `__enter__`. The lock
# is then held by a suspended generator, which lives as long as the program keeps the exception.


def natively(call: Callable[[], Result]) -> Result:
    """Return the result of `call`. Meanwhile libmxnet binds as if the variable were not set."""
    return _shown_to_libmxnet("", call)


def as_written(call: Callable[[], Result]) -> Result:
    """Return the result of `call`. Meanwhile libmxnet binds each graph as it is, even one that we have partitioned.

    libmxnet's default backend folds batch norm and drops dropout in a graph bound without gradients, even when that
    graph is then run in training mode. The name NONE would do, but libmxnet tells of it at every bind.
    """
    return _shown_to_libmxnet(BACKEND, call)


def _shown_to_libmxnet(value: str, call: Callable[[], Result]) -> Result:
    with lock:
        try:
            _show(value)
            return call()
        finally:
            _show(os.environ.get(VARIABLE, ""))


def _show(value: str) -> None:
    global _shown
    text = os.fsencode(value)
    if len(text) >= _ROOM:  # the user's own, which names no backend of anybody's
        os.putenv(VARIABLE, value)
        return
    if _shown is None:
        _shown = _libc.calloc(1, len(_PREFIX) + _ROOM)
        ctypes.memmove(_shown, _PREFIX, len(_PREFIX))
    place = _shown + len(_PREFIX)
    ctypes.memmove(place, text.ljust(_ROOM, b"\0"), _ROOM)
    if _libc.getenv(VARIABLE.encode()) != place:  # the first time, and after the program has changed the variable
        _libc.putenv(_shown)


def _renew_lock() -> None:
    """A forked child has one thread: a lock that another thread held would never be released."""
    global lock
    lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def bind_natively_from_now_on(problem: str) -> None:
    """Let libmxnet bind as if the variable did not name our backend; `problem` says why the activation has failed.

    libmxnet alone would refuse every bind under `MXNET_SUBGRAPH_BACKEND=NGRAPH`, for it knows no such backend then. So
    this module needs nothing of the package, and nothing else but mxnet.
    """
    from mxnet.executor import Executor
    from mxnet.symbol import Symbol

    finish_activation(problem)
    for owner, name in ((Symbol, "bind"), (Symbol, "simple_bind"), (Executor, "reshape")):
        setattr(owner, name, _bound_natively(getattr(owner, name)))


def _bound_natively(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def bind(*args: Any, **kwargs: Any) -> Any:
        if not requested():
            return stock(*args, **kwargs)
        return natively(lambda: stock(*args, **kwargs))

    return bind
