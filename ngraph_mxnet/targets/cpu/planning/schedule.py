"""Levels of instructions that may run at once, and the memory of what they make."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

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


ALIGNMENT = 64
"""Bytes; a cache line and the widest vector."""


@dataclass(frozen=True)
class Lifetime:
    """A request for `bytes` bytes from level `first` to level `last`, both included.

    Requests share memory only within a `region`. Images of one geometry with a zero halo make a region: all
    of them leave the halo's bytes alone, so that zeros written once stay.
    """

    bytes: int
    first: int
    last: int
    region: Hashable = None


@dataclass(frozen=True)
class MemoryUse:
    """Bytes that a compiled graph uses beside its inputs and outputs."""

    intermediates: int
    """Naive: every value between the graph's ops in memory of its own, unpadded."""
    separate: int
    """Every buffer of the Program in memory of its own: work in place and concats without copying need none; halos,
    padded channels and work space are counted."""
    least: int
    """The most of these that is alive at once: no plan can be smaller."""
    planned: int
    """The arena, of each call that runs at once."""
    prepared: int
    """Weights as the kernels want them, of each set of weights."""


def align(size: int) -> int:
    """The least multiple of ALIGNMENT that is at least `size`."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def plan(requests: Iterable[Lifetime]) -> tuple[list[int], int]:
    """An offset for each request and the total size, in bytes; one region follows the other.

    Greedy by size: the largest buffer first, each at the lowest gap among those it meets. Offline allocation
    is NP-hard; this order is within a few percent of the lower bound on networks' graphs.
    """
    wanted = list(requests)
    regions: dict[Hashable, list[int]] = {}
    for number, request in enumerate(wanted):
        regions.setdefault(request.region, []).append(number)
    offsets, total = [0] * len(wanted), 0
    for members in regions.values():
        starts, size = _plan_region([wanted[number] for number in members])
        for number, start in zip(members, starts, strict=True):
            offsets[number] = total + start
        total += size
    return offsets, total


def _plan_region(wanted: list[Lifetime]) -> tuple[list[int], int]:
    offsets = [0] * len(wanted)
    placed = _Placed()
    total = 0
    for number in sorted(range(len(wanted)), key=lambda n: (-wanted[n].bytes, wanted[n].first)):
        request, size = wanted[number], align(wanted[number].bytes)
        start = 0
        for low, high in placed.met_by(request):
            if low - start >= size:
                break
            start = max(start, high)
        offsets[number] = start
        placed.add(request, start, start + size)
        total = max(total, start + size)
    return offsets, total


class _Placed:
    """Requests that have their place. Most live for a few levels. Those are found by level, neighbours as one, so that
    a plan for thousands takes no time for each pair of them."""

    def __init__(self) -> None:
        self._short: dict[int, list[tuple[int, int]]] = {}
        """By each of their levels: begin and end, sorted, with gaps between them."""
        self._all: list[tuple[int, int, int, int]] = []
        self._long: list[tuple[int, int, int, int]] = []
        """Begin, end, first and last level, sorted."""

    def add(self, request: Lifetime, begin: int, end: int) -> None:
        first, last = request.first, request.last
        if last - first < _SHORT:
            for level in range(first, last + 1):
                _fill(self._short.setdefault(level, []), begin, end)
        else:
            insort(self._long, (begin, end, first, last))
        insort(self._all, (begin, end, first, last))

    def met_by(self, request: Lifetime) -> Iterable[tuple[int, int]]:
        """Begin and end of those that live when the request does, or of neighbours among these, sorted."""
        first, last = request.first, request.last
        is_short = last - first < _SHORT
        met = ((low, high) for low, high, from_level, to_level in (self._long if is_short else self._all)
               if from_level <= last and first <= to_level)
        if not is_short:
            return met
        return sorted({*met, *(each for level in range(first, last + 1) for each in self._short.get(level, ()))})


def _fill(taken: list[tuple[int, int]], begin: int, end: int) -> None:
    """Add what lies in a gap, or at an end."""
    at = bisect_left(taken, (begin, end))
    if at < len(taken) and taken[at][0] == end:
        _, end = taken.pop(at)
    if at and taken[at - 1][1] == begin:
        at -= 1
        begin, _ = taken.pop(at)
    taken.insert(at, (begin, end))


_SHORT = 8
"""Levels."""


def peak(requests: Iterable[Lifetime]) -> int:
    """The most bytes alive at one level: no plan can be smaller."""
    changes: dict[int, int] = {}
    for request in requests:
        changes[request.first] = changes.get(request.first, 0) + align(request.bytes)
        changes[request.last + 1] = changes.get(request.last + 1, 0) - align(request.bytes)
    alive = most = 0
    for level in sorted(changes):
        alive += changes[level]
        most = max(most, alive)
    return most
