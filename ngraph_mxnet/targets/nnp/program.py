"""Programs of the simulated device: instructions over boxes of buffers in its memories; and a Program as text.

One `Program` is read twice: the functional simulator executes it in order, the timing simulator lets its units
overlap as far as `after` allows. As text it looks so:

    program "head" for "nnp-i-1100:12W"
    memory ice0.sram 8192
    buffer %0 "x" host 0 f32[1,512]
    buffer %1 "x tile" ice0.sram 0 i8[1,512]
    input %0
    constant %2 AAECAw==
    0: ice0.dma0 copy %1[0:1,0:256] <- %0[0:1,0:256]
    1: ice0.vector vector %1 <- %1, %3 {"op": "add", "in_scales": [0.5, 0.5]} after 0 # "mx:add0 add"

A line `part 7` says that a part of the call begins at instruction 7.

A tile is a buffer, or a box of it as begin:end for each axis. Attributes are JSON; lists stand for tuples, and objects
with one key `$element`, `$array` or `$graph` for an element type, a NumPy array (element, shape, base64) and a graph.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import NGraphError, TypeRuleError
from ngraph_mxnet.ir.graph import Graph, print_graph
from ngraph_mxnet.ir.opdef import all_ops, get_op
from ngraph_mxnet.ir.parser import parse_graph
from ngraph_mxnet.ir.types import (
    ELEMENT_TYPES,
    Attribute,
    Bool,
    ElementType,
    Float,
    Int,
    Ints,
    Shape,
    TensorType,
    element_type,
    f32,
)
from ngraph_mxnet.ops.contractions import convolution_type, matmul_type
from ngraph_mxnet.targets.nnp.access import Box
from ngraph_mxnet.targets.nnp.device import Device, owner

ELEMENT_BYTES: dict[str, int] = {**{name: element.size for name, element in ELEMENT_TYPES.items()}, "bf16": 2}
"""Bytes of one element of each type that a buffer may have: the IR's types, and bf16."""


@dataclass(frozen=True)
class Buffer:
    """A dense, row-major tensor at a byte `offset` of one memory. `element` is a name of `quantization.FORMATS`.

    Buffers may share bytes when their lives do not overlap, or as two shapes of one tensor.
    """

    name: str
    memory: str
    offset: int
    element: str
    shape: Shape

    def __hash__(self) -> int:
        return hash((self.name, self.offset))  # buffers are looked up for every tile

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * ELEMENT_BYTES[self.element]

    @property
    def end(self) -> int:
        return self.offset + self.bytes


@dataclass(frozen=True)
class Tile:
    """The box of `buffer` that begins at index `begin` and has `shape`; ranks are the buffer's."""

    buffer: Buffer
    begin: Shape
    shape: Shape

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * ELEMENT_BYTES[self.buffer.element]

    @property
    def memory(self) -> str:
        return self.buffer.memory

    @property
    def element(self) -> str:
        return self.buffer.element

    def overlaps(self, other: Tile) -> bool:
        """True if the two tiles share an index of one buffer. Tiles of different buffers never overlap by this test."""
        return self.buffer == other.buffer and self.box.overlaps(other.box)

    @property
    def box(self) -> Box:
        return Box(self.begin, self.shape)


def whole(buffer: Buffer) -> Tile:
    return Tile(buffer, (0,) * len(buffer.shape), buffer.shape)


