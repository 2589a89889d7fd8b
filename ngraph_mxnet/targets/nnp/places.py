"""Offsets in the device's memories, given out in program order; and values that are others' pieces.

Lowering allocates where a buffer is first written and frees after its last reader, so a memory's free list at that
point of the program is what the device has free when the instruction runs. An engine's memory rotates: what was freed
last is given out last, as an instruction that writes bytes just read would wait for their reader.
A view is others' pieces under another shape or at another place: no instruction computes it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from ngraph_mxnet.base.errors import NGraphError
from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.types import Shape
from ngraph_mxnet.targets.nnp.access import Box, full
from ngraph_mxnet.targets.nnp.device import SHARED, Device
from ngraph_mxnet.targets.nnp.program import ELEMENT_BYTES, Buffer, Instruction, Tile, whole
from ngraph_mxnet.targets.nnp.program import whole as whole_tile
from ngraph_mxnet.targets.nnp.quantization import Quantization

ALIGNMENT = 64
"""Bytes; a buffer begins at a multiple of it."""


class DeviceMemoryError(NGraphError):
    """An error: a node needs more memory at once than the device has. The text names the node and the sizes."""


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

    def rewind(self) -> None:
        """Look for gaps from the first byte on again."""
        self._next = 0

    def free(self, offset: int) -> None:
        """Give back what `allocate` gave. Raises KeyError: nothing in use begins there."""
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


def _guess(usual: Any, unit: str, meaning: str, *others: Any) -> Any:
    """A field; `others` are the values that a study of sensitivity takes in its place."""
    return field(default=usual, metadata={"unit": unit, "meaning": meaning, "others": others})


@dataclass(frozen=True)
class Guesses:
    """Assumptions of lowering. No result depends on the assumptions, but the simulated time does."""

    engine_seconds: float = _guess(
        2e-6, "s", "lowering.py: what it costs to spread a node over all engines; over half of them, half. Small "
        "nodes stay on few", 1e-6, 4e-6)
    tile_seconds: float = _guess(
        5e-7, "s", "lowering.py: what a tile costs beside its bytes, to start its copies and instructions", 2.5e-7,
        1e-6)
    tile_shares: tuple[float, ...] = _guess(
        (0.85, 0.6, 0.4, 0.2), "of the engine's free memory", "lowering.py: what tiles may take, two of each stream "
        "at once; tried in turn, as gaps may be in the way of larger ones", (0.425, 0.3, 0.2, 0.1),
        (0.95, 0.6, 0.4, 0.2))
    last_share: float = _guess(
        0.95, "of the engine's free memory", "lowering.py: the same where nothing else fits, with one tile of each "
        "stream", 0.475, 1.0)
    result_share: float = _guess(
        0.7, "of the engine's free memory", "lowering.py: the largest result that stays there while its tiles' "
        "operands come and go", 0.35, 0.95)
    shared_elements: int = _guess(
        4096, "elements", "lowering.py: the smallest weight in DRAM of which a copy in the LLC serves several engines",
        2048, 8192)
    pieces: int = _guess(
        16, "pieces", "places.py: into how many a piece may fall by a reshape; beyond, the value is put together first",
        8, 32)


@dataclass(frozen=True)
class Resources:
    """`engines` are prefixes of units and memories, such as `ice0`; each has `local_bytes` in `<engine>.<local>`.

    `shared` are the memories that all engines reach, the nearest first, with their bytes. `element` stores what the
    IR has in f32. Rates are an engine's, a second, when all run: elements of the vector unit, bytes of its DMA. What
    the matrix grid does depends on the element of its operands: ask `device`.
    """

    device: Device
    engines: tuple[str, ...]
    local: str
    local_bytes: int
    shared: tuple[tuple[str, int], ...]
    element: str
    queues: int
    host_queues: int
    native_transpose: bool
    elements: float
    bytes: float
    guesses: Guesses = field(default_factory=Guesses)

    def local_memory(self, engine: str) -> str:
        return f"{engine}.{self.local}"

    def load_unit(self, engine: str) -> str:
        return f"{engine}.dma0"

    def store_unit(self, engine: str) -> str:
        """Another queue than loads, where there are two: a store waits for what computes, a load should not."""
        return f"{engine}.dma{self.queues - 1}"

    def with_engines(self, count: int) -> Resources:
        return replace(self, engines=self.engines[:count])


def resources_of(device: Device, element: str) -> Resources:
    """The device, with real numbers in `element`: f16 or bf16."""
    shared = sorted((device.memories[level] for level in SHARED if level in device.memories and level != "host"),
                    key=lambda memory: memory.size)
    nearest = shared[0]
    return Resources(device=device, engines=tuple(f"{device.engine}{number}" for number in range(device.engines)),
                     local=device.local[0], local_bytes=device.memories[device.local[0]].size,
                     shared=tuple((memory.level, memory.size) for memory in shared), element=element,
                     queues=device.queues, host_queues=device.host_queues, native_transpose=device.native_transpose,
                     elements=device.vector.bytes / device.vector.lane_bytes * device.clock,
                     bytes=min(device.port, nearest.bandwidth / device.engines))


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
        """A new buffer, held. Raises NoRoomError: even after spilling what may be spilled."""
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
        """A new buffer in the nearest shared memory with room, held. Raises DeviceMemoryError: none has."""
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
        """True if a node after the current node, or the caller, reads the value."""
        return any(number > self.now for number in self.readers.get(value, ()))

    def alone(self, key: Key, holds: int) -> bool:
        """True if only one piece and `holds` holders share the storage."""
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
                self.copy(unit, inside(tile, common.shifted(box.begin)), part_of(piece, common))

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
    """Where `box` of the piece's value lies."""
    return inside(piece.tile, box.shifted(piece.box.begin))


