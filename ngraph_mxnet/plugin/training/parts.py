"""A symbol that is not ours as a whole, trained in parts: regions of ours and what is left between them, in order.

Each part is one node on MXNet's tape, which carries the gradients from part to part.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mxnet as mx
from mxnet import autograd
from mxnet import symbol as mx_symbol
from mxnet.ndarray import CachedOp, NDArray
from mxnet.symbol import Symbol

from ngraph_mxnet.autodiff import differentiate
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import canonical
from ngraph_mxnet.frontends.mxnet.symbol_json import VARIABLE, Edge, SymbolGraph, SymbolNode
from ngraph_mxnet.frontends.verdicts import Partition, Region, Verdict
from ngraph_mxnet.ir import Graph, TensorType
from ngraph_mxnet.ir.graph import Cost, graph_cost
from ngraph_mxnet.plugin.judging import partitioner
from ngraph_mxnet.plugin.judging.judgement import Cut, Mode, WholeGraph, cut_region, judge_graph, regions_of, type_of
from ngraph_mxnet.plugin.judging.partitioner import NamelessGraph, Types, with_types
from ngraph_mxnet.plugin.training.program import TrainingProgram
from ngraph_mxnet.plugin.training.rules import find_training_rule
from ngraph_mxnet.plugin.training.steps import RecordedSteps, head_of
from ngraph_mxnet.program.backend import Backend, get_backend

_MAKES_SPARSE = ("cast_storage", "sparse_retain", "_square_sum")
"""Operators whose results, or whose readers' results, are no dense arrays."""
OWN_GRADIENT = ("SoftmaxOutput", "LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput",
                "SVMOutput", "MakeLoss", "make_loss", "IdentityAttachKLSparseReg", "Custom")
"""Operators whose gradient need not be asked for: it goes back whichever output `backward` is called of."""


@dataclass(frozen=True)
class Judged:
    """`graph`: with types and names. `verdicts`: on its operators. `cuts`: the regions that may be compiled.
    `active`: what depends on what is trained."""

    graph: SymbolGraph
    verdicts: list[Verdict]
    cuts: list[Cut]
    active: frozenset[Edge]


def judge_training(symbol: Symbol, nameless: NamelessGraph, types: Types, trained: Collection[str], backend: Backend,
                   left: Mapping[str, str] | None = None) -> Judged:
    """
    Args:
        symbol: a training graph.
        nameless: the same graph without names.
        types: those of its variables, by their names.
        trained: names of variables that gradients are wanted of.
        left: variables whose readers stay with MXNet, by name, with the reason.

    Raises:
        MXNetError: the types contradict each other.
        UnsupportedError: it can't be cut; the text says why.
    """
    typed = with_types(symbol, nameless, types)
    nodes = tuple(replace(node, name=nameless.names[node.index], bodies=nameless.named_bodies(node.bodies))
                  for node in typed.nodes)
    graph = replace(typed, nodes=nodes)
    _check(graph)
    mode = Mode(lambda op: find_training_rule(op), _no_way_back, lambda graph: None)
    reasons, numbers = judge_graph(WholeGraph(graph, backend, mode), _kept(graph, left or {}))
    verdicts = [Verdict(node.name, node.op, reasons[node.index]) for node in graph.operators()]
    return Judged(graph, verdicts, [cut_region(graph, region) for region in regions_of(numbers)],
                  frozenset(_depending(graph, trained)))


def _check(graph: SymbolGraph) -> None:
    sparse = next((node for node in graph.operators() if canonical(node.op) in _MAKES_SPARSE), None)
    if sparse is not None:
        raise UnsupportedError(f"{sparse.origin} makes sparse arrays")
    if any(graph.nodes[head.node].is_variable for head in graph.heads):
        raise UnsupportedError("an output is a variable")
    unasked = [node for node in graph.operators() if canonical(node.op) in OWN_GRADIENT]
    if unasked and len(set(graph.heads)) > 1:
        raise UnsupportedError(f"gradients go back from {unasked[0].origin} whichever output is asked for, and in "
                               "parts only those behind the output are computed")


def _kept(graph: SymbolGraph, left: Mapping[str, str]) -> dict[int, str]:
    """The operators that read one of these variables, and why they stay."""
    return {node.index: left[name] for node in graph.operators() for edge in node.inputs
            if (name := graph.nodes[edge.node].name) in left and graph.nodes[edge.node].is_variable}


