"""Writes the file of a compiled model (docs/artefact.md), each program when it is made: its weights need not stay."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ngraph_mxnet.errors import PackageError
from ngraph_mxnet.ir.types import TensorType
from ngraph_mxnet.package.artefact import (
    AFTER,
    DATA_ALIGNMENT,
    FORMAT,
    HEADER,
    MAGIC,
    MOST_SECTIONS,
    PIECE,
    REQUIRED,
    SECTION,
    Artefact,
    ArtefactProgram,
    Instruction,
    Kind,
    Meta,
    Origin,
    ProgramSummary,
    Reference,
    Summary,
    check,
    hash_of,
    isa_number,
    round_up,
)
from ngraph_mxnet.package.artefact_ranges import ArtefactRange, RangeSummary, range_bytes
from ngraph_mxnet.package.fields import text_field
from ngraph_mxnet.package.files import new_file

Item = ArtefactProgram | ArtefactRange | Reference | Origin
_OTHERS = 3
"""Sections beside programs and references: META, CHECKS, DATA."""
_Section = tuple[Kind, int, int, bytes]
"""(kind, number of the instruction set, set of shapes, content)"""


def write_artefact(path: str | Path, meta: Meta, items: Iterable[Item], count: int) -> Summary:
    """Write a file, which appears whole or not at all. `items` are made while it is written;
    `count` of them are no origins.

    Raises:
        PackageError: there is too much of something.
        OSError: it can't be written.
    """
    with new_file(path) as file:
        return _write(file, meta, items, count)


def to_bytes(artefact: Artefact) -> bytes:
    """The content of its file. Raises PackageError as `write_artefact` does."""
    file = BytesIO()
    items: list[Item] = [*artefact.programs, *artefact.ranges, *artefact.references, *artefact.origins]
    _write(file, artefact.meta, items, len(items) - len(artefact.origins))
    return file.getvalue()


def _write(file: BinaryIO, meta: Meta, items: Iterable[Item], count: int) -> Summary:
    """First DATA, as it comes, behind room for the table; then all other sections, and the table at last."""
    if count + _OTHERS > MOST_SECTIONS:
        raise PackageError(f"{count + _OTHERS} sections, at most {MOST_SECTIONS}: give fewer sets of shapes")
    start = round_up(HEADER.size + SECTION.size * (count + _OTHERS), DATA_ALIGNMENT)
    file.write(bytes(start))
    data, programs, ranges, origins = _Data(file), list[ProgramSummary](), list[RangeSummary](), list[Origin]()
    by_kind: dict[Kind, list[_Section]] = {Kind.META: [], Kind.PROGRAM: [], Kind.RANGE: [], Kind.REFERENCE: []}
    for item in items:
        if isinstance(item, Origin):
            origins.append(item)
            continue
        section = _encoded(meta, item, data)
        by_kind[section[0]].append(section)
        if isinstance(item, ArtefactProgram):
            programs.append(item.summary())
        elif isinstance(item, ArtefactRange):
            ranges.append(item.summary())
        del item  # its weights go before the next one is made
    by_kind[Kind.META].append((Kind.META, 0, 0, _meta(meta, origins)))
    sections, checks = [section for sections in by_kind.values() for section in sections], data.checks()
    sections.append((Kind.CHECKS, 0, 0, checks))

    table, position = b"", start + data.size
    for kind, isa, shapes, content in sections:
        offset = round_up(position)
        # A reader that knows no ranges runs the sets of shapes, if there are any.
        optional = kind in (Kind.REFERENCE, Kind.CHECKS) or (kind is Kind.RANGE and programs)
        flags = 0 if optional else REQUIRED
        table += SECTION.pack(kind, flags, offset, len(content), check(content), isa, shapes)
        file.write(bytes(offset - position))
        file.write(content)
        position = offset + len(content)
    table += SECTION.pack(Kind.DATA, REQUIRED, start, data.size, hash_of(checks), 0, 0)
    file.seek(0)
    file.write(HEADER.pack(MAGIC, FORMAT, len(sections) + 1, position, check(table)) + table)
    return Summary(meta, programs, len(by_kind[Kind.REFERENCE]), ranges)


def _encoded(meta: Meta, item: ArtefactProgram | ArtefactRange | Reference, data: _Data) -> _Section:
    try:
        if isinstance(item, ArtefactRange):
            return Kind.RANGE, isa_number(item.isa), item.shapes, range_bytes(item, data.place)
        if isinstance(item, ArtefactProgram):
            return Kind.PROGRAM, isa_number(item.isa), item.shapes, _program(item, data)
        return Kind.REFERENCE, 0, 0, _reference(item)
    except (struct.error, TypeError, ValueError) as error:
        raise PackageError(f"model {meta.name} can't be written: {error}") from error


class _Data:
    """Writes the content of DATA, of which nothing is kept but where it is."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._places: dict[tuple[int, bytes], int] = {}
        self._hashes: list[bytes] = []
        self._piece = bytearray()
        """Bytes that have no hash yet."""
        self.size = 0

    def place(self, array: np.ndarray) -> int:
        """The offset of its bytes; equal ones are there once."""
        memory = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        key = memory.nbytes, hashlib.sha256(memory).digest()
        if key not in self._places:
            self._places[key] = self.size
            self._append(memory)
            self._append(memoryview(bytes(round_up(memory.nbytes + AFTER) - memory.nbytes)))
        return self._places[key]

    def _append(self, content: memoryview) -> None:
        self._file.write(content)
        self.size += len(content)
        while content:
            room = PIECE - len(self._piece)
            self._piece += content[:room]
            content = content[room:]
            if len(self._piece) == PIECE:
                self._hash_piece()

    def _hash_piece(self) -> None:
        self._hashes.append(hash_of(bytes(self._piece)))
        self._piece.clear()

    def checks(self) -> bytes:
        """The hashes of all pieces, when all arrays are placed."""
        if self._piece:
            self._hash_piece()
        return b"".join(self._hashes)


def _meta(meta: Meta, origins: Sequence[Origin]) -> bytes:
    metadata = {str(key): str(value) for key, value in meta.metadata.items()}
    return json.dumps({"name": meta.name, "made_by": meta.made_by, "metadata": metadata,
                       "precision": meta.precision, "origins": [one.to_dict() for one in origins]}).encode()


def _named_type(name: str, type_: TensorType) -> bytes:
    return (text_field(name) + text_field(type_.element.name)
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
             struct.pack("<I", len(texts)), *map(text_field, texts), struct.pack("<I", len(program.levels))]
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
