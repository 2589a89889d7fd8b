"""Splits a graph into what depends on weights only (run once for each set of weights) and the rest."""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Graph, Value, extract
from ngraph_mxnet.ir.module import Changes, Derivation, Module, Modules

PREPARE, MAIN = "prepare", "main"
"""The graphs, and the steps that call them."""


def split_prepare(graph: Graph) -> Module:
    """Split `graph`: a node whose operands are all weights, constants or prepared is prepared.

    The steps are `prepare`, whose graph has no results (nor nodes) when there is nothing to prepare, and `main`, whose
    results correspond one to one to the original's; a result may be a prepared parameter as it is. The original is
    untouched.

    * At least one weight must be behind it: nodes over constants alone stay in main.
    * Constants are copied to whichever side reads them, parameters too; those that no side reads vanish.
    * Only what main reads becomes a result of prepare, named `prepared0`, `prepared1` ... in main,
      and no weight there: it is main's input, derived already.
    """
    cut = _read_outside(graph)
    prepared = {value: position for position, value in enumerate(cut)}

    def label(value: Value, _: int) -> str:
        return f"prepared{prepared[value]}"

    prepare = extract(graph, cut, graph.parameters, name=f"{graph.name}_prepare", label=label)
    main = extract(graph, graph.results, (*graph.parameters, *cut), name=graph.name, label=label)
    modules = Modules(graph)
    modules.add(PREPARE, prepare, cut)
    return modules.finish(MAIN, main)


def _read_outside(graph: Graph) -> list[Value]:
    """The values derived from weights that main reads or returns, in a fixed order."""
    derivation = Derivation()

    def is_prepared(value: Value) -> bool:
        return not value.is_parameter and derivation.of(value) is Changes.WITH_WEIGHTS

    read = dict.fromkeys(
        v for node in graph.nodes if derivation.of_node(node) is not Changes.WITH_WEIGHTS
        for v in node.inputs if is_prepared(v)
    )
    read |= dict.fromkeys(filter(is_prepared, graph.results))
    return list(read)
