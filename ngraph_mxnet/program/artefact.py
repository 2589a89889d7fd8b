"""The file of a compiled model (docs/artefact.md) as plain data, written and read."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ngraph_mxnet.base.errors import GraphError, PackageError
from ngraph_mxnet.base.files import ALIGNMENT, FieldReader, new_file
from ngraph_mxnet.base.version import __version__
from ngraph_mxnet.ir.types import ElementType, TensorType
from ngraph_mxnet.program.package import content_key, hash_key_bytes
from ngraph_mxnet.program.program import ProgramSet, SetSummary, read_levels, read_programs, section_bytes

FORMAT = 2
MAGIC = b"ngraph artefact\n"
MOST_SECTIONS = 4096
ISAS = ("baseline", "avx2", "avx512", "avx_vnni", "amx")
"""The instruction sets; see `isa_number`."""
DEFAULT_ISAS = ISAS[:3]
"""The instruction sets that a file is for by default. CPUs with AVX-VNNI run the avx2 programs."""
HEADER = struct.Struct("<16sIIQ16s16x")
SECTION = struct.Struct("<IIQQ16sII16x")
REQUIRED = 1
"""The flag of a section that every reader must know."""
DATA_ALIGNMENT = 4096
PIECE = 1 << 20
"""Bytes that are checked at once."""
AFTER = 64
"""Bytes after an array that belong to none: a kernel's last vector may reach into them."""


class Kind(IntEnum):
    """The kind of a section."""

    META = 1
    DATA = 2
    PROGRAM = 3
    REFERENCE = 4
    CHECKS = 5
    RANGE = 6
    """Of format 1 alone, where a PROGRAM has no symbols."""


@dataclass(frozen=True)
class Reference:
    """Inputs of one set of shapes, and the outputs that a program for these shapes gives."""

    shapes: int
    inputs: Sequence[np.ndarray]
    outputs: Sequence[np.ndarray]


@dataclass(frozen=True)
class Origin:
    """The graph and the parameters that a set of shapes was compiled from. `graph` is a digest (`ir.fingerprint`).
    `parameters` are those of the graph, in the digest's order: the name of an input, or the check of a weight's
    content."""

    graph: str
    parameters: Sequence[str | bytes]

    def to_dict(self) -> dict[str, Any]:
        """Return the origin in the form that META has."""
        parameters = [{"input": one} if isinstance(one, str) else {"weight": one.hex()} for one in self.parameters]
        return {"graph": self.graph, "parameters": parameters}

    @staticmethod
    def of(found: Any) -> Origin:
        """Make an origin from the form that META has. Raises AttributeError, LookupError, TypeError or ValueError if
        `found` is none."""
        parameters = [str(one["input"]) if "input" in one else bytes.fromhex(one["weight"])
                      for one in found["parameters"]]
        return Origin(str(found["graph"]), parameters)


@dataclass(frozen=True)
class Meta:
    """The description of a model in the file, as text."""

    name: str
    precision: str = "f32"
    metadata: Mapping[str, str] = field(default_factory=dict)
    made_by: str = f"ngraph_mxnet {__version__}"


@dataclass(frozen=True)
class Summary:
    """The summary of a compiled model."""

    meta: Meta
    sets: Sequence[SetSummary]
    references: int


def isa_number(isa: str) -> int:
    """That of an instruction set in the file. Raises ValueError for an unknown one."""
    return 1 + ISAS.index(isa)


@dataclass(frozen=True)
class Artefact:
    """A compiled model, read from its file. `sets`: for each set of shapes and each range those of all its instruction
    sets; `origins`: of each set of shapes."""

    meta: Meta
    sets: Sequence[ProgramSet]
    references: Sequence[Reference] = ()
    origins: Sequence[Origin] = ()

    def summary(self) -> Summary:
        """Raises PackageError: a Program refers to what does not exist, or asks for too much."""
        try:
            return Summary(self.meta, [one.summary() for one in self.sets], len(self.references))
        except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
            raise PackageError(f"model {self.meta.name}: {error}") from error


