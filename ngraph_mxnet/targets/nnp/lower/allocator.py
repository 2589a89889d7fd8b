"""Offsets in the device's memories, given out in program order.

Lowering allocates where a buffer is first written and frees after its last reader, so a memory's free list at that
point of the program is what the device has free when the instruction runs. An engine's memory rotates: what was freed
last is given out last, as an instruction that writes bytes just read would wait for their reader.
"""

from __future__ import annotations

from ngraph_mxnet.errors import NGraphError

ALIGNMENT = 64
"""Bytes; a buffer begins at a multiple of it."""


class DeviceMemoryError(NGraphError):
    """What a node needs at once is more than the device has; the text names the node and the sizes."""


class Allocator:
    """The free bytes of one memory of `size` bytes. `peak` is the end of the highest buffer that there was."""

    def __init__(self, name: str, size: int, *, rotating: bool = False) -> None:
        self.name = name
        self.size = size
        self.rotating = rotating
        self.peak = 0
        self._free: list[tuple[int, int]] = [(0, size)] if size > 0 else []  # (begin, end), ascending, never adjacent
        self._used: dict[int, int] = {}
        self._next = 0

    @property
    def used(self) -> int:
        return sum(self._used.values())

    @property
    def largest(self) -> int:
        """Bytes of the largest gap."""
        return max((end - begin for begin, end in self._free), default=0)

    def allocate(self, size: int) -> int | None:
        """The offset of `size` bytes, None where no gap is large enough: the first gap, if `rotating` the first
        behind what was given out last.
        """
        size = padded(size)
        gaps = list(enumerate(self._free))
        behind = [(at, (max(begin, self._next), end)) for at, (begin, end) in gaps if end > self._next]
        for position, (start, end) in (behind if self.rotating else []) + gaps:
            if end - start >= size:
                begin, end = self._free[position]
                rest = ((begin, start), (start + size, end))
                self._free[position : position + 1] = [gap for gap in rest if gap[0] < gap[1]]
                self._used[start] = size
                self._next = start + size
                self.peak = max(self.peak, start + size)
                return start
        return None

    def free(self, offset: int) -> None:
        """Give back what `allocate` gave.

        Raises:
            KeyError: nothing in use begins there.
        """
        begin, end = offset, offset + self._used.pop(offset)
        kept = []
        for gap in self._free:
            if gap[1] == begin:
                begin = gap[0]
            elif gap[0] == end:
                end = gap[1]
            else:
                kept.append(gap)
        self._free = sorted([*kept, (begin, end)])

    def copy(self) -> Allocator:
        """A copy; what happens to one of the two does not change the other."""
        twin = Allocator(self.name, self.size, rotating=self.rotating)
        twin.peak, twin._next = self.peak, self._next
        twin._free, twin._used = list(self._free), dict(self._used)
        return twin


def padded(size: int) -> int:
    """The bytes that a buffer of `size` bytes takes: at least one unit of alignment."""
    return max(-(-size // ALIGNMENT), 1) * ALIGNMENT
