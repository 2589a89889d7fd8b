"""Several simulated devices that share the batch of a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.nnp.executable import Arrays, NNPExecutable, Settings
from ngraph_mxnet.nnp.program import Program
from ngraph_mxnet.nnp.rebatch import rebatched
from ngraph_mxnet.nnp.report import Report
from ngraph_mxnet.runtime.executable import Executable, input_ports, output_ports


class NNPCluster(Executable):
    """Each of `settings.devices` gets an equal slice of the batch, and all weights into a memory of its own.

    All run the same Program at once; that one simulator computes their numbers, one after the other, changes none.

    Raises:
        ConfigError: the graph can't be cut along its batch.
    """

    def __init__(self, graph: Graph, settings: Settings) -> None:
        super().__init__(input_ports(graph), output_ports(graph))
        self._count = settings.devices
        part = rebatched(graph, self._count)
        self._cut = [not parameter.cacheable for parameter in graph.parameters]
        self._joined = [own.shape != mine.shape for own, mine in zip(part.results, graph.results, strict=True)]
        samples = tuple(piece for sample in settings.samples for piece in self._slices(sample))
        self.part = NNPExecutable(part, replace(settings, samples=samples))

    @property
    def program(self) -> Program:
        """What each device runs."""
        return self.part.program

    def report(self) -> Report:
        """The report of one device: the others do the same at the same time."""
        return self.part.report()

    def listing(self) -> str:
        """The listing of one device: the others run the same."""
        return self.part.listing()

    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        slices = self._slices(arrays)
        self.part.calibrate(slices)
        parts = [self.part.run(each) for each in slices]
        return [np.concatenate(results) if joined else results[0]
                for joined, results in zip(self._joined, zip(*parts, strict=True), strict=True)]

    def _slices(self, arrays: Arrays) -> list[list[np.ndarray]]:
        """Each device's arrays."""
        cut: list[Sequence[np.ndarray]] = [
            np.split(array, self._count) if mine else [array] * self._count
            for array, mine in zip(arrays, self._cut, strict=True)
        ]
        return [list(each) for each in zip(*cut, strict=True)]