def inside(tile: Tile, box: Box) -> Tile:
    """The part of the tile that is `box`, as seen from its first element."""
    return Tile(tile.buffer, tuple(a + b for a, b in zip(tile.begin, box.begin, strict=True)), box.shape)


def is_view(node: Node, quantization: Quantization) -> bool:
    """True if the node moves no data by itself: its operands are stored as its result is."""
    name = node.op.name
    if name not in VIEWS or not all(quantization.alike(value, node.output) for value in node.inputs):
        return False
    return name != "slice" or all(step == 1 for step in node.attrs["strides"])


def lower_view(node: Node, places: Places) -> None:
    """Enter the pieces of the node's output."""
    places.pieces[node.output] = ()
    VIEWS[node.op.name](node, places)


def _concat(node: Node, places: Places) -> None:
    axis, begin = node.attrs["axis"] % len(node.output.shape), 0
    for value in node.inputs:
        for piece in places.owned(value):
            box = piece.box.along(axis, piece.box.begin[axis] + begin, piece.box.shape[axis])
            places.alias(node.output, Piece(box, piece.tile, piece.key))
        begin += value.shape[axis]


def _box(node: Node, places: Places) -> None:
    """Make the result a view: of a slice's part of the operand, of all of it for other ops."""
    wanted = Box(node.attrs.get("begin", (0,) * len(node.output.shape)), node.output.shape)
    for piece in places.owned(node.inputs[0]):
        common = piece.box.meet(wanted)
        if common is not None:
            places.alias(node.output, Piece(common.shifted(wanted.begin), part_of(piece, common), piece.key))


def _reshape(node: Node, places: Places) -> None:
    value, shape = node.inputs[0], node.output.shape
    if not node.output.type.size:
        return
    found: list[Piece] | None = []
    for piece in places.owned(value):
        parts = _reshaped(piece, value.shape, shape, places.resources.guesses.pieces)
        found = found + parts if found is not None and parts is not None else None
    if found is None:
        found = _reshaped(places.together(value), value.shape, shape, places.resources.guesses.pieces) or []
    for piece in found:
        places.alias(node.output, piece)


VIEWS: dict[str, Callable[[Node, Places], None]] = {
    "identity": _box, "dropout": _box, "convert": _box, "slice": _box, "reshape": _reshape, "concat": _concat,
}