@cache
def check_key() -> bytes:
    """The first outputs of splitmix64 from state 0."""
    mask, state, words = (1 << 64) - 1, 0, []
    for _ in range(hash_key_bytes() // 8):
        state = state + 0x9E3779B97F4A7C15 & mask
        word = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & mask
        word = (word ^ word >> 27) * 0x94D049BB133111EB & mask
        words.append(word ^ word >> 31)
    return struct.pack(f"<{len(words)}Q", *words)


def check(content: bytes | memoryview) -> bytes:
    """16 bytes that tell damage, not intent."""
    return hash_of(checks(content))


def checks(content: bytes | memoryview) -> bytes:
    """Return the checks of the content's pieces, 16 bytes each."""
    return b"".join(hash_of(content[at:at + PIECE]) for at in range(0, len(content), PIECE))


def hash_of(content: bytes | memoryview) -> bytes:
    """Return the hash of a piece, or of the hashes of all pieces."""
    return content_key(np.frombuffer(content, np.uint8), check_key())[2]


def round_up(size: int, alignment: int = ALIGNMENT) -> int:
    return -(-size // alignment) * alignment


# ---- written: each program when it is made, for its weights need not stay -----------------------------------------

Item = ProgramSet | Reference | Origin
_OTHERS = 3
"""Sections beside programs and references: META, CHECKS, DATA."""
_Written = tuple[Kind, int, int, bytes]
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
    by_kind: dict[Kind, list[_Written]] = {Kind.META: [], Kind.PROGRAM: [], Kind.REFERENCE: []}
    for item in items:
        if isinstance(item, Origin):
            origins.append(item)
            continue
        section = _encoded(meta, item, data)
        by_kind[section[0]].append(section)
        del item  # its weights go before the next one is made
    by_kind[Kind.META].append((Kind.META, 0, 0, _meta_bytes(meta, origins)))
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


def _encoded(meta: Meta, item: ProgramSet | Reference, data: _Data) -> _Written:
    try:
        if isinstance(item, ProgramSet):
            return Kind.PROGRAM, isa_number(item.isa), item.number, section_bytes(item, data.place)
        return Kind.REFERENCE, 0, 0, _reference_bytes(item)
    except (struct.error, TypeError, ValueError) as error:
        raise PackageError(f"model {meta.name} can't be written: {error}") from error


class _Data:
    """Writes the content of DATA, of which nothing is kept but where it is."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._places: dict[tuple[str, int, bytes], int] = {}
        self._hashes: list[bytes] = []
        self._piece = bytearray()
        """Bytes that have no hash yet."""
        self.size = 0

    def place(self, array: np.ndarray) -> int:
        """The offset of its bytes; equal ones are there once."""
        memory = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        key = content_key(memory)
        if key not in self._places:
            self._places[key] = self.size
            self._append(memory.data)
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


def _meta_bytes(meta: Meta, origins: Sequence[Origin]) -> bytes:
    metadata = {str(key): str(value) for key, value in meta.metadata.items()}
    return json.dumps({"name": meta.name, "made_by": meta.made_by, "metadata": metadata,
                       "precision": meta.precision, "origins": [one.to_dict() for one in origins]}).encode()


def _reference_bytes(reference: Reference) -> bytes:
    arrays = [np.ascontiguousarray(array) for array in (*reference.inputs, *reference.outputs)]
    return (struct.pack("<3I", reference.shapes, len(reference.inputs), len(reference.outputs))
            + b"".join(struct.pack("<Q", array.nbytes) + array.tobytes() for array in arrays))


# ---- read: nothing in it is trusted, and instructions are not run --------------------------------------------------


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
    meta, origins = _read_meta(metas[0])
    sets = [_named(section, _read_section, section, data[0].content, read_levels if version == 1 else read_programs)
            for section in sections if section.kind == Kind.PROGRAM]
    many = len({one.number for one in sets})
    ranges = [_named(section, _read_section, section, data[0].content, read_programs)
              for section in sections if section.kind == Kind.RANGE]  # of format 1, with numbers of their own
    sets += [replace(one, number=many + one.number) for one in ranges]
    references = [_named(section, _read_reference, section, sets)
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


def _read_meta(section: _Section) -> tuple[Meta, list[Origin]]:
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


def _read_section(section: _Section, data: memoryview, reader: Callable[..., ProgramSet]) -> ProgramSet:
    if not 1 <= section.isa <= len(ISAS):
        raise ValueError(f"instruction set {section.isa} is not known")
    return reader(ISAS[section.isa - 1], section.set, section.content, data)


def _read_reference(section: _Section, sets: Sequence[ProgramSet]) -> Reference:
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
