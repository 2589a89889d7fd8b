"""Changes to `.params` files: any field of them, with counts and lengths that fit or do not."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod
from random import Random
from typing import Any

import numpy as np

from fuzzing.entries import mutate_bytes

V1, V2, V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
OLDEST = 0
FLAGS = {"float32": 0, "float64": 1, "float16": 2, "uint8": 3, "int32": 4, "int8": 5, "int64": 6, "bool": 7}
BFLOAT16 = 12
_SIZES = {0: 4, 1: 8, 2: 2, 3: 1, 4: 4, 5: 1, 6: 8, 7: 1, BFLOAT16: 2}
_LIST = 0x112
_DENSE, _ROWS, _CSR = 0, 1, 2
_NUMBERS = (0, 1, -1, 2, 3, 4, 8, 31, 32, 33, 255, 1 << 16, 1 << 20, 1 << 28, (1 << 31) - 1, 1 << 31, (1 << 32) - 1,
            1 << 32, 1 << 40, 1 << 60, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 31), -(1 << 63))
_BITS = {"I": 32, "i": 32, "Q": 64, "q": 64}
_MOST_CHANGES = 4
_MOST_FIELDS = 1 << 11
_MOST_REPEATS = 1 << 9

Field = tuple[str, Any]
"""The letter of `struct` for a number, or "s" for bytes; and its value."""


def packed(fields: Sequence[Field]) -> bytes:
    """The fields one after the other, numbers little-endian and cut to their bits."""
    return b"".join(value if code == "s" else struct.pack(f"<{code.upper()}", value % (1 << _BITS[code]))
                    for code, value in fields)


def shape_fields(shape: Sequence[int], version: int = V2) -> list[Field]:
    if version == OLDEST:
        return [("I", len(shape)), *(("I", size) for size in shape)]
    return [("i", len(shape)), *(("q", size) for size in shape)]


def array_fields(array: np.ndarray, version: int, flag: int | None = None) -> list[Field]:
    """A dense array as MXNet of that version wrote it; the oldest version begins with the rank."""
    flag = FLAGS[str(array.dtype)] if flag is None else flag
    head: list[Field] = [] if version == OLDEST else [("I", version)]
    storage: list[Field] = [("i", _DENSE)] if version in (V2, V3) else []
    return [*head, *storage, *shape_fields(array.shape, version), ("i", 1), ("i", 0), ("i", flag),
            ("s", array.tobytes())]


def sparse_fields(shape: Sequence[int], data: np.ndarray, *indices: np.ndarray) -> list[Field]:
    """A sparse array of version 2: rows, of one array of indices; or CSR, of two (starts, columns)."""
    found = [("I", V2), ("i", len(indices)), *shape_fields(data.shape), *shape_fields(shape), ("i", 1), ("i", 0),
             ("i", FLAGS[str(data.dtype)])]
    for part in indices:
        found += [("i", FLAGS[str(part.dtype)]), *shape_fields(part.shape)]
    return [*found, *(("s", part.tobytes()) for part in (data, *indices))]


def file_fields(arrays: Sequence[Sequence[Field]], names: Sequence[str]) -> list[Field]:
    found: list[Field] = [("Q", _LIST), ("Q", 0), ("Q", len(arrays)), *(field for one in arrays for field in one),
                          ("Q", len(names))]
    for name in names:
        found += [("Q", len(name.encode())), ("s", name.encode())]
    return found


def seeds() -> list[bytes]:
    """Files of every version and element type; sparse ones, bfloat16, no elements, unknown shapes, no arrays."""
    rng = np.random.default_rng(3)
    whole = [file_fields([array_fields(rng.integers(0, 2, (2, 3, 1)).astype(dtype), version) for dtype in FLAGS],
                         [f"arg:{dtype}" for dtype in FLAGS]) for version in (OLDEST, V1, V2, V3)]
    floats = rng.standard_normal((2, 3)).astype(np.float32)
    rows = sparse_fields((5, 3), floats, np.array([1, 4]))
    csr = sparse_fields((2, 3), floats.reshape(-1)[:3], np.array([0, 1, 3]), np.array([2, 0, 1]))
    empty = sparse_fields((5, 3), np.zeros((0, 3), np.float32), np.zeros(0, np.int64))
    sparse = file_fields([rows, csr, empty], ["arg:rows", "arg:csr", "arg:empty"])
    scalar, none = (array_fields(array, V3) for array in (np.array(3.5), np.zeros((0, 4), np.float32)))
    unknown: list[Field] = [("I", V3), ("i", _DENSE), ("i", -1)]
    numpy = file_fields([scalar, none, unknown], ["scalar", "none", "unknown"])
    brain = file_fields([array_fields(floats.astype(np.float16), V2, BFLOAT16)], ["aux:brain"])
    return [packed(fields) for fields in (*whole, sparse, numpy, brain, file_fields([], []))]


def fields_of(content: bytes) -> list[Field]:
    """The fields of a file as far as it is one, then the bytes that are left. Reads no more than there is."""
    return _Walk(content).fields()


class _Walk:
    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0
        self._found: list[Field] = []

    def fields(self) -> list[Field]:
        with suppress(struct.error, KeyError, OverflowError):
            self._file()
        if self._at < len(self._content):
            self._found.append(("s", self._content[self._at:]))
        return self._found

    def _number(self, code: str) -> int:
        (value,) = struct.unpack_from(f"<{code}", self._content, self._at)
        self._at += struct.calcsize(f"<{code}")
        self._found.append((code, value))
        return int(value)

    def _bytes(self, size: int) -> None:
        if not 0 <= size <= len(self._content) - self._at:
            raise OverflowError
        self._found.append(("s", self._content[self._at:self._at + size]))
        self._at += size

    def _shape(self, version: int) -> tuple[int, ...]:
        rank = version if version not in (V1, V2, V3) else self._number("i")
        return tuple(self._number("q" if version in (V1, V2, V3) else "I") for _ in range(min(rank, 64)))

    def _array(self) -> None:
        version = self._number("I")
        storage = max(self._number("i"), 0) if version in (V2, V3) else _DENSE
        stored = self._shape(version) if storage else None
        shape = self._shape(version)
        if not shape and version != V3:
            return
        self._number("i"), self._number("i")
        parts = [(self._number("i"), shape if stored is None else stored)]
        parts += [(self._number("i"), self._shape(version)) for _ in range(min(storage, _CSR))]
        for flag, sizes in parts:
            self._bytes(prod(sizes) * _SIZES[flag])

    def _file(self) -> None:
        self._number("Q"), self._number("Q")
        for _ in range(self._number("Q")):
            self._array()
        for _ in range(self._number("Q")):
            self._bytes(self._number("Q"))


def mutate(content: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """One to four changes of fields; a few mutants are changed byte by byte behind that."""
    fields = fields_of(content)
    if len(fields) < 2:
        fields = fields_of(random.choice(others))
    for _ in range(random.randint(1, _MOST_CHANGES)):
        random.choice(_CHANGES)(fields, others, random)
    made = packed(fields[:_MOST_FIELDS])
    return mutate_bytes(made, others, random) if random.random() < 0.1 else made


def _number(fields: list[Field], others: Sequence[bytes], random: Random) -> None:
    """A number becomes another, or one next to it."""
    places = [place for place, (code, _) in enumerate(fields) if code != "s"]
    if places:
        place = random.choice(places)
        code, value = fields[place]
        fields[place] = code, random.choice([*_NUMBERS, value + 1, value - 1, value * 2, V1, V2, V3])


def _flag(fields: list[Field], others: Sequence[bytes], random: Random) -> None:
    """A word that may be an element type, a storage type or a rank becomes another of those."""
    places = [place for place, (code, _) in enumerate(fields) if code == "i"]
    if places:
        fields[random.choice(places)] = "i", random.randrange(-1, 14)


def _content(fields: list[Field], others: Sequence[bytes], random: Random) -> None:
    """Bytes of an array or a name: changed, or one eight of them another number, as an index may be."""
    places = [place for place, (code, _) in enumerate(fields) if code == "s"]
    if not places:
        return
    place = random.choice(places)
    held = fields[place][1]
    if len(held) >= 8 and random.random() < 0.6:
        at = random.randrange(len(held) // 8) * 8
        changed = held[:at] + packed([("q", random.choice(_NUMBERS))]) + held[at + 8:]
    else:
        changed = mutate_bytes(held, others, random)
    fields[place] = "s", changed


def _moved(fields: list[Field], others: Sequence[bytes], random: Random) -> None:
    """Fields are left out, doubled, or exchanged."""
    if not fields:
        return
    begin = random.randrange(len(fields))
    end = begin + random.randint(1, 12)
    kind = random.choice(("remove", "double", "exchange"))
    if kind == "remove":
        del fields[begin:end]
    elif kind == "double":
        fields[begin:begin] = fields[begin:end]
    else:
        other = random.randrange(len(fields))
        fields[begin], fields[other] = fields[other], fields[begin]


def _splice(fields: list[Field], others: Sequence[bytes], random: Random) -> None:
    """Fields of another file in between."""
    other = fields_of(random.choice(others))
    begin, at = random.randrange(len(other)), random.randrange(len(fields) + 1)
    fields[at:at] = other[begin:begin + random.randint(1, 24)]


def _repeat(fields: list[Field], others: Sequence[bytes], random: Random) -> None:
    """Very many arrays, or names, that take next to no bytes; the count in front of them fits."""
    times = random.randint(2, _MOST_REPEATS)
    one = random.choice(([("I", V3), ("i", 0), ("i", -1)], [("I", OLDEST)], array_fields(np.array(1, np.int8), V3)))
    names = range(times) if random.random() < 0.8 else range(times - 1)
    fields[:] = file_fields([one] * times, [str(name) for name in names])


_Change = Callable[[list[Field], Sequence[bytes], Random], None]
_CHANGES: tuple[_Change, ...] = (
    *[_number] * 48, *[_flag] * 24, *[_content] * 24, *[_moved] * 16, *[_splice] * 12, _repeat)
