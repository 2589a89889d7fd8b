"""Convolution whose taps are where data says."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.compositions.tensors import slice_axis
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value

Ints = tuple[int, ...]


def deformable_convolution(b: Builder, x: Value, offset: Value, mask: Value | None, weight: Value, *, groups: int,
                           offset_groups: int, stride: Ints, dilate: Ints, pad: Ints) -> Value:
    """Tap k of the filter reads the data, linear between pixels, at its place plus an offset, times a mask; the columns
    so read are multiplied with the weight.

    x [N, C, H, W], offset [N, 2 G taps, P, Q] (row, column), mask [N, G taps, P, Q], weight [F, C / groups, *kernel].
    (Zhu et al., "Deformable ConvNets v2", 2018; MXNet's src/operator/contrib/nn/modulated_deformable_im2col.h.)
    """
    batch, channels, height, width = x.shape
    filters, per_group, *kernel = weight.shape
    if min(height, width) < 2:
        raise UnsupportedError(f"found {x.type}, expected at least 2 rows and 2 columns")
    taps, sizes = kernel[0] * kernel[1], offset.shape[2:]
    if (per_group * groups != channels or filters % groups or channels % offset_groups
            or offset.shape[1] != 2 * offset_groups * taps):
        raise UnsupportedError(f"{groups} groups and {offset_groups} of offsets {offset.type} do not fit the weight "
                               f"{weight.type} and {x.type}")
    places = sizes[0] * sizes[1]
    grid = _grid(b, b.reshape(offset, shape=(batch * offset_groups, taps, 2, places)),
                 _taps(tuple(kernel), sizes, stride, dilate, pad), (height, width))
    found = b.bilinear_sample(
        b.reshape(x, shape=(batch * offset_groups, channels // offset_groups, height, width)), grid)
    if mask is not None:
        found = b.multiply(found, b.reshape(mask, shape=(batch * offset_groups, 1, taps, places)))
    rows = channels // groups * taps
    found = b.matmul(b.reshape(weight, shape=(1, groups, filters // groups, rows)),
                     b.reshape(found, shape=(batch, groups, rows, places)))
    return b.reshape(found, shape=(batch, filters, *sizes))


def _taps(kernel: Ints, sizes: Ints, *axes: Ints) -> np.ndarray:
    """Where an ordinary convolution's taps are: (row, column) [taps, 2, places]."""
    at = [np.arange(size)[None, :] * stride + np.arange(span)[:, None] * dilate - pad
          for size, span, stride, dilate, pad in zip(sizes, kernel, *axes, strict=True)]
    rows, columns = np.broadcast_arrays(at[0][:, None, :, None], at[1][None, :, None, :])
    return np.stack([rows, columns], axis=2).reshape(-1, 2, sizes[0] * sizes[1]).astype(np.float32)


def _grid(b: Builder, offset: Value, taps: np.ndarray, sizes: Ints) -> Value:
    """[N, taps, 2, places] -> (x, y) [N, 2, taps, places], from -1 to 1 over the image."""
    element = offset.type.element
    scale = np.array([2 / (size - 1) for size in sizes], np.float32).reshape(2, 1)
    scaled = b.add(b.multiply(offset, b.constant(scale, element)), b.constant(taps * scale - np.float32(1), element))
    y, x = (b.transpose(slice_axis(b, scaled, 2, place, place + 1), order=(0, 2, 1, 3)) for place in range(2))
    return b.concat(x, y, axis=1)
