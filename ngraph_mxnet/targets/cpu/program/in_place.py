"""The check that decides if a Program may write a result over one of its inputs."""

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
