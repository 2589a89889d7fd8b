"""Which operators of a symbol train compiled, where not all do, and in which regions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from mxnet.symbol import Symbol

from ngraph_mxnet.autodiff import differentiate
from ngraph_mxnet.bridges.mxnet.judging.judgement import Cut, Mode, cut_region, judge_graph, type_of
from ngraph_mxnet.bridges.mxnet.judging.nameless import NamelessGraph
from ngraph_mxnet.bridges.mxnet.judging.partitioning import Types, with_types
from ngraph_mxnet.bridges.mxnet.symbols.attrs import canonical
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import Edge, SymbolGraph, SymbolNode
from ngraph_mxnet.bridges.mxnet.training.rules import find_training_rule
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.placement.verdicts.report import ALONE, Verdict
from ngraph_mxnet.runtime.backend import Backend

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
    mode = Mode("training", lambda op: find_training_rule(op), _no_way_back, lambda graph: None)
    reasons, numbers = judge_graph(graph, backend, mode, _kept(graph, left or {}))
    members: dict[int, list[int]] = {}
    for index, number in enumerate(numbers):
        if number != ALONE:
            members.setdefault(number, []).append(index)
    verdicts = [Verdict(node.name, node.op, reasons[node.index]) for node in graph.operators()]
    return Judged(graph, verdicts, [cut_region(graph, region) for region in members.values()],
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


def _no_way_back(node: SymbolNode, b: Builder, outputs: Sequence[Value]) -> str | None:
    """Why no gradient goes back through the operator."""
    graph = b.results(*outputs)
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
