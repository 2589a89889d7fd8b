"""Einstein's sums: products of tensors with named axes, as matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from string import ascii_letters

from ngraph_mxnet.compositions.tensors import reshaped
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value

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
