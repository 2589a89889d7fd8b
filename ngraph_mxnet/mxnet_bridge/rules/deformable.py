"""Convolution whose taps are where data says."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.mxnet_bridge.attrs import Attrs
from ngraph_mxnet.mxnet_bridge.rules.common import along_axis, bias_of, image_shape, per_axis, slice_axis
from ngraph_mxnet.mxnet_bridge.rules.registry import rule
from ngraph_mxnet.mxnet_bridge.symbol_json import SymbolNode

Ints = tuple[int, ...]


@rule("_contrib_ModulatedDeformableConvolution", operands=(4, 5), parameters=[3, 4],
      ignored=["workspace", "im2col_step"])
def modulated_deformable_convolution(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Tap k of the filter reads the data, linear between pixels, at its place plus an offset, times a mask; the columns
    so read are multiplied with the weight.

    (Zhu et al., "Deformable ConvNets v2", 2018; MXNet's src/operator/contrib/nn/modulated_deformable_im2col.h.)
    """
    x, offset, mask, weight = inputs[:4]
    batch, channels, height, width = image_shape(x)
    if min(height, width) < 2:
        raise UnsupportedError(f"found {x.type}, expected at least 2 rows and 2 columns")
    attrs.choice("layout", None, ("NCHW",))
    kernel = attrs.ints("kernel")
    groups, offset_groups = attrs.int("num_group", 1), attrs.int("num_deformable_group", 1)
    filters = attrs.int("num_filter")
    if weight.shape != (filters, channels // groups, *kernel) or len(kernel) != 2:
        raise UnsupportedError(f"kernel={kernel}, num_filter={filters} do not fit the weight {weight.type}")
    taps, sizes = kernel[0] * kernel[1], offset.shape[2:]
    places = sizes[0] * sizes[1]
    grid = _grid(b, b.reshape(offset, shape=(batch * offset_groups, taps, 2, places)),
                 _taps(attrs, kernel, sizes), (height, width))
    found = b.bilinear_sample(
        b.reshape(x, shape=(batch * offset_groups, channels // offset_groups, height, width)), grid)
    found = b.multiply(found, b.reshape(mask, shape=(batch * offset_groups, 1, taps, places)))
    rows = channels // groups * taps
    found = b.matmul(b.reshape(weight, shape=(1, groups, filters // groups, rows)),
                     b.reshape(found, shape=(batch, groups, rows, places)))
    out = b.reshape(found, shape=(batch, filters, *sizes))
    bias = bias_of([x, weight, *inputs[4:]], attrs.bool("no_bias", False))
    return out if bias is None else b.add(out, along_axis(b, bias, 1, 4))


def _taps(attrs: Attrs, kernel: Ints, sizes: Ints) -> np.ndarray:
    """Where an ordinary convolution's taps are: (row, column) [taps, 2, places]."""
    axes = []
    for axis, name in enumerate(("stride", "dilate", "pad")):
        axes.append(per_axis(attrs.ints(name, ()), 2, 1 if axis < 2 else 0, name))
    at = [np.arange(size)[None, :] * stride + np.arange(span)[:, None] * dilate - pad
          for size, span, stride, dilate, pad in zip(sizes, kernel, *axes, strict=True)]
    rows, columns = np.broadcast_arrays(at[0][:, None, :, None], at[1][None, :, None, :])
    return np.stack([rows, columns], axis=2).reshape(-1, 2, sizes[0] * sizes[1]).astype(np.float32)


def _grid(b: Builder, offset: Value, taps: np.ndarray, sizes: Ints) -> Value:
    """[N, taps, 2, places] -> (x, y) [N, 2, taps, places], from -1 to 1 over the image."""
    scale = np.array([2 / (size - 1) for size in sizes], np.float32).reshape(2, 1)
    scaled = b.add(b.multiply(offset, b.constant(scale)), b.constant(taps * scale - np.float32(1)))
    y, x = (b.transpose(slice_axis(b, scaled, 2, place, place + 1), order=(0, 2, 1, 3)) for place in range(2))
    return b.concat(x, y, axis=1)
