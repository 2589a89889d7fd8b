"""Cost of one instruction that runs alone: cycles of the grid and the vector unit, bytes that a transfer moves.

The grid keeps a block of `channels` x `positions` sums and takes `depth` input channels at one kernel tap a cycle: a
dimension that is no multiple of the grid's wastes the rest. For each cycle it reads a block's weights again; a row of
data is read once for all taps along it, or once a tap without `row_reuse`. It is as slow as the slowest of its sums and
of the memories that hold its operands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import ceil, prod
from typing import Any

from ngraph_mxnet.ir.op_table import get_op
from ngraph_mxnet.ir.types import Shape
from ngraph_mxnet.targets.nnp.device import Device, owner
from ngraph_mxnet.targets.nnp.isa.program import ELEMENT_BYTES, Instruction, Tile, attributes, operands

Route = tuple[tuple[str, float], ...]
"""The ports and links that a transfer uses, with the bytes in each for a byte of it."""


@dataclass
class Demand:
    """The load of an instruction on the device.

    Its unit takes `seconds` by itself. A transfer then moves `moved` bytes over `route`.
    `traffic` is the bytes read and written by memory; `macs` and `operations` are the arithmetic done, by element type.
    """

    seconds: float
    moved: int = 0
    route: Route = ()
    traffic: dict[str, float] = field(default_factory=dict)
    macs: dict[str, int] = field(default_factory=dict)
    operations: float = 0.0


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


def demand_of(instruction: Instruction, device: Device) -> Demand:
    """Return the cost of the instruction on `device` where it runs alone."""
    if instruction.op == "barrier":
        return Demand(0.0)
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
    traffic = _traffic([written, *tiles.values()])
    for tile, elements in ((data, done.data), (weights, done.weights)):
        traffic[tile.memory] = traffic.get(tile.memory, 0.0) + elements * size
    seconds = max(done.cycles / device.clock, _memory_seconds(device, traffic))
    return Demand(device.grid_startup + seconds, traffic=traffic, macs={data.element: done.macs})


def _vector(instruction: Instruction, device: Device) -> Demand:
    tiles = (*instruction.writes, *instruction.reads)
    shapes = [tile.shape for tile in instruction.reads], [tile.shape for tile in instruction.writes]
    name, attrs = _vector_op(instruction)
    counts: Mapping[str, float] = get_op(name).operations(*shapes, attrs)
    if name == "transpose" and device.native_transpose:
        counts = {"move": counts["gather"]}
    traffic = _traffic(tiles)
    widest = max((ELEMENT_BYTES[tile.element] for tile in tiles), default=1)
    seconds = max(vector_seconds(device, counts, widest), _memory_seconds(device, traffic))
    return Demand(device.vector.startup + seconds, traffic=traffic, operations=sum(counts.values()))


def _vector_op(instruction: Instruction) -> tuple[str, Mapping[str, Any]]:
    if instruction.op == "vector":
        return instruction.attrs["op"], instruction.attrs.get("attrs", {})
    return ("identity" if instruction.op == "fill" else instruction.op), instruction.attrs


def _traffic(tiles: Sequence[Tile]) -> dict[str, float]:
    total: dict[str, float] = {}
    for tile in tiles:
        total[tile.memory] = total.get(tile.memory, 0.0) + tile.bytes
    return total


def _memory_seconds(device: Device, traffic: Mapping[str, float]) -> float:
    return max((count / device.memory(name).bandwidth for name, count in traffic.items()), default=0.0)


def _transfer(instruction: Instruction, device: Device) -> Demand:
    (written,), source = instruction.writes, instruction.reads[0] if instruction.reads else None
    if not written.size:
        return Demand(device.dma_startup)
    element, run = ELEMENT_BYTES[written.element], written.size
    if instruction.op == "transpose" and not device.native_transpose:
        run = _kept_run(written.shape, attributes(instruction)["order"])
    sides = [(written.memory, _bursts(written, device.memory(written.memory).burst, run * element))]
    if source is not None:
        sides.append((source.memory, _bursts(source, device.memory(source.memory).burst, source.bytes)))
    traffic: dict[str, float] = {}
    for name, count in sides:
        traffic[name] = traffic.get(name, 0.0) + count
    latency = device.dma_startup + sum(device.memory(name).latency for name, _ in sides)
    if "host" in traffic:
        latency += device.host_link.latency
    return Demand(latency, max(count for _, count in sides), route(source.memory if source else None, written.memory),
                traffic)


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
    for size, whole in zip(reversed(tile.shape), reversed(tile.buffer.shape), strict=True):
        run *= size
        if size != whole:
            break
    run = min(run, longest)
    return tile.bytes // run * (ceil(run / burst) * burst)


@cache
def route(source: str | None, destination: str) -> Route:
    """The ports and links between two memories by name; a fill has no source.

    `ice0.sram` stands for the side of that memory towards the network, `ice0.in` and `ice0.out` for its engine's port,
    `host.in` and `host.out` for the two directions of the host's link, as the device sees them.
    """
    used: dict[str, float] = {destination: 1.0}
    if source is None:
        return tuple(used.items())
    used[source] = used.get(source, 0.0) + 1.0
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


def alone(demand: Demand, device: Device) -> float:
    """Seconds from begin to end where nothing else runs."""
    if not demand.moved:
        return demand.seconds
    return demand.seconds + demand.moved * max(weight / capacity(name, device) for name, weight in demand.route)