def _no_way_back(node: SymbolNode, alone: Callable[[], Graph]) -> str | None:
    """Why no gradient goes back through the operator."""
    graph = alone()
    wanted = [parameter.name for parameter in graph.parameters if parameter.type.element.is_float]
    try:
        if wanted and any(value.type.element.is_float for value in graph.results):
            differentiate(graph, wanted)
    except UnsupportedError as error:
        return " ".join(str(error).split())
    return None


def _depending(graph: SymbolGraph, trained: Collection[str]) -> set[Edge]:
    """Floats that depend on what is trained, as far as the graph tells."""
    found: set[Edge] = set()
    for node in graph.nodes:
        if node.name in trained if node.is_variable else any(edge in found for edge in node.inputs):
            found.update(Edge(node.index, output) for output in range(len(node.types or ())))
    return {edge for edge in found if (type_ := type_of(graph, edge)) is None or type_.element.is_float}


logger = logging.getLogger("ngraph_mxnet")

BACKEND = "CPU"
LEAST_WORK = 1 << 22
"""Multiply-adds and other operations of a region's forward pass: one that computes less gains less than a part more
costs in a step, 0.34 ms (*measured* on one core of an AMD Zen 4, when MXNet's threads still called Python)."""

Arrays = Mapping[str, NDArray]


@dataclass(frozen=True)
class Trained:
    """A region that is compiled.

    Attributes:
        cut: its arguments are called `a0`, `a1`, ... in the order of its sources.
        wanted: the places of sources that gradients are wanted of.
    """

    cut: Cut
    program: TrainingProgram
    wanted: tuple[int, ...]


@dataclass(frozen=True)
class Parted:
    """`parts`, in the order in which they run: `Trained` are ours, a `Cut` is MXNet's. `active`: as in `Judged`."""

    graph: SymbolGraph
    active: frozenset[Edge]
    attrs: Any
    partition: Partition
    parts: list[Trained | Cut]

    @property
    def trained(self) -> list[Trained]:
        return [part for part in self.parts if isinstance(part, Trained)]


def part(symbol: Symbol, types: Types, trained: Collection[str], left: Mapping[str, str] | None = None) -> Parted:
    """Cut the symbol, and compile its regions.

    Args:
        types: shape and dtype of all variables, by name.
        trained: names of the variables that gradients are wanted of.
        left: variables whose readers stay with MXNet, by name, with the reason.

    Raises:
        UnsupportedError: it can't be cut, or no region is worth it; the text says why.
        MXNetError: the types contradict each other.
    """
    nameless = NamelessGraph(partitioner.json_of(symbol))
    judged = judge_training(symbol, nameless, types, trained, get_backend(BACKEND), left)
    partition = Partition(BACKEND, judged.verdicts)
    found: list[Trained] = []
    for cut in judged.cuts:
        made, region = _compiled(judged, _renamed(cut))
        partition.reviewed.append(region)
        if made is not None:
            found.append(made)
    if not found:
        raise UnsupportedError(_nothing(partition))
    parts = list(_scheduled(judged.graph, found))
    return Parted(judged.graph, judged.active, nameless.root.get("attrs"), partition, parts)


def _nothing(partition: Partition) -> str:
    reasons = dict.fromkeys(reason for verdict in partition.left() if (reason := verdict.reason) is not None)
    return f"no part of it is worth it: {'; '.join(list(reasons)[:3])}"


def _renamed(cut: Cut) -> Cut:
    """The region with its arguments called by their places; other names need not be distinct."""
    places = {node.index: place for place, node in enumerate(cut.graph.arguments())}
    nodes = tuple(replace(node, name=f"a{places[node.index]}") if node.index in places else node
                  for node in cut.graph.nodes)
    return replace(cut, graph=replace(cut.graph, nodes=nodes))


