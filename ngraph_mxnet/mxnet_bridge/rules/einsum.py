"""Einstein's sums: products of tensors with named axes, as matrix products."""

from __future__ import annotations

from math import prod

from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.mxnet_bridge.attrs import Attrs
from ngraph_mxnet.mxnet_bridge.rules.common import reshaped
from ngraph_mxnet.mxnet_bridge.rules.registry import rule
from ngraph_mxnet.mxnet_bridge.symbol_json import SymbolNode

Term = tuple[Value, str]
"""A tensor and the names of its axes."""


@rule("_npi_einsum", ignored=["num_args", "optimize"], operands=(1, 1 << 20))
def einsum(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """From left to right, two operands at a time. Stay with MXNet: an axis named twice in one operand, and `...`."""
    subscripts = attrs.text("subscripts").replace(" ", "")
    if "." in subscripts:
        raise UnsupportedError(f"subscripts={subscripts}: an ellipsis")
    left, arrow, result = subscripts.partition("->")
    names = left.split(",")
    if not arrow:
        result = "".join(sorted(name for name in {*left} - {","} if left.count(name) == 1))
    if len(names) != len(inputs) or len({*result}) != len(result) or not {*result} <= {*left}:
        raise UnsupportedError(f"subscripts={subscripts} do not fit {len(inputs)} operands")
    sizes: dict[str, int] = {}
    for value, axes in zip(inputs, names, strict=True):
        if len({*axes}) != len(axes) or len(axes) != value.type.rank:
            raise UnsupportedError(f"subscripts={subscripts}: {axes} for {value.type}, expected a different name for "
                                   "each axis")
        for name, size in zip(axes, value.shape, strict=True):
            if sizes.setdefault(name, size) != size:
                raise UnsupportedError(f"subscripts={subscripts}: {name} is {sizes[name]} and {size}")
    terms = list(zip(inputs, names, strict=True))
    term = terms.pop(0)
    while terms:
        needed = {*result}.union(*(axes for _, axes in terms[1:]))
        term = _product(b, term, terms.pop(0), needed)
    value, axes = _summed(b, term, {*result})
    order = [axes.index(name) for name in result]
    return b.identity(value) if order == sorted(order) and value in inputs else b.transpose(value, order=order)


def _summed(b: Builder, term: Term, needed: set[str]) -> Term:
    """Without the axes that nobody needs."""
    value, axes = term
    gone = tuple(i for i, name in enumerate(axes) if name not in needed)
    if not gone:
        return term
    return b.reduce_sum(value, axes=gone), "".join(name for name in axes if name in needed)


def _product(b: Builder, left: Term, right: Term, needed: set[str]) -> Term:
    """The product of two, summed over the axes that nobody else needs: a matrix product for each common one kept."""
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
