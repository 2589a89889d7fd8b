"""Splits a graph into what depends on weights only (run once for each set of weights) and the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ngraph_mxnet.ir.graph import Graph, Node, Value


@dataclass(frozen=True)
class Source:
    """Where a parameter of the main graph comes from: the original's input or the prepare graph's result."""

    kind: Literal["input", "prepared"]
    index: int


@dataclass(frozen=True)
class Split:
    """The two graphs; the original is untouched.

    `main_sources[i]` feeds parameter i of `main`; `prepare_inputs[i]` is the original input that feeds
    parameter i of `prepare`. `prepare` has no results (nor nodes) when there is nothing to prepare.
    Results of `main` correspond one to one to the original's; a result may be a prepared parameter as it is.
    """

    prepare: Graph
    main: Graph
    main_sources: tuple[Source, ...]
    prepare_inputs: tuple[int, ...]


def split_prepare(graph: Graph) -> Split:
    """Split `graph`: a node whose operands are all cacheable parameters, constants or prepared is prepared.

    * At least one cacheable parameter must be behind it: nodes over constants alone stay in main.
    * Constants are copied to whichever side reads them, parameters too; those that no side reads vanish.
    * Only what main reads becomes a result of prepare, named `prepared0`, `prepared1` ... in main,
      and not cacheable there: it is main's input, derived already.
    """
    weights = _derived_from_weights(graph)
    cut = _read_outside(graph, weights)
    prepare = _extract(f"{graph.name}_prepare", graph, cut, {})
    index = {value: position for position, value in enumerate(graph.parameters)}
    prepared = {value: position for position, value in enumerate(cut)}
    main = _extract(graph.name, graph, graph.results, prepared)
    sources = [
        Source("prepared", prepared[v]) if v in prepared else Source("input", index[v]) for v in main.inputs
    ]
    return Split(prepare.graph, main.graph, tuple(sources), tuple(index[v] for v in prepare.inputs))


def _derived_from_weights(graph: Graph) -> set[Value]:
    """Values computed by nodes from cacheable parameters, and constants, only."""
    derived: set[Value] = set()
    constant: set[Value] = set()
    for node in graph.nodes:
        if all(v in constant for v in node.inputs):
            constant.update(node.outputs)
        elif all(v in constant or v in derived or (v.is_parameter and v.cacheable) for v in node.inputs):
            derived.update(node.outputs)
    return derived


def _read_outside(graph: Graph, derived: set[Value]) -> list[Value]:
    """The derived values that main reads or returns, in a fixed order."""
    read = dict.fromkeys(
        v for node in graph.nodes if not node.outputs or node.outputs[0] not in derived
        for v in node.inputs if v in derived
    )
    read |= dict.fromkeys(v for v in graph.results if v in derived)
    return list(read)


@dataclass
class _Part:
    graph: Graph
    inputs: list[Value]
    """The original values behind the part's parameters."""


def _extract(name: str, graph: Graph, results: list[Value], prepared: dict[Value, int]) -> _Part:
    """A copy of what `results` need; the values in `prepared` become parameters."""
    needed: set[Node] = set()
    inputs: set[Value] = set()
    stack = list(results)
    while stack:
        value = stack.pop()
        if value.node is None or value in prepared:
            inputs.add(value)
        elif value.node not in needed:
            needed.add(value.node)
            stack.extend(value.node.inputs)

    part = _Part(Graph(name), [v for v in (*graph.parameters, *prepared) if v in inputs])
    taken = {p.name for p in graph.parameters}
    table: dict[Value, Value] = {}
    for value in part.inputs:
        parameter_name = value.name if value.node is None else _fresh(f"prepared{prepared[value]}", taken)
        origin = value.origin if value.node is None else value.node.origin
        table[value] = part.graph.add_parameter(value.type, parameter_name, origin=origin,
                                                cacheable=value.node is None and value.cacheable)
    for node in graph.nodes:
        if node in needed:
            twin = Node(node.op, [table[v] for v in node.inputs], dict(node.attrs), origin=node.origin)
            twin.outputs = [Value(v.type, twin, v.index, v.name) for v in node.outputs]
            for old, new in zip(node.outputs, twin.outputs, strict=True):
                table.setdefault(old, new)
            part.graph.nodes.append(twin)
    part.graph.results = [table[v] for v in results]
    return part


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
