"""How long a program takes, and its energy: arithmetic, bytes moved, and the static part of the power over the time.

The grid keeps a block of `channels` x `positions` sums and takes `depth` input channels at one kernel tap a cycle: a
dimension that is no multiple of the grid's wastes the rest. For each cycle it reads a block's weights again; a row of
data is read once for all taps along it, or once a tap without `row_reuse`. It is as slow as the slowest of its sums and
of the memories that hold its operands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from heapq import heappop, heappush
from math import ceil, prod
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import NGraphError
from ngraph_mxnet.ir.opdef import OpDef, get_op
from ngraph_mxnet.ir.types import Shape, TensorType, f32
from ngraph_mxnet.program.executable import Meanwhile
from ngraph_mxnet.targets.nnp.device import Device, load_device, owner
from ngraph_mxnet.targets.nnp.hazards import order
from ngraph_mxnet.targets.nnp.program import (
    ELEMENT_BYTES,
    Buffer,
    Instruction,
    Program,
    Tile,
    attributes,
    operands,
    whole,
)

Route = tuple[tuple[str, float], ...]
"""The ports and links that a transfer uses, with the bytes in each for a byte of it."""


Sides = tuple[Sequence[Shape], Sequence[Shape]]
"""The shapes of operands and of results."""


@dataclass
class Demand:
    """The load of an instruction on the device.

    Its unit takes `seconds` by itself, the first `startup` of them before it computes or moves anything. A transfer
    then moves `moved` bytes over `route`.
    `traffic` is the bytes read and written by memory; `macs` and `operations` are the arithmetic done, by element type.
    """

    seconds: float
    moved: int = 0
    route: Route = ()
    traffic: dict[str, float] = field(default_factory=dict)
    macs: dict[str, int] = field(default_factory=dict)
    operations: float = 0.0
    startup: float = 0.0


@dataclass(frozen=True)
class GridCycles:
    """Cycles of the grid, MAC, and elements read of data and weights."""

    cycles: int
    macs: int
    data: float
    weights: float


def convolution_grid(device: Device, element: str, data: Shape, weights: Shape, result: Shape,
                     groups: int) -> GridCycles:
    """A convolution of data [N, C, *S] and weights [O, C/groups, *K] to [N, O, *R] on one grid."""
    grid, taps = device.grids[element], prod(weights[2:])
    per_group, inner = ceil(weights[0] / groups), weights[1]
    blocks = groups * ceil(per_group / grid.channels)
    positions = _position_blocks(device, grid.positions, result[0], result[2:])
    if device.row_reuse:
        row = min(data[-1], result[-1] * weights[-1])
        read = prod(result[2:-1]) * row * prod(weights[2:-1])
    else:
        read = prod(result[2:]) * taps
    return GridCycles(blocks * positions * ceil(inner / grid.depth) * taps, prod(result) * inner * taps,
                    result[0] * inner * blocks * read, prod(weights) * positions)


def matmul_grid(device: Device, element: str, rows: int, inner: int, columns: int, products: int) -> GridCycles:
    """`products` products [rows, inner] x [inner, columns] with matrices of their own, on one grid."""
    grid = device.grids[element]
    blocks, positions = ceil(columns / grid.channels), ceil(rows / grid.positions)
    return GridCycles(products * blocks * positions * ceil(inner / grid.depth), products * rows * inner * columns,
                    products * blocks * rows * inner, products * positions * inner * columns)


def _position_blocks(device: Device, width: int, images: int, shape: Shape) -> int:
    if device.joined == 2:
        return ceil(images * prod(shape) / width)
    if device.joined == 1:
        return images * ceil(prod(shape) / width)
    return images * prod(shape[:-1]) * ceil(shape[-1] / width)


def matmul_shape(a: Shape, b: Shape, result: Shape, transpose_a: bool) -> tuple[int, int, int, int]:
    """Rows, inner, columns and number of products; the rows of several left operands with one right one are joined."""
    inner, batch = a[-2 if transpose_a else -1], prod(result[:-2])
    if prod(b[:-2]) == 1:
        return batch * result[-2], inner, result[-1], 1
    return result[-2], inner, result[-1], batch


def vector_seconds(device: Device, counts: Mapping[str, float], element_bytes: int) -> float:
    """The time of so many operations by class, on elements of at most `element_bytes`, without that of the memories."""
    lanes = device.vector.bytes // max(device.vector.lane_bytes, element_bytes)
    cycles = sum(ceil(count / lanes) * device.vector.cycles[name] for name, count in counts.items())
    return cycles / device.clock


def operation_counts(op: OpDef, shapes: Sides, attrs: Mapping[str, Any], device: Device) -> Mapping[str, float]:
    """The operations by class, for the shapes of operands and results."""
    counts: Mapping[str, float] = op.operations(*shapes, attrs)
    return {"move": counts["gather"]} if op.name == "transpose" and device.native_transpose else counts


def row_bytes(op: OpDef, shapes: Sides, attrs: Mapping[str, Any], size: int, burst: int) -> int:
    """The bytes of whole bursts that hold the rows of operand 0, with elements of `size` bytes, that the op reads."""
    assert op.rows is not None
    count, length = op.rows(*shapes, attrs)
    return count * ceil(length * size / burst) * burst


def fetches_rows(op: OpDef, shapes: Sides, attrs: Mapping[str, Any], size: int, device: Device) -> bool:
    """True if DMA brings an engine the rows of operand 0 alone, with elements of `size` bytes: an operand says which,
    and all of operand 0 would be more bytes."""
    if op.kind != "indexing" or op.rows is None:
        return False
    return row_bytes(op, shapes, attrs, size, device.memories["dram"].burst) < prod(shapes[0][0]) * size


def demand_of(instruction: Instruction, device: Device) -> Demand:
    """Return the cost of the instruction on `device` where it runs alone."""
    if instruction.op in ("barrier", _ELSEWHERE):
        return Demand(instruction.attrs.get("seconds", 0.0))
    kind = device.unit_kind(instruction.unit)
    if kind == "dma":
        return _transfer(instruction, device)
    return _grid(instruction, device) if kind == "grid" else _vector(instruction, device)


def _grid(instruction: Instruction, device: Device) -> Demand:
    tiles, (written,) = operands(instruction), instruction.writes
    data, weights = tiles.pop("data"), tiles.pop("weights")
    if instruction.op == "convolution":
        groups = int(instruction.attrs.get("groups", 1))
        done = convolution_grid(device, data.element, data.shape, weights.shape, written.shape, groups)
    else:
        transposed = bool(instruction.attrs.get("transpose_a", False))
        done = matmul_grid(device, data.element, *matmul_shape(data.shape, weights.shape, written.shape, transposed))
    size = ELEMENT_BYTES[data.element]
    traffic = _summed([*_bytes([written, *tiles.values()]), (data.memory, done.data * size),
                       (weights.memory, done.weights * size)])
    seconds = max(done.cycles / device.clock, _memory_seconds(device, traffic))
    return Demand(device.grid_startup + seconds, traffic=traffic, macs={data.element: done.macs},
                  startup=device.grid_startup)


def _vector(instruction: Instruction, device: Device) -> Demand:
    tiles = (*instruction.writes, *instruction.reads)
    shapes, (name, attrs) = _shapes(instruction), _vector_op(instruction)
    op = get_op(name)
    attrs = _completed(op, shapes, attrs) if op.rows is not None else attrs
    counts = operation_counts(op, shapes, attrs, device)
    traffic = _summed([*_bytes(instruction.writes),
                       *((tile.memory, elements * ELEMENT_BYTES[tile.element]) for tile, elements in
                         zip(instruction.reads, op.elements_read(*shapes, attrs), strict=True))])
    widest = max((ELEMENT_BYTES[tile.element] for tile in tiles), default=1)
    seconds = max(vector_seconds(device, counts, widest), _memory_seconds(device, traffic))
    return Demand(device.vector.startup + seconds, traffic=traffic, operations=sum(counts.values()),
                  startup=device.vector.startup)


def _vector_op(instruction: Instruction) -> tuple[str, Mapping[str, Any]]:
    if instruction.op == "vector":
        return instruction.attrs["op"], instruction.attrs.get("attrs", {})
    return ("identity" if instruction.op == "fill" else instruction.op), instruction.attrs


def _bytes(tiles: Sequence[Tile]) -> list[tuple[str, float]]:
    """Memory and size of each."""
    return [(tile.memory, tile.bytes) for tile in tiles]


def _summed(amounts: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The sum for each name."""
    total: dict[str, float] = {}
    for name, amount in amounts:
        total[name] = total.get(name, 0.0) + amount
    return total


