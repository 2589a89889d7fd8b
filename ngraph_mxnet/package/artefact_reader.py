"""Reads the file of a compiled model back; nothing in it is trusted, and instructions are not run."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ngraph_mxnet.errors import PackageError, listed
from ngraph_mxnet.ir.types import ELEMENT_TYPES, TensorType
from ngraph_mxnet.package.artefact import (
    DATA_ALIGNMENT,
    FORMAT,
    HEADER,
    ISAS,
    MAGIC,
    MOST_SECTIONS,
    REQUIRED,
    SECTION,
    Artefact,
    ArtefactProgram,
    Instruction,
    Kind,
    Meta,
    NamedType,
    Origin,
    Reference,
    check,
)
from ngraph_mxnet.package.artefact_ranges import ArtefactRange, read_range
from ngraph_mxnet.package.fields import ALIGNMENT, FieldReader, constant_at

_MOST = 1 << 62
_MOST_RANK = 32
_CONSTANT = 3
"""The last of the spaces."""


def is_artefact(path: str | Path) -> bool:
    """True if the file begins as an artefact. Raises OSError where the file can't be read."""
    with Path(path).open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def load(path: str | Path) -> Artefact:
    """
    Raises:
        PackageError: as for `read`.
        OSError: it can't be read.
    """
    try:
        return read(Path(path).read_bytes())
    except PackageError as error:
        raise PackageError(f"{path}: {error}") from error


def read(content: bytes) -> Artefact:
    """Read an artefact. Arrays are views of `content`; the arrays of constants are bytes.

    Raises:
        PackageError: the file is no artefact, damaged, cut off, or of a newer format; the text says which.
    """
    sections = _sections(content)
    data = [section for section in sections if section.kind == Kind.DATA]
    metas = [section for section in sections if section.kind == Kind.META]
    if len(data) != 1 or len(metas) != 1:
        raise PackageError(f"found {len(data)} sections DATA and {len(metas)} META, expected one of each")
    meta, origins = _meta(metas[0])
    programs = [_named(section, _program, section, data[0].content)
                for section in sections if section.kind == Kind.PROGRAM]
    ranges = [_named(section, _range, section, data[0].content)
              for section in sections if section.kind == Kind.RANGE]
    references = [_named(section, _reference, section, programs)
                  for section in sections if section.kind == Kind.REFERENCE]
    _check_sets(programs, ranges)
    return Artefact(meta, programs, references, origins, ranges)


class _Section(NamedTuple):
    kind: int
    number: int
    content: memoryview
    isa: int
    shapes: int

    def __str__(self) -> str:
        name = Kind(self.kind).name if self.kind in Kind.__members__.values() else f"of kind {self.kind}"
        return f"section {self.number} ({name})"


def _sections(content: bytes) -> list[_Section]:
    """Check the file's structure, and return the sections of known kinds."""
    if content[:len(MAGIC)] != MAGIC:
        raise PackageError(f"this is no compiled model: it begins with {content[:len(MAGIC)]!r}")
    if len(content) < HEADER.size:
        raise PackageError(f"the file is cut off: found {len(content)} bytes, its header has {HEADER.size}")
    _, version, count, size, table_check = HEADER.unpack_from(content)
    if version != FORMAT:
        raise PackageError(f"the file is of format {version}, and this ngraph_mxnet reads {FORMAT}: "
                           f"{'update it' if version > FORMAT else 'compile the model again'}")
    if size != len(content):
        raise PackageError(f"the file is cut off, or there is more behind it: found {len(content)} bytes, expected "
                           f"{size}")
    end = HEADER.size + count * SECTION.size
    if count > MOST_SECTIONS or end > size:
        raise PackageError(f"found {count} sections, at most {MOST_SECTIONS}, in {size} bytes")
    whole = memoryview(content)
    if any(content[48:HEADER.size]) or check(whole[HEADER.size:end]) != table_check:
        raise PackageError("the section table is damaged")
    found, last = [], end
    rows = [SECTION.unpack_from(content, HEADER.size + number * SECTION.size) for number in range(count)]
    for number in sorted(range(count), key=lambda number: rows[number][2:4]):  # an empty one may begin with another
        kind, flags, offset, length, content_check, isa, shapes = rows[number]
        section = _Section(kind, number, whole[offset:offset + length], isa, shapes)
        if offset % (DATA_ALIGNMENT if kind == Kind.DATA else ALIGNMENT):
            raise PackageError(f"{section} begins at {offset}, which is not aligned")
        if offset < last or length > size - offset:
            raise PackageError(f"{section}, bytes {offset} to {offset + length} of {size}, lies in another one, or "
                               "beyond the file")
        last = offset + length
        if kind not in Kind.__members__.values():
            if flags & REQUIRED:
                raise PackageError(f"{section} is not known to this ngraph_mxnet, and needed: update it")
            continue
        if check(section.content) != content_check:
            raise PackageError(f"{section} is damaged")
        found.append(section)
    return sorted(found, key=lambda section: section.number)


def _named(section: _Section, function: Any, *arguments: Any) -> Any:
    """Call the function and return its result. An error that the function raises gets the section's name."""
    try:
        return function(*arguments)
    except (struct.error, ArithmeticError, LookupError, ValueError) as error:
        raise PackageError(f"{section}: {error}") from error


def _meta(section: _Section) -> tuple[Meta, list[Origin]]:
    try:
        found = json.loads(bytes(section.content))
        texts = [found[key] for key in ("name", "made_by", "precision")]
        if not {str}.issuperset(map(type, [*texts, *found["metadata"].values()])):
            raise ValueError("what should be a text is none")
        origins = origins_of(found)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise PackageError(f"{section} is not as it should be: {error!r}") from error
    return Meta(found["name"], found["precision"], found["metadata"], found["made_by"]), origins