def _reshaped(piece: Piece, old: Shape, new: Shape, most: int) -> list[Piece] | None:
    """The piece as boxes of the new shape, None where that takes more than `most` or none will do."""
    box = _regrouped(piece.box, old, new)
    if box is not None and piece.tile == whole(piece.tile.buffer):
        own = piece.tile.buffer
        return [Piece(box, whole(replace(own, name=f"{own.name}_r", shape=box.shape)), piece.key)]
    lead = max(_leading(piece.box.shape, old), _leading(piece.tile.shape, piece.tile.buffer.shape))
    count = prod(piece.box.shape[:lead])
    if count > most:
        return None
    parts = []
    for number in range(count):
        at, rest = list[int](), number
        for size in reversed(piece.box.shape[:lead]):
            at.append(rest % size)
            rest //= size
        inside = (*reversed(at), *(0 for _ in old[lead:]))
        size = prod(piece.box.shape[lead:])
        box = _range_as_box(_linear(piece.box.begin, inside, old), size, new)
        if box is None:
            return None
        buffer = piece.tile.buffer
        offset = buffer.offset + _linear(piece.tile.begin, inside, buffer.shape) * ELEMENT_BYTES[buffer.element]
        name = f"{buffer.name}_{number}" if count > 1 else f"{buffer.name}_r"
        twin = Buffer(name, buffer.memory, offset, buffer.element, box.shape)
        parts.append(Piece(box, whole(twin), piece.key))
    return parts


def _regrouped(box: Box, old: Shape, new: Shape) -> Box | None:
    """The box of the new shape that has the same elements in the same order, if axes of the old shape become axes of
    the new one group by group, and each group's part is one box."""
    begin: list[int] = []
    shape: list[int] = []
    for olds, news in _groups(old, new):
        sizes, own = tuple(old[axis] for axis in olds), tuple(new[axis] for axis in news)
        part = Box(tuple(box.begin[axis] for axis in olds), tuple(box.shape[axis] for axis in olds))
        if _leading(part.shape, sizes):
            return None
        found = _range_as_box(_linear(part.begin, (0,) * len(sizes), sizes), part.size, own)
        if found is None:
            return None
        begin += found.begin
        shape += found.shape
    return Box(tuple(begin), tuple(shape))


def _groups(old: Shape, new: Shape) -> list[tuple[range, range]]:
    """Runs of axes of both shapes with the same product, as short as they can be; the sizes are positive."""
    groups = []
    i = j = 0
    while i < len(old) or j < len(new):
        first, second = i, j
        left = right = 1
        if i < len(old):
            left, i = old[i], i + 1
        if j < len(new):
            right, j = new[j], j + 1
        while left != right:
            if left < right:
                left, i = left * old[i], i + 1
            else:
                right, j = right * new[j], j + 1
        groups.append((range(first, i), range(second, j)))
    return groups


def _leading(shape: Shape, all_: Shape) -> int:
    """The first axes, in number, that must be gone through one by one for the rest of the box to be contiguous."""
    axis = len(shape)
    while axis > 0 and shape[axis - 1] == all_[axis - 1]:
        axis -= 1
    lead = max(axis - 1, 0)  # the last axis that is cut may be a range
    return 0 if prod(shape[:lead]) == 1 else lead


def _linear(begin: Shape, inside: Shape, shape: Shape) -> int:
    position = 0
    for b, i, size in zip(begin, inside, shape, strict=True):
        position = position * size + b + i
    return position


def _range_as_box(begin: int, size: int, shape: Shape) -> Box | None:
    """The elements [begin, begin + size) of a row-major tensor as a box of it, if they are one."""
    inner, axis = 1, len(shape)
    while axis > 0 and size % (inner * shape[axis - 1]) == 0 and begin % (inner * shape[axis - 1]) == 0:
        axis -= 1
        inner *= shape[axis]
    starts: list[int] = []
    rest = begin // inner
    for dim in reversed(shape[:axis]):
        starts.append(rest % dim)
        rest //= dim
    starts.reverse()
    count = size // inner
    if axis == 0:
        return Box((0,) * len(shape), tuple(shape)) if size == inner else None
    if begin % inner or size % inner or starts[-1] + count > shape[axis - 1]:
        return None
    return Box((*starts, *(0 for _ in shape[axis:])), (*(1 for _ in starts[:-1]), count, *shape[axis:]))


def convert_views(graph: Graph, quantization: Quantization) -> None:
    """Insert an `identity` before every view that moves elements and whose operand is stored in another element, or
    with another scale, than its result; in place. The numbers stay what they are."""

    def with_conversions(node: Node) -> Iterator[Node]:
        if node.op.name in VIEWS and node.op.kind == "movement":
            for position, value in enumerate(node.inputs):
                if not quantization.alike(value, node.output):
                    conversion = quantization.conversion(node, value, quantization.elements[node.output])
                    if node.output in quantization.scales:
                        quantization.scales[conversion.output] = quantization.scales[node.output]
                    node.inputs[position] = conversion.output
                    yield conversion
        yield node

    graph.nodes = [each for node in graph.nodes for each in with_conversions(node)]
