"""Changes to the files of compiled models: any field of them, most with checks that fit again."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from fuzzing import programs, ranges
from fuzzing.entries import mutate_bytes
from ngraph_mxnet import _core
from ngraph_mxnet.ir import Graph
from ngraph_mxnet.package.artefact import (
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
from ngraph_mxnet.targets.cpu.params import KERNELS, Kernels

_MOST_CHANGES = 3
_NUMBERS = (0, 1, 2, 3, 4, 7, 8, 16, 63, 64, 4096, 1 << 16, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40,
            1 << 46, (1 << 46) + 1, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_FLOATS = (0.0, 1.0, -1.0, 3.0, 40.0, 1e30, 1e308, float("inf"), -float("inf"), float("nan"))
_TEXTS = (b"", b"x", b"f32", b"f64", b"i64", b"bool", b"f128", b"ng_relu__avx512", b"ng_relu__baseline",
          b"\xff\xfe", b"a" * 300)
_METAS = (b"", b"null", b"[]", b"{}", b"[" * 5000, b'{"name": 1}', b'{"metadata": []}', b"\0", b"\xff", b'"' * 99)
_LIMITS = {"I": 1 << 32, "Q": 1 << 64, "q": 1 << 64}


@dataclass
class Field:
    """A number of a program in a `struct` format, or a text (`s`, whose length stands before it)."""

    format: str
    value: Any

    def packed(self) -> bytes:
        if self.format == "s":
            return struct.pack("<I", len(self.value)) + self.value
        if self.format == "d":
            return struct.pack("<d", self.value)
        unsigned = int(self.value) % _LIMITS[self.format]
        return struct.pack("<" + self.format.upper(), unsigned)


@dataclass
class Call:
    """Where the fields of an instruction stand."""

    first: int
    operands: int
    ints: int
    floats: int

    @property
    def places(self) -> int:
        """The first field of the first operand."""
        return self.first + 8

    @property
    def numbers(self) -> int:
        """The first of the ints."""
        return self.places + 3 * self.operands

    @property
    def end(self) -> int:
        return self.numbers + self.ints + self.floats


class Program:
    """The fields of a PROGRAM, one after the other. What can't be parsed raises struct.error or ValueError."""

    def __init__(self, content: bytes) -> None:
        self.fields: list[Field] = []
        self.calls: list[Call] = []
        self.texts = 0
        self._content, self._at = content, 0
        for _ in range(sum(self._take("I") for _ in range(2))):
            self._text()
            self._text()
            self._many("Q", self._take("I"))
        self._take("Q")
        self._many("Q", 2 * self._take("I"))
        texts = self._take("I")
        self.texts = len(self.fields)
        for _ in range(texts):
            self._text()
        for _ in range(self._take("I")):
            for _ in range(self._take("I")):
                self._call()
        self._tail = content[self._at:]

    def packed(self) -> bytes:
        return b"".join(field.packed() for field in self.fields) + self._tail

    def name(self, call: Call) -> Field | None:
        """The text that names the kernel, if there is one."""
        at = self.texts + self.fields[call.first].value
        return self.fields[at] if 0 <= at < len(self.fields) and self.fields[at].format == "s" else None

    def kernel(self, call: Call) -> str:
        """The kernel's name without the instruction set."""
        text = self.name(call)
        symbol = "" if text is None else str(text.value, "utf-8", "replace")
        return symbol.removeprefix("ng_").rpartition("__")[0]

    def _take(self, form: str) -> Any:
        (value,) = struct.unpack_from("<" + form, self._content, self._at)
        self._at += struct.calcsize("<" + form)
        self.fields.append(Field(form, value))
        return value

    def _many(self, form: str, count: int) -> None:
        for _ in range(count):
            self._take(form)

    def _text(self) -> None:
        (size,) = struct.unpack_from("<I", self._content, self._at)
        value = self._content[self._at + 4:self._at + 4 + size]
        if len(value) != size:
            raise ValueError("a text is cut off")
        self._at += 4 + size
        self.fields.append(Field("s", value))

    def _call(self) -> None:
        first = len(self.fields)
        _, _, operands, ints, floats = (self._take("I") for _ in range(5))
        self._take("Q")
        self._many("d", 2)
        for _ in range(operands):
            self._many("I", 2)
            self._take("Q")
        self._many("q", ints)
        self._many("d", floats)
        self.calls.append(Call(first, operands, ints, floats))


