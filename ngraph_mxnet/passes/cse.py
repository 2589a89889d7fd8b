"""Common subexpressions: nodes that compute the same become one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from ngraph_mxnet.ir.graph import Graph, Node, Value

_COMPARED_BYTES = 1 << 16
"""Constants up to this size are compared by content, larger ones by identity: hashing weights costs more
than two equal copies of them do, and bridges make each large constant once."""

_HEAD = 16
"""Elements."""


class Cse:
    """Merges nodes of one op with equal attributes and equal operands.

    Operands of a commutative op count in any order. The first node stays, with its origin. Does not see
    through rewrites (`a + b + c` in another grouping).
    """

    name = "cse"

    def run(self, graph: Graph) -> bool:
        heads = {node: _head(node.attrs["value"]) for node in graph.nodes if node.op.name == "constant"}
        alike = Counter(heads.values())
        seen: dict[tuple[Any, ...], Node] = {}
        replaced: dict[Value, Value] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            if node in heads and alike[heads[node]] == 1:
                nodes.append(node)
                continue
            if replaced:
                node.inputs = [replaced.get(v, v) for v in node.inputs]
            operands = [id(v) for v in node.inputs]
            if node.op.commutative:
                operands.sort()
            key = (node.op.name, *map(_key, node.attrs.values()), *operands)
            first = seen.setdefault(key, node)
            if first is node:
                nodes.append(node)
            else:
                replaced.update(zip(node.outputs, first.outputs, strict=True))
        if replaced:
            graph.nodes = nodes
            graph.replace(replaced)
        return bool(replaced)


def _head(array: np.ndarray) -> tuple[Any, ...]:
    """What equal constants share; to hash all of each would take longer than the rest."""
    return array.dtype.str, array.shape, array.reshape(-1)[:_HEAD].tobytes()


def _key(value: Any) -> Any:
    if isinstance(value, float):
        return value.hex()  # 0.0 and -0.0 are equal, but not the same attribute
    if isinstance(value, np.ndarray):
        content = value.tobytes() if value.nbytes <= _COMPARED_BYTES else id(value)
        return value.dtype.str, value.shape, content
    return value
