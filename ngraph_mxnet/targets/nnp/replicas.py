"""Several simulated devices that share the batch of a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from ngraph_mxnet.errors import PackageError
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.ir.module import Flow, Shared, single_step
from ngraph_mxnet.ir.roles import Role
from ngraph_mxnet.package import Package
from ngraph_mxnet.passes.prepare import split_prepare
from ngraph_mxnet.runtime.executable import Executable, ports_of
from ngraph_mxnet.targets.nnp.executable import NNPExecutable
from ngraph_mxnet.targets.nnp.isa.program import Program
from ngraph_mxnet.targets.nnp.rebatch import rebatched
from ngraph_mxnet.targets.nnp.report.report import Report
from ngraph_mxnet.targets.nnp.version import Arrays, Settings

PART = "part"
"""The code of such a package: what each device runs, a package itself."""


class NNPReplicas(Executable):
    """Each of `settings.devices` gets an equal slice of the batch, and all weights into a memory of its own.

    All run the same Program at once; that one simulator computes their numbers, one after the other, changes none.
    """

    def __init__(self, name: str, flow: Flow, part: NNPExecutable) -> None:
        """
        Args:
            flow: one call of the whole.
            part: what each device runs.
        """
        super().__init__(*ports_of(flow))
        self.part, self._name, self._flow, self._count = part, name, flow, part.settings.devices
        self._cut = [value.role is not Role.WEIGHT for value in flow.inputs]
        self._joined = [own.type != mine.type for own, mine in zip(part.outputs, self.outputs, strict=True)]

    @staticmethod
    def compiled(target: str, graph: Graph, settings: Settings) -> NNPReplicas:
        """
        Args:
            target: the backend's name.

        Raises:
            ConfigError: the graph can't be cut along its batch.
        """
        flow, part = single_step(graph, PART), rebatched(graph, settings.devices)
        cut = [value.role is not Role.WEIGHT for value in flow.inputs]
        samples = tuple(piece for sample in settings.samples for piece in _slices(sample, cut, settings.devices))
        own = NNPExecutable(target, split_prepare(part), replace(settings, samples=samples))
        return NNPReplicas(graph.name, flow, own)

    @staticmethod
    def of(target: str, package: Package) -> NNPReplicas:
        """What gave the package.

        Raises:
            PackageError: it is damaged, or of a device that is not known.
        """
        part = NNPExecutable.of(target, Package.from_plain(package.code[PART]))
        flow, own, count = package.flow, part.module.flow, part.settings.devices
        both = (*zip_longest(flow.inputs, own.inputs), *zip_longest(flow.results, own.results))
        fits = all(_fits(value, mine, count) for value, mine in both)
        if not fits or [step.graph for step in flow.steps] != [PART] or count < 2:
            raise PackageError(f"package {package.name}: what each of {count} devices runs is no part of it")
        return NNPReplicas(package.name, flow, part)

    @property
    def program(self) -> Program:
        """What each device runs."""
        return self.part.program

    def package(self) -> Package:
        return Package(self.part.target, self._name, self._flow, {PART: self.part.package().plain()})

    def report(self) -> Report:
        """The report of one device: the others do the same at the same time."""
        return self.part.report()

    def listing(self) -> str:
        """The listing of one device: the others run the same."""
        return self.part.listing()

    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        slices = _slices(arrays, self._cut, self._count)
        self.part.calibrate(slices)
        parts = [self.part.run(each) for each in slices]
        return [np.concatenate(results) if joined else results[0]
                for joined, results in zip(self._joined, zip(*parts, strict=True), strict=True)]


def _fits(whole: Shared | None, part: Shared | None, count: int) -> bool:
    """Whether `part` may be a slice of `whole`, for one of so many devices, or the same where there is none."""
    if whole is None or part is None or whole.role is not part.role:
        return False
    slices = part.type.rank > 0 and part.type.with_shape((count * part.type.shape[0], *part.type.shape[1:]))
    return whole.type in ({slices} if part.role is Role.INPUT else {part.type, slices})


def _slices(arrays: Arrays, cut: Sequence[bool], count: int) -> list[list[np.ndarray]]:
    """Each device's arrays."""
    pieces: list[Sequence[np.ndarray]] = [np.split(array, count) if mine else [array] * count
                                          for array, mine in zip(arrays, cut, strict=True)]
    return [list(each) for each in zip(*pieces, strict=True)]
