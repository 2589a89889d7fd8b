"""Which parts of a model run on a backend, for ranges of sizes, and in training; and why the others do not."""

from __future__ import annotations

import glob
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraph_mxnet.base.errors import ModelError, UnsupportedError, listed
from ngraph_mxnet.base.rendered import Facts
from ngraph_mxnet.distributed.gradients import bucket_bytes, make_plan
from ngraph_mxnet.frontends.mxnet.importer import (
    A_SPARSE_GRADIENT,
    lower_graph,
    sparse_gradients,
    why_left,
    why_not_dense,
)
from ngraph_mxnet.frontends.mxnet.judgement import Cut, argument_types, pins_of
from ngraph_mxnet.frontends.mxnet.symbol_json import SymbolGraph, SymbolNode, parse_symbol
from ngraph_mxnet.frontends.verdicts import Explanation, Partition, Verdict
from ngraph_mxnet.ir import Graph, TensorType
from ngraph_mxnet.ir.types import ELEMENT_TYPES
from ngraph_mxnet.plugin.arrays import brief
from ngraph_mxnet.plugin.binding.partitioner import NamelessGraph
from ngraph_mxnet.plugin.inference import check_inputs, inferred_shapes
from ngraph_mxnet.program.backend import Backend, get_backend
from ngraph_mxnet.program.ranges import (
    ChangingShapes,
    RangeExplanation,
    RangeVerdict,
    Template,
    attempt,
    check_axes,
    require_fixed_weights,
)

if TYPE_CHECKING:
    from mxnet.symbol import Symbol

    from ngraph_mxnet.plugin.binding.partitioner import Partitioned
    from ngraph_mxnet.plugin.training.steps import Step


Shapes = Mapping[str, Sequence[int]]
DTypes = Mapping[str, Any]


def explain(symbol: Symbol, shapes: Shapes, dtypes: DTypes, backend: str | None, *, kernels: bool,
            options: Mapping[str, Any]) -> Explanation:
    """Partition a symbol as a bind for inference would; see `ngraph_mxnet.explain`."""
    from ngraph_mxnet.plugin.binding import partitioner

    planner = get_backend(backend)
    check_inputs(symbol, shapes, dtypes)
    text = partitioner.json_of(symbol)
    sparse = why_not_dense(text)
    if sparse is not None:
        nodes = parse_symbol(text).operators()
        return Explanation(Partition(planner.name, [Verdict(node.name, node.op, sparse) for node in nodes]))
    shapes = {name: tuple(shape) for name, shape in shapes.items()}
    with _inferring(shapes):
        told = all_dtypes(symbol, dtypes)
        types = {name: (shapes.get(name), told.get(name)) for name in {**shapes, **told}}
        found, regions = region_graphs(symbol, types, planner)
        return Explanation.of(found, regions, planner, kernels=kernels, options=options)


@contextmanager
def _inferring(shapes: Shapes) -> Iterator[None]:
    """Raises ModelError where MXNet finds the shapes inconsistent."""
    import mxnet as mx

    try:
        yield
    except mx.base.MXNetError as error:
        raise ModelError(f"MXNet can't infer the model's shapes from {dict(shapes)}: {brief(error)}") from None


def region_graphs(symbol: Symbol, types: Mapping[str, Any],
                  backend: Backend) -> tuple[Partition, list[tuple[Graph, dict[str, Any]]]]:
    """How `symbol` is partitioned for inputs of these shapes and dtypes, and the graph of each region, its weights
    unknown, with where its nodes are pinned, as an option. Raises UnsupportedError or MXNetError: the symbol has names,
    or shapes, that it can't have."""
    from ngraph_mxnet.plugin.binding import partitioner
    from ngraph_mxnet.plugin.binding.partitioner import partition

    nameless = NamelessGraph(partitioner.json_of(symbol))
    found = partition(symbol, nameless, types, backend)
    # A compilation takes the graphs themselves, and its passes change them.
    graphs = [graph.clone() for graph in found.graphs]
    regions = [(graph, _pins(nameless, cut, backend)) for graph, cut in zip(graphs, found.cuts, strict=True)]
    return partitioner.with_names(found.partition, nameless), regions


