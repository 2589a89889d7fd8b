"""From the optimised graph to a Program: shards for engines, tiles for their memories, instructions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import combinations, permutations, product
from math import inf, prod
from types import MappingProxyType
from typing import Any

import numpy as np

from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.types import TensorType, f32
from ngraph_mxnet.targets.nnp.access import Box, Read, cut, even, full, granule, read, ways
from ngraph_mxnet.targets.nnp.device import owner
from ngraph_mxnet.targets.nnp.functional import FunctionalSimulator
from ngraph_mxnet.targets.nnp.places import (
    DeviceMemoryError,
    Held,
    Key,
    NoRoomError,
    Piece,
    Places,
    Resources,
    is_view,
    lower_view,
    padded,
    part_of,
)
from ngraph_mxnet.targets.nnp.program import ELEMENT_BYTES, Buffer, Program, Tile, whole
from ngraph_mxnet.targets.nnp.quantization import Quantization, on_grid
from ngraph_mxnet.targets.nnp.timing import convolution_grid, fetches_rows, matmul_grid, matmul_shape

_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192, 16384)


@dataclass(frozen=True)
class Streams:
    """Bytes of an element of each operand and each output; 0 for those in the engine's memory already, as a whole."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Tiling:
    """Parts along each axis; the first named is the outermost loop. Tiles' sizes are `multiples`, but for the last."""

    parts: dict[int, int]
    multiples: dict[int, int]

    def boxes(self, box: Box) -> Iterator[Box]:
        return cut(box, self.parts, self.multiples)


def choose(node: Node, box: Box, streams: Streams, budget: int, copies: int, resources: Resources,
           element: str) -> Tiling | None:
    """The tiling that takes the least time, by an estimate: loads and stores go on while the engine computes. None if
    no tile fits `budget` bytes.

    `element` is that of operand 0, in which the grid computes a product. What is streamed in more than one tile takes
    `copies` times its bytes: 2 where the next one is to come while this one is used.
    """
    for columns in (resources.device.grids[element].channels if on_grid(node) else 1, 1):
        found = _choose(node, box, streams, budget, copies, resources, element, _multiples(node, columns))
        if found is not None:
            return found
    return None


