"""Writes the file of a compiled model (docs/artefact.md), each program when it is made: its weights need not stay."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ngraph_mxnet.errors import PackageError
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
    Kind,
    Meta,
    Origin,
    Reference,
    check,
    hash_of,
    isa_number,
    round_up,
)
from ngraph_mxnet.package.artefact_programs import ProgramSet, section_bytes
from ngraph_mxnet.package.files import new_file

Item = ProgramSet | Reference | Origin
_OTHERS = 3
"""Sections beside programs and references: META, CHECKS, DATA."""
_Section = tuple[Kind, int, int, bytes]
"""(kind, number of the instruction set, number of the set, content)"""


def write_artefact(path: str | Path, meta: Meta, items: Iterable[Item], count: int) -> None:
    """Write a file, which appears whole or not at all. `items` are made while it is written;
    `count` of them are no origins.

    Raises:
        PackageError: there is too much of something.
        OSError: it can't be written.
    """
    with new_file(path) as file:
        _write(file, meta, items, count)


def to_bytes(artefact: Artefact) -> bytes:
    """The content of its file. Raises PackageError as `write_artefact` does."""
    file = BytesIO()
    items: list[Item] = [*artefact.sets, *artefact.references, *artefact.origins]
    _write(file, artefact.meta, items, len(items) - len(artefact.origins))
    return file.getvalue()


def _write(file: BinaryIO, meta: Meta, items: Iterable[Item], count: int) -> None:
    """First DATA, as it comes, behind room for the table; then all other sections, and the table at last."""
    if count + _OTHERS > MOST_SECTIONS:
        raise PackageError(f"{count + _OTHERS} sections, at most {MOST_SECTIONS}: give fewer sets of shapes")
    start = round_up(HEADER.size + SECTION.size * (count + _OTHERS), DATA_ALIGNMENT)
    file.write(bytes(start))
    data, origins = _Data(file), list[Origin]()
    by_kind: dict[Kind, list[_Section]] = {Kind.META: [], Kind.PROGRAM: [], Kind.REFERENCE: []}
    for item in items:
        if isinstance(item, Origin):
            origins.append(item)
            continue
        section = _encoded(meta, item, data)
        by_kind[section[0]].append(section)
        del item  # its weights go before the next one is made
    by_kind[Kind.META].append((Kind.META, 0, 0, _meta(meta, origins)))
    sections, checks = [section for sections in by_kind.values() for section in sections], data.checks()
    sections.append((Kind.CHECKS, 0, 0, checks))

    table, position = b"", start + data.size
    for kind, isa, number, content in sections:
        offset = round_up(position)
        flags = 0 if kind in (Kind.REFERENCE, Kind.CHECKS) else REQUIRED
        table += SECTION.pack(kind, flags, offset, len(content), check(content), isa, number)
        file.write(bytes(offset - position))
        file.write(content)
        position = offset + len(content)
    table += SECTION.pack(Kind.DATA, REQUIRED, start, data.size, hash_of(checks), 0, 0)
    file.seek(0)
    file.write(HEADER.pack(MAGIC, FORMAT, len(sections) + 1, position, check(table)) + table)


def _encoded(meta: Meta, item: ProgramSet | Reference, data: _Data) -> _Section:
    try:
        if isinstance(item, ProgramSet):
            return Kind.PROGRAM, isa_number(item.isa), item.number, section_bytes(item, data.place)
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


def _reference(reference: Reference) -> bytes:
    arrays = [np.ascontiguousarray(array) for array in (*reference.inputs, *reference.outputs)]
    return (struct.pack("<3I", reference.shapes, len(reference.inputs), len(reference.outputs))
            + b"".join(struct.pack("<Q", array.nbytes) + array.tobytes() for array in arrays))
