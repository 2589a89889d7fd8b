"""Where each value is, at each point of the program: pieces in the engines' memories, in the shared ones, or both.

What computes asks for a box of a value on an engine (`fetch`) and gets a tile of that engine's memory: of a piece that
is there already, or of a scratch buffer that DMA filled. What no longer fits is spilled to a shared memory, the piece
first whose next reader is farthest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from ngraph_mxnet.ir.graph import Value
from ngraph_mxnet.ir.types import Shape
from ngraph_mxnet.targets.nnp.isa.program import ELEMENT_BYTES, Buffer, Instruction, Tile
from ngraph_mxnet.targets.nnp.isa.program import whole as whole_tile
from ngraph_mxnet.targets.nnp.lower.allocator import Allocator, DeviceMemoryError
from ngraph_mxnet.targets.nnp.lower.boxes import Box, full
from ngraph_mxnet.targets.nnp.lower.resources import Resources

Key = tuple[str, int]
"""A storage: memory and offset of what was allocated."""


class NoRoomError(Exception):
    """An engine's memory has no gap for a buffer; smaller tiles may help."""

    def __init__(self, memory: str, size: int) -> None:
        super().__init__(f"{size} bytes in {memory}")
        self.memory, self.size = memory, size


@dataclass(frozen=True)
class Held:
    """A tile, and the storage that it keeps from being reused until `release`."""

    tile: Tile
    key: Key


@dataclass(frozen=True)
class Piece:
    """`box` of a value lies in `tile`. A `clean` piece is a copy of what other pieces hold."""

    box: Box
    tile: Tile
    key: Key
    clean: bool = False


