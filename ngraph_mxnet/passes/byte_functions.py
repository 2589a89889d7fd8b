"""What is computed of one byte and quantised again is looked up in a table, whatever the ops between are.

    quantize(f(dequantize(x)), s, z) -> lookup(x, table), where f is elementwise

f may read x in several places, as x * sigmoid(x) does, be quantised in between, and have numbers for each channel, as a
prelu has. The table is what the ops' references give for each byte: the same numbers, in one pass over bytes.

Bytes of weights that no product of bytes has taken by now become the real numbers that they stand for.
"""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.ir.graph import Node, Value, constant_of
from ngraph_mxnet.ir.sizes import are_same_shape, is_zero
from ngraph_mxnet.ir.types import u8
from ngraph_mxnet.ops.quantization import BYTES
from ngraph_mxnet.passes.pattern import Answer, Rewriter
from ngraph_mxnet.passes.quantized_products import QuantizedPass

_MOST_NODES = 32


def _elementwise(node: Node) -> list[Value]:
    """The operands that broadcast to the result; the others are vectors of channels, or tables."""
    return node.inputs[:1] if node.op.by_channel else node.inputs


def _may_be_inside(node: Node) -> bool:
    """What a `quantize` between gives is the source, or looked up by now."""
    return node.op.kind == "arithmetic" or (node.op.by_channel and node.op.name != "quantize")


def _cone(end: Node, rw: Rewriter) -> tuple[Value, list[Node]] | None:
    """The only u8 value that the node's result is a function of, and the nodes between, in order."""
    nodes: dict[Node, None] = {}
    source: Value | None = None
    waiting = [end]
    while waiting:
        node = waiting.pop()
        if node in nodes:
            continue
        nodes[node] = None
        if len(nodes) > _MOST_NODES:
            return None
        for value in _elementwise(node):
            if constant_of(value) is not None:
                continue
            inner = value.node
            if inner is not None and _may_be_inside(inner) and _same_places(inner, end):
                waiting.append(inner)
            elif value.type.element is u8 and source in (None, value):
                source = value
            else:
                return None
    if source is None or not are_same_shape(source.shape, end.output.shape):
        return None
    return source, sorted(nodes, key=rw.position)


def _same_places(node: Node, end: Node) -> bool:
    """Whether the node is elementwise over the end's places, with constant steps where it quantises."""
    if len(node.outputs) != 1 or not are_same_shape(node.output.shape, end.output.shape):
        return False
    return all(constant_of(value) is not None for value in node.inputs[len(_elementwise(node)):])


def _table(source: Value, nodes: list[Node]) -> np.ndarray | None:
    """Of each byte, and channel if it matters; None where numbers are apart by another axis."""
    rank = source.type.rank
    channels = 1
    for node in nodes:
        whole = len(_elementwise(node))
        for at, value in enumerate(node.inputs):
            constant = constant_of(value)
            if constant is None or constant.size == 1 or (node.op.name == "lookup" and constant.ndim == 1):
                continue
            if at >= whole:
                axis = node.attrs.get("axis", 1) % max(rank, 1)
            else:
                padded = (1,) * (rank - constant.ndim) + constant.shape
                axis = 1 if rank > 1 and constant.size == padded[1] else 0
            if axis != 1:
                return None
            channels = source.shape[1]
    every = np.arange(BYTES, dtype=np.uint8)
    shape = (BYTES, channels, *(1,) * (rank - 2))[:max(rank, 1)]
    arrays = {source: np.broadcast_to(every.reshape(-1, *(1,) * (len(shape) - 1)), shape)}
    for node in nodes:
        operands = [arrays[value] if value in arrays else constant_of(value) for value in node.inputs]
        with np.errstate(all="ignore"):
            arrays[node.output], = node.op.evaluate([np.asarray(operand) for operand in operands], node.attrs)
    table = np.broadcast_to(arrays[nodes[-1].output], shape).reshape(BYTES, channels)
    return np.ascontiguousarray(table[:, 0] if channels == 1 else table.T)


def _lookup(node: Node, rw: Rewriter) -> Answer:
    if node.output.type.element is not u8 or is_zero(node.output.type.size) or not _same_places(node, node):
        return None
    found = _cone(node, rw)
    if found is None:
        return None
    source, nodes = found
    table = _table(source, nodes)
    return None if table is None else rw.make("lookup", source, rw.constant(table), origin=tuple(nodes))


def _widened(node: Node, rw: Rewriter) -> Answer:
    if any(constant_of(value) is None for value in node.inputs):
        return None
    return rw.folded("dequantize", *node.inputs, **node.attrs)


def byte_functions() -> QuantizedPass:
    """The pass."""
    return QuantizedPass("byte_functions", {"quantize": [_lookup], "dequantize": [_widened]})


