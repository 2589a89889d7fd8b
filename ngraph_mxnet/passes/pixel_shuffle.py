"""Transposed convolutions whose windows do not overlap, of few output channels, as one product and a shuffle of pixels.

Each output pixel then depends on one input pixel (Shi et al., "Is the deconvolution layer the same as a convolutional
layer?", 2016). A backend that keeps channels in blocks would fill a block for each phase with a channel or two.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.passes.contraction import bias_of
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter

_MOST_CHANNELS = 16
"""The most channels that all phases may have together."""


def shuffled(node: Node, rw: Rewriter) -> Answer:
    """A convolution of data with zeros between its elements -> reshape(transpose(reshape(convolution))).

    In two dimensions, without groups, with a kernel as large as the data's dilation and no other padding than that of
    the definition. Phase p of an axis of k is what tap k - 1 - p makes.
    """
    data, weights = node.inputs[:2]
    attrs, steps = node.attrs, node.attrs["data_dilations"]
    if data.type.rank != 4 or all(step == 1 for step in steps):
        return None
    outputs, inputs, *kernel = weights.shape
    border = tuple(step - 1 for step in steps)
    if tuple(kernel) != tuple(steps) or attrs["pads_begin"] != border or attrs["pads_end"] != border:
        return "its windows overlap, or it pads"
    if attrs["groups"] != 1 or any(n != 1 for n in (*attrs["strides"], *attrs["dilations"])):
        return "it has groups, strides or dilations"
    phases = prod(steps)
    if outputs * phases > _MOST_CHANNELS:
        return f"{outputs} output channels fill blocks by themselves"
    if not rw.static(weights):
        return "the weights may differ with every run"
    for axis in (2, 3):
        backwards = np.arange(steps[axis - 2], dtype=np.int64)[::-1].copy()
        weights = rw.make("gather", weights, rw.constant(backwards), axis=axis)
    weights = rw.reshape(rw.make("transpose", weights, order=(2, 3, 0, 1)), (phases * outputs, inputs, 1, 1))
    whole = {**attrs, "data_dilations": (1, 1), "pads_begin": (0, 0), "pads_end": (0, 0)}
    operands: list[Value] = [data, weights]
    if node.op.name != "convolution":
        bias = rw.reshape(bias_of(node, rw), (1, outputs))
        operands.append(rw.reshape(rw.make("broadcast", bias, shape=(phases, outputs)), (phases * outputs,)))
    product = rw.make(node.op.name, *operands, **whole)
    images, _, height, width = data.shape
    apart = rw.reshape(product, (images, *steps, outputs, height, width))
    return rw.reshape(rw.make("transpose", apart, order=(0, 3, 4, 1, 5, 2)), node.output.shape)


def pixel_shuffle() -> RewritePass:
    """The pass."""
    return RewritePass("pixel_shuffle", {"convolution": [shuffled], "convolution_bias": [shuffled]})
