"""The layer between a compiled graph and its callers while the graph is audited."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from ngraph_mxnet import config
from ngraph_mxnet.auditing.recorder import Call, Observed, Recorder, memory
from ngraph_mxnet.auditing.tensors import FIRST_CONSTANT, RESULT, Described, Tensor, phrase
from ngraph_mxnet.errors import AuditError
from ngraph_mxnet.forks import ForkSafeLock
from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.types import element_type
from ngraph_mxnet.setting_texts import Bounds, Calls

Numbers = tuple[Any, ...]
"""(min, max, mean, norm, NaN, infinite, zeros, denormals), as `_core.statistics_and_hash` gives them."""
Observe = Callable[[Node, int, np.ndarray], None]
"""Called with what a node computed, by the number of its output; the array is valid during the call."""


class Values(Protocol):
    """A runner of a compiled graph that shows each value in the graph to an observer."""

    def run(self, native: Any, arrays: Sequence[np.ndarray], observe: Observe) -> list[np.ndarray]:
        """The results. `native` is the `_core.Executable`, where there is one; `arrays` are as `Executable.run` takes
        them."""


class Watch:
    """The audit of one graph."""

    def __init__(self, described: Described, recorder: Recorder | None, calls: Calls, every_value: bool,
                 within: Bounds | None) -> None:
        self._described, self._recorder, self._chosen, self._within = described, recorder, calls, within
        self._every_value = every_value
        self._number = recorder.add_graph(described) if recorder is not None else 0
        self._calls, self._lock = itertools.count(), ForkSafeLock()
        self._checkpoints: dict[tuple[int, bytes], int] = {}
        """By process and content."""
        self._values: Values | None = None
        self._observer: Any = None

    def attach(self, executable: Any) -> None:
        """From now on calls of this `runtime.Executable`, made of the graph, are recorded, and keep to the bounds."""
        from ngraph_mxnet import _core

        native = getattr(executable, "native", None)
        if self._every_value or self._within is not None:
            self._values = executable.values
        if self._recorder is not None:
            self._recorder.add_compiled(self._number, self._constants(), *executable.prepared)
        if native is not None:
            low, high, infinite = self._within or Bounds(0, 0, False)
            first, every = self._chosen if self._recorder is not None else Calls(0, 0)
            self._observer = _core.Observer(self._number, self._described.weights, first, every, low, high, infinite,
                                            self._explain if self._within else None, config.threads())
            _core.observe(native, self._observer)
        if native is None or (self._every_value and self._values is not None):
            executable.watch = self
        if self._every_value and self._values is None:
            config.logger(__name__).warning(
                "the audit has no values of graph %s but its inputs, weights and results: the backend %s does not show "
                "others", self._described.name, self._described.backend)

    def stop(self) -> None:
        """Let calls pass from now on."""
        self._recorder, self._within = None, None
        if self._observer is not None:
            self._observer.stop()

    def run(self, native: Any, run: Callable[[list[np.ndarray]], list[np.ndarray]],
            arrays: list[np.ndarray]) -> list[np.ndarray]:
        """A call in Python. `run` computes it where there is no `native`, a `_core.Executable`.

        Raises:
            AuditError: numbers are out of the bounds.
        """
        recorder, number, within = self._recorder, next(self._calls), self._within
        chosen = recorder is not None and self._chosen.has(number)
        if native is not None:
            run = partial(self._run_native, native)
        if not chosen and within is None:
            return run(arrays)
        seen = _Seen(self._described, within, self._inputs(arrays) if chosen else [])
        begin, clock = time.time(), time.perf_counter()
        if self._every_value and self._values is not None:
            results = self._values.run(native, arrays, seen.observe)
        else:
            results = run(arrays)
        seconds = time.perf_counter() - clock
        for place, result in enumerate(results, len(arrays)):
            seen.add(self._described.at(place), result)
        if recorder is not None and chosen:
            weights = set(self._described.weights)
            of_weights = [each for each in seen.found if each[0] in weights]
            checkpoint = self._checkpoint(recorder, of_weights) if of_weights else 0
            self._put(recorder, number, checkpoint, begin, seconds, [e for e in seen.found if e[0] not in weights])
        if seen.is_outside:
            raise AuditError(self._located(native, seen, arrays))
        return results

    def _run_native(self, native: Any, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Past the observer, which is for calls that do not come by way of Python."""
        from ngraph_mxnet import _core

        results = [np.empty(each.shape, element_type(each.element).numpy) for each in self._described.tensors
                   if each.kind == RESULT]
        _core.run_unobserved(native, arrays, results)
        return results

    def _explain(self, native: Any, arrays: list[np.ndarray], output: int, numbers: Numbers) -> str:
        """The error for a result that is out of the bounds."""
        seen = _Seen(self._described, self._within, [])
        seen.check(self._described.at(len(arrays) + output), numbers)
        return self._located(native, seen, arrays)

    def _located(self, native: Any, seen: _Seen, arrays: Sequence[np.ndarray]) -> str:
        """The error, with the node where it began: unless each value was seen, another run finds it."""
        if self._values is not None and not self._every_value:
            again = _Seen(self._described, self._within, [])
            self._values.run(native, arrays, again.observe)
            seen = again if again.is_outside else seen
        return seen.error(arrays)

    def _inputs(self, arrays: Sequence[np.ndarray]) -> list[tuple[int, Numbers, bytes]]:
        return [(place, *observed(array, self._described.at(place).element)) for place, array in enumerate(arrays)]

    def _constants(self) -> tuple[Call, list[Observed]] | None:
        """The checkpoint of weights that were given to be constants."""
        elements = {each.place: each.element for each in self._described.tensors if each.place >= FIRST_CONSTANT}
        seen = [(place, *observed(np.asarray(array), elements[place]))
                for place, array in self._described.constants.items()]
        self._described.constants.clear()
        return self._weights(seen) if seen else None

    def _checkpoint(self, recorder: Recorder, seen: list[tuple[int, Numbers, bytes]]) -> int:
        """The number of the weights, which are recorded once for each content."""
        key = os.getpid(), b"".join(content for _, _, content in seen)
        with self._lock:
            if key not in self._checkpoints:
                call, found = self._weights(seen)
                recorder.add(call, found)
                self._checkpoints[key] = call[0]
            return self._checkpoints[key]

    def _weights(self, seen: list[tuple[int, Numbers, bytes]]) -> tuple[Call, list[Observed]]:
        from ngraph_mxnet import _core

        owner = _core.new_observation()
        call = (owner, self._number, 0, 0, time.time(), 0.0, threading.get_native_id(), memory("VmRSS"),
                memory("VmHWM"), True)
        return call, [(owner, *each) for each in seen]

    def _put(self, recorder: Recorder, number: int, checkpoint: int, begin: float, seconds: float,
             seen: list[tuple[int, Numbers, bytes]]) -> None:
        from ngraph_mxnet import _core

        owner = _core.new_observation()
        call = (owner, self._number, number, checkpoint, begin, seconds, threading.get_native_id(), 0, 0, False)
        recorder.add(call, [(owner, *each) for each in seen])


