"""Runs the regions of a placed graph, each on its device; devices at once where the plan says so."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraph_mxnet.forks import ForkSafeLock, ForkSafePool
from ngraph_mxnet.hybrid.extraction import Part
from ngraph_mxnet.hybrid.options import MOST_DEVICES
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.runtime.compile import compile as compile_graph
from ngraph_mxnet.runtime.executable import Executable, input_ports, output_ports

if TYPE_CHECKING:
    from ngraph_mxnet.hybrid.plan import Plan


@dataclass(frozen=True)
class Step:
    """One region. `inputs` and `outputs` are places of a call's table of values."""

    device: int
    executable: Executable
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class HybridExecutable(Executable):
    """`plan` tells what runs where and why; `parts` and `steps` are the regions in the order of the plan.

    A region's results are the next ones' inputs as they are: nothing is copied on the way.
    """

    def __init__(self, graph: Graph, parts: Sequence[Part], executables: Sequence[Executable], plan: Plan) -> None:
        super().__init__(input_ports(graph), output_ports(graph))
        self.plan = plan
        self.parts = tuple(parts)
        places = {parameter: place for place, parameter in enumerate(graph.parameters)}
        for part in parts:
            for value in part.outputs:
                places[value] = len(places)
        self.steps = tuple(
            Step(part.device, executable, tuple(places[v] for v in part.inputs), tuple(places[v] for v in part.outputs))
            for part, executable in zip(parts, executables, strict=True)
        )
        self._results = [places[value] for value in graph.results]
        self._count = len(places)
        self._pool_of_calls: ForkSafePool | None = None
        self._devices = sorted({step.device for step in self.steps})
        if plan.overlaps and len(self._devices) > 1:
            self._pool_of_calls = ForkSafePool("ngraph-hybrid", threads=2 * MOST_DEVICES)
        self._submitting = ForkSafeLock()

    @property
    def native(self) -> Any:
        """That of the only region where it is the whole graph; None otherwise."""
        if len(self.steps) != 1 or self._results != list(self.steps[0].outputs):
            return None
        (step,) = self.steps
        return getattr(step.executable, "native", None) if step.inputs == tuple(range(len(self.inputs))) else None

    def simulate(self) -> Plan:
        """The plan, with the simulated time of each region that is compiled for a simulated device.

        Raises:
            ConfigError: in precision int8, before the first call.
        """
        first = len(self.steps) - len(self.plan.regions)  # a step without a region prepares results
        for number in range(len(self.plan.regions)):
            seconds = self.steps[first + number].executable.simulated_seconds()
            if seconds is not None:
                self.plan.simulated[number] = seconds
        return self.plan

    def listing(self) -> str:
        """That of each region, in the order of the plan."""
        return "".join(f"step {number} on {self.plan.devices[step.device]}\n{step.executable.listing()}"
                       for number, step in enumerate(self.steps, 1))

    def calibrate(self, samples: Sequence[Sequence[np.ndarray]]) -> None:
        """Let regions take what must be known of data (`Executable.calibrate`) from `samples`, each an array for each
        input, weights too.

        What one region gives the next is computed in the graph's types, where the device rounds by the interpreter.

        Raises:
            InputError: an array of a sample does not fit.
        """
        if not samples:
            return
        spare = [None] * (self._count - len(self.inputs))
        tables: list[list[Any]] = [[*self.checked(tuple(sample)), *spare] for sample in samples]
        for step, part in zip(self.steps, self.parts, strict=True):
            inputs = [[table[place] for place in step.inputs] for table in tables]
            reference = step.executable
            reference.calibrate(inputs)
            if reference.rough:
                reference = compile_graph(part.graph, "INTERPRETER")
            if step is self.steps[-1]:
                break
            for table, arrays in zip(tables, inputs, strict=True):
                for place, result in zip(step.outputs, reference.run(arrays), strict=True):
                    table[place] = result

    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        table: list[Any] = [*arrays, *[None] * (self._count - len(arrays))]
        if self._pool_of_calls is None:
            for step in self.steps:
                self._run_step(step, table)
        else:
            self._run_at_once(table, self._pool_of_calls)
        seen = set(range(len(arrays)))
        results = []
        for place in self._results:
            # An array that is returned twice, or was given, is not the caller's own.
            results.append(table[place].copy() if place in seen else table[place])
            seen.add(place)
        return results

    def _run_step(self, step: Step, table: list[Any]) -> None:
        results = step.executable.run([table[place] for place in step.inputs])
        for place, result in zip(step.outputs, results, strict=True):
            table[place] = result

    def _run_at_once(self, table: list[Any], pool: ForkSafePool) -> None:
        """Each device its steps in order, each step when what it reads is there."""
        makers: dict[int, Future[None]] = {}
        done: dict[Step, Future[None]] = {}
        for step in self.steps:
            done[step] = Future()
            makers.update(dict.fromkeys(step.outputs, done[step]))

        def work(device: int) -> None:
            failed: BaseException | None = None
            for step in self.steps:
                if step.device != device:
                    continue
                try:
                    if failed is not None:
                        raise failed
                    for place in step.inputs:
                        if place in makers:
                            makers[place].result()
                    self._run_step(step, table)
                except BaseException as error:  # the other devices must not wait for ever
                    failed = error
                    done[step].set_exception(error)
                else:
                    done[step].set_result(None)
            if failed is not None:
                raise failed

        first, *rest = self._devices
        with self._submitting:  # or two calls could each wait for a thread that works for the other
            others = [pool.submit(work, device) for device in rest]
        try:
            work(first)
        finally:
            for other in others:
                other.exception()  # it has ended, so the inputs are the caller's again
        for other in others:
            other.result()
