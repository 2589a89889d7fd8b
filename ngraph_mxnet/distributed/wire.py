"""Sums over hosts: in the gradients' own dtype, or with half of the traffic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

SMALL = 1 << 16
"""Bytes: latency is most of the time of what is smaller."""
CHUNK = 1 << 16
"""Elements that are added, rounded or widened at a time: they stay in the cache."""
PAUSE = 2e-5
"""Seconds between two steps of a sum that somebody waits for."""
Sum = Iterator[None]
"""Goes on with each `next`, and ends when the sum is there."""


def wait(*requests: Any) -> Sum:
    """Until these requests of MPI's are done."""
    for request in requests:
        while not request.Test():
            yield


def exact(comm: Any, data: np.ndarray, tag: int = 0) -> Sum:
    """In place, over all ranks of `comm`, in `data.dtype`; the messages have this tag.

    A ring: each rank sums a part, which goes around once to be added to and once to be told. MPI's own non-blocking
    sum uses a link one way at a time (Open MPI 4 and 5), so that it takes twice as long; it is as good where messages
    are small.
    """
    from mpi4py import MPI

    if data.nbytes <= SMALL:
        yield from wait(comm.Iallreduce(MPI.IN_PLACE, data))
        return
    ranks, rank = comm.Get_size(), comm.Get_rank()
    parts = np.array_split(data, ranks)
    received = np.empty_like(parts[0])

    def pass_on(sent: int, into: np.ndarray) -> Sum:
        yield from wait(comm.Irecv(into, (rank - 1) % ranks, tag), comm.Isend(parts[sent], (rank + 1) % ranks, tag))

    for step in range(ranks - 1):
        part = parts[(rank - step - 1) % ranks]
        yield from pass_on((rank - step) % ranks, received[:part.size])
        with np.errstate(all="ignore"):  # of a net that diverges
            np.add(part, received[:part.size], out=part)
    for step in range(ranks - 1):
        yield from pass_on((rank - step + 1) % ranks, parts[(rank - step) % ranks])


def bf16(comm: Any, data: np.ndarray, tag: int = 0) -> Sum:
    """Sum in place as `exact` does, but send bf16 numbers, rounded to nearest. Each rank sums its part of all ranks'
    data in float32. The rounded sum goes to all ranks, so that all have the same bits. Data in float64 is not
    rounded."""
    if data.dtype != np.float32:
        yield from exact(comm, data, tag)
        return
    ranks, rank = comm.Get_size(), comm.Get_rank()
    parts = np.array_split(data, ranks)
    others = [other for other in range(ranks) if other != rank]
    sent = [rounded(part) for part in parts]
    received = [np.empty_like(sent[rank]) for _ in range(ranks)]
    received[rank] = sent[rank]

    def exchange(gives: Sequence[np.ndarray], takes: Sequence[np.ndarray]) -> Sum:
        requests = [comm.Irecv(takes[other].view(np.uint8), other, tag) for other in others]
        requests += [comm.Isend(gives[other].view(np.uint8), other, tag) for other in others]
        yield from wait(*requests)

    yield from exchange(sent, received)
    total = parts[rank]
    widen(received[0], total)
    for other in received[1:]:
        widen(other, total, add=True)
    sent[rank] = rounded(total)
    yield from exchange([sent[rank]] * ranks, sent)
    for bits, part in zip(sent, parts, strict=True):
        widen(bits, part)


def rounded(values: np.ndarray) -> np.ndarray:
    """float32 as the bits of bf16, to nearest, ties to even; NaN stays one."""
    found = np.empty(values.shape, np.uint16)
    for begin in range(0, values.size, CHUNK):
        chunk = values[begin:begin + CHUNK]
        bits = chunk.view(np.uint32)
        upper = bits >> 16
        upper &= 1
        upper += 0x7FFF
        upper += bits
        upper >>= 16
        to = found[begin:begin + CHUNK]
        to[...] = upper
        to[np.isnan(chunk)] = 0x7FC0
    return found


def widen(bits: np.ndarray, into: np.ndarray, add: bool = False) -> None:
    """Writes the float32 numbers of these bits of bf16, or adds them to what is there."""
    for begin in range(0, bits.size, CHUNK):
        wide = bits[begin:begin + CHUNK].astype(np.uint32)
        wide <<= 16
        to, values = into[begin:begin + CHUNK], wide.view(np.float32)
        with np.errstate(all="ignore"):  # of a net that diverges
            np.add(to, values, out=to) if add else np.copyto(to, values)


WIRES = {"f32": exact, "bf16": bf16}
