"""Collects instructions, puts them into levels, plans the arena, and makes the executor's Program."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ngraph_mxnet.cpu.memory import Lifetime, align, peak, plan
from ngraph_mxnet.cpu.view import Buffer, Space, View


@dataclass(eq=False)
class Instruction:
    """One kernel call. `level` is 1 + the highest level that it waits for."""

    kernel: str
    operands: list[tuple[Buffer, int]]
    ints: list[int]
    floats: list[float]
    tasks: int
    level: int
    origin: str = ""


@dataclass(frozen=True)
class MemoryReport:
    """Arena bytes as planned, the least that liveness allows, and without any sharing."""

    planned: int
    peak: int
    naive: int


@dataclass
class ProgramBuilder:
    """The instructions of one Program in the making."""

    instructions: list[Instruction] = field(default_factory=list)
    constants: list[np.ndarray] = field(default_factory=list)
    prepared_bytes: int = 0
    memory: MemoryReport = field(default_factory=lambda: MemoryReport(0, 0, 0))
    _arena: list[Buffer] = field(default_factory=list)
    _constants: dict[tuple[str, bytes], Buffer] = field(default_factory=dict)

    def arena(self, size: int, region: Hashable = None) -> Buffer:
        """A new buffer of `size` bytes whose place is planned at the end; see `Lifetime.region`."""
        buffer = Buffer(Space.ARENA, max(size, 1), region=region)
        self._arena.append(buffer)
        return buffer

    def prepared(self, size: int) -> Buffer:
        """A new buffer in the memory that is kept with the weights."""
        buffer = Buffer(Space.PREPARED, size, offset=self.prepared_bytes)
        self.prepared_bytes += align(max(size, 1))
        return buffer

    def constant(self, array: np.ndarray) -> Buffer:
        """The array, copied into the Program; equal arrays are stored once."""
        array = np.ascontiguousarray(array)
        key = (array.dtype.str, array.tobytes())
        if key not in self._constants:
            self._constants[key] = Buffer(Space.CONSTANT, array.nbytes, index=len(self.constants))
            self.constants.append(array)
        return self._constants[key]

    def emit(self, kernel: str, operands: Sequence[tuple[Buffer, int]], ints: Iterable[int],
             floats: Iterable[float], tasks: int, *, reads: Iterable[View] = (), writes: View,
             origin: str = "") -> None:
        """Append a call of `kernel`. `writes` (and what shares its memory) may be read from then on."""
        if tasks == 0:
            return
        level = 1 + max((w.level for view in reads for w in view.writers), default=-1)
        instruction = Instruction(kernel, list(operands), [int(i) for i in ints], list(floats), tasks, level, origin)
        self.instructions.append(instruction)
        writes.writers.append(instruction)

    def levels(self) -> list[list[Instruction]]:
        """The instructions by level."""
        levels: list[list[Instruction]] = [[] for _ in range(1 + max((i.level for i in self.instructions), default=-1))]
        for instruction in self.instructions:
            levels[instruction.level].append(instruction)
        return levels

    def _plan_arena(self, levels: list[list[Instruction]]) -> int:
        spans: dict[Buffer, tuple[int, int]] = {}
        for number, level in enumerate(levels):
            for instruction in level:
                for buffer, _ in instruction.operands:
                    if buffer.space is Space.ARENA:
                        spans[buffer] = (spans.get(buffer, (number, number))[0], number)
        lifetimes = [Lifetime(buffer.bytes, *span, buffer.region) for buffer, span in spans.items()]
        offsets, total = plan(lifetimes)
        for buffer, offset in zip(spans, offsets, strict=True):
            buffer.offset = offset
        self.memory = MemoryReport(total, peak(lifetimes), sum(align(life.bytes) for life in lifetimes))
        return total

    def build(self, program: Callable[..., Any], address: Callable[[str], int]) -> Any:
        """The executor's Program, by the constructor `program` and the kernels' addresses."""
        levels = self.levels()
        arena_bytes = self._plan_arena(levels)
        encoded = [
            [
                (i.kernel, address(i.kernel), [_operand(b, o) for b, o in i.operands], i.ints, i.floats, i.tasks)
                for i in level
            ]
            for level in levels
        ]
        return program(encoded, arena_bytes, self.constants)


def _operand(buffer: Buffer, offset: int) -> tuple[int, int, int]:
    return int(buffer.space), buffer.index, buffer.offset + offset
