"""MXNet's control flow, `_foreach`, `_while_loop` and `_cond`: the graphs that such a node runs, and what they read.

The attributes are those of MXNet 1.9.1's src/operator/control_flow.cc: `*_locs` are places among a body's arguments or
among the node's inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolGraph, SymbolNode
from ngraph_mxnet.errors import ModelError

FOREACH, WHILE, COND = "_foreach", "_while_loop", "_cond"
FOREACH_LOCS = ("in_data_locs", "in_state_locs", "remain_locs")


@dataclass(frozen=True)
class Body:
    """A graph that the node runs. `sources`: for each of its arguments the place among the node's inputs that it
    reads."""

    graph: SymbolGraph
    sources: tuple[int, ...]


@dataclass(frozen=True)
class Foreach:
    """`body` gives `outputs` rows, then the new states. The node's inputs are `data` arrays, over whose first axis it
    goes, then `states`, then what the body captures."""

    body: Body
    data: int
    states: int
    outputs: int

    @staticmethod
    def of(node: SymbolNode, attrs: Attrs | None = None) -> Foreach:
        """
        Args:
            attrs: the node's, to note there what is read.

        Raises:
            ModelError: an attribute is missing or malformed, or does not fit the body.
        """
        attrs, graph = attrs or Attrs(node.attrs, node.origin), node.body()
        data, states, captured = (attrs.ints(name) for name in FOREACH_LOCS)
        places = (*data, *states, *captured)
        if sorted(places) != list(range(len(graph.arg_nodes))) or len(places) != len(node.inputs):
            raise ModelError(f"{node.origin}: its {len(node.inputs)} inputs are to be the arguments {places} of a body "
                             f"with {len(graph.arg_nodes)}")
        sources = tuple(place for _, place in sorted(zip(places, range(len(places)), strict=True)))
        outputs = attrs.int("num_out_data")
        if not data or len(graph.heads) != outputs + len(states) or attrs.int("num_outputs") != len(graph.heads):
            raise ModelError(f"{node.origin}: a body of {len(graph.heads)} outputs for {outputs} outputs and "
                             f"{len(states)} states, over {len(data)} arrays")
        return Foreach(Body(graph, sources), len(data), len(states), outputs)


@dataclass(frozen=True)
class While:
    """`body` gives `outputs` rows, then the new variables, as long as `condition` holds and at most `trips` times.

    `variables`: for each one its place among the node's inputs.
    """

    condition: Body
    body: Body
    variables: tuple[int, ...]
    outputs: int
    trips: int

    @staticmethod
    def of(node: SymbolNode, attrs: Attrs | None = None) -> While:
        """As `Foreach.of`."""
        attrs = attrs or Attrs(node.attrs, node.origin)
        condition = _body(node, 0, attrs.ints("cond_input_locs"), 1)
        body = _body(node, 1, attrs.ints("func_input_locs"), attrs.int("num_outputs"))
        places, outputs = attrs.ints("func_var_locs"), attrs.int("num_out_data")
        if len(places) + outputs != len(body.graph.heads) or any(not 0 <= at < len(body.sources) for at in places):
            raise ModelError(f"{node.origin}: a body of {len(body.graph.heads)} outputs for {outputs} outputs and "
                             f"{len(places)} variables")
        return While(condition, body, tuple(body.sources[at] for at in places), outputs, attrs.int("max_iterations"))


@dataclass(frozen=True)
class Cond:
    """`then` where `condition` holds, else `otherwise`."""

    condition: Body
    then: Body
    otherwise: Body

    @staticmethod
    def of(node: SymbolNode, attrs: Attrs | None = None) -> Cond:
        """As `Foreach.of`."""
        attrs = attrs or Attrs(node.attrs, node.origin)
        locs = [attrs.ints(name) for name in ("cond_input_locs", "then_input_locs", "else_input_locs")]
        counts = 1, attrs.int("num_outputs"), attrs.int("num_outputs")
        return Cond(*(_body(node, number, *both) for number, both in enumerate(zip(locs, counts, strict=True))))


def is_open(node: SymbolNode) -> bool:
    """Whether MXNet infers no shape of the node's results, but finds it when it runs: of `_while_loop` and `_cond`, and
    of a loop with such a node in its body."""
    if node.op in (WHILE, COND):
        return True
    return node.op == FOREACH and any(map(is_open, node.body().operators()))


def operators_in(graph: SymbolGraph) -> int:
    """How many operators it applies at most; a `_foreach`, of which its data tell the trips, counts as one trip."""
    return sum(_applied(node) for node in graph.operators())


def _applied(node: SymbolNode) -> int:
    if node.op == FOREACH:
        return operators_in(node.body())
    if node.op == WHILE:
        return While.of(node).trips * (operators_in(node.body(0)) + operators_in(node.body(1)))
    return sum(operators_in(node.body(number)) for number in range(3)) if node.op == COND else 1


def _body(node: SymbolNode, number: int, sources: Sequence[int], outputs: int) -> Body:
    graph = node.body(number)
    if len(sources) != len(graph.arg_nodes) or any(not 0 <= at < len(node.inputs) for at in sources):
        raise ModelError(f"{node.origin}: graph {number} has {len(graph.arg_nodes)} arguments, which are to be the "
                         f"inputs {tuple(sources)} of {len(node.inputs)}")
    if len(graph.heads) != outputs:
        raise ModelError(f"{node.origin}: graph {number} has {len(graph.heads)} outputs, expected {outputs}")
    return Body(graph, tuple(sources))
