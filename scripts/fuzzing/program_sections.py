"""Changes to the Programs in files of compiled models: any number of them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import GraphError
from ngraph_mxnet.ir.sizes import Atom
from ngraph_mxnet.ir.types import ELEMENT_TYPES, TensorType
from ngraph_mxnet.program.artefact import ISAS
from ngraph_mxnet.program.program import Program, ProgramSet, read_programs, section_bytes
from ngraph_mxnet.targets.cpu.params import KERNELS, Kernels

_NUMBERS = (0, 1, 2, 3, 4, 7, 8, 16, 63, 64, 1 << 16, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
_SIZES = (*_NUMBERS, -1, -2, -64, 1 << 40, 1 << 46, (1 << 46) + 1, 1 << 62, (1 << 63) - 1, -(1 << 63))
_FLOATS = (0.0, 1.0, -1.0, 3.0, 40.0, 1e30, 1e308, float("inf"), -float("inf"), float("nan"))
_TEXTS = ("", "x", "ng_relu__avx512", "ng_relu__baseline", "a" * 300)
_MOST_CHANGES = 3


def mutate(content: bytes, data: bytes, isa: int, random: Random) -> bytes:
    """A section PROGRAM with one to three changes. What can't be parsed or written stays."""
    try:
        found = read_programs(ISAS[isa - 1], 0, memoryview(content), memoryview(data))
        for _ in range(random.randint(1, _MOST_CHANGES)):
            found = _changed(found, random)
        return section_bytes(found, places(data))
    except (ArithmeticError, GraphError, LookupError, struct.error, TypeError, ValueError):
        return content


def places(data: bytes) -> Callable[[np.ndarray], int]:
    """Where arrays that were read from DATA lie in it."""
    first = np.frombuffer(data, np.uint8).__array_interface__["data"][0]

    def place(array: np.ndarray) -> int:
        return int(array.__array_interface__["data"][0]) - first if array.nbytes else 0

    return place


def _changed(found: ProgramSet, random: Random) -> ProgramSet:
    kind = random.random()
    if kind < 0.07 and found.symbols:
        symbols = list(found.symbols)
        place = random.randrange(len(symbols))
        name, low, high = symbols[place].args
        low, high = random.choice(((random.choice(_NUMBERS), high), (low, random.choice(_NUMBERS))))
        symbols[place] = Atom("symbol", (name, low, high), low, high, random.choice((name, name, "", "x")))
        return replace(found, symbols=tuple(symbols))
    if kind < 0.1:
        side = random.choice(("inputs", "outputs"))
        ports = list(getattr(found, side))
        place = random.randrange(len(ports))
        name, type_ = ports[place]
        ports[place] = random.choice((("other", type_), (name, TensorType(ELEMENT_TYPES["f64"], type_.shape)),
                                      (name, type_.with_shape((*type_.shape, 1 << 40)))))
        return replace(found, **{side: ports})
    programs = list(found.programs)
    place = random.randrange(len(programs))
    program, guards = programs[place]
    change = _with_other_call if random.random() < 0.5 and program.instructions else _with_other_number
    programs[place] = change(program, random), guards
    return replace(found, programs=programs)


def _with_other_number(one: Program, random: Random) -> Program:
    kind = random.random()
    if kind < 0.3 and len(one.steps):
        steps = one.steps.copy()
        row, column = random.randrange(len(steps)), random.randrange(5)
        old = int(steps[row, column])
        steps[row, column] = random.choice((*_SIZES, *(8 * (old ^ 1, old ^ 2))))
        return replace(one, steps=steps)
    if kind < 0.6 and one.instructions:
        instructions = [_lists(each) for each in one.instructions]
        chosen = random.choice(instructions)
        if random.random() < 0.1:
            chosen[random.choice((0, 9))] = random.choice(_TEXTS)
        else:
            _change(chosen[1:8], random)
        return replace(one, instructions=instructions)
    field = random.choice(("loops", "inputs", "outputs", "buffers", "constants", "guards", "zeroing"))
    changed = _lists(getattr(one, field))
    _change(changed, random)
    return replace(one, **{field: changed})


