"""Sums over hosts: in the gradients' own dtype, or with half of the traffic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

SMALL = 1 << 16
"""Bytes: latency is most of the time of what is smaller."""
PAUSE = 2e-5
"""Seconds between two steps of a sum that somebody waits for."""
Sum = Iterator[None]
"""Goes on with each `next`, and ends when the sum is there."""


def wait(request: Any) -> Sum:
    """Until a request of MPI's is done."""
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
        requests = [comm.Irecv(into, (rank - 1) % ranks, tag), comm.Isend(parts[sent], (rank + 1) % ranks, tag)]
        for request in requests:
            yield from wait(request)

    for step in range(ranks - 1):
        part = parts[(rank - step - 1) % ranks]
        yield from pass_on((rank - step) % ranks, received[:part.size])
        with np.errstate(all="ignore"):  # of a net that diverges
            np.add(part, received[:part.size], out=part)
    for step in range(ranks - 1):
        yield from pass_on((rank - step + 1) % ranks, parts[(rank - step) % ranks])


def bf16(comm: Any, data: np.ndarray, tag: int = 0) -> Sum:
    """As `exact`; what travels are bf16 numbers, rounded to nearest: each rank sums its part of all in float32, and
    the rounded sum goes to all, so that all have the same bits. Of float64 nothing is rounded."""
    from mpi4py import MPI

    if data.dtype != np.float32:
        yield from exact(comm, data, tag)
        return
    ranks = comm.Get_size()
    part = -(-data.size // ranks)
    sent = np.zeros((ranks, part), np.uint16)
    sent.reshape(-1)[:data.size] = rounded(data)
    received = np.empty_like(sent)
    yield from wait(comm.Ialltoall([sent, MPI.UINT16_T], [received, MPI.UINT16_T]))
    total = widened(received[0])
    for other in received[1:]:
        total += widened(other)
    yield from wait(comm.Iallgather([rounded(total), MPI.UINT16_T], [received, MPI.UINT16_T]))
    data[:] = widened(received.reshape(-1)[:data.size])


def rounded(values: np.ndarray) -> np.ndarray:
    """float32 as the bits of bf16, to nearest, ties to even; NaN stays one."""
    bits = values.view(np.uint32)
    upper = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), upper)


def widened(bits: np.ndarray) -> np.ndarray:
    """The float32 numbers of these bits of bf16."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


WIRES = {"f32": exact, "bf16": bf16}
