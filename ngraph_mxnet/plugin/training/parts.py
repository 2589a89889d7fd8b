"""A symbol that is not ours as a whole, trained in parts: regions of ours and what is left between them, in order.

Each part is one node on MXNet's tape, which carries the gradients from part to part.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import mxnet as mx
from mxnet import autograd
from mxnet import symbol as mx_symbol
from mxnet.ndarray import CachedOp, NDArray
from mxnet.symbol import Symbol

from ngraph_mxnet.base import registry
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import canonical
from ngraph_mxnet.frontends.mxnet.importer import A_SPARSE_GRADIENT
from ngraph_mxnet.frontends.mxnet.judgement import Cut, Mode, WholeGraph, cut_region, judge_graph, regions_of, type_of
from ngraph_mxnet.frontends.mxnet.symbol_json import VARIABLE, Edge, SymbolGraph, SymbolNode
from ngraph_mxnet.frontends.verdicts import Partition, Region, Verdict
from ngraph_mxnet.ir import Graph
from ngraph_mxnet.ir.graph import Cost, graph_cost
from ngraph_mxnet.plugin.arrays import brief
from ngraph_mxnet.plugin.binding import fallbacks, partitioner
from ngraph_mxnet.plugin.binding.partitioner import NamelessGraph, with_types
from ngraph_mxnet.plugin.training.rules import find_training_rule
from ngraph_mxnet.plugin.training.steps import Arrays, Calls, Step, Types, head_of
from ngraph_mxnet.program.backend import get_backend

logger = logging.getLogger("ngraph_mxnet")

_MAKES_SPARSE = ("cast_storage", "sparse_retain", "_square_sum")
"""Operators whose results, or whose readers' results, are no dense arrays."""
OWN_GRADIENT = ("SoftmaxOutput", "LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput",
                "SVMOutput", "MakeLoss", "make_loss", "IdentityAttachKLSparseReg", "Custom")
"""Operators whose gradient need not be asked for: it goes back whichever output `backward` is called of."""
LEAST_WORK = 1 << 22
"""Multiply-adds and other operations of a region's forward pass: one that computes less gains less than a part more
costs in a step, 0.34 ms (*measured* on one core of an AMD Zen 4, when MXNet's threads still called Python)."""

Fed = TypeVar("Fed")


def whole_or_parted(symbol: Symbol, types: Types, trained: Sequence[str], feed: Callable[[Step | PartedStep], Fed],
                    left: Mapping[str, str] | None = None, *, recorded: bool = True) -> Fed:
    """Compile the symbol's training step as a whole, or else in parts, and return what `feed` makes of it.

    Args:
        types, trained, recorded: as `Step` takes them.
        left: variables whose readers stay with MXNet, by name, with the reason: the step is parted then.

    Raises:
        UnsupportedError: neither can be; the text says why.
        MXNetError: the types contradict each other.
    """
    try:
        if left:
            raise UnsupportedError(A_SPARSE_GRADIENT)
        return feed(Step(partitioner.json_of(symbol), types, trained, recorded=recorded))
    except UnsupportedError as error:
        whole = brief(error)
    try:
        if isinstance(symbol, mx_symbol.numpy._Symbol):
            raise UnsupportedError("a net of the NumPy interface is not trained in parts")
        parted = PartedStep(symbol, types, trained, left)
        fed = feed(parted)
    except UnsupportedError as error:
        raise UnsupportedError(f"{whole}; {brief(error)}") from None
    fallbacks.add_partition(parted.partition)
    return fed


@dataclass(frozen=True)
class Stage:
    """What runs as one node of the tape.

    Attributes:
        cut: its arguments are called `a0`, `a1`, ... in the order of its sources.
        step: None: MXNet runs it.
    """

    cut: Cut
    step: Step | None = None


