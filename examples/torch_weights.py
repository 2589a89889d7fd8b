"""Read a PyTorch checkpoint of the format that torch.save wrote before version 1.6, without PyTorch.

Such a file is five pickles (magic number, protocol, machine information, the object, the storage keys) and
then one block a storage: an int64 element count and the raw elements, little-endian. A pickle can run any
code, so the unpickler here knows four names and refuses everything else.
"""

from __future__ import annotations

import pickle
import struct
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
PROTOCOL_VERSION = 1001
#: What unpickling of a damaged file raises.
DAMAGE = (pickle.UnpicklingError, EOFError, ValueError, TypeError, LookupError, AttributeError)


class CheckpointError(ValueError):
    """The file is not a checkpoint that this module reads."""


@dataclass(frozen=True)
class StorageType:
    """Stands for a class such as torch.FloatStorage."""

    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Storage:
    """A flat buffer of the file; its elements come after the pickles."""

    key: str
    dtype: np.dtype[Any]
    size: int


@dataclass(frozen=True)
class StridedTensor:
    """A view of a storage: offset, shape and strides are in elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def read(self, elements: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Copy the tensor out of its storage's elements, after checking that it lies inside them."""
        if len(self.shape) != len(self.strides) or min((self.offset, *self.shape, *self.strides)) < 0:
            raise CheckpointError(
                f"malformed tensor: shape {self.shape}, strides {self.strides}, offset {self.offset}"
            )
        if 0 in self.shape:
            return np.zeros(self.shape, elements.dtype)
        last = self.offset + sum(
            (extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True)
        )
        if last >= elements.size:
            raise CheckpointError(
                f"a tensor reaches element {last} of storage {self.storage.key}, which has {elements.size}"
            )
        view = np.lib.stride_tricks.as_strided(
            elements[self.offset :],
            self.shape,
            [stride * elements.itemsize for stride in self.strides],
            writeable=False,
        )
        return np.array(view)


def _rebuild_tensor(
    storage: Storage,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    requires_grad: bool,
    hooks: Any,
) -> StridedTensor:
    """What torch._utils._rebuild_tensor_v2 is called with; gradients and hooks mean nothing here."""
    return StridedTensor(storage, offset, tuple(shape), tuple(strides))


ALLOWED_GLOBALS = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch", "FloatStorage"): StorageType(np.dtype("<f4")),
    ("torch", "LongStorage"): StorageType(np.dtype("<i8")),
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
}


class RestrictedUnpickler(pickle.Unpickler):
    """Rebuilds a dict of tensors and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return ALLOWED_GLOBALS[module, name]
        except KeyError:
            raise CheckpointError(f"the checkpoint asks for {module}.{name}, which is not allowed") from None

    def persistent_load(self, pid: Any) -> Storage:
        try:
            kind, storage_type, key, _location, size, view = pid
        except (TypeError, ValueError):
            raise CheckpointError(f"unknown persistent id {pid!r}") from None
        if kind != "storage" or not isinstance(storage_type, StorageType) or view is not None:
            raise CheckpointError(f"unknown persistent id {pid!r}")
        return Storage(key, storage_type.dtype, size)


def _read_storage(file: BinaryIO, storage: Storage) -> np.ndarray[Any, Any]:
    header = file.read(8)
    if len(header) != 8 or struct.unpack("<q", header)[0] != storage.size:
        raise CheckpointError(f"storage {storage.key}: the element count is missing or not {storage.size}")
    data = file.read(storage.size * storage.dtype.itemsize)
    if len(data) != storage.size * storage.dtype.itemsize:
        raise CheckpointError(f"storage {storage.key}: the file ends early")
    return np.frombuffer(data, storage.dtype)


def load_state_dict(path: str | Path) -> dict[str, np.ndarray[Any, Any]]:
    """Return the named tensors of a checkpoint as NumPy arrays.

    Raises CheckpointError for the zip format of PyTorch 1.6 and later, for a damaged file, and for a pickle
    that asks for anything but tensors.
    """
    with open(path, "rb") as file:
        try:
            magic, protocol, _machine, tensors, keys = (RestrictedUnpickler(file).load() for _ in range(5))
        except CheckpointError:
            raise
        except DAMAGE as error:
            raise CheckpointError(f"{path}: not a checkpoint of the old PyTorch format: {error}") from error
        if magic != MAGIC_NUMBER or protocol != PROTOCOL_VERSION:
            raise CheckpointError(
                f"{path}: magic number {magic:#x} or protocol {protocol} is not of the old format"
            )
        if not isinstance(tensors, dict) or not all(
            isinstance(tensor, StridedTensor) for tensor in tensors.values()
        ):
            raise CheckpointError(f"{path}: holds something else than a dict of tensors")
        storages = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
        if set(keys) != set(storages):
            raise CheckpointError(f"{path}: the list of storages does not match the tensors")
        elements = {key: _read_storage(file, storages[key]) for key in keys}
    return {name: tensor.read(elements[tensor.storage.key]) for name, tensor in tensors.items()}