@dataclass
class Section:
    kind: int
    flags: int
    isa: int
    shapes: int
    content: bytes


def sections(content: bytes) -> list[Section]:
    """Those of a file, in the order of its table. What is none raises struct.error or ValueError."""
    magic, _, count, *_ = HEADER.unpack_from(content)
    if magic != MAGIC or count > 99:
        raise ValueError("not such a file")
    rows = [SECTION.unpack_from(content, HEADER.size + i * SECTION.size) for i in range(count)]
    return [Section(kind, flags, isa, shapes, content[offset:offset + size])
            for kind, flags, offset, size, _, isa, shapes in rows]


def seeds() -> list[bytes]:
    """Models of every family, of the instruction sets one by one; some in bf16, and for ranges of sizes; one with all
    instruction sets, two sets of shapes and references. Without those that this CPU does not run: a reader refuses
    such a file whatever it holds."""
    each = [(make, isa, "f32") for make in programs.GRAPHS for isa in ("avx512", "avx2")]
    each += [(make, "baseline", "f32") for make in programs.GRAPHS[:2]]
    each += [(make, "avx512", "bf16") for make in programs.GRAPHS[:4]]
    ranged = [(make, isa) for make in (programs.ranged_convolutions, programs.ranged_steps)
              for isa in ("avx512", "baseline")]
    return [*(programs.artefact(make, [isa], precision)
              for make, isa, precision in each if _runs(make, isa, precision)),
            *(programs.range_artefact(make, [isa]) for make, isa in ranged if _runs(make, isa)),
            programs.whole_artefact()]


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
        found = sections(content)
        parsed = {number: Program(section.content) for number, section in enumerate(found)
                  if section.kind == Kind.PROGRAM}
    except (struct.error, ValueError):
        return mutate(random.choice(others), others, random)
    row_change: tuple[int, int, int] | None = None
    for _ in range(random.randint(1, _MOST_CHANGES)):
        kind = random.random()
        ranged = [section for section in found if section.kind == Kind.RANGE]
        if kind < 0.8 and ranged:
            _change_range(random.choice(ranged), found, random)
        elif kind < 0.8 and parsed:
            _change_program(random.choice(list(parsed.values())), random)
        elif kind < 0.88:
            _change_data(found, random)
        elif kind < 0.92 and found:
            _change_sections(found, parsed, random)
        elif kind < 0.96 and found:
            row_change = random.randrange(len(found)), random.randrange(7), random.choice(_NUMBERS)
        else:
            for section in found:
                if section.kind == Kind.META:
                    section.content = _changed_meta(section.content, others, random)
    for number, program in parsed.items():
        if number < len(found) and found[number].kind == Kind.PROGRAM:
            found[number].content = program.packed()
    made = assembled(found, row_change, random.random() < 0.95)
    return mutate_bytes(made, others, random) if random.random() < 0.03 else made


def _change_range(section: Section, found: Sequence[Section], random: Random) -> None:
    data = next((one.content for one in found if one.kind == Kind.DATA), b"")
    if 1 <= section.isa <= len(ISAS):
        section.content = ranges.mutate(section.content, data, section.isa, random)


def assembled(found: Sequence[Section], row_change: tuple[int, int, int] | None = None, fitting: bool = True) -> bytes:
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
                        section.isa, section.shapes]
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
    return HEADER.pack(MAGIC, FORMAT, len(found), position, check(table)) + table + body