class PartedStep:
    """A list of steps and of stages that MXNet runs.

    Attributes:
        graph: the symbol's, with types and names.
        active: what depends on what is trained.
        stages: in the order in which they run.
        partition: what was judged of the operators and regions.

    Args:
        types: of all variables, by name.
        trained: names of the variables that gradients are wanted of.
        left: variables whose readers stay with MXNet, by name, with the reason.

    Raises:
        UnsupportedError: it can't be cut, or no region is worth it; the text says why.
        MXNetError: the types contradict each other.
    """

    def __init__(self, symbol: Symbol, types: Types, trained: Collection[str],
                 left: Mapping[str, str] | None = None) -> None:
        nameless = NamelessGraph(partitioner.json_of(symbol))
        typed = with_types(symbol, nameless, {name: (type_.shape, type_.element.numpy)
                                              for name, type_ in types.items()})
        self.graph = graph = replace(typed, nodes=tuple(
            replace(node, name=nameless.names[node.index], bodies=nameless.named_bodies(node.bodies))
            for node in typed.nodes))
        _check(graph)
        mode = Mode(lambda op: find_training_rule(op), _no_way_back, lambda graph: None)
        reasons, numbers = judge_graph(WholeGraph(graph, get_backend(registry.TRAINER), mode), _kept(graph, left or {}))
        verdicts = [Verdict(node.name, node.op, reasons[node.index]) for node in graph.operators()]
        self.partition = Partition(registry.TRAINER, verdicts)
        self.active = _depending(graph, trained)
        ours = list(filter(None, (self._compiled(_renamed(cut_region(graph, one))) for one in regions_of(numbers))))
        if not ours:
            told = dict.fromkeys(reason for verdict in self.partition.left() if (reason := verdict.reason) is not None)
            raise UnsupportedError(f"no part of it is worth it: {'; '.join(list(told)[:3])}")
        self.stages = list(_scheduled(graph, ours))
        self.attrs = nameless.root.get("attrs")

    def _compiled(self, cut: Cut) -> Stage | None:
        """The stage of a region; None: MXNet's is as good."""
        from ngraph_mxnet.plugin.training.graph import import_training

        def named(edges: Sequence[Edge]) -> tuple[str, ...]:
            return tuple(self.graph.nodes[edge.node].name for edge in edges)

        types = {f"a{place}": type_of(self.graph, edge) for place, edge in enumerate(cut.sources)}
        wanted = [f"a{place}" for place, edge in enumerate(cut.sources) if edge in self.active]
        step, cost, rejected = None, Cost(), None
        try:
            if not wanted:
                raise UnsupportedError("nothing in it depends on what is trained")
            known = {name: type_ for name, type_ in types.items() if type_ is not None}
            if len(known) < len(types):
                raise UnsupportedError(f"the type of its input {[*types.values()].index(None)} is unknown")
            cost = graph_cost(import_training(cut.graph, known).graph)
            if (total := cost.macs + cost.operations) < LEAST_WORK:
                raise UnsupportedError(f"its forward pass computes {total} elements, and below {LEAST_WORK} a node on "
                                       "the tape costs more than it saves")
            step = Step(cut.graph, known, wanted)
        except UnsupportedError as error:
            rejected = " ".join(str(error).split())
        self.partition.reviewed.append(Region(tuple((node.name, node.op) for node in cut.graph.operators()),
                                              named(cut.sources), named(cut.outputs), cost, rejected))
        return None if step is None else Stage(cut, step)

    @property
    def saved_bytes(self) -> int:
        """The bytes that a call saves for its backward pass in steps of ours."""
        return sum(stage.step.saved_bytes for stage in self.stages if stage.step is not None)

    def calls(self, arguments: Sequence[str], parameters: Arrays) -> PartedCalls:
        """As `Step.calls`."""
        return PartedCalls(self, arguments, parameters)

    def bound(self, arrays: Arrays, gradients: Arrays, added: Sequence[str]) -> BoundParts:
        """As `Step.bound`."""
        return BoundParts(self, arrays, gradients, added)

    def reads_head(self, head: Edge) -> bool:
        """True if the gradient of this output is read."""
        for stage in self.stages:
            if stage.step is not None and head in stage.cut.outputs:
                return stage.cut.outputs.index(head) in stage.step.heads
        return canonical(self.graph.nodes[head.node].op) not in OWN_GRADIENT


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
    from ngraph_mxnet.autodiff import differentiate

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


def _renamed(cut: Cut) -> Cut:
    """The region with its arguments called by their places; other names need not be distinct."""
    places = {node.index: place for place, node in enumerate(cut.graph.arguments())}
    nodes = tuple(replace(node, name=f"a{places[node.index]}") if node.index in places else node
                  for node in cut.graph.nodes)
    return replace(cut, graph=replace(cut.graph, nodes=nodes))


def _scheduled(graph: SymbolGraph, found: Sequence[Stage]) -> Iterator[Stage]:
    """Regions and what is between them: in each round what MXNet can run by now, as one graph, then the regions that
    can run behind it."""
    rounds = _rounds(graph, found)
    inside = {member for one in found for member in one.cut.members}
    for number in range(max(rounds.values()) + 1):
        native = [node.index for node in graph.operators() if node.index not in inside and rounds[node.index] == number]
        if native:
            yield Stage(_renamed(cut_region(graph, native)))
        yield from _in_order([one for one in found if rounds[one.cut.members[0]] == number])


def _rounds(graph: SymbolGraph, found: Sequence[Stage]) -> dict[int, int]:
    """By the number of each operator; all members of a region are in one. Operators between regions come before the
    regions of their round."""
    region = {member: one.cut for one in found for member in one.cut.members}
    rounds: dict[int, int] = {}
    waiting = [head.node for head in graph.heads]
    while waiting:
        index = waiting[-1]
        if index in rounds:
            waiting.pop()
            continue
        own = region.get(index)
        sources = own.sources if own is not None else graph.nodes[index].inputs
        read = [edge.node for edge in sources if not graph.nodes[edge.node].is_variable]
        missing = [node for node in read if node not in rounds]
        if missing:
            waiting += missing
            continue
        number = max((rounds[node] + (own is None and node in region) for node in read), default=0)
        rounds.update(dict.fromkeys(own.members if own is not None else [index], number))
    return rounds


