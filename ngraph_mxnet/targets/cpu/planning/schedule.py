"""Which instructions run at once: each gets a level, and a level's instructions run together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ngraph_mxnet.targets.cpu.program.instruction import Instruction


def assign_earliest(instructions: Iterable[Instruction], first: int = 0) -> None:
    """In order of emission: each right after what it waits for, and not before level `first`.

    Later levels for those that may wait would save no memory on the networks that were tried: what branches end in
    is one buffer, alive from the first of them on.
    """
    for instruction in instructions:
        instruction.level = max(first, _after(instruction))


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
