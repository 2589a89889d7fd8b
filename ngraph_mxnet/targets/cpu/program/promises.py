"""The proofs about a Program while lowering emits it. Plans promise, and this module holds the promises to what
instructions do.

For each instruction, of the views that it reads and writes:

* An instruction of this Program has written what is read, or, of the prepared buffer, one of the Program before. Who is
  named as a view's writer wrote to the view's memory.
* The reader waits for all that wrote any byte of it, and for the border around it where the kernel reads that, too.
* It lies where it was written, in elements of the size that was written.
* What writes over something waits for who wrote and who read that, but for writers whose views share their writers.

`require_types` holds the element types of views to those that the kernel reads and stores, `require_room` what it
touches to their buffers. Sizes that are symbols count as they are at hand, and no question is asked of them. What is
not as promised is a `BrokenPromiseError`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ngraph_mxnet.base.errors import BrokenPromiseError
from ngraph_mxnet.ir.sizes import UnknownSize, at_hand, is_zero
from ngraph_mxnet.ir.types import ElementType
from ngraph_mxnet.targets.cpu.microkernels.params import CONTRACTIONS, Offsets
from ngraph_mxnet.targets.cpu.microkernels.tables import TableRecipe
from ngraph_mxnet.targets.cpu.params.record import SLACK, Kernels
from ngraph_mxnet.targets.cpu.params.strided import ELEMENT_BYTES
from ngraph_mxnet.targets.cpu.planning.view import BLOCK, BlockedView, PlainView, View, blocks_of, images_of, spatial
from ngraph_mxnet.targets.cpu.program.instruction import Buffer, Instruction, Space

_GIVEN = (Space.INPUT, Space.CONSTANT)
_OF_CALLERS = (Space.INPUT, Space.OUTPUT)
_MOST_WORK = 10_000
"""Steps in which two regions must be told apart, else they count as overlapping."""


class _Region(NamedTuple):
    """Bytes of a buffer: from `first` to one before `last`; of these at each place of `shape` by `strides` from `start`
    the first `run`."""

    first: int
    last: int
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    run: int
    bytes: int
    """The number of bytes at different places."""

    def covers(self, other: _Region) -> bool:
        """True if all bytes of the other region are known to be in this one. False proves nothing."""
        if self.first > other.first or other.last > self.last:
            return False
        return self.bytes == self.last - self.first or self == other

    def meets(self, other: _Region) -> bool:
        """True if the two regions share a byte, or if that is too hard to tell."""
        if self.last <= other.first or other.last <= self.first:
            return False
        if self.covers(other) or other.covers(self):
            return True
        if self.strides == other.strides and len(self.shape) == 4 and self.run == other.run:
            apart = self._blocks_to(other)
            if apart is not None:
                return -other.shape[1] < apart < self.shape[1]
        memory = np.empty(max(self.last, other.last), np.uint8)
        try:
            return np.shares_memory(self._seen(memory), other._seen(memory), _MOST_WORK)
        except (RuntimeError, ValueError):  # too hard; or what NumPy has no array for
            return True

    def _blocks_to(self, other: _Region) -> int | None:
        """Return how many blocks the other's first block is behind this one's first. Return None unless both are parts
        of one blocked tensor that differ in their blocks of channels alone."""
        mine, its, block, between = self.shape, other.shape, self.strides[1], other.start - self.start
        if mine[0] != its[0] or mine[2:] != its[2:] or between % block:
            return None
        apart = between // block
        within = (max(mine[1], apart + its[1]) - min(apart, 0)) * block <= self.strides[0]
        return apart if within or mine[0] == 1 else None

    def _seen(self, memory: np.ndarray) -> np.ndarray:
        return np.ndarray((*self.shape, self.run), np.uint8, memory, self.start, (*self.strides, 1))


def _region(view: View) -> _Region | None:
    """Return where the view is in its buffer. Return None where a loop's index says it, or where the view's type is
    that of the whole of which it is a part."""
    size, shape = view.type.element.size, view.type.shape
    counts: tuple[int, ...]
    steps: tuple[int, ...]
    if isinstance(view, BlockedView):
        counts, run = (images_of(shape), blocks_of(shape), *spatial(shape)), BLOCK * size
        steps = (view.image, view.block, view.row, view.pixel)
    elif isinstance(view, PlainView):
        counts, steps, run = shape, view.strides, size
    else:
        counts, steps, run = (), (), 0
    start, whole = view.offset, view.buffer.bytes
    if not {int}.issuperset(map(type, (start, whole, *counts, *steps))):
        try:
            start, whole = at_hand(start), at_hand(whole)
            counts, steps = tuple(map(at_hand, counts)), tuple(map(at_hand, steps))
        except UnknownSize:
            return None
    strides = tuple([step * size for step in steps])
    if 0 in counts:
        return _Region(start, start, start, (0,), (0,), 0, 0)
    run = run or whole - start
    first, last, places = start, start + run, run
    for count, stride in zip(counts, strides, strict=True):
        if stride:
            places *= count
            if stride > 0:
                last += (count - 1) * stride
            else:
                first += (count - 1) * stride
    return _Region(first, last, start, counts, strides, run, places) if first >= 0 and last <= whole else None


_FIRST = itemgetter(0)
_Use = tuple[Instruction, View]
"""An instruction's of a view."""


