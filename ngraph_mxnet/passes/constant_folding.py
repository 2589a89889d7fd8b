"""Constant folding: nodes over constants become constants, computed by the op's reference."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.ir.builder import make_node
from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.sizes import is_symbolic
from ngraph_mxnet.passes.base import Miss

GROWTH = 1 << 20
"""A node is folded only when its outputs take at most this many bytes more than its operands."""


class ConstantFolding:
    """Folds a node when it has operands, all of them are constants, and the result is not too big.

    Does not fold: a broadcast or tile of a small constant into a big tensor (see `GROWTH`; it would only
    make the program larger); a result of symbolic shape; a node without operands; an op without a reference.
    """

    name = "constant_folding"

    def __init__(self, growth: int = GROWTH) -> None:
        self.growth = growth
        self.misses: list[Miss] = []

    def run(self, graph: Graph) -> bool:
        self.misses = []
        arrays: dict[Value, np.ndarray] = {}
        replaced: dict[Value, Value] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            if node.op.name == "constant":
                arrays[node.output] = node.attrs["value"]
            elif node.inputs and all(map(arrays.__contains__, node.inputs)):
                for output, array in zip(node.outputs, self._fold(node, arrays), strict=False):
                    constant = make_node("constant", [], {"value": array}, node.origin)
                    # Nodes further down still read the old value: they find its array under it.
                    arrays[output] = arrays[constant.output] = constant.attrs["value"]
                    replaced[output] = constant.output
                    nodes.append(constant)
            nodes.append(node)
        if replaced:
            graph.nodes = nodes
            graph.replace(replaced)
            graph.remove_dead()
        return bool(replaced)

    def _fold(self, node: Node, arrays: dict[Value, np.ndarray]) -> list[np.ndarray]:
        """The outputs, or nothing when the node has to stay."""
        if any(map(is_symbolic, (size for v in node.outputs for size in v.shape))):
            self.misses.append(Miss("fold", str(node), "its size is a symbol"))
            return []
        growth = sum(v.type.bytes for v in node.outputs) - sum(v.type.bytes for v in node.inputs)
        if growth > self.growth:
            self.misses.append(Miss("fold", str(node), f"the constant would grow by {growth} bytes"))
            return []
        try:
            with np.errstate(all="ignore"):
                outputs = node.op.evaluate([arrays[v] for v in node.inputs], node.attrs)
        except NotImplementedError as error:
            self.misses.append(Miss("fold", str(node), str(error)))
            return []
        wrong = [v.type for v, a in zip(node.outputs, outputs, strict=True)
                 if v.shape != a.shape or v.type.element.numpy != a.dtype]
        if wrong:
            self.misses.append(Miss("fold", str(node), f"its reference does not give {wrong[0]}"))
            return []
        return outputs
