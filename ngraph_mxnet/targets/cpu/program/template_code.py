"""A Program for a range of sizes as plain data, as `_core.ProgramTemplate` takes it.

Numbers of instructions, buffers and shapes are slots: those of the symbols come first, then one for each step of the
code that computes sizes. What depends on a loop's index is computed in each of its rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from ngraph_mxnet.ir.dims import Atom, Dim
from ngraph_mxnet.ir.sizes import Guard
from ngraph_mxnet.ir.types import TensorType
from ngraph_mxnet.targets.cpu.microkernels.tables import TableRecipe
from ngraph_mxnet.targets.cpu.program.instruction import Buffer, Instruction, Loop, Space
from ngraph_mxnet.targets.cpu.program.program import SHARING_GAIN, ProgramBuilder


class SizeOp(IntEnum):
    """What a step computes; `csrc/core/sizes.h` has the same numbers."""

    NUMBER = 0
    ADD = 1
    MULTIPLY = 2
    FLOORDIV = 3
    MOD = 4
    MIN = 5
    MAX = 6
    POSITIVE = 7
    ZERO = 8
    WHERE = 9


class Slots:
    """Code that computes sizes, in the making. A size that was written before keeps its slot."""

    def __init__(self, symbols: Sequence[Atom], loops: Sequence[Loop]) -> None:
        self._indices = [next(iter(_symbols(loop.index))) for loop in loops]
        every = [*symbols, *self._indices]
        self.symbols = len(every)
        self.steps: list[tuple[int, int, int, int, int]] = []
        self._atoms: dict[Atom, int] = {atom: slot for slot, atom in enumerate(every)}
        self._segments = {slot: 1 + loop for loop, slot in enumerate(range(len(symbols), len(every)))}
        self._known: dict[tuple[int, ...], int] = {}

    def of(self, size: int) -> int:
        """The slot of a size."""
        if not isinstance(size, Dim):
            return self._step(SizeOp.NUMBER, int(size))
        total: int | None = None
        for monomial, factor in size.terms.items():
            product: int | None = None if factor == 1 and monomial else self._step(SizeOp.NUMBER, factor)
            for atom in monomial:
                slot = self._atom(atom)
                product = slot if product is None else self._step(SizeOp.MULTIPLY, product, slot)
            assert product is not None
            total = product if total is None else self._step(SizeOp.ADD, total, product)
        assert total is not None
        return total

    def all(self, sizes: Iterable[int]) -> list[int]:
        return [self.of(size) for size in sizes]

    def _atom(self, atom: Atom) -> int:
        if atom not in self._atoms:
            self._atoms[atom] = self._step(SizeOp[atom.op.upper()], *(self.of(arg) for arg in atom.args))
        return self._atoms[atom]

    def _step(self, op: SizeOp, *operands: int) -> int:
        key = (op, *operands)
        if key not in self._known:
            own = [0] if op is SizeOp.NUMBER else [self._segments.get(slot, 0) for slot in operands]
            segment = max(own)
            a, b, c = (*operands, 0, 0, 0)[:3]
            slot = self.symbols + len(self.steps)
            self.steps.append((int(op), a, b, c, segment))
            if segment:
                self._segments[slot] = segment
            self._known[key] = slot
        return self._known[key]


@dataclass(frozen=True)
class TemplateCode:
    """What `_core.ProgramTemplate` is made of, but without the kernels' addresses; csrc/core/program_template.h says
    what each is for."""

    symbols: int
    steps: np.ndarray
    bounds: list[tuple[int, int]]
    guards: list[tuple[int, int]]
    instructions: list[tuple[Any, ...]]
    zeroing: list[tuple[Any, ...]]
    loops: list[tuple[int, int]]
    buffers: list[tuple[int, int, int]]
    constants: list[Any]
    inputs: list[tuple[str, list[int]]]
    outputs: list[tuple[str, list[int]]]
    branches: int
    sharing_gain: int = SHARING_GAIN

    def addressed(self, address: Callable[[str], int]) -> dict[str, Any]:
        """The dict that `_core.ProgramTemplate` takes; KeyError when `address` does not know a kernel."""
        lists = {name: [(kernel, address(kernel), *rest) for kernel, *rest in getattr(self, name)]
                 for name in ("instructions", "zeroing")}
        return {**vars(self), **lists}


def template_code(builder: ProgramBuilder, symbols: Sequence[Atom], guards: Iterable[Guard],
                  inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> TemplateCode:
    """The builder's instructions, of which the sizes that are not known depend on these symbols."""
    return _Writer(builder, symbols).code(guards, inputs, outputs)


