"""Collects instructions, puts them into levels, plans the arena, and makes the executor's Program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from ngraph_mxnet.ir.sizes import both, greatest, is_symbolic, symbol, where
from ngraph_mxnet.package import content_key
from ngraph_mxnet.targets.cpu.microkernels.tables import TableRecipe
from ngraph_mxnet.targets.cpu.planning.schedule import (
    Lifetime,
    align,
    assign_branches,
    assign_earliest,
    peak,
    plan,
    wait_for_readers,
)
from ngraph_mxnet.targets.cpu.planning.view import View
from ngraph_mxnet.targets.cpu.program.instruction import Buffer, Instruction, Loop, Space
from ngraph_mxnet.targets.cpu.program.program_code import ProgramCode
from ngraph_mxnet.targets.cpu.program.promises import Promises

Each = TypeVar("Each")

SHARING_GAIN = 16 << 20
"""Bytes. Images with a halo have memory of their own, where zeros stay; when all together could save this much, they
share it with the rest, and their halos are zeroed anew at every call."""


@dataclass(frozen=True)
class MemoryReport:
    """Arena bytes as planned, the least that liveness allows, and without any sharing."""

    planned: int
    peak: int
    naive: int


@dataclass
class ProgramBuilder:
    """The instructions of one Program in the making.

    Instructions that need not wait for each other run at once: of at most `branches` nodes, 0 for no limit. With
    `wave_bytes`, for the prepare Program, the results are made in waves that write about so many bytes of
    intermediates each, one wave after the other: weights are many and independent, and all at once they would need
    as much memory again.
    """

    wave_bytes: int | None = None
    branches: int = 0
    node: int = 0
    """The number of the node that is lowered now; whoever lowers counts."""

    instructions: list[Instruction] = field(default_factory=list)
    constants: list[np.ndarray | TableRecipe] = field(default_factory=list)
    prepared_bytes: int = 0
    pieces: list[Buffer] = field(default_factory=list)
    """Those of the prepared buffer, in order."""
    memory: MemoryReport = field(default_factory=lambda: MemoryReport(0, 0, 0))
    touching: dict[Buffer, list[Instruction]] = field(default_factory=lambda: defaultdict(list))
    """The instructions that have a buffer as an operand."""
    steps: list[Instruction] = field(default_factory=list)
    """All instructions of the Program in the order of their levels, once there is one."""
    promises: Promises = field(default_factory=Promises)
    """Held to what is emitted."""
    _condition: int = True
    _loop: Loop | None = None
    _loops: int = 0
    _arena: list[Buffer] = field(default_factory=list)
    _constants: dict[tuple[str, int, bytes], Buffer] = field(default_factory=dict)
    _recipes: dict[TableRecipe, Buffer] = field(default_factory=dict)
    _seen: dict[int, tuple[np.ndarray, Buffer]] = field(default_factory=dict)
    """Arrays that never change, by identity."""

    def arena(self, size: int, region: Hashable = None) -> Buffer:
        """A new buffer of `size` bytes whose place is planned at the end; see `Lifetime.region`."""
        buffer = Buffer(Space.ARENA, greatest(size, 1), region=region)
        self._arena.append(buffer)
        return buffer

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
        """What `make` gives for 0, 1, ..; for a count that is symbolic only once, for the symbol that counts. What is
        emitted for it is then a loop, in which the first instruction waits for the last one of the time before."""
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
        """What is emitted within does nothing where the condition, of symbols, does not hold. What others read is
        emitted before."""
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

    def levels(self) -> list[list[Instruction]]:
        """The instructions by level."""
        if self.wave_bytes is not None:
            self._assign_waves(self.wave_bytes)
        elif self.branches:
            assign_branches(self.instructions, self.branches)
        else:
            assign_earliest(self.instructions)
            wait_for_readers(self.instructions)
        levels: list[list[Instruction]] = [[] for _ in range(1 + max((i.level for i in self.instructions), default=-1))]
        for instruction in self.instructions:
            levels[instruction.level].append(instruction)
        return levels

    def _assign_waves(self, wave_bytes: int) -> None:
        """Levels wave by wave; what no result needs is dropped."""
        order = {instruction: place for place, instruction in enumerate(self.instructions)}
        done: set[Instruction] = set()
        base = used = 0
        for result in self.instructions:
            if not any(buffer.space is Space.PREPARED for buffer, _ in result.operands):
                continue
            if used > wave_bytes:
                base, used = 1 + max(instruction.level for instruction in done), 0
            chain: set[Instruction] = set()
            stack = [result]
            while stack:
                instruction = stack.pop()
                if instruction not in done:
                    done.add(instruction)
                    chain.add(instruction)
                    stack.extend(instruction.waits)
            assign_earliest(sorted(chain, key=order.__getitem__), base)
            used += sum(i.operands[-1][0].bytes for i in chain if i.operands[-1][0].space is Space.ARENA)
        self.instructions = [instruction for instruction in self.instructions if instruction in done]

    def _plan_arena(self, levels: list[list[Instruction]]) -> int:
        spans: dict[Buffer, tuple[int, int]] = {}
        for place, level in enumerate(levels):
            for instruction in level:
                for buffer, _ in instruction.operands:
                    if buffer.space is Space.ARENA:
                        spans[buffer] = (spans.get(buffer, (place, place))[0], place)
        lifetimes = [Lifetime(buffer.bytes, *span, buffer.region) for buffer, span in spans.items()]
        offsets, total = plan(lifetimes)
        if any(buffer.zeroing is not None for buffer in spans):
            shared_offsets, shared_total = plan(
                [replace(life, region=None) if buffer.zeroing else life
                 for buffer, life in zip(spans, lifetimes, strict=True)])
            if total - shared_total >= SHARING_GAIN:
                offsets, total = shared_offsets, shared_total
                for buffer, (first, _) in spans.items():
                    if buffer.zeroing is not None:
                        levels[first].append(buffer.zeroing)
        for buffer, offset in zip(spans, offsets, strict=True):
            buffer.offset = offset
        self.memory = MemoryReport(total, peak(lifetimes), sum(align(life.bytes) for life in lifetimes))
        return total

    def _array(self, constant: Buffer) -> np.ndarray:
        array = self.constants[constant.index]
        assert not isinstance(array, TableRecipe)  # only in a Program for a range of sizes, which is no ProgramCode
        return array

    def code(self) -> ProgramCode:
        """The Program as plain data: levels are fixed and the arena is planned."""
        levels = self.levels()
        arena_bytes = self._plan_arena(levels)
        self.steps = [instruction for level in levels for instruction in level]
        # Only constants that are read: weights are mostly read by the prepare Program, not by the main one.
        read = dict.fromkeys(buffer for level in levels for i in level for buffer, _ in i.operands
                             if buffer.space is Space.CONSTANT)
        places = {buffer: place for place, buffer in enumerate(read)}
        encoded = [
            [
                (i.kernel, [(int(b.space), places.get(b, b.index), b.offset + o) for b, o in i.operands], i.ints,
                 i.floats, i.tasks, i.origin, i.operations, i.bytes)
                for i in level
            ]
            for level in levels
        ]
        return ProgramCode(encoded, arena_bytes, [self._array(buffer) for buffer in read])
