"""Runs the regions of a placed graph, each on its device; devices at once where the plan says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraph_mxnet.package import Package, encode_graph
from ngraph_mxnet.placement.extraction import Regions
from ngraph_mxnet.placement.plan.plan import encode_plan
from ngraph_mxnet.runtime.compile import compile as compile_graph
from ngraph_mxnet.runtime.executable import Executable, ports_of
from ngraph_mxnet.runtime.session import Session

if TYPE_CHECKING:
    from ngraph_mxnet.placement.plan.plan import Plan


class HybridExecutable(Executable):
    """`plan` tells what runs where and why; `module` has the regions, in the order of the plan, `devices` where each of
    its steps runs, and `session` runs them. `target` is the backend's name."""

    def __init__(self, target: str, regions: Regions, executables: Mapping[str, Executable], plan: Plan) -> None:
        super().__init__(*ports_of(regions.module.flow))
        self.target = target
        self.plan = plan
        self.module, self.devices = regions.module, regions.devices
        self.executables = dict(executables)
        self.session = Session(self.module.flow, self.executables, self.devices, at_once=plan.overlaps)

    @property
    def native(self) -> Any:
        """That of the only region where it is the whole graph; None otherwise."""
        if len(self.session.calls) != 1:
            return None
        (call,) = self.session.calls
        if self.session.results != call.outputs or call.inputs != tuple(range(len(self.inputs))):
            return None
        return getattr(call.executable, "native", None)

    def package(self) -> Package:
        code = {name: {"graph": encode_graph(graph), "package": self.executables[name].package().plain()}
                for name, graph in self.module.graphs.items()}
        settings = {"devices": self.devices, "plan": encode_plan(self.plan)}
        return Package(self.target, self.module.name, self.module.flow, code, settings)

    def simulate(self) -> Plan:
        """The plan, with the simulated time of each region that is compiled for a simulated device.

        Raises:
            ConfigError: in precision int8, before the first call.
        """
        first = len(self.session.calls) - len(self.plan.regions)  # a step without a region prepares results
        for number in range(len(self.plan.regions)):
            seconds = self.session.calls[first + number].executable.simulated_seconds()
            if seconds is not None:
                self.plan.simulated[number] = seconds
        return self.plan

    def listing(self) -> str:
        """That of each region, in the order of the plan."""
        return "".join(f"step {number} on {self.plan.devices[call.lane]}\n{call.executable.listing()}"
                       for number, call in enumerate(self.session.calls, 1))

    def calibrate(self, samples: Sequence[Sequence[np.ndarray]]) -> None:
        """Let regions take what must be known of data (`Executable.calibrate`) from `samples`, each an array for each
        input, weights too.

        What one region gives the next is computed in the graph's types, where the device rounds by the interpreter.

        Raises:
            InputError: an array of a sample does not fit.
        """
        if not samples:
            return
        tables = [self.session.table(self.checked(tuple(sample))) for sample in samples]
        for call, step in zip(self.session.calls, self.module.flow.steps, strict=True):
            inputs = [[table[place] for place in call.inputs] for table in tables]
            reference = call.executable
            reference.calibrate(inputs)
            if reference.rough:
                reference = compile_graph(self.module.graphs[step.graph], "INTERPRETER")
            if call is self.session.calls[-1]:
                break
            for table, arrays in zip(tables, inputs, strict=True):
                for place, result in zip(call.outputs, reference.run(arrays), strict=True):
                    table[place] = result

    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        return self.session.run(arrays)
