"""Promises short sums (`ops.quantization`) where constant weights keep the promise: faster kernels without VNNI.

Weights that may change make no promise, whatever they are now. Data of u8 are 255 at most; of less where what they are
quantised from has an upper bound: where MXNet's i8 is not negative, 127.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ngraph_mxnet.ir.graph import Graph, Node, Value, constant_of
from ngraph_mxnet.ir.types import u8
from ngraph_mxnet.passes.pattern import uniform

_LARGEST_I16 = 32767
_LARGEST_U8 = 255
_ROUNDED_UP = 0.501
"""A quotient in float32 may be a little larger than the exact one."""
_EIGHT = 8


class ShortSums:
    """Sets `short_sums` of quantised products."""

    name = "short_sums"

    def run(self, graph: Graph) -> bool:
        largest: dict[Value, int] = {}
        found = []
        for node in graph.nodes:
            if node.outputs and node.outputs[0].type.element is u8:
                largest[node.outputs[0]] = _largest_result(node, largest)
            if node.attrs.get("short_sums") is False:
                data = max(largest.get(node.inputs[0], _LARGEST_U8), node.attrs.get("pad_value", 0))
                found += [node] if _are_short(node, data) else []
        for node in found:
            node.attrs = {**node.attrs, "short_sums": True}
        return bool(found)


def _largest_result(node: Node, largest: Mapping[Value, int]) -> int:
    """The largest u8 that a node gives; `largest` of those before it."""
    if node.op.selects:
        return max(largest.get(value, _LARGEST_U8) for value in node.inputs)
    affine = _affine(node) if node.op.name == "quantize" else None
    if affine is None:
        return _LARGEST_U8
    scale, zero_point = affine
    whole = np.floor(_upper(node.inputs[0], largest) / scale + _ROUNDED_UP)
    return int(np.clip(whole + zero_point, 0, _LARGEST_U8))


def _upper(value: Value, largest: Mapping[Value, int]) -> float:
    """An upper bound of real numbers, inf where none is known. Of a mean it is that of the data, or of its padding."""
    node = value.node
    if node is None or len(node.outputs) != 1:
        return np.inf
    if node.op.kind == "pool" or node.op.name == "reduce_mean":
        return max(0.0, _upper(node.inputs[0], largest))
    if node.op.name == "dequantize":
        affine = _affine(node)
        return np.inf if affine is None else (largest.get(node.inputs[0], _LARGEST_U8) - affine[1]) * affine[0]
    bounded = node.op.name == "clamp" or node.op.multiplies_bytes
    return float(node.attrs.get("upper", np.inf)) if bounded else np.inf


def _affine(node: Node) -> tuple[float, int] | None:
    """Scale, which is positive, and zero point, if they are known and the same for all."""
    scale, zero_point = map(uniform, node.inputs[1:])
    return None if scale is None or zero_point is None or scale <= 0 else (scale, zero_point)


def _are_short(node: Node, largest: int) -> bool:
    """Whether the weights are known, and small enough for data of numbers up to `largest`."""
    weights = constant_of(node.inputs[1])
    inner = 1 if node.op.kind == "convolution" or node.attrs["transpose_b"] else 0
    if weights is None or weights.shape[inner] % _EIGHT:
        return False
    rows = np.moveaxis(weights, inner, -1)
    parts = rows.reshape(*rows.shape[:-1], -1, 2, 2, 2).astype(np.int32)  # [eights][four][pair][channel]
    sums = (np.clip(part, 0, None).sum(axis=(-3, -1)) for part in (parts, -parts))
    return all(each.max(initial=0) * largest <= _LARGEST_I16 for each in sums)
