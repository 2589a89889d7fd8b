"""Promises short sums (`ops.quantization`) where constant weights keep the promise: faster kernels without VNNI.

Weights that may change make no promise, whatever they are now.
"""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.ir.graph import Graph, Node, constant_of

_BOUND = 128
_EIGHT = 8


class ShortSums:
    """Sets `short_sums` of quantised products."""

    name = "short_sums"

    def run(self, graph: Graph) -> bool:
        found = [node for node in graph.nodes if node.attrs.get("short_sums") is False and _are_short(node)]
        for node in found:
            node.attrs = {**node.attrs, "short_sums": True}
        return bool(found)


def _are_short(node: Node) -> bool:
    """Whether the weights are known, and small enough."""
    weights = constant_of(node.inputs[1])
    inner = 1 if node.op.kind == "convolution" or node.attrs["transpose_b"] else 0
    if weights is None or weights.shape[inner] % _EIGHT:
        return False
    rows = np.moveaxis(weights, inner, -1)
    parts = rows.reshape(*rows.shape[:-1], -1, 2, 2, 2).astype(np.int32)  # [eights][four][pair][channel]
    sums = (np.clip(part, 0, None).sum(axis=(-3, -1)) for part in (parts, -parts))
    return all(each.max(initial=0) <= _BOUND for each in sums)