def _choose(node: Node, box: Box, streams: Streams, budget: int, copies: int, resources: Resources, element: str,
            multiples: dict[int, int]) -> Tiling | None:
    table = ways(node)
    axes = _axes(node, box, table, streams)
    best: tuple[tuple[float, float], dict[int, int]] | None = None
    issue = resources.guesses.tile_seconds
    most = [-(-box.shape[axis] // multiples.get(axis, 1)) for axis in axes]
    for counts in product(*([*(count for count in _COUNTS if count < limit), limit] for limit in most)):
        ranges = {axis: even(box.shape[axis], count, multiples.get(axis, 1))
                  for axis, count in zip(axes, counts, strict=True)}
        parts = {axis: len(found) for axis, found in ranges.items()}
        tiles = prod(parts.values())
        if best is not None and tiles * issue >= best[0][0]:
            continue
        sample = box  # the largest tile: one in the middle reads rows on both sides
        for axis, found in ranges.items():
            begin, size = found[1 if len(found) > 2 else 0]
            sample = sample.along(axis, box.begin[axis] + begin, size)
        part = read(node, sample)
        sizes = [box.size * each for box, each in zip((*part.inputs, *part.outputs),
                                                      (*streams.inputs, *streams.outputs), strict=True)]
        depends = _depends(node, table, parts)
        room = sum(size * (copies if any(parts[axis] > 1 for axis in own) else 1)
                   for size, own in zip(sizes, depends, strict=True))
        if room > budget:
            continue
        computing = tiles * computing_seconds(node, part, sample, resources, element)
        for order in permutations([axis for axis in axes if parts[axis] > 1]):
            moved = sum(size * prod(parts[axis] for axis in order[: _last(order, own)])
                        for size, own in zip(sizes, depends, strict=True))
            cost = max(moved / resources.bytes, computing) + sum(sizes) / resources.bytes + tiles * issue, moved
            if best is None or cost < best[0]:
                best = cost, {axis: parts[axis] for axis in order}
    return Tiling(best[1], multiples) if best is not None else None


def _multiples(node: Node, columns: int) -> dict[int, int]:
    """Return by axis the number that tiles' sizes should be multiples of; axes where it is 1 are missing.

    For output channels of a contraction it is the grid's columns, rounded up to whole granules.
    """
    channels = {1} if node.op.kind == "convolution" else {len(node.outputs[0].shape) - 1}
    if not node.op.contraction:
        channels = set()
    found = {axis: granule(node, axis) for axis in range(len(node.outputs[0].shape))}
    for axis in channels:
        found[axis] = -(-columns // found[axis]) * found[axis]
    return {axis: multiple for axis, multiple in found.items() if multiple > 1}


def _axes(node: Node, box: Box, table: dict, streams: Streams) -> list[int]:
    """Up to three axes, along which what is streamed changes; the result's last two for products."""
    axes = [axis for axis in table if box.shape[axis] > 1]
    depends = _depends(node, table, dict.fromkeys(axes, 2))
    sizes = (*streams.inputs, *streams.outputs)
    useful = [axis for axis in axes if any(size and axis in own for size, own in zip(sizes, depends, strict=True))]
    if len(useful) <= 3:
        return useful
    last = useful[-2:] if node.op.kind == "product" else []
    largest = sorted((axis for axis in useful if axis not in last), key=lambda axis: -box.shape[axis])
    return sorted([*largest[: 3 - len(last)], *last])


def _depends(node: Node, table: dict, parts: dict[int, int]) -> list[set[int]]:
    """For each operand and output the axes along which its part changes."""
    found = [{axis for axis in parts if table[axis].inputs[position] is not None}
             for position in range(len(node.inputs))]
    if node.op.kind in ("convolution", "pool"):
        found[0] |= {2} & parts.keys()
        if node.op.kind == "convolution" and node.attrs["groups"] > 1:
            found[0] |= {1} & parts.keys()
    outputs = [{axis for axis in parts if table[axis].outputs[position] is not None}
               for position in range(len(node.outputs))]
    return [*found, *outputs]


def _last(order: Sequence[int], own: set[int]) -> int:
    """How many loops, from the outermost, up to the innermost that the part depends on."""
    return max((position + 1 for position, axis in enumerate(order) if axis in own), default=0)


Shard = tuple[str, Box]


def shards(node: Node, places: Places, weights: set, instances: int) -> list[Shard]:
    """The boxes that together are the node's first output, with their engines.

    What can be cut along its first axis into `instances` is, each for engines of its own. Beyond, the cut is taken that
    takes the least time by an estimate: the largest share of the arithmetic, and the operands that each engine has
    to fetch.
    """
    resources, shape = places.resources, node.outputs[0].shape
    whole = full(shape)
    table = ways(node)
    first = min(instances, shape[0], len(resources.engines)) if 0 in table else 1
    best: tuple[float, list[Shard]] | None = None
    for parts in _candidates(node, resources, first):
        boxes = list(cut(whole, parts, {axis: granule(node, axis) for axis in parts}))
        placed = list(zip(_spread(resources, len(boxes), instances, first), boxes, strict=True))
        cost = _cost(node, placed, places, weights, inf if best is None else best[0])
        if best is None or cost < best[0]:
            best = cost, placed
    assert best is not None
    return best[1]


def _candidates(node: Node, resources: Resources, first: int) -> Iterator[dict[int, int]]:
    """Ways to cut: how often along which axes, at most two of them, into no more boxes than engines."""
    count, shape = len(resources.engines), node.outputs[0].shape
    most = {axis: min(count, shape[axis] // granule(node, axis)) for axis in ways(node)}
    if first > 1:
        for axis in most:
            for parts in range(1, min(most[axis], count // first) + 1):
                if axis == 0:
                    yield {0: min(first * parts, most[0])}
                elif parts > 1:
                    yield {0: first, axis: parts}
        return
    yield {}
    for axis, limit in most.items():
        for parts in range(2, limit + 1):
            yield {axis: parts}
    for a, b in combinations(most, 2):
        for parts in range(2, most[a] + 1):
            for others in range(2, min(most[b], count // parts) + 1):
                if parts * others > count // 2:
                    yield {a: parts, b: others}


def _spread(resources: Resources, boxes: int, instances: int, first: int) -> list[str]:
    """An engine for each box: those of one instance are neighbours."""
    each = -(-boxes // first)
    group = max(len(resources.engines) // max(instances, 1), 1)
    if first == 1 or each > group:
        return list(resources.engines[:boxes])
    return [resources.engines[(number // each) * group + number % each] for number in range(boxes)]


def _cost(node: Node, placed: list[Shard], places: Places, weights: set, limit: float) -> float:
    """Seconds, roughly: weights are loaded while the engine computes, other operands before. Where they reach `limit`
    the rest is not looked at."""
    resources, slowest = places.resources, 0.0
    element = places.element(node.inputs[0]) if node.inputs else ""
    spread = resources.guesses.engine_seconds * len(placed) / len(resources.engines)
    for engine, box in placed:
        if slowest + spread >= limit:
            break
        found = read(node, box)
        streamed = moved = 0
        for value, part in zip(node.inputs, found.inputs, strict=True):
            if not part.size or places.local(value, part, engine) is not None:
                continue
            size = ELEMENT_BYTES[places.element(value)] * part.size
            if value is node.inputs[0] and by_rows(node, found, places):
                moved += ELEMENT_BYTES[places.element(value)] * found.outputs[0].size
            elif value in weights:
                streamed += size
            else:
                memory = resources.local_memory(engine)
                here = [piece.box.meet(part) for piece in places.pieces.get(value, ()) if piece.tile.memory == memory]
                moved += size - ELEMENT_BYTES[places.element(value)] * sum(box.size for box in here if box)
        computing = computing_seconds(node, found, box, resources, element)
        slowest = max(slowest, max(computing, streamed / resources.bytes) + moved / resources.bytes)
    return slowest + spread


def computing_seconds(node: Node, found: Read, box: Box, resources: Resources, element: str) -> float:
    """Seconds that an engine computes on `box` of the result, for which it reads what `found` says.

    `element` is that of operand 0. For the grid these are the cycles that the timing simulator counts; of the memories
    it knows nothing.
    """
    if not on_grid(node):
        each = prod(found.inputs[1].shape[1:]) if node.op.kind == "convolution" else 1
        if node.op.rows is not None:
            return box.size / resources.elements
        return each * max(box.size, *(0, *(value.type.size for value in node.inputs[:1]))) / resources.elements
    data, weights = (part.shape for part in found.inputs[:2])
    if node.op.kind == "convolution":
        done = convolution_grid(resources.device, element, data, weights, box.shape, found.attrs["groups"])
    else:
        sizes = matmul_shape(data, weights, box.shape, found.attrs["transpose_a"])
        done = matmul_grid(resources.device, element, *sizes)
    return done.cycles / resources.device.clock


def by_rows(node: Node, found: Read, places: Places) -> bool:
    """True if DMA fetches the rows that a part of the node reads of operand 0, instead of all of it."""
    if not node.inputs:
        return False
    size = ELEMENT_BYTES[places.element(node.inputs[0])]
    return fetches_rows(node.op, found.shapes, found.attrs, size, places.resources.device)


class Job:
    """The part of a node that one engine computes: `box` of its first output.

    Some operands stay in the engine's memory; tiles come and go. The sums of an i8 product are multiplied by `scale`.
    `shared` operands are read by other engines, too.
    """

    def __init__(self, places: Places, quantization: Quantization, node: Node, engine: str, box: Box,
                 scale: Value | None, shared: Set[Value]) -> None:
        self.places, self.resources, self.quantization = places, places.resources, quantization
        self.scales = quantization.scales
        self.node, self.engine, self.box, self.scale = node, engine, box, scale
        self.shared = shared
        self.memory = self.resources.local_memory(engine)
        self.whole = read(node, box)
        self._table: Piece | None = None
        """All of operand 0 in a shared memory, of which only rows are fetched."""
        self._kept: dict[int, Held] = {}
        self._results: list[Piece] = []
        self._stores: list[tuple[Held, Tile]] = []

    def begin(self, resident: bool) -> None:
        """Hold the operands that are here, and make room for the results: here if `resident`, else shared."""
        for position, (value, box) in enumerate(zip(self.node.inputs, self.whole.inputs, strict=True)):
            if self.places.local(value, box, self.engine) is not None:
                self._kept[position] = self.places.fetch(value, box, self.engine)
        if 0 not in self._kept and by_rows(self.node, self.whole, self.places):
            self._table = self.places.together(self.node.inputs[0])
        for value, box in zip(self.node.outputs, self.whole.outputs, strict=True):
            element = self.places.element(value)
            residual = self._replaceable(element) if resident else None
            if residual is not None:
                self.places.hold(residual.key)
                self._results.append(Piece(box, residual.tile, residual.key))
                continue
            if resident:
                most = self.resources.guesses.result_share * (self.resources.local_bytes - self.kept_bytes())
                if box.size * ELEMENT_BYTES[element] > most:
                    raise NoRoomError(self.memory, box.size * ELEMENT_BYTES[element])
                buffer, key = self.places.allocate(self.memory, element, box.shape, "v")
            else:
                buffer, key = self.places.allocate_shared(element, box.shape, "v")
            self._results.append(Piece(box, whole(buffer), key))
        here = {*self._kept, *([0] if self._table is not None else [])}
        inputs = [0 if position in here else ELEMENT_BYTES[self.places.element(value)]
                  for position, value in enumerate(self.node.inputs)]
        outputs = [0 if resident else ELEMENT_BYTES[self.places.element(value)] for value in self.node.outputs]
        self.streams = Streams(tuple(inputs), tuple(outputs))

    def _replaceable(self, element: str) -> Held | None:
        """The residual of a product, if the sum may be written in its place: it is here, and read by no one later."""
        if len(self.node.inputs) < 4 or not on_grid(self.node) or 3 not in self._kept:
            return None
        value, held = self.node.inputs[3], self._kept[3]
        fits = held.tile.element == element and value not in self.node.inputs[:3] and not value.is_parameter
        last = not self.places.read_later(value) and self.places.alone(held.key, 1)
        return held if fits and last else None

    def kept_bytes(self) -> int:
        """Bytes of the engine's memory that this node keeps all the time."""
        buffers = {held.tile.buffer for held in self._kept.values()}
        buffers |= {piece.tile.buffer for piece in self._results if piece.tile.memory == self.memory}
        return sum(padded(buffer.bytes) for buffer in buffers)

    def run(self, tiling: Tiling, copies: int) -> None:
        """Go through the tiles; the next one's loads are asked for before this one's bytes are free if `copies` > 1."""
        here: dict[int, tuple[Box, Held]] = {}
        for box in tiling.boxes(self.box):
            part = read(self.node, box)
            reads = []
            for position, (value, wanted) in enumerate(zip(self.node.inputs, part.inputs, strict=True)):
                if self._table is not None and not position:
                    reads.append(part_of(self._table, wanted))
                    continue
                if position not in here or here[position][0] != wanted:
                    old = here.pop(position, None)
                    if old is not None and copies == 1:
                        self.places.release(old[1].key)
                    if value in self.shared:
                        self.places.stage(value, wanted, self.resources.load_unit(self.engine))
                    here[position] = wanted, self.places.fetch(value, wanted, self.engine)
                    if old is not None and copies > 1:
                        self.places.release(old[1].key)
                reads.append(here[position][1].tile)
            writes, stores = self._targets(part)
            self._flush()
            self._compute(part, reads, writes)
            self._stores = stores
            if copies == 1:
                self._flush()
        self._flush()
        for _, held in here.values():
            self.places.release(held.key)

    def _targets(self, part: Read) -> tuple[list[Tile], list[tuple[Held, Tile]]]:
        """The tiles to write, and where those must be copied that are not the result itself."""
        writes, stores = [], []
        for piece, box in zip(self._results, part.outputs, strict=True):
            own = part_of(piece, box)
            if piece.tile.memory != self.memory:
                buffer, key = self.places.allocate(self.memory, own.element, box.shape, "t")
                stores.append((Held(whole(buffer), key), own))
                own = stores[-1][0].tile
            writes.append(own)
        return writes, stores

    def _flush(self) -> None:
        """Store the previous tile: after the next one's loads, so that these need not wait in the same queue."""
        for held, tile in self._stores:
            self.places.copy(self.resources.store_unit(self.engine), tile, held.tile)
            self.places.release(held.key)
        self._stores = []

    def end(self) -> None:
        for held in self._kept.values():
            self.places.release(held.key)
        for value, piece in zip(self.node.outputs, self._results, strict=True):
            self.places.add(value, piece)

    # ---- instructions -------------------------------------------------------------------------------------

    def _compute(self, part: Read, reads: list[Tile], writes: list[Tile]) -> None:
        name = self.node.op.name
        if on_grid(self.node):
            self._product(part, reads, writes)
        elif self._table is not None:
            self._rows(part, reads, writes[0])
        elif name == "transpose" and self.quantization.alike(self.node.inputs[0], self.node.output):
            unit = self.resources.load_unit(self.engine) if self.resources.native_transpose else f"{self.engine}.vector"
            self.places.emit(unit, "transpose", writes, reads, {"order": part.attrs["order"]})
        else:
            self._vector(name, part.attrs, reads, writes, self.node.inputs, self.node.outputs)

    def _rows(self, part: Read, reads: list[Tile], to: Tile) -> None:
        value, rows, held = self.node.inputs[0], to, list[Held]()
        alike = self.quantization.alike(value, self.node.output)
        if not alike:
            buffer, key = self.places.allocate(self.memory, reads[0].element, to.shape, "t")
            held.append(Held(whole(buffer), key))
            rows = held[-1].tile
        attrs = {"op": self.node.op.name, "attrs": dict(part.attrs)}
        self.places.emit(self.resources.load_unit(self.engine), "gather", [rows], reads, attrs)
        if not alike:
            self._vector("identity", {}, [rows], [to], [value], [self.node.output])
        for each in held:
            self.places.release(each.key)

    def _vector(self, op: str, given: Mapping[str, Any], reads: list[Tile], writes: list[Tile],
                operands: Sequence[Value], results: Sequence[Value]) -> None:
        """An instruction of the vector unit; the values are stored in the tiles."""
        attrs: dict[str, Any] = {"op": op, "attrs": dict(given)}
        if any(value in self.scales for value in (*operands, *results)):
            attrs["in_scales"] = tuple(self.scales.get(value, 1.0) for value in operands)
            attrs["out_scales"] = tuple(self.scales.get(value, 1.0) for value in results)
        self.places.emit(f"{self.engine}.vector", "vector", writes, reads, attrs)

    def _product(self, part: Read, reads: list[Tile], writes: list[Tile]) -> None:
        node = self.node
        convolution = node.op.kind == "convolution"
        attrs = self.quantization.grid_attrs(node, part.attrs)
        axis = 1 if convolution else len(node.output.shape) - 1
        box = part.outputs[0]
        channels = Box((box.begin[axis],), (box.shape[axis],))
        tiles, held = list(reads[:2]), list[Held]()
        if len(node.inputs) > 2:
            tiles.append(reads[2] if reads[2].element == "f32" else self._widened(reads[2], held))
        if self.scale is not None:
            held.append(self.places.fetch(self.scale, channels, self.engine))
            tiles.append(held[-1].tile)
        tiles += reads[3:]
        self.places.emit(f"{self.engine}.grid", "convolution" if convolution else "matmul", writes, tiles, attrs)
        for each in held:
            self.places.release(each.key)

    def _widened(self, tile: Tile, held: list[Held]) -> Tile:
        """A bias that is no weight, in f32 as the grid wants it."""
        buffer, key = self.places.allocate(self.memory, "f32", tile.shape, "t")
        held.append(Held(whole(buffer), key))
        self.places.emit(f"{self.engine}.vector", "vector", [held[-1].tile], [tile], {"op": "identity", "attrs": {}})
        return held[-1].tile


@dataclass
class Lowered:
    """The program, and the buffers of what is known before it runs: `weights` of values, `scales` of i8 products' sums.

    `constants` of `program` are empty as yet.
    """

    program: Program
    weights: dict[Value, Buffer]
    scales: dict[Node, Buffer]


PartNumbers = Mapping[Value | Node, int]


class Lowering:
    """One graph on one device. `weights` are the parameters whose content is known before a call; constants of the
    graph are too. `quantization` says how each value is stored. `instances` is into how many parts a batch is cut,
    each for engines of its own; `resident` how many bytes of weights may lie in the nearest shared memory.
    `parts` are the parts of the call that parameters come with, and that nodes begin, 0 where not given. `near` are the
    parameters that are written to the device's memory by others, and the results that are read there, without a copy
    from or to the host. Where `like` is given, what it found out (shards and tiles) is not searched for again.
    """

    def __init__(self, graph: Graph, weights: Set[Value], resources: Resources, quantization: Quantization, *,
                 instances: int = 1, resident: int = 0, parts: PartNumbers = MappingProxyType({}),
                 near: Set[Value] = frozenset(), like: Lowering | None = None) -> None:
        self.graph = graph
        self.parts = parts
        self.near = near
        self.resources = resources
        self.instances = instances
        self.quantization = quantization
        self.known = {*weights} | {node.output for node in graph.nodes if node.op.name == "constant"}
        self.places = Places(resources, self._readers(), self.element)
        self._resident = resident
        self._host = 0
        self._scales: dict[Node, Value] = {}
        self._tilings: dict[Any, Tiling | None] = like._tilings if like is not None else {}
        self._shards: dict[Node, list[Shard]] = like._shards if like is not None else {}

    def element(self, value: Value) -> str:
        return self.quantization.elements.get(value, "f32")

    def _readers(self) -> dict[Value, list[int]]:
        """The numbers of the nodes that read each value; the caller comes behind the last of them."""
        readers: dict[Value, list[int]] = {}
        for number, node in enumerate(self.graph.nodes):
            for value in dict.fromkeys(node.inputs):
                readers.setdefault(value, []).append(number)
        for value in self.graph.results:
            readers.setdefault(value, []).append(len(self.graph.nodes))
        return readers

    # ---- the whole ----------------------------------------------------------------------------------------

    def run(self) -> Lowered:
        """Lower everything. Raises DeviceMemoryError: a node needs more memory than there is."""
        places, parameters = self.places, self.graph.parameters
        weights, scales = self._place_weights()
        inputs = {parameter: self._host_buffer(f"in{number}", parameter)
                  for number, parameter in enumerate(parameters) if parameter not in self.near}
        outputs: dict[int, Buffer] = {}
        begins: list[int] = []
        self._arrive(0, inputs, outputs)
        for number, node in enumerate(self.graph.nodes):
            places.now, places.origin = number, str(node)
            self._begin(begins, [*node.inputs, node], inputs, outputs)
            if node.op.name != "constant":
                self._lower(node)
            self._store_results(outputs, node.outputs)
            for value in dict.fromkeys([*node.inputs, *node.outputs]):
                # Inputs stay where they are: those of the next call may come while this one still computes.
                if not value.is_parameter and value not in self.known and not places.read_later(value):
                    places.drop(value)
        self._begin(begins, self.parts, inputs, outputs)
        sizes = {name: memory.peak for name, memory in places.memories.items()} | {"host": self._host}
        program = Program(self.graph.name, self.resources.device.name, places.code,
                          [inputs[parameter] for parameter in parameters],
                          [outputs[index] for index in range(len(self.graph.results))], {}, sizes, begins)
        return Lowered(program, weights, scales)

    def _place_weights(self) -> tuple[dict[Value, Buffer], dict[Node, Buffer]]:
        """A buffer for each known value that is read: in the nearest memory, as far as they may, those first that are
        read least for each byte, as others are loaded while they compute; tables of which rows are read come last."""
        often: dict[Value, float] = {}
        tables = set[Value]()
        for node in self.graph.nodes:
            if node.inputs and by_rows(node, read(node, full(node.outputs[0].shape)), self.places):
                tables.add(node.inputs[0])
            for value in node.inputs:
                if value in self.known:
                    often[value] = often.get(value, 0.0) + node.outputs[0].type.size / (value.type.size or 1)
            if node in self.quantization.products:
                often[self._scale(node)] = 0.0
        often |= {v: often.get(v, 0.0) for v in self.graph.results if v in self.known}
        wanted = sorted(often, key=lambda value: (value in tables, often[value]))
        weights: dict[Value, Buffer] = {}
        left = self._resident
        for value in wanted:
            size = padded(ELEMENT_BYTES[self.element(value)] * value.type.size)
            memories = [name for name, _ in self.resources.shared]
            nearest = size <= left
            left -= size if nearest else 0
            buffer, key = self._permanent(value, memories[0] if nearest else memories[-1])
            self.places.add(value, Piece(full(value.shape), whole(buffer), key))
            weights[value] = buffer
        scales = {node: weights.pop(value) for node, value in self._scales.items()}
        return weights, scales

    def _permanent(self, value: Value, memory: str) -> tuple[Buffer, tuple[str, int]]:
        try:
            return self.places.allocate(memory, self.element(value), value.shape, "c")
        except NoRoomError as error:
            there = self.places.memories[memory]
            raise DeviceMemoryError(
                f"the weights of graph {self.graph.name} do not fit {self.resources.device.name}: found {error.size} "
                f"bytes more, expected at most the {there.largest} of {there.size} that are left in {memory}") from None

    def _part(self, what: Value | Node) -> int:
        return self.parts.get(what, 0)

    def _begin(self, begins: list[int], of: Iterable[Value | Node], inputs: dict[Value, Buffer],
               outputs: dict[int, Buffer]) -> None:
        """Begin all parts up to the last one of these."""
        for part in range(len(begins) + 1, max(map(self._part, of), default=0) + 1):
            begins.append(len(self.places.code))
            self._settle()
            self._arrive(part, inputs, outputs)

    def _arrive(self, part: int, inputs: dict[Value, Buffer], outputs: dict[int, Buffer]) -> None:
        """Load the inputs of a part, or make room for them, and store those results that are there without being
        computed."""
        for parameter in self.graph.parameters:
            if self._part(parameter) != part:
                continue
            if parameter in self.near:
                buffer, key = self.places.allocate_shared(self.element(parameter), parameter.shape, "x")
                self.places.add(parameter, Piece(full(parameter.shape), whole(buffer), key))
                inputs[parameter] = buffer
                continue
            buffer = inputs[parameter]
            if parameter in self.known or parameter not in self.places.readers:
                continue
            # In parts, so that the first instance need not wait for the others' images: unless a part takes less time
            # than a transfer's start.
            least = self.resources.device.host_link.latency * self.resources.device.host_link.bandwidth
            most = min(self.instances, int(buffer.bytes / least))
            parts = {0: min(most, parameter.shape[0])} if most > 1 and parameter.shape and parameter.shape[0] else {}
            for box in cut(full(parameter.shape), parts):
                place, key = self.places.allocate_shared(buffer.element, box.shape, "x")
                self.places.copy("host.dma0", whole(place), Tile(buffer, *box))
                self.places.add(parameter, Piece(box, whole(place), key))
        given = [value for value in self.graph.results if value.is_parameter or value in self.known]
        self._store_results(outputs, [value for value in given if self._part(value) == part])

    def _host_buffer(self, name: str, value: Value) -> Buffer:
        buffer = Buffer(name, "host", self._host, self.element(value), value.shape)
        self._host += padded(buffer.bytes)
        return buffer

    def _store_results(self, outputs: dict[int, Buffer], values: list[Value]) -> None:
        for index, result in enumerate(self.graph.results):
            if result in values and index not in outputs and result in self.near:
                outputs[index] = self._near_result(result)
            elif result in values and index not in outputs:
                outputs[index] = buffer = self._host_buffer(f"out{index}", result)
                self._leave(result, whole(buffer))

    def _leave(self, value: Value, to: Tile) -> None:
        """Copy a result to the host. The engines first bring its pieces together, if that takes less time than to start
        a transfer for each. Instances wait for each other only if a part of one takes less time than a start."""
        places, resources, device = self.places, self.resources, self.resources.device
        startup, link, unit = device.dma_startup, device.host_link, f"host.dma{resources.host_queues - 1}"
        pieces = places.owned(value)
        apart = (len(pieces) - 1) * (startup + link.latency)
        longest = startup + max((piece.tile.bytes for piece in pieces), default=0) / resources.bytes
        small = self.instances == 1 or to.bytes < self.instances * link.latency * link.bandwidth
        far = resources.shared[-1][0]  # in the LLC the next call's weights would wait for the host
        if small and longest < apart and padded(to.bytes) <= places.memories[far].largest:
            buffer, key = self._stored(value, far)
            places.copy(unit, to, whole(buffer))
            places.release(key)
        else:
            places.gather(value, full(value.shape), to, unit)

    def _near_result(self, result: Value) -> Buffer:
        """The result as one tensor of a shared memory, for the rest of the call: as it lies, or brought there by the
        engines that have its pieces."""
        places, resources = self.places, self.resources
        shared = {name for name, _ in resources.shared}
        for piece in places.pieces.get(result, ()):
            if piece.box == full(result.shape) and piece.tile == whole(piece.tile.buffer) and (
                    piece.tile.memory in shared):
                places.hold(piece.key)
                return piece.tile.buffer
        return self._stored(result)[0]

    def _stored(self, value: Value, memory: str = "") -> tuple[Buffer, Key]:
        """The value in a new buffer of a shared memory, the nearest with room if none is named, held; the engines that
        have its pieces bring them there."""
        places, resources, what = self.places, self.resources, (self.element(value), value.shape, "o")
        buffer, key = places.allocate(memory, *what) if memory else places.allocate_shared(*what)
        for piece in places.owned(value):
            engine = owner(piece.tile.memory) or resources.engines[0]
            places.copy(resources.store_unit(engine), Tile(buffer, *piece.box), piece.tile)
        return buffer, key

    def _settle(self) -> None:
        """Empty the engines' memories: bring what nodes to come read to a shared memory. Results are stored already."""
        places, nodes = self.places, range(self.places.now, len(self.graph.nodes))
        for value, pieces in list(places.pieces.items()):
            if not any(owner(piece.tile.memory) for piece in pieces):
                continue
            if any(number in nodes for number in places.readers.get(value, ())):
                buffer, key = self._stored(value)
                places.drop(value)
                places.add(value, Piece(full(value.shape), whole(buffer), key))
            else:
                places.drop(value)
        for memory in places.memories.values():
            memory.rewind()

    def _scale(self, node: Node) -> Value:
        """Return the value that holds, for each channel of the output, the factor of an i8 product's sums."""
        if node not in self._scales:
            channels = node.output.shape[1 if node.op.kind == "convolution" else -1]
            self._scales[node] = Value(TensorType(f32, (channels,)))
        return self._scales[node]

    # ---- nodes --------------------------------------------------------------------------------------------

    def _lower(self, node: Node) -> None:
        if is_view(node, self.quantization):
            lower_view(node, self.places)
            return
        for value in node.outputs:
            self.places.pieces[value] = ()
        if node not in self._shards:
            self._shards[node] = shards(node, self.places, self.known, self.instances)
        found = self._shards[node]
        least = self.resources.guesses.shared_elements
        shared = {v for v in node.inputs if v in self.known and v.type.size >= least} if len(found) > 1 else set()
        for engine, box in found:
            self._lower_shard(node, engine, box, shared)
        self.places.unstage()

    def _lower_shard(self, node: Node, engine: str, box: Box, shared: Set[Value]) -> None:
        """Try the tiles that suit best first; keep the result in the engine's memory if it leaves enough room."""
        places = self.places
        local = places.memories[self.resources.local_memory(engine)]
        scale = self._scale(node) if node in self.quantization.products else None
        error: NoRoomError | None = None
        guesses = self.resources.guesses  # how large tiles may be, and how many of a stream's there are at once
        shares = [*((share, 2) for share in guesses.tile_shares), (guesses.last_share, 1)]
        for resident in (True, False):
            for share, copies in shares:
                state = places.snapshot()
                job = Job(places, self.quantization, node, engine, box, scale, shared)
                try:
                    job.begin(resident)
                    job.run(self._tiling(job, share, copies), copies)
                    job.end()
                    return
                except NoRoomError as found:
                    places.restore(state)
                    error = found
        needed = sum(ELEMENT_BYTES[places.element(v)] * v.type.size for v in (*node.inputs, *node.outputs))
        raise DeviceMemoryError(
            f"{node} does not fit {self.resources.device.name}: found {error.size if error else needed} bytes that it "
            f"needs at once in {local.name}, of {needed} in all, expected at most {local.size}; run a smaller batch, "
            "or leave the node to another backend")

    def _tiling(self, job: Job, share: float, copies: int) -> Tiling:
        memory = self.resources.local_memory(job.engine)
        budget = int(share * (self.resources.local_bytes - job.kept_bytes()))
        key = (job.node, job.box.shape, job.streams, budget, copies)
        if key not in self._tilings:
            element = self.element(job.node.inputs[0]) if job.node.inputs else ""
            self._tilings[key] = choose(job.node, job.box, job.streams, budget, copies, self.resources, element)
        tiling = self._tilings[key]
        if tiling is None:
            raise NoRoomError(memory, budget)
        return tiling


def lower(graph: Graph, weights: Set[Value], resources: Resources, quantization: Quantization, *,
          instances: int = 1, parts: PartNumbers = MappingProxyType({}), near: Set[Value] = frozenset()) -> Lowered:
    """Lower `graph`, with as many weights in the nearest shared memory as what else is there leaves room for. Raises
    DeviceMemoryError: a node, or all weights together, need more memory than there is."""
    first = Lowering(graph, weights, resources, quantization, instances=instances, parts=parts, near=near)
    lowered = first.run()
    nearest, size = resources.shared[0]
    if len(resources.shared) > 1 and first.known:
        left = size - first.places.memories[nearest].peak
        lowered = Lowering(graph, weights, resources, quantization, instances=instances, resident=left,
                           parts=parts, near=near, like=first).run()
    return lowered


Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Settings:
    """The settings of a compilation.

    Products are in i8 if `narrow`. They are calibrated on `samples` (arrays for all inputs, weights too), or else on
    the arrays of the first call. The batch is cut into `instances` parts, each on engines of its own. `devices` is the
    number of devices. `arrivals` are the parts of the call that the graph's inputs come with, all with the first if
    none; `begins` the numbers of the main graph's nodes that begin the parts after the first. `near` are the numbers of
    inputs and of results that are exchanged in the device's memory.
    """

    resources: Resources
    instances: int
    narrow: bool = False
    samples: tuple[Arrays, ...] = ()
    devices: int = 1
    arrivals: tuple[int, ...] = ()
    begins: tuple[int, ...] = ()
    near: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


@dataclass(frozen=True)
class Version:
    """The main graph, perhaps with conversions, as it is stored and lowered."""

    graph: Graph
    weights: frozenset[Value]
    quantization: Quantization
    lowered: Lowered

    @property
    def program(self) -> Program:
        """The Program, its constants still empty."""
        return self.lowered.program

    def loaded(self, contents: Mapping[Value, np.ndarray]) -> FunctionalSimulator:
        """A device that holds the weights and constants of `contents`."""
        store = self.quantization.store
        constants = {buffer: store(value, contents[value]).tobytes() for value, buffer in self.lowered.weights.items()}
        for node, buffer in self.lowered.scales.items():
            constants[buffer] = self.quantization.sum_scale(node).astype(np.float32).tobytes()
        return FunctionalSimulator(replace(self.program, constants=constants))
