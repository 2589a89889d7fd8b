"""Runs the steps of a flow, each by what its graph was compiled to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngraph_mxnet.errors import PackageError
from ngraph_mxnet.forks import ForkSafeLock, ForkSafePool
from ngraph_mxnet.ir.module import Flow
from ngraph_mxnet.runtime.executable import Executable

MOST_LANES = 16
"""The most devices that may share a graph."""


@dataclass(frozen=True)
class Call:
    """One step. `inputs` and `outputs` are places of a call's table of values; `lane` is where it runs."""

    lane: int
    executable: Executable
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Session:
    """A step's results are the next ones' inputs as they are: nothing is copied on the way.

    Steps run one after the other; with `at_once`, those of one lane do, and lanes at the same time, each step when what
    it reads is there.
    """

    def __init__(self, flow: Flow, executables: Mapping[str, Executable], lanes: Sequence[int] | None = None, *,
                 at_once: bool = False) -> None:
        """
        Args:
            executables: by the names of the graphs.
            lanes: of each step, below MOST_LANES.

        Raises:
            PackageError: an executable does not fit its step.
        """
        places = {value: place for place, value in enumerate(flow.values())}
        calls = []
        for step, lane in zip(flow.steps, lanes or [0] * len(flow.steps), strict=True):
            executable = executables[step.graph]
            for kind, values, ports in (("inputs", step.inputs, executable.inputs),
                                        ("outputs", step.outputs, executable.outputs)):
                if [value.type for value in values] != [port.type for port in ports]:
                    raise PackageError(f"step {step.graph}: found {kind} {', '.join(map(str, values))}, and what it "
                                       f"calls has {', '.join(map(str, ports))}")
            calls.append(Call(lane, executable, tuple(places[v] for v in step.inputs),
                              tuple(places[v] for v in step.outputs)))
        self.calls = tuple(calls)
        self.results = tuple(places[value] for value in flow.results)
        """Their places in the table."""
        self._count = len(places)
        self._lanes = sorted({call.lane for call in calls})
        self._pool = ForkSafePool("ngraph-session", 2 * MOST_LANES) if at_once and len(self._lanes) > 1 else None
        self._submitting = ForkSafeLock()

    def table(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """The values of a call: the inputs, and room for what the steps make."""
        return [*arrays, *[None] * (self._count - len(arrays))]

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results; none shares memory with an input or another result."""
        table = self.table(arrays)
        if self._pool is None:
            for call in self.calls:
                _run(call, table)
        else:
            self._run_at_once(table, self._pool)
        seen = set(range(len(arrays)))
        results = []
        for place in self.results:
            # An array that is returned twice, or was given, is not the caller's own.
            results.append(table[place].copy() if place in seen else table[place])
            seen.add(place)
        return results

    def _run_at_once(self, table: list[Any], pool: ForkSafePool) -> None:
        makers: dict[int, Future[None]] = {}
        done: dict[Call, Future[None]] = {}
        for call in self.calls:
            done[call] = Future()
            makers.update(dict.fromkeys(call.outputs, done[call]))

        def work(lane: int) -> None:
            failed: BaseException | None = None
            for call in self.calls:
                if call.lane != lane:
                    continue
                try:
                    if failed is not None:
                        raise failed
                    for place in call.inputs:
                        if place in makers:
                            makers[place].result()
                    _run(call, table)
                except BaseException as error:  # the other lanes must not wait for ever
                    failed = error
                    done[call].set_exception(error)
                else:
                    done[call].set_result(None)
            if failed is not None:
                raise failed

        first, *rest = self._lanes
        with self._submitting:  # or two calls could each wait for a thread that works for the other
            others = [pool.submit(work, lane) for lane in rest]
        try:
            work(first)
        finally:
            for other in others:
                other.exception()  # it has ended, so the inputs are the caller's again
        for other in others:
            other.result()


def _run(call: Call, table: list[Any]) -> None:
    results = call.executable.run([table[place] for place in call.inputs])
    for place, result in zip(call.outputs, results, strict=True):
        table[place] = result
