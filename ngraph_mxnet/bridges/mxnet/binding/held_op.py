"""A Gluon block's cached op as the holder of the block's parameters.

A cached op is given its arrays at each call and keeps none, so what it computed from a parameter's content may be used
again only as long as somebody holds that very array: here the arrays of the latest calls are held.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

from mxnet.ndarray import NDArray

from ngraph_mxnet.forks import ForkSafeLock

MOST_LISTS = 4
"""How many lists of arrays may take turns, as a block's parameters in several contexts do."""


class _Held:
    """A call's arrays, and how many calls run with them."""

    __slots__ = ("arrays", "calls")

    def __init__(self, arrays: list[NDArray]) -> None:
        self.arrays, self.calls = arrays, 0


class HeldCachedOp:
    """Calls `op`, of whose inputs those at `parameters` are a block's parameters, and the others data."""

    def __init__(self, op: Any, parameters: Sequence[int]) -> None:
        import ngraph_mxnet._core as _core

        self._op, self._parameters = op, list(parameters)
        self._set_bulk, self._holder, self._lock = _core.set_bulk, _core.ArrayHolder(), ForkSafeLock()
        self._lists: list[_Held] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)

    def __call__(self, *args: NDArray, **kwargs: Any) -> Any:
        held = self._hold([args[position] for position in self._parameters])
        # In a bulk of MXNet's engine versions of arrays do not rise.
        bulk = self._set_bulk(0)
        try:
            with self._holder:
                return self._op(*args, **kwargs)
        finally:
            if bulk:
                self._set_bulk(bulk)
            with self._lock:
                held.calls -= 1

    def _hold(self, arrays: list[NDArray]) -> _Held:
        """Arrays are let go of behind the calls with them, never before another thread has given MXNet its call."""
        with self._lock:
            for held in self._lists:
                if all(map(is_, arrays, held.arrays)):
                    break
            else:
                for old in [held for held in self._lists if not held.calls][:max(len(self._lists) + 1 - MOST_LISTS, 0)]:
                    self._holder.release(_handles(old.arrays))
                    self._lists.remove(old)
                self._holder.hold(_handles(arrays))
                held = _Held(arrays)
                self._lists.append(held)
            held.calls += 1
        return held


def _handles(arrays: list[NDArray]) -> list[int]:
    return [array.handle.value for array in arrays]
