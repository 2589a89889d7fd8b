"""Splits a graph into what depends on weights only (run once for each set of weights) and the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ngraph_mxnet.ir.extract import extract
from ngraph_mxnet.ir.graph import Graph, Value


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
    index = {value: position for position, value in enumerate(graph.parameters)}
    prepared = {value: position for position, value in enumerate(cut)}

    def label(value: Value, _: int) -> str:
        return f"prepared{prepared[value]}"

    prepare = extract(graph, cut, graph.parameters, name=f"{graph.name}_prepare", label=label)
    main = extract(graph, graph.results, (*graph.parameters, *cut), name=graph.name, label=label)
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
