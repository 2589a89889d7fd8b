"""Operators on diagonals and triangles of matrices."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.bridges.mxnet.rules.common import at_least_1d, normal_axis
from ngraph_mxnet.bridges.mxnet.rules.registry import FLOATS, NUMBERS, moves, rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.tensors import scalar
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value


def diagonal_of(b: Builder, x: Value, offset: int, first: int = -2, second: int = -1) -> Value:
    """The diagonals of the matrices in two axes, along a new last axis; `offset` > 0 lies above."""
    rank = len(x.shape)
    if rank < 2:
        raise UnsupportedError(f"found {x.type}, expected matrices")
    row_axis, column_axis = normal_axis(first, rank), normal_axis(second, rank)
    if row_axis == column_axis:
        raise UnsupportedError(f"a diagonal of axis {row_axis} with itself")
    others = [i for i in range(rank) if i not in (row_axis, column_axis)]
    rows, columns = x.shape[row_axis], x.shape[column_axis]
    count = min(rows + min(offset, 0), columns - max(offset, 0))
    if count < 1:
        raise UnsupportedError(f"diagonal {offset} of {rows} rows and {columns} columns has no elements")
    outer = [x.shape[i] for i in others]
    flat = b.reshape(b.transpose(x, order=[*others, row_axis, column_axis]), shape=(*outer, rows * columns))
    start = offset if offset > 0 else -offset * columns
    stop = start + (count - 1) * (columns + 1) + 1
    return b.slice(flat, begin=[*[0] * len(outer), start], end=[*outer, stop], strides=[*[1] * len(outer), columns + 1])


def diagonal_matrix(b: Builder, x: Value, offset: int) -> Value:
    """Square matrices with the vectors of the last axis on a diagonal, else zeros."""
    size = x.shape[-1] + abs(offset)
    above = max(-offset, 0)
    outer = [0] * (len(x.shape) - 1)
    rows = b.pad(x, pads_begin=[*outer, above], pads_end=[*outer, size - x.shape[-1] - above])
    return b.select(b.constant(np.eye(size, k=offset, dtype=bool)), b.reshape(rows, shape=(*rows.shape, 1)),
                    scalar(b, 0, x))


def triangle(b: Builder, x: Value, offset: int, *, lower: bool = True) -> Value:
    """Matrices with zeros above (or below) a diagonal."""
    full = np.ones(x.shape[-2:], bool)
    return b.select(b.constant(np.tril(full, offset) if lower else np.triu(full, offset)), x, scalar(b, 0, x))


@moves("diag", operands=1)
def diag(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """A vector's matrix, or the diagonals in two axes."""
    (x,), offset = inputs, attrs.int("k", 0)
    first, second = attrs.int("axis1", 0), attrs.int("axis2", 1)
    return diagonal_matrix(b, x, offset) if len(x.shape) == 1 else diagonal_of(b, x, offset, first, second)


@moves("_np_diag", operands=1)
def np_diag(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """A vector's matrix, or a matrix's diagonal."""
    (x,), offset = inputs, attrs.int("k", 0)
    if len(x.shape) > 2:
        raise UnsupportedError(f"found {x.type}, expected a vector or a matrix")
    return diagonal_matrix(b, x, offset) if len(x.shape) == 1 else diagonal_of(b, x, offset)


@moves("_np_diagflat", operands=1)
def diagflat(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The matrix of the flat tensor."""
    (x,) = inputs
    return diagonal_matrix(b, b.reshape(x, shape=(x.type.size,)), attrs.int("k", 0))


@moves("_np_diagonal", operands=1)
def diagonal(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The diagonals in two axes."""
    return diagonal_of(b, inputs[0], attrs.int("offset", 0), attrs.int("axis1", 0), attrs.int("axis2", 1))


@rule("_np_trace", operands=1, types=NUMBERS)
def trace(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The sums of the diagonals in two axes."""
    line = diagonal_of(b, inputs[0], attrs.int("offset", 0), attrs.int("axis1", 0), attrs.int("axis2", 1))
    return b.reduce_sum(line, axes=(-1,))


@moves("_npi_tril", operands=1)
def tril(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Zeros above the k-th diagonal; a vector is first made the rows of a matrix."""
    (x,) = inputs
    if len(x.shape) == 1:
        x = b.broadcast(x, shape=(x.shape[0], x.shape[0]))
    return triangle(b, x, attrs.int("k", 0))


# ---- linalg -------------------------------------------------------------------------------------------------------


@moves("_linalg_extractdiag", operands=1)
def extract_diagonal(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The diagonals of the matrices in the last two axes."""
    return diagonal_of(b, inputs[0], attrs.int("offset", 0))


@moves("_linalg_makediag", operands=1)
def make_diagonal(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The inverse of extractdiag."""
    return diagonal_matrix(b, inputs[0], attrs.int("offset", 0))


@rule("_linalg_sumlogdiag", operands=1, types=FLOATS)
def sum_log_diagonal(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The sums of the logarithms of the diagonals of the matrices in the last two axes."""
    return at_least_1d(b, b.reduce_sum(b.log(diagonal_of(b, inputs[0], 0)), axes=(-1,)))


def _places(attrs: Attrs, size: int) -> np.ndarray:
    """The row-major places of a triangle in a matrix of `size`: the upper for offsets > 0, the lower for < 0.

    A lower triangle goes row by row, an upper one column by column.
    """
    offset, lower = attrs.int("offset", 0), attrs.bool("lower", True)
    if abs(offset) >= size:
        raise UnsupportedError(f"offset={offset} of matrices of {size} rows")
    lower = lower if not offset else offset < 0
    full = np.ones((size, size), bool)
    if lower:
        return np.flatnonzero(np.tril(full, offset))
    columns, rows = np.nonzero(np.triu(full, offset).T)
    return rows * size + columns


@moves("_linalg_extracttrian", operands=1)
def extract_triangle(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The triangles of square matrices as vectors."""
    (x,) = inputs
    if len(x.shape) < 2 or x.shape[-1] != x.shape[-2]:
        raise UnsupportedError(f"found {x.type}, expected square matrices")
    flat = b.reshape(x, shape=(*x.shape[:-2], x.shape[-1] ** 2))
    return b.gather(flat, b.constant(_places(attrs, x.shape[-1])), axis=len(flat.shape) - 1)


@moves("_linalg_maketrian", operands=1)
def make_triangle(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The inverse of extracttrian, with zeros elsewhere."""
    (x,) = inputs
    count, offset = x.shape[-1], attrs.int("offset", 0)
    short = next((n for n in range(1, count + 1) if n * (n + 1) // 2 >= count), 1)
    if short * (short + 1) // 2 != count:
        raise UnsupportedError(f"found {x.type}, expected a triangle's number of elements in the last axis")
    size = short + abs(offset)
    zero = b.broadcast(scalar(b, 0, x), shape=(*x.shape[:-1], 1))
    order = np.full(size * size, count)
    order[_places(attrs, size)] = np.arange(count)
    flat = b.gather(b.concat(x, zero, axis=len(x.shape) - 1), b.constant(order), axis=len(x.shape) - 1)
    return b.reshape(flat, shape=(*x.shape[:-1], size, size))
