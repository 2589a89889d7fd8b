"""Which instructions must have ended before another begins, from the bytes that they read and write.

`order` fills in `after`, near-linear in the number of instructions.

Two tiles of one buffer conflict where their boxes overlap. Between buffers of one memory the spans from first to
last byte are compared, which is never too little.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field, replace

import numpy as np

from ngraph_mxnet.targets.nnp.access import Box
from ngraph_mxnet.targets.nnp.program import ELEMENT_BYTES, Buffer, Instruction, Program, Tile


@dataclass(slots=True)
class _Access:
    """That instruction `index` read or wrote `tile`, `box` of its buffer: bytes `low` to `high` of its memory."""

    index: int
    tile: Tile
    box: Box
    low: int
    high: int


@dataclass(eq=False, slots=True)
class _Accesses:
    """The accesses to a buffer that a later instruction may have to wait for; `others` share bytes with the buffer."""

    buffer: Buffer
    writes: list[_Access] = field(default_factory=list)
    reads: dict[tuple[Box, str], _Access] = field(default_factory=dict)  # the last of each box by each unit
    others: dict[_Accesses, None] = field(default_factory=dict)

    def drop_contained(self, by: _Access) -> None:
        low, high = by.low, by.high
        self.writes = [a for a in self.writes if a.low < low or a.high > high or not by.box.contains(a.box)]
        hidden = [key for key, a in self.reads.items() if a.low >= low and a.high <= high and by.box.contains(a.box)]
        for key in hidden:
            del self.reads[key]

    def drop_spanned(self, low: int, high: int, before: int) -> None:
        def stays(access: _Access) -> bool:
            return access.index >= before or access.low < low or access.high > high

        self.writes = [access for access in self.writes if stays(access)]
        self.reads = {key: access for key, access in self.reads.items() if stays(access)}

    def covered_since(self) -> int | None:
        """The first of the instructions that together wrote every element; None where disjoint boxes don't do so."""
        if sum(access.tile.size for access in self.writes) != self.buffer.size:
            return None
        if any(a.box.overlaps(b.box) for place, a in enumerate(self.writes) for b in self.writes[:place]):
            return None
        return min(access.index for access in self.writes)


class _Memory:
    def __init__(self) -> None:
        self._accesses: dict[Buffer, _Accesses] = {}
        self._spans: list[tuple[int, int, int, _Accesses]] = []  # first byte, a number, byte behind, whose
        self._longest = 0
        self._count = 0

    def of(self, buffer: Buffer) -> _Accesses:
        """The accesses to `buffer`, linked with those to buffers that share bytes with it."""
        found = self._accesses.get(buffer)
        if found is None:
            found = self._accesses[buffer] = _Accesses(buffer)
            low, high = buffer.offset, buffer.end
            start, stop = bisect_left(self._spans, (low - self._longest,)), bisect_left(self._spans, (high,))
            for _, _, end, other in self._spans[start:stop]:
                if end > low:
                    found.others[other] = other.others[found] = None
            self._count += 1  # no two numbers are equal, so that no accesses are compared
            insort(self._spans, (low, self._count, high, found))
            self._longest = max(self._longest, high - low)
        return found

    def forget(self, own: _Accesses) -> None:
        del self._accesses[own.buffer]
        for other in own.others:
            del other.others[own]
        place = bisect_left(self._spans, (own.buffer.offset,))
        while self._spans[place][3] is not own:
            place += 1
        del self._spans[place]

    def conflicts(self, access: _Access, writes: bool) -> list[int]:
        """The instructions that must have ended before `access`, which writes or only reads."""
        own = self._accesses[access.tile.buffer]
        low, high = access.low, access.high
        found: list[_Access] = []
        for each in (own, *own.others):
            near = [earlier for earlier in each.writes if earlier.low < high and low < earlier.high]
            if writes:
                near += [earlier for earlier in each.reads.values() if earlier.low < high and low < earlier.high]
            found += [earlier for earlier in near if earlier.box.overlaps(access.box)] if each is own else near
        return [earlier.index for earlier in found]

    def add_write(self, access: _Access) -> None:
        """Note a write, and forget the accesses that it makes superfluous: an instruction that would conflict with one
        of them conflicts also with this write, or with one after it."""
        own = self._accesses[access.tile.buffer]
        own.drop_contained(access)
        own.writes.append(access)
        if not own.others:
            return
        if access.high - access.low == access.tile.bytes:
            low, high, before = access.low, access.high, access.index
        else:
            since = own.covered_since()
            if since is None:
                return
            low, high, before = own.buffer.offset, own.buffer.end, since
        for other in list(own.others):
            other.drop_spanned(low, high, before)
            if not other.writes and not other.reads:
                self.forget(other)


def order(program: Program) -> Program:
    """Fill `after` of every instruction so that none begins before those that it conflicts with have ended.

    What `after` holds already is kept; what follows from the order within units or from other entries is left out.
    """
    units = {unit: place for place, unit in enumerate(dict.fromkeys(i.unit for i in program.instructions))}
    lane = [units[instruction.unit] for instruction in program.instructions]
    clocks = np.full((len(lane), len(units)), -1, np.int32)  # by unit, the last that has ended when an instruction has
    latest = [-1] * len(units)
    memories: dict[str, _Memory] = {}
    for index, instruction in enumerate(program.instructions):
        wanted = sorted({*_before(memories, index, instruction), *instruction.after}, reverse=True)
        clock, own = clocks[index], lane[index]
        if latest[own] >= 0:
            clock[:] = clocks[latest[own]]
        after = []
        for earlier in wanted:
            if clock[lane[earlier]] < earlier:
                after.append(earlier)
                np.maximum(clock, clocks[earlier], out=clock)
        clock[own] = latest[own] = index
        if tuple(after[::-1]) != instruction.after:
            program.instructions[index] = replace(instruction, after=tuple(after[::-1]))
    return program


def _before(memories: dict[str, _Memory], index: int, instruction: Instruction) -> set[int]:
    """The earlier instructions with which this one conflicts; notes what it accesses."""
    reads = [_access(index, tile) for tile in instruction.reads if tile.size]
    writes = [_access(index, tile) for tile in instruction.writes if tile.size]
    for access in (*reads, *writes):
        memories.setdefault(access.tile.memory, _Memory()).of(access.tile.buffer)
    found: set[int] = set()
    for access in reads:
        found.update(memories[access.tile.memory].conflicts(access, writes=False))
    for access in writes:
        found.update(memories[access.tile.memory].conflicts(access, writes=True))
    for access in reads:
        own = memories[access.tile.memory].of(access.tile.buffer)
        own.reads[access.box, instruction.unit] = access
    for access in writes:
        memory = memories[access.tile.memory]
        memory.of(access.tile.buffer)  # another write of this instruction may have made the memory forget it
        memory.add_write(access)
    found.discard(index)
    return found


def _access(index: int, tile: Tile) -> _Access:
    """`tile` has elements."""
    low = high = 0
    stride = ELEMENT_BYTES[tile.element]
    for begin, size, whole in zip(reversed(tile.begin), reversed(tile.shape), reversed(tile.buffer.shape), strict=True):
        low += begin * stride
        high += (begin + size - 1) * stride
        stride *= whole
    offset = tile.buffer.offset
    return _Access(index, tile, tile.box, offset + low, offset + high + ELEMENT_BYTES[tile.element])
