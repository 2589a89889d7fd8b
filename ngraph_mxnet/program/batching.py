"""`ngraph_mxnet.Batcher`: calls of several threads become one call of the model, for servers.

It has no thread of its own: the callers take turns. A call leaves its rows among those that wait; whoever finds that a
batch is due takes the turn, runs the model for all who are in that batch, and wakes them. What keeps this right is one
lock, the turn, which is released whatever happens. The bells that callers wait for only make it quick: a caller that an
interrupt of another one left asleep looks by itself every `_LOOK_S` seconds.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

import numpy as np

from ngraph_mxnet.base import forks, registry
from ngraph_mxnet.base.errors import ConfigError, NGraphError, UnsupportedError
from ngraph_mxnet.base.forks import ForkSafeLock
from ngraph_mxnet.program.executable import InputError, as_array

Model = Callable[..., Any]
Kind = tuple[tuple[tuple[int, ...], np.dtype], ...]
"""The shape of a row and the dtype of each input; only calls of one kind share a batch."""

_LOOK_S = 0.5
_SIZES = (1, 2, 4, 8)


class BatcherError(NGraphError, RuntimeError):
    """A Batcher is called after `close`, or by the model that it runs."""


class _Part:
    """Rows of one call that run in one batch, and what became of them."""

    __slots__ = ("arrays", "bell", "caller", "done", "error", "gone", "kind", "results", "rows", "since")

    def __init__(self, arrays: list[np.ndarray], kind: Kind) -> None:
        self.arrays, self.kind, self.rows = arrays, kind, len(arrays[0])
        self.caller, self.since = threading.get_ident(), monotonic()
        self.results: Any = None
        self.error: BaseException | None = None
        self.done = self.gone = False
        self.bell = threading.Lock()
        self.bell.acquire()

    def ring(self) -> None:
        """Wake its caller, or have it not fall asleep."""
        try:  # noqa: SIM105  # `suppress` takes longer, here where every caller waits
            self.bell.release()
        except RuntimeError:
            pass  # it was rung already


class Batcher:
    """Calls of several threads, run as one batch: each caller gets its own rows back.

    Args:
        model: called with arrays whose axis 0 is the batch, in one thread at a time, though not always the same; it
            returns an array, or a list or tuple of them, with as many rows. That is a function; what
            `ngraph_mxnet.compile` makes of an ONNX model whose batch is open; or a Gluon block, which gets NDArrays on
            the CPU. What is compiled for one batch only is given as a dict of such by batch, `{1: ..., 8: ...}`.
        sizes: the batches that the model is called with, as it may be compiled for each; (1, 2, 4, 8) by default, or
            those of the dict. What is left over in a batch is filled with copies of its last row.
        wait_ms: milliseconds for which a call may wait for others while the model is idle. It waits only until as many
            threads have called as were there at the end of the last batch, in it or waiting, or until the largest size
            is full: a lone caller never waits, or once after others have gone.
        example: a row (1, ...) for each input, an array if there is one. The model is called with it at once in every
            size, so that no caller waits for compiling; and rows of later calls must be of its shapes and dtypes.

    Raises:
        ConfigError: the model can't be called, or a size or `wait_ms` is not allowed.
        Whatever a call raises: `example` does not fit, or the model fails on it.
    """

    def __init__(self, model: Model | Mapping[int, Model], sizes: Sequence[int] | None = None, wait_ms: float = 2, *,
                 example: Any = None) -> None:
        self._models = _by_size(model, sizes)
        self.sizes = tuple(self._models)
        if not isinstance(wait_ms, (int, float)) or not 0 <= wait_ms < math.inf:
            raise ConfigError(f"wait_ms={wait_ms!r}: expected milliseconds, at least 0")
        self.wait_ms = wait_ms
        self._kind: Kind | None = None
        self._closed = False
        self._turn = ForkSafeLock()  # who has it runs the model
        self._lock = ForkSafeLock()  # for moments: of what `_start` sets
        self._start()
        if example is not None:
            self._warm(example if isinstance(example, (list, tuple)) else [example])

    def _start(self) -> None:
        """Reset the state to that without waiting callers: in a new object, and in a forked child. A forked child has
        none of the parent's callers."""
        self._process = forks.count()
        self._taken: list[_Part] = []  # the batch that runs
        self._expected = 1  # callers
        self._idle_since = monotonic()
        self._first: _Part | None = None  # of those that wait, noted for those who look without the lock
        self._wait(())

    def _forget_parent(self) -> None:
        if self._process != forks.count():
            self._start()

    def __call__(self, *arrays: Any) -> Any:
        """The model's results for these rows; returns when they are there.

        Args:
            arrays: one for each input of the model, with the same number of rows, at least one, on axis 0: NumPy's, or
                what else `ngraph_mxnet.compile`'s executables take. More rows than the largest size run as several
                batches. They must not change until the call returns.

        Returns:
            A NumPy array, or a list of them where the model returns several, with as many rows; the caller's own. They
            are those of the model for the whole batch, which may differ in the last bits from those for the row alone.

        Raises:
            InputError: no arrays, other numbers of rows, or not the shapes and dtypes of `example`.
            BatcherError: it is closed, or its own model calls it.
            UnsupportedError: a result has not as many rows as the batch.
            Whatever the model raises for the batch, to all callers in it. What is no Exception (KeyboardInterrupt) is
            for the thread that it is raised in; the other callers' rows run again.
        """
        parts = self._parts(arrays)
        try:
            self._enter(parts)
            for part in parts:
                self._finish(part)
        except BaseException:
            self._withdraw(parts)
            raise
        return parts[0].results if len(parts) == 1 else _joined([part.results for part in parts])

    def close(self) -> None:
        """Refuse further calls, and return when those that were made before have their results. It may be repeated."""
        self._refuse_nested()
        with self._lock:
            self._forget_parent()
            self._closed = True
        with self._turn:
            while self._waiting or self._taken:
                self._run()

    def __enter__(self) -> Batcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- before a batch ------------------------------------------------------------------------------------

    def _warm(self, example: Sequence[Any]) -> None:
        (part,) = self._parts(tuple(example))
        if part.rows != 1:
            raise InputError(f"example: found {part.rows} rows, expected one")
        for size in self.sizes:
            self(*(np.repeat(array, size, axis=0) for array in part.arrays))
        self._kind, self._expected = part.kind, 1

    def _parts(self, arrays: tuple[Any, ...]) -> list[_Part]:
        """The rows of a call, checked, in as many parts as it takes."""
        given = [array if type(array) is np.ndarray else as_array(array, f"input {place}")
                 for place, array in enumerate(arrays)]
        counts = {array.shape[:1] for array in given}
        if len(counts) != 1 or counts & {(), (0,)}:
            raise InputError(f"found inputs of shapes {[array.shape for array in given]}, expected at least one input, "
                             "and of each the same number of rows, at least one, on axis 0")
        ((rows,),) = counts
        kind = tuple([(array.shape[1:], array.dtype) for array in given])
        if self._kind is not None and kind != self._kind:
            raise InputError(f"found rows of {_shown(kind)}, expected {_shown(self._kind)}, as in example=")
        most = self.sizes[-1]
        if rows <= most:
            return [_Part(given, kind)]
        return [_Part([array[begin : begin + most] for array in given], kind) for begin in range(0, rows, most)]

    def _enter(self, parts: list[_Part]) -> None:
        self._refuse_nested()
        with self._lock:
            self._forget_parent()
            if self._closed:
                raise BatcherError("the Batcher is closed: make another one, or close it after its last call")
            self._waiting += parts
            self._first = self._waiting[0]
            self._rows += sum(part.rows for part in parts)
            self._callers += 1

    def _refuse_nested(self) -> None:
        if self._turn.is_mine():
            raise BatcherError("a Batcher is called, or closed, while this thread runs its model for it, by the model "
                               "or by a signal's handler: it would wait for itself")

    def _withdraw(self, parts: list[_Part]) -> None:
        """An error or an interrupt ends the call: nobody wants these results any more."""
        for part in parts:
            part.gone = True
        with self._lock:
            self._wait(self._waiting)
        self._ring_first()

    def _wait(self, parts: Sequence[_Part]) -> None:
        """Have these wait, in this order, but for those that nobody waits for."""
        self._waiting = [part for part in parts if not part.gone and not part.done]
        self._rows = sum(part.rows for part in self._waiting)
        self._callers = len({part.caller for part in self._waiting})
        self._first = self._waiting[0] if self._waiting else None

    # ---- turns ---------------------------------------------------------------------------------------------

    def _finish(self, part: _Part) -> None:
        """Wait for the part's results, or take the turn when a batch is due and nobody has it."""
        while not part.done:
            seconds = self._seconds_until_due(part)
            if seconds > 0 or not self._lead(part):
                part.bell.acquire(timeout=seconds or _LOOK_S)
        if part.error is not None:
            try:
                raise part.error
            finally:
                part.error = None  # else it and this frame would hold each other

    def _seconds_until_due(self, part: _Part) -> float:
        """How long it may wait for others, were the model idle; 0: not at all."""
        if self._callers >= self._expected or self._rows >= self.sizes[-1] or self._closed:
            return 0.0
        seconds = max(part.since, self._idle_since) + self.wait_ms / 1e3 - monotonic()
        if seconds <= 0:
            return 0.0
        return seconds if part is self._first else _LOOK_S  # who comes first watches the clock for all

    def _lead(self, part: _Part) -> bool:
        """Run a batch, unless another thread has the turn: then False."""
        led = False
        try:
            led = self._turn.acquire(blocking=False)
            if led and not part.done and self._seconds_until_due(part) == 0:
                self._run()
        finally:
            # Released even if a signal's handler raised before `led` was set.
            try:
                self._turn.release()
            except RuntimeError:
                pass  # it is another thread's
            else:
                self._ring_first()
        return led

    def _ring_first(self) -> None:
        """Have the caller that has waited longest look whether a batch is due."""
        first = self._first
        if first is not None:
            first.ring()

    def _run(self) -> None:
        """Run a batch of those that wait. This thread has the turn."""
        with self._lock:
            taken = self._take()
        if not taken:
            return
        try:
            self._compute(taken)
        except Exception as error:
            for part in taken:
                part.error, part.done = error, True
        except BaseException:
            with self._lock:
                self._wait([*taken, *self._waiting])
                self._taken = []
            raise
        with self._lock:
            self._taken = []
            self._expected = len({part.caller for part in [*taken, *self._waiting]})
            self._idle_since = monotonic()
        for part in taken:
            part.ring()

    def _take(self) -> list[_Part]:
        """A batch: the part that has waited longest, and in their order all that fit beside it."""
        if self._taken:
            # An interrupt ended the last turn at a bad moment.
            self._wait(list(dict.fromkeys([*self._taken, *self._waiting])))
        room, kind = self.sizes[-1], None
        taken: list[_Part] = []
        others: list[_Part] = []
        for part in self._waiting:
            if part.rows <= room and kind in (None, part.kind):
                room, kind = room - part.rows, part.kind
                taken.append(part)
            else:
                others.append(part)
        self._taken = taken
        self._wait(others)
        return taken

    def _compute(self, taken: list[_Part]) -> None:
        rows = sum(part.rows for part in taken)
        size = next(size for size in self.sizes if size >= rows)
        by_input = zip(*(part.arrays for part in taken), strict=True)
        found = self._models[size](*(_filled(arrays, size - rows) for arrays in by_input))
        several = isinstance(found, (list, tuple))
        results = [_checked(result, place, size) for place, result in enumerate(found if several else [found])]
        begin = 0
        for part in taken:
            # Copies: a model may return the same memory at its next call, and no caller keeps all rows alive.
            own = [result[begin : begin + part.rows].copy() for result in results]
            part.results, part.done = own if several else own[0], True
            begin += part.rows