class _Writer:
    def __init__(self, builder: ProgramBuilder, symbols: Sequence[Atom]) -> None:
        self._builder, self._symbols = builder, symbols
        self._loops = list(dict.fromkeys(each.loop for each in builder.instructions if each.loop is not None))
        self._slots = Slots(symbols, self._loops)
        self._numbers = {each: number for number, each in enumerate(builder.instructions)}
        self._buffers: dict[Buffer, int] = {}
        self._written: list[tuple[int, int, int]] = []
        self._regions: dict[Any, int] = {}
        self._zeroing: list[tuple[Any, ...]] = []
        self._constants: dict[int, int] = {}
        self._given: list[Any] = []

    def code(self, guards: Iterable[Guard], inputs: Sequence[TensorType],
             outputs: Sequence[TensorType]) -> TemplateCode:
        slots = self._slots
        ports = [[(type_.element.name, slots.all(type_.shape)) for type_ in types] for types in (inputs, outputs)]
        bounds = [(atom.low, atom.high) for atom in self._symbols]
        held = [(slots.of(guard.condition), guard.value) for guard in guards]
        instructions = [self._instruction(each) for each in self._builder.instructions]
        loops = [(slots.of(loop.count), slots.of(loop.index)) for loop in self._loops]
        return TemplateCode(
            slots.symbols, np.array(slots.steps, np.int64).reshape(-1, 5), bounds, held, instructions, self._zeroing,
            loops, self._written, self._given, ports[0], ports[1], self._builder.branches)

    def _instruction(self, each: Instruction) -> tuple[Any, ...]:
        slots = self._slots
        operands = [(int(buffer.space), self._place(buffer), slots.of(self._offset(buffer, offset)))
                    for buffer, offset in each.operands]
        loop = self._loops.index(each.loop) if each.loop is not None else -1
        return (each.kernel, operands, slots.all(each.ints), each.floats, slots.of(each.tasks),
                [self._numbers[other] for other in dict.fromkeys(each.waits)],
                [self._numbers[other] for other in each.carried], loop, each.node, each.origin,
                slots.of(_whole(each.operations)), slots.of(_whole(each.bytes)))

    @staticmethod
    def _offset(buffer: Buffer, offset: int) -> int:
        return buffer.offset + offset if buffer.space is Space.PREPARED else offset

    def _place(self, buffer: Buffer) -> int:
        if buffer.space is Space.CONSTANT:
            return self._constant(buffer.index)
        if buffer.space is not Space.ARENA:
            return buffer.index
        if buffer not in self._buffers:
            self._buffers[buffer] = len(self._written)
            region = -1 if buffer.region is None else self._regions.setdefault(buffer.region, len(self._regions))
            self._written.append((self._slots.of(buffer.bytes), region, -1))
            if buffer.zeroing is not None:
                place = self._buffers[buffer]
                self._zeroing.append(self._instruction(buffer.zeroing))
                self._written[place] = (*self._written[place][:2], len(self._zeroing) - 1)
        return self._buffers[buffer]

    def _constant(self, index: int) -> int:
        if index not in self._constants:
            given = self._builder.constants[index]
            self._constants[index] = len(self._given)
            if isinstance(given, TableRecipe):
                self._given.append((given.kind, self._slots.all(given.numbers)))
            else:
                self._given.append(given)
        return self._constants[index]


def _symbols(size: int) -> set[Atom]:
    return size.symbols if isinstance(size, Dim) else set()


def _whole(number: float) -> int:
    return number if isinstance(number, Dim) else int(number)
