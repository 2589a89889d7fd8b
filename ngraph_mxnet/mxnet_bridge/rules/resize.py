"""Images to another size."""

from __future__ import annotations

from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.mxnet_bridge.attrs import Attrs
from ngraph_mxnet.mxnet_bridge.rules.common import image_shape, positive
from ngraph_mxnet.mxnet_bridge.rules.convolution import transposed_convolution
from ngraph_mxnet.mxnet_bridge.rules.registry import rule
from ngraph_mxnet.mxnet_bridge.symbol_json import SymbolNode


@rule("UpSampling", ignored=["workspace"])
def upsampling(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Nearest, of several inputs too, each brought to the size of the first; or by the weights of a grouped transposed
    convolution (`bilinear`)."""
    scale = positive(attrs.int("scale"), "scale")
    filters, together = attrs.int("num_filter", 0), attrs.choice("multi_input_mode", "concat", ("concat", "sum"))
    if attrs.int("num_args", 1) != len(inputs):
        raise UnsupportedError(f"num_args={attrs.int('num_args', 1)} for {len(inputs)} inputs")
    height, width = image_shape(inputs[0])[2:]
    if attrs.choice("sample_type", "nearest", ("nearest", "bilinear")) == "bilinear":
        return _by_convolution(b, inputs, scale, filters)
    parts = []
    for x in inputs:
        factor = height * scale // image_shape(x)[2]
        if (x.shape[2] * factor, x.shape[3] * factor) != (height * scale, width * scale):
            raise UnsupportedError(f"input {x.type} does not grow to {height * scale} x {width * scale}")
        parts.append(_nearest(b, x, factor))
    if len(parts) == 1:
        return parts[0]
    if together == "concat":
        return b.concat(*parts, axis=1)
    total = parts[0]
    for part in parts[1:]:
        total = b.add(total, part)
    return total


def _nearest(b: Builder, x: Value, factor: int) -> Value:
    n, c, h, w = x.shape
    wide = b.broadcast(b.reshape(x, shape=(n, c, h, 1, w, 1)), shape=(n, c, h, factor, w, factor))
    return b.reshape(wide, shape=(n, c, h * factor, w * factor))


def _by_convolution(b: Builder, inputs: list[Value], scale: int, filters: int) -> Value:
    """(UpSamplingParam's deconvolution in MXNet's src/operator/nn/upsampling.cc.)"""
    if len(inputs) != 2 or inputs[0].shape[1] != filters:
        raise UnsupportedError(f"bilinear upsampling of {len(inputs)} inputs to num_filter={filters}")
    kernel, pad = 2 * scale - scale % 2, scale // 2
    x, weight = inputs
    return transposed_convolution(b, x, weight, groups=filters, stride=(scale,) * 2, dilate=(1, 1), pad=(pad,) * 2,
                                  adjust=(2 * pad + scale - kernel,) * 2)
