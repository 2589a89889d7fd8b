"""Convolution."""

from __future__ import annotations

from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.mxnet_bridge.attrs import Attrs
from ngraph_mxnet.mxnet_bridge.rules.common import along_axis, bias_of, per_axis
from ngraph_mxnet.mxnet_bridge.rules.registry import rule
from ngraph_mxnet.mxnet_bridge.symbol_json import SymbolNode

CHANNELS_FIRST = ("NCW", "NCHW", "NCDHW")


@rule("Convolution", "Convolution_v1", operands=(2, 3), parameters=[1, 2],
      ignored=["workspace", "cudnn_tune", "cudnn_off"])
def convolution(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """One to three spatial axes, channels first, with strides, dilation, symmetric padding, groups and bias.

    Channels-last layouts stay with MXNet.
    """
    x, weight = inputs[:2]
    attrs.choice("layout", None, CHANNELS_FIRST)
    kernel = attrs.ints("kernel")
    count = len(kernel)
    filters, pads = attrs.int("num_filter"), per_axis(attrs.ints("pad", ()), count, 0, "pad")
    if weight.shape[2:] != kernel or weight.shape[:1] != (filters,):
        raise UnsupportedError(f"kernel={kernel}, num_filter={filters} do not fit the weight {weight.type}")
    out = b.convolution(
        x, weight, strides=per_axis(attrs.ints("stride", ()), count, 1, "stride"),
        dilations=per_axis(attrs.ints("dilate", ()), count, 1, "dilate"),
        pads_begin=pads, pads_end=pads, groups=attrs.int("num_group", 1),
    )
    bias = bias_of(inputs, attrs.bool("no_bias", False))
    return out if bias is None else b.add(out, along_axis(b, bias, 1, len(out.shape)))
