"""How a node is cut into tiles and shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, product
from math import prod

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.targets.nnp.isa.program import ELEMENT_BYTES
from ngraph_mxnet.targets.nnp.lower.access import Box, Read, cut, even, full, granule, read, ways
from ngraph_mxnet.targets.nnp.lower.places import Places, Resources
from ngraph_mxnet.targets.nnp.quantization import on_grid
from ngraph_mxnet.targets.nnp.simulate.work import convolution_grid, matmul_grid, matmul_shape

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
    """The tiling that takes the least time for loads and stores, by an estimate; None if no tile fits `budget` bytes.

    `element` is that of operand 0, in which the grid computes a product. What is streamed in more than one tile takes
    `copies` times its bytes: 2 where the next one is to come while this one is used.
    """
    for columns in (resources.device.grids[element].channels if on_grid(node) else 1, 1):
        found = _choose(node, box, streams, budget, copies, resources, _multiples(node, columns))
        if found is not None:
            return found
    return None


def _choose(node: Node, box: Box, streams: Streams, budget: int, copies: int, resources: Resources,
            multiples: dict[int, int]) -> Tiling | None:
    table = ways(node)
    axes = _axes(node, box, table, streams)
    best: tuple[float, dict[int, int]] | None = None
    issue = resources.guesses.tile_seconds
    for counts in product(*([*_counts(box.shape[axis], multiples.get(axis, 1))] for axis in axes)):
        ranges = {axis: even(box.shape[axis], count, multiples.get(axis, 1))
                  for axis, count in zip(axes, counts, strict=True)}
        parts = {axis: len(found) for axis, found in ranges.items()}
        tiles = prod(parts.values())
        if best is not None and tiles * issue >= best[0]:
            continue
        sample = box  # the largest tile: one in the middle reads rows on both sides
        for axis, found in ranges.items():
            begin, size = found[1 if len(found) > 2 else 0]
            sample = sample.along(axis, box.begin[axis] + begin, size)
        sizes = _sizes(read(node, sample), streams)
        depends = _depends(node, table, parts)
        room = sum(size * (copies if any(parts[axis] > 1 for axis in own) else 1)
                   for size, own in zip(sizes, depends, strict=True))
        if room > budget:
            continue
        for order in permutations([axis for axis in axes if parts[axis] > 1]):
            moved = sum(size * prod(parts[axis] for axis in order[: _last(order, own)])
                        for size, own in zip(sizes, depends, strict=True))
            cost = (moved + sum(sizes)) / resources.bytes + tiles * issue
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


def _counts(size: int, multiple: int) -> Iterator[int]:
    most = -(-size // multiple)
    yield from (count for count in _COUNTS if count < most)
    yield most


def _sizes(found: Read, streams: Streams) -> list[int]:
    """Bytes of each operand's and output's part."""
    boxes = (*found.inputs, *found.outputs)
    return [box.size * each for box, each in zip(boxes, (*streams.inputs, *streams.outputs), strict=True)]


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
        cost = _cost(node, placed, places, weights)
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


def _cost(node: Node, placed: list[Shard], places: Places, weights: set) -> float:
    """Seconds, roughly: weights are loaded while the engine computes, other operands before."""
    resources, slowest = places.resources, 0.0
    element = places.element(node.inputs[0]) if node.inputs else ""
    for engine, box in placed:
        found = read(node, box)
        streamed = moved = 0
        for value, part in zip(node.inputs, found.inputs, strict=True):
            if not part.size or places.local(value, part, engine) is not None:
                continue
            size = ELEMENT_BYTES[places.element(value)] * part.size
            if value in weights:
                streamed += size
            else:
                memory = resources.local_memory(engine)
                here = [piece.box.meet(part) for piece in places.pieces.get(value, ()) if piece.tile.memory == memory]
                moved += size - ELEMENT_BYTES[places.element(value)] * sum(box.size for box in here if box)
        computing = computing_seconds(node, found, box, resources, element)
        slowest = max(slowest, max(computing, streamed / resources.bytes) + moved / resources.bytes)
    return slowest + resources.guesses.engine_seconds * len(placed) / len(resources.engines)


def computing_seconds(node: Node, found: Read, box: Box, resources: Resources, element: str) -> float:
    """Seconds that an engine computes on `box` of the result, for which it reads what `found` says.

    `element` is that of operand 0. For the grid these are the cycles that the timing simulator counts; of the memories
    it knows nothing.
    """
    if not on_grid(node):
        each = prod(found.inputs[1].shape[1:]) if node.op.kind == "convolution" else 1
        return each * max(box.size, *(0, *(value.type.size for value in node.inputs[:1]))) / resources.elements
    data, weights = (part.shape for part in found.inputs[:2])
    if node.op.kind == "convolution":
        done = convolution_grid(resources.device, element, data, weights, box.shape, found.attrs["groups"])
    else:
        sizes = matmul_shape(data, weights, box.shape, found.attrs["transpose_a"])
        done = matmul_grid(resources.device, element, *sizes)
    return done.cycles / resources.device.clock
