"""Which engine computes which box of a node's result."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import prod

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.targets.nnp.isa.program import ELEMENT_BYTES
from ngraph_mxnet.targets.nnp.lower.access import Read, granule, read, ways
from ngraph_mxnet.targets.nnp.lower.boxes import Box, cut, full
from ngraph_mxnet.targets.nnp.lower.places import Places
from ngraph_mxnet.targets.nnp.lower.resources import Resources
from ngraph_mxnet.targets.nnp.quantise.quantization import on_grid
from ngraph_mxnet.targets.nnp.simulate.work import convolution_grid, matmul_grid, matmul_shape

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
