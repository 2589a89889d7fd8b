"""The places of tensors: views that give a logical tensor its place and layout in a buffer.

Two layouts (see docs/cpu.md): *plain*, strided over the logical dimensions, and *blocked*, 16 channels
innermost. Strides here are in elements, offsets in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import NamedTuple, TypeVar

import numpy as np

from ngraph_mxnet.ir.sizes import are_same, is_one, is_zero
from ngraph_mxnet.ir.types import ElementType, Shape, TensorType
from ngraph_mxnet.targets.cpu.program.instruction import Buffer, Instruction

BLOCK = 16
"""Channels in a block."""
BF16 = ElementType("bf16", np.dtype(np.uint16))
"""How a float32 value of the graph may be stored: the upper half of its bits. No value in the IR has this type."""


class Halo(NamedTuple):
    """Zero pixels around a blocked image, in pixels."""

    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0

    def cover(self, other: Halo) -> Halo:
        """The least halo that serves both."""
        return Halo(max(self.top, other.top), max(self.bottom, other.bottom),
                    max(self.left, other.left), max(self.right, other.right))

    def __bool__(self) -> bool:
        return any((self.top, self.bottom, self.left, self.right))


NO_HALO = Halo()

Each = TypeVar("Each", bound="View")


@dataclass(frozen=True, eq=False)
class View:
    """Common part of both layouts: `offset` is the byte offset of the first logical element in `buffer`.

    `writers` are the instructions that must have run before a read.
    """

    type: TensorType
    buffer: Buffer
    offset: int
    writers: list[Instruction] = field(default_factory=list)

    @property
    def operand(self) -> tuple[Buffer, int]:
        return self.buffer, self.offset

    def moved(self: Each, bytes: int) -> Each:
        """A tensor of the same layout so many bytes further on, which shares the writers; itself for 0."""
        return self if is_zero(bytes) else replace(self, offset=self.offset + bytes)

    def unwritten(self: Each) -> Each:
        """The same memory, whose writers are yet to come."""
        return replace(self, writers=[])


@dataclass(frozen=True, eq=False)
class PlainView(View):
    """Strided over the logical dimensions."""

    strides: tuple[int, ...] = ()

    @property
    def is_contiguous(self) -> bool:
        wanted = contiguous_strides(self.type.shape)
        if {int}.issuperset(map(type, (*wanted, *self.strides))) and self.strides == wanted:
            return True
        return all(are_same(s, w) or is_one(d) for d, s, w in zip(self.type.shape, self.strides, wanted, strict=True))

    def seen(self, type_: TensorType, strides: Sequence[int], first: int = 0) -> PlainView:
        """The same memory with another shape and strides, `first` elements further on; it shares the writers."""
        return PlainView(type_, self.buffer, self.offset + first * type_.element.size, self.writers, tuple(strides))

    def over(self, shape: Shape) -> tuple[int, ...]:
        """The strides over `shape`, to which the tensor broadcasts as in NumPy."""
        missing = len(shape) - self.type.rank
        own = [s if are_same(d, target) or d != 1 else 0
               for d, s, target in zip(self.type.shape, self.strides, shape[missing:], strict=True)]
        return (0,) * missing + tuple(own)

    def in_blocks(self) -> BlockedView:
        """A matrix whose rows have room for whole blocks, in the blocked layout."""
        return BlockedView(self.type, self.buffer, self.offset, self.writers, self.strides[0], BLOCK, BLOCK)


@dataclass(frozen=True, eq=False)
class BlockedView(View):
    """`[image][block][row][pixel][16]`, float32 or bf16; rank 2 has one pixel an image, rank 3 one row.

    A tensor of rank 5, `[N, C, D, H, W]`, has N * D images, its slices.
    """

    image: int = 0
    block: int = 0
    row: int = 0
    halo: Halo = NO_HALO
    pixel: int = BLOCK
    fill: int = 0
    """The number in the halo: 0, or a u8."""

    @property
    def strides(self) -> tuple[int, int, int, int, int]:
        """Over (image, block, row, pixel, lane)."""
        return self.image, self.block, self.row, BLOCK, 1

    @property
    def dims(self) -> tuple[int, int, int, int, int]:
        """Sizes of (image, block, row, pixel, lane)."""
        return self.images, self.blocks, self.height, self.width, BLOCK

    @property
    def blocks(self) -> int:
        return blocks_of(self.type.shape)

    def is_in(self, place: BlockedView) -> bool:
        """True if the view begins where `place` does, with elements of the same type. A part of a tensor is then in its
        place."""
        return (self.buffer is place.buffer and are_same(self.offset, place.offset)
                and self.type.element is place.type.element)

    @property
    def images(self) -> int:
        return images_of(self.type.shape)

    @property
    def height(self) -> int:
        return spatial(self.type.shape)[0]

    @property
    def width(self) -> int:
        return spatial(self.type.shape)[1]

    def as_rows(self) -> PlainView:
        """A matrix as its rows, which are whole blocks."""
        return PlainView(self.type, self.buffer, self.offset, self.writers, (self.image, 1))


def images_of(shape: Shape) -> int:
    """Images of a tensor of shape [N, C, ...] in the blocked layout."""
    return shape[0] * shape[2] if len(shape) == 5 else shape[0]


def blocks_of(shape: Shape) -> int:
    """Channel blocks of a tensor of shape [N, C, ...]."""
    return -(-shape[1] // BLOCK)


def spatial(shape: Shape) -> tuple[int, int]:
    """Height and width of [N, C], [N, C, W], [N, C, H, W] or [N, C, D, H, W]."""
    height, width = (1, 1, *shape[2:])[-2:]
    return height, width


def contiguous_strides(shape: Shape) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides, step = [], 1
    for dim in reversed(shape):
        strides.append(step)
        step *= dim
    return tuple(reversed(strides))


def pair(values: Sequence[int], fill: int) -> tuple[int, int]:
    """What there is for the last two spatial axes: `fill` for the height in one dimension."""
    height, width = (fill, *values)[-2:]
    return height, width


def plain_view(type_: TensorType, buffer: Buffer) -> PlainView:
    """A contiguous plain view."""
    return PlainView(type_, buffer, 0, strides=contiguous_strides(type_.shape))


def blocked_bytes(type_: TensorType, halo: Halo) -> int:
    """Bytes of a blocked tensor with its halo."""
    height, width = spatial(type_.shape)
    pixels = (height + halo.top + halo.bottom) * (width + halo.left + halo.right)
    return images_of(type_.shape) * blocks_of(type_.shape) * pixels * BLOCK * type_.element.size


def blocked_view(type_: TensorType, buffer: Buffer, halo: Halo, fill: int = 0) -> BlockedView:
    """A dense blocked view that starts at the buffer's beginning (its halo included)."""
    height, width = spatial(type_.shape)
    row = (width + halo.left + halo.right) * BLOCK
    block = (height + halo.top + halo.bottom) * row
    offset = (halo.top * row + halo.left * BLOCK) * type_.element.size
    return BlockedView(type_, buffer, offset, image=blocks_of(type_.shape) * block, block=block, row=row,
                       halo=halo, fill=fill)


