"""Convolution whose taps are where data says."""

from __future__ import annotations

from ngraph_mxnet.bridges.mxnet.rules.common import bias_of, image_shape, per_axis
from ngraph_mxnet.bridges.mxnet.rules.registry import rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.deformable import deformable_convolution
from ngraph_mxnet.compositions.tensors import along_axis
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value


@rule("_contrib_ModulatedDeformableConvolution", operands=(4, 5), parameters=[3, 4],
      ignored=["workspace", "im2col_step"])
def modulated_deformable_convolution(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """See `compositions.deformable`."""
    x, offset, mask, weight = inputs[:4]
    channels = image_shape(x)[1]
    attrs.choice("layout", None, ("NCHW",))
    kernel, filters, groups = attrs.ints("kernel"), attrs.int("num_filter"), attrs.int("num_group", 1)
    if weight.shape != (filters, channels // groups, *kernel) or len(kernel) != 2:
        raise UnsupportedError(f"kernel={kernel}, num_filter={filters} do not fit the weight {weight.type}")
    stride, dilate, pad = (per_axis(attrs.ints(name, ()), 2, fill, name)
                           for name, fill in (("stride", 1), ("dilate", 1), ("pad", 0)))
    out = deformable_convolution(b, x, offset, mask, weight, groups=groups,
                                 offset_groups=attrs.int("num_deformable_group", 1), stride=stride, dilate=dilate,
                                 pad=pad)
    bias = bias_of([x, weight, *inputs[4:]], attrs.bool("no_bias", False))
    return out if bias is None else b.add(out, along_axis(b, bias, 1, 4))
