"""Makes the nodes that stand for one."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.ir.builder import make_folded
from ngraph_mxnet.ir.graph import Node, Value


class Maker:
    """Makes nodes that stand for `node`, at the end of `nodes`; what is known is computed at once."""

    def __init__(self, node: Node, nodes: list[Node]) -> None:
        self._node, self._nodes = node, nodes

    def __call__(self, op: str, *inputs: Value, **attrs: object) -> Value:
        made = make_folded(op, inputs, attrs, self._node.origin)
        self._nodes.append(made)
        return made.outputs[0]

    def constant(self, array: np.ndarray | np.generic) -> Value:
        return self("constant", value=np.asarray(array))
