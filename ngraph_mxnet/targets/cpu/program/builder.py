"""Collects the instructions of a Program, and writes them as plain data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ngraph_mxnet.ir.ranges import Guard
from ngraph_mxnet.ir.sizes import FUNCTIONS, Atom, Dim, both, greatest, is_symbolic, number, symbol, symbols_in, where
from ngraph_mxnet.ir.types import TensorType
from ngraph_mxnet.program.package import content_key
from ngraph_mxnet.program.program import Program
from ngraph_mxnet.targets.cpu.microkernels.tables import TableRecipe
from ngraph_mxnet.targets.cpu.params.record import ALIGNMENT
from ngraph_mxnet.targets.cpu.planning.view import View
from ngraph_mxnet.targets.cpu.program.instruction import Buffer, Instruction, Loop, Space
from ngraph_mxnet.targets.cpu.program.promises import Promises

Each = TypeVar("Each")

SHARING_GAIN = 16 << 20
"""Bytes. Images with a halo have memory of their own, where zeros stay; when all together could save this much, they
share it with the rest, and their halos are zeroed anew at every call."""


def align(size: int) -> int:
    """The least multiple of ALIGNMENT that is at least `size`."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class MemoryUse(NamedTuple):
    """Bytes that a compiled graph uses beside its inputs and outputs. A Program alone knows the first three."""

    planned: int = 0
    """The arena, of each call that runs at once."""
    least: int = 0
    """The most that is alive at one level: no plan can be smaller."""
    separate: int = 0
    """Every buffer of the Program in memory of its own: work in place and concats without copying need none; halos,
    padded channels and work space are counted."""
    intermediates: int = 0
    """Naive: every value between the graph's ops in memory of its own, unpadded."""
    prepared: int = 0
    """Weights as the kernels want them, of each set of weights."""


