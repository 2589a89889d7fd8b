"""A Program as plain data: `_core.Program` binds it, packages hold it, and so do sections PROGRAM of compiled files.

It names kernels of the kernel library; nothing in it is code.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ngraph_mxnet.base.files import FieldReader, constant_at, text_field
from ngraph_mxnet.ir.ranges import Guard, parse_dim, range_of
from ngraph_mxnet.ir.sizes import Atom, symbol
from ngraph_mxnet.ir.types import ELEMENT_TYPES, RANDOM_STATE, TensorType


@dataclass(frozen=True)
class Program:
    """Instructions, and the memory that they work on. Sizes may depend on symbols; a fixed shape has none.

    Numbers of instructions, buffers and shapes are slots: those of the symbols come first, then one for each of
    `steps`, the code that computes sizes. csrc/core/program.h says what each field is for.
    """

    symbols: int
    steps: np.ndarray
    """i64[steps,5]: a step's number, three operands, and the loop, counted from 1, in whose rounds it is computed."""
    bounds: list[tuple[int, int]]
    guards: list[tuple[int, int]]
    instructions: list[tuple[Any, ...]]
    """(kernel, operands, ints, floats, tasks, waits, carried, loop, node, origin, operations, bytes)"""
    zeroing: list[tuple[Any, ...]]
    loops: list[tuple[int, int]]
    buffers: list[tuple[int, int, int]]
    constants: list[Any]
    """Arrays, and tables that are made for the sizes: a kind and its numbers."""
    inputs: list[tuple[str, list[int]]]
    outputs: list[tuple[str, list[int]]]
    branches: int
    sharing_gain: int
    wave_bytes: int

    def native(self, address: Callable[[str], int], owner: Any = None) -> Any:
        """The `_core.Program`, which keeps `owner`, the owner of the kernels' code.

        Raises:
            KeyError: `address` does not know a kernel.
            ValueError, RuntimeError, TypeError: it refers to what does not exist.
        """
        import ngraph_mxnet._core as _core

        lists = {name: [(kernel, address(kernel), *rest) for kernel, *rest in getattr(self, name)]
                 for name in ("instructions", "zeroing")}
        return _core.Program({**vars(self), **lists}, owner)

    def plan(self, *, of_file: bool = False) -> dict[str, Any]:
        """How the executor places a Program without symbols; `_core.Program.plan` says what is told. What is `of_file`
        may ask for anything, and planning it ends.

        Raises:
            ValueError: the file's refers to what does not exist, or asks for too much.
        """
        nothing = np.empty(0, np.uint8)  # what constants hold does not matter, and they may be large
        constants = [nothing if isinstance(each, np.ndarray) else each for each in self.constants]
        native = replace(self, constants=constants).native(lambda kernel: 1)  # none is called
        found: dict[str, Any] = native.plan(of_file)
        return found

    @property
    def constant_bytes(self) -> int:
        """Those of the arrays; tables are made for the sizes."""
        return sum(each.nbytes for each in self.constants if isinstance(each, np.ndarray))

    def kernels(self) -> set[str]:
        """Their symbols."""
        return {each[0] for each in (*self.instructions, *self.zeroing)}

    @staticmethod
    def of(plain: Any) -> Program:
        """The Program that a package has as `vars(program)`. What its numbers refer to is checked by `native`.

        Raises:
            TypeError, ValueError: it is none.
        """
        found = Program(**plain)
        if not isinstance(found.steps, np.ndarray):
            raise TypeError("the steps of the sizes are no array")
        no_lists = [name for name in _LISTS if not isinstance(getattr(found, name), list)]
        if no_lists:
            raise TypeError(f"no lists: {', '.join(no_lists)}")
        return found


class IsaProgram(NamedTuple):
    """A Program for one instruction set, and the guards that say for which sizes it is; without symbols there are
    none."""

    isa: str
    guards: Sequence[Guard]
    program: Program


_LISTS = ("bounds", "guards", "instructions", "zeroing", "loops", "buffers", "constants", "inputs", "outputs")


TABLES = ("pixels", "steps", "first_taps", "tap_weights")
"""The kinds of constants that are made for the sizes, numbered from 1."""
TABLE_NUMBERS = (19, 11, 4, 4)
MOST_RANK = 32
_STEP = struct.Struct("<2I3q")
_INSTRUCTION = struct.Struct("<12I")
_CONSTANT = 3
"""The last of the spaces."""

Place = Callable[[np.ndarray], int]
"""Gives the offset in DATA of an array, which is written there."""

