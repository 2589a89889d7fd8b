"""Values that are others' pieces under another shape or at another place: no instruction computes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod

from ngraph_mxnet.ir.builder import make_node
from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.types import Shape
from ngraph_mxnet.targets.nnp.isa.program import ELEMENT_BYTES, Buffer, Tile, whole
from ngraph_mxnet.targets.nnp.lower.access import Box
from ngraph_mxnet.targets.nnp.lower.places import Piece, Places
from ngraph_mxnet.targets.nnp.quantization import Quantization


def is_view(node: Node, quantization: Quantization) -> bool:
    """True if the node moves no data by itself: its operands are stored as its result is."""
    elements, scales = quantization.elements, quantization.scales
    name = node.op.name
    if name not in VIEWS or not all(
        elements[value] == elements[node.output] and scales.get(value) == scales.get(node.output)
        for value in node.inputs
    ):
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
            at = common.shifted(piece.box.begin)
            inside = tuple(a + b for a, b in zip(piece.tile.begin, at.begin, strict=True))
            tile = Tile(piece.tile.buffer, inside, common.shape)
            places.alias(node.output, Piece(common.shifted(wanted.begin), tile, piece.key))


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
    elements, scales = quantization.elements, quantization.scales

    def stored_as(value: Value, result: Value) -> bool:
        return elements[value] == elements[result] and scales.get(value) == scales.get(result)

    def with_conversions(node: Node) -> Iterator[Node]:
        if node.op.name in VIEWS and node.op.kind == "movement":
            for position, value in enumerate(node.inputs):
                if not stored_as(value, node.output):
                    conversion = make_node("identity", [value], {}, node.origin)
                    elements[conversion.output] = elements[node.output]
                    if node.output in scales:
                        scales[conversion.output] = scales[node.output]
                    node.inputs[position] = conversion.output
                    yield conversion
        yield node

    graph.nodes = [each for node in graph.nodes for each in with_conversions(node)]