def all_dtypes(symbol: Symbol, dtypes: DTypes) -> dict[str, Any]:
    """The dtype of every input: the partitioner takes float32 for those that it is not told."""
    if not dtypes:
        return {}
    import mxnet as mx

    try:
        arguments, _, states = symbol.infer_type(**dtypes)
    except mx.base.MXNetError as error:
        raise ModelError(f"MXNet can't infer the model's types from {dict(dtypes)}: {brief(error)}") from None
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    return dict(zip(names, [*(arguments or []), *(states or [])], strict=False))


def _pins(nameless: NamelessGraph, cut: Cut, backend: Backend) -> dict[str, Any]:
    """Where the region's symbol wants nodes to run, as an option."""
    if not backend.devices:
        return {}
    return {"pins": {glob.escape(nameless.named(origin)): pin
                     for origin, pin in pins_of(cut.graph, backend.devices).items()}}


@dataclass(frozen=True)
class BucketTraining:
    """`gradients`: names, in the order in which they become final; `bytes`: of all; `ready`: the share of the backward
    pass, from 0 to 1, after which the last of them is final."""

    gradients: tuple[str, ...]
    bytes: int
    ready: float


def buckets_of(step: Step) -> tuple[tuple[BucketTraining, ...], float]:
    """The buckets in the order in which they are sent, and the seconds of the backward pass, which is run twice on
    zeros."""
    from ngraph_mxnet import _core

    native = step.backward.native
    inputs, outputs = ([np.zeros(shape, ELEMENT_TYPES[element].numpy) for element, shape in each]
                       for each in (native.inputs, native.outputs))
    native.run(inputs, outputs)  # memory is touched
    watch = _core.ResultWatch([(each.__array_interface__["data"][0], 0) for each in outputs])
    begin = time.monotonic()
    native.run(inputs, outputs)
    seconds = time.monotonic() - begin
    ready = {number: at - begin for number, at, _ in watch.take(0.0)}
    sizes, dtypes = [each.size for each in outputs], [each.dtype for each in outputs]
    plan = make_plan(sizes, dtypes, list(ready), bucket_bytes())
    return tuple(BucketTraining(tuple(step.wanted[slot.gradient] for slot in bucket.slots),
                                sum(slot.bytes for slot in bucket.slots),
                                max(ready[slot.gradient] for slot in bucket.slots) / seconds)
                 for bucket in plan), seconds


def explain_shapes(symbol: Symbol, shapes: Shapes, axes: Mapping[str, Sequence[int]],
                   dtypes: DTypes, backend: str | None) -> RangeExplanation:
    """Explain what a bind of the symbol would compile for ranges of sizes; see `ngraph_mxnet.explain_shapes`."""
    from ngraph_mxnet.plugin.binding import partitioner
    from ngraph_mxnet.plugin.binding.partitioner import partition

    planner = get_backend(backend)
    check_inputs(symbol, shapes, dtypes)
    given = {name: tuple(shape) for name, shape in shapes.items()}
    nameless = NamelessGraph(partitioner.json_of(symbol))
    told = all_dtypes(symbol, dtypes)

    def regions(sizes: Shapes) -> _Regions:
        types = {name: (sizes.get(name), told.get(name)) for name in {**sizes, **told}}
        with _inferring(sizes):
            return _Regions.of(nameless, sizes, partition(symbol, nameless, types, planner))

    now, later = regions(given), regions(_others(given, axes))
    found = [_verdict(now, later, members, planner) for members in now.cuts]
    found += [now.missing(members) for members in later.cuts if members not in now.cuts]
    ranges = tuple(verdict for verdict in found if verdict is not None)
    return RangeExplanation(ranges, len(found) - len(ranges))


_Members = tuple[str, ...]
"""The nodes of a region, by their places in the model."""


@dataclass(frozen=True)
class _Regions:
    """The regions of the model at one set of sizes. `left`: the nodes that stay with MXNet, each with the reason."""

    nameless: NamelessGraph
    sizes: Shapes
    graph: SymbolGraph
    cuts: Mapping[_Members, Cut]
    left: Mapping[str, str]

    @staticmethod
    def of(nameless: NamelessGraph, sizes: Shapes, found: Partitioned) -> _Regions:
        cuts = {tuple(name for name, _ in region.nodes): cut
                for region, cut in zip(found.partition.regions, found.cuts, strict=True)}
        left = {verdict.name: nameless.named(str(verdict.reason)) for verdict in found.partition.left()}
        return _Regions(nameless, sizes, found.graph, cuts, left)

    def name(self, members: _Members) -> str:
        return self.nameless.named(members[-1])

    def missing(self, members: _Members) -> RangeVerdict:
        """On nodes that are a region, but not at these sizes."""
        return RangeVerdict(self.name(members), (), (), self._why_missing(members))

    def _why_missing(self, members: _Members) -> str:
        at = listed(f"{name}={tuple(shape)}" for name, shape in self.sizes.items())
        for node in members:
            if node in self.left:
                return f"at {at} {self.nameless.named(node)} stays with MXNet: {self.left[node]}"
        return f"at {at} other nodes are in its region, too"


