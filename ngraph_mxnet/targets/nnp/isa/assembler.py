"""A Program as text, and back.

    program "head" for "nnp-i-1100:12W"
    memory ice0.sram 8192
    buffer %0 "x" host 0 f32[1,512]
    buffer %1 "x tile" ice0.sram 0 i8[1,512]
    input %0
    constant %2 AAECAw==
    0: ice0.dma0 copy %1[0:1,0:256] <- %0[0:1,0:256]
    1: ice0.vector vector %1 <- %1, %3 {"op": "add", "in_scales": [0.5, 0.5]} after 0 # "mx:add0 add"

A tile is a buffer, or a box of it as begin:end for each axis. Attributes are JSON; lists stand for tuples, and objects
with one key `$element`, `$array` or `$graph` for an element type, a NumPy array (element, shape, base64) and a graph.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ngraph_mxnet.errors import NGraphError
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.ir.parser import parse_graph
from ngraph_mxnet.ir.printer import print_graph
from ngraph_mxnet.ir.types import ElementType, element_type
from ngraph_mxnet.targets.nnp.isa.program import Buffer, Instruction, Program, Tile, whole

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
    """The inverse of `_plain`."""
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
    """The program that `text` describes.

    Raises:
        NGraphError: a line does not parse; the text names the line.
    """
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
    writes, reads = (_parse_tiles(tiles, buffers) for tiles in (found[4], found[5]))
    return Instruction(found[2], found[3], writes, reads, _rich(attrs), _integers(tail[1] or ""), origin)


def _parse_tiles(text: str, buffers: Mapping[str, Buffer]) -> tuple[Tile, ...]:
    return tuple(_parse_tile(number, box, buffers) for number, box in _TILE.findall(text))


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