def _memory_seconds(device: Device, traffic: Mapping[str, float]) -> float:
    return max((count / device.memory(name).bandwidth for name, count in traffic.items()), default=0.0)


def _transfer(instruction: Instruction, device: Device) -> Demand:
    (written,), source = instruction.writes, instruction.reads[0] if instruction.reads else None
    if not written.size:
        return Demand(device.dma_startup, startup=device.dma_startup)
    element, run = ELEMENT_BYTES[written.element], written.size
    if instruction.op == "transpose" and not device.native_transpose:
        run = _kept_run(written.shape, attributes(instruction)["order"])
    sides = [(written.memory, _bursts(written, device.memory(written.memory).burst, run * element))]
    if source is not None:
        sides.append((source.memory, _read_bytes(instruction, source, device.memory(source.memory).burst)))
        sides += [(tile.memory, tile.bytes) for tile in instruction.reads[1:]]
    traffic = _summed(sides)
    latency = device.dma_startup + sum(device.memory(name).latency for name, _ in sides)
    if "host" in traffic:
        latency += device.host_link.latency
    path = route(source.memory if source else None, written.memory)
    return Demand(latency, max(count for _, count in sides[:2]), path, traffic, startup=latency)


def _read_bytes(instruction: Instruction, source: Tile, burst: int) -> int:
    """Bytes of whole bursts that a transfer reads of its source: all of a tile, or rows."""
    if instruction.op != "gather":
        return _bursts(source, burst, source.bytes)
    op, shapes = get_op(instruction.attrs["op"]), _shapes(instruction)
    attrs = _completed(op, shapes, instruction.attrs.get("attrs", {}))
    return row_bytes(op, shapes, attrs, ELEMENT_BYTES[source.element], burst)


