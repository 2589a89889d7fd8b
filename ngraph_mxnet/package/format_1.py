"""Sections PROGRAM of format 1 (docs/artefact.md): instructions at given sizes, in levels, as a Program whose numbers
are constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph_mxnet.ir.types import ELEMENT_TYPES, TensorType
from ngraph_mxnet.package.artefact_programs import MOST_RANK, Ports, ProgramSet
from ngraph_mxnet.package.fields import FieldReader, constant_at
from ngraph_mxnet.package.program import Program

Instruction = tuple[Any, ...]
"""(kernel, [(space, index, offset)], ints, floats, tasks, origin, operations, bytes)"""
_CONSTANT = 3
"""The last of the spaces."""


def read_levels(isa: str, number: int, content: memoryview, data: memoryview) -> ProgramSet:
    """Read the set of shapes from its section; arrays are views of `data`.

    Raises:
        struct.error, ArithmeticError, LookupError, ValueError: the content was not written as a PROGRAM of format 1.
    """
    reader = FieldReader(content)
    many_inputs, many_outputs = reader.many(12), reader.many(12)
    inputs, outputs = ([_read_port(reader) for _ in range(many)] for many in (many_inputs, many_outputs))
    arena_bytes = reader.number("Q")
    constants = [constant_at(reader.number("Q"), reader.number("Q"), data) for _ in range(reader.many(16))]
    texts = [reader.text() for _ in range(reader.many(4))]
    levels = [[_read_instruction(reader, texts) for _ in range(reader.many(44))] for _ in range(reader.many(4))]
    program = program_of_levels(inputs, outputs, arena_bytes, constants, levels)
    return ProgramSet(isa, number, inputs, outputs, (), [(program, ())])


def program_of_levels(inputs: Ports, outputs: Ports, arena_bytes: int, constants: Sequence[np.ndarray],
                      levels: Sequence[Sequence[Instruction]]) -> Program:
    """The Program that binding makes these levels of. The arena is one buffer, which is zero before the first run."""
    slots: dict[int, int] = {}

    def slot(number: float) -> int:
        return slots.setdefault(int(number), len(slots))

    instructions: list[tuple[Any, ...]] = []
    waits: list[int] = []  # for the first instruction of the level before, so that levels stay as they are
    for level in levels:
        first = len(instructions)
        for kernel, operands, ints, floats, tasks, origin, operations, touched in level:
            places = [(space, index, slot(offset)) for space, index, offset in operands]
            slots_of_ints = [slot(each) for each in ints]
            instructions.append((kernel, places, slots_of_ints, list(floats), slot(tasks), waits, [], -1, 0, origin,
                                 slot(operations), slot(touched)))
        waits = [first] if level else waits
    input_slots, output_slots = ([(type_.element.name, [slot(size) for size in type_.shape]) for _, type_ in types]
                                 for types in (inputs, outputs))
    buffers = [(slot(arena_bytes), 0, -1)]
    steps = np.array([(0, number, 0, 0, 0) for number in slots], np.int64).reshape(-1, 5)
    return Program(0, steps, [], [], instructions, [], [], buffers, list(constants), input_slots, output_slots,
                   branches=0, sharing_gain=0, wave_bytes=0)


def _read_port(reader: FieldReader) -> tuple[str, TensorType]:
    name, element, rank = reader.text(), reader.text(), reader.number()
    if rank > MOST_RANK:
        raise ValueError(f"{name!r} has rank {rank}")
    return name, TensorType(ELEMENT_TYPES[element], reader.numbers(f"{rank}Q"))


def _read_instruction(reader: FieldReader, texts: Sequence[str]) -> Instruction:
    kernel, origin, operands, ints, floats, tasks, operations, touched = reader.numbers("5IQ2d")
    if max(kernel, origin) >= len(texts):
        raise ValueError(f"an instruction names texts {kernel} and {origin}, there are {len(texts)}")
    places = [reader.numbers("2IQ") for _ in range(operands)]
    if any(space > _CONSTANT for space, _, _ in places):
        raise ValueError(f"instruction {texts[kernel]!r}: no such space in {places}")
    return (texts[kernel], places, reader.numbers(f"{ints}q"), reader.numbers(f"{floats}d"), tasks, texts[origin],
            operations, touched)