Ports = Sequence[tuple[str, TensorType]]
"""Names and types of inputs or outputs. Sizes may be `Dim`s."""


@dataclass(frozen=True)
class ProgramSet:
    """The Programs for one instruction set, and for one set of shapes or, with symbols, one range of sizes: the first
    one whose guards hold runs. A set of shapes has one Program without guards.

    Sets of shapes are numbered from 0, ranges behind them. Guards are texts.
    """

    isa: str
    number: int
    inputs: Ports
    outputs: Ports
    symbols: tuple[Atom, ...]
    programs: Sequence[tuple[Program, tuple[str, ...]]]

    @staticmethod
    def of(made: IsaProgram, number: int, inputs: Ports, outputs: Ports) -> ProgramSet:
        """One set of shapes."""
        return ProgramSet(made.isa, number, inputs, outputs, (), [(made.program, ())])

    @property
    def given(self) -> Ports:
        """The inputs that callers give: without the state of random numbers."""
        return [(name, type_) for name, type_ in self.inputs if name != RANDOM_STATE]

    def summary(self) -> SetSummary:
        """Raises ValueError: the Program of a set of shapes, from a file, refers to what does not exist, or asks for
        too much."""
        programs = [_summary(program, guards, is_fixed=not self.symbols) for program, guards in self.programs]
        return SetSummary(self.isa, self.number, self.given, self.outputs, self.symbols, programs)


class ProgramSummary(NamedTuple):
    """Numbers of instructions and levels, the bytes that a call needs, and those that all calls share."""

    guards: tuple[str, ...]
    instructions: int
    levels: int | None
    """None, like `arena_bytes`, where it follows from sizes."""
    arena_bytes: int | None
    constant_bytes: int


@dataclass(frozen=True)
class SetSummary:
    """The summary of a `ProgramSet`."""

    isa: str
    number: int
    inputs: Ports
    outputs: Ports
    symbols: tuple[Atom, ...]
    programs: Sequence[ProgramSummary]

    @property
    def bounds(self) -> dict[str, str]:
        """The bounds of each symbol, as text such as 1..32."""
        return {atom.text: range_of(atom.low, atom.high) for atom in self.symbols}


def _summary(program: Program, guards: tuple[str, ...], *, is_fixed: bool) -> ProgramSummary:
    if not is_fixed:
        return ProgramSummary(guards, len(program.instructions), None, None, program.constant_bytes)
    plan = program.plan(of_file=True)
    levels = [level for level in plan["levels"] if level >= 0]
    return ProgramSummary(guards, len(levels) + len(plan["zeroed"]), 1 + max(levels, default=-1), plan["arena_bytes"],
                          program.constant_bytes)


# ---- bytes ------------------------------------------------------------------------------------------------------


def section_bytes(of: ProgramSet, place: Place) -> bytes:
    """The section's content. Raises struct.error, TypeError or ValueError for what can't be written."""
    parts = [struct.pack("<2I", len(of.inputs), len(of.outputs)), *(_port(*port) for port in (*of.inputs, *of.outputs)),
             struct.pack("<I", len(of.symbols)),
             *(text_field(atom.text) + struct.pack("<2Q", atom.low, atom.high) for atom in of.symbols),
             struct.pack("<I", len(of.programs))]
    return b"".join([*parts, *(_program(*one, place) for one in of.programs)])


def _port(name: str, type_: TensorType) -> bytes:
    return (text_field(name) + text_field(type_.element.name) + struct.pack("<I", type_.rank)
            + b"".join(text_field(str(size)) for size in type_.shape))


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


def read_programs(isa: str, number: int, content: memoryview, data: memoryview) -> ProgramSet:
    """Read the Programs from their section; arrays are views of `data`. The library checks the meaning of the numbers.

    Raises:
        struct.error, LookupError, ValueError, GraphError: the content was not written as a PROGRAM.
    """
    reader = FieldReader(content)
    many_inputs, many_outputs = reader.many(12), reader.many(12)
    told = [[_read_port(reader) for _ in range(many)] for many in (many_inputs, many_outputs)]
    symbols = {(name := reader.text()): symbol(name, *reader.numbers("2Q")) for _ in range(reader.many(20))}
    atoms = tuple(atom for size in symbols.values() for atom in size.symbols)
    inputs, outputs = ([(name, TensorType(ELEMENT_TYPES[element], tuple(parse_dim(size, symbols) for size in sizes)))
                        for name, element, sizes in ports] for ports in told)
    programs = [_read_program(reader, inputs, outputs, atoms, data) for _ in range(reader.many(40))]
    if not programs:
        raise ValueError("there is no program")
    if not symbols and len(programs) > 1:
        raise ValueError(f"a set of shapes has {len(programs)} programs")
    return ProgramSet(isa, number, inputs, outputs, atoms, programs)