def _compiled(judged: Judged, cut: Cut) -> tuple[Trained | None, Region]:
    graph = cut.graph
    wanted = tuple(place for place, edge in enumerate(cut.sources) if edge in judged.active)
    region = Region(tuple((node.name, node.op) for node in graph.operators()),
                    tuple(judged.graph.nodes[edge.node].name for edge in cut.sources),
                    tuple(judged.graph.nodes[edge.node].name for edge in cut.outputs))
    if not wanted:
        return None, replace(region, rejected="nothing in it depends on what is trained")
    types: dict[str, TensorType] = {}
    for place, edge in enumerate(cut.sources):
        type_ = type_of(judged.graph, edge)
        if type_ is None:
            return None, replace(region, rejected=f"the type of its input {place} is unknown")
        types[f"a{place}"] = type_
    try:
        cost = work(graph, types)
        if cost.macs + cost.operations < LEAST_WORK:
            return None, replace(region, cost=cost, rejected=(
                f"its forward pass computes {cost.macs + cost.operations} elements, and below {LEAST_WORK} a node on "
                "the tape costs more than it saves"))
        program = TrainingProgram(graph, types, [f"a{place}" for place in wanted], recorded=True)
    except UnsupportedError as error:
        return None, replace(region, rejected=" ".join(str(error).split()))
    return Trained(cut, program, wanted), replace(region, cost=cost)


def work(graph: SymbolGraph, types: Mapping[str, TensorType]) -> Cost:
    """Return the cost of a forward pass in training.

    Raises:
        UnsupportedError: a node can't be lowered.
    """
    from ngraph_mxnet.plugin.training.graph import import_training

    return graph_cost(import_training(graph, types).graph)


def _scheduled(graph: SymbolGraph, found: Sequence[Trained]) -> Iterator[Trained | Cut]:
    """Regions and what is between them: in each stage what MXNet can run by now, as one graph, then the regions that
    can run behind it."""
    stages = _stages(graph, found)
    inside = {member for one in found for member in one.cut.members}
    for stage in range(max(stages.values()) + 1):
        native = [node.index for node in graph.operators() if node.index not in inside and stages[node.index] == stage]
        if native:
            yield _renamed(cut_region(graph, native))
        yield from _in_order([one for one in found if stages[one.cut.members[0]] == stage])


def _stages(graph: SymbolGraph, found: Sequence[Trained]) -> dict[int, int]:
    """By the number of each operator; all members of a region are in one. Operators between regions come before the
    regions of their stage."""
    region = {member: one.cut for one in found for member in one.cut.members}
    stages: dict[int, int] = {}
    waiting = [head.node for head in graph.heads]
    while waiting:
        index = waiting[-1]
        if index in stages:
            waiting.pop()
            continue
        own = region.get(index)
        sources = own.sources if own is not None else graph.nodes[index].inputs
        read = [edge.node for edge in sources if not graph.nodes[edge.node].is_variable]
        missing = [node for node in read if node not in stages]
        if missing:
            waiting += missing
            continue
        stage = max((stages[node] + (own is None and node in region) for node in read), default=0)
        stages.update(dict.fromkeys(own.members if own is not None else [index], stage))
    return stages


def _in_order(found: Sequence[Trained]) -> list[Trained]:
    """Each behind those of them that it reads."""
    left, ordered = list(found), []
    while left:
        made = {edge for one in left for edge in one.cut.outputs}
        ready = next(one for one in left if not made & set(one.cut.sources))
        left.remove(ready)
        ordered.append(ready)
    return ordered


class PartedCalls:
    """The calls of a parted symbol with these arrays of parameters.

    Args:
        parameters: by name; the states among them are written by each call.
        flags: for what MXNet runs, as `CachedOp` takes them.
    """

    def __init__(self, parted: Parted, parameters: Arrays, flags: Sequence[tuple[str, Any]] = ()) -> None:
        graph = parted.graph
        self._variables = [(Edge(node.index, 0), node.name) for node in graph.arguments()]
        self._parameters, self._heads = dict(parameters), graph.heads
        self.parts = [_Region(one, parted, parameters, flags) if isinstance(one, Trained)
                      else _Native(one, parted.attrs, flags) for one in parted.parts]

    def run(self, inputs: Arrays) -> list[NDArray]:
        """The outputs, recorded. MXNet is recording, in training mode."""
        arrays = {**self._parameters, **inputs}
        values = {edge: arrays[name] for edge, name in self._variables}
        for one in self.parts:
            outputs = one.run([values[edge] for edge in one.sources])
            values.update(zip(one.outputs, outputs, strict=True))
        return [values[head] for head in self._heads]


class _Native:
    """A part that MXNet runs."""

    def __init__(self, cut: Cut, attrs: Any, flags: Sequence[tuple[str, Any]]) -> None:
        self.sources, self.outputs = cut.sources, cut.outputs
        graph = cut.graph if cut.sources else _with_input(cut.graph)
        root = graph.to_json()
        if attrs is not None:
            root["attrs"] = attrs
        self._op = CachedOp(mx_symbol.load_json(json.dumps(root)), flags)

    def run(self, inputs: Sequence[NDArray]) -> list[NDArray]:
        made = self._op(*(inputs or [mx.nd.zeros((1,))]))
        return [made] if isinstance(made, NDArray) else list(made)[:len(self.outputs)]