def observed(array: np.ndarray, element: str) -> tuple[Numbers, bytes]:
    """Statistics and hash of an array whose elements have this name."""
    from ngraph_mxnet import _core

    found: tuple[Numbers, bytes] = _core.statistics_and_hash(np.ascontiguousarray(array), element)
    return found


class _Seen:
    """The tensors seen in one call. `found`: tuples (place, statistics, hash)."""

    def __init__(self, described: Described, within: Bounds | None, found: list[tuple[int, Numbers, bytes]]) -> None:
        self._described, self._within, self.found = described, within, found
        self._outside: tuple[Tensor, Numbers] | None = None

    def observe(self, node: Node, index: int, array: np.ndarray) -> None:
        self.add(self._described.value(node, index), array)

    def add(self, tensor: Tensor, array: np.ndarray) -> None:
        numbers, content = observed(array, tensor.element)
        self.found.append((tensor.place, numbers, content))
        self.check(tensor, numbers)

    def check(self, tensor: Tensor, numbers: Numbers) -> None:
        """The first tensor that is out of the bounds counts."""
        if self._within is None or self._outside is not None or not tensor.element.startswith("f"):
            return
        low, high, _, _, nan, infinite, *_ = numbers
        if nan or (infinite and not self._within.infinite) or low < self._within.low or high > self._within.high:
            self._outside = tensor, numbers

    @property
    def is_outside(self) -> bool:
        """True if a tensor was out of the bounds."""
        return self._outside is not None

    def error(self, arrays: Sequence[np.ndarray]) -> str:
        """Return the message about the tensor that is out of the bounds, in a call with these inputs."""
        assert self._outside is not None
        tensor, (low, high, _, _, nan, infinite, *_) = self._outside
        text = (f"graph {self._described.name}: {phrase(tensor)} has {nan} NaN and {infinite} infinite numbers, the "
                f"others from {low:g} to {high:g}; the guard is {self._within}")
        odd = [self._described.at(place).name for place, array in enumerate(arrays)
               if array.dtype.kind == "f" and not np.isfinite(array).all()]
        return text + (f". NaN or infinite numbers were given in {', '.join(odd)}" if odd else "")