def _changed_number(value: int, random: Random) -> int:
    return random.choice((*_NUMBERS, *(-number for number in _NUMBERS[:12]), *(3 * (value + 1, value - 1, value * 2)),
                          value + 64, value - 64, value // 2, -value))


def _change_program(program: Program, random: Random) -> None:
    kind = random.random()
    if kind < 0.15 or not program.calls:
        field = random.choice(program.fields)
        _change(field, random)
        return
    call = random.choice(program.calls)
    if kind < 0.5 and call.ints:  # an int, and the tasks that fit
        _change(program.fields[call.numbers + random.randrange(call.ints)], random)
    elif kind < 0.6 and call.floats:
        _change(program.fields[call.numbers + call.ints + random.randrange(call.floats)], random)
    elif kind < 0.8 and call.operands:
        _change_operand(program, call, random)
    elif kind < 0.85:  # another kernel that takes as many operands and numbers
        _change_name(program, call, random)
    elif kind < 0.92:  # that of another instruction, of which it may take the rest too
        other = random.choice(program.calls)
        program.fields[call.first].value = program.fields[other.first].value
        if (call.operands, call.ints, call.floats) == (other.operands, other.ints, other.floats):
            span = random.choice((slice(call.places, call.numbers), slice(call.numbers, call.end)))
            shift = other.first - call.first
            for at in range(span.start, span.stop):
                program.fields[at].value = program.fields[at + shift].value
    else:
        _change(program.fields[random.randrange(call.first, call.end)], random)
    if random.random() < 0.9:
        _fit_tasks(program, call)


def _change_name(program: Program, call: Call, random: Random) -> None:
    """Of all instructions with this kernel."""
    text, name = program.name(call), program.kernel(call)
    if text is not None and name in KERNELS:
        counts, isa = _counts(KERNELS[name]), text.value.rpartition(b"__")[2]
        alike = [other for other, record in KERNELS.items() if _counts(record) == counts]
        text.value = b"ng_%s__%s" % (random.choice(alike).encode(), isa)


def _counts(record: Kernels) -> tuple[int, int, int]:
    return len(record.tensors), len(record.ints), len(record.floats)


def _change_operand(program: Program, call: Call, random: Random) -> None:
    at = call.places + 3 * random.randrange(call.operands)
    other = random.choice([one for one in program.calls if one.operands])
    place = random.choice((at, at + 1, at + 2, None))
    if place is None:
        source = other.places + 3 * random.randrange(other.operands)
        for i in range(3):
            program.fields[at + i].value = program.fields[source + i].value
    elif place == at + 2:
        _change(program.fields[place], random)
    else:
        program.fields[place].value = random.randrange(5)


def _fit_tasks(program: Program, call: Call) -> None:
    try:
        record = KERNELS[program.kernel(call)]
        ints = [field.value for field in program.fields[call.numbers:call.numbers + call.ints]]
        program.fields[call.first + 5].value = record.tasks_of(ints)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        pass


def _change(field: Field, random: Random) -> None:
    if field.format == "s":
        field.value = random.choice((*_TEXTS, field.value[:-1], field.value + b"2", field.value.replace(b"f32", b"f64"),
                                     field.value.replace(b"avx512", b"avx2"), field.value.replace(b"min", b"max")))
    elif field.format == "d":
        field.value = random.choice(_FLOATS)
    else:
        field.value = _changed_number(field.value, random)
        if field.format == "q" and not -(1 << 63) <= field.value < 1 << 63:
            field.value = (field.value + (1 << 63)) % (1 << 64) - (1 << 63)


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


def _change_sections(found: list[Section], parsed: dict[int, Program], random: Random) -> None:
    """One less, one twice, in another order, or of another kind."""
    at = random.randrange(len(found))
    kind = random.choice(("remove", "double", "kind", "cut"))
    if kind == "remove":
        del found[at]
        parsed.clear()
    elif kind == "double":
        found.append(found[at])
    elif kind == "kind":
        found[at].kind = random.choice((0, 1, 2, 3, 4, 5, 6, 7, 99))
    else:
        found[at].content = found[at].content[:random.randrange(len(found[at].content) + 1)]
        parsed.pop(at, None)


def _changed_meta(content: bytes, others: Sequence[bytes], random: Random) -> bytes:
    if random.random() < 0.5:
        return random.choice(_METAS)
    try:
        meta = json.loads(content)
        meta[random.choice(list(meta))] = random.choice((None, 1, [], {}, "x", {"a": 1}, 1e308))
        return json.dumps(meta).encode()
    except (AttributeError, IndexError, RecursionError, TypeError, ValueError):
        return mutate_bytes(content, others, random)
