"""Conversions before views: what a node only gives another shape or place must be stored as its result is."""

from __future__ import annotations

from collections.abc import Iterator

from ngraph_mxnet.ir.builder import make_node
from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.targets.nnp.lower.views import VIEWS
from ngraph_mxnet.targets.nnp.quantise.quantization import Quantization


def convert_views(graph: Graph, quantization: Quantization) -> None:
    """Insert an `identity` before every view that moves elements and whose operand is stored in another element, or
    with another scale, than its result; in place. The numbers stay what they are."""
    elements, scales = quantization.elements, quantization.scales

    def stored_as(value: Value, result: Value) -> bool:
        return elements[value] == elements[result] and scales.get(value) == scales.get(result)

    def with_conversions(node: Node) -> Iterator[Node]:
        if node.op.name in VIEWS and node.op.kind == "movement":
            for position, value in enumerate(node.inputs):
                if not stored_as(value, node.output):
                    conversion = make_node("identity", [value], {}, node.origin)
                    elements[conversion.output] = elements[node.output]
                    if node.output in scales:
                        scales[conversion.output] = scales[node.output]
                    node.inputs[position] = conversion.output
                    yield conversion
        yield node

    graph.nodes = [each for node in graph.nodes for each in with_conversions(node)]