def origins_of(meta: Mapping[str, Any]) -> list[Origin]:
    """Return the origins in a META; a META of other writers may have none.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: the origins are not as they should be.
    """
    return [Origin.of(one) for one in meta.get("origins", ())]


def _named_type(reader: FieldReader) -> NamedType:
    name, element, rank = reader.text(), reader.text(), reader.number()
    if element not in ELEMENT_TYPES:
        raise ValueError(f"{name!r} has elements {element!r}; known: {listed(ELEMENT_TYPES, element)}")
    if rank > _MOST_RANK:
        raise ValueError(f"{name!r} has rank {rank}")
    type_ = TensorType(ELEMENT_TYPES[element], reader.numbers(f"{rank}Q"))
    if prod(max(float(size), 1) for size in type_.shape) * type_.element.size > _MOST:
        raise ValueError(f"{name!r} is {type_}, which is too large")
    return name, type_


def _program(section: _Section, data: memoryview) -> ArtefactProgram:
    if not 1 <= section.isa <= len(ISAS):
        raise ValueError(f"instruction set {section.isa} is not known")
    reader = FieldReader(section.content)
    many_inputs, many_outputs = reader.many(12), reader.many(12)
    inputs = tuple(_named_type(reader) for _ in range(many_inputs))
    outputs = tuple(_named_type(reader) for _ in range(many_outputs))
    arena_bytes = reader.number("Q")
    if arena_bytes > _MOST:
        raise ValueError(f"an arena of {arena_bytes} bytes")
    constants = [constant_at(reader.number("Q"), reader.number("Q"), data) for _ in range(reader.many(16))]
    texts = [reader.text() for _ in range(reader.many(4))]
    sizes = ([arena_bytes], [type_.bytes for _, type_ in inputs], [type_.bytes for _, type_ in outputs],
             [array.nbytes for array in constants])
    levels = [[_instruction(reader, texts, sizes) for _ in range(reader.many(44))] for _ in range(reader.many(4))]
    return ArtefactProgram(ISAS[section.isa - 1], section.shapes, inputs, outputs, arena_bytes, constants, levels)


def _range(section: _Section, data: memoryview) -> ArtefactRange:
    if not 1 <= section.isa <= len(ISAS):
        raise ValueError(f"instruction set {section.isa} is not known")
    return read_range(ISAS[section.isa - 1], section.shapes, section.content, data)


def _instruction(reader: FieldReader, texts: Sequence[str], sizes: Sequence[Sequence[int]]) -> Instruction:
    kernel, origin, operands, ints, floats, tasks, operations, touched = reader.numbers("5IQ2d")
    if max(kernel, origin) >= len(texts):
        raise ValueError(f"an instruction names texts {kernel} and {origin}, there are {len(texts)}")
    if tasks > _MOST:
        raise ValueError(f"instruction {texts[kernel]!r} has {tasks} tasks")
    places = [reader.numbers("2IQ") for _ in range(operands)]
    for space, index, offset in places:
        if space > _CONSTANT or index >= len(sizes[space]) or offset > sizes[space][index]:
            raise ValueError(f"instruction {texts[kernel]!r}: no such place: {(space, index, offset)}")
    return (texts[kernel], places, list(reader.numbers(f"{ints}q")), list(reader.numbers(f"{floats}d")), tasks,
            texts[origin], operations, touched)


def _reference(section: _Section, programs: Sequence[ArtefactProgram]) -> Reference:
    reader = FieldReader(section.content)
    shapes, many_inputs, many_outputs = reader.numbers("3I")
    program = next((program for program in programs if program.shapes == shapes), None)
    if program is None:
        raise ValueError(f"there is no program for the set of shapes {shapes}")
    if (many_inputs, many_outputs) != (len(program.inputs), len(program.outputs)):
        raise ValueError(f"{many_inputs} inputs and {many_outputs} outputs, the program has others")
    arrays = [_array(reader, *port) for port in (*program.inputs, *program.outputs)]
    return Reference(shapes, arrays[:many_inputs], arrays[many_inputs:])


def _array(reader: FieldReader, name: str, type_: TensorType) -> np.ndarray:
    size = reader.number("Q")
    if size != type_.bytes:
        raise ValueError(f"{name!r}: {size} bytes, expected {type_.bytes}")
    return np.frombuffer(reader.bytes(size), type_.element.numpy).reshape(type_.shape)


def _check_sets(programs: Sequence[ArtefactProgram], ranges: Sequence[ArtefactRange]) -> None:
    """Refuse two programs for the same, and sets of shapes that differ in more than shapes."""
    if not programs and not ranges:
        raise PackageError("there is no program")
    kinds: tuple[tuple[str, str, Sequence[Any]], ...] = (("set of shapes", "sets of shapes", programs),
                                                         ("range of sizes", "ranges of sizes", ranges))
    for what, several, items in kinds:
        if len({(item.isa, item.shapes) for item in items}) < len(items):
            raise PackageError(f"two programs are for the same instruction set and {what}")
        numbers = {item.shapes for item in items}
        if numbers != set(range(len(numbers))):
            raise PackageError(f"the {several} are numbered {sorted(numbers)}, expected 0 to {len(numbers) - 1}")
    ports = [[[(name, type_.element) for name, type_ in of] for of in (item.inputs, item.outputs)]
             for items in (programs, ranges) for item in items]
    if any(one != ports[0] for one in ports):
        raise PackageError("the sets of shapes differ in names or elements of inputs or outputs")
    for program in programs:
        of_set = next(other for other in programs if other.shapes == program.shapes)
        if (program.inputs, program.outputs) != (of_set.inputs, of_set.outputs):
            raise PackageError(f"the programs for the set of shapes {program.shapes} differ in inputs or outputs")