def sub_blocks(view: BlockedView, shape: Shape, first: int) -> BlockedView:
    """The channel blocks of `view` from `first` on, as a tensor of shape `shape`.

    Those who wrote of `view` so far, its border, are its writers too; from now on each has its own.
    """
    offset = view.offset + first * view.block * view.type.element.size
    return replace(view, type=view.type.with_shape(shape), offset=offset, writers=[*view.writers])


def as_plain(view: BlockedView) -> PlainView | None:
    """The same memory seen as plain; None when channels are not at one stride."""
    if not all(map(is_one, spatial(view.type.shape))) or (view.block != BLOCK and view.blocks > 1):
        return None
    strides = (view.image, 1) + (1,) * (view.type.rank - 2)
    if view.type.rank == 5:
        strides = (view.image * view.type.shape[2], 1, view.image, 1, 1)
    return PlainView(view.type, view.buffer, view.offset, view.writers, strides)


def as_blocked(view: PlainView) -> BlockedView | None:
    """The same memory seen as blocked; None unless whole blocks of channels are contiguous."""
    shape = view.type.shape
    pixels = prod(shape[2:])
    if view.type.rank < 2 or not is_one(pixels) or shape[1] % BLOCK or view.strides[1] != 1:
        return None
    return view.in_blocks()


def images_4d(plain: PlainView, blocked: BlockedView) -> list[tuple[PlainView, BlockedView]]:
    """The same tensor in both layouts, in parts whose images are at one stride: of rank 5, each `[D, C, H, W]`."""
    if plain.type.rank != 5:
        return [(plain, blocked)]
    batch, channels, depth, *sizes = plain.type.shape
    pairs = []
    for n in range(batch):
        shape = (depth, channels, *sizes)
        step, channel, slice_, *rest = plain.strides
        part = plain.seen(plain.type.with_shape(shape), (slice_, channel, *rest), n * step)
        pairs.append((part, sub_images(blocked, shape, n * depth)))
    return pairs


def sub_images(view: BlockedView, shape: Shape, first: int) -> BlockedView:
    """The images of `view` from `first` on, as a tensor of shape `shape`; it shares the writers."""
    offset = view.offset + first * view.image * view.type.element.size
    return replace(view, type=view.type.with_shape(shape), offset=offset)
