"""Geometry of a contraction as constant tables of byte offsets (int32)."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

__all__ = ["PIXEL_TENSORS", "Plane", "pixel_table", "step_table"]

PIXEL_TENSORS = ("input", "output", "residual", "output2")
"""The tensors in which the pixel table says where a pixel lies: a row of offsets each, in this order."""


@dataclass(frozen=True)
class Plane:
    """Byte strides of one channel (block) of a tensor; offset 0 is its first logical element."""

    row: int
    pixel: int
    image: int = 0

    @staticmethod
    def blocked(height: int, width: int, blocks: int, halo: tuple[int, int] = (0, 0)) -> Plane:
        """Blocked float32 `[N][blocks][height + 2 halo][width + 2 halo][16]`."""
        row = (width + 2 * halo[1]) * 64
        return Plane(row, 64, blocks * (height + 2 * halo[0]) * row)


def _narrow(offsets: np.ndarray) -> np.ndarray:
    """int64 offsets as int32; OverflowError beyond 2 GiB."""
    if offsets.size and max(int(offsets.max()), -int(offsets.min())) > np.iinfo(np.int32).max:
        raise OverflowError("a contraction's tables hold 32-bit byte offsets; the tensor spans over 2 GiB")
    narrow = np.ascontiguousarray(offsets, dtype=np.int32)
    narrow.flags.writeable = False  # it is given to everyone who asks for the same
    return narrow


def _pixel_offsets(plane: Plane, images: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Flat offsets of the grid images x rows x columns."""
    image = np.arange(images, dtype=np.int64) * plane.image
    grid = image[:, None, None] + (rows * plane.row)[:, None] + columns * plane.pixel
    return grid.reshape(-1)


@functools.lru_cache(256)
def pixel_table(
    out_h: int,
    out_w: int,
    *,
    inputs: Plane,
    output: Plane,
    residual: Plane | None = None,
    output2: Plane | None = None,
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    images: int = 1,
) -> np.ndarray:
    """int32 `[4][images * out_h * out_w]`: byte offset of each output pixel in each of `PIXEL_TENSORS`.

    Input offsets point at the pixel's first tap, which may lie in the halo (a negative offset). `images > 1`
    folds a batch into the pixels, with `Plane.image`; the kernel's `images` is then 1. A matrix of M rows
    is `out_h=1, out_w=M` with `Plane(0, bytes of a row)`.
    """
    h, w = np.arange(out_h, dtype=np.int64), np.arange(out_w, dtype=np.int64)
    table = np.zeros((len(PIXEL_TENSORS), images * out_h * out_w), np.int64)
    table[0] = _pixel_offsets(inputs, images, h * stride[0] - padding[0], w * stride[1] - padding[1])
    for row, plane in ((1, output), (2, residual), (3, output2)):
        if plane is not None:
            table[row] = _pixel_offsets(plane, images, h, w)
    return _narrow(table)


@functools.lru_cache(256)
def step_table(
    inputs: Plane,
    *,
    channels: int = 1,
    channel_stride: int = 0,
    lanes: int = 1,
    kernel: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    slices: int = 1,
    slice_stride: int = 0,
) -> np.ndarray:
    """int32 `[channels * slices * KH * KW]`: byte offset of each (input channel, slice, kh, kw), last fastest.

    k16: `channels` counts the group's 16-channel blocks and `channel_stride` is the bytes between blocks
    (64 for the rows of a matrix). k1: single channels (4 for the rows of a matrix); with `lanes` 16 those of
    blocks that are `channel_stride` apart. depthwise: 1.
    """
    block, lane = np.divmod(np.arange(channels, dtype=np.int64), lanes)
    channel = block * channel_stride + lane * 4
    kh = np.arange(kernel[0], dtype=np.int64) * (dilation[0] * inputs.row)
    kw = np.arange(kernel[1], dtype=np.int64) * (dilation[1] * inputs.pixel)
    slice_ = np.arange(slices, dtype=np.int64) * slice_stride
    return _narrow((channel[:, None, None, None] + slice_[:, None, None] + kh[:, None] + kw).reshape(-1))
