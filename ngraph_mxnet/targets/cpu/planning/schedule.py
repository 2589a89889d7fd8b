"""Which instructions run at once: each gets a level, and a level's instructions run together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from ngraph_mxnet.targets.cpu.program.instruction import Instruction


def assign_earliest(instructions: Iterable[Instruction], first: int = 0) -> None:
    """In order of emission: each right after what it waits for, and not before level `first`."""
    for instruction in instructions:
        instruction.level = max(first, _after(instruction))


def wait_for_readers(instructions: Sequence[Instruction]) -> None:
    """What reads only the caller's memory, or what waits itself, moves to the level before its first reader's: what a
    backward graph converts, or computes again, of what was saved is not in memory before it is needed.

    Others stay: later levels for them would save no memory on the networks that were tried, for what branches end
    in is one buffer, alive from the first of them on.
    """
    latest = _latest(instructions, lambda instruction: True)
    waiting: set[Instruction] = set()
    for instruction in instructions:
        if latest[instruction] > instruction.level and waiting.issuperset(instruction.waits):
            waiting.add(instruction)
    for instruction, level in _latest(instructions, waiting.__contains__).items():
        instruction.level = level


def _latest(instructions: Sequence[Instruction], moves: Callable[[Instruction], bool]) -> dict[Instruction, int]:
    """The last levels in which those that move still come before all that waits for them. Where nothing does, they
    stay."""
    first: dict[Instruction, int] = {}
    latest: dict[Instruction, int] = {}
    for instruction in reversed(instructions):
        level = first.get(instruction, instruction.level + 1) - 1 if moves(instruction) else instruction.level
        latest[instruction] = level
        for writer in instruction.waits:
            first[writer] = min(first.get(writer, level), level)
    return latest


def assign_branches(instructions: Iterable[Instruction], branches: int) -> None:
    """As `assign_earliest`, with at most `branches` nodes in a level; of one the nodes run one after the other.

    The instructions of one node that are independent may always run at once.
    """
    nodes: dict[int, set[int]] = defaultdict(set)
    node, first, highest = -1, 0, -1
    for instruction in instructions:
        if branches == 1 and instruction.node != node:
            node, first = instruction.node, highest + 1
        level = max(first, _after(instruction))
        while len(nodes[level] - {instruction.node}) >= branches:
            level += 1
        nodes[level].add(instruction.node)
        instruction.level = level
        highest = max(highest, level)


def _after(instruction: Instruction) -> int:
    return 1 + max((writer.level for writer in instruction.waits), default=-1)
