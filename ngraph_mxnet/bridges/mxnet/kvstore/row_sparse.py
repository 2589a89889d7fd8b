"""Arrays of MXNet's that hold some of their rows, the others being 0: as `Rows` and back, and some of their rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.base import MXNetError
from mxnet.ndarray import NDArray
from mxnet.ndarray.sparse import RowSparseNDArray

from ngraph_mxnet.distributed import Rows

STORAGE = "row_sparse"
"""Of such arrays, as MXNet names it."""


def rows_of(key: Any, array: RowSparseNDArray) -> Rows:
    """Raises MXNetError: the ids of its rows don't rise, or are beyond its shape. MXNet does not check that."""
    ids = array.indices.asnumpy()
    if (ids[1:] <= ids[:-1]).any():
        raise MXNetError(f"the row ids of {key} don't rise: expected each once, in order, found {ids.tolist()[:20]}")
    _check_range(key, ids, array)
    return Rows(ids, array.data.asnumpy().reshape(len(ids), math.prod(array.shape[1:])))


def array_of(rows: Rows, like: RowSparseNDArray) -> RowSparseNDArray:
    """With these rows, else `like` that array: its shape, device and dtype."""
    if not len(rows.ids):
        return mx.nd.sparse.zeros(STORAGE, like.shape, like.ctx, like.dtype)
    values = rows.values.reshape(-1, *like.shape[1:]).astype(like.dtype)
    return mx.nd.sparse.row_sparse_array((values, rows.ids), like.shape, like.ctx, like.dtype)


def retained(key: Any, array: NDArray, ids: NDArray) -> RowSparseNDArray:
    """The rows of `ids`, in any order, each any number of times; those that `array` does not hold are 0.

    Raises:
        MXNetError: `array` is dense, or has no such rows.
    """
    if array.stype != STORAGE:
        raise MXNetError(f"the store's {key} is {array.stype}, only of row_sparse arrays rows are pulled: pull it all")
    wanted = np.unique(ids.asnumpy()).astype(np.int64)
    _check_range(key, wanted, array)
    with autograd.pause():
        return mx.nd.sparse.retain(array, mx.nd.array(wanted, array.ctx, np.int64))


def copy(source: NDArray, targets: Sequence[NDArray]) -> None:
    """To arrays of either storage, also while a forward pass is recorded, in which Gluon pulls the rows it reads."""
    with autograd.pause():
        for target in targets:
            (source if source.stype == target.stype else source.tostype(target.stype)).copyto(target)


def _check_range(key: Any, ids: np.ndarray, array: NDArray) -> None:
    """Of ids that rise."""
    if len(ids) and not 0 <= ids[0] <= ids[-1] < array.shape[0]:
        raise MXNetError(f"{key} has {array.shape[0]} rows, found the row ids {ids[0]} to {ids[-1]}")
