"""Changes to what the cache keeps: the numbers, words and lists of a package, and plain bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from math import prod
from random import Random
from typing import Any

import numpy as np

from ngraph_mxnet.ir.types import element_type
from ngraph_mxnet.program import package

_INTEGERS = (0, 1, -1, 2, 8, 64, 4096, 1 << 20, (1 << 31) - 1, 1 << 32, (1 << 62), (1 << 63) - 1, 1 << 64, -(1 << 63))
_OTHERS: tuple[Any, ...] = (None, True, 0.5, 1e308, "", "x", "f32", [], {}, [0], "ng_relu_f32__avx2")
_MOST_CHANGES = 3

Place = tuple[Any, Any]
"""A list or dict, and the index or key of an element."""


def fields(content: bytes) -> list[Any]:
    """What a package says of its arrays, and its data (see `package.package.pack`)."""
    return [json.loads(line) for line in _parts(content)[:2]]


def _parts(content: bytes) -> list[bytes]:
    """The two lines of a package, and its arrays; of what is none, fewer."""
    return content[package.HEADER_BYTES:].split(b"\n", 2)


def arrays(content: bytes) -> list[bytes]:
    """The arrays that a package holds, in the order of its table; of one that others bring b""."""
    table, held, at = fields(content)[0], [], 0
    tail = _parts(content)[2]
    for entry in table:
        size = 0 if "external" in entry else prod(entry["shape"]) * element_type(entry["element"]).size
        held.append(tail[at:at + size])
        at += size + -size % 16
    return held


def changed(content: bytes, found: list[Any], tail: bytes | None = None) -> bytes:
    """The package with these fields, and with its arrays or `tail` behind them; the seal fits."""
    *_, arrays = _parts(content)
    lines = [json.dumps(line).encode() for line in found]
    lines[1] += b" " * (-(sum(map(len, lines)) + 2) % 16)
    return package.seal(b"\n".join([*lines, arrays if tail is None else tail]))


def mutate(content: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """A change of the data, with a seal that fits, or of bytes where there are none."""
    try:
        found, parts = fields(content), _parts(content)
    except (IndexError, ValueError):
        return mutate_bytes(content, others, random)
    for _ in range(random.randint(1, _MOST_CHANGES)):
        known = list(places(found))
        if known:
            change(*random.choice(known), known, random)
    if len(found) != 2 or len(parts) != 3:
        return mutate_bytes(content, others, random)
    kind, tail = random.random(), None
    if kind < 0.2:
        tail = mutate_bytes(parts[2], others, random)
    made = changed(content, found, tail)
    return mutate_bytes(made, others, random) if kind > 0.95 else made


def places(value: Any) -> Iterator[Place]:
    """Where an element of JSON stands, of all that it consists of."""
    waiting = [value]
    while waiting:
        top = waiting.pop()
        keys = list(top) if isinstance(top, dict) else range(len(top))
        for key in keys:
            yield top, key
            if isinstance(top[key], (dict, list)):
                waiting.append(top[key])


def change(within: Any, key: Any, known: list[Place], random: Random) -> None:
    """One element of JSON: another number, a copy of another of the `known` elements, away, or something else."""
    kind = random.random()
    if isinstance(within[key], int) and kind < 0.6:
        within[key] = random.choice([*_INTEGERS, within[key] + 1, within[key] - 1, within[key] * 2])
    elif kind < 0.8:
        other, place = random.choice(known)
        within[key] = json.loads(json.dumps(other[place]))
    elif kind < 0.9:
        del within[key]
    else:
        within[key] = random.choice(_OTHERS)


def mutate_bytes(content: bytes, others: Sequence[bytes], random: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(random.randint(1, _MOST_CHANGES)):
        at = random.randrange(len(changed) + 1)
        kind = random.choice(("flip", "insert", "remove", "cut", "double"))
        if kind == "flip" and at < len(changed):
            changed[at] ^= 1 << random.randrange(8)
        elif kind == "insert":
            changed[at:at] = random.randbytes(random.randint(1, 64))
        elif kind == "remove":
            del changed[at : at + random.randint(1, 64)]
        elif kind == "cut":
            del changed[at:]
        else:
            changed[at:at] = changed[: random.randint(0, 64)]
    return bytes(changed)


def largest_int(native: Any) -> int:
    """The largest int that the instructions of a `_core.Executable` give their kernels."""
    programs = [program.listed()[0] for program in (native.program, native.prepare_program) if program is not None]
    return max((number for levels in programs for level in levels for _, _, ints, *_ in level for number in ints),
               default=0)


Ports = list[tuple[np.dtype, list[int]]]


def specs(content: bytes, most: int) -> tuple[Ports, Ports]:
    """Types and shapes of a package's inputs and outputs.

    Raises:
        ValueError: they are larger than `most` bytes together.
    """
    _, data = fields(content)
    values = [(element_type(str(element)).numpy, list(map(int, shape))) for _, element, shape, _ in data["values"]]
    found = values[:data["inputs"]], [values[place] for _, place in data["results"]]
    if sum(prod(shape) * dtype.itemsize for ports in found for dtype, shape in ports) > most:
        raise ValueError("too large to be run")
    return found
