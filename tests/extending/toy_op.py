"""A toy op, as another distribution brings it: one block."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.ir.opdef import by_result, register_op
from ngraph_mxnet.ir.types import Float, TensorType, f32
from ngraph_mxnet.ops.common import contiguous, require, require_rank


@register_op("image_to_tensor", operands=1, attrs={"largest": Float(255.0)}, work=by_result(divide=1, gather=1))
def image_to_tensor(types, attrs):
    """Images [..., H, W, C] of u8 or f32 as f32 [..., C, H, W], divided by `largest`."""
    require(types[0].element.name in ("u8", "f32"), "operand 0", types[0], "u8 or f32")
    require_rank(types[0], 3)
    *batch, height, width, channels = types[0].shape
    return TensorType(f32, (*batch, channels, height, width))


@image_to_tensor.reference
def _(inputs, attrs):
    return contiguous(np.moveaxis(inputs[0].astype(np.float32) / np.float32(attrs["largest"]), -1, -3))
