"""Inputs and expected outputs that a file holds to be verified with: its sections REFERENCE (docs/artefact.md)."""

from __future__ import annotations

import os
import struct
from typing import Any, Iterator, NamedTuple

import numpy as np

from ngraph_runtime.errors import ModelError
from ngraph_runtime.model import Model

MAGIC = b"ngraph artefact\n"
FORMAT = 1
REFERENCE = 4
TOLERANCES = {"f32": 1e-3, "bf16": 5e-2}
"""By a model's precision: the largest difference of an output's elements, as a part of the largest expected one. CPUs
round differently; what a wrong kernel computes is far away."""

_HEADER, _SECTION = struct.Struct("<16sIIQ32x"), struct.Struct("<IIQQ40x")
_MOST_SECTIONS = 4096


class Reference(NamedTuple):
    """Inputs of one set of shapes, and what they must give."""

    shape_set: int
    inputs: list[np.ndarray[Any, Any]]
    outputs: list[np.ndarray[Any, Any]]


class Comparison(NamedTuple):
    """One output against what was expected; the difference is a part of the largest expected element."""

    shape_set: int
    output: str
    difference: float
    matches: bool


def references(model: Model) -> list[Reference]:
    """What the model's file holds, which may be nothing.

    The library has checked the file's content when it loaded it, so only what could mislead this reader is looked at.
    """
    try:
        return [_decoded(model, section) for section in _sections(model.path, REFERENCE)]
    except OSError as error:
        raise ModelError(f"{model.path}: the references can't be read: {error}") from error
    except (struct.error, IndexError) as error:
        raise ModelError(f"{model.path}: a reference is damaged or cut off: {error}") from error


def verify(model: Model, tolerance: float | None = None, threads: int | None = None) -> list[Comparison]:
    """Runs every reference and compares each output: integers must be equal, floats within the tolerance."""
    allowed = TOLERANCES.get(model.precision, TOLERANCES["f32"]) if tolerance is None else tolerance
    found = []
    for reference in references(model):
        outputs = model.run(reference.inputs, threads=threads)
        for port, output, expected in zip(model.outputs, outputs, reference.outputs):
            if port.element == "bf16":
                output, expected = _widened(output), _widened(expected)
            difference = _difference(output, expected)
            equal = np.array_equal(output, expected)  # the difference of large integers may be lost in rounding
            matches = equal or (expected.dtype.kind == "f" and difference <= allowed)
            found.append(Comparison(reference.shape_set, port.name, difference, bool(matches)))
    return found


def _sections(path: str | os.PathLike[str], wanted: int) -> Iterator[bytes]:
    with open(path, "rb") as file:
        magic, number, count, _ = _HEADER.unpack(file.read(_HEADER.size))
        if magic != MAGIC or number != FORMAT or count > _MOST_SECTIONS:
            raise ModelError(f"{os.fspath(path)}: found format {number} with {count} sections, expected {FORMAT}")
        table = [_SECTION.unpack(file.read(_SECTION.size)) for _ in range(count)]
        size = file.seek(0, os.SEEK_END)
        for kind, _, offset, length in table:
            if kind == wanted:
                if offset + length > size:
                    raise ModelError(f"{os.fspath(path)}: a section ends at {offset + length}, behind the file's end")
                file.seek(offset)
                yield file.read(length)


def _decoded(model: Model, section: bytes) -> Reference:
    shape_set, inputs, outputs = struct.unpack_from("<III", section)
    if (inputs, outputs) != (len(model.inputs), len(model.outputs)) or shape_set >= len(model.shape_sets):
        raise ModelError(f"{model.path}: a reference of set {shape_set} with {inputs} inputs and {outputs} outputs "
                         "does not fit the model")
    offset, arrays = 12, []
    for port in (*model.inputs, *model.outputs):
        (length,) = struct.unpack_from("<Q", section, offset)
        offset += 8
        shape = port.shapes[shape_set]
        content = section[offset:offset + length]
        if len(content) != length or length != int(np.prod(shape, dtype=np.int64)) * port.dtype.itemsize:
            raise ModelError(f"{model.path}: a reference has {length} bytes for {port.name}, which do not fit")
        arrays.append(np.frombuffer(content, port.dtype).reshape(shape))
        offset += length
    return Reference(shape_set, arrays[:inputs], arrays[inputs:])


def _widened(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _difference(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """The largest; infinite where one of both is NaN or infinite and the other is not the same."""
    if expected.size == 0 or np.array_equal(found, expected):
        return 0.0
    a, b = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if not np.all(finite | same):
        return float("inf")
    scale = np.abs(b[finite]).max(initial=0.0)
    largest = np.abs(a[finite] - b[finite]).max(initial=0.0)
    return float(largest / (scale or 1.0))
