"""From MXNet's symbol JSON to the forward graph of a training step: outputs, and the moving statistics after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ngraph_mxnet.bridges.mxnet.importer import lower_values, own_results
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.half import Halves
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import Edge, SymbolGraph, SymbolNode, parse_symbol
from ngraph_mxnet.bridges.mxnet.training.dropping import STATE
from ngraph_mxnet.bridges.mxnet.training.rules import find_training_rule, updates_statistics
from ngraph_mxnet.compositions.tensors import scalar
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Graph, TensorType, Value

_MOMENTUM = 0.9


@dataclass(frozen=True)
class TrainingGraph:
    """`graph`: its parameters are the symbol's arguments and auxiliary states, and
    `dropping.STATE` if it draws random numbers; its results are the symbol's outputs,
    then for each of the states called `updated` its content after the step. The number of outputs is `outputs`."""

    graph: Graph
    outputs: int
    updated: tuple[str, ...]


def import_training(symbol: SymbolGraph | str, types: Mapping[str, TensorType], *, name: str = "main") -> TrainingGraph:
    """Args:
        symbol: parsed, or JSON text.
        types: of every variable, by name.

    Raises:
        ModelError: the JSON is corrupt.
        UnsupportedError: a node can't be lowered for training; the text names it and the reason.
    """
    if isinstance(symbol, str):
        symbol = parse_symbol(symbol)
    b, halves = Builder(name=name), Halves()
    if STATE in types:
        raise UnsupportedError(f"a variable is called {STATE}, as what random numbers follow from")
    values = lower_values(b, symbol, [types[node.name] for node in symbol.arguments()], halves,
                          rules=find_training_rule)
    for head in symbol.heads:
        if head not in values:
            raise UnsupportedError(f"output {head.output} of {symbol.nodes[head.node].origin} is not computed")
    updates = _updates(b, symbol, values)
    graph = b.results(*own_results(b, [*(values[head] for head in symbol.heads), *updates.values()]))
    graph.remove_dead()
    return TrainingGraph(graph, len(symbol.heads), tuple(updates))


def _updates(b: Builder, symbol: SymbolGraph, values: Mapping[Edge, Value]) -> dict[str, Value]:
    """The moving statistics after the step, by the name of their variable."""
    found: dict[str, Value] = {}
    for node in symbol.operators():
        attrs = Attrs(node.attrs, node.origin)
        if not updates_statistics(node, attrs):
            continue
        b.origin = node.origin
        for place, output in ((3, 1), (4, 2)):
            variable = _variable(symbol, node, place)
            if variable.name in found:
                raise UnsupportedError(f"{node.origin}: another node updates {variable.name}, too")
            old, new = values[node.inputs[place]], values[Edge(node.index, output)]
            momentum = attrs.float("momentum", _MOMENTUM)
            found[variable.name] = b.add(b.multiply(old, scalar(b, momentum, old)),
                                         b.multiply(new, scalar(b, 1 - momentum, old)))
    b.origin = ""
    return found


def _variable(symbol: SymbolGraph, node: SymbolNode, place: int) -> SymbolNode:
    read = symbol.nodes[node.inputs[place].node]
    if not read.is_variable:
        raise UnsupportedError(f"{node.origin}: input {place} is computed, not a state")
    return read
