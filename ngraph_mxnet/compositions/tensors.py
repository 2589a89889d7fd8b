"""Slices, einsum and quantised arithmetic of the builder's ops."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from string import ascii_letters

import numpy as np

from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.sizes import are_same_shape, is_symbolic
from ngraph_mxnet.ir.types import ElementType, boolean, f32, i8, i32, u8


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


Term = tuple[Value, str]
"""A tensor and the names of its axes."""


def einsum(b: Builder, inputs: Sequence[Value], subscripts: str) -> Value:
    """From left to right, two operands at a time, with the subscripts of NumPy's `einsum`.

    An axis that is named twice in one operand is its diagonal; `...` stands for equal leading axes.

    Raises:
        UnsupportedError: the subscripts do not fit the operands.
    """
    subscripts = _without_ellipsis(inputs, subscripts.replace(" ", ""))
    left, arrow, result = subscripts.partition("->")
    names = left.split(",")
    if not arrow:
        result = "".join(sorted(name for name in {*left} - {","} if left.count(name) == 1))
    if len(names) != len(inputs) or len({*result}) != len(result) or not {*result} <= {*left}:
        raise UnsupportedError(f"subscripts={subscripts} do not fit {len(inputs)} operands")
    terms = [_diagonal(b, term, subscripts) for term in zip(inputs, names, strict=True)]
    sizes: dict[str, int] = {}
    for value, axes in terms:
        for name, size in zip(axes, value.shape, strict=True):
            if sizes.setdefault(name, size) != size:
                raise UnsupportedError(f"subscripts={subscripts}: {name} is {sizes[name]} and {size}")
    term = terms.pop(0)
    while terms:
        needed = {*result}.union(*(axes for _, axes in terms[1:]))
        term = _product(b, term, terms.pop(0), needed)
    value, axes = _summed(b, term, {*result})
    order = [axes.index(name) for name in result]
    return b.identity(value) if order == sorted(order) and value in inputs else b.transpose(value, order=order)


def _without_ellipsis(inputs: Sequence[Value], subscripts: str) -> str:
    """The subscripts with names of their own for the axes of `...`."""
    if "..." not in subscripts:
        return subscripts
    left, arrow, result = subscripts.partition("->")
    free = "".join(name for name in ascii_letters if name not in subscripts)
    counts = {value.type.rank - len(axes) + 3 for value, axes in zip(inputs, left.split(","), strict=False)
              if "..." in axes}
    if len(counts) != 1 or min(counts) < 0:
        raise UnsupportedError(f"subscripts={subscripts}: `...` stands for different numbers of axes")
    batch = free[: counts.pop()]
    if not arrow:
        result = batch + "".join(sorted(name for name in {*left} - {*",."} if left.count(name) == 1))
    return f"{left.replace('...', batch)}->{result.replace('...', batch)}"


def _diagonal(b: Builder, term: Term, subscripts: str) -> Term:
    """The term with each axis named once."""
    value, axes = term
    if len(axes) != value.type.rank:
        raise UnsupportedError(f"subscripts={subscripts}: {axes} for {value.type}, expected a name for each axis")
    while len({*axes}) != len(axes):
        name = next(name for name in axes if axes.count(name) > 1)
        first, second = [i for i, other in enumerate(axes) if other == name][:2]
        size = value.shape[first]
        if value.shape[second] != size:
            raise UnsupportedError(f"subscripts={subscripts}: {name} is {size} and {value.shape[second]}")
        rest = [i for i in range(len(axes)) if i not in (first, second)]
        shape = [value.shape[i] for i in rest]
        flat = b.reshape(b.transpose(value, order=[*rest, first, second]), shape=[*shape, size * size])
        value = b.slice(flat, begin=[0] * len(flat.shape), end=flat.shape, strides=[*(1 for _ in rest), size + 1])
        axes = "".join(axes[i] for i in rest) + name
    return value, axes


def _summed(b: Builder, term: Term, needed: set[str]) -> Term:
    """The term, summed over the axes that are not `needed`."""
    value, axes = term
    gone = tuple(i for i, name in enumerate(axes) if name not in needed)
    if not gone:
        return term
    return b.reduce_sum(value, axes=gone), "".join(name for name in axes if name in needed)


def _product(b: Builder, left: Term, right: Term, needed: set[str]) -> Term:
    """The product of two terms, summed over the axes that are not `needed`: a batch of matrix products, one for each
    index of the needed axes that both have."""
    left, right = _summed(b, left, needed | {*right[1]}), _summed(b, right, needed | {*left[1]})
    common = [name for name in left[1] if name in right[1]]
    batch = "".join(name for name in common if name in needed)
    inner = "".join(name for name in common if name not in needed)
    rows = "".join(name for name in left[1] if name not in common)
    columns = "".join(name for name in right[1] if name not in common)
    a, c = _matrices(b, left, batch, rows, inner), _matrices(b, right, batch, inner, columns)
    sizes = {**dict(zip(left[1], left[0].shape, strict=True)), **dict(zip(right[1], right[0].shape, strict=True))}
    out = batch + rows + columns
    return reshaped(b, b.matmul(a, c), [sizes[name] for name in out]), out


def _matrices(b: Builder, term: Term, batch: str, rows: str, columns: str) -> Value:
    """[batch][rows][columns], each of which is several axes as one."""
    value, axes = term
    sizes = dict(zip(axes, value.shape, strict=True))
    moved = b.transpose(value, order=[axes.index(name) for name in batch + rows + columns])
    return reshaped(b, moved, [prod(sizes[name] for name in names) for names in (batch, rows, columns)])


_BYTES = (u8, i8)
_LARGEST_I32 = float(np.nextafter(np.float32(2**31), np.float32(0)))


def widened(b: Builder, x: Value) -> Value:
    """Integers in float32."""
    if x.type.element in _BYTES:
        return b.dequantize(x, b.constant(np.float32(1)), b.constant(0, x.type.element))
    return b.convert(x, element=f32)


def limits(element: ElementType) -> tuple[float, float]:
    """The least and greatest number of an integer type, as float32 holds them within its range; 0 and 1 of bool."""
    if element is boolean:
        return 0.0, 1.0
    bounds = np.iinfo(element.numpy)
    return float(bounds.min), _LARGEST_I32 if element is i32 else float(bounds.max)


def saturated(b: Builder, whole: Value, element: ElementType) -> Value:
    """Whole float numbers as integers; those outside the type's range become its limits."""
    lower, upper = limits(element)
    return b.convert(b.clamp(whole, lower=lower, upper=upper), element=element)


def rounded(b: Builder, x: Value, element: ElementType) -> Value:
    """The nearest integers, halves to even, within the type's range.

    But for bytes they are bounded before they are rounded: so the bounds become those of the contraction that x is of.
    """
    if element in _BYTES:
        return b.quantize(x, b.constant(np.float32(1)), b.constant(0, element))
    lower, upper = limits(element)
    return b.convert(b.round(b.clamp(x, lower=lower, upper=upper)), element=element)