@dataclass
class ProgramBuilder:
    """The instructions of one Program in the making.

    Instructions that need not wait for each other run at once: of at most `branches` nodes, 0 for no limit. With
    `wave_bytes`, for the prepare Program, the results are made in waves that write about so many bytes of
    intermediates each. csrc/core/program.cc makes levels and the memory plan; `planned` tells them.
    """

    wave_bytes: int = 0
    branches: int = 0
    node: int = 0
    """The number of the node that is lowered now; whoever lowers counts."""

    instructions: list[Instruction] = field(default_factory=list)
    constants: list[np.ndarray | TableRecipe] = field(default_factory=list)
    prepared_bytes: int = 0
    pieces: list[Buffer] = field(default_factory=list)
    """Pieces of the prepared buffer, in order."""
    memory: MemoryUse = field(default_factory=MemoryUse)
    touching: dict[Buffer, list[Instruction]] = field(default_factory=lambda: defaultdict(list))
    """The instructions that have a buffer as an operand."""
    steps: list[Instruction] = field(default_factory=list)
    """All instructions of the Program in the order of their levels, once it is planned."""
    promises: Promises = field(default_factory=Promises)
    """Held to what is emitted."""
    _condition: int = True
    _loop: Loop | None = None
    _loops: int = 0
    _constants: dict[tuple[str, int, bytes], Buffer] = field(default_factory=dict)
    _recipes: dict[TableRecipe, Buffer] = field(default_factory=dict)
    _written: tuple[list[Instruction], list[Buffer]] = field(default_factory=lambda: ([], []))
    """All instructions, and the buffers of the arena, as `program` numbers them."""
    _seen: dict[int, tuple[np.ndarray, Buffer]] = field(default_factory=dict)
    """Arrays that never change, by identity."""

    def arena(self, size: int, region: Hashable = None) -> Buffer:
        """A new buffer of `size` bytes whose place is planned at the end; see `Buffer.region`."""
        return Buffer(Space.ARENA, greatest(size, 1), region=region)

    def prepared(self, size: int) -> Buffer:
        """A new buffer in the memory that is kept with the weights."""
        buffer = Buffer(Space.PREPARED, size, offset=self.prepared_bytes)
        self.prepared_bytes += align(max(size, 1))
        self.pieces.append(buffer)
        return buffer

    def constant(self, array: np.ndarray | TableRecipe) -> Buffer:
        """The array, copied into the Program; equal arrays are stored once."""
        if isinstance(array, TableRecipe):
            if array not in self._recipes:
                self._recipes[array] = Buffer(Space.CONSTANT, array.nbytes, index=len(self.constants))
                self.constants.append(array)
            return self._recipes[array]
        seen = self._seen.get(id(array))
        if seen is not None:
            return seen[1]
        given, array = array, np.ascontiguousarray(array)
        key = content_key(array)
        if key not in self._constants:
            self._constants[key] = Buffer(Space.CONSTANT, array.nbytes, index=len(self.constants))
            self.constants.append(array)
        if not given.flags.writeable:
            self._seen[id(given)] = given, self._constants[key]
        return self._constants[key]

    def each(self, count: int, make: Callable[[int], Each]) -> Iterator[Each]:
        """Yield the results of `make` for 0, 1, and so on. For a symbolic count, call `make` only once, with the symbol
        that counts. The instructions emitted for that symbol are a loop. The loop's first instruction waits for the
        last one of the previous iteration."""
        if not is_symbolic(count):
            yield from map(make, range(count))
            return
        self._loops += 1
        index = symbol(f"loop{self._loops}", 0)
        self._loop, begin = Loop(count, index), len(self.instructions)
        yield make(index)
        self._loop = None
        first, *_, last = self.instructions[begin:]
        first.carried.append(last)

    @contextmanager
    def only_if(self, condition: int) -> Iterator[None]:
        """Make the instructions emitted within do nothing where `condition`, of symbols, does not hold. Instructions
        whose results others read must be emitted before."""
        before, self._condition = self._condition, both(self._condition, condition)
        try:
            yield
        finally:
            self._condition = before

    def emit(self, kernel: str, operands: Sequence[tuple[Buffer, int]], ints: Iterable[int],
             floats: Iterable[float], tasks: int, *, reads: Sequence[View] = (), writes: Sequence[View],
             after: Sequence[View] = (), around: Sequence[View] = (), origin: str = "", operations: float = 0.0,
             bytes: int | None = None, exact: bool = False) -> None:
        """Append a call of `kernel`. `writes` (and what shares their memory) may be read from then on.

        It waits for the writers of `reads` and `after`. `around`: see `Promises.emitted`. See `Instruction` for
        `operations`, `exact` and `bytes`: without the latter, `reads` and `writes` count in full.

        Raises:
            BrokenPromiseError: what it reads is not what was written.
        """
        tasks = where(self._condition, tasks, 0)
        if not is_symbolic(tasks) and tasks == 0:
            return
        waits = [writer for view in (*reads, *after) for writer in view.writers]
        if bytes is None:
            bytes = sum([view.type.bytes for view in (*reads, *writes)])
        instruction = Instruction(kernel, list(operands), list(ints), list(floats), tasks, waits,
                                  node=self.node, origin=origin, operations=operations, bytes=bytes,
                                  exact=exact)
        instruction.loop = self._loop
        self.promises.emitted(instruction, reads, writes, around)
        self.instructions.append(instruction)
        for buffer in {buffer for buffer, _ in operands}:
            self.touching[buffer].append(instruction)
        for view in writes:
            view.writers.append(instruction)

    def program(self, inputs: Sequence[TensorType] = (), outputs: Sequence[TensorType] = (),
                symbols: Sequence[Atom] = (), guards: Iterable[Guard] = ()) -> Program:
        """The Program as plain data, of which the sizes that are not known depend on these symbols."""
        writer = _Writer(self, symbols)
        found = writer.program(guards, inputs, outputs)
        self._written = list(self.instructions), list(writer.buffers)
        return found

    def planned(self, plan: Mapping[str, Any]) -> None:
        """Take over how the Program was placed (`_core.Program.plan`): what is left out goes, `steps` are there, and
        instructions have levels, buffers of the arena offsets."""
        instructions, buffers = self._written
        for buffer, offset in zip(buffers, plan["offsets"], strict=True):
            buffer.offset = offset
        for instruction, level in zip(instructions, plan["levels"], strict=True):
            instruction.level = level
        self.instructions = [instruction for instruction in instructions if instruction.level >= 0]
        levels = self.levels()
        for place in plan["zeroed"]:
            buffer = buffers[place]
            first = min(each.level for each in self.instructions if any(other is buffer for other, _ in each.operands))
            assert buffer.zeroing is not None
            levels[first].append(buffer.zeroing)
        self.steps = [instruction for level in levels for instruction in level]
        self.memory = MemoryUse(plan["arena_bytes"], plan["peak_bytes"], plan["separate_bytes"])

    def levels(self) -> list[list[Instruction]]:
        """The instructions by level, once they are planned."""
        levels: list[list[Instruction]] = [[] for _ in range(1 + max((i.level for i in self.instructions), default=-1))]
        for instruction in self.instructions:
            levels[instruction.level].append(instruction)
        return levels


_NUMBER, _ADD, _MULTIPLY = range(3)
_STEPS = {op: number for number, op in enumerate(FUNCTIONS, 3)}
"""Steps that compute sizes, by the atom's operation; `SizeOp` in csrc/core/sizes.h has the same numbers."""


