"""What a rank says when its process ends, and how it waits for the others then.

Cases:
* the program fails, by an exception, Ctrl-C or `sys.exit` with a status other than 0: the others are told why;
* the program ends well: the rank waits until all have; if another fails meanwhile, its status is 1, too;
* `os._exit`, a signal, a crash: nothing is said, and the others see that the connection ends;
* SIGTERM: what is known is said before it ends the process;
* a forked child is no rank, and says nothing.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ngraph_mxnet.distributed.peer_watch import PeerWatch

_LAST_WORDS = 0.3
"""Seconds for the others to print the failure, before `abort` ends them."""


class _Exit(SystemExit):
    """What `sys.exit` raises here, to tell one that ends the process from one that is caught: of the former it is the
    interpreter that asks for its status, with no frame of Python's below."""

    final: Any = None
    """The status with which the process ends."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name == "code" and sys._getframe(0).f_back is None:
            _Exit.final = value
        return value


class ProcessEnd:
    """The end of a rank's process is known to the other ranks from `install` to `remove`."""

    def __init__(self, watch: PeerWatch, finalize: Callable[[], None] | None = None,
                 abort: Callable[[], None] | None = None) -> None:
        """At the process's end one of these is called: `finalize` when all ranks have ended well, `abort` after a
        failure, where finalizing MPI would wait for ranks that are gone."""
        self._watch, self._finalize, self._abort = watch, finalize, abort
        self._stock_hook, self._stock_exit = sys.excepthook, sys.exit

    def install(self) -> None:
        """From now on."""
        from ngraph_mxnet import _core

        self._stock_hook, self._stock_exit = sys.excepthook, sys.exit
        sys.excepthook, sys.exit = self._on_exception, self._on_exit  # type: ignore[assignment]
        atexit.register(self._at_exit)
        _core.guard_process(self._watch.native)

    def remove(self) -> None:
        """Until now. A hook that another has put in front of this one stays."""
        from ngraph_mxnet import _core

        if sys.excepthook == self._on_exception:
            sys.excepthook = self._stock_hook
        if sys.exit == self._on_exit:
            sys.exit = self._stock_exit
        atexit.unregister(self._at_exit)
        _core.unguard_process()

    def _on_exception(self, kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> Any:
        self._watch.fail("".join(traceback.format_exception_only(kind, value)).strip())
        return self._stock_hook(kind, value, trace)

    def _on_exit(self, status: Any = None, /) -> None:
        try:
            self._stock_exit(status)
        except SystemExit as error:
            if threading.current_thread() is not threading.main_thread():  # which prints what is not exactly SystemExit
                raise
            raise _Exit(*error.args) from None

    def _at_exit(self) -> None:
        from ngraph_mxnet import _core

        watch = self._watch
        if watch.is_inherited:
            return
        if _Exit.final not in (None, 0):
            watch.fail(f"it ended by sys.exit({_Exit.final!r}); see its output")
        try:
            if watch.failure() is None:
                watch.leave()
                watch.wait_for_all()
        except KeyboardInterrupt:
            watch.fail("KeyboardInterrupt while it waited for the others to end")
        if watch.failure() is None:
            if self._finalize is not None:
                self._finalize()
            return
        _core.forbid_success()
        watch.limit_end()
        if self._abort is not None:
            time.sleep(_LAST_WORDS)
            self._abort()