def _with_input(graph: SymbolGraph) -> SymbolGraph:
    """The graph with an input, which it shows as its last output: a cached op must have one."""
    count = len(graph.nodes)
    nodes = (SymbolNode(count, VARIABLE, "nothing", {}, ()),
             SymbolNode(count + 1, "_copy", "shown", {}, (Edge(count, 0),)))
    return SymbolGraph((*graph.nodes, *nodes), (*graph.arg_nodes, count), (*graph.heads, Edge(count + 1, 0)))


class _Region:
    """A part of ours; MXNet runs it where that can't be, such as while the profiler is on."""

    def __init__(self, trained: Trained, parted: Parted, parameters: Arrays, flags: Sequence[tuple[str, Any]]) -> None:
        cut = trained.cut
        self.sources, self.outputs = cut.sources, cut.outputs
        nodes = [parted.graph.nodes[edge.node] for edge in cut.sources]
        fixed = {f"a{place}": parameters[node.name] for place, node in enumerate(nodes)
                 if node.is_variable and node.name in parameters}
        self._given = [place for place in range(len(nodes)) if f"a{place}" not in fixed]
        self._steps = RecordedSteps(trained.program, [f"a{place}" for place in self._given], fixed,
                                    [f"a{place}" for place in trained.wanted])
        self._own_native: _Native | None = None
        self._make_native = lambda: _Native(cut, parted.attrs, flags)

    def run(self, inputs: Sequence[NDArray]) -> list[NDArray]:
        outputs = self._compiled(inputs)
        if outputs is not None:
            return outputs
        if self._own_native is None:
            self._own_native = self._make_native()
        return self._own_native.run(inputs)

    def _compiled(self, inputs: Sequence[NDArray]) -> list[NDArray] | None:
        try:
            return self._steps.call([inputs[place].handle.value for place in self._given])
        except UnsupportedError as error:
            logger.info("MXNet runs a part of a training step: %s", error)
            return None


class PartedStep:
    """A training step that runs in parts, with the interface of `TrainingStep`.

    Attributes:
        outputs: the symbol's, new ones after each forward.

    Args:
        arrays: of the symbol's arguments and states, by name.
        gradients: those that are wanted, by the arguments' names, to be written.
        added: names of gradients that are added to what is there.

    Raises:
        UnsupportedError: no part of it is worth it; the text says why.
    """

    def __init__(self, symbol: Symbol, arrays: Arrays, gradients: Arrays, added: Collection[str] = ()) -> None:
        types = {name: (array.shape, array.dtype) for name, array in arrays.items()}
        parted = part(symbol, types, list(gradients))
        self.partition: Partition = parted.partition
        # Views of their own: what is marked on the program's arrays is the program's.
        views = {name: array.detach() for name, array in arrays.items()}
        autograd.mark_variables([views[name] for name in gradients], list(gradients.values()),
                                ["add" if name in added else "write" for name in gradients])
        self._calls = PartedCalls(parted, views)
        self._on_tape = [number for number, head in enumerate(parted.graph.heads) if head in parted.active]
        self._needed = {number for number in self._on_tape if _reads_head(parted, parted.graph.heads[number])}
        self.outputs: list[NDArray] = []

    def forward(self) -> bool:
        """Always done."""
        self.outputs = []  # what they come from is let go of
        with autograd.record(train_mode=True):
            self.outputs = self._calls.run({})
        return True

    def backward(self, heads: Sequence[NDArray], is_train: bool = True) -> None:
        """After a forward; as `TrainingStep.backward`."""
        outputs = self.outputs
        with autograd.pause():
            given = [head_of(heads, number, outputs[number]).astype(outputs[number].dtype, copy=False)
                     if number in self._needed else None for number in self._on_tape]
        autograd.backward([self.outputs[number] for number in self._on_tape], given, retain_graph=True,
                          train_mode=is_train)


def _reads_head(parted: Parted, head: Edge) -> bool:
    """True if the gradient of this output is read."""
    for one in parted.trained:
        if head in one.cut.outputs:
            return one.cut.outputs.index(head) in one.program.heads
    return canonical(parted.graph.nodes[head.node].op) not in OWN_GRADIENT
