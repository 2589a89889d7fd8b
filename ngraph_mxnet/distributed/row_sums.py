"""Sums over all ranks of arrays that are 0 but for some rows, as embeddings' gradients are: only these rows travel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ngraph_mxnet.distributed.plan import summed_dtype
from ngraph_mxnet.distributed.world import World


class Rows(NamedTuple):
    """Attributes:
        ids: which rows of the array these are, int64, rising.
        values: float16, float32 or float64, (rows, elements of a row), without gaps.
    """

    ids: np.ndarray
    values: np.ndarray


def sum_rows(world: World, mine: Sequence[Rows]) -> list[Rows]:
    """Return, for each array, the sums of all rows that any rank has. All ranks get the same bits: values are added in
    the order of the ranks, in `summed_dtype`. Call `World.begin` before. All ranks give the same arrays, with rows of
    the same size and dtype.

    Raises:
        DistributedError: see `World.check`.
    """
    own = np.array([len(each.ids) for each in mine], np.int64)
    counts = np.empty((world.size, len(mine)), np.int64)
    world.wait(world.comm.Iallgather(own, counts))
    gathered = [(_gather(world, each.ids, counts[:, number]), _gather(world, each.values, counts[:, number]))
                for number, each in enumerate(mine)]
    sums = []
    for number, ((ids, ids_come), (values, values_come)) in enumerate(gathered):
        world.wait(ids_come)
        world.wait(values_come)
        ends = np.cumsum(counts[:, number])[:-1]
        sums.append(_sum(list(map(Rows, np.split(ids, ends), np.split(values, ends)))))
    return sums


def broadcast_rows(world: World, mine: Rows) -> Rows:
    """Rank 0's; `World.begin` comes before, the others' have rows of the same size and dtype.

    Raises:
        DistributedError: see `World.check`.
    """
    count = np.array([len(mine.ids)], np.int64)
    world.broadcast(count)
    sent = mine if world.rank == 0 else Rows(*(np.empty((count[0], *part.shape[1:]), part.dtype) for part in mine))
    for part in sent:
        world.broadcast(part)
    return sent


def _gather(world: World, part: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, Any]:
    """Start to gather the rows of all ranks, one rank behind the other. Return the array for the rows, and the request:
    the array is filled when the request is done."""
    received = np.empty((counts.sum(), *part.shape[1:]), part.dtype)
    element = np.uint16 if part.dtype == np.float16 else part.dtype  # MPI has no float16
    elements = counts * int(np.prod(part.shape[1:]))
    return received, world.comm.Iallgatherv(part.view(element), [received.view(element), elements.tolist()])


def _sum(parts: Sequence[Rows]) -> Rows:
    """Add the rows of the ranks, in the order of the ranks."""
    ids = np.unique(np.concatenate([part.ids for part in parts]))
    total = np.zeros((len(ids), *parts[0].values.shape[1:]), summed_dtype(parts[0].values.dtype))
    with np.errstate(all="ignore"):  # of a net that diverges
        for part in parts:
            total[np.searchsorted(ids, part.ids)] += part.values
    return Rows(ids, total)
