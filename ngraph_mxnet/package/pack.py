"""Plain data as bytes, and back: None, booleans, numbers, texts, lists, dicts with texts for keys, and arrays.

Three parts: a line of JSON with the type, shape and place of each array; a line of JSON with the data, in which
`{"$array": n}` stands for array n; the elements of the arrays, one after the other. Nothing in it is code. Tuples
come back as lists. An array that occurs several times is there once, and one that whoever reads it has too by its name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from functools import cache
from math import prod
from typing import Any

import numpy as np

from ngraph_mxnet.errors import PackageError
from ngraph_mxnet.ir.types import ELEMENT_TYPES, element_type

LARGE = 1 << 12
"""Bytes of an array that is worth naming instead of holding."""
_ARRAY = "$array"
_ALIGNMENT = 16
"""Arrays begin at multiples of it, counted from the first line."""
_MOST_BYTES = 1 << 62


def pack(value: Any, external: Mapping[str, np.ndarray] | None = None) -> list[bytes]:
    """Parts of the bytes of `value`. Of large arrays that are among `external`, by name, there are the names only.

    Raises:
        PackageError: it is no plain data.
    """
    arrays = _Arrays(external or {})
    try:
        data = json.dumps(value, default=arrays.reference, separators=(",", ":"))
    except (TypeError, ValueError, KeyError) as error:
        raise PackageError(f"what is to be packed is no plain data: {error}") from error
    head = json.dumps(arrays.table).encode() + b"\n" + data.encode()
    parts = [head, b" " * (-(len(head) + 1) % _ALIGNMENT if arrays.own else 0) + b"\n"]
    for array in arrays.own:
        parts += [np.ascontiguousarray(array).tobytes(), b"\0" * (-array.nbytes % _ALIGNMENT)]
    return parts


def unpack(content: bytes, start: int = 0, external: Mapping[str, np.ndarray] | None = None) -> Any:
    """Unpack the data in `content[start:]`. Arrays are read-only views of `content`, or of the arrays in `external`.

    Raises:
        PackageError: the bytes are no packed data, or an array is not in `external`.
    """
    try:
        end = content.index(b"\n", start)
        data_end = content.index(b"\n", end + 1)
        table = json.loads(content[start:end])
        arrays, position = [], data_end + 1
        for entry in table:
            array, size = _read(entry, content, position, external or {})
            arrays.append(array)
            position += size + -size % _ALIGNMENT

        def rich(found: dict[str, Any]) -> Any:
            return arrays[count(found[_ARRAY])] if found.keys() == {_ARRAY} else found

        return json.loads(content[end + 1:data_end], object_hook=rich)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise PackageError(f"these are no packed data: {error!r}") from error


def _read(entry: Mapping[str, Any], content: bytes, position: int,
          external: Mapping[str, np.ndarray]) -> tuple[np.ndarray, int]:
    """An array of the table, and the bytes that it takes in `content`."""
    dtype, shape = ELEMENT_TYPES[entry["element"]].numpy, tuple(map(count, entry["shape"]))
    elements = prod(shape)
    if "external" not in entry:
        return np.frombuffer(content, dtype, elements, position).reshape(shape), elements * dtype.itemsize
    if entry["external"] not in external:
        raise PackageError(f"array {entry['external']!r} is to be given by whoever reads the package, and is not")
    array = np.ascontiguousarray(external[entry["external"]])
    if array.dtype != dtype:
        raise PackageError(f"array {entry['external']!r} is of {array.dtype}, expected {dtype}")
    return array.reshape(shape), 0


def count(value: Any) -> int:
    """The value, if it can be a number of bytes or elements, else ValueError."""
    if type(value) is not int or not 0 <= value <= _MOST_BYTES:
        raise ValueError(f"{value!r} can't be a number of bytes or elements")
    return value


def text(value: Any) -> str:
    """The value, if it is a text, else TypeError."""
    if type(value) is not str:
        raise TypeError(f"{value!r} is no text")
    return value


def arrays_in(value: Any) -> Iterator[np.ndarray]:
    """All arrays of plain data, some perhaps several times."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from arrays_in(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from arrays_in(each)


def content_key(array: np.ndarray) -> tuple[str, int, bytes]:
    """Arrays of equal dtype and elements have the same in one process, whatever their shapes."""
    import ngraph_mxnet._core as _core

    memory = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return array.dtype.str, memory.nbytes, _core.content_hash128(memory, _secret())


@cache
def _secret() -> bytes:
    """This process's own, so that no content can be made up that is taken for another."""
    import ngraph_mxnet._core as _core

    return os.urandom(_core.hash_key_bytes)


class _Arrays:
    """The arrays that were met, by where their elements lie. Most external arrays are the very same objects, and
    comparing contents takes long for big models."""

    def __init__(self, external: Mapping[str, np.ndarray]) -> None:
        self.table: list[dict[str, Any]] = []
        self.own: list[np.ndarray] = []
        self._places: dict[Any, int] = {}
        self._external = {name: array for name, array in external.items() if array.nbytes >= LARGE}
        self._names: dict[Any, str] = {_memory(array): name for name, array in self._external.items()}
        self._sizes = {(array.dtype.str, array.nbytes) for array in self._external.values()}

    def reference(self, value: Any) -> dict[str, int]:
        """Return the reference that stands for an array."""
        if not isinstance(value, np.ndarray):
            raise TypeError(f"found {type(value).__name__}")
        memory = _memory(value)
        if memory not in self._places:
            entry = {"element": element_type(value.dtype).name, "shape": value.shape}
            name = self._name(value)
            if name is None:
                self.own.append(value)
            else:
                entry["external"] = name
            self._places[memory] = len(self.table)
            self.table.append(entry)
        return {_ARRAY: self._places[memory]}

    def _name(self, value: np.ndarray) -> str | None:
        name = self._names.get(_memory(value))
        if name is None and (value.dtype.str, value.nbytes) in self._sizes:
            self._names.update({content_key(array): one for one, array in self._external.items()
                                if array.nbytes == value.nbytes})
            name = self._names.get(content_key(value))
        return name


def _memory(array: np.ndarray) -> tuple[int, str, tuple[int, ...], tuple[int, ...]]:
    """Return where the array's elements lie, and how: address, dtype, shape and strides."""
    return array.__array_interface__["data"][0], array.dtype.str, array.shape, array.strides
