"""Programs that suffer where their plans have gaps: for tests, as NGRAPH_DISTURB says. Otherwise nothing is changed.

*poison*: words that are a signalling NaN of float32, float64, bf16 and float16, and no small number of any other type,
stand in each buffer of the arena when its first instruction runs, and again when the last has. Borders that stay zero
(see `Lifetime.region`) are left out. In the prepare Program they stand in what it prepares, too, before that is
written; what is behind the last instruction is dropped there, for no result needs it.

*shuffle*: the instructions are in an order that a seed draws of all that their waits allow, and some wait for the one
before, so that levels and the memory plan follow it. On one thread the order within a level is drawn, too.

Both are made of instructions, waits and their order alone, so that a Program for a range of sizes is disturbed as well.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ngraph_mxnet.base import config
from ngraph_mxnet.targets.cpu.params.layout import ZERO_HALO
from ngraph_mxnet.targets.cpu.params.strided import strided
from ngraph_mxnet.targets.cpu.program.builder import ProgramBuilder
from ngraph_mxnet.targets.cpu.program.instruction import Buffer, Instruction, Space

POISON = 0x7FF77FF7
_KEPT_ORDER = 0.3
"""Share of the instructions that do not wait for the one before."""


def disturb(builder: ProgramBuilder, symbol: Callable[[str], str]) -> None:
    """Disturb a Program, whose instructions are all emitted, as NGRAPH_DISTURB asks.

    Args:
        symbol: of a kernel.
    """
    wanted = config.get("NGRAPH_DISTURB")
    if wanted.poison:
        _poison(builder, symbol("copy_4"))
    if wanted.seed is not None:
        builder.instructions = shuffled(builder.instructions, random.Random(wanted.seed))


def _poison(builder: ProgramBuilder, kernel: str) -> None:
    using: dict[Buffer, list[Instruction]] = defaultdict(list)
    pieces = set(builder.pieces)
    for instruction in builder.instructions:
        for buffer in dict.fromkeys(buffer for buffer, _ in instruction.operands):
            if buffer.space is Space.ARENA or buffer in pieces:
                using[buffer].append(instruction)
    if not using:
        return
    word = builder.constant(np.full(1, POISON, np.uint32))
    last = 1 + max(instruction.node for instruction in builder.instructions)
    before, after = [], []
    for buffer, reading in using.items():
        if buffer.region is not None and buffer.zeroing is None:
            continue
        shape, strides, offset = _inside(buffer)
        params = strided("copy_4", shape, (0,) * len(shape), strides)
        first, then = (Instruction(kernel, [(word, 0), (buffer, offset)], params.ints(), params.floats(), params.tasks,
                                   waits, node=node, origin="poison", exact=True)
                       for waits, node in (([], 0), (list(reading), last)))
        for each in reading:
            each.waits.append(first)
        before.append(first)
        if buffer not in pieces:
            after.append(then)
    builder.instructions = [*before, *builder.instructions, *after]


def _inside(buffer: Buffer) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """The words of the buffer that are not of a border that stays zero: shape, strides, and the first byte."""
    if buffer.zeroing is None:
        return (-(-buffer.bytes // 4),), (1,), 0
    p = ZERO_HALO.read(buffer.zeroing.ints)
    halo = p.halo
    row = (p.width + halo.left + halo.right) * p.words
    plane = (p.height + halo.top + halo.bottom) * row
    return (p.planes, p.height, p.width * p.words), (plane, row, 1), 4 * (halo.top * row + halo.left * p.words)


def shuffled(instructions: Sequence[Instruction], draw: random.Random) -> list[Instruction]:
    """The instructions in an order that their waits allow, loops as a whole; most wait for the one before, too."""
    units = list(_units(instructions))
    unit_of = {each: number for number, unit in enumerate(units) for each in unit}
    waits = [{unit_of[other] for each in unit for other in (*each.waits, *each.carried)} - {number}
             for number, unit in enumerate(units)]
    followers: dict[int, list[int]] = defaultdict(list)
    for number, before in enumerate(waits):
        for other in before:
            followers[other].append(number)
    ready = [number for number, before in enumerate(waits) if not before]
    order: list[Instruction] = []
    while ready:
        at = draw.randrange(len(ready))
        ready[at], ready[-1] = ready[-1], ready[at]
        number = ready.pop()
        if order and draw.random() > _KEPT_ORDER:
            units[number][0].waits.append(order[-1])
        order += units[number]
        for other in followers[number]:
            waits[other].discard(number)
            if not waits[other]:
                ready.append(other)
    return order


def _units(instructions: Iterable[Instruction]) -> Iterable[list[Instruction]]:
    """Yield the instructions of a loop together, and all others alone."""
    unit: list[Instruction] = []
    for each in instructions:
        if unit and (each.loop is None or each.loop is not unit[-1].loop):
            yield unit
            unit = []
        unit.append(each)
    if unit:
        yield unit
