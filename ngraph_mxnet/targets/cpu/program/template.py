"""A Program for a range of sizes, and what becomes of it at given sizes.

This is the definition of what the executor does natively (`csrc/core/program_template.cc`). A graph that is lowered
with numbers gives the Program that its template gives at these numbers, but where a size is 1 by chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ngraph_mxnet.ir.sizes import Binding, evaluate
from ngraph_mxnet.targets.cpu.microkernels.tables import TableRecipe
from ngraph_mxnet.targets.cpu.program.instruction import Buffer, Instruction, Loop, Space
from ngraph_mxnet.targets.cpu.program.program import ProgramBuilder


def at(builder: ProgramBuilder, binding: Binding) -> ProgramBuilder:
    """The Program in the making, where each symbol has a value.

    Raises:
        UnknownSize: a symbol has no value.
    """
    return _Bound(builder, binding).made


class _Bound:
    def __init__(self, builder: ProgramBuilder, binding: Binding) -> None:
        self.made = ProgramBuilder(builder.wave_bytes, builder.branches)
        self.made.prepared_bytes, self.made.pieces = builder.prepared_bytes, builder.pieces
        self._constants = builder.constants
        self._binding = dict(binding)
        self._buffers: dict[Buffer, Buffer] = {}
        self._copies: dict[Instruction, list[Instruction]] = {}
        for body in _bodies(builder.instructions):
            self._repeat(body)

    def _value(self, size: int) -> int:
        return evaluate(size, self._binding)

    def _repeat(self, body: Sequence[Instruction]) -> None:
        loop = body[0].loop
        before: dict[Instruction, Instruction] = {}
        for number in range(1 if loop is None else self._value(loop.count)):
            if loop is not None:
                self._binding[str(loop.index)] = number
            now: dict[Instruction, Instruction] = {}
            for each in body:
                if self._value(each.tasks):
                    waits = [copy for other in each.waits
                             for copy in ([now[other]] if other in now else self._copies.get(other, ()))]
                    waits += [before[other] for other in each.carried if other in before]
                    now[each] = self._copy(each, waits)
                    self.made.instructions.append(now[each])
            before = now
            for each, copy in now.items():
                self._copies.setdefault(each, []).append(copy)

    def _copy(self, of: Instruction, waits: list[Instruction]) -> Instruction:
        operands = [(self._buffer(buffer), self._value(offset)) for buffer, offset in of.operands]
        return replace(of, operands=operands, ints=list(map(self._value, of.ints)), tasks=self._value(of.tasks),
                       waits=waits, operations=float(self._value(of.operations)),  # type: ignore[arg-type]  # a Dim too
                       bytes=self._value(of.bytes), loop=None, carried=[])

    def _buffer(self, of: Buffer) -> Buffer:
        if of not in self._buffers:
            if of.space is Space.CONSTANT:
                given = self._constants[of.index]
                array = given.at(self._binding) if isinstance(given, TableRecipe) else given
                self._buffers[of] = self.made.constant(array)
            else:
                self._buffers[of] = replace(of, bytes=self._value(of.bytes), zeroing=None)
                if of.zeroing is not None:
                    self._buffers[of].zeroing = self._copy(of.zeroing, [])
        return self._buffers[of]


def _bodies(instructions: Sequence[Instruction]) -> Iterator[list[Instruction]]:
    """Those of a loop together, all others alone."""
    body: list[Instruction] = []
    loop: Loop | None = None
    for each in instructions:
        if body and (each.loop is None or each.loop is not loop):
            yield body
            body = []
        body.append(each)
        loop = each.loop
    if body:
        yield body
