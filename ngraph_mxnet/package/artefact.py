"""The file of a compiled model as plain data, and written (docs/artefact.md); `artefact_reader` reads it."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ngraph_mxnet.errors import PackageError
from ngraph_mxnet.ir.types import TensorType
from ngraph_mxnet.package.files import write_file
from ngraph_mxnet.version import __version__

FORMAT = 1
MAGIC = b"ngraph artefact\n"
MOST_SECTIONS = 4096
ISAS = ("baseline", "avx2", "avx512")
"""The instruction sets; see `isa_number`."""
HEADER = struct.Struct("<16sIIQ16s16x")
SECTION = struct.Struct("<IIQQ16sII16x")
REQUIRED = 1
"""The flag of a section that every reader must know."""
ALIGNMENT, DATA_ALIGNMENT = 64, 4096
PIECE = 1 << 20
"""Bytes that are checked at once."""
AFTER = 64
"""Bytes after an array that belong to none: a kernel's last vector may reach into them."""

NamedType = tuple[str, TensorType]
Instruction = tuple[Any, ...]
"""(kernel, [(space, index, offset)], ints, floats, tasks, origin, operations, bytes)"""


class Kind(IntEnum):
    """Of a section."""

    META = 1
    DATA = 2
    PROGRAM = 3
    REFERENCE = 4
    CHECKS = 5


@dataclass(frozen=True)
class ArtefactProgram:
    """The instructions for one instruction set and for one set of shapes, which is numbered from 0."""

    isa: str
    shapes: int
    inputs: tuple[NamedType, ...]
    outputs: tuple[NamedType, ...]
    arena_bytes: int
    constants: Sequence[np.ndarray]
    levels: Sequence[Sequence[Instruction]]

    @property
    def instructions(self) -> int:
        return sum(map(len, self.levels))


@dataclass(frozen=True)
class Reference:
    """What a program for these shapes gives."""

    shapes: int
    inputs: Sequence[np.ndarray]
    outputs: Sequence[np.ndarray]


@dataclass(frozen=True)
class Origin:
    """What a set of shapes was compiled from. `graph`: a digest (`ir.fingerprint`). `parameters`: of the graph, in the
    digest's order, the name of an input or the check of a weight's content."""

    graph: str
    parameters: Sequence[str | bytes]

    def to_dict(self) -> dict[str, Any]:
        """As META has it."""
        parameters = [{"input": one} if isinstance(one, str) else {"weight": one.hex()} for one in self.parameters]
        return {"graph": self.graph, "parameters": parameters}

    @staticmethod
    def of(found: Any) -> Origin:
        """Of what META has. Raises AttributeError, LookupError, TypeError or ValueError if it is none."""
        parameters = [str(one["input"]) if "input" in one else bytes.fromhex(one["weight"])
                      for one in found["parameters"]]
        return Origin(str(found["graph"]), parameters)


@dataclass(frozen=True)
class Artefact:
    """A compiled model. `programs`: for each set of shapes those of all its instruction sets; `origins`: of each set
    of shapes."""

    name: str
    programs: Sequence[ArtefactProgram]
    precision: str = "f32"
    metadata: Mapping[str, str] = field(default_factory=dict)
    references: Sequence[Reference] = ()
    origins: Sequence[Origin] = ()
    made_by: str = f"ngraph_mxnet {__version__}"

    def save(self, path: str | Path) -> None:
        """Write a file, which appears whole or not at all.

        Raises:
            PackageError: there is too much of something.
            OSError: it can't be written.
        """
        write_file(path, _parts(self))

    def to_bytes(self) -> bytes:
        """Raises PackageError as `save` does."""
        return b"".join(_parts(self))


def isa_number(isa: str) -> int:
    """That of an instruction set in the file. Raises ValueError for an unknown one."""
    return 1 + ISAS.index(isa)


