"""The records of the weight gradient kernels (`weight_gradient.py`), for the lowering: nothing here needs a compiler.

A convolution's gradient by its weights is a sum over pixels: for each output channel o, input channel c and tap t

    sums[o, c, t] = sum over image n, row y, column x:  head[n, o, y, x] * data[n, c, y * stride + t, x * stride + t]

The pixels are cut into *chunks* of a few images or rows, as many as a core's caches hold. Each chunk's sum begins at
zero and is added to those before it. A *copy* is what so many consecutive chunks add up to: copies are tasks of their
own, where the channels alone make too few, and `gather_weight_gradient` (`params/weight_gradient.py`) adds them. What
is added in which order depends on these numbers and on nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ngraph_mxnet.targets.cpu.microkernels.variants import Isa
from ngraph_mxnet.targets.cpu.params.record import BLOCK, MOST, Kernels, Span, span

__all__ = ["DEPTHWISE_GRADIENTS", "WEIGHT_GRADIENT", "gradient_symbol"]

_SIDES = 3, 5, 7
"""Rows and columns of taps of the depthwise kernels."""
_PIXEL = 4 * BLOCK
Axis = tuple[int, int]
"""How many places, and how far apart."""


def _checked(p: Any) -> None:
    """The kernel multiplies these."""
    if p.copies * p.copy_chunks > MOST:
        raise ValueError(f"{p.copies} copies of {p.copy_chunks} chunks")


def _head(p: Any, blocks: int, *more: Axis) -> Span:
    return span("head", 1, (p.images, p.head_image), (blocks, p.head_block), (p.height, p.head_row), (p.width, _PIXEL),
                *more, last=_PIXEL)


def _data_span(p: Any, blocks: int, more: Sequence[Axis], lanes: int) -> Span:
    places = ((p.images, p.data_image), (blocks, p.data_block), (p.height, p.data_row), (p.width, p.data_pixel))
    operand, low, high = span("data", 1, *places, *more, last=4 * lanes)
    return operand, low + p.first, high + p.first


def _reach(p: Any, _: int) -> list[Span]:
    _checked(p)
    if p.last_lanes > p.lanes:
        raise ValueError(f"{p.last_lanes} of {p.lanes} lanes")
    if p.copies * p.copy_chunks * p.batches > MOST:
        raise ValueError(f"{p.batches} batches of images")
    taps = (p.taps_h, p.tap_row), (p.taps_w, p.tap_column)
    return [_data_span(p, p.data_blocks, (*taps, (p.batches, p.data_batch)), p.lanes),
            _head(p, p.head_blocks, (p.batches, p.head_batch)),
            ("sums", 0, p.copies * p.head_blocks * p.data_blocks * p.taps_h * p.taps_w * p.lanes * _PIXEL)]


def _depthwise_reach(side: int, p: Any, _: int) -> list[Span]:
    _checked(p)
    taps = (side, p.tap_row), (side, _PIXEL)
    return [_data_span(p, p.blocks, taps, BLOCK), _head(p, p.blocks),
            ("sums", 0, p.copies * p.blocks * side**2 * _PIXEL)]


_CHUNKS = "copies copy_chunks images height width image_chunk row_chunk"
_STRIDES = "first data_image data_block data_row data_pixel head_image head_block head_row tap_row"

WEIGHT_GRADIENT = Kernels(
    "weight_gradient", tensors="data head >sums",
    ints=f"{_CHUNKS} data_blocks head_blocks data_group head_group taps_h taps_w lanes last_lanes {_STRIDES} "
         "tap_column adds batches data_batch head_batch",
    sizes=15, reach=_reach,
    tasks=lambda p: p.copies * -(-p.head_blocks // p.head_group) * -(-p.data_blocks // p.data_group),
)
"""`sums` is `[copies][head_blocks][data_blocks][taps_h][taps_w][lanes][16]`. Strides and `first` are in bytes. Tasks
are numbered over (copy, group of head blocks, group of data blocks), last fastest.

copies, copy_chunks: how many copies there are, and chunks of a copy; the last copy may have fewer.
height, width: those of the head gradient.
batches, data_batch, head_batch: how many times as many images there are, and what lies between.
image_chunk, row_chunk: images and rows of a chunk. Chunks are numbered over (batch, images, rows), last fastest.
data_group, head_group: blocks of a task.
lanes: input channels of a block, which are neighbours in memory; 16 of a blocked tensor.
last_lanes: those of the last block that count. The sums of the others are not touched.
first: from the data's first element to what the first tap of the first output meets.
data_row, data_pixel: what the data moves by with a row and a column of the head gradient.
tap_row, tap_column: what it moves by with a row and a column of taps.
adds: whether all is added to what is there.
"""

DEPTHWISE_GRADIENTS = {
    side: Kernels(
        f"weight_gradient_depthwise_{side}", tensors="data head >sums", ints=f"{_CHUNKS} blocks {_STRIDES}", sizes=8,
        reach=partial(_depthwise_reach, side), tasks=lambda p: p.copies * p.blocks,
    ) for side in _SIDES
}
"""By rows and columns of taps, whose columns are neighbours; `sums` is `[copies][blocks][side][side][16]`, the other
numbers are as those above. Tasks are numbered over (copy, block), last fastest."""


def gradient_symbol(kernel: str, isa: Isa) -> str:
    """Name of the kernel in the object file."""
    return f"ng_{kernel}__{isa}"
