"""What is quantised at once is computed at the scale of the bytes: one multiplication, and one rounding, less.

    quantize(product, s, z) -> quantize(product / s, 1, z), the division being that of factor, addend and bounds

That gives ONNX's numbers: of sums, round(float32(sum) * (x_scale * w_scale / s)) + z.
"""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter, uniform
from ngraph_mxnet.passes.quantized_products import QuantizedPass


def scale_into_product(node: Node, rw: Rewriter) -> Answer:
    """quantize(product) -> quantize(product) with scale 1. Not of one with a residual, or with other readers."""
    scale = uniform(node.inputs[1])
    host = rw.producer(node.inputs[0], "quantized_convolution", "quantized_matmul")
    if host is None or scale is None or scale == 1 or node.inputs[1].type.rank:
        return None
    if not rw.single(host.output):
        return f"{host} has other readers"
    step = node.inputs[1]
    factor = rw.folded("divide", host.inputs[3], step)
    addend = host.inputs[4] if uniform(host.inputs[4]) == 0 else rw.folded("divide", host.inputs[4], step)
    bounds = {key: host.attrs[key] / scale for key in ("lower", "upper")}
    product = rw.make(host.op.name, *host.inputs[:3], factor, addend, **{**host.attrs, **bounds}, origin=(host,))
    return rw.make("quantize", product, rw.constant(np.float32(1)), node.inputs[2])


def stored_scale() -> RewritePass:
    """The pass."""
    return QuantizedPass("stored_scale", {"quantize": [scale_into_product]})
