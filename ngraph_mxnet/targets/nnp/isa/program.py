"""What the simulated device runs: instructions over boxes of buffers in its memories.

One `Program` is read twice: the functional simulator executes it in order, the timing simulator lets its units
overlap as far as `after` allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ngraph_mxnet.ir.types import ELEMENT_TYPES, Shape

ELEMENT_BYTES: dict[str, int] = {**{name: element.size for name, element in ELEMENT_TYPES.items()}, "bf16": 2}
"""Bytes of one element of each type that a buffer may have: the IR's types, and bf16."""


@dataclass(frozen=True)
class Buffer:
    """A dense, row-major tensor at a byte `offset` of one memory. `element` is a name of `formats.FORMATS`.

    Buffers may share bytes when their lives do not overlap, or as two shapes of one tensor.
    """

    name: str
    memory: str
    offset: int
    element: str
    shape: Shape

    def __hash__(self) -> int:
        return hash((self.name, self.offset))  # buffers are looked up for every tile

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * ELEMENT_BYTES[self.element]

    @property
    def end(self) -> int:
        """The offset of the first byte behind it."""
        return self.offset + self.bytes


@dataclass(frozen=True)
class Tile:
    """The box of `buffer` that begins at index `begin` and has `shape`; ranks are the buffer's."""

    buffer: Buffer
    begin: Shape
    shape: Shape

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * ELEMENT_BYTES[self.buffer.element]

    @property
    def memory(self) -> str:
        return self.buffer.memory

    @property
    def element(self) -> str:
        return self.buffer.element

    def overlaps(self, other: Tile) -> bool:
        """Whether the two tiles share an index of one buffer; tiles of other buffers never do, here."""
        return self.buffer == other.buffer and all(
            a < b + m and b < a + n
            for a, n, b, m in zip(self.begin, self.shape, other.begin, other.shape, strict=True)
        )


def whole(buffer: Buffer) -> Tile:
    """All of `buffer` as one tile."""
    return Tile(buffer, (0,) * len(buffer.shape), buffer.shape)


@dataclass(frozen=True)
class Instruction:
    """One instruction of `unit`, such as `ice3.grid`; `op` is a name of `instructions.OPS`.

    It begins when the unit's previous instruction and those numbered in `after`, all earlier ones, have ended.
    `origin` is the IR node's.
    """

    unit: str
    op: str
    writes: tuple[Tile, ...]
    reads: tuple[Tile, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    after: tuple[int, ...] = ()
    origin: str = ""


@dataclass
class Program:
    """Instructions in an order in which executing one after the other is right.

    `inputs`, `weights` and `outputs` are buffers of the memory `host`, in the order of the graph's parameters and
    results; `constants` maps further buffers to the bytes they hold before the first instruction.
    `sizes` is how many bytes each memory must have.
    """

    name: str
    device: str
    instructions: list[Instruction] = field(default_factory=list)
    inputs: list[Buffer] = field(default_factory=list)
    outputs: list[Buffer] = field(default_factory=list)
    constants: dict[Buffer, bytes] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
