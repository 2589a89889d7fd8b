"""The picture of a graph of the IR."""

from __future__ import annotations

from ngraph_mxnet.debug.dot import label
from ngraph_mxnet.drawing.picture import Box, Edge, Look, picture
from ngraph_mxnet.ir.graph import Graph, Node, Value, count_ops

_PORT = Look("#dcf0dc", "#3a7a40", "input, result")
_CONTRACTION = Look("#ffe2c2", "#b1611a", "convolution, matrix product")
_COMPUTING = Look("#d8e8f9", "#2f6ca8", "other computing")
_MOVING = Look("#eaedf0", "#77828d", "moves data only")


def to_svg(graph: Graph) -> str:
    """Boxes for inputs, nodes and results; edges carry types. Weights and constants, and what depends on nothing else,
    are left out: most are parameters of the node that reads them."""
    boxes: list[Box] = []
    made: dict[Value, int] = {}
    edges: list[Edge] = []
    for parameter in graph.parameters:
        if not parameter.is_weight:
            made[parameter] = len(boxes)
            boxes.append(Box(parameter.name, str(parameter.type), _PORT, is_round=True))
    drawn = []
    for node in graph.nodes:
        read = [value for value in dict.fromkeys(node.inputs) if value in made]
        if node.op.name != "constant" and (read or not node.inputs):
            edges += [Edge(made[value], len(boxes), str(value.type)) for value in read]
            made.update(dict.fromkeys(node.outputs, len(boxes)))
            boxes.append(Box(node.op.name, node.origin, _look(node), label(node)))
            drawn.append(node)
    for number, result in enumerate(graph.results):
        if result in made:
            edges.append(Edge(made[result], len(boxes), str(result.type)))
        boxes.append(Box(f"result {number}", str(result.type), _PORT, is_round=True))
    return picture(boxes, edges, graph.name, [_line(drawn, len(graph.nodes))])


def _line(drawn: list[Node], of: int) -> str:
    counts = sorted(count_ops(drawn).items(), key=lambda each: -each[1])
    ops = ", ".join(f"{name} \u00d7{count}" for name, count in counts)
    left_out = "; weights, constants and what depends on nothing else are left out" if len(drawn) < of else ""
    return f"{len(drawn)} nodes{': ' if ops else ''}{ops}{left_out}"


def _look(node: Node) -> Look:
    return _CONTRACTION if node.op.contraction else _COMPUTING if node.op.computes else _MOVING
