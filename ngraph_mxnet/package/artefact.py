"""The file of a compiled model as plain data (docs/artefact.md): `artefact_writer` and `artefact_reader` for it."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np

from ngraph_mxnet.errors import PackageError
from ngraph_mxnet.package.artefact_programs import ProgramSet, SetSummary
from ngraph_mxnet.package.fields import ALIGNMENT
from ngraph_mxnet.version import __version__

FORMAT = 2
MAGIC = b"ngraph artefact\n"
MOST_SECTIONS = 4096
ISAS = ("baseline", "avx2", "avx512", "avx_vnni")
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
    return hash_of(checks(content))


def checks(content: bytes | memoryview) -> bytes:
    """Return the checks of the content's pieces, 16 bytes each."""
    return b"".join(hash_of(content[at:at + PIECE]) for at in range(0, len(content), PIECE))


def hash_of(content: bytes | memoryview) -> bytes:
    """Return the hash of a piece, or of the hashes of all pieces."""
    import ngraph_mxnet._core as _core

    found: bytes = _core.content_hash128(np.frombuffer(content, np.uint8), check_key())
    return found


def round_up(size: int, alignment: int = ALIGNMENT) -> int:
    return -(-size // alignment) * alignment
