"""Whether a Program may write a result over one of its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ngraph_mxnet.targets.cpu.params import KERNELS
from ngraph_mxnet.targets.cpu.program.instruction import Instruction, Space

_ELEMENT_BY_ELEMENT = ("chain",)
"""Kernels that read all that makes an element of an output before they write that, and read it for nothing else."""


def in_the_way(instructions: Iterable[Instruction], over: Mapping[int, int]) -> str | None:
    """Why it may not; None if it may: all that reads the input has ended when the result is written, or is what writes
    it, element by element.

    Args:
        instructions: their levels are fixed.
        over: for each result that is to be written over an input the number of that.
    """
    every = list(instructions)
    for result, parameter in over.items():
        readers = [each for each in every if _touches(each, Space.INPUT, parameter, written=False)]
        writers = [each for each in every if _touches(each, Space.OUTPUT, result, written=True)]
        for writer in writers:
            for reader in readers:
                same = reader is writer and reader.name in _ELEMENT_BY_ELEMENT
                if not same and reader.level >= writer.level:
                    return (f"result {result} can't be written over input {parameter}: {reader.name} may read that "
                            f"when {writer.name} writes")
    return None


def _touches(instruction: Instruction, space: Space, index: int, *, written: bool) -> bool:
    record = KERNELS[instruction.name]
    return any(buffer.space is space and buffer.index == index and (name in record.written) == written
               for name, (buffer, _) in zip(record.tensors, instruction.operands, strict=True))
