"""The section RANGE of a compiled model's file (docs/artefact.md) as plain data, as bytes, and back."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngraph_mxnet.ir.sizes import range_of
from ngraph_mxnet.ir.types import ELEMENT_TYPES, ElementType
from ngraph_mxnet.package.fields import FieldReader, constant_at, text_field
from ngraph_mxnet.package.program import Program

TABLES = ("pixels", "steps", "first_taps", "tap_weights")
"""The kinds of constants that are made for the sizes, numbered from 1."""
TABLE_NUMBERS = (19, 11, 4, 4)
_STEP = struct.Struct("<2I3q")
_INSTRUCTION = struct.Struct("<12I")
_CONSTANT = 3
"""The last of the spaces."""

Place = Callable[[np.ndarray], int]
"""Gives the offset in DATA of an array, which is written there."""


@dataclass(frozen=True)
class RangeType:
    """That of an input or output; sizes are texts: numbers, symbols, and what is computed of symbols."""

    element: ElementType
    sizes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.element}[{','.join(self.sizes)}]"


Ports = Sequence[tuple[str, RangeType]]


@dataclass(frozen=True)
class ArtefactRange:
    """The programs for one instruction set and for one range of sizes, numbered from 0: the first one whose guards hold
    runs. `symbols`: name, least and greatest value. `programs`: each with its guards as texts."""

    isa: str
    shapes: int
    inputs: Ports
    outputs: Ports
    symbols: tuple[tuple[str, int, int], ...]
    programs: Sequence[tuple[Program, Sequence[str]]]

    def summary(self) -> RangeSummary:
        return RangeSummary(self.isa, self.shapes, self.inputs, self.outputs, self.symbols,
                            [texts for _, texts in self.programs],
                            [len(one.instructions) for one, _ in self.programs],
                            [one.constant_bytes for one, _ in self.programs])


@dataclass(frozen=True)
class RangeSummary:
    """The summary of a range: for each of its programs the guards, the number of instructions, and the bytes of
    constants."""

    isa: str
    shapes: int
    inputs: Ports
    outputs: Ports
    symbols: tuple[tuple[str, int, int], ...]
    guards: Sequence[Sequence[str]]
    instructions: Sequence[int]
    constant_bytes: Sequence[int]

    @property
    def bounds(self) -> dict[str, str]:
        """The bounds of each symbol, as text such as 1..32."""
        return {name: range_of(low, high) for name, low, high in self.symbols}


# ---- bytes ------------------------------------------------------------------------------------------------------


def range_bytes(of: ArtefactRange, place: Place) -> bytes:
    """The section's content. Raises struct.error, TypeError or ValueError for what can't be written."""
    parts = [struct.pack("<2I", len(of.inputs), len(of.outputs)), *(_port(*port) for port in (*of.inputs, *of.outputs)),
             struct.pack("<I", len(of.symbols)),
             *(text_field(name) + struct.pack("<2Q", low, high) for name, low, high in of.symbols),
             struct.pack("<I", len(of.programs))]
    return b"".join([*parts, *(_program(*one, place) for one in of.programs)])


def _port(name: str, type_: RangeType) -> bytes:
    return (text_field(name) + text_field(type_.element.name) + struct.pack("<I", len(type_.sizes))
            + b"".join(map(text_field, type_.sizes)))


def _slots(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def _program(one: Program, guards: Sequence[str], place: Place) -> bytes:
    texts: dict[str, int] = {}
    for kernel, *_, origin, _, _ in (*one.instructions, *one.zeroing):
        texts.setdefault(kernel, len(texts))
        texts.setdefault(origin, len(texts))
    parts = [struct.pack("<I", len(one.loops)), *(struct.pack("<2I", *loop) for loop in one.loops),
             struct.pack("<I", len(one.steps)),
             *(_STEP.pack(op, loop, a, b, c) for op, a, b, c, loop in one.steps.tolist()),
             *(_slots(sizes) for _, sizes in (*one.inputs, *one.outputs)),
             struct.pack("<I", len(one.guards)),
             *(struct.pack("<Iq", *guard) + text_field(text) for guard, text in zip(one.guards, guards, strict=True)),
             struct.pack("<I", len(one.buffers)),
             *(struct.pack("<3I", size, region + 1, zeroing + 1) for size, region, zeroing in one.buffers),
             struct.pack("<I", len(one.constants)), *(_constant(constant, place) for constant in one.constants),
             struct.pack("<IQ", one.branches, one.sharing_gain),
             struct.pack("<I", len(texts)), *map(text_field, texts)]
    for instructions in (one.instructions, one.zeroing):
        parts.append(struct.pack("<I", len(instructions)))
        parts += [_instruction(instruction, texts) for instruction in instructions]
    return b"".join(parts)


def _constant(constant: np.ndarray | tuple[str, Sequence[int]], place: Place) -> bytes:
    if isinstance(constant, np.ndarray):
        return struct.pack("<I2Q", 0, place(constant), constant.nbytes)
    kind, numbers = constant
    return struct.pack("<I", 1 + TABLES.index(kind)) + _slots(numbers)


def _instruction(instruction: tuple[Any, ...], texts: Mapping[str, int]) -> bytes:
    kernel, operands, ints, floats, tasks, waits, carried, loop, node, origin, operations, touched = instruction
    return b"".join([
        _INSTRUCTION.pack(texts[kernel], texts[origin], len(operands), len(ints), len(floats), len(waits), len(carried),
                          loop + 1, node, tasks, operations, touched),
        *(struct.pack("<3I", *operand) for operand in operands), _slots(ints),
        struct.pack(f"<{len(floats)}d", *floats), _slots(waits), _slots(carried)])


# ---- and back ---------------------------------------------------------------------------------------------------


def read_range(isa: str, number: int, content: memoryview, data: memoryview) -> ArtefactRange:
    """Read a range from its section; arrays are views of `data`. The library checks the meaning of the numbers.

    Raises:
        struct.error, LookupError, ValueError: the content was not written as a range.
    """
    reader = FieldReader(content)
    many_inputs, many_outputs = reader.many(12), reader.many(12)
    inputs, outputs = (tuple(_read_port(reader) for _ in range(many)) for many in (many_inputs, many_outputs))
    symbols = tuple((reader.text(), *reader.numbers("2Q")) for _ in range(reader.many(20)))
    programs = [_read_program(reader, inputs, outputs, symbols, data) for _ in range(reader.many(40))]
    if not programs:
        raise ValueError("a range has no program")
    return ArtefactRange(isa, number, inputs, outputs, symbols, programs)


def _read_port(reader: FieldReader) -> tuple[str, RangeType]:
    name, element = reader.text(), reader.text()
    return name, RangeType(ELEMENT_TYPES[element], tuple(reader.text() for _ in range(reader.many(4))))


def _many(reader: FieldReader, form: str) -> list[tuple[Any, ...]]:
    return [reader.numbers(form) for _ in range(reader.many(struct.calcsize("<" + form)))]


def _read_program(reader: FieldReader, inputs: Ports, outputs: Ports, symbols: Sequence[tuple[str, int, int]],
                  data: memoryview) -> tuple[Program, list[str]]:
    loops = _many(reader, "2I")
    steps = [(op, a, b, c, loop) for op, loop, a, b, c in _many(reader, "2I3q")]
    input_slots, output_slots = ([(type_.element.name, list(reader.numbers(f"{len(type_.sizes)}I")))
                                  for _, type_ in ports] for ports in (inputs, outputs))
    guards = [(*reader.numbers("Iq"), reader.text()) for _ in range(reader.many(16))]
    buffers = [(size, region - 1, zeroing - 1) for size, region, zeroing in _many(reader, "3I")]
    constants = [_read_constant(reader, data) for _ in range(reader.many(12))]
    branches, sharing_gain = reader.numbers("IQ")
    texts = [reader.text() for _ in range(reader.many(4))]
    instructions, zeroing = ([_read_instruction(reader, texts) for _ in range(reader.many(_INSTRUCTION.size))]
                             for _ in range(2))
    bounds = [(low, high) for _, low, high in symbols]
    program = Program(len(symbols) + len(loops), np.array(steps, np.int64).reshape(-1, 5), bounds,
                      [(slot, value) for slot, value, _ in guards], instructions, zeroing, loops, buffers, constants,
                      input_slots, output_slots, branches, sharing_gain, wave_bytes=0)
    return program, [text for _, _, text in guards]


def _read_constant(reader: FieldReader, data: memoryview) -> np.ndarray | tuple[str, Sequence[int]]:
    kind = reader.number()
    if kind == 0:
        return constant_at(reader.number("Q"), reader.number("Q"), data)
    if kind > len(TABLES):
        raise ValueError(f"a constant of the kind {kind}")
    return TABLES[kind - 1], list(reader.numbers(f"{TABLE_NUMBERS[kind - 1]}I"))


def _read_instruction(reader: FieldReader, texts: Sequence[str]) -> tuple[Any, ...]:
    (kernel, origin, operands, ints, floats, waits, carried, loop, node, tasks, operations,
     touched) = reader.numbers("12I")
    if max(kernel, origin) >= len(texts):
        raise ValueError(f"an instruction names texts {kernel} and {origin}, there are {len(texts)}")
    places = [reader.numbers("3I") for _ in range(operands)]
    if any(space > _CONSTANT for space, _, _ in places):
        raise ValueError(f"instruction {texts[kernel]!r}: no such space in {places}")
    numbers = list(reader.numbers(f"{ints}I"))
    return (texts[kernel], places, numbers, list(reader.numbers(f"{floats}d")), tasks,
            list(reader.numbers(f"{waits}I")), list(reader.numbers(f"{carried}I")), loop - 1, node, texts[origin],
            operations, touched)