def _by_size(model: Model | Mapping[int, Model], sizes: Sequence[int] | None) -> dict[int, Model]:
    """Return the callable for a batch of each size, the smallest size first."""
    if isinstance(model, Mapping):
        if sizes is not None and set(sizes) != set(model):
            raise ConfigError(f"sizes={list(sizes)}: found models for {list(model)}; leave sizes= out, or give these")
        models = dict(model)
    else:
        models = dict.fromkeys(_SIZES if sizes is None else sizes, model)
    if not models or not all(isinstance(size, (int, np.integer)) and size >= 1 for size in models):
        raise ConfigError(f"sizes={list(models)}: expected whole numbers of rows, at least one of them, and from 1")
    for one in models.values():
        if not callable(one):
            raise ConfigError(f"the model is {type(one).__name__}, which can't be called: give a function, a Gluon "
                              "block, or what ngraph_mxnet.compile made")
    return {int(size): _with_arrays(models[size]) for size in sorted(models)}


def _with_arrays(model: Model) -> Model:
    """Return the model as a callable that takes and gives NumPy arrays."""
    if not hasattr(model, "collect_params"):
        return model
    return registry.loaded(registry.BLOCK_WITH_ARRAYS)(model)  # a Gluon block: MXNet is there already


def _filled(arrays: tuple[np.ndarray, ...], missing: int) -> np.ndarray:
    """One array of all rows, and `missing` more like the last one: a real row has no NaN that others lack."""
    if len(arrays) == 1 and not missing:
        return arrays[0]
    return np.concatenate([*arrays, *[arrays[-1][-1:]] * missing])


def _checked(result: Any, place: int, size: int) -> np.ndarray:
    array = as_array(result, f"result {place} of the model")
    if array.shape[:1] != (size,):
        raise UnsupportedError(f"result {place} of the model has shape {array.shape} for a batch of {size}: a Batcher "
                               "needs a row for each row on axis 0")
    return array


def _joined(results: list[Any]) -> Any:
    """The results of a call's parts, as those of one."""
    if not isinstance(results[0], list):
        return np.concatenate(results)
    return [np.concatenate(parts) for parts in zip(*results, strict=True)]


def _shown(kind: Kind) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for shape, dtype in kind)