def _read_port(reader: FieldReader) -> tuple[str, str, list[str]]:
    name, element, rank = reader.text(), reader.text(), reader.many(4)
    if rank > MOST_RANK:
        raise ValueError(f"{name!r} has rank {rank}")
    return name, element, [reader.text() for _ in range(rank)]


def _many(reader: FieldReader, form: str) -> list[tuple[Any, ...]]:
    return [reader.numbers(form) for _ in range(reader.many(struct.calcsize("<" + form)))]


def _read_program(reader: FieldReader, inputs: Ports, outputs: Ports, symbols: Sequence[Atom],
                  data: memoryview) -> tuple[Program, tuple[str, ...]]:
    loops = _many(reader, "2I")
    steps = [(op, a, b, c, loop) for op, loop, a, b, c in _many(reader, "2I3q")]
    input_slots, output_slots = ([(type_.element.name, list(reader.numbers(f"{type_.rank}I")))
                                  for _, type_ in ports] for ports in (inputs, outputs))
    guards = [(*reader.numbers("Iq"), reader.text()) for _ in range(reader.many(16))]
    buffers = [(size, region - 1, zeroing - 1) for size, region, zeroing in _many(reader, "3I")]
    constants = [_read_constant(reader, data) for _ in range(reader.many(12))]
    branches, sharing_gain = reader.numbers("IQ")
    texts = [reader.text() for _ in range(reader.many(4))]
    instructions, zeroing = ([_read_instruction(reader, texts) for _ in range(reader.many(_INSTRUCTION.size))]
                             for _ in range(2))
    bounds = [(atom.low, atom.high) for atom in symbols]
    program = Program(len(symbols) + len(loops), np.array(steps, np.int64).reshape(-1, 5), bounds,
                      [(slot, value) for slot, value, _ in guards], instructions, zeroing, loops, buffers, constants,
                      input_slots, output_slots, branches, sharing_gain, wave_bytes=0)
    return program, tuple(text for _, _, text in guards)


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


# ---- format 1: instructions at given sizes, in levels; as a Program whose numbers are constants -------------------

Instruction = tuple[Any, ...]
"""(kernel, [(space, index, offset)], ints, floats, tasks, origin, operations, bytes)"""
def read_levels(isa: str, number: int, content: memoryview, data: memoryview) -> ProgramSet:
    """Read the set of shapes from its section; arrays are views of `data`.

    Raises:
        struct.error, ArithmeticError, LookupError, ValueError: the content was not written as a PROGRAM of format 1.
    """
    reader = FieldReader(content)
    many_inputs, many_outputs = reader.many(12), reader.many(12)
    inputs, outputs = ([_read_fixed_port(reader) for _ in range(many)] for many in (many_inputs, many_outputs))
    arena_bytes = reader.number("Q")
    constants = [constant_at(reader.number("Q"), reader.number("Q"), data) for _ in range(reader.many(16))]
    texts = [reader.text() for _ in range(reader.many(4))]
    levels = [[_read_placed_instruction(reader, texts) for _ in range(reader.many(44))] for _ in range(reader.many(4))]
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


def _read_fixed_port(reader: FieldReader) -> tuple[str, TensorType]:
    name, element, rank = reader.text(), reader.text(), reader.number()
    if rank > MOST_RANK:
        raise ValueError(f"{name!r} has rank {rank}")
    return name, TensorType(ELEMENT_TYPES[element], reader.numbers(f"{rank}Q"))


def _read_placed_instruction(reader: FieldReader, texts: Sequence[str]) -> Instruction:
    kernel, origin, operands, ints, floats, tasks, operations, touched = reader.numbers("5IQ2d")
    if max(kernel, origin) >= len(texts):
        raise ValueError(f"an instruction names texts {kernel} and {origin}, there are {len(texts)}")
    places = [reader.numbers("2IQ") for _ in range(operands)]
    if any(space > _CONSTANT for space, _, _ in places):
        raise ValueError(f"instruction {texts[kernel]!r}: no such space in {places}")
    return (texts[kernel], places, reader.numbers(f"{ints}q"), reader.numbers(f"{floats}d"), tasks, texts[origin],
            operations, touched)
