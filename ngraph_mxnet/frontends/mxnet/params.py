"""MXNet's `.params` files, read without MXNet.

A file is a list of arrays and a list of names (`NDArray::Load` in MXNet's src/ndarray/ndarray.cc): the words 0x112 and
0, the number of arrays, the arrays, the number of names, and each name behind its length. Numbers are little-endian.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import ModelError
from ngraph_mxnet.frontends.mxnet.symbol_json import mxnet_element

_LIST = 0x112
_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
"""The first word of an array of each version; the oldest begins with its rank."""
_MOST_RANK = 32
_ROW_SPARSE, _CSR = 1, 2
_BFLOAT16 = 12
_MOST_ARRAYS = 1 << 16
_MOST_ARRAY_BYTES = 1 << 46
MOST_DENSE_BYTES = 1 << 26
"""The memory that sparse arrays may take as dense ones, beyond the size of their file."""


def read_params(params: str | os.PathLike[str] | bytes | Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays of a file, of its content, or of a mapping, by their names without `arg:` and `aux:`.

    Arrays of a file are read-only views of its content; sparse ones become dense. Whatever the file says of sizes, a
    reader takes no more memory than twice the file, MOST_DENSE_BYTES, and 1 KiB for each array.

    Raises:
        ModelError: the file can't be read or is damaged, its arrays have no names, there are more than 65536, or its
            sparse ones take too much memory as dense ones; or a mapping has no arrays.
    """
    if isinstance(params, Mapping):
        found: Mapping[str, Any] = params
        for name, array in params.items():
            if not hasattr(array, "shape"):
                raise ModelError(f"parameter {name!r}: found {array!r:.80}, expected an array")
    else:
        found = read_arrays(params)
    return {name.removeprefix("arg:").removeprefix("aux:"): array for name, array in found.items()}


def read_arrays(params: str | os.PathLike[str] | bytes) -> dict[str, np.ndarray]:
    """Return the arrays by the names that the file has. Raises ModelError: as `read_params`."""
    told = "the parameters" if isinstance(params, bytes) else os.fspath(params)
    try:
        content = params if isinstance(params, bytes) else Path(params).read_bytes()
    except OSError as error:
        raise ModelError(f"can't read parameters from {told}: {error.strerror or error}") from None
    try:
        return _Reader(content).arrays()
    except _Damaged as error:
        raise ModelError(f"can't read parameters by name from {told}: {error}") from None


