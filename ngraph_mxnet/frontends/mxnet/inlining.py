"""MXNet's control flow, `_foreach`, `_while_loop` and `_cond`: the graphs that such a node runs, and what they read.

The attributes are those of MXNet 1.9.1's src/operator/control_flow.cc: `*_locs` are places among a body's arguments or
among the node's inputs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import Attrs
from ngraph_mxnet.frontends.mxnet.symbol_json import Edge, SymbolGraph, SymbolNode, as_loaded, in_order

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
        """Read a `_while_loop` from its node, as `Foreach.of` reads a loop."""
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
        """Read a `_cond` from its node, as `Foreach.of` reads a loop."""
        attrs = attrs or Attrs(node.attrs, node.origin)
        locs = [attrs.ints(name) for name in ("cond_input_locs", "then_input_locs", "else_input_locs")]
        counts = 1, attrs.int("num_outputs"), attrs.int("num_outputs")
        return Cond(*(_body(node, number, *both) for number, both in enumerate(zip(locs, counts, strict=True))))


def bodies_of(node: SymbolNode) -> list[tuple[Body, Collection[int]]]:
    """The bodies of a loop or choice, each with the node's inputs that change from trip to trip. None of other
    operators."""
    if node.op == FOREACH:
        loop = Foreach.of(node)
        return [(loop.body, range(loop.data + loop.states))]
    if node.op == WHILE:
        repeated = While.of(node)
        return [(repeated.condition, repeated.variables), (repeated.body, repeated.variables)]
    if node.op == COND:
        choice = Cond.of(node)
        return [(body, ()) for body in (choice.condition, choice.then, choice.otherwise)]
    return []


def is_open(node: SymbolNode) -> bool:
    """True if MXNet finds the shapes of the node's results only when the node runs. That holds for `_while_loop` and
    `_cond`, and for a loop with such a node in its body."""
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
        return While.of(node).trips * max(1, operators_in(node.body(0)) + operators_in(node.body(1)))
    return sum(operators_in(node.body(number)) for number in range(3)) if node.op == COND else 1


def _body(node: SymbolNode, number: int, sources: Sequence[int], outputs: int) -> Body:
    graph = node.body(number)
    if len(sources) != len(graph.arg_nodes) or any(not 0 <= at < len(node.inputs) for at in sources):
        raise ModelError(f"{node.origin}: graph {number} has {len(graph.arg_nodes)} arguments, which are to be the "
                         f"inputs {tuple(sources)} of {len(node.inputs)}")
    if len(graph.heads) != outputs:
        raise ModelError(f"{node.origin}: graph {number} has {len(graph.heads)} outputs, expected {outputs}")
    return Body(graph, tuple(sources))


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
        """Return the edge that stands for an edge of the original graph."""
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


def require_few(node: SymbolNode) -> None:
    """Raises UnsupportedError: all trips of an open node may apply more operators than are compiled."""
    count = operators_in(SymbolGraph((node,), (), ()))
    most = MOST_OPEN_OPERATORS if node.op == WHILE else MOST_OPERATORS
    if count > most:
        raise UnsupportedError(f"its trips may apply {count} operators; at most {most} are compiled")


def _expanded(writer: _Writer, graph: SymbolGraph, node: SymbolNode, inputs: list[Edge]) -> list[Edge]:
    """The node's outputs, such that those which are read depend on all inputs: MXNet drops what no output reads."""
    writer.name = node.name
    begin, outputs = len(writer.nodes), writer.expand(node, inputs)
    read = [edge.output for edge in {*graph.readers(), *graph.heads} if edge.node == node.index]
    if read and max(read) >= len(outputs):
        raise ModelError(f"its output {max(read)} is read, and it has {len(outputs)}")
    used = [outputs[output] for output in read]

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
        require_few(node)
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
