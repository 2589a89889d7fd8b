"""What is quantised to i8 becomes u8 where it is only widened again: kernels multiply u8 by i8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ngraph_mxnet.ir.builder import make_node
from ngraph_mxnet.ir.graph import Graph, Node, Value, constant_of
from ngraph_mxnet.ir.types import i8
from ngraph_mxnet.passes.byte_operands import HALF


class UnsignedData:
    """quantize to i8, and the `dequantize` nodes that read that, to u8 with zero points that are greater by 128.

    Also through ops that only move numbers. Not where the bytes are a result, or others read them.
    """

    name = "unsigned_data"

    def run(self, graph: Graph) -> bool:
        if not any(node.op.name == "quantize" for node in graph.nodes):
            return False
        readers, results = graph.readers(), set(graph.results)
        changed: dict[Value, Value] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            starts = node.op.name == "quantize" and node.output.type.element is i8
            reads = node.inputs and node.inputs[0] in changed and node.inputs[0].type.element is i8
            if reads or (starts and _all_widen(node.output, readers, results)):
                nodes += self._unsigned(node, changed)
            else:
                nodes.append(node)
        graph.nodes = nodes
        graph.replace({old: new for old, new in changed.items() if old.type == new.type})
        return bool(changed)

    def _unsigned(self, node: Node, changed: dict[Value, Value]) -> list[Node]:
        """The node anew, with its zero point, if it has one."""
        made: list[Node] = []
        inputs = [changed.get(node.inputs[0], node.inputs[0]), *node.inputs[1:]]
        if len(inputs) == 3:
            points = constant_of(inputs[2])
            assert points is not None
            made.append(make_node("constant", [], {"value": (points.astype(np.int16) + HALF).astype(np.uint8)},
                                  node.origin))
            inputs[2] = made[0].output
        made.append(make_node(node.op.name, inputs, dict(node.attrs), node.origin))
        changed[node.output] = made[-1].output
        return made


def _all_widen(value: Value, readers: Mapping[Value, Sequence[tuple[Node, int]]], results: set[Value]) -> bool:
    """Whether whoever reads the bytes, directly or when they are moved, widens them by known zero points."""
    node = value.node
    assert node is not None
    if value in results or (node.op.name == "quantize" and constant_of(node.inputs[2]) is None):
        return False
    for reader, position in readers[value]:
        if reader.op.name == "dequantize":
            if position or constant_of(reader.inputs[2]) is None:
                return False
        else:
            moves = reader.op.kind == "movement" and reader.op.selects and len(reader.inputs) == 1
            if not moves or not _all_widen(reader.output, readers, results):
                return False
    return True
