"""Changes to the files of compiled models: any field of them, most with checks that fit again."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from fuzzing import program_sections, programs
from fuzzing.entries import mutate_bytes
from ngraph_mxnet import _core
from ngraph_mxnet.ir import Graph
from ngraph_mxnet.program.artefact import (
    ALIGNMENT,
    DATA_ALIGNMENT,
    FORMAT,
    HEADER,
    ISAS,
    MAGIC,
    SECTION,
    Kind,
    check,
    checks,
)
from ngraph_mxnet.targets.cpu.machine.isa import supported

_FORMAT_1 = Path(__file__).resolve().parents[2] / "tests" / "program" / "format_1"
_MOST_CHANGES = 3
_NUMBERS = (0, 1, 2, 3, 4, 7, 8, 16, 63, 64, 4096, 1 << 16, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40,
            1 << 46, (1 << 46) + 1, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_METAS = (b"", b"null", b"[]", b"{}", b"[" * 5000, b'{"name": 1}', b'{"metadata": []}', b"\0", b"\xff", b'"' * 99)

@dataclass
class Section:
    kind: int
    flags: int
    isa: int
    number: int
    content: bytes


def sections(content: bytes) -> list[Section]:
    """Those of a file, in the order of its table. What is none raises struct.error or ValueError."""
    magic, _, count, *_ = HEADER.unpack_from(content)
    if magic != MAGIC or count > 99:
        raise ValueError("not such a file")
    rows = [SECTION.unpack_from(content, HEADER.size + i * SECTION.size) for i in range(count)]
    return [Section(kind, flags, isa, number, content[offset:offset + size])
            for kind, flags, offset, size, _, isa, number in rows]


def seeds() -> list[bytes]:
    """Models of every family, of the instruction sets one by one; some in bf16, and for ranges of sizes; one with all
    instruction sets, two sets of shapes and references; files of format 1. Without those that this CPU does not run: a
    reader refuses such a file whatever it holds."""
    each = [(make, isa, "f32") for make in programs.GRAPHS for isa in ("avx512", "avx2")]
    each += [(make, "baseline", "f32") for make in programs.GRAPHS[:2]]
    each += [(make, "avx512", "bf16") for make in (*programs.GRAPHS[:4], programs.in_bf16)]
    ranged = [(make, isa) for make in (programs.ranged_convolutions, programs.ranged_steps)
              for isa in ("avx512", "baseline")]
    return [*(programs.artefact(make, [isa], precision)
              for make, isa, precision in each if _runs(make, isa, precision)),
            *(programs.range_artefact(make, [isa]) for make, isa in ranged if _runs(make, isa)),
            programs.whole_artefact(), *(path.read_bytes() for path in sorted(_FORMAT_1.glob("*.bin")))]


def _runs(make: Callable[[], Graph], isa: str, precision: str = "f32") -> bool:
    """Whether this CPU has what the program of a graph for an instruction set needs."""
    features = _core.cpu_features()
    needs = ["avx512bf16"] if precision == "bf16" else []
    if make is programs.quantized and isa == "avx512":
        needs.append("avx512vnni")
    return isa in supported(features) and all(features[need] for need in needs)


def mutate(content: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """One to three changes of what the file says, and mostly checks that fit; rarely a change of bytes."""
    try:
        found, version = sections(content), HEADER.unpack_from(content)[1]
    except (struct.error, ValueError):
        return mutate(random.choice(others), others, random)
    row_change: tuple[int, int, int] | None = None
    for _ in range(random.randint(1, _MOST_CHANGES)):
        kind = random.random()
        code = [section for section in found if section.kind in (Kind.PROGRAM, Kind.RANGE)]
        if kind < 0.8 and code:
            _change_program(random.choice(code), found, version, random)
        elif kind < 0.88:
            _change_data(found, random)
        elif kind < 0.92 and found:
            _change_sections(found, random)
        elif kind < 0.96 and found:
            row_change = random.randrange(len(found)), random.randrange(7), random.choice(_NUMBERS)
        else:
            for section in found:
                if section.kind == Kind.META:
                    section.content = _changed_meta(section.content, others, random)
    version = random.choice((1, 2, 3)) if random.random() < 0.01 else version
    made = assembled(found, row_change, random.random() < 0.95, version)
    return mutate_bytes(made, others, random) if random.random() < 0.03 else made


def _change_program(section: Section, found: Sequence[Section], version: int, random: Random) -> None:
    data = next((one.content for one in found if one.kind == Kind.DATA), b"")
    if random.random() < 0.1 or (version == 1 and section.kind == Kind.PROGRAM):
        section.content = _with_other_word(section.content, random)
    elif 1 <= section.isa <= len(ISAS):
        section.content = program_sections.mutate(section.content, data, section.isa, random)


def _with_other_word(content: bytes, random: Random) -> bytes:
    form = random.choice(("<I", "<I", "<Q"))
    size = struct.calcsize(form)
    if len(content) < size:
        return content
    at = random.randrange(len(content) - size + 1)
    (old,) = struct.unpack_from(form, content, at)
    return content[:at] + struct.pack(form, _changed_number(old, random) % (1 << 8 * size)) + content[at + size:]


def assembled(found: Sequence[Section], row_change: tuple[int, int, int] | None = None, fitting: bool = True,
              version: int = FORMAT) -> bytes:
    """The file, with a number of its table changed: which row, which number, the new one. Its checks are `fitting`."""
    data = next((section.content for section in found if section.kind == Kind.DATA), b"")
    position, parts = HEADER.size + SECTION.size * len(found), []
    rows: list[list[Any]] = [[] for _ in found]
    for number in sorted(range(len(found)), key=lambda number: found[number].kind != Kind.DATA):
        section = found[number]
        content = checks(data) if section.kind == Kind.CHECKS and fitting else section.content
        alignment = DATA_ALIGNMENT if section.kind == Kind.DATA else ALIGNMENT
        offset = -(-position // alignment) * alignment
        rows[number] = [section.kind, section.flags, offset, len(content), check(content) if fitting else b"",
                        section.isa, section.number]
        parts += [bytes(offset - position), content]
        position = offset + len(content)
    body = b"".join(parts)
    if row_change is not None and row_change[0] < len(rows):
        row, column, value = row_change
        if column != 4:
            rows[row][column] = value % (1 << (64 if column in (2, 3) else 32))
            if fitting and column in (2, 3):
                start = max(rows[row][2] - (HEADER.size + SECTION.size * len(found)), 0)
                rows[row][4] = check(body[start:start + rows[row][3]])
    table = b"".join(SECTION.pack(*row) for row in rows)
    return HEADER.pack(MAGIC, version, len(found), position, check(table)) + table + body


def _changed_number(value: int, random: Random) -> int:
    return random.choice((*_NUMBERS, *(-number for number in _NUMBERS[:12]), *(3 * (value + 1, value - 1, value * 2)),
                          value + 64, value - 64, value // 2, -value))


def _change_data(found: Sequence[Section], random: Random) -> None:
    """Words of DATA, often of a whole run of them: weights and tables of offsets."""
    for section in found:
        if section.kind == Kind.DATA and len(section.content) >= 8:
            data = bytearray(section.content)
            for _ in range(random.choice((1, 1, 5, 50))):
                at = 4 * random.randrange(len(data) // 4)
                (old,) = struct.unpack_from("<I", data, at)
                struct.pack_into("<I", data, at, _changed_number(old, random) % (1 << 32))
            section.content = bytes(data)


def _change_sections(found: list[Section], random: Random) -> None:
    """One less, one twice, in another order, or of another kind."""
    at = random.randrange(len(found))
    kind = random.choice(("remove", "double", "kind", "cut"))
    if kind == "remove":
        del found[at]
    elif kind == "double":
        found.append(found[at])
    elif kind == "kind":
        found[at].kind = random.choice((0, 1, 2, 3, 4, 5, 6, 7, 99))
    else:
        found[at].content = found[at].content[:random.randrange(len(found[at].content) + 1)]


def _changed_meta(content: bytes, others: Sequence[bytes], random: Random) -> bytes:
    if random.random() < 0.5:
        return random.choice(_METAS)
    try:
        meta = json.loads(content)
        meta[random.choice(list(meta))] = random.choice((None, 1, [], {}, "x", {"a": 1}, 1e308))
        return json.dumps(meta).encode()
    except (AttributeError, IndexError, RecursionError, TypeError, ValueError):
        return mutate_bytes(content, others, random)
