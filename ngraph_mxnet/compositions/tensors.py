"""Small expressions that the rules of every bridge are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.sizes import are_same_shape, is_symbolic


def scalar(b: Builder, value: float, like: Value) -> Value:
    """A rank-0 constant of the element type of `like`."""
    return b.constant(value, like.type.element)


def size_as(b: Builder, size: int, like: Value) -> Value:
    """A size as a rank-0 value of the element type of `like`: one that is a symbol is the sum of so many ones."""
    if not is_symbolic(size):
        return scalar(b, size, like)
    return b.reduce_sum(broadcast_to(b, scalar(b, 1, like), (size,)), axes=[0], keep_dims=False)


def reshaped(b: Builder, x: Value, shape: Sequence[int]) -> Value:
    """`x` as `shape`, which it may have already."""
    return x if are_same_shape(x.shape, shape) else b.reshape(x, shape=tuple(shape))


def broadcast_to(b: Builder, x: Value, shape: Sequence[int]) -> Value:
    """`x` as `shape`, which it may have already."""
    return x if are_same_shape(x.shape, shape) else b.broadcast(x, shape=tuple(shape))


def converted(b: Builder, x: Value, like: Value) -> Value:
    """`x` in the element type of `like`, which it may have already."""
    return x if x.type.element == like.type.element else b.convert(x, element=like.type.element)


def along_axis(b: Builder, vector: Value, axis: int, rank: int) -> Value:
    """A vector ready to broadcast along `axis` of a tensor of `rank`."""
    return b.reshape(vector, shape=[vector.type.size if i == axis else 1 for i in range(rank)])


def slice_axis(b: Builder, x: Value, axis: int, begin: int, end: int) -> Value:
    """x[..., begin:end, ...] with bounds in range."""
    rank = len(x.shape)
    return b.slice(x, begin=[begin if i == axis else 0 for i in range(rank)],
                   end=[end if i == axis else x.shape[i] for i in range(rank)])


def flipped(b: Builder, x: Value, axis: int) -> Value:
    """x with the order of its elements along `axis` reversed."""
    rank = len(x.shape)
    if not x.shape[axis]:
        return x
    return b.slice(x, begin=[x.shape[i] - 1 if i == axis else 0 for i in range(rank)],
                   end=[-1 if i == axis else x.shape[i] for i in range(rank)],
                   strides=[-1 if i == axis else 1 for i in range(rank)])


def iota(b: Builder, size: int, axis: int, rank: int, dtype: str = "i64") -> Value:
    """0, 1, ... ready to broadcast along `axis` of a tensor of `rank`; of a size that is a symbol the ones before each
    place are counted."""
    shape = [size if i == axis else 1 for i in range(rank)]
    if not is_symbolic(size):
        return b.constant(np.arange(size).reshape(shape), dtype)
    ones = broadcast_to(b, b.constant(1, dtype), (size,))
    return b.reshape(b.subtract(b.cumsum(ones, axis=0), b.constant(1, dtype)), shape=shape)


def places_of(b: Builder, shape: Sequence[int], axis: int) -> Value:
    """The place of each element along `axis`, in i64."""
    return broadcast_to(b, iota(b, shape[axis], axis, len(shape)), shape)