def _in_order(found: Sequence[Stage]) -> list[Stage]:
    """Each behind those of them that it reads."""
    left, ordered = list(found), []
    while left:
        made = {edge for one in left for edge in one.cut.outputs}
        ready = next(one for one in left if not made & set(one.cut.sources))
        left.remove(ready)
        ordered.append(ready)
    return ordered


class PartedCalls:
    """A parted step fed by the arrays of recorded calls, with the interface of `Calls`."""

    checks = False
    was_compiled = True

    def __init__(self, parted: PartedStep, arguments: Sequence[str], parameters: Arrays) -> None:
        graph = parted.graph
        self._variables = [(Edge(node.index, 0), node.name) for node in graph.arguments()]
        self._arguments, self._parameters, self._heads = arguments, dict(parameters), graph.heads
        self.saved_bytes = parted.saved_bytes
        self.parts = [_Part(stage, parted, parameters) for stage in parted.stages]

    def run(self, arrays: Sequence[NDArray], array_type: type[NDArray] = NDArray) -> list[NDArray]:
        """The outputs, recorded, which are of `mx.nd`. MXNet is recording, in training mode."""
        given = {**self._parameters, **dict(zip(self._arguments, arrays, strict=True))}
        values = {edge: given[name] for edge, name in self._variables}
        for part in self.parts:
            values.update(zip(part.outputs, part.run([values[edge] for edge in part.sources]), strict=True))
        return [values[head] for head in self._heads]


class _Part:
    """A stage of these calls. MXNet runs it where it has no step, and where the step can't run, such as while the
    profiler is on."""

    def __init__(self, stage: Stage, parted: PartedStep, parameters: Arrays) -> None:
        cut = stage.cut
        self.sources, self.outputs = cut.sources, cut.outputs
        self._calls: Calls | None = None
        self._native = functools.cache(lambda: _native(cut.graph, parted.attrs))
        if stage.step is None:
            self._native()
            return
        nodes = [parted.graph.nodes[edge.node] for edge in cut.sources]
        fixed = {f"a{place}": parameters[node.name] for place, node in enumerate(nodes)
                 if node.is_variable and node.name in parameters}
        self._given = [place for place in range(len(nodes)) if f"a{place}" not in fixed]
        self._calls = stage.step.calls([f"a{place}" for place in self._given], fixed)

    @property
    def is_compiled(self) -> bool:
        return self._calls is not None

    def run(self, inputs: Sequence[NDArray]) -> list[NDArray]:
        if self._calls is not None:
            try:
                outputs = self._calls.run([inputs[place] for place in self._given])
            except UnsupportedError as error:
                logger.info("MXNet runs a part of a training step: %s", error)
                outputs = None
            if outputs is not None:
                return outputs
        made = self._native()(*(inputs or [mx.nd.zeros((1,))]))
        return [made] if isinstance(made, NDArray) else list(made)[:len(self.outputs)]


def _native(graph: SymbolGraph, attrs: Any) -> CachedOp:
    """MXNet's op of the graph. A cached op must have an input: without one, it shows one as its last output."""
    if not graph.arg_nodes:
        graph = _with_input(graph)
    root = graph.to_json()
    if attrs is not None:
        root["attrs"] = attrs
    return CachedOp(mx_symbol.load_json(json.dumps(root)))


def _with_input(graph: SymbolGraph) -> SymbolGraph:
    """The graph with an input, which it shows as its last output: a cached op must have one."""
    count = len(graph.nodes)
    nodes = (SymbolNode(count, VARIABLE, "nothing", {}, ()),
             SymbolNode(count + 1, "_copy", "shown", {}, (Edge(count, 0),)))
    return SymbolGraph((*graph.nodes, *nodes), (*graph.arg_nodes, count), (*graph.heads, Edge(count + 1, 0)))


class BoundParts:
    """A parted step fed by an executor's arrays, with the interface of `Bound`; its outputs are new ones after each
    forward."""

    def __init__(self, parted: PartedStep, arrays: Arrays, gradients: Arrays, added: Collection[str]) -> None:
        # Views of their own: what is marked on the program's arrays is the program's.
        views = {name: array.detach() for name, array in arrays.items()}
        autograd.mark_variables([views[name] for name in gradients], list(gradients.values()),
                                ["add" if name in added else "write" for name in gradients])
        self._calls = parted.calls([], views)
        self._reads = {number: parted.reads_head(head) for number, head in enumerate(parted.graph.heads)
                       if head in parted.active}
        self.outputs: list[NDArray] = []

    def forward(self) -> bool:
        """Always done."""
        self.outputs = []  # what they come from is let go of
        with autograd.record(train_mode=True):
            self.outputs = self._calls.run([])
        return True

    def backward(self, heads: Sequence[NDArray], is_train: bool = True) -> None:
        """After a forward; as `Bound.backward`."""
        outputs = {number: self.outputs[number] for number in self._reads}
        with autograd.pause():
            given = [head_of(heads, number, output).astype(output.dtype, copy=False) if self._reads[number] else None
                     for number, output in outputs.items()]
        autograd.backward(list(outputs.values()), given, retain_graph=True, train_mode=is_train)
