"""What one engine does for one node: tiles in, instructions, tiles out."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.targets.nnp.isa.program import ELEMENT_BYTES, Tile, whole
from ngraph_mxnet.targets.nnp.lower.access import Read, read
from ngraph_mxnet.targets.nnp.lower.allocator import padded
from ngraph_mxnet.targets.nnp.lower.boxes import Box
from ngraph_mxnet.targets.nnp.lower.places import Held, NoRoomError, Piece, Places, part_of
from ngraph_mxnet.targets.nnp.lower.tiles import Streams, Tiling
from ngraph_mxnet.targets.nnp.quantise.quantization import Quantization, on_grid


class Job:
    """What one engine computes of a node, `box` of its first output: operands that stay, tiles that come and go.

    `scale` is what an i8 product's sums are multiplied with. `shared` operands are read by other engines, too.
    """

    def __init__(self, places: Places, quantization: Quantization, node: Node, engine: str, box: Box,
                 scale: Value | None, shared: Set[Value]) -> None:
        self.places, self.resources, self.scales = places, places.resources, quantization.scales
        self.node, self.engine, self.box, self.scale = node, engine, box, scale
        self.shared = shared
        self.memory = self.resources.local_memory(engine)
        self.whole = read(node, box)
        self._kept: dict[int, Held] = {}
        self._results: list[Piece] = []
        self._stores: list[tuple[Held, Tile]] = []

    def begin(self, resident: bool) -> None:
        """Hold the operands that are here, and make room for the results: here if `resident`, else shared."""
        for position, (value, box) in enumerate(zip(self.node.inputs, self.whole.inputs, strict=True)):
            if self.places.local(value, box, self.engine) is not None:
                self._kept[position] = self.places.fetch(value, box, self.engine)
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
        inputs = [0 if position in self._kept else ELEMENT_BYTES[self.places.element(value)]
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
        elif name == "transpose" and self._alike():
            unit = self.resources.load_unit(self.engine) if self.resources.native_transpose else f"{self.engine}.vector"
            self.places.emit(unit, "transpose", writes, reads, {"order": part.attrs["order"]})
        else:
            attrs: dict[str, Any] = {"op": name, "attrs": dict(part.attrs)}
            if any(value in self.scales for value in (*self.node.inputs, *self.node.outputs)):
                attrs["in_scales"] = tuple(self.scales.get(value, 1.0) for value in self.node.inputs)
                attrs["out_scales"] = tuple(self.scales.get(value, 1.0) for value in self.node.outputs)
            self.places.emit(f"{self.engine}.vector", "vector", writes, reads, attrs)

    def _alike(self) -> bool:
        """Whether the result is stored as operand 0 is."""
        (value, *_), result = self.node.inputs, self.node.output
        return (self.places.element(value) == self.places.element(result)
                and self.scales.get(value) == self.scales.get(result))

    def _product(self, part: Read, reads: list[Tile], writes: list[Tile]) -> None:
        node, scales = self.node, self.scales
        convolution = node.op.kind == "convolution"
        names = ("strides", "dilations", "pads_begin", "pads_end", "groups") if convolution else (
            "transpose_a", "transpose_b")
        attrs = {key: part.attrs[key] for key in names}
        attrs |= {key: part.attrs[key] for key in ("lower", "upper") if key in part.attrs}
        axis = 1 if convolution else len(node.output.shape) - 1
        box = part.outputs[0]
        channels = Box((box.begin[axis],), (box.shape[axis],))
        tiles, held = list(reads[:2]), list[Held]()
        if len(node.inputs) > 2:
            attrs["has_bias"] = True
            tiles.append(reads[2] if reads[2].element == "f32" else self._widened(reads[2], held))
        if self.scale is not None:
            attrs["has_scale"] = True
            held.append(self.places.fetch(self.scale, channels, self.engine))
            tiles.append(held[-1].tile)
        if len(node.inputs) > 3:
            attrs["has_residual"] = True
            attrs["residual_scale"] = scales.get(node.inputs[3], 1.0)
            tiles.append(reads[3])
        attrs["out_scale"] = scales.get(node.output, 1.0)
        self.places.emit(f"{self.engine}.grid", "convolution" if convolution else "matmul", writes, tiles, attrs)
        for each in held:
            self.places.release(each.key)

    def _widened(self, tile: Tile, held: list[Held]) -> Tile:
        """A bias that is no weight, in f32 as the grid wants it."""
        buffer, key = self.places.allocate(self.memory, "f32", tile.shape, "t")
        held.append(Held(whole(buffer), key))
        self.places.emit(f"{self.engine}.vector", "vector", [held[-1].tile], [tile], {"op": "identity", "attrs": {}})
        return held[-1].tile
