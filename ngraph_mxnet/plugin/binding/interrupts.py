"""Exceptions that signals raise while MXNet calls us back: Ctrl-C, SystemExit from a handler of SIGTERM, an alarm's
TimeoutError.

An exception can't pass through libmxnet. What is ours ends there: the graph stays with MXNet, or the call fails with
an MXNetError. What a signal's handler raises was meant for the program: C++ keeps it (csrc/core/python_runtime.h),
calls no more Python on this thread, and raises it when libmxnet has returned, as Python does for signals that arrive
in C code.

A handler may raise an `Exception`, which on its way through the compiler looks like a failure of ours. So as long as
our code runs, the handlers' exceptions travel as an `Interruption`, which is none. Cases:
* `told_apart`, around what MXNet calls: the handlers are replaced by such as raise it;
* `delivering`, around what calls MXNet: in it the interruption is raised as it is, past every `except Exception`; who
  called gets what the handler raised.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` wraps
import functools
import signal
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class Interruption(BaseException):
    """`raised` is what a signal's handler raised."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(repr(raised))
        self.raised = raised


Handlers = dict[int, tuple[Callable[..., Any], Callable[..., Any]]]
"""By a signal's number, the program's handler and ours that stands for it."""


class _Within(threading.local):
    delivering = 0
    """Calls of `delivering` functions that this thread is in."""
    told_apart = False
    late: list[BaseException] | None = None
    """Exceptions that signal handlers raise while the program's handlers are put back. No exception ends that work: all
    handlers are put back first."""


_within = _Within()


def delivering(function: Function) -> Function:
    """See the module's text."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        _within.delivering += 1
        try:
            return function(*args, **kwargs)
        except Interruption as interruption:
            if _within.delivering > 1:
                raise
            raised = interruption.raised
        finally:
            _within.delivering -= 1
        # Not while the interruption is handled, whose context it would get: then each would keep the other, and all
        # that the frames hold, until the collector comes, on whatever thread.
        try:
            raise raised
        finally:
            del raised

    return call  # type: ignore[return-value]


def to_raise(error: BaseException) -> BaseException:
    """Return the exception that C++ raises for an exception that it kept. C++ raises it on the same thread, at the
    place where libmxnet has returned."""
    return error.raised if isinstance(error, Interruption) and not _within.delivering else error


def told_apart(function: Function) -> Function:
    """See the module's text. Handlers run on the main thread only."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _within.told_apart or threading.current_thread() is not threading.main_thread():
            return function(*args, **kwargs)
        return _told_apart(function, args, kwargs)

    return call  # type: ignore[return-value]


def _told_apart(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    replaced: Handlers = {}
    late: list[BaseException] = []
    _within.told_apart = True
    try:
        _replace(replaced)
        return function(*args, **kwargs)
    finally:
        # Handlers run where something is called or has returned. Outside of `_put_back` nothing is.
        _within.late = late
        try:
            _put_back(replaced, late)
        except BaseException as error:
            late += [error]
        _within.late = None
        _within.told_apart = False
        if late:
            raise Interruption(late[0]) from None


def _replace(replaced: Handlers) -> None:
    try:
        # Not by `signal`, which makes two enums of each of 62 signals: this stands around every callback.
        for number in _signal.valid_signals():
            handler = _signal.getsignal(number)
            # The usual handler raises KeyboardInterrupt, which is no Exception: most programs have no other.
            if callable(handler) and handler is not signal.default_int_handler:
                replaced[number] = handler, _telling(handler)
                signal.signal(number, replaced[number][1])
    except Exception as error:  # of a handler that is not replaced yet
        raise Interruption(error) from None


def _put_back(replaced: Handlers, late: list[BaseException]) -> None:
    while replaced:
        try:
            for number, (handler, ours) in replaced.items():
                if signal.getsignal(number) is ours:  # else it has installed another one
                    signal.signal(number, handler)
            replaced.clear()
        except BaseException as error:  # of a handler that is put back already
            late.append(error)


def _telling(handler: Callable[..., Any]) -> Callable[..., Any]:
    def run(number: int, frame: Any) -> None:
        try:
            handler(number, frame)
        except BaseException as error:
            if _within.late is not None:
                _within.late.append(error)
                return
            if not _within.told_apart:
                raise
            raise Interruption(error) from None

    return run
