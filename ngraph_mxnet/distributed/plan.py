"""In which buckets gradients travel: neighbours in the order in which they come, so that few, large messages go out
early."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ngraph_mxnet import config

ALIGNMENT = 64
"""Bytes: each gradient's sum begins at a multiple, as kernels' vectors want it."""
MOST_BUCKETS = 24
USUAL_BUCKETS, LEAST_USUAL, MOST_USUAL = 16, 4 << 20, 25 << 20
"""How many buckets there are, and how small and large they are, where nothing else is asked for."""


@dataclass(frozen=True)
class Slot:
    """The place of a gradient's sum in the buffer of all sums: from byte `begin`, in `dtype`."""

    gradient: int
    begin: int
    elements: int
    dtype: np.dtype

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.itemsize


@dataclass(frozen=True)
class Bucket:
    """Slots of one dtype that lie together: bytes `begin` to `end` of the buffer."""

    slots: tuple[Slot, ...]
    begin: int
    end: int

    @property
    def dtype(self) -> np.dtype:
        return self.slots[0].dtype

    @property
    def elements(self) -> int:
        """With those between the slots."""
        return (self.end - self.begin) // self.dtype.itemsize


def summed_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype that gradients of this one are summed in.

    Raises:
        TypeError: they are no floating-point numbers.
    """
    if dtype == np.float64:
        return np.dtype(np.float64)
    if dtype in (np.float32, np.float16):
        return np.dtype(np.float32)
    raise TypeError(f"gradients of {dtype} can't be summed over processes: expected float16, float32 or float64")


def bucket_bytes() -> int | None:
    """Return the bytes of a bucket for `make_plan`, from NGRAPH_KVSTORE_BUCKET; None where it has no value."""
    megabytes = config.get("NGRAPH_KVSTORE_BUCKET")
    return None if megabytes is None else megabytes << 20


def make_plan(sizes: Sequence[int], dtypes: Sequence[np.dtype], order: Sequence[int],
              full_bytes: int | None) -> list[Bucket]:
    """Buckets in the order in which they are sent.

    Args:
        sizes: elements of each gradient.
        dtypes: of each gradient.
        order: numbers of the gradients, the one that comes first at first.
        full_bytes: a bucket of so many bytes is full. Of more than `MOST_BUCKETS` there are fewer, larger ones.
            None: a sixteenth of all, but 4 to 25 MiB: messages are large, yet the last, which nothing hides, is a
            small part.

    Raises:
        TypeError: see `summed_dtype`.
    """
    total = sum(size * summed_dtype(dtype).itemsize for size, dtype in zip(sizes, dtypes, strict=True))
    if full_bytes is None:
        full_bytes = min(max(total // USUAL_BUCKETS, LEAST_USUAL), MOST_USUAL)
    full = max(full_bytes, -(-total // MOST_BUCKETS))
    buckets: list[Bucket] = []
    slots: list[Slot] = []
    begin = 0
    for gradient in order:
        dtype = summed_dtype(dtypes[gradient])
        if slots and (slots[0].dtype != dtype or begin - slots[0].begin >= full):
            buckets.append(_bucket(slots))
            slots = []
        slots.append(Slot(gradient, begin, sizes[gradient], dtype))
        begin += _aligned(slots[-1].bytes)
    return [*buckets, _bucket(slots)] if slots else buckets


def buffer_bytes(sizes: Sequence[int], dtypes: Sequence[np.dtype]) -> int:
    """Return the bytes of the buffer of all sums, whatever the order of the gradients."""
    return sum(_aligned(size * summed_dtype(dtype).itemsize) for size, dtype in zip(sizes, dtypes, strict=True))


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _bucket(slots: Sequence[Slot]) -> Bucket:
    return Bucket(tuple(slots), slots[0].begin, slots[-1].begin + slots[-1].bytes)