class Slots:
    """Code that computes sizes, in the making. A size that was written before keeps its slot."""

    def __init__(self, symbols: Sequence[Atom], loops: Sequence[Loop]) -> None:
        self._indices = symbols_in([loop.index for loop in loops])
        every = [*symbols, *self._indices]
        self.symbols = len(every)
        self.steps: list[tuple[int, int, int, int, int]] = []
        self._atoms: dict[Atom, int] = {atom: slot for slot, atom in enumerate(every)}
        self._segments = {slot: 1 + loop for loop, slot in enumerate(range(len(symbols), len(every)))}
        self._known: dict[tuple[int, ...], int] = {}
        self._numbers: dict[int, int] = {}

    def of(self, size: int) -> int:
        """The slot of a size; where there are no symbols its value is asked for."""
        known = self._numbers.get(size) if type(size) is int else None
        if known is not None:
            return known
        if not isinstance(size, Dim) or not self.symbols:
            return self._number(int(size))
        total: int | None = None
        for monomial, factor in size.terms.items():
            product: int | None = None if factor == 1 and monomial else self._number(factor)
            for atom in monomial:
                slot = self._atom(atom)
                product = slot if product is None else self._step(_MULTIPLY, product, slot)
            assert product is not None
            total = product if total is None else self._step(_ADD, total, product)
        assert total is not None
        return total

    def all(self, sizes: Iterable[int]) -> list[int]:
        return [self.of(size) for size in sizes]

    def _atom(self, atom: Atom) -> int:
        if atom not in self._atoms:
            self._atoms[atom] = self._step(_STEPS[atom.op], *(self.of(arg) for arg in atom.args))
        return self._atoms[atom]

    def _number(self, value: int) -> int:
        slot = self._numbers.get(value)
        if slot is None:
            slot = self._numbers[value] = self.symbols + len(self.steps)
            self.steps.append((_NUMBER, value, 0, 0, 0))
        return slot

    def _step(self, op: int, *operands: int) -> int:
        key = (op, *operands)
        if key not in self._known:
            segment = max(self._segments.get(slot, 0) for slot in operands)
            a, b, c = (*operands, 0, 0, 0)[:3]
            slot = self.symbols + len(self.steps)
            self.steps.append((op, a, b, c, segment))
            if segment:
                self._segments[slot] = segment
            self._known[key] = slot
        return self._known[key]


class _Writer:
    def __init__(self, builder: ProgramBuilder, symbols: Sequence[Atom]) -> None:
        self._builder, self._symbols = builder, symbols
        self._loops = list(dict.fromkeys(each.loop for each in builder.instructions if each.loop is not None))
        self._slots = Slots(symbols, self._loops)
        self._numbers = {each: number for number, each in enumerate(builder.instructions)}
        self.buffers: dict[Buffer, int] = {}
        self._written: list[tuple[int, int, int]] = []
        self._regions: dict[Any, int] = {}
        self._zeroing: list[tuple[Any, ...]] = []
        self._constants: dict[int, int] = {}
        self._given: list[Any] = []

    def program(self, guards: Iterable[Guard], inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Program:
        slots = self._slots
        ports = [[(type_.element.name, slots.all(type_.shape)) for type_ in types] for types in (inputs, outputs)]
        bounds = [(atom.low, atom.high) for atom in self._symbols]
        held = [(slots.of(guard.condition), guard.value) for guard in guards]
        instructions = [self._instruction(each) for each in self._builder.instructions]
        loops = [(slots.of(loop.count), slots.of(loop.index)) for loop in self._loops]
        return Program(
            slots.symbols, np.array(slots.steps, np.int64).reshape(-1, 5), bounds, held, instructions, self._zeroing,
            loops, self._written, self._given, ports[0], ports[1], self._builder.branches, SHARING_GAIN,
            self._builder.wave_bytes)

    def _instruction(self, each: Instruction) -> tuple[Any, ...]:
        slots = self._slots
        operands = [(int(buffer.space), self._place(buffer), slots.of(self._offset(buffer, offset)))
                    for buffer, offset in each.operands]
        loop = self._loops.index(each.loop) if each.loop is not None else -1
        return (each.kernel, operands, slots.all(each.ints), each.floats, slots.of(each.tasks),
                [self._numbers[other] for other in dict.fromkeys(each.waits)],
                [self._numbers[other] for other in each.carried], loop, each.node, each.origin,
                slots.of(number(each.operations)), slots.of(number(each.bytes)))

    @staticmethod
    def _offset(buffer: Buffer, offset: int) -> int:
        return buffer.offset + offset if buffer.space is Space.PREPARED else offset

    def _place(self, buffer: Buffer) -> int:
        if buffer.space is Space.CONSTANT:
            return self._constant(buffer.index)
        if buffer.space is not Space.ARENA:
            return buffer.index
        if buffer not in self.buffers:
            self.buffers[buffer] = len(self._written)
            region = -1 if buffer.region is None else self._regions.setdefault(buffer.region, len(self._regions))
            self._written.append((self._slots.of(buffer.bytes), region, -1))
            if buffer.zeroing is not None:
                place = self.buffers[buffer]
                self._zeroing.append(self._instruction(buffer.zeroing))
                self._written[place] = (*self._written[place][:2], len(self._zeroing) - 1)
        return self.buffers[buffer]

    def _constant(self, index: int) -> int:
        if index not in self._constants:
            given = self._builder.constants[index]
            self._constants[index] = len(self._given)
            if isinstance(given, TableRecipe):
                self._given.append((given.kind, self._slots.all(given.numbers)))
            else:
                self._given.append(given)
        return self._constants[index]
