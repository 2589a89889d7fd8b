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
"""Of arrays that take turns, as a block's parameters in several contexts do."""


class HeldCachedOp:
    """Calls `op`, of whose inputs those at `parameters` are a block's parameters, and the others data."""

    def __init__(self, op: Any, parameters: Sequence[int]) -> None:
        import ngraph_mxnet._core as _core

        self._op, self._parameters = op, list(parameters)
        self._set_bulk, self._holder, self._lock = _core.set_bulk, _core.ArrayHolder(), ForkSafeLock()
        self._lists: list[list[NDArray]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)

    def __call__(self, *args: NDArray, **kwargs: Any) -> Any:
        arrays = [args[position] for position in self._parameters]
        if not any(all(map(is_, arrays, held)) for held in self._lists):
            self._hold(arrays)
        # In a bulk of MXNet's engine versions of arrays do not rise.
        bulk = self._set_bulk(0)
        try:
            with self._holder:
                return self._op(*args, **kwargs)
        finally:
            if bulk:
                self._set_bulk(bulk)

    def _hold(self, arrays: list[NDArray]) -> None:
        with self._lock:
            while len(self._lists) >= MOST_LISTS:
                self._holder.release(_handles(self._lists[0]))
                del self._lists[0]
            self._holder.hold(_handles(arrays))
            self._lists.append(arrays)


def _handles(arrays: list[NDArray]) -> list[int]:
    return [array.handle.value for array in arrays]