class _Memory:
    """The record of what instructions did with a buffer, the latest last. `view` is what was written last. `alike`: all
    that was written shares its writers. Otherwise `ends` holds the first and the last byte of what is written. `gone`:
    the writers of what others have written over. Most buffers have nothing but a view that is written and read."""

    border: tuple[Instruction, ...] = ()
    alike = True
    ends: tuple[float, float] = (0, 0)
    gone: frozenset[Instruction] = frozenset()

    def __init__(self, view: View | None, writes: list[_Use]) -> None:
        self.view, self.writes = view, writes
        self.reads: list[_Use] = []


class Promises:
    """The promises of one Program. `before`: the promises of the Program whose results are the prepared buffer."""

    def __init__(self, before: Promises | None = None) -> None:
        self._before = before
        self._memory: dict[Buffer, _Memory] = {}
        self._places: dict[Instruction, int] = {}
        self._regions: dict[View, _Region | None] = {}

    def emitted(self, instruction: Instruction, reads: Sequence[View], writes: Sequence[View],
                around: Collection[View] = ()) -> None:
        """The instruction, which knows by now what it waits for, reads and writes these views.

        Args:
            around: those of which it reads the border, too, or writes the border alone.

        Raises:
            BrokenPromiseError: what it reads was not written so, or it may run too soon.
        """
        self._places[instruction], found = len(self._places), self._memory
        for view in reads:
            if view.buffer.space in _GIVEN:
                continue
            memory = found.get(view.buffer)
            written = memory.view if memory is not None else None
            if memory is None or written is None or memory.border or not memory.alike or (
                    written is not view and (written.writers is not view.writers
                                             or written.type.element is not view.type.element)):
                self._read(instruction, view, bool(around) and any(each is view for each in around))
            else:  # as mostly
                memory.reads.append((instruction, view))
        for view in writes:
            memory = found.get(view.buffer)
            if around and any(each is view for each in around):
                if memory is None:
                    memory = found[view.buffer] = _Memory(None, [])
                memory.border += (instruction,)
                continue
            if memory is None:
                found[view.buffer] = _Memory(view, [(instruction, view)])
                continue
            if memory.view is not None and memory.view.writers is not view.writers:
                self._written_over(instruction, view, memory)
            memory.view = view
            memory.writes.append((instruction, view))

    def close(self) -> None:
        """Forget the instructions: all are emitted."""
        self._memory.clear()
        self._places.clear()
        self._regions.clear()

    def require_written(self, view: View, what: str) -> None:
        """That what a result is, or a part of what is joined, was written where it lies."""
        if view.buffer.space not in _GIVEN:
            self._read(None, view, False, what)

    def _read(self, reader: Instruction | None, view: View, around: bool, what: str = "") -> None:
        memory = self._memory.get(view.buffer)
        if memory is None:
            if self._before is not None and view.buffer in self._before._memory:
                return
            if not any(map(is_zero, view.type.shape)):
                raise _broken(reader, what, view, _UNWRITTEN)
            return
        if memory.view is not view:
            self._require_place(reader, view, memory, what)
        if around and reader is not None:
            for border in self._missing(reader, memory.border):
                raise _broken(reader, what, view, f"and does not wait for {_name(border)}, which writes its border")
        if reader is not None:
            memory.reads.append((reader, view))

    def _require_place(self, reader: Instruction | None, view: View, memory: _Memory, what: str) -> None:
        """That the view was written, in elements of its size, and by whom it says."""
        written = memory.view
        if written is None:
            raise _broken(reader, what, view, _UNWRITTEN)
        if _differ(view.type.element, written.type.element):
            last, _ = memory.writes[-1]
            raise _broken(reader, what, view, f"which {_name(last)} stores as {written.type.element}")
        if memory.alike and written.writers is view.writers:
            return
        own, count, found = self._region(view), 0, []
        for instruction, place in reversed(memory.writes):
            region = self._region(place)
            if own is None or region is None:
                found.append(instruction)
                own = None
            elif region.meets(own):
                found.append(instruction)
                count += region.bytes
                if region.covers(own):
                    count = own.bytes
                    break
        if not found or (own is not None and count < own.bytes):
            raise _broken(reader, what, view, "of which only a part is written" if found else _UNWRITTEN)
        strangers = set(view.writers).difference(found)
        for writer in strangers.difference(map(_FIRST, memory.writes), memory.border, memory.gone):
            raise _broken(reader, what, view, f"made by {_name(writer)}, which writes elsewhere")
        for writer in (self._missing(reader, found) if reader is not None else set(found).difference(view.writers)):
            raise _broken(reader, what, view, f"and does not wait for {_name(writer)}, which writes there")

    def _written_over(self, writer: Instruction, view: View, memory: _Memory) -> None:
        """That what writes there, beside others that do, waits for who uses what it writes over."""
        own = self._region(view)
        if memory.alike:
            memory.alike, memory.ends = False, _ends(self._region(place) for _, place in memory.writes)
        first, last = memory.ends
        memory.ends = _ends((own,), memory.ends)
        if own is not None and (own.last <= first or last <= own.first):
            return
        at = [(instruction, self._region(place)) for instruction, place in (*memory.writes, *memory.reads)]
        met = [instruction for instruction, region in at
               if instruction is not writer and (own is None or region is None or own.meets(region))]
        for each in self._missing(writer, met):
            raise BrokenPromiseError(f"{_name(writer)} writes {_text(view)} and does not wait for {_name(each)}, which "
                                     f"uses that. {DEFECT}")
        if own is not None:
            memory.gone |= set(map(_FIRST, memory.writes))
            memory.writes, memory.reads = ([use for use in found if not self._is_covered(use, own)]
                                           for found in (memory.writes, memory.reads))
            memory.alike = not memory.writes

    def _is_covered(self, use: _Use, own: _Region) -> bool:
        region = self._region(use[1])
        return region is not None and own.covers(region)

    def _region(self, view: View) -> _Region | None:
        """See the function; asked once."""
        if view not in self._regions:
            self._regions[view] = _region(view)
        return self._regions[view]

    def _missing(self, reader: Instruction, wanted: Iterable[Instruction]) -> list[Instruction]:
        """Return the instructions of `wanted` that may still run when the reader does."""
        left = set(wanted).difference(reader.waits, (reader,))
        if not left:
            return []
        least = min(self._places[each] for each in left)
        seen, stack = set(reader.waits), list(reader.waits)
        while stack and left:
            each = stack.pop()
            if self._places.get(each, -1) <= least:
                continue
            fresh = set(each.waits) - seen
            seen |= fresh
            left -= fresh
            stack += fresh
        return sorted(left, key=self._places.__getitem__)