class Places:
    """The state of all memories at the end of `code`, which it writes the copies to.

    `readers` are the numbers of the nodes that read each value, ascending; `element` says how it is stored.
    """

    def __init__(self, resources: Resources, readers: Mapping[Value, list[int]],
                 element: Callable[[Value], str]) -> None:
        self.resources = resources
        self.readers = readers
        self.element = element
        self.code: list[Instruction] = []
        self.pieces: dict[Value, tuple[Piece, ...]] = {}
        self.staged: set[Value] = set()
        self.now = -1
        self.origin = ""
        self.evicting = True
        local = [resources.local_memory(engine) for engine in resources.engines]
        self.memories = {name: Allocator(name, resources.local_bytes, rotating=True) for name in local}
        self.memories |= {name: Allocator(name, size) for name, size in resources.shared}
        self._refs: dict[Key, int] = {}
        self._names = 0

    # ---- going back ---------------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        return (len(self.code), dict(self.pieces), set(self.staged), dict(self._refs),
                {name: memory.copy() for name, memory in self.memories.items()})

    def restore(self, state: Any) -> None:
        length, pieces, staged, refs, memories = state
        del self.code[length:]
        self.pieces, self.staged, self._refs = dict(pieces), set(staged), dict(refs)
        self.memories = {name: memory.copy() for name, memory in memories.items()}

    # ---- instructions -------------------------------------------------------------------------------------

    def emit(self, unit: str, op: str, writes: Iterable[Tile], reads: Iterable[Tile],
             attrs: Mapping[str, Any] | None = None) -> None:
        self.code.append(Instruction(unit, op, tuple(writes), tuple(reads), attrs or {}, origin=self.origin))

    def copy(self, unit: str, to: Tile, of: Tile) -> None:
        if to.size:
            self.emit(unit, "copy", (to,), (of,))

    # ---- storages -----------------------------------------------------------------------------------------

    def allocate(self, memory: str, element: str, shape: Shape, name: str = "") -> tuple[Buffer, Key]:
        """A new buffer, held.

        Raises:
            NoRoomError: even after spilling what may be spilled.
        """
        size = ELEMENT_BYTES[element] * prod(shape)
        offset = self.memories[memory].allocate(size)
        while offset is None and self.evicting and self._evict(memory):
            offset = self.memories[memory].allocate(size)
        if offset is None:
            raise NoRoomError(memory, size)
        self._names += 1
        self._refs[memory, offset] = 1
        return Buffer(f"{name or 'b'}{self._names}", memory, offset, element, tuple(shape)), (memory, offset)

    def allocate_shared(self, element: str, shape: Shape, name: str = "") -> tuple[Buffer, Key]:
        """A new buffer in the nearest shared memory with room, held.

        Raises:
            DeviceMemoryError: none has.
        """
        for memory, _ in self.resources.shared:
            try:
                return self.allocate(memory, element, shape, name)
            except NoRoomError:
                pass
        size = ELEMENT_BYTES[element] * prod(shape)
        there = ", ".join(f"{self.memories[m].largest} of {n} bytes in {m}" for m, n in self.resources.shared)
        raise DeviceMemoryError(
            f"{self.origin or 'the graph'} does not fit {self.resources.device.name}: found {size} bytes to be placed, "
            f"expected at most what is free: {there}; run a smaller batch, or use another device")

    def hold(self, key: Key) -> None:
        self._refs[key] += 1

    def release(self, key: Key) -> None:
        self._refs[key] -= 1
        if not self._refs[key]:
            del self._refs[key]
            self.memories[key[0]].free(key[1])

    # ---- pieces -------------------------------------------------------------------------------------------

    def add(self, value: Value, piece: Piece) -> None:
        """Enter a piece; it takes over a hold of its storage."""
        self.pieces[value] = (*self.pieces.get(value, ()), piece)

    def alias(self, value: Value, piece: Piece) -> None:
        """Enter a piece that shares another one's storage."""
        self.hold(piece.key)
        self.add(value, piece)

    def read_later(self, value: Value) -> bool:
        """Whether a node behind the present one, or the caller, reads the value."""
        return any(number > self.now for number in self.readers.get(value, ()))

    def alone(self, key: Key, holds: int) -> bool:
        """Whether nothing has the storage but one piece and `holds` who hold it."""
        return self._refs[key] == 1 + holds

    def drop(self, value: Value) -> None:
        """Forget a value that no one reads any more."""
        for piece in self.pieces.pop(value, ()):
            self.release(piece.key)

    def owned(self, value: Value) -> list[Piece]:
        """The pieces that together are the value, each element once."""
        return [piece for piece in self.pieces.get(value, ()) if not piece.clean]

    def local(self, value: Value, box: Box, engine: str) -> Piece | None:
        """The piece in the engine's memory that has all of `box`."""
        memory = self.resources.local_memory(engine)
        for piece in self.pieces.get(value, ()):
            if piece.tile.buffer.memory == memory and piece.box.contains(box):
                return piece
        return None

    def fetch(self, value: Value, box: Box, engine: str) -> Held:
        """`box` in the engine's memory, held. What had to be brought there stays for the value's later readers."""
        piece = self.local(value, box, engine)
        if piece is not None:
            self.hold(piece.key)
            return Held(part_of(piece, box), piece.key)
        buffer, key = self.allocate(self.resources.local_memory(engine), self.element(value), box.shape, "t")
        tile = whole_tile(buffer)
        self.gather(value, box, tile, self.resources.load_unit(engine))
        return Held(tile, key)

    def gather(self, value: Value, box: Box, tile: Tile, unit: str) -> None:
        """Copy `box` of the value into `tile`, which has its shape."""
        nearest = self.resources.shared[0][0]
        near = [p for p in self.pieces.get(value, ()) if p.tile.memory == nearest and p.box.contains(box)]
        for piece in near[:1] or self.owned(value):
            common = piece.box.meet(box)
            if common is not None:
                at = common.shifted(box.begin)
                begin = tuple(a + b for a, b in zip(tile.begin, at.begin, strict=True))
                self.copy(unit, Tile(tile.buffer, begin, at.shape), part_of(piece, common))

    def stage(self, value: Value, box: Box, unit: str) -> None:
        """Bring `box` of a value in a far shared memory to the nearest one, for several engines; until `unstage`.

        Nothing happens where there is no such memory, or no room in it.
        """
        (nearest, _), *others = self.resources.shared
        if not others or any(p.tile.memory == nearest and p.box.contains(box) for p in self.pieces[value]):
            return
        try:
            buffer, key = self.allocate(nearest, self.element(value), box.shape, "n")
        except NoRoomError:
            return
        self.gather(value, box, whole_tile(buffer), unit)
        self.add(value, Piece(box, whole_tile(buffer), key, clean=True))
        self.staged.add(value)

    def unstage(self) -> None:
        """Forget what `stage` has brought."""
        for value in self.staged:
            for piece in self.pieces[value]:
                if piece.clean:
                    self.release(piece.key)
            self.pieces[value] = tuple(piece for piece in self.pieces[value] if not piece.clean)
        self.staged.clear()

    def together(self, value: Value) -> Piece:
        """The value as one piece, made in a shared memory where it is not yet."""
        whole = full(value.shape)
        for piece in self.pieces.get(value, ()):
            if piece.box == whole:
                return piece
        buffer, key = self.allocate_shared(self.element(value), value.shape, "w")
        tile = whole_tile(buffer)
        self.gather(value, whole, tile, self.resources.store_unit(self.resources.engines[0]))
        for piece in self.pieces.pop(value, ()):
            self.release(piece.key)
        made = Piece(whole, tile, key)
        self.add(value, made)
        return made

    # ---- spilling -----------------------------------------------------------------------------------------

    def _evict(self, memory: str) -> bool:
        """Spill one storage of an engine's memory; False if all are held."""
        if memory in dict(self.resources.shared):
            return False
        found: dict[Key, list[tuple[Value, Piece]]] = {}
        for value, pieces in self.pieces.items():
            for piece in pieces:
                if piece.key[0] == memory:
                    found.setdefault(piece.key, []).append((value, piece))
        free = {key: pieces for key, pieces in found.items() if len(pieces) == self._refs[key]}
        if not free:
            return False
        key = max(free, key=lambda key: (all(p.clean for _, p in free[key]), min(map(self._next_reader, free[key])),
                                         key))
        self._spill(key, free[key])
        return True

    def _next_reader(self, owned: tuple[Value, Piece]) -> int:
        """The number of the node that reads the value next; a large one if none does."""
        readers = self.readers.get(owned[0], [])
        at = bisect_left(readers, self.now)
        return readers[at] if at < len(readers) else 1 << 60

    def _spill(self, key: Key, pieces: list[tuple[Value, Piece]]) -> None:
        """Move all pieces of a storage, which these are, to a shared memory."""
        moved: dict[Buffer, tuple[Buffer, Key]] = {}
        engine = key[0].split(".")[0]
        for value, piece in pieces:
            kept = [p for p in self.pieces[value] if p is not piece]
            if not piece.clean:
                buffer = piece.tile.buffer
                if buffer not in moved:
                    moved[buffer] = self.allocate_shared(buffer.element, buffer.shape, "s")
                    box = full(buffer.shape)
                    self.copy(self.resources.store_unit(engine), Tile(moved[buffer][0], *box), Tile(buffer, *box))
                else:
                    self.hold(moved[buffer][1])
                kept.append(Piece(piece.box, Tile(moved[buffer][0], piece.tile.begin, piece.tile.shape),
                                  moved[buffer][1]))
            self.pieces[value] = tuple(kept)
            self.release(key)


def part_of(piece: Piece, box: Box) -> Tile:
    """The tile of `box`, which the piece has."""
    at = box.shifted(piece.box.begin)
    begin = tuple(a + b for a, b in zip(piece.tile.begin, at.begin, strict=True))
    return Tile(piece.tile.buffer, begin, at.shape)
