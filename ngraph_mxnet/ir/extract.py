"""Cuts a part out of a graph, as a graph of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.roles import Role


@dataclass(frozen=True)
class Extract:
    """A copy of a part; `inputs` are the whole graph's values that its parameters stand for."""

    graph: Graph
    inputs: tuple[Value, ...]


def extract(graph: Graph, results: Sequence[Value], inputs: Iterable[Value], *, name: str,
            label: Callable[[Value, int], str]) -> Extract:
    """A copy of what `results` need, back to `inputs`. The whole graph stays as it is.

    Args:
        graph: the whole.
        results: values of it, which are the part's results.
        inputs: values to stop at; those that are needed become the part's parameters, in this order.
        name: the part's.
        label: the name of the parameter of that number for a value that a node computes; names of the whole graph's
            parameters are taken.
    """
    stops = dict.fromkeys(inputs)
    reached: set[Value] = set()
    needed: set[Node] = set()
    stack = list(results)
    while stack:
        value = stack.pop()
        if value.node is None or value in stops:
            reached.add(value)
        elif value.node not in needed:
            needed.add(value.node)
            stack.extend(value.node.inputs)
    part, table = Graph(name), dict[Value, Value]()
    taken = {parameter.name for parameter in graph.parameters}
    for value in stops:
        if value in reached:
            own = value.name if value.node is None else _fresh(label(value, len(table)), taken)
            origin = value.origin if value.node is None else value.node.origin
            role = value.role if value.is_parameter else Role.INPUT
            table[value] = part.add_parameter(value.type, own, role, origin=origin)
    read = tuple(table)
    for node in graph.nodes:
        if node in needed:
            twin = Node(node.op, [table[v] for v in node.inputs], dict(node.attrs), origin=node.origin)
            twin.outputs = [Value(v.type, twin, v.index, v.name) for v in node.outputs]
            for old, new in zip(node.outputs, twin.outputs, strict=True):
                table.setdefault(old, new)  # one of several outputs may be an input
            part.nodes.append(twin)
    part.results = [table[value] for value in results]
    return Extract(part, read)


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
