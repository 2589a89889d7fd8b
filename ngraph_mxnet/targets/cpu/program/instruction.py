"""The parts of a Program: kernel calls, and the pieces of memory that they work on."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from ngraph_mxnet.targets.cpu.params import KERNELS


class Space(IntEnum):
    """Whose memory an operand is in: the Program's contract with the executor."""

    ARENA = 0
    INPUT = 1
    OUTPUT = 2
    CONSTANT = 3
    PREPARED = 4


@dataclass(eq=False)
class Buffer:
    """A piece of memory. `index` numbers inputs, outputs and constants; `offset` is planned for the others.

    Buffers share memory only within a `region`: images of one geometry with a zero halo make one, and leave the
    halo's bytes alone, so that zeros written once stay. `zeroing` writes the zeros of its halo: before the first run,
    or in each where memory is shared across regions.
    """

    space: Space
    bytes: int
    index: int = 0
    offset: int = 0
    region: Hashable = None
    zeroing: Instruction | None = None


@dataclass(eq=False)
class Loop:
    """Instructions that a Program repeats `count` times, one time after the other; `index` is the symbol that counts.

    Of a Program for known sizes they are written out, so that there are no loops.
    """

    count: int
    index: int


@dataclass(eq=False)
class Instruction:
    """One kernel call, run after `waits`; once it is planned, `level` is at least 1 + the highest level of these.

    `node` numbers the nodes in the order of lowering. For profiles: `origin` is its name, `operations` are
    floating-point ones (two a multiply-add), `bytes` those of the tensors that are read and written. One that is
    `exact` writes the elements of its result and nothing beside them.
    """

    kernel: str
    operands: list[tuple[Buffer, int]]
    ints: list[int]
    floats: list[float]
    tasks: int
    waits: list[Instruction]
    level: int = 0
    node: int = 0
    origin: str = ""
    operations: float = 0.0
    bytes: int = 0
    exact: bool = False
    loop: Loop | None = None
    carried: list[Instruction] = field(default_factory=list)
    """Instructions of the loop's previous iteration that this instruction waits for."""

    @property
    def name(self) -> str:
        """The kernel's, without the instruction set."""
        return self.kernel.removeprefix("ng_").rpartition("__")[0]

    def __str__(self) -> str:
        """With its numbers by name."""
        record = KERNELS.get(self.name)
        numbers = record.text(self.ints, self.floats) if record else "generated"
        return f"{self.kernel} {numbers} tasks={self.tasks}"


_ELEMENT_BY_ELEMENT = ("chain",)
"""Kernels that read all that makes an element of an output before they write that, and read it for nothing else."""


def in_the_way(instructions: Iterable[Instruction], over: Mapping[int, int]) -> str | None:
    """Why a Program may not write results over inputs; None if it may: all that reads the input has ended when the
    result is written, or is what writes it, element by element.

    Args:
        instructions: their levels are fixed.
        over: for each result that is to be written over an input the number of that.
    """
    reading: dict[int, list[Instruction]] = {}
    writing: dict[int, list[Instruction]] = {}
    for each in instructions:
        record = KERNELS[each.name]
        for name, (buffer, _) in zip(record.tensors, each.operands, strict=True):
            if buffer.space is Space.INPUT:
                reading.setdefault(buffer.index, []).append(each)
            elif buffer.space is Space.OUTPUT and name in record.written:
                writing.setdefault(buffer.index, []).append(each)
    for result, parameter in over.items():
        for writer in writing.get(result, ()):
            for reader in reading.get(parameter, ()):
                same = reader is writer and reader.name in _ELEMENT_BY_ELEMENT
                if not same and reader.level >= writer.level:
                    return (f"result {result} can't be written over input {parameter}: {reader.name} may read that "
                            f"when {writer.name} writes")
    return None
