"""`_while_loop` and `_cond` in MXNet's other operators, of which it infers shapes.

MXNet infers none of these two, and so none behind them; a region that holds them must tell its own. A condition becomes
a selection between both results, a while loop all the trips that it may have: where the condition no longer holds, the
variables stay as they are, and rows are 0 (MXNet leaves there what was in the memory).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.control_flow import (
    FOREACH,
    FOREACH_LOCS,
    WHILE,
    Body,
    Cond,
    Foreach,
    While,
    is_open,
    operators_in,
)
from ngraph_mxnet.bridges.mxnet.symbols.node_order import as_loaded, in_order
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import VARIABLE, Edge, SymbolGraph, SymbolNode
from ngraph_mxnet.errors import ModelError, UnsupportedError

MOST_OPERATORS = 10000
"""The most operators that all trips of a loop apply: they take some 3 seconds to compile."""
MOST_OPEN_OPERATORS = 1000
"""The most operators that all trips of a `_while_loop` may apply. How many trips it takes is not known before it runs,
and MXNet compiles nothing: a first call is not to take seconds for trips that may never come."""


@dataclass(frozen=True)
class Inlined:
    """`graph`: without the open nodes that could be inlined. `nodes`: the numbers of those that stand for each node of
    the original. `outputs`: for the nodes that were inlined, what their outputs are. `reasons`: why others were not."""

    graph: SymbolGraph
    nodes: list[range]
    outputs: dict[int, tuple[Edge, ...]]
    reasons: dict[int, str]

    def edge(self, edge: Edge) -> Edge:
        """What stands for an edge of the original."""
        inlined = self.outputs.get(edge.node)
        return inlined[edge.output] if inlined else replace(edge, node=self.nodes[edge.node][-1])


def inline(graph: SymbolGraph, left: Collection[int] = ()) -> Inlined:
    """The graph without its open nodes, but for those numbered `left`, which stay as they are."""
    if not any(node.index not in left and is_open(node) for node in graph.operators()):
        return Inlined(graph, [range(at, at + 1) for at in range(len(graph.nodes))], {}, {})
    writer, found = _Writer(), Inlined(graph, [], {}, {})
    for node in graph.nodes:
        begin, inputs = len(writer.nodes), [found.edge(edge) for edge in node.inputs]
        if node.index not in left and not node.is_variable and is_open(node):
            try:
                found.outputs[node.index] = tuple(_expanded(writer, graph, node, inputs))
            except (ModelError, UnsupportedError) as error:
                del writer.nodes[begin:]
                found.reasons[node.index] = str(error)
        if node.index not in found.outputs:
            writer.copy(node, inputs)
        found.nodes.append(range(begin, len(writer.nodes)))
    return replace(found, graph=SymbolGraph(
        tuple(writer.nodes), tuple(found.nodes[index][-1] for index in graph.arg_nodes),
        tuple(map(found.edge, graph.heads))))


def inlined(graph: SymbolGraph) -> SymbolGraph:
    """The graph without open nodes.

    Raises:
        ModelError, UnsupportedError: one can't be inlined; the text names it and the reason.
    """
    if not any(map(is_open, graph.operators())):
        return graph
    found = inline(graph)
    for index, reason in found.reasons.items():
        raise UnsupportedError(f"{graph.nodes[index].origin}: {reason}")
    return found.graph


def expansion(node: SymbolNode) -> SymbolGraph:
    """What an open node computes, as a graph of its inputs.

    Raises:
        ModelError, UnsupportedError: as `inlined`, without the node's name.
    """
    writer = _Writer(node.name)
    inputs = [writer.add(VARIABLE, f"input{slot}", ()) for slot in range(len(node.inputs))]
    heads = writer.expand(node, inputs)
    return SymbolGraph(tuple(writer.nodes), tuple(range(len(inputs))), tuple(heads))


def _expanded(writer: _Writer, graph: SymbolGraph, node: SymbolNode, inputs: list[Edge]) -> list[Edge]:
    """The node's outputs, such that those which are read depend on all inputs: MXNet drops what no output reads."""
    writer.name = node.name
    begin, outputs = len(writer.nodes), writer.expand(node, inputs)
    used = [outputs[edge.output] for edge in {*graph.readers(), *graph.heads} if edge.node == node.index]

    def reads(edge: Edge) -> Iterable[Edge]:
        return writer.nodes[edge.node].inputs if edge.node >= begin else ()

    reached: set[Edge] = set(in_order(used, reads))
    missing = set(inputs) - reached
    if missing:
        names = ", ".join(sorted(writer.nodes[edge.node].name for edge in missing))
        raise UnsupportedError(f"only outputs that nobody reads depend on {names}")
    return outputs