@dataclass(frozen=True)
class Instruction:
    """One instruction of `unit`, such as `ice3.grid`; `op` is a name of `OPS`.

    It begins when the unit's previous instruction and those numbered in `after`, all earlier ones, have ended.
    `origin` is the IR node's.
    """

    unit: str
    op: str
    writes: tuple[Tile, ...]
    reads: tuple[Tile, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    after: tuple[int, ...] = ()
    origin: str = ""


@dataclass
class Program:
    """Instructions in an order in which executing one after the other is right.

    `inputs` and `outputs` are buffers in the order of the graph's parameters and results: of the memory `host`, or of a
    shared memory of the device where others write and read them there;
    `constants` maps further buffers to the bytes they hold before the first instruction.
    `sizes` is how many bytes each memory must have. `begins` are the instructions at which the parts of the call after
    the first begin, ascending: a part may need inputs that another device computes from the results of earlier parts.
    """

    name: str
    device: str
    instructions: list[Instruction] = field(default_factory=list)
    inputs: list[Buffer] = field(default_factory=list)
    outputs: list[Buffer] = field(default_factory=list)
    constants: dict[Buffer, bytes] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    begins: list[int] = field(default_factory=list)

    def part(self, number: int) -> range:
        """The instructions of a part of the call; none behind the last part that has any."""
        edges = [0, *self.begins, len(self.instructions)]
        return range(edges[number], edges[number + 1]) if number < len(edges) - 1 else range(edges[-1], edges[-1])


REALS = ("i8", "f16", "bf16", "f32")
"""Elements of tiles that hold real numbers, i8 with a scale."""


class Text(Attribute):
    expects = "a text"

    def convert(self, value: Any) -> str:
        if not isinstance(value, str):
            raise TypeError(value)
        return value


class Floats(Attribute):
    expects = "a list of numbers"

    def convert(self, value: Any) -> tuple[float, ...]:
        return tuple([float(v) for v in value])


class Table(Attribute):
    expects = "a mapping"

    def convert(self, value: Any) -> dict[str, Any]:
        return dict(value)


_RESULT: dict[str, Attribute] = {
    "has_bias": Bool(False),
    "has_scale": Bool(False),
    "has_residual": Bool(False),
    "accumulate": Bool(False),
    "final": Bool(True),
    "lower": Float(-inf),
    "upper": Float(inf),
    "out_scale": Float(1.0),
    "residual_scale": Float(1.0),
}


@dataclass(frozen=True)
class Op:
    """One op. `units` are the kinds of units that run it; `rule` raises NGraphError when the tiles don't fit."""

    name: str
    units: tuple[str, ...]
    schema: Mapping[str, Attribute]
    doc: str
    rule: Callable[[Instruction, Mapping[str, Any], Device], None] = lambda instruction, attrs, device: None
    writes: int | None = 1
    """How many tiles it writes; None where the rule tells."""
    reads: int | None = None

    def complete(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """`attrs` with defaults filled in. Raises TypeRuleError: one is unknown, missing or of the wrong kind."""
        unknown = sorted(attrs.keys() - self.schema.keys())
        if unknown:
            raise TypeRuleError(f"{self.name} has no attribute {unknown}; it has {list(self.schema)}")
        return {key: kind.check(self.name, key, attrs.get(key, kind.default)) for key, kind in self.schema.items()}


def attributes(instruction: Instruction) -> dict[str, Any]:
    """All attributes of the instruction, defaults filled in."""
    return OPS[instruction.op].complete(instruction.attrs)


def operands(instruction: Instruction) -> dict[str, Tile]:
    """Return the tiles that a `convolution` or `matmul` reads, by name.

    The names are `data` and `weights`, and those of `bias`, `scale`, `residual` and `accumulators` that it has.
    """
    attrs, names = instruction.attrs, ["data", "weights"]
    names += [name for name in ("bias", "scale", "residual") if attrs.get(f"has_{name}", False)]
    if attrs.get("accumulate", False):
        names.append("accumulators")
    _count("reads", instruction.reads, len(names), ", ".join(names))
    return dict(zip(names, instruction.reads, strict=True))


def check(instruction: Instruction, device: Device, number: int = 0) -> None:
    """Refuse an instruction that the device can't run. `number` is its place in the program. Raises NGraphError: naming
    the instruction, what was found and what was expected."""
    try:
        if instruction.op not in OPS:
            raise NGraphError(f"no op {instruction.op!r}; known: {', '.join(OPS)}")
        op = OPS[instruction.op]
        kind = device.unit_kind(instruction.unit)
        _require(kind in op.units, "unit", instruction.unit, f"one of kind {' or '.join(op.units)}")
        for tile in (*instruction.writes, *instruction.reads):
            device.memory(tile.memory)
            require_within(tile)
            if kind in ("grid", "vector"):
                _require(owner(tile.memory) == owner(instruction.unit), "a tile in", tile.memory,
                         f"a memory of {owner(instruction.unit)}: {instruction.unit} reaches no other")
        attrs = op.complete(instruction.attrs)
        for what, tiles, wanted in (("writes", instruction.writes, op.writes), ("reads", instruction.reads, op.reads)):
            if wanted is not None:
                _count(what, tiles, wanted, "")
        if kind == "dma":
            _reach(instruction)
        op.rule(instruction, attrs, device)
    except NGraphError as error:
        origin = f" (for {instruction.origin})" if instruction.origin else ""
        raise NGraphError(f"instruction {number}, {instruction.op} on {instruction.unit}{origin}: {error}") from None


def _require(holds: bool, what: str, found: object, expected: object) -> None:
    if not holds:
        raise NGraphError(f"{what}: found {found}, expected {expected}")


def _count(what: str, tiles: Sequence[Tile], wanted: int, names: str) -> None:
    _require(len(tiles) == wanted, what, f"{len(tiles)} tiles", f"{wanted}" + (f": {names}" if names else ""))


def require_within(tile: Tile) -> None:
    """Refuse a tile of an unknown element or not within its buffer. Raises NGraphError: naming the buffer, what was
    found and what was expected."""
    name, elements = tile.buffer.name, list(ELEMENT_BYTES)
    _require(tile.element in elements, f"element of {name}", tile.element, f"one of {elements}")
    inside = len(tile.begin) == len(tile.shape) == len(tile.buffer.shape) and all(
        begin >= 0 and size >= 0 and begin + size <= whole
        for begin, size, whole in zip(tile.begin, tile.shape, tile.buffer.shape, strict=True))
    _require(inside, f"a tile of {name}", f"{list(tile.shape)} from {list(tile.begin)}",
             f"one within {list(tile.buffer.shape)}")


def _reach(instruction: Instruction) -> None:
    """Only the host's DMA reaches the host's memory, and it reaches no two memories of the device at once."""
    memories = [tile.memory for tile in (*instruction.writes, *instruction.reads)]
    if owner(instruction.unit) == "host" and memories:
        _require("host" in memories, "tiles in", memories, "one in the memory host: host.dma moves from or to it")
    else:
        _require("host" not in memories, "tiles in", memories, "none in the memory host: only host.dma reaches it")


def _moved(instruction: Instruction, shape: Shape) -> None:
    (written,), (read,) = instruction.writes, instruction.reads
    _require(written.element == read.element, "written element", written.element, read.element)
    _require(written.shape == shape, "written shape", list(written.shape), list(shape))


def _copy(instruction: Instruction, attrs: Mapping[str, Any], device: Device) -> None:
    _moved(instruction, instruction.reads[0].shape)


def _transpose(instruction: Instruction, attrs: Mapping[str, Any], device: Device) -> None:
    shape, order = instruction.reads[0].shape, attrs["order"]
    _require(sorted(order) == list(range(len(shape))), "order", list(order), f"a permutation of {len(shape)} axes")
    _moved(instruction, tuple(shape[axis] for axis in order))


def _product(instruction: Instruction, attrs: Mapping[str, Any], device: Device, shape: Shape, features: int) -> None:
    """Check what `convolution` and `matmul` share: the result has `shape`; bias and scale have `features` elements."""
    tiles = operands(instruction)
    (written,), element = instruction.writes, tiles["data"].element
    _require(element in device.grids, "element of the operands", element, f"one of {list(device.grids)}")
    _require(tiles["weights"].element == element, "element of the weights", tiles["weights"].element, element)
    sums = "i32" if element == "i8" else "f32"
    for name in ("bias", "scale"):
        if name in tiles:
            _require(attrs["final"], name, "given", "none where final is false")
            found = f"{tiles[name].element}{list(tiles[name].shape)}"
            _require(found == f"f32[{features}]", name, found, f"f32[{features}]")
    for name, elements in (("residual", REALS), ("accumulators", (sums,))):
        if name in tiles:
            _require(tiles[name].element in elements, f"element of the {name}", tiles[name].element, list(elements))
            _require(tiles[name].shape == shape, f"shape of the {name}", list(tiles[name].shape), list(shape))
    _require(attrs["final"] or "residual" not in tiles, "residual", "given", "none where final is false")
    results = REALS if attrs["final"] else (sums,)
    _require(written.element in results, "written element", written.element, f"one of {list(results)}")
    _require(written.shape == shape, "written shape", list(written.shape), list(shape))


def _convolution_rule(instruction: Instruction, attrs: Mapping[str, Any], device: Device) -> None:
    tiles = operands(instruction)
    spatial = (1,) * max(len(tiles["data"].shape) - 2, 0)
    types = [TensorType(f32, tiles[name].shape) for name in ("data", "weights")]
    shape = convolution_type(types, {**attrs, "data_dilations": spatial}).shape
    _product(instruction, attrs, device, shape, shape[1])


def _matmul_rule(instruction: Instruction, attrs: Mapping[str, Any], device: Device) -> None:
    tiles = operands(instruction)
    shape = matmul_type([TensorType(f32, tiles[name].shape) for name in ("data", "weights")], attrs).shape
    _product(instruction, attrs, device, shape, shape[-1])


def _vector(instruction: Instruction, attrs: Mapping[str, Any], device: Device) -> None:
    try:
        op = get_op(attrs["op"])
    except KeyError as error:
        raise NGraphError(str(error.args[0])) from None
    for name, tiles in (("in_scales", instruction.reads), ("out_scales", instruction.writes)):
        scales = attrs[name]
        _require(len(scales) in (0, len(tiles)), name, len(scales), f"{len(tiles)}, one for each tile, or none")
    shapes = [output.shape for output in _inferred(op, instruction.reads, attrs["attrs"])]
    _require(shapes == [tile.shape for tile in instruction.writes], f"written shapes of {op.name}",
             [list(tile.shape) for tile in instruction.writes], [list(shape) for shape in shapes])


def _inferred(op: Any, reads: Sequence[Tile], attrs: Mapping[str, Any]) -> list[TensorType]:
    """The types of the op's results, with f32 for real numbers. i8 is taken for quantised real numbers first, and for
    integers where the op does not take reals there."""
    checked = op.check_attrs(attrs)
    types = [TensorType(f32 if t.element in REALS else ELEMENT_TYPES[t.element], t.shape) for t in reads]
    try:
        return op.infer(types, op.complete(types, checked))
    except TypeRuleError:
        if not any(tile.element == "i8" for tile in reads):
            raise
    types = [TensorType(f32 if t.element == "bf16" else ELEMENT_TYPES[t.element], t.shape) for t in reads]
    return op.infer(types, op.complete(types, checked))


def _gather(instruction: Instruction, attrs: Mapping[str, Any], device: Device) -> None:
    _vector(instruction, {**attrs, "in_scales": (), "out_scales": ()}, device)
    rowed = [name for name, op in all_ops().items() if op.kind == "indexing" and op.rows is not None]
    _require(attrs["op"] in rowed, "op", attrs["op"], f"one of {rowed}")
    _require(instruction.writes[0].element == instruction.reads[0].element, "written element",
             instruction.writes[0].element, instruction.reads[0].element)


OPS: dict[str, Op] = {op.name: op for op in (
    Op("copy", ("dma",), {}, "copies the read tile to the written tile of the same element and shape", _copy, reads=1),
    Op("fill", ("dma", "vector"), {"value": Float()}, "writes `value` to every element of the written tile", reads=0),
    Op("gather", ("dma",), {"op": Text(), "attrs": Table({})},
       "copies the rows of the first read tile that the second one, of indices, names to the written tile of the same "
       "element, as the IR op `op` with attributes `attrs`", _gather, reads=2),
    Op("transpose", ("dma", "vector"), {"order": Ints()},
       "makes axis `order[i]` of the read tile axis i of the written tile", _transpose, reads=1),
    Op("convolution", ("grid",),
       {"strides": Ints(), "dilations": Ints(), "pads_begin": Ints(), "pads_end": Ints(), "groups": Int(1), **_RESULT},
       "convolves data [N, C, *S] with weights [O, C/groups, *K] to [N, O, *R], as the IR's convolution; bias and "
       "scale have shape [O]",
       _convolution_rule),
    Op("matmul", ("grid",), {"transpose_a": Bool(False), "transpose_b": Bool(False), **_RESULT},
       "multiplies [..., M, K] by [..., K, N] to [..., M, N], as the IR's matmul; bias and scale have shape [N]",
       _matmul_rule),
    Op("vector", ("vector",), {"op": Text(), "attrs": Table({}), "in_scales": Floats(()), "out_scales": Floats(())},
       "computes the IR op `op` with attributes `attrs` on f32 values, and rounds to the written tiles' elements; "
       "`in_scales` and `out_scales` hold one number a tile, the scale of an i8 tile and 1 for others; without them, "
       "i8 tiles are integers", _vector, writes=None),
    Op("barrier", ("dma", "grid", "vector"), {},
       "does nothing; it ends when the instructions in its `after` have ended", writes=0, reads=0),
)}


_TILES = r"(?:-|%\d+(?:\[[\d:,]*\])?(?:, %\d+(?:\[[\d:,]*\])?)*)"
_INSTRUCTION = re.compile(rf"(\d+): (\S+) (\w+) ({_TILES}) <- ({_TILES})(.*)\Z")
_TILE = re.compile(r"%(\d+)(?:\[([\d:,]*)\])?")
_BUFFER = re.compile(r'%(\d+) ("(?:[^"\\]|\\.)*") (\S+) (\d+) (\w+)\[([\d,]*)\]\Z')
_REST = re.compile(r"(?: after ([\d,]+))?(?: # (.*))?\Z")
_HEADER = re.compile(r'program ("(?:[^"\\]|\\.)*") for ("(?:[^"\\]|\\.)*")\Z')


def print_program(program: Program, *, elide: bool = False) -> str:
    """The text; `elide` leaves out what constants hold (such text does not parse back)."""
    numbers: dict[Buffer, int] = {}
    tiles = (tile for instruction in program.instructions for tile in (*instruction.writes, *instruction.reads))
    for buffer in (*program.inputs, *program.outputs, *program.constants, *(tile.buffer for tile in tiles)):
        numbers.setdefault(buffer, len(numbers))
    lines = [f"program {json.dumps(program.name)} for {json.dumps(program.device)}"]
    lines += [f"memory {name} {size}" for name, size in program.sizes.items()]
    lines += [f"buffer %{number} {json.dumps(buffer.name)} {buffer.memory} {buffer.offset} "
              f"{buffer.element}[{','.join(map(str, buffer.shape))}]" for buffer, number in numbers.items()]
    for word, buffers in (("input", program.inputs), ("output", program.outputs)):
        lines += [f"{word} %{numbers[buffer]}" for buffer in buffers]
    for buffer, content in program.constants.items():
        lines.append(f"constant %{numbers[buffer]} " + ("..." if elide else base64.b64encode(content).decode()))
    lines += [f"part {number}" for number in program.begins]
    lines += [_line(number, instruction, numbers) for number, instruction in enumerate(program.instructions)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _line(number: int, instruction: Instruction, numbers: Mapping[Buffer, int]) -> str:
    writes, reads = (", ".join(_tile(tile, numbers) for tile in tiles) or "-"
                     for tiles in (instruction.writes, instruction.reads))
    line = f"{number}: {instruction.unit} {instruction.op} {writes} <- {reads}"
    if instruction.attrs:
        line += " " + json.dumps(_plain(instruction.attrs))
    if instruction.after:
        line += f" after {','.join(map(str, instruction.after))}"
    return line + (f" # {json.dumps(instruction.origin)}" if instruction.origin else "")


def _tile(tile: Tile, numbers: Mapping[Buffer, int]) -> str:
    box = ",".join(f"{begin}:{begin + size}" for begin, size in zip(tile.begin, tile.shape, strict=True))
    return f"%{numbers[tile.buffer]}" + ("" if tile == whole(tile.buffer) else f"[{box}]")


def _plain(value: Any) -> Any:
    """`value` in what JSON has."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(entry) for entry in value]
    if isinstance(value, ElementType):
        return {"$element": value.name}
    if isinstance(value, np.ndarray):
        content = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"$array": [element_type(value.dtype).name, list(value.shape), content]}
    if isinstance(value, Graph):
        return {"$graph": print_graph(value)}
    return value.item() if isinstance(value, np.generic) else value


def _rich(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_rich(entry) for entry in value)
    if not isinstance(value, dict):
        return value
    if set(value) == {"$element"}:
        return element_type(value["$element"])
    if set(value) == {"$array"}:
        name, shape, content = value["$array"]
        return np.frombuffer(base64.b64decode(content, validate=True), element_type(name).numpy).reshape(shape)
    if set(value) == {"$graph"}:
        return parse_graph(value["$graph"])
    return {key: _rich(entry) for key, entry in value.items()}


def parse_program(text: str) -> Program:
    """The program that `text` describes. Raises NGraphError: a line does not parse; the text names the line."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    header = _HEADER.match(lines[0][1]) if lines else None
    if header is None:
        raise NGraphError("line 1: expected 'program \"name\" for \"device\"'")
    program, buffers = Program(json.loads(header[1]), json.loads(header[2])), dict[str, Buffer]()
    for number, line in lines[1:]:
        try:
            _parse_line(program, buffers, line)
        except (NGraphError, ValueError, KeyError, TypeError) as error:
            raise NGraphError(f"line {number}: can't read {line[:80]!r}: {error}") from None
    return program


def _parse_line(program: Program, buffers: dict[str, Buffer], line: str) -> None:
    word, _, rest = line.partition(" ")
    if word == "memory":
        name, size = rest.split(" ")
        program.sizes[name] = int(size)
    elif word == "buffer":
        found = _match(_BUFFER, rest, 'a buffer as %0 "name" memory offset f32[2,3]')
        if found[1] in buffers:
            raise NGraphError(f"%{found[1]} is defined twice")
        buffers[found[1]] = Buffer(json.loads(found[2]), found[3], int(found[4]), found[5], _integers(found[6]))
    elif word == "input":
        program.inputs.append(_buffer(buffers, rest))
    elif word == "output":
        program.outputs.append(_buffer(buffers, rest))
    elif word == "part":
        program.begins.append(int(rest))
    elif word == "constant":
        name, _, content = rest.partition(" ")
        program.constants[_buffer(buffers, name)] = base64.b64decode(content, validate=True)
    else:
        program.instructions.append(_parse_instruction(line, buffers, len(program.instructions)))


def _parse_instruction(line: str, buffers: Mapping[str, Buffer], place: int) -> Instruction:
    found = _match(_INSTRUCTION, line, "an instruction as '0: ice0.dma0 copy %1 <- %0'")
    if int(found[1]) != place:
        raise NGraphError(f"found number {found[1]}, expected {place}")
    rest, attrs = found[6], dict[str, Any]()
    if rest.startswith(" {"):
        attrs, end = json.JSONDecoder().raw_decode(rest, 1)
        rest = rest[end:]
    tail = _match(_REST, rest, "after 1,2 # \"origin\"")
    origin = json.loads(tail[2]) if tail[2] else ""
    writes, reads = (tuple(_parse_tile(number, box, buffers) for number, box in _TILE.findall(tiles))
                     for tiles in (found[4], found[5]))
    return Instruction(found[2], found[3], writes, reads, _rich(attrs), _integers(tail[1] or ""), origin)


def _parse_tile(number: str, box: str, buffers: Mapping[str, Buffer]) -> Tile:
    buffer = _buffer(buffers, f"%{number}")
    if not box:
        return whole(buffer)
    edges = [tuple(int(edge) for edge in axis.split(":")) for axis in box.split(",")]
    return Tile(buffer, tuple(begin for begin, _ in edges), tuple(end - begin for begin, end in edges))


def _buffer(buffers: Mapping[str, Buffer], name: str) -> Buffer:
    if name[1:] not in buffers or name[0] != "%":
        raise NGraphError(f"no buffer {name}")
    return buffers[name[1:]]


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(entry) for entry in text.split(",") if entry)


def _match(pattern: re.Pattern[str], text: str, expected: str) -> re.Match[str]:
    found = pattern.match(text)
    if found is None:
        raise NGraphError(f"expected {expected}")
    return found
