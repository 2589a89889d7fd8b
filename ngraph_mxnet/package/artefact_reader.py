"""Reads the file of a compiled model back; nothing in it is trusted, and instructions are not run."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ngraph_mxnet.errors import GraphError, PackageError
from ngraph_mxnet.ir.types import ElementType, TensorType
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
    Kind,
    Meta,
    Origin,
    Reference,
    check,
)
from ngraph_mxnet.package.artefact_programs import ProgramSet, read_programs
from ngraph_mxnet.package.fields import ALIGNMENT, FieldReader
from ngraph_mxnet.package.format_1 import read_levels


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
    version, sections = _sections(content)
    data = [section for section in sections if section.kind == Kind.DATA]
    metas = [section for section in sections if section.kind == Kind.META]
    if len(data) != 1 or len(metas) != 1:
        raise PackageError(f"found {len(data)} sections DATA and {len(metas)} META, expected one of each")
    meta, origins = _meta(metas[0])
    sets = [_named(section, _programs, section, data[0].content, read_levels if version == 1 else read_programs)
            for section in sections if section.kind == Kind.PROGRAM]
    many = len({one.number for one in sets})
    ranges = [_named(section, _programs, section, data[0].content, read_programs)
              for section in sections if section.kind == Kind.RANGE]  # of format 1, with numbers of their own
    sets += [replace(one, number=many + one.number) for one in ranges]
    references = [_named(section, _reference, section, sets)
                  for section in sections if section.kind == Kind.REFERENCE]
    _check_sets(sets)
    return Artefact(meta, sets, references, origins)


class _Section(NamedTuple):
    kind: int
    number: int
    content: memoryview
    isa: int
    set: int

    def __str__(self) -> str:
        name = Kind(self.kind).name if self.kind in Kind.__members__.values() else f"of kind {self.kind}"
        return f"section {self.number} ({name})"


def _sections(content: bytes) -> tuple[int, list[_Section]]:
    """Check the file's structure, and return its format and the sections of known kinds."""
    if content[:len(MAGIC)] != MAGIC:
        raise PackageError(f"this is no compiled model: it begins with {content[:len(MAGIC)]!r}")
    if len(content) < HEADER.size:
        raise PackageError(f"the file is cut off: found {len(content)} bytes, its header has {HEADER.size}")
    _, version, count, size, table_check = HEADER.unpack_from(content)
    if not 1 <= version <= FORMAT:
        advice = "update it, or compile the model by this version" if version > FORMAT else "compile the model again"
        raise PackageError(f"the file is of format {version}, and this ngraph_mxnet reads 1 to {FORMAT}: {advice}")
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
        kind, flags, offset, length, content_check, isa, set_number = rows[number]
        section = _Section(kind, number, whole[offset:offset + length], isa, set_number)
        if offset % (DATA_ALIGNMENT if kind == Kind.DATA else ALIGNMENT):
            raise PackageError(f"{section} begins at {offset}, which is not aligned")
        if offset < last or length > size - offset:
            raise PackageError(f"{section}, bytes {offset} to {offset + length} of {size}, lies in another one, or "
                               "beyond the file")
        last = offset + length
        if kind not in Kind.__members__.values() or (kind == Kind.RANGE and version > 1):
            if flags & REQUIRED:
                raise PackageError(f"{section} is not known to this ngraph_mxnet, and needed: update it")
            continue
        if check(section.content) != content_check:
            raise PackageError(f"{section} is damaged")
        found.append(section)
    return version, sorted(found, key=lambda section: section.number)


def _named(section: _Section, function: Any, *arguments: Any) -> Any:
    """Call the function and return its result. An error that the function raises gets the section's name."""
    try:
        return function(*arguments)
    except (struct.error, ArithmeticError, GraphError, LookupError, ValueError) as error:
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


def _programs(section: _Section, data: memoryview, reader: Callable[..., ProgramSet]) -> ProgramSet:
    if not 1 <= section.isa <= len(ISAS):
        raise ValueError(f"instruction set {section.isa} is not known")
    return reader(ISAS[section.isa - 1], section.set, section.content, data)


def _reference(section: _Section, sets: Sequence[ProgramSet]) -> Reference:
    reader = FieldReader(section.content)
    number, many_inputs, many_outputs = reader.numbers("3I")
    found = next((one for one in sets if one.number == number and not one.symbols), None)
    if found is None:
        raise ValueError(f"there is no program for the set of shapes {number}")
    if (many_inputs, many_outputs) != (len(found.inputs), len(found.outputs)):
        raise ValueError(f"{many_inputs} inputs and {many_outputs} outputs, the program has others")
    arrays = [_array(reader, *port) for port in (*found.inputs, *found.outputs)]
    return Reference(number, arrays[:many_inputs], arrays[many_inputs:])


def _array(reader: FieldReader, name: str, type_: TensorType) -> np.ndarray:
    size = reader.number("Q")
    if size != type_.bytes:
        raise ValueError(f"{name!r}: {size} bytes, expected {type_.bytes}")
    return np.frombuffer(reader.bytes(size), type_.element.numpy).reshape(type_.shape)


def _check_sets(sets: Sequence[ProgramSet]) -> None:
    """Refuse two programs for the same, and sets that differ in more than sizes."""
    if not sets:
        raise PackageError("there is no program")
    if len({(one.isa, one.number) for one in sets}) < len(sets):
        raise PackageError("two programs are for the same instruction set and set of shapes")
    first: dict[int, ProgramSet] = {}
    for one in sets:
        first.setdefault(one.number, one)
    if first.keys() != set(range(len(first))):
        raise PackageError(f"the sets of shapes are numbered {sorted(first)}, expected 0 to {len(first) - 1}")
    has_symbols = [bool(first[number].symbols) for number in range(len(first))]
    if has_symbols != sorted(has_symbols):
        raise PackageError("a set of shapes comes after a range of sizes")
    for one in sets:
        if _names(one) != _names(sets[0]):
            raise PackageError("the sets of shapes differ in names or elements of inputs or outputs")
        of_set = first[one.number]
        if (one.symbols, one.inputs, one.outputs) != (of_set.symbols, of_set.inputs, of_set.outputs):
            raise PackageError(f"the programs for the set of shapes {one.number} differ in inputs or outputs")


def _names(one: ProgramSet) -> list[list[tuple[str, ElementType]]]:
    return [[(name, type_.element) for name, type_ in ports] for ports in (one.inputs, one.outputs)]