def require_types(kernel: str, elements: Mapping[str, str], views: Mapping[str, View], origin: str) -> None:
    """That a kernel reads and stores elements of the types that the views of its operands have.

    Args:
        elements: what the kernel's record tells of its operands.

    Raises:
        BrokenPromiseError: it does not.
    """
    for operand, wanted in elements.items():
        view = views.get(operand)
        if view is None or view.type.element.name == wanted:
            continue
        found = view.type.element
        alike = ELEMENT_BYTES[wanted] == found.size and (wanted in _ANY or not {wanted, found.name} & _EXACT)
        if not alike and view.buffer.space is not Space.CONSTANT:
            raise BrokenPromiseError(f"{origin}: the operand {operand} of the kernel {kernel} is {wanted}, and was "
                                     f"planned as {found}. {DEFECT}")


def require_room(kernel: str, record: Kernels, ints: Sequence[Any], views: Mapping[str, View],
                 constants: Sequence[Any], origin: str) -> None:
    """That what a kernel touches lies in the buffers of its operands.

    Args:
        ints: the numbers of the call.
        constants: those of the Program, by index.

    Raises:
        BrokenPromiseError: it does not.
    """

    def table(operand: str, count: int) -> Offsets:
        held = constants[views[operand].buffer.index]
        if isinstance(held, TableRecipe):
            raise UnknownSize
        return Offsets(held.reshape(-1).view(np.int32))

    try:
        numbers = ints if {int}.issuperset(map(type, ints)) else [at_hand(each) for each in ints]
        if min(numbers[:record.sizes], default=1) < 1:  # nothing is touched
            return
        told = (CONTRACTIONS[kernel], table) if kernel in CONTRACTIONS else record.element_bytes[kernel]
        for operand, first, last in record.reach(record.read(numbers), told):
            view = views.get(operand)
            if view is None or first >= last or any(map(is_zero, view.type.shape)):
                continue
            start, whole = at_hand(view.offset), at_hand(view.buffer.bytes)
            room = whole + (0 if view.buffer.space in _OF_CALLERS else SLACK)
            if start + first < 0 or start + last > room:
                raise BrokenPromiseError(f"{origin}: the kernel {kernel} touches bytes {start + first} to "
                                         f"{start + last} of the operand {operand}, which has {whole}. {DEFECT}")
    except UnknownSize:
        return
    except ValueError as error:
        raise BrokenPromiseError(f"{origin}: the kernel {kernel}: {error}. {DEFECT}") from error


_EXACT = frozenset({"bf16", "f16", "f32", "u8"})
_ANY = frozenset({"b1", "b2", "b4", "b8"})


DEFECT = "This is a defect of ngraph_mxnet, not of the model: please report it"


_UNWRITTEN = "where no kernel of this program has written"


def _broken(reader: Instruction | None, what: str, view: View, why: str) -> BrokenPromiseError:
    return BrokenPromiseError(f"{_name(reader) if reader is not None else what} reads {_text(view)}, {why}. {DEFECT}")


def _name(instruction: Instruction) -> str:
    return f"{instruction.name} of {instruction.origin or 'no node'}"


def _text(view: View) -> str:
    return f"{view.type} in a buffer of {view.buffer.bytes} bytes from byte {view.offset} on"


def _differ(a: ElementType, b: ElementType) -> bool:
    return a is not b and (a.size != b.size or "bf16" in (a.name, b.name))


def _ends(regions: Iterable[_Region | None], of_others: tuple[float, float] = (inf, -inf)) -> tuple[float, float]:
    """The first byte of any of them, and one past the last."""
    first, last = of_others
    for region in regions:
        first, last = (0, inf) if region is None else (min(first, region.first), max(last, region.last))
    return first, last
