"""Cost of a graph: multiply-adds, other operations, and the bytes that cross its border."""

from __future__ import annotations

from dataclasses import dataclass

from ngraph_mxnet.ir.graph import Graph, Node


@dataclass(frozen=True)
class Cost:
    """`macs` of contractions, `operations` of all else that computes, `bytes` read and written at least."""

    macs: int = 0
    operations: int = 0
    bytes: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.macs + other.macs, self.operations + other.operations, self.bytes + other.bytes)


def graph_cost(graph: Graph) -> Cost:
    """The cost of running `graph` once; unread parameters (labels) cost nothing."""
    read = {operand for node in graph.nodes for operand in node.inputs}
    border = sum(p.type.bytes for p in graph.parameters if p in read)
    border += sum(result.type.bytes for result in graph.results)
    costs = [node_cost(node) for node in graph.nodes]
    return Cost(sum([cost.macs for cost in costs]), sum([cost.operations for cost in costs]), border)


def node_cost(node: Node) -> Cost:
    """The arithmetic of one node, counted as its definition does it, whatever a kernel makes of it."""
    operands, results = ([value.shape for value in values] for values in (node.inputs, node.outputs))
    assert node.op.counts is not None
    macs, operations = node.op.counts(operands, results, node.attrs)
    return Cost(macs, operations)