def _shapes(instruction: Instruction) -> Sides:
    """Of what is read, and of what is written."""
    return [tile.shape for tile in instruction.reads], [tile.shape for tile in instruction.writes]


def _completed(op: OpDef, shapes: Sides, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """With defaults for attributes that are missing."""
    if len(attrs) == len(op.schema):
        return attrs
    return op.complete([TensorType(f32, shape) for shape in shapes[0]], op.check_attrs(attrs))


def _kept_run(shape: Shape, order: Sequence[int]) -> int:
    """How many elements a transpose keeps side by side."""
    run = 1
    for axis in range(len(order) - 1, -1, -1):
        if order[axis] != axis:
            break
        run *= shape[axis]
    return run


def _bursts(tile: Tile, burst: int, longest: int) -> int:
    """Bytes of whole bursts for the tile's contiguous runs, none of them longer than `longest`."""
    run = ELEMENT_BYTES[tile.element]
    for size, extent in zip(reversed(tile.shape), reversed(tile.buffer.shape), strict=True):
        run *= size
        if size != extent:
            break
    run = min(run, longest)
    return tile.bytes // run * (ceil(run / burst) * burst)


@cache
def route(source: str | None, destination: str) -> Route:
    """The ports and links between two memories by name; a fill has no source.

    `ice0.sram` stands for the side of that memory towards the network, `ice0.in` and `ice0.out` for its engine's port,
    `host.in` and `host.out` for the two directions of the host's link, as the device sees them.
    """
    if source is None:
        return ((destination, 1.0),)
    used = _summed([(destination, 1.0), (source, 1.0)])
    within_engine = owner(source) != "" and owner(source) == owner(destination)
    if source != destination and not within_engine:
        used["network"] = 1.0
        for name, way in ((source, "out"), (destination, "in")):
            if owner(name):
                used[f"{owner(name)}.{way}"] = 1.0
    if "host" in (source, destination):
        used["host.in" if source == "host" else "host.out"] = 1.0
    return tuple(used.items())


def capacity(name: str, device: Device) -> float:
    """Bytes a second of a port or link of a `Route`."""
    if name == "network":
        return device.network.bandwidth
    if name in ("host.in", "host.out"):
        return device.host_link.bandwidth
    if name.endswith((".in", ".out")):
        return device.port
    return device.memory(name).bandwidth


def energy(device: Device, seconds: float, macs: Mapping[str, float], operations: float,
           traffic: Mapping[str, float], carried: Mapping[str, float]) -> dict[str, float]:
    """Joules by what spends them: `grid`, `vector`, each level of memory, `network`, `host_link`, `static`.

    `macs` is by element type, `traffic` bytes by memory, `carried` bytes by link (see `route`).
    """
    spent = {"grid": sum(count * device.grids[element].energy for element, count in macs.items()),
             "vector": operations * device.vector.energy}
    for name, count in traffic.items():
        memory = device.memory(name)
        spent[memory.level] = spent.get(memory.level, 0.0) + count * memory.energy
    spent["network"] = carried.get("network", 0.0) * device.network.energy
    spent["host_link"] = (carried.get("host.in", 0.0) + carried.get("host.out", 0.0)) * device.host_link.energy
    spent["static"] = seconds * device.static_power
    return spent


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
        """Instruction `number` begins. Raises NGraphError: more bytes of a memory are in use than it has."""
        for place in self._instructions[number]:
            if not self._live[place]:
                self._add(place, f"at instruction {number}")

    def end(self, number: int) -> None:
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


_SAME = 1e-12
"""Transfers of one route end together when what they have left differs by less than this part."""


@dataclass
class Timeline:
    """The result of a simulation: simulated seconds, bytes, joules.

    `start`, `end` and `startup` (`Demand.startup`) are by instruction; `busy` is by unit; `traffic` is bytes read and
    written by memory; `carried` is bytes by port or link, as `route` names them; `most` is the most bytes in use at
    once by memory; `energy` is by what spends it.
    """

    program: Program
    device: Device
    start: np.ndarray
    end: np.ndarray
    startup: np.ndarray
    seconds: float
    busy: dict[str, float]
    traffic: dict[str, float]
    carried: dict[str, float]
    most: dict[str, int]
    macs: dict[str, int]
    energy: dict[str, float]

    def utilisation(self) -> dict[str, float]:
        """The part of the time that each unit is busy, and the part of each port's and link's capacity that is used."""
        if not self.seconds:
            return {}
        units = {name: seconds / self.seconds for name, seconds in self.busy.items()}
        return units | {name: count / (capacity(name, self.device) * self.seconds)
                        for name, count in self.carried.items()}


def simulate(program: Program, device: Device | None = None) -> Timeline:
    """Simulate `program` on `device`, by default the one that it names. Raises NGraphError: an instruction waits for a
    later one, or a memory would hold more than its size."""
    device = device or load_device(program.device)
    demands = [demand_of(instruction, device) for instruction in program.instructions]
    start, end, most = _Simulation(program, device, demands).run()
    busy: defaultdict[str, float] = defaultdict(float)
    traffic: defaultdict[str, float] = defaultdict(float)
    carried: defaultdict[str, float] = defaultdict(float)
    macs: defaultdict[str, int] = defaultdict(int)
    for instruction, demand, taken in zip(program.instructions, demands, (end - start).tolist(), strict=True):
        if instruction.op != "barrier":
            busy[instruction.unit] += taken
        for name, count in demand.traffic.items():
            traffic[name] += count
        for element, count in demand.macs.items():
            macs[element] += count
        for name, weight in demand.route:
            carried[name] += demand.moved * weight
    seconds = float(end.max(initial=0.0))
    spent = energy(device, seconds, macs, sum(demand.operations for demand in demands), traffic, carried)
    startup = np.array([demand.startup for demand in demands])
    return Timeline(program, device, start, end, startup, seconds, dict(busy), dict(traffic), dict(carried), most,
                    dict(macs), spent)


_ELSEWHERE = "meanwhile"
"""The op of a step of the call that runs on another device; compiled Programs have none."""


def with_steps(program: Program, steps: Sequence[Meanwhile], names: tuple[Sequence[str], Sequence[str]], *,
               overlap: bool = True) -> tuple[Program, list[int]]:
    """The program of a whole call, in which each step is an instruction, on a unit of its lane; and their numbers.

    A step reads the buffers of results that it waits for, and writes those of inputs that it makes; `names` are those
    of the program's inputs and results. Without `overlap` all before it must have ended, and all behind it waits.
    """
    inputs, results = (dict(zip(own, buffers, strict=True)) for own, buffers in
                       zip(names, (program.inputs, program.outputs), strict=True))
    before: dict[int, list[int]] = {}
    for number, step in enumerate(steps):
        before.setdefault(step.part, []).append(number)
    made: list[Instruction] = []
    places: dict[int, int] = {}
    moved: dict[int, int] = {}
    begins: list[int] = []
    for part in range(max([len(program.begins), *before]) + 1):
        for number in before.get(part, ()):
            step = steps[number]
            reads, writes = (tuple(whole(buffers[name]) for name in own if name in buffers)
                             for buffers, own in ((results, step.reads), (inputs, step.makes)))
            places[number] = len(made)
            made.append(Instruction(f"host.lane{step.lane}", _ELSEWHERE, writes, reads, {"seconds": step.seconds},
                                    tuple(places[other] for other in step.after)))
        begins.append(len(made))
        for number in program.part(part):
            moved[number] = len(made)
            one = program.instructions[number]
            made.append(replace(one, after=tuple(moved[other] for other in one.after)))
    if not overlap:
        _wait(made, set(places.values()))
    found = replace(program, instructions=made, begins=begins[1:])
    return order(found), [places[number] for number in range(len(steps))]


def _wait(instructions: list[Instruction], alone: set[int]) -> None:
    """Let each of the instructions `alone` wait for all before it, and all behind it for it; in place."""
    last: dict[str, int] = {}
    latest: int | None = None
    for number, one in enumerate(instructions):
        more = last.values() if number in alone else [] if latest is None else [latest]
        instructions[number] = replace(one, after=tuple(sorted({*one.after, *more})))
        last[one.unit] = number
        latest = number if number in alone else latest


class _Simulation:
    def __init__(self, program: Program, device: Device, demands: list[Demand]) -> None:
        self.demands = demands
        self.occupancy = Occupancy(program, device)
        self.transfers = Transfers(list(dict.fromkeys(demand.route for demand in demands if demand.moved)), device)
        count = len(demands)
        self.start, self.end = np.zeros(count), np.zeros(count)
        self.waits = [0] * count
        self.followers: list[list[int]] = [[] for _ in range(count)]
        last: dict[str, int] = {}
        for number, instruction in enumerate(program.instructions):
            earlier = {*instruction.after}
            if instruction.unit in last:
                earlier.add(last[instruction.unit])
            last[instruction.unit] = number
            if any(not 0 <= other < number for other in earlier):
                raise NGraphError(f"instruction {number} waits for {sorted(earlier)}: expected earlier ones")
            self.waits[number] = len(earlier)
            for other in earlier:
                self.followers[other].append(number)

    def run(self) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
        """Begin and end of each instruction, and the most bytes in use by memory."""
        events: list[tuple[float, int, bool]] = []  # time, instruction, whether its transfer begins (else it ends)
        begun = [number for number, waits in enumerate(self.waits) if not waits]
        now, ended_count = 0.0, 0
        while True:
            for number in begun:
                self.occupancy.begin(number)
                self.start[number] = now
                heappush(events, (now + self.demands[number].seconds, number, self.demands[number].moved > 0))
            upcoming = self.transfers.next_end()
            if events and events[0][0] <= upcoming:
                now = events[0][0]
                done = []
            elif upcoming < np.inf:
                now = upcoming
                done = self.transfers.finish()
            else:
                break
            while events and events[0][0] == now:
                _, number, transfers = heappop(events)
                if transfers:
                    self.transfers.begin(now, number, self.demands[number].route, self.demands[number].moved)
                else:
                    done.append(number)
            begun = []
            for number in sorted(done):
                self.end[number] = now
                self.occupancy.end(number)
                for follower in self.followers[number]:
                    self.waits[follower] -= 1
                    if not self.waits[follower]:
                        begun.append(follower)
            ended_count += len(done)
            begun.sort()
        assert ended_count == len(self.demands), "every instruction waits for earlier ones only"
        return self.start, self.end, self.occupancy.most


class Transfers:
    """The transfers under way, by route. Those of one route move at one rate, so each ends when the bytes that one of
    them would have moved since the beginning of time reach a fixed mark."""

    def __init__(self, routes: list[Route], device: Device) -> None:
        self._places = {route: place for place, route in enumerate(routes)}
        names = list(dict.fromkeys(name for route in routes for name, _ in route))
        self._capacity = np.array([capacity(name, device) for name in names])
        self._weights = np.zeros((len(names), len(routes)))
        for place, route in enumerate(routes):
            for name, weight in route:
                self._weights[names.index(name), place] = weight
        self._counts = np.zeros(len(routes))
        self._moved = np.zeros(len(routes))
        self._marks = np.full(len(routes), np.inf)  # of the next to end
        self._rates = np.zeros(len(routes))
        self._queues: list[list[tuple[float, int]]] = [[] for _ in routes]
        self._known: dict[bytes, np.ndarray] = {}
        self._now = 0.0
        self._stale = False
        self._next = np.inf
        self._first = -1

    def begin(self, now: float, number: int, route: Route, size: int) -> None:
        """Transfer `number` begins to move `size` bytes."""
        self._advance(now)
        place = self._places[route]
        mark = float(self._moved[place]) + size
        heappush(self._queues[place], (mark, number))
        self._marks[place] = self._queues[place][0][0]
        self._counts[place] += 1
        self._stale = True

    def next_end(self) -> float:
        """When the next transfer ends; infinity where there is none."""
        if self._stale:
            self._stale = False
            key = self._counts.tobytes()
            if key not in self._known:
                self._known[key] = fair_rates(self._counts, self._weights, self._capacity)
            self._rates = self._known[key]
            active = np.flatnonzero(self._counts)
            if active.size:
                left = (self._marks[active] - self._moved[active]) / self._rates[active]
                at = int(left.argmin())
                self._first, self._next = int(active[at]), self._now + max(float(left[at]), 0.0)
            else:
                self._next = np.inf
        return float(self._next)

    def finish(self) -> list[int]:
        """End the next transfer and those that end with it; returns them."""
        self._advance(float(self._next))
        ended = []
        active = np.flatnonzero(self._counts)
        reached = self._moved[active] >= self._marks[active] * (1 - _SAME)
        for place in {self._first, *active[reached].tolist()}:
            queue = self._queues[place]
            limit = max(queue[0][0], float(self._moved[place])) * (1 + _SAME)
            while queue and queue[0][0] <= limit:
                ended.append(heappop(queue)[1])
                self._counts[place] -= 1
            self._marks[place] = queue[0][0] if queue else np.inf
            if not queue:
                self._moved[place] = 0.0
        self._stale = True
        return ended

    def _advance(self, now: float) -> None:
        if now > self._now:
            self._moved += self._rates * (now - self._now)
        self._now = now


def fair_rates(counts: np.ndarray, weights: np.ndarray, capacities: np.ndarray) -> np.ndarray:
    """The max-min fair rate of one transfer on each route (progressive filling: Bertsekas and Gallager, 1992, 6.5.2).

    `counts` [R] is the transfers by route, `weights` [P, R] the bytes in each port for one on the route, `capacities`
    [P] the ports' bytes a second.
    """
    rates, left = np.zeros(len(counts)), capacities
    open_ = np.flatnonzero(counts)
    loads = weights[:, open_] * counts[open_]
    while open_.size:
        load = loads.sum(axis=1)
        share = np.divide(left, load, out=np.full(len(left), np.inf), where=load > 0)
        lowest = max(share.min(), 0.0)
        full = loads[share <= lowest * (1 + _SAME)].any(axis=0)
        rates[open_[full]] = lowest
        left = left - loads[:, full].sum(axis=1) * lowest
        loads, open_ = loads[:, ~full], open_[~full]
    return rates
