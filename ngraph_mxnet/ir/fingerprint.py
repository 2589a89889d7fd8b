"""Fingerprints that tell apart graphs that compute different things, whatever the graphs and their values are
called."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.printer import print_graph


class Fingerprint(NamedTuple):
    """`digest`: of all that the graph's results depend on, types included, names and roles not. `parameters`: those
    that the results depend on, in an order that equal graphs share."""

    digest: str
    parameters: list[Value]


def fingerprint(graph: Graph) -> Fingerprint:
    """Return a graph's fingerprint. Graphs with the same digest have the same nodes, with the same attributes, on the
    same operands."""
    nodes, parameters = reached(graph)
    text = print_graph(_nameless(graph, nodes, parameters), origins=False)
    return Fingerprint(hashlib.sha256(text.encode()).hexdigest(), parameters)


def reached(graph: Graph) -> tuple[list[Node], list[Value]]:
    """Return the nodes and the parameters that the results depend on, as a walk from the results meets them. Each node
    is behind its operands."""
    nodes, parameters = dict[Node, None](), dict[Value, None]()
    waiting: list[tuple[Node | None, Iterator[Value]]] = [(None, iter(graph.results))]
    seen = set[Node]()
    while waiting:
        node, operands = waiting[-1]
        for value in operands:
            if value.node is None:
                parameters.setdefault(value)
            elif value.node not in seen:
                seen.add(value.node)
                waiting.append((value.node, iter(value.node.inputs)))
                break
        else:
            waiting.pop()
            if node is not None:
                nodes[node] = None
    return list(nodes), list(parameters)


def _nameless(graph: Graph, nodes: list[Node], parameters: list[Value]) -> Graph:
    """A copy of these of its nodes and parameters, called by their places."""
    copy, table = Graph("graph"), dict[Value, Value]()
    for place, parameter in enumerate(parameters):
        table[parameter] = copy.add_parameter(parameter.type, f"p{place}")
    for node in nodes:
        attrs = {name: _nameless(value, value.nodes, value.parameters) if isinstance(value, Graph) else value
                 for name, value in node.attrs.items()}
        twin = Node(node.op, [table[value] for value in node.inputs], attrs)
        twin.outputs = [Value(value.type, twin, value.index) for value in node.outputs]
        table.update(zip(node.outputs, twin.outputs, strict=True))
        copy.nodes.append(twin)
    copy.results = [table[value] for value in graph.results]
    return copy
