"""How an engine goes through its box where not all of it fits its memory at once: sizes of tiles, and their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import prod

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.targets.nnp.lower.access import Read, granule, read, ways
from ngraph_mxnet.targets.nnp.lower.boxes import Box, cut, even
from ngraph_mxnet.targets.nnp.lower.resources import Resources
from ngraph_mxnet.targets.nnp.quantise.quantization import on_grid

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
    """What tiles' sizes along an axis should be multiples of: the grid's columns for output channels."""
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
