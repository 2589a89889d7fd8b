"""Audits: which one is in force, and what it records."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.base.forks import ForkSafeLock
from ngraph_mxnet.base.variables import Bounds, Calls, audited_calls, bounds
from ngraph_mxnet.ir.graph import Graph

if TYPE_CHECKING:
    from ngraph_mxnet.program.recorder import Watch


class Audit:
    """An audit of all graphs that are compiled while it is in force: until `stop`, or the end of a `with`."""

    def __init__(self, folder: Path | None, calls: Calls, every_value: bool, within: Bounds | None) -> None:
        """`folder`: without one it only keeps bounds. Raises OSError: it can't be made."""
        from ngraph_mxnet.program.recorder import Recorder  # a process without an audit starts without SQLite

        self._every_value, self._within, self._calls = every_value, within, calls
        settings = {"calls": str(calls), "tensors": "all" if every_value else "borders", "guard": str(within or "")}
        self._recorder = Recorder(folder, settings) if folder is not None else None
        self._watches: list[Watch] = []

    def watch(self, graph: Graph, weights: Mapping[str, Any], backend: str) -> Watch:
        """Before `graph` is compiled by this backend, with these weights as constants."""
        from ngraph_mxnet.program.recorder import Watch, describe

        made = Watch(describe(graph, weights, backend), self._recorder, self._calls, self._every_value, self._within)
        self._watches.append(made)
        return made

    def stop(self) -> None:
        """Record no more, and write what was recorded."""
        global _asked
        if _asked is self:
            _asked = None
        for watch in self._watches:
            watch.stop()
        if self._recorder is not None:
            self._recorder.close()

    def __enter__(self) -> Audit:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.stop()


_asked: Audit | None = None
"""The audit that the function `audit` began; None if there is none, or it was stopped."""
_of_variables: tuple[tuple[Any, ...], Audit | None] = (), None
"""The last values of the variables NGRAPH_AUDIT and NGRAPH_AUDIT_*, and the audit that they ask for."""
_lock = ForkSafeLock()


def audit(folder: str | Path | None = None, *, calls: str = "all", tensors: str = "borders",
          guard: str | None = None) -> Audit:
    """Audit all graphs that are compiled from now on in this process, until the `stop` of what is returned, or the end
    of a `with` of it. What was compiled before is not audited.

    Args:
        folder: where to record, as NGRAPH_AUDIT; None: nowhere.
        calls, tensors, guard: as NGRAPH_AUDIT_CALLS, NGRAPH_AUDIT_TENSORS and NGRAPH_AUDIT_GUARD.

    Raises:
        ConfigError: a value is not allowed, there is neither a folder nor a guard, or another audit is in force.
        OSError: the folder can't be made.
    """
    global _asked
    read = _read("calls", calls, audited_calls, "all, first:N or every:N")
    within = None if guard is None else _read("guard", guard, bounds, "nan or LOW:HIGH")
    if tensors not in ("borders", "all"):
        raise ConfigError(f"tensors: found {tensors!r}, expected borders or all")
    if folder is None and guard is None:
        raise ConfigError("an audit needs a folder to record in, or a guard")
    with _lock:
        if active() is not None:
            raise ConfigError("another audit is in force: stop it, or unset NGRAPH_AUDIT and NGRAPH_AUDIT_GUARD")
        _asked = Audit(None if folder is None else Path(folder).expanduser().absolute(), read, tensors == "all", within)
    import ngraph_mxnet._core as _core

    _core.clear_compile_cache()  # of what MXNet binds: executors that there are keep theirs
    return _asked


def _read(name: str, text: str, parse: Any, expected: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        raise ConfigError(f"{name}: found {text!r}, expected {expected}") from None


def active() -> Audit | None:
    """The audit in force: of `audit`, or as soon as the variables ask for one; None where there is none."""
    global _of_variables
    if _asked is not None:
        return _asked
    if not (os.environ.get("NGRAPH_AUDIT") or os.environ.get("NGRAPH_AUDIT_GUARD")):
        return None
    told = tuple(config.get(f"NGRAPH_AUDIT{name}") for name in ("", "_CALLS", "_TENSORS", "_GUARD"))
    with _lock:
        if _of_variables[0] != told:
            if _of_variables[1] is not None:
                _of_variables[1].stop()
            _of_variables = told, _made(*told)
        return _of_variables[1]


def _made(folder: str | None, calls: Calls, tensors: str, within: Bounds | None) -> Audit | None:
    path = Path(folder).expanduser().absolute() if folder else None
    if path is not None:
        try:
            return Audit(path, calls, tensors == "all", within)
        except OSError as error:
            config.logger(__name__).warning("NGRAPH_AUDIT=%s: nothing is recorded: %s", folder, error)
    return Audit(None, calls, tensors == "all", within) if within is not None else None
