"""A graph for a part of its batch, so that several devices share a call's work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np

from ngraph_mxnet.errors import ConfigError, PackageError
from ngraph_mxnet.ir.builder import make_node
from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.module import Flow, Shared, single_step
from ngraph_mxnet.ir.types import Role, Shape
from ngraph_mxnet.package import Package
from ngraph_mxnet.passes.prepare import split_prepare
from ngraph_mxnet.runtime.executable import Executable, ports_of
from ngraph_mxnet.targets.nnp.executable import NNPExecutable
from ngraph_mxnet.targets.nnp.isa.program import Program
from ngraph_mxnet.targets.nnp.lower.access import ways
from ngraph_mxnet.targets.nnp.report.report import Report
from ngraph_mxnet.targets.nnp.version import Arrays, Settings


def rebatched(graph: Graph, parts: int) -> Graph:
    """The graph for one of `parts` equal slices of the batch, axis 0 of all parameters that are no weights.

    Results that depend on the batch are slices of the original's, along axis 0; the others are whole.

    Raises:
        ConfigError: the batch is no multiple of `parts`, or a node mixes the images; the text names it.
    """
    found = Graph(graph.name)
    table: dict[Value, Value] = {}
    sliced: set[Value] = set()
    for parameter in graph.parameters:
        type_ = parameter.type
        if parameter.role is not Role.WEIGHT:
            type_ = type_.with_shape(_slice(parameter.shape, parts, f"input {parameter.name}"))
            sliced.add(parameter)
        table[parameter] = found.add_parameter(type_, parameter.name, parameter.role,
                                               origin=parameter.origin)
    for node in graph.nodes:
        attrs = dict(node.attrs)
        if any(value in sliced for value in node.inputs):
            attrs = _attrs(node, sliced, parts)
            sliced.update(node.outputs)
        twin = make_node(node.op.name, [table[value] for value in node.inputs], attrs, node.origin)
        for old, new in zip(node.outputs, twin.outputs, strict=True):
            wanted = _slice(old.shape, parts, str(node)) if old in sliced else old.shape
            if new.shape != wanted:
                raise ConfigError(_refusal(node))
            table[old] = new
        found.nodes.append(twin)
    found.results = [table[result] for result in graph.results]
    return found


def _slice(shape: Shape, parts: int, what: str) -> Shape:
    if not shape or shape[0] % parts:
        raise ConfigError(f"{what} has shape {list(shape)}: expected a first axis that {parts} devices can share "
                          "evenly; run on one device, or with another batch")
    return (shape[0] // parts, *shape[1:])


def _refusal(node: Node) -> str:
    return f"{node} mixes the images of a batch: several devices can't share it; run on one device"


def _attrs(node: Node, sliced: set[Value], parts: int) -> dict[str, Any]:
    """The attributes for a slice, when every operand in `sliced` and so every output is cut along axis 0."""
    attrs, name = dict(node.attrs), node.op.name
    shape = node.outputs[0].shape
    if name == "reshape":  # rows of elements stay in order, so an equal share of them is a slice of any first axis
        return {**attrs, "shape": _slice(shape, parts, str(node))}
    if not shape or shape[0] <= 1:
        raise ConfigError(_refusal(node))
    way = ways(node).get(0)
    if way is None or any(own != 0 for own in way.outputs):
        raise ConfigError(_refusal(node))
    for value, own in zip(node.inputs, way.inputs, strict=True):
        # A slice that the node needs whole, or an operand that is whole where it needs a slice.
        if (value in sliced) != (own == 0) and (value in sliced or (own is not None and value.shape[own] > 1)):
            raise ConfigError(_refusal(node))
    if name == "broadcast":
        attrs["shape"] = _slice(shape, parts, str(node))
    elif name == "slice":
        attrs["end"] = (node.attrs["end"][0] // parts, *node.attrs["end"][1:])
    return attrs


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
        """Return the replicas that the package was made from.

        Raises:
            PackageError: the package is damaged, or its device is not known.
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
        """The Program that each device runs."""
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
    """True if `part` may be the slice of `whole` that one of `count` devices has.

    An input must be a slice; a weight or a result may also be all of `whole`.
    """
    if whole is None or part is None or whole.role is not part.role:
        return False
    slices = part.type.rank > 0 and part.type.with_shape((count * part.type.shape[0], *part.type.shape[1:]))
    return whole.type in ({slices} if part.role is Role.INPUT else {part.type, slices})


def _slices(arrays: Arrays, cut: Sequence[bool], count: int) -> list[list[np.ndarray]]:
    """Each device's arrays."""
    pieces: list[Sequence[np.ndarray]] = [np.split(array, count) if mine else [array] * count
                                          for array, mine in zip(arrays, cut, strict=True)]
    return [list(each) for each in zip(*pieces, strict=True)]