def _others(shapes: Mapping[str, tuple[int, ...]], axes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Larger shapes, in which no two axes have grown alike."""
    check_axes(axes, shapes)
    factors = count(2)
    others = {name: list(shape) for name, shape in shapes.items()}
    for name, changing in axes.items():
        for axis in changing:
            others[name][axis] *= next(factors)
    return {name: tuple(shape) for name, shape in others.items()}


def _verdict(regions: _Regions, others: _Regions, members: _Members, backend: Backend) -> RangeVerdict | None:
    """None where the sizes of the region's inputs are the same."""
    if members not in others.cuts:
        return others.missing(members)
    name, cut, nameless = regions.name(members), regions.cuts[members], regions.nameless
    now, later = argument_types(cut.graph), argument_types(others.cuts[members].graph)
    assert now is not None and later is not None  # a node that reads an unknown type is in no region
    if [type_.rank for type_ in now] != [type_.rank for type_ in later]:
        return RangeVerdict(name, (), (), "its inputs have other ranks when the sizes change")
    changing = ChangingShapes()
    changing.symbolic(tuple(type_.shape for type_ in later))
    symbolic = changing.symbolic(tuple(type_.shape for type_ in now))
    if symbolic is None:
        return None
    types = [TensorType(type_.element, shape) for type_, shape in zip(now, symbolic[0], strict=True)]
    inputs = [f"{nameless.named(regions.graph.nodes[edge.node].name)}: {type_}"
              for edge, type_ in zip(cut.sources, types, strict=True) if type_.is_symbolic]

    def template() -> Template | None:
        graph = lower_graph(cut.graph, types)
        nameless.put_names(graph)
        require_fixed_weights(graph)
        return backend.template(graph, {})

    return RangeVerdict.of(name, inputs, attempt(symbolic[1], template), nameless.named)


MXNET, NOTHING, COVERED = "MXNet", "nothing goes back", "no kernel of its own"


@dataclass(frozen=True)
class NodeTraining:
    """`forward`, `backward`: what runs it, `MXNet` or a program of ours (`whole`, `part 2`); `reason`: why MXNet."""

    name: str
    op: str
    forward: str
    backward: str
    reason: str | None = None


@dataclass(frozen=True)
class UpdateTraining:
    """`where`: what updates the parameter, with an optimizer that has a compiled update; `reason`: why MXNet."""

    name: str
    bytes: int
    where: str
    reason: str | None = None


@dataclass(frozen=True, repr=False)
class TrainingExplanation(Facts):
    """Prints as tables; `to_dict` is for programs.

    Attributes:
        whole: why the model is not one program; None where it is.
        buckets: in which the gradients of one program would travel between processes, in their order.
        backward_seconds: of that program's backward pass; 0 without one.
        saved_bytes: what our programs keep from forward to backward.
        optimizers: the classes that have a compiled update.
    """

    nodes: tuple[NodeTraining, ...]
    updates: tuple[UpdateTraining, ...]
    saved_bytes: int
    optimizers: tuple[str, ...]
    whole: str | None = None
    buckets: tuple[BucketTraining, ...] = ()
    backward_seconds: float = 0.0

    layout = "training"

    @property
    def compiles(self) -> bool:
        """True if any node trains compiled."""
        return self.compiled > 0

    @property
    def compiled(self) -> int:
        return sum(node.forward != MXNET for node in self.nodes)


def explain_training(symbol: Symbol, shapes: Shapes, dtypes: DTypes) -> TrainingExplanation:
    """Explain what training would compile of the symbol; see `ngraph_mxnet.explain_training`. The programs are
    compiled, and the backward half of a model that is one program is run on zeros."""
    check_inputs(symbol, shapes, dtypes)
    with _inferring(shapes):
        types = _types(symbol, {name: tuple(shape) for name, shape in shapes.items()}, dtypes)
    trained = [name for name in symbol.list_arguments()
               if name not in shapes and not name.endswith("label") and np.dtype(types[name][1]).kind == "f"]
    return _explained(symbol, types, trained)


def _types(symbol: Symbol, shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, Any]) -> dict[str, Any]:
    """Shape and dtype of each variable."""
    told = {**all_dtypes(symbol, dtypes), **dtypes}
    return {name: (shape, np.dtype(told.get(name) or np.float32))
            for name, shape in inferred_shapes(symbol, shapes).items()}


