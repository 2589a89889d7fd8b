"""Tables that kernels read, as recipes of which binding makes them (`csrc/core/tables.cc`).

Those of a contraction are its geometry as byte offsets (int32), those of a resampling what each output reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, NamedTuple

import numpy as np

from ngraph_mxnet.ir.sizes import cached, is_symbolic, least
from ngraph_mxnet.ops.pooling import adaptive_taps, resize_taps

__all__ = [
    "PIXEL_TENSORS", "PixelRecipe", "Plane", "StepRecipe", "TableRecipe", "pixel_table", "step_table", "zero_table",
]


PIXEL_TENSORS = ("input", "output", "residual", "output2")
"""The tensors in which the pixel table says where a pixel lies: a row of offsets each, in this order."""


class Plane(NamedTuple):
    """Byte strides of one channel (block) of a tensor; offset 0 is its first logical element."""

    row: int
    pixel: int
    image: int = 0

    @staticmethod
    def blocked(height: int, width: int, blocks: int, halo: tuple[int, int] = (0, 0)) -> Plane:
        """Blocked float32 `[N][blocks][height + 2 halo][width + 2 halo][16]`."""
        row = (width + 2 * halo[1]) * 64
        return Plane(row, 64, blocks * (height + 2 * halo[0]) * row)


@dataclass(frozen=True)
class TableRecipe:
    """The numbers that a table is made of; some may be symbolic."""

    kind: ClassVar[str]
    element: ClassVar[type[np.generic]] = np.int32
    numbers: tuple[int, ...]

    def table(self) -> np.ndarray:
        """The table that binding makes, of numbers without symbols."""
        from ngraph_mxnet import _core

        return _core.table(self.kind, list(self.numbers)).view(self.element)

    @property
    def nbytes(self) -> int:
        raise NotImplementedError


class PixelRecipe(TableRecipe):
    """A `pixel_table`. Its numbers: height and width; images; stride and padding, each in rows and columns; for each of
    `PIXEL_TENSORS` row, pixel and image strides, 0 where there is none."""

    kind = "pixels"

    @property
    def nbytes(self) -> int:
        return 4 * len(PIXEL_TENSORS) * prod(self.numbers[:3])

    def extremes(self, first: int, count: int) -> tuple[int, int]:
        """Bounds of the entries of the row that begins with `first`."""
        height, width, images, down, right, top, left, *planes = self.numbers
        pixels = height * width * images
        place = first // pixels if is_symbolic(pixels) or pixels else 0
        row, pixel, image = planes[3 * place:3 * place + 3]
        if place:
            down, right, top, left = 1, 1, 0, 0
        low = -top * row - left * pixel
        return low, low + (images - 1) * image + (height - 1) * down * row + (width - 1) * right * pixel

    def of_tiles(self, rows: int, row_pixels: int, row_tiles: int, pixel_stride: int) -> tuple[int, int]:
        """Bounds of the offsets of the tiles' pixels."""
        return self.extremes(0, rows * row_pixels)


class StepRecipe(TableRecipe):
    """A `step_table`. Its numbers: channels, their stride, lanes; kernel and dilation, each in rows and columns;
    slices, their stride; the strides of a row and a pixel."""

    kind = "steps"

    @property
    def size(self) -> int:
        """How many steps there are."""
        return self.numbers[0] * self.numbers[7] * prod(self.numbers[3:5])

    @property
    def nbytes(self) -> int:
        return 4 * self.size

    def extremes(self, first: int, count: int) -> tuple[int, int]:
        """Bounds of all entries."""
        channels, channel_stride, lanes, kh, kw, down, right, slices, slice_stride, row, pixel = self.numbers
        axes = [(-(-channels // lanes), channel_stride), (least(channels, lanes), 4), (kh, down * row),
                (kw, right * pixel), (slices, slice_stride)]
        return 0, sum((size - 1) * step for size, step in axes)


@cached(64)
def zero_table(count: int) -> np.ndarray:
    """float32 `[count]`, where a kernel has no other bias."""
    zeros = np.zeros(count, np.float32)
    zeros.flags.writeable = False
    return zeros


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
) -> PixelRecipe:
    """int32 `[4][images * out_h * out_w]`: byte offset of each output pixel in each of `PIXEL_TENSORS`.

    Input offsets point at the pixel's first tap, which may lie in the halo (a negative offset). `images > 1`
    folds a batch into the pixels, with `Plane.image`; the kernel's `images` is then 1. A matrix of M rows
    is `out_h=1, out_w=M` with `Plane(0, bytes of a row)`.
    """
    planes = (inputs, output, residual or Plane(0, 0), output2 or Plane(0, 0))
    return PixelRecipe((out_h, out_w, images, *stride, *padding, *(number for plane in planes for number in plane)))


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
) -> StepRecipe:
    """int32 `[channels * slices * KH * KW]`: byte offset of each (input channel, slice, kh, kw), last fastest.

    k16: `channels` counts the group's 16-channel blocks and `channel_stride` is the bytes between blocks
    (64 for the rows of a matrix). k1: single channels (4 for the rows of a matrix); with `lanes` 16 those of
    blocks that are `channel_stride` apart. depthwise: 1.
    """
    return StepRecipe((channels, channel_stride, lanes, *kernel, *dilation, slices, slice_stride, inputs.row,
                       inputs.pixel))


_MODES = ("nearest", "bilinear", "corners")
"""Their places stand in the numbers of the recipes."""


@dataclass(frozen=True)
class AxisTaps:
    """The taps of one axis: both tables, and the number of weights of each output."""

    first: np.ndarray | TableRecipe
    weights: np.ndarray | TableRecipe
    taps: int


class FirstRecipe(TableRecipe):
    """The first elements. Numbers: the axis' size, that of the result, the mode's place or -1 for means, and the
    taps."""

    kind = "first_taps"
    element = np.int64

    @property
    def nbytes(self) -> int:
        return 8 * self.numbers[1]


class WeightRecipe(TableRecipe):
    """The weights, of the same numbers."""

    kind = "tap_weights"
    element = np.float32

    @property
    def nbytes(self) -> int:
        return 4 * self.numbers[1] * self.numbers[3]


def taps_of_resize(size: int, out: int, mode: str, corners: bool) -> AxisTaps:
    """Return the taps that `resize` reads."""
    if not is_symbolic(size) and not is_symbolic(out):
        return of_arrays(*resize_taps(size, out, mode, corners))
    numbers = size, out, _MODES.index("corners" if corners and mode == "bilinear" else mode), 1 + (mode == "bilinear")
    return AxisTaps(FirstRecipe(numbers), WeightRecipe(numbers), numbers[3])


def taps_of_means(size: int, out: int) -> AxisTaps:
    """Return the taps that `adaptive_avg_pool` reads."""
    if not is_symbolic(size) and not is_symbolic(out):
        return of_arrays(*adaptive_taps(size, out))
    numbers = size, out, -1, -(-size // out) + 1
    return AxisTaps(FirstRecipe(numbers), WeightRecipe(numbers), numbers[3])


def of_arrays(first: np.ndarray, weights: np.ndarray) -> AxisTaps:
    return AxisTaps(first, weights, weights.shape[1])
