"""Cost of a graph: multiply-adds, other operations, and the bytes that cross its border."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

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
    out, name = sum([value.type.size for value in node.outputs]), node.op.name
    if node.op.kind == "convolution":
        return Cost(macs=out * prod(node.inputs[1].shape[1:]) // prod(node.attrs["data_dilations"]))
    if node.op.kind == "product":
        return Cost(macs=out * node.inputs[0].shape[-2 if node.attrs["transpose_a"] else -1])
    if name == "attention":
        queries, keys = node.inputs[:2]
        scores = prod(queries.shape[:-1]) * keys.shape[-2]
        return Cost(macs=scores * (queries.shape[-1] + node.output.shape[-1]), operations=scores)
    if name in ("rnn", "gru_reset_first"):
        steps, rows = node.inputs[0].shape[:2]
        weights = node.inputs[1].type.size + (node.inputs[3].type.size if name == "gru_reset_first" else 0)
        return Cost(macs=steps * rows * weights, operations=node.inputs[0].type.size)
    if not node.op.computes:
        return Cost()
    if node.op.kind == "pool":
        return Cost(operations=out * prod(node.attrs["kernel"]))
    if name == "lrn":
        return Cost(operations=out * node.attrs["size"])
    return Cost(operations=max(out, *(v.type.size for v in node.inputs)) if node.inputs else out)