class _Numbers:
    """Slots of numbers, of which more may be added."""

    def __init__(self, one: Program) -> None:
        self._symbols = one.symbols
        self.steps = one.steps.tolist()

    def value(self, slot: int) -> int:
        """Raises LookupError: it follows from symbols."""
        op, value, *_ = self.steps[slot - self._symbols] if slot >= self._symbols else (1, 0)
        if op != 0:
            raise LookupError(slot)
        return int(value)

    def slot(self, value: int) -> int:
        self.steps.append([0, min(max(value, -(1 << 63)), (1 << 63) - 1), 0, 0, 0])
        return self._symbols + len(self.steps) - 1

    def changed(self, slot: int, random: Random) -> int:
        """That of another number."""
        value = self.value(slot)
        return self.slot(random.choice((*_SIZES, *(3 * (value + 1, value - 1, value * 2)), value + 64, value - 64,
                                        value // 2, -value)))


def _with_other_call(one: Program, random: Random) -> Program:
    """Another int, float, operand or kernel of an instruction, mostly with the tasks that fit."""
    numbers, instructions, place = _Numbers(one), list(one.instructions), random.randrange(len(one.instructions))
    kernel, operands, ints, floats, tasks, *rest = _lists(instructions[place])
    other = _lists(random.choice(one.instructions))
    kind = random.random()
    try:
        if kind < 0.45 and ints:
            at = random.randrange(len(ints))
            ints[at] = numbers.changed(ints[at], random)
        elif kind < 0.55 and floats:
            floats[random.randrange(len(floats))] = random.choice(_FLOATS)
        elif kind < 0.75 and operands:
            _change_operand(operands, other[1], numbers, random)
        elif kind < 0.82:  # a kernel that takes as many operands and numbers
            kernel = _alike(kernel, random)
        elif kind < 0.92:  # that of another instruction, of which it may take the rest too
            if (len(operands), len(ints), len(floats)) == tuple(map(len, other[1:4])):
                operands, ints, floats = random.choice(((other[1], ints, floats), (operands, *other[2:4])))
            kernel = other[0]
        else:
            tasks = numbers.changed(tasks, random)
        if random.random() < 0.9:
            tasks = numbers.slot(KERNELS[_name(kernel)].tasks_of([numbers.value(slot) for slot in ints]))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        pass
    instructions[place] = (kernel, operands, ints, floats, tasks, *rest)
    return replace(one, instructions=instructions, steps=np.array(numbers.steps, np.int64).reshape(-1, 5))


def _change_operand(operands: list[Any], others: Sequence[Any], numbers: _Numbers, random: Random) -> None:
    at, part = random.randrange(len(operands)), random.choice((0, 1, 2, None))
    if part is None and others:
        operands[at] = random.choice(others)
    elif part == 2:
        operands[at][2] = numbers.changed(operands[at][2], random)
    else:
        operands[at][part or 0] = random.randrange(5)


def _name(kernel: str) -> str:
    """Without the instruction set."""
    return kernel.removeprefix("ng_").rpartition("__")[0]


def _alike(kernel: str, random: Random) -> str:
    counts = _counts(KERNELS[_name(kernel)])
    names = [name for name, record in KERNELS.items() if _counts(record) == counts]
    return f"ng_{random.choice(names)}__{kernel.rpartition('__')[2]}"


def _counts(record: Kernels) -> tuple[int, int, int]:
    return len(record.tensors), len(record.ints), len(record.floats)


def _lists(of: Any) -> Any:
    return [_lists(each) for each in of] if isinstance(of, (list, tuple)) else of


def _change(within: list[Any], random: Random) -> None:
    """Another number somewhere in the lists, or one less or more."""
    lists = [each for each in within if isinstance(each, list)]
    numbers = [place for place, each in enumerate(within) if type(each) is int]
    if numbers and (not lists or random.random() < 0.5):
        place = random.choice(numbers)
        within[place] = random.choice((*_NUMBERS, *(3 * (within[place] + 1, max(within[place] - 1, 0))),
                                       within[random.choice(numbers)]))
    elif lists:
        _change(random.choice(lists), random)
    elif within:
        within[:] = random.choice((within[:-1], [*within, within[0]]))


def sizes_of(symbols: Sequence[tuple[str, int, int]], random: Any) -> dict[str, int]:
    """Small values of symbols, mostly within their bounds."""
    return {name: int(min(max(low, random.integers(1, 9)), max(high, 1), 64)) for name, low, high in symbols}