class _Writer:
    """Nodes, one after the other. `name`: what those are called by, with a number, that are in no body."""

    def __init__(self, name: str = "") -> None:
        self.nodes: list[SymbolNode] = []
        self.name = name

    def add(self, op: str, name: str, inputs: Sequence[Edge], **attrs: str) -> Edge:
        return self._append(SymbolNode(0, op, name, attrs, tuple(inputs)))

    def copy(self, node: SymbolNode, inputs: Sequence[Edge]) -> None:
        self._append(replace(node, inputs=tuple(inputs)))

    def _append(self, node: SymbolNode) -> Edge:
        self.nodes.append(replace(node, index=len(self.nodes)))
        return Edge(len(self.nodes) - 1, 0)

    def expand(self, node: SymbolNode, inputs: Sequence[Edge]) -> list[Edge]:
        """The outputs of an open node."""
        count = operators_in(SymbolGraph((node,), (), ()))
        most = MOST_OPEN_OPERATORS if node.op == WHILE else MOST_OPERATORS
        if count > most:
            raise UnsupportedError(f"its trips may apply {count} operators; at most {most} are compiled")
        if node.op == FOREACH:
            self._append(replace(_with_open_body(node), name=node.name, inputs=tuple(inputs)))
            return [Edge(len(self.nodes) - 1, output) for output in range(len(node.body().heads))]
        return self._while(While.of(node), inputs) if node.op == WHILE else self._cond(Cond.of(node), inputs)

    def _cond(self, cond: Cond, inputs: Sequence[Edge]) -> list[Edge]:
        condition, = self._body(cond.condition, inputs)
        holds = self._op("Reshape", condition, shape="(1,)")
        pairs = zip(self._body(cond.then, inputs), self._body(cond.otherwise, inputs), strict=True)
        return [self._either(holds, then, otherwise) for then, otherwise in pairs]

    def _while(self, loop: While, inputs: Sequence[Edge]) -> list[Edge]:
        values, holds = list(inputs), None
        rows: list[list[Edge]] = [[] for _ in range(loop.outputs)]
        for _ in range(loop.trips):
            condition, = self._body(loop.condition, values)
            goes_on = self._op("Reshape", condition, shape="(1,)")
            holds = goes_on if holds is None else self._op("_npi_where", holds, goes_on, holds)
            results = self._body(loop.body, values)
            for row, value in zip(rows, results, strict=False):
                row.append(self._op("_npi_where", holds, value, self._op("zeros_like", value)))
            for place, value in zip(loop.variables, results[loop.outputs:], strict=True):
                values[place] = self._either(holds, value, values[place])
        stacked = [self._op("stack", *row, axis="0", num_args=str(len(row))) for row in rows]
        return [*stacked, *(values[place] for place in loop.variables)]

    def _either(self, condition: Edge, yes: Edge, no: Edge) -> Edge:
        """One of two of the same shape: the selection alone would broadcast."""
        return self._op("_npi_where", condition, self._op("_identity_with_attr_like_rhs", yes, no), no)

    def _body(self, body: Body, inputs: Sequence[Edge]) -> list[Edge]:
        """The results of a body for the node's inputs."""
        at: dict[Edge, Edge] = {Edge(index, 0): inputs[source]
                                for index, source in zip(body.graph.arg_nodes, body.sources, strict=True)}

        def moved(edge: Edge) -> Edge:
            return at[edge] if edge in at else replace(edge, node=placed[edge.node])

        placed: dict[int, int] = {}
        for node in body.graph.operators():
            own = [moved(edge) for edge in node.inputs]
            if is_open(node):
                at.update((Edge(node.index, output), edge) for output, edge in enumerate(self.expand(node, own)))
            else:
                placed[node.index] = self._append(replace(node, inputs=tuple(own))).node
        return [moved(head) for head in body.graph.heads]

    def _op(self, op: str, *inputs: Edge, **attrs: str) -> Edge:
        return self.add(op, f"{self.name}_{len(self.nodes)}", inputs, **attrs)


def _with_open_body(node: SymbolNode) -> SymbolNode:
    """A `_foreach` whose body has no open nodes."""
    loop = Foreach.of(node)
    inner = inlined(loop.body.graph)
    graph = as_loaded(inner)
    names = [inner.nodes[index].name for index in inner.arg_nodes]
    places = [graph.nodes[index].name for index in graph.arg_nodes]
    if len(set(names)) != len(names) or sorted(names) != sorted(places):
        raise UnsupportedError("arguments of its body share a name")
    moved = [places.index(name) for name in names]
    before = Attrs(node.attrs, node.origin)
    locs = {name: str(tuple(moved[place] for place in before.ints(name))) for name in FOREACH_LOCS}
    return replace(node, attrs={**node.attrs, **locs}, bodies=(graph.to_json(),))
