"""Parts of a graph that become graphs: bodies of `fused` nodes, and what depends on weights only.

A cluster is a convex group of elementwise ops and reductions over one iteration space, which becomes a `fused` node.
The space of a cluster is a shape and a number of trailing axes, its *rows*. In a cluster there are

* full values, of the space's shape: made from full ones, or from anything else that broadcasts;
* values of one element a row: reductions over exactly the rows, and what is computed from those alone;
* softmax, log_softmax and layer_norm along the last axis, whose rows that axis is.

A cluster without reduction has no rows yet. What stays outside: nodes that the caller does not want, and reductions
of values that the caller says are laid out otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from math import prod

from ngraph_mxnet.ir.graph import Builder, Graph, Node, Value, extract, make_node
from ngraph_mxnet.ir.module import Changes, Derivation, Module, Modules
from ngraph_mxnet.ir.types import Shape
from ngraph_mxnet.ops.bodies import bodies_of, expanded, has_bodies
from ngraph_mxnet.passes.base import join_origins


@dataclass(eq=False)
class _Cluster:
    """Nodes in topological order; `rows` is 0 until there is a reduction."""

    shape: Shape
    rows: int
    apart: bool
    """Reads or makes a value that is kept apart from reductions."""
    nodes: list[Node] = field(default_factory=list)
    last: int = -1
    """Position of the last node."""

    @property
    def row_shapes(self) -> tuple[Shape, ...]:
        """Shapes of the values of one element a row; the first broadcasts against full ones."""
        outer = self.shape[: -self.rows]
        return (outer + (1,) * self.rows, outer) if self.rows else ()


class Clusters:
    """The pass.

    Args:
        elementwise: whether a node is an elementwise op that may be fused.
        reduces: whether a node is a reduction, or an op on rows, that may be fused.
        apart: the values of a graph that no cluster with a reduction may read or make.
        most_row: the most elements of a row.
    """

    name = "clusters"

    def __init__(self, elementwise: Callable[[Node], bool], reduces: Callable[[Node], bool],
                 apart: Callable[[Graph], Collection[Value]], most_row: int) -> None:
        self._elementwise, self._reduces, self._find_apart, self._most_row = elementwise, reduces, apart, most_row

    def run(self, graph: Graph) -> bool:
        apart = self._find_apart(graph)
        forming = _Forming({node: number for number, node in enumerate(graph.nodes)}, self._most_row)
        for node in graph.nodes:
            rows = _rows_of(node) if self._reduces(node) else 0 if self._elementwise(node) else None
            if rows is not None:
                forming.place(node, rows, any(v in apart for v in (*node.inputs, *node.outputs)))
        clusters = [cluster for cluster in dict.fromkeys(forming.home.values()) if len(cluster.nodes) > 1]
        if clusters:
            _rewrite(graph, clusters)
        return bool(clusters)


def _rows_of(node: Node) -> int | None:
    """How many trailing axes the node reduces; None unless its axes are the last ones."""
    shape = node.inputs[0].shape
    if node.op.kind == "reduction":
        axes = sorted(axis % len(shape) for axis in node.attrs["axes"])
        count = len(axes)
        fits = count > 0 and axes == list(range(len(shape) - count, len(shape)))
    else:
        count, fits = 1, node.attrs["axis"] % max(len(shape), 1) == len(shape) - 1
    return count if fits and prod(shape[-count:]) > 1 else None


class _Forming:
    """The clusters while the graph is walked in topological order."""

    def __init__(self, position: dict[Node, int], most_row: int) -> None:
        self.home: dict[Node, _Cluster] = {}
        self._position, self._most_row = position, most_row

    def place(self, node: Node, rows: int, apart: bool) -> None:
        """Let the node join the clusters of its operands, or begin one."""
        shape = node.inputs[0].shape if rows else node.output.shape
        if rows and (apart or prod(shape[-rows:]) > self._most_row):
            return
        own = _Cluster(shape, rows, apart, [node], self._position[node])
        found = [self.home[v.node] for v in node.inputs if v.node in self.home]
        for cluster in dict.fromkeys(found):
            merged = self._merged(cluster, own, node)
            if merged is not None:
                own = merged
        for member in own.nodes:
            self.home[member] = own

    def _merged(self, one: _Cluster, other: _Cluster, node: Node) -> _Cluster | None:
        """One cluster of both, if there may be such; `node` is in `other`, and the last of all."""
        if other.nodes == [node] and not other.rows and node.output.shape in one.row_shapes:
            shape, rows = one.shape, one.rows  # a value of one element a row
        elif one.shape == other.shape and (one.rows == other.rows or not (one.rows and other.rows)):
            shape, rows = one.shape, one.rows or other.rows
        else:
            return None
        apart = one.apart or other.apart
        if rows and apart:
            return None
        nodes = sorted((*one.nodes, *other.nodes), key=self._position.__getitem__)
        merged = _Cluster(shape, rows, apart, nodes, max(one.last, other.last))
        return merged if self._aligned(merged, node) and self._convex(merged) else None

    @staticmethod
    def _aligned(cluster: _Cluster, node: Node) -> bool:
        """True if the node reads only matching elements of operands that the cluster makes: one loop can compute
        both."""
        inside = [v for v in node.inputs if v.node in cluster.nodes]
        if node.output.shape == cluster.shape:
            return all(v.shape in (cluster.shape, *cluster.row_shapes[:1]) for v in inside)
        if node.op.kind == "reduction":
            return True
        return all(v.shape == node.output.shape for v in inside)

    def _convex(self, cluster: _Cluster) -> bool:
        """True if no path leaves the cluster and comes back, be it through other clusters as a whole."""
        members = set(cluster.nodes)
        first = self._position[cluster.nodes[0]]
        stack = [v.node for node in cluster.nodes for v in node.inputs if v.node is not None and v.node not in members]
        seen: set[Node] = set()
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            group = self.home.get(node)
            seen.update(group.nodes if group else (node,))
            if (group.last if group else self._position[node]) < first:
                continue
            for mate in group.nodes if group else (node,):
                for operand in mate.inputs:
                    if operand.node in members:
                        return False
                    if operand.node is not None:
                        stack.append(operand.node)
        return True


def _rewrite(graph: Graph, clusters: list[_Cluster]) -> None:
    """Put a `fused` node in the place of each cluster."""
    outside: dict[Value, int] = {}
    for value in (*graph.results, *(v for node in graph.nodes for v in node.inputs)):
        outside[value] = outside.get(value, 0) + 1
    replaced: dict[Value, Value] = {}
    place: dict[Node, Node] = {}
    for cluster in clusters:
        reads = [v for node in cluster.nodes for v in node.inputs]
        made = [v for node in cluster.nodes for v in node.outputs]
        results = [v for v in made if outside.get(v, 0) > reads.count(v)]
        body, operands = _body(cluster.nodes, results)
        node = make_node("fused", operands, {"body": body}, join_origins(cluster.nodes))
        replaced.update(zip(results, node.outputs, strict=True))
        place[cluster.nodes[-1]] = node
    inside = {node for cluster in clusters for node in cluster.nodes}
    graph.nodes = [place.get(node, node) for node in graph.nodes if node in place or node not in inside]
    graph.replace(replaced)
    graph.sort()
    graph.remove_dead()


def _body(nodes: list[Node], results: list[Value]) -> tuple[Graph, list[Value]]:
    """The graph of `nodes` and the values that its parameters stand for; constants of one element are in it."""
    body, table = Graph("body"), dict[Value, Value]()
    operands: list[Value] = []
    for node in nodes:
        for operand in node.inputs:
            if operand in table:
                continue
            if operand.node is not None and operand.node.op.name == "constant" and operand.type.size == 1:
                constant = make_node("constant", [], operand.node.attrs)
                body.nodes.append(constant)
                table[operand] = constant.output
            else:
                table[operand] = body.add_parameter(operand.type, f"x{len(operands)}")
                operands.append(operand)
        twin = make_node(node.op.name, [table[v] for v in node.inputs], node.attrs, node.origin)
        body.nodes.append(twin)
        table.update(zip(node.outputs, twin.outputs, strict=True))
    body.results = [table[v] for v in results]
    return body, operands


class InlineBodies:
    """A pass: `inline_bodies`, for a graph that was given with nodes that run graphs."""

    name = "inline_bodies"

    def run(self, graph: Graph) -> bool:
        has_any = any(has_bodies(node.op.name) for node in graph.nodes)
        inline_bodies(graph)
        return has_any


def inline_bodies(graph: Graph) -> None:
    """Put what computes the same in the place of every node that runs graphs: clusters, loops and choices."""
    replaced: dict[Value, Value] = {}
    b = Builder(Graph())
    nodes = b.graph.nodes
    for node in graph.nodes:
        if not has_bodies(node.op.name):
            nodes.append(node)
            continue
        bodies = {name: body.clone() for name, body in bodies_of(node).items()}
        for body in bodies.values():
            inline_bodies(body)
        b.origin = node.origin
        results = expanded(b, node.op.name, node.inputs, {**node.attrs, **bodies})
        replaced.update(zip(node.outputs, results, strict=True))
    if replaced:
        graph.nodes = nodes
        graph.replace(replaced)


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


def main_nodes(graph: Graph) -> list[Node]:
    """The nodes of which the main graph that `split_prepare` makes has copies, in their order."""
    stops, needed = set(_read_outside(graph)), set[Node]()
    stack = list(graph.results)
    while stack:
        value = stack.pop()
        if value.node is not None and value not in stops and value.node not in needed:
            needed.add(value.node)
            stack.extend(value.node.inputs)
    return [node for node in graph.nodes if node in needed]


def _read_outside(graph: Graph) -> list[Value]:
    """The values derived from weights that main reads or returns, in a fixed order."""
    derivation = Derivation()

    def is_prepared(value: Value) -> bool:
        return not value.is_parameter and derivation.of(value) is Changes.WITH_WEIGHTS

    read = dict.fromkeys(v for node in graph.nodes if derivation.of_node(node) is not Changes.WITH_WEIGHTS
                         for v in node.inputs if is_prepared(v))
    read |= dict.fromkeys(filter(is_prepared, graph.results))
    return list(read)
