"""How many bytes of each memory are in use at a time: those of buffers between their first and last access."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngraph_mxnet.errors import NGraphError
from ngraph_mxnet.targets.nnp.device import Device
from ngraph_mxnet.targets.nnp.isa.program import Buffer, Program


class _Level:
    """One memory, cut where buffers begin and end; `used` counts the live buffers in each piece."""

    def __init__(self, size: int, buffers: Sequence[Buffer]) -> None:
        self.size = size
        self.cuts = np.unique([edge for buffer in buffers for edge in (buffer.offset, buffer.end)])
        self.pieces = np.diff(self.cuts)
        self.used = np.zeros(len(self.pieces), np.int32)
        self.bytes = self.most = 0

    def add(self, low: int, high: int) -> None:
        """The pieces from `low` to `high` hold one more live buffer."""
        part = self.used[low:high]
        self.bytes += int(self.pieces[low:high].dot(part == 0))
        part += 1
        self.most = max(self.most, self.bytes)

    def remove(self, low: int, high: int) -> None:
        """They hold one fewer."""
        part = self.used[low:high]
        part -= 1
        self.bytes -= int(self.pieces[low:high].dot(part == 0))


class Occupancy:
    """Follows a program's instructions as they begin and end. Bytes that live buffers share count once.

    Inputs and constants live from the beginning, outputs to the end.
    """

    def __init__(self, program: Program, device: Device) -> None:
        for name, size in program.sizes.items():
            if size > device.memory(name).size:
                raise NGraphError(f"{program.name} needs {size} bytes of {name}, {device.name} has "
                                  f"{device.memory(name).size}")
        places: dict[Buffer, int] = {}
        by_object: dict[int, int] = {}  # hashing a buffer is slow, and there are many tiles of each

        def place(buffer: Buffer) -> int:
            found = by_object.get(id(buffer))
            if found is None:
                found = by_object[id(buffer)] = places.setdefault(buffer, len(places))
            return found

        self._instructions = [{place(tile.buffer) for tile in (*instruction.writes, *instruction.reads)}
                              for instruction in program.instructions]
        first = {place(buffer) for buffer in (*program.inputs, *program.constants)}
        last = {place(buffer) for buffer in program.outputs}
        self._buffers = list(places)
        self._left = [int(number in last) for number in range(len(places))]  # outputs have one access that never ends
        for touched in self._instructions:
            for number in touched:
                self._left[number] += 1
        by_memory: dict[str, list[Buffer]] = {}
        for buffer in self._buffers:
            by_memory.setdefault(buffer.memory, []).append(buffer)
        self._levels = {name: _Level(device.memory(name).size, buffers) for name, buffers in by_memory.items()}
        self._spans: list[tuple[_Level, int, int]] = []
        for buffer in self._buffers:
            level = self._levels[buffer.memory]
            low, high = np.searchsorted(level.cuts, (buffer.offset, buffer.end)).tolist()
            self._spans.append((level, low, high))
        self._live = [False] * len(places)
        for number in sorted(first):
            self._add(number, "before the first instruction")

    @property
    def most(self) -> dict[str, int]:
        """The most bytes of each memory that were in use at once."""
        return {name: level.most for name, level in self._levels.items()}

    def begin(self, number: int) -> None:
        """Instruction `number` begins.

        Raises:
            NGraphError: more bytes of a memory are in use than it has.
        """
        for place in self._instructions[number]:
            if not self._live[place]:
                self._add(place, f"at instruction {number}")

    def end(self, number: int) -> None:
        """Instruction `number` has ended."""
        for place in self._instructions[number]:
            self._left[place] -= 1
            if not self._left[place]:
                self._live[place] = False
                level, low, high = self._spans[place]
                level.remove(low, high)

    def _add(self, place: int, when: str) -> None:
        buffer, (level, low, high) = self._buffers[place], self._spans[place]
        self._live[place] = True
        level.add(low, high)
        if level.bytes > level.size or buffer.end > level.size or buffer.offset < 0:
            raise NGraphError(f"{when}: buffer {buffer.name} at bytes {buffer.offset} to {buffer.end} brings "
                              f"{buffer.memory} to {level.bytes} bytes in use, of {level.size}")
