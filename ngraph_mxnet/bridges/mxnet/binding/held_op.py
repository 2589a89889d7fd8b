"""A Gluon block's cached op as the holder of the block's parameters.

A cached op is given its arrays at each call and keeps none, so what it computed from a parameter's content may be used
again only as long as somebody holds that very array: here the arrays of the latest calls are held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

from mxnet.ndarray import NDArray

from ngraph_mxnet import config
from ngraph_mxnet.forks import ForkSafeLock

MOST_LISTS = 4
"""How many lists of arrays may take turns, as a block's parameters in several contexts do."""


class Held:
    """A call's arrays, and how many calls run with them."""

    __slots__ = ("arrays", "calls")

    def __init__(self, arrays: list[NDArray]) -> None:
        self.arrays, self.calls = arrays, 0


class HeldCachedOp:
    """Calls `op`, of whose inputs those at `parameters` are a block's parameters, and the others data."""

    is_direct = False
    """True if C++ runs the op's graph past MXNet: see `direct`."""

    def __init__(self, op: Any, parameters: Sequence[int]) -> None:
        import ngraph_mxnet._core as _core

        self._op, self._parameters = op, list(parameters)
        self._set_bulk, self.holder, self._lock = _core.set_bulk, _core.ArrayHolder(), ForkSafeLock()
        self._lists: list[Held] = []
        self._make: Callable[[], Any] | None = None
        self._data_places: Sequence[int] = ()
        self._by_shapes: dict[tuple[Any, ...], Any] = {}

    def is_around(self, op: Any) -> bool:
        """True if this object calls `op`."""
        return self._op is op

    def make_for_shapes(self, make: Callable[[], Any], data: Sequence[int]) -> None:
        """Call one op for each set of shapes of the inputs at `data`, made by `make`, as many as `NGRAPH_SHAPES` says.

        At every change of its inputs' shapes MXNet asks an op of ours for its outputs', and never frees what it makes
        to ask.
        """
        self._make, self._data_places = make, data

    def _register_op_hook(self, *args: Any, **kwargs: Any) -> Any:
        self._make = None
        return self._op._register_op_hook(*args, **kwargs)

    def _op_for(self, args: Sequence[NDArray]) -> Any:
        if self._make is None:
            return self._op
        shapes = tuple(args[place].shape for place in self._data_places)
        with self._lock:
            op = self._by_shapes.pop(shapes, None)
            if op is None:
                op = self._make() if self._by_shapes else self._op
                while len(self._by_shapes) >= config.get("NGRAPH_SHAPES"):
                    del self._by_shapes[next(iter(self._by_shapes))]
            self._by_shapes[shapes] = op
        return op

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)

    def __call__(self, *args: NDArray, **kwargs: Any) -> Any:
        held = self._hold([args[position] for position in self._parameters])
        # In a bulk of MXNet's engine versions of arrays do not rise.
        bulk = self._set_bulk(0)
        try:
            with self.holder:
                return self._op_for(args)(*args, **kwargs)
        finally:
            if bulk:
                self._set_bulk(bulk)
            self.end(held)

    def holding(self, arrays: list[NDArray]) -> Held | None:
        """Return the held call with these arrays, or None if they are no longer held."""
        with self._lock:
            return next((held for held in self._lists if all(map(is_, arrays, held.arrays))), None)

    def begin(self, held: Held) -> bool:
        """A call begins, past this object's own, with these arrays; False if they are held no more."""
        with self._lock:
            if held not in self._lists:
                return False
            held.calls += 1
            return True

    def end(self, held: Held) -> None:
        with self._lock:
            held.calls -= 1

    def _hold(self, arrays: list[NDArray]) -> Held:
        """Arrays are let go of behind the calls with them, never before another thread has given MXNet its call."""
        with self._lock:
            held = self.holding(arrays)
            if held is None:
                for old in [held for held in self._lists if not held.calls][:max(len(self._lists) + 1 - MOST_LISTS, 0)]:
                    self.holder.release(_handles(old.arrays))
                    self._lists.remove(old)
                self.holder.hold(_handles(arrays))
                held = Held(arrays)
                self._lists.append(held)
            held.calls += 1
        return held


def _handles(arrays: list[NDArray]) -> list[int]:
    return [array.handle.value for array in arrays]
