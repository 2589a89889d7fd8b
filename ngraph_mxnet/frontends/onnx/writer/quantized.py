"""Numbers of 8 bits in ONNX: pairs of QuantizeLinear and DequantizeLinear around operators, which runtimes compute with
bytes, and products of integers."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.frontends.onnx.writer.document import Document, by_channel, window, writes
from ngraph_mxnet.ir.graph import Node

_MOST_BIAS = 1 << 30
"""Of a bias in i32: sums are added to it."""


def _axis(node: Node) -> int | None:
    axis: int = node.attrs["axis"]
    return axis % node.inputs[0].rank if node.inputs[1].rank else None


@writes("quantize")
def quantize(d: Document, node: Node, x: str, scale: str, zero: str) -> str:
    return str(d.add("QuantizeLinear", x, scale, zero, axis=_axis(node)))


@writes("dequantize")
def dequantize(d: Document, node: Node, x: str, scale: str, zero: str) -> str:
    return d.dequantized(x, scale, zero, _axis(node))


def at_sums_scale(d: Document, x: str, weights: str, bias: str) -> str:
    """A known bias [O] of a product of dequantised data and weights as i32 of the sums' scale, dequantised: runtimes
    ask for that. The bias as it is where it is another one, or where it is too large."""
    if x not in d.scaled or weights not in d.scaled:
        return bias
    known = [d.array(name) for name in (d.scaled[x][1], d.scaled[weights][1], bias)]
    if any(array is None for array in known) or d.scaled[x][3] is not None:
        return bias
    data, each, real = (array for array in known if array is not None)
    scale = np.broadcast_to(data * each, real.shape)
    whole = np.rint(real / scale)
    if not np.abs(whole).max(initial=0) <= _MOST_BIAS:
        return bias
    numbers = d.constant(whole.astype(np.int32))
    return str(d.add("DequantizeLinear", numbers, d.constant(scale.copy()), d.constant(np.zeros(real.shape, np.int32)),
                     axis=0))


@writes("integer_matmul")
def integer_matmul(d: Document, node: Node, a: str, b: str, a_zero: str, b_zero: str) -> str:
    names = [a, b]
    for place, key in enumerate(("transpose_a", "transpose_b")):
        if node.attrs[key]:
            rank = node.inputs[place].rank
            names[place] = d.transposed(names[place], [*range(rank - 2), rank - 1, rank - 2])
    return str(d.add("MatMulInteger", *names, a_zero, b_zero))


@writes("integer_convolution")
def integer_convolution(d: Document, node: Node, x: str, weights: str, x_zero: str, zero: str) -> str:
    if any(step != 1 for step in node.attrs["data_dilations"]):
        raise d.refuse("ONNX has no transposed convolution of integers")
    return str(d.add("ConvInteger", x, weights, x_zero, zero, **window(d, node)))


@writes("lookup")
def lookup(d: Document, node: Node, x: str, table: str) -> str:
    """A table for each channel is one long table, in which the channel's begins at 256 times its number."""
    places = d.cast(x, "i32")
    channels = node.inputs[1].shape[:-1]
    if channels:
        start = d.constant(np.arange(channels[0], dtype=np.int32) * 256)
        places = d.add("Add", places, by_channel(d, start, node.inputs[0].rank))
        table = d.reshaped(table, (channels[0] * 256,))
    return str(d.add("Gather", table, places, axis=0))