class _Damaged(Exception):  # noqa: N818
    """The reason why the content is no list of arrays with names."""


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0
        self._dense_bytes = 0

    def arrays(self) -> dict[str, np.ndarray]:
        if len(self._content) < 24 or self._word("Q") != _LIST:
            raise _Damaged("it is no file of MXNet's arrays")
        self._word("Q")
        count = int(self._word("Q"))
        if count > _MOST_ARRAYS:
            raise _Damaged(f"it tells of {count} arrays, expected at most {_MOST_ARRAYS}")
        arrays = [self._array(number) for number in range(count)]
        told = int(self._word("Q"))
        if told != count:
            raise _Damaged(f"it has {count} arrays and {told} names")
        names = [self._name(number) for number in range(count)]
        if self._at != len(self._content):
            raise _Damaged(f"{len(self._content) - self._at} bytes follow the last name")
        if len(set(names)) != len(names):
            raise _Damaged("a name occurs twice")
        return {name: array for name, array in zip(names, arrays, strict=True) if array is not None}

    def _take(self, size: int) -> memoryview:
        begin = self._at
        if size > len(self._content) - begin:
            raise _Damaged(f"it ends at byte {len(self._content)}, within what begins at byte {begin}")
        self._at = begin + size
        return memoryview(self._content)[begin:self._at]

    def _words(self, kind: str, count: int) -> tuple[Any, ...]:
        return struct.unpack(f"<{count}{kind}", self._take(count * struct.calcsize(kind)))

    def _word(self, kind: str) -> Any:
        return self._words(kind, 1)[0]

    def _name(self, number: int) -> str:
        content = bytes(self._take(self._word("Q")))
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise _Damaged(f"name {number} is {content!r}, no UTF-8") from None

    def _array(self, number: int) -> np.ndarray | None:
        """None for an array without a shape, which MXNet loads as an empty one."""
        version = int(self._word("I"))
        is_current = version in (_V2, _V3)
        storage = int(self._word("i")) if is_current else 0
        if storage not in (-1, 0, _ROW_SPARSE, _CSR):
            raise _Damaged(f"array {number} has storage type {storage}")
        sparse = max(storage, 0)
        stored = self._shape(number, version) if sparse else None
        shape = self._shape(number, version)
        if shape is None or (not shape and version != _V3):
            return None
        self._words("i", 2)  # the device it was on
        element = self._element(number)
        parts = [(self._element(number), self._shape(number, version) or ()) for _ in range(sparse)]
        data = self._elements(number, element, shape if stored is None else stored)
        indices = [self._elements(number, *part) for part in parts]
        return self._dense(number, shape, data, indices) if sparse else data

    def _shape(self, number: int, version: int) -> tuple[int, ...] | None:
        """None: unknown, as version 3 marks it by a negative rank or size."""
        is_oldest = version not in (_V1, _V2, _V3)
        rank = version if is_oldest else int(self._word("i"))
        if rank < 0 and version == _V3:
            return None
        if not 0 <= rank <= _MOST_RANK:
            raise _Damaged(f"array {number} has rank {rank}")
        shape = self._words("I" if is_oldest else "q", rank)
        if any(size < 0 for size in shape):
            if version == _V3:
                return None
            raise _Damaged(f"array {number} has shape {shape}")
        return shape

    def _element(self, number: int) -> np.dtype:
        flag = int(self._word("i"))
        if flag == _BFLOAT16:
            raise _Damaged(f"array {number} is of bfloat16, which this package reads from no file")
        try:
            return mxnet_element(flag).numpy
        except ModelError as error:
            raise _Damaged(f"array {number}: {error}") from None

    def _elements(self, number: int, element: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        if prod(max(size, 1) for size in shape) * element.itemsize > _MOST_ARRAY_BYTES:
            raise _Damaged(f"array {number} has shape {shape}, larger than any memory")
        content = self._take(prod(shape) * element.itemsize)
        return np.frombuffer(content, element).reshape(shape)

    def _dense(self, number: int, shape: tuple[int, ...], data: np.ndarray, indices: list[np.ndarray]) -> np.ndarray:
        """A sparse array, of which these are the elements and the indices, as a dense one."""
        what = _why_not_sparse(shape, data, indices)
        if what:
            raise _Damaged(f"array {number} is sparse, and its indices do not fit its shape {shape}: {what}")
        self._dense_bytes += prod(shape) * data.itemsize + 16 * sum(part.size for part in indices)  # they are copied
        most = len(self._content) + MOST_DENSE_BYTES
        if self._dense_bytes > most:
            raise _Damaged(f"array {number} is sparse, and as a dense one of shape {shape} it brings the file's to "
                           f"{self._dense_bytes} bytes, expected at most {most}: write it dense, as "
                           "array.tostype('default')")
        found = np.zeros(shape, data.dtype)
        if len(indices) == _ROW_SPARSE:
            found[indices[0]] = data
        elif data.size:
            starts, columns = indices
            found[np.repeat(np.arange(shape[0]), np.diff(starts)), columns] = data
        return found


def _why_not_sparse(shape: tuple[int, ...], data: np.ndarray, indices: list[np.ndarray]) -> str:
    """What is wrong with the indices of a sparse array; empty if nothing is."""
    if any(part.dtype != np.int64 or part.ndim != 1 for part in indices):
        return "expected vectors of int64, found " + " and ".join(f"{part.dtype} {part.shape}" for part in indices)
    if len(indices) == _ROW_SPARSE:
        rows = indices[0]
        if not shape or data.shape != (rows.size, *shape[1:]):
            return f"{rows.size} rows, and elements of shape {data.shape}"
        return _outside(rows, shape[0], "row")
    starts, columns = indices
    if len(shape) != 2 or data.shape != columns.shape:
        return f"a matrix in CSR of {columns.size} columns, and elements of shape {data.shape}"
    if not data.size and not starts.size:
        return ""
    if starts.size != shape[0] + 1 or starts[0] != 0 or starts[-1] != data.size or (starts[1:] < starts[:-1]).any():
        return f"its rows do not begin one behind the other, from 0 to {data.size}"
    return _outside(columns, shape[1], "column")


def _outside(places: np.ndarray, size: int, what: str) -> str:
    found = [place for place in (places.min(), places.max()) if not 0 <= place < size] if places.size else []
    return f"there is no {what} {found[0]}" if found else ""