class EqualArrays:
    """One array for all that have the same bytes."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, bytes], np.ndarray] = {}

    def one(self, array: np.ndarray) -> np.ndarray:
        """The first array that had the bytes of this one; a copy of a view, which would keep what it is a view of."""
        memory = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        key = memory.nbytes, hashlib.sha256(memory.data).digest()
        if key not in self._found:
            self._found[key] = array if array.base is None else array.copy()
        return self._found[key]

    def of_program(self, program: ArtefactProgram, shapes: int = 0) -> ArtefactProgram:
        """The program for this set of shapes, with constants that others have, too."""
        return replace(program, shapes=shapes, constants=[self.one(array) for array in program.constants])


@cache
def check_key() -> bytes:
    """The first outputs of splitmix64 from state 0."""
    import ngraph_mxnet._core as _core

    mask, state, words = (1 << 64) - 1, 0, []
    for _ in range(_core.hash_key_bytes // 8):
        state = state + 0x9E3779B97F4A7C15 & mask
        word = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & mask
        word = (word ^ word >> 27) * 0x94D049BB133111EB & mask
        words.append(word ^ word >> 31)
    return struct.pack(f"<{len(words)}Q", *words)


def check(content: bytes | memoryview) -> bytes:
    """16 bytes that tell damage, not intent."""
    return _hash(checks(content))


def checks(content: bytes | memoryview) -> bytes:
    """Those of the pieces, 16 bytes each."""
    return b"".join(_hash(content[at:at + PIECE]) for at in range(0, len(content), PIECE))


def _hash(content: bytes | memoryview) -> bytes:
    import ngraph_mxnet._core as _core

    found: bytes = _core.content_hash128(np.frombuffer(content, np.uint8), check_key())
    return found


def _up(size: int, alignment: int = ALIGNMENT) -> int:
    return -(-size // alignment) * alignment


class _Data:
    """The content of DATA."""

    def __init__(self) -> None:
        self._equal = EqualArrays()
        self._places: dict[int, int] = {}
        self._kept: list[np.ndarray] = []
        self._parts: list[bytes] = []
        self._size = 0

    def place(self, array: np.ndarray) -> int:
        """Its offset."""
        array = self._equal.one(array)
        if id(array) not in self._places:
            self._places[id(array)] = self._size
            self._kept.append(array)
            size = _up(array.nbytes + AFTER)
            self._parts += [array.tobytes(), bytes(size - array.nbytes)]
            self._size += size
        return self._places[id(array)]

    def content(self) -> bytes:
        return b"".join(self._parts)


def _parts(artefact: Artefact) -> Iterable[bytes]:
    """The bytes of the file, one after the other."""
    data = _Data()
    try:
        sections = [(Kind.META, 0, 0, _meta(artefact))]
        sections += [(Kind.PROGRAM, isa_number(program.isa), program.shapes, _program(program, data))
                     for program in artefact.programs]
        sections += [(Kind.REFERENCE, 0, 0, _reference(one)) for one in artefact.references]
        content = data.content()
        sections += [(Kind.CHECKS, 0, 0, checks(content)), (Kind.DATA, 0, 0, content)]
        if len(sections) > MOST_SECTIONS:
            raise PackageError(f"{len(sections)} sections, at most {MOST_SECTIONS}: give fewer sets of shapes")
        position, table, contents = HEADER.size + SECTION.size * len(sections), b"", []
        for kind, isa, shapes, content in sections:
            offset = _up(position, DATA_ALIGNMENT if kind is Kind.DATA else ALIGNMENT)
            flags = 0 if kind in (Kind.REFERENCE, Kind.CHECKS) else REQUIRED
            table += SECTION.pack(kind, flags, offset, len(content), check(content), isa, shapes)
            contents += [bytes(offset - position), content]
            position = offset + len(content)
    except (struct.error, TypeError, ValueError) as error:
        raise PackageError(f"model {artefact.name} can't be written: {error}") from error
    return [HEADER.pack(MAGIC, FORMAT, len(sections), position, check(table)), table, *contents]


def _meta(artefact: Artefact) -> bytes:
    metadata = {str(key): str(value) for key, value in artefact.metadata.items()}
    return json.dumps({"name": artefact.name, "made_by": artefact.made_by, "metadata": metadata,
                       "precision": artefact.precision,
                       "origins": [origin.to_dict() for origin in artefact.origins]}).encode()


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack("<I", len(encoded)) + encoded


def _named_type(name: str, type_: TensorType) -> bytes:
    return (_text(name) + _text(type_.element.name)
            + struct.pack(f"<I{type_.rank}Q", type_.rank, *type_.shape))


def _program(program: ArtefactProgram, data: _Data) -> bytes:
    texts: dict[str, int] = {}
    for level in program.levels:
        for kernel, _, _, _, _, origin, *_ in level:
            texts.setdefault(kernel, len(texts))
            texts.setdefault(origin, len(texts))
    parts = [struct.pack("<2I", len(program.inputs), len(program.outputs)),
             *(_named_type(*port) for port in (*program.inputs, *program.outputs)),
             struct.pack("<QI", program.arena_bytes, len(program.constants)),
             *(struct.pack("<2Q", data.place(array), array.nbytes) for array in program.constants),
             struct.pack("<I", len(texts)), *map(_text, texts), struct.pack("<I", len(program.levels))]
    for level in program.levels:
        parts.append(struct.pack("<I", len(level)))
        parts += [_instruction(instruction, texts) for instruction in level]
    return b"".join(parts)


def _instruction(instruction: Instruction, texts: Mapping[str, int]) -> bytes:
    kernel, operands, ints, floats, tasks, origin, operations, touched = instruction
    return (struct.pack("<5IQ2d", texts[kernel], texts[origin], len(operands), len(ints), len(floats), tasks,
                        operations, touched)
            + b"".join(struct.pack("<2IQ", *operand) for operand in operands)
            + struct.pack(f"<{len(ints)}q{len(floats)}d", *ints, *floats))


def _reference(reference: Reference) -> bytes:
    arrays = [np.ascontiguousarray(array) for array in (*reference.inputs, *reference.outputs)]
    return (struct.pack("<3I", reference.shapes, len(reference.inputs), len(reference.outputs))
            + b"".join(struct.pack("<Q", array.nbytes) + array.tobytes() for array in arrays))