def _explained(symbol: Symbol, types: Mapping[str, Any], trained: Sequence[str]) -> TrainingExplanation:
    from ngraph_mxnet.ir import element_type
    from ngraph_mxnet.plugin.binding import partitioner
    from ngraph_mxnet.plugin.training.parts import PartedStep
    from ngraph_mxnet.plugin.training.steps import Step
    from ngraph_mxnet.plugin.training.updates import compiled_optimizers

    text = partitioner.json_of(symbol)
    graph = parse_symbol(text)
    sparse = sparse_gradients(graph)
    optimizers = tuple(compiled_optimizers())
    updates = _updates({name: types[name] for name in trained}, sparse)

    def all_mxnets(reason: str, whole: str) -> TrainingExplanation:
        nodes = [NodeTraining(node.name, node.op, MXNET, MXNET, reason) for node in graph.operators()]
        return TrainingExplanation(tuple(nodes), updates, 0, optimizers, whole)

    if (reason := why_not_dense(text)) is not None:
        return all_mxnets(reason, reason)
    told = {name: TensorType(element_type(dtype), shape) for name, (shape, dtype) in types.items()}
    try:
        if sparse:
            raise UnsupportedError(A_SPARSE_GRADIENT)
        step = Step(text, told, trained)
        passed = _passed(graph, [step])
        nodes = [_ours(node, "whole", step, passed) for node in graph.operators()]
        return TrainingExplanation(tuple(nodes), updates, step.saved_bytes, optimizers, None, *buckets_of(step))
    except UnsupportedError as error:
        whole = " ".join(str(error).split())
    try:
        parted = PartedStep(symbol, told, trained, why_left(sparse))
    except UnsupportedError as error:
        return all_mxnets(str(error), whole)
    ours = [(stage.cut, stage.step) for stage in parted.stages if stage.step is not None]
    found = {member: (f"part {number}", step) for number, (cut, step) in enumerate(ours, 1) for member in cut.members}
    left = {verdict.name: verdict.reason for verdict in parted.partition.left()}
    passed = _passed(parted.graph, [step for _, step in ours])
    nodes = [_ours(node, *found[node.index], passed) if node.index in found
             else NodeTraining(node.name, node.op, MXNET, MXNET, left.get(node.name))
             for node in parted.graph.operators()]
    return TrainingExplanation(tuple(nodes), updates, parted.saved_bytes, optimizers, whole)


def _passed(graph: SymbolGraph, steps: Sequence[Step]) -> set[int]:
    """The nodes behind one that a gradient reaches: it goes through them, though a pass may have joined their own
    adjoints to others."""
    reached, behind = {origin for step in steps for origin in step.gone_back}, set[int]()
    for node in graph.nodes:
        if any(edge.node in behind or graph.nodes[edge.node].origin in reached for edge in node.inputs):
            behind.add(node.index)
    return behind


def _ours(node: SymbolNode, where: str, step: Step, passed: set[int]) -> NodeTraining:
    back = where if node.origin in step.gone_back else COVERED if node.index in passed else NOTHING
    return NodeTraining(node.name, node.op, where, back)


def _updates(types: Mapping[str, tuple[Sequence[int], np.dtype[Any]]], sparse: Sequence[str]
             ) -> tuple[UpdateTraining, ...]:
    """One program updates all with dense gradients or none: one that is not float32 leaves the others to MXNet."""
    other = next((name for name, (_, dtype) in types.items() if name not in sparse and dtype != np.float32), None)

    def update(name: str, shape: Sequence[int], dtype: np.dtype[Any]) -> UpdateTraining:
        reason = None
        if name in sparse:
            reason = "its gradient is sparse"
        elif dtype != np.float32:
            reason = f"it is {dtype}, not float32"
        elif other is not None:
            reason = f"{other} is {types[other][1]}, and one program updates all or none"
        return UpdateTraining(name, int(np.prod(shape)) * dtype.itemsize, "one program" if reason is None else MXNET,
                              reason)

    return tuple(update(name, *found) for name, found in types.items())
