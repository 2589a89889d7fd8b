"""Adjoints of ops that read and write at positions that are data: sums at these positions, and reads of them."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from ngraph_mxnet.autodiff.adjoints import Gradients, Reverse, adjoint
from ngraph_mxnet.autodiff.expression import Expression


def _inside(indices: Expression, size: int, mode: str) -> Expression:
    """i64 in [0, size), as `gather` takes them."""
    wide = indices.convert(element="i64")
    return wide.mod(float(size)) if mode == "wrap" else wide.clamp(lower=0.0, upper=float(size - 1))


def _scattered(indices: Expression, updates: Expression, target: Expression) -> Expression:
    """Updates summed into zeros of the target's shape at coordinates [M, I]."""
    zeros = target.full(0.0)
    return zeros.apply("scatter_nd", indices, updates, reduction="add")


@adjoint("gather")
def _(at: Reverse) -> Gradients:
    data, indices = at.operands
    if not indices.size or not data.size:
        return data.full(0.0), None
    axis, count = at.attrs["axis"] % data.rank, indices.rank
    places = _inside(indices, data.shape[axis], at.attrs["mode"]).reshape((1, *indices.shape))
    first = [*range(axis, axis + count), *range(axis), *range(axis + count, at.head.rank)]
    front = [axis, *(own for own in range(data.rank) if own != axis)]
    sums = _scattered(places, at.head.transpose(first), data.transpose(front))
    return sums.transpose(sorted(range(data.rank), key=lambda own: front[own])), None


@adjoint("gather_elements")
def _(at: Reverse) -> Gradients:
    data, indices = at.operands
    if not indices.size or not data.size:
        return data.full(0.0), None
    axis = at.attrs["axis"] % data.rank
    places = [_inside(indices, data.shape[axis], at.attrs["mode"]) if own == axis else indices.places(own)
              for own in range(data.rank)]
    lines = [place.reshape((1, *indices.shape)) for place in places]
    return _scattered(lines[0].apply("concat", *lines[1:], axis=0), at.head, data), None


@adjoint("gather_nd")
def _(at: Reverse) -> Gradients:
    data, indices = at.operands
    return _scattered(indices, at.head, data), None


def _no_reduction(attrs: Mapping[str, Any]) -> str | None:
    reduction = attrs["reduction"]
    return None if reduction in ("none", "add") else f"it has no adjoint with the reduction {reduction}"


@adjoint("scatter_nd", refuses=_no_reduction)
def _(at: Reverse) -> Gradients:
    data, indices, updates = at.operands
    read = at.head.gather_nd(indices)
    if at.attrs["reduction"] == "add" or not updates.size:
        return at.head, None, read
    # Of updates of the same place the last one stays: each place gets the number of its last, and gives it back.
    count, rest = indices.shape[1:], data.shape[indices.shape[0]:]
    numbers = data.indices(np.arange(prod(count)).reshape(count))
    lines = data.indices(np.zeros(data.shape[:indices.shape[0]]))
    stays = lines.apply("scatter_nd", indices, numbers).gather_nd(indices).equals(numbers)
    kept = read.where(stays.reshape((*count, *(1 for _ in rest))))
    return at.head.apply("scatter_nd", indices, updates.full(0.0)), None, kept
