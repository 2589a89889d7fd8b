"""Operators that make tensors of nothing but their attributes: constants, or one number broadcast."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import numpy as np

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import Attrs
from ngraph_mxnet.frontends.mxnet.rules.registry import (
    EXACT,
    FLOATS,
    MOVED,
    NUMBERS,
    Call,
    Lowering,
    add_rule,
    at_least_1d,
    expressions,
    moves,
    normal_axis,
    positive,
    rule,
)
from ngraph_mxnet.frontends.mxnet.symbol_json import SymbolNode
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.sizes import is_symbolic
from ngraph_mxnet.ir.types import ElementType, Shape, f32, i32
from ngraph_mxnet.ops.compositions import full, require_small, triangle


def _element(attrs: Attrs, default: ElementType = f32) -> ElementType:
    """The element type that `dtype` names. Old files have a number there; -1 stands for the default."""
    text = attrs.text("dtype", "None")
    return default if text in ("None", "-1") else attrs.element("dtype")


def told_shape(attrs: Attrs, node: SymbolNode) -> Shape:
    """The shape that MXNet inferred, as the attribute `shape` may have sizes of 0, for unknown; else the attribute."""
    known = node.types[0] if node.types else None
    shape = attrs.ints("shape", ())
    return known.shape if known is not None else shape


def _constant(b: Builder, array: np.ndarray, element: ElementType) -> Value:
    """Numbers as MXNet casts them."""
    return b.constant(array.astype(element.numpy))


def _filled(value: float | None) -> Lowering:
    def lower(b: Builder, attrs: Call, *_: Value) -> Value:
        number = attrs.float("value") if value is None else value
        return b.broadcast(b.constant(np.float64(number), _element(attrs)), shape=told_shape(attrs, attrs.node))

    return lower


for _names, _value in ((("_zeros", "_npi_zeros"), 0.0), (("_ones", "_npi_ones"), 1.0),
                       (("_full",), None)):
    add_rule(_filled(_value), *_names, operands=0, ignored=["ctx"])


@rule("_npi_full_like", operands=1, ignored=["ctx"], types=EXACT)
def full_like(b: Builder, attrs: Attrs, x: Value) -> Value:
    """One number in the input's shape, and its type unless `dtype` says another."""
    value = b.constant(np.float64(attrs.float("fill_value")), _element(attrs, x.element))
    return b.broadcast(value, shape=x.shape)


def _steps(start: float, step: float, count: int, repeat: int, element: ElementType) -> np.ndarray:
    """start + step * (i // repeat) in the element type, as MXNet computes it."""
    number = element.numpy.type
    require_small(count)
    with np.errstate(all="ignore"):
        return number(start) + (np.arange(count) // repeat).astype(element.numpy) * number(step)


@rule("_arange", "_npi_arange", operands=0, ignored=["ctx"])
def arange(b: Builder, attrs: Call) -> Value:
    """From `start` to before `stop`, each number `repeat` times; without `stop` from 0 to before `start`."""
    start, stop = attrs.float("start"), attrs.float("stop", None)
    step, repeat = attrs.float("step", 1.0), positive(attrs.int("repeat", 1), "repeat")
    if attrs.bool("infer_range", False):
        known = attrs.node.types[0] if attrs.node.types else None
        if known is None:
            raise UnsupportedError("infer_range=True, and the shape is unknown")
        count = known.shape[0]
        if is_symbolic(count):
            raise UnsupportedError("infer_range=True, and the shape is a range of sizes")
    else:
        start, stop = (0.0, start) if stop is None else (start, stop)
        count = ceil((stop - start) / step) * repeat if step else 0
    if count < 1:
        raise UnsupportedError(f"start={start}, stop={stop}, step={step}: no number")
    element = _element(attrs)
    return _constant(b, _steps(start, step, count, repeat, element), element)


def _even(attrs: Attrs) -> np.ndarray:
    count = positive(attrs.int("num"), "num")
    require_small(count)
    return np.linspace(attrs.float("start"), attrs.float("stop"), count, endpoint=attrs.bool("endpoint", True))


def _indices(shape: Shape) -> np.ndarray:
    require_small(len(shape), *shape)
    return np.indices(shape)


@rule("_eye", "_npi_eye", operands=0, ignored=["ctx"])
def eye(b: Builder, attrs: Attrs) -> Value:
    """N rows and M columns (0: N), ones on the k-th diagonal."""
    rows = positive(attrs.int("N"), "N")
    columns = positive(attrs.int("M", 0) or rows, "M")
    require_small(rows, columns)
    return _constant(b, np.eye(rows, columns, attrs.int("k", 0)), _element(attrs))


@rule("_npi_identity", operands=0, ignored=["ctx"])
def identity_matrix(b: Builder, attrs: Call) -> Value:
    """Ones on the diagonal of a matrix of `shape`."""
    shape = told_shape(attrs, attrs.node)
    if len(shape) != 2:
        raise UnsupportedError(f"shape={shape}, expected a matrix")
    require_small(*shape)
    return _constant(b, np.eye(*shape), _element(attrs))


@rule("_npi_diag_indices_from", operands=1, types=EXACT)
def diagonal_indices(b: Builder, attrs: Attrs, x: Value) -> Value:
    """The coordinates of the main diagonal of a tensor whose axes are of one size, as int64."""
    shape = x.shape
    if len(shape) < 2 or len({*shape}) != 1:
        raise UnsupportedError(f"found {x.type}, expected at least two axes of one size")
    require_small(*shape[:1], len(shape))
    return b.constant(np.tile(np.arange(shape[0], dtype=np.int64), (len(shape), 1)))


def _window(function: Callable[[int], np.ndarray]) -> Lowering:
    def lower(b: Builder, attrs: Attrs, *_: Value) -> Value:
        element = _element(attrs)
        if not element.is_float:
            raise UnsupportedError(f"dtype={element}: only f16, f32 and f64, as integers show each rounding")
        count = positive(attrs.int("M"), "M")
        require_small(count)
        return _constant(b, function(count), element)

    return lower


add_rule(_window(np.blackman), "_npi_blackman", operands=0, ignored=["ctx"])
add_rule(_window(np.hamming), "_npi_hamming", operands=0, ignored=["ctx"])
add_rule(_window(np.hanning), "_npi_hanning", operands=0, ignored=["ctx"])


def diagonal_of(b: Builder, x: Value, offset: int, first: int = -2, second: int = -1) -> Value:
    """The diagonals of the matrices in two axes, along a new last axis; `offset` > 0 lies above."""
    rank = x.rank
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
    require_small(size, size)
    above = max(-offset, 0)
    outer = [0] * (x.rank - 1)
    rows = b.pad(x, pads_begin=[*outer, above], pads_end=[*outer, size - x.shape[-1] - above])
    return b.select(b.constant(np.eye(size, k=offset, dtype=bool)), b.reshape(rows, shape=(*rows.shape, 1)), 0)


@moves("diag", operands=1)
def diag(b: Builder, attrs: Attrs, x: Value) -> Value:
    """A vector's matrix, or the diagonals in two axes."""
    offset = attrs.int("k", 0)
    first, second = attrs.int("axis1", 0), attrs.int("axis2", 1)
    return diagonal_matrix(b, x, offset) if x.rank == 1 else diagonal_of(b, x, offset, first, second)


@moves("_np_diag", operands=1)
def np_diag(b: Builder, attrs: Attrs, x: Value) -> Value:
    """A vector's matrix, or a matrix's diagonal."""
    offset = attrs.int("k", 0)
    if x.rank > 2:
        raise UnsupportedError(f"found {x.type}, expected a vector or a matrix")
    return diagonal_matrix(b, x, offset) if x.rank == 1 else diagonal_of(b, x, offset)


@rule("_np_trace", operands=1, types=NUMBERS)
def trace(b: Builder, attrs: Attrs, x: Value) -> Value:
    """The sums of the diagonals in two axes."""
    line = diagonal_of(b, x, attrs.int("offset", 0), attrs.int("axis1", 0), attrs.int("axis2", 1))
    return b.reduce_sum(line, axes=(-1,))


@moves("_npi_tril", operands=1)
def tril(b: Builder, attrs: Attrs, x: Value) -> Value:
    """Zeros above the k-th diagonal; a vector is first made the rows of a matrix."""
    if x.rank == 1:
        x = b.broadcast(x, shape=(x.shape[0], x.shape[0]))
    return triangle(b, x, attrs.int("k", 0), lower=True)


# ---- linalg -------------------------------------------------------------------------------------------------------


@rule("_linalg_sumlogdiag", operands=1, types=FLOATS)
def sum_log_diagonal(b: Builder, attrs: Attrs, x: Value) -> Value:
    """The sums of the logarithms of the diagonals of the matrices in the last two axes."""
    return at_least_1d(b, b.reduce_sum(b.log(diagonal_of(b, x, 0)), axes=(-1,)))


def _places(attrs: Attrs, size: int) -> np.ndarray:
    """The row-major places of a triangle in a matrix of `size`: the upper for offsets > 0, the lower for < 0.

    A lower triangle goes row by row, an upper one column by column.
    """
    offset, lower = attrs.int("offset", 0), attrs.bool("lower", True)
    if abs(offset) >= size:
        raise UnsupportedError(f"offset={offset} of matrices of {size} rows")
    require_small(size, size)
    lower = lower if not offset else offset < 0
    full = np.ones((size, size), bool)
    if lower:
        return np.flatnonzero(np.tril(full, offset))
    columns, rows = np.nonzero(np.triu(full, offset).T)
    return rows * size + columns


@moves("_linalg_extracttrian", operands=1)
def extract_triangle(b: Builder, attrs: Attrs, x: Value) -> Value:
    """The triangles of square matrices as vectors."""
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise UnsupportedError(f"found {x.type}, expected square matrices")
    flat = b.reshape(x, shape=(*x.shape[:-2], x.shape[-1] ** 2))
    return b.gather(flat, b.constant(_places(attrs, x.shape[-1])), axis=flat.rank - 1)


@moves("_linalg_maketrian", operands=1)
def make_triangle(b: Builder, attrs: Attrs, x: Value) -> Value:
    """The inverse of extracttrian, with zeros elsewhere."""
    count, offset = x.shape[-1], attrs.int("offset", 0)
    require_small(count)
    short = next((n for n in range(1, count + 1) if n * (n + 1) // 2 >= count), 1)
    if short * (short + 1) // 2 != count:
        raise UnsupportedError(f"found {x.type}, expected a triangle's number of elements in the last axis")
    size = short + abs(offset)
    require_small(size, size)
    zero = full(b, 0, x, (*x.shape[:-1], 1))
    order = np.full(size * size, count)
    order[_places(attrs, size)] = np.arange(count)
    flat = b.gather(b.concat(x, zero, axis=x.rank - 1), b.constant(order), axis=x.rank - 1)
    return b.reshape(flat, shape=(*x.shape[:-1], size, size))


expressions(
    ("_linspace", "`num` numbers from `start` to `stop`, which is the last unless `endpoint` is false.",
     lambda b, attrs: _constant(b, _even(attrs), _element(attrs))),
    ("_npi_logspace", "`base` to the powers of linspace.",
     lambda b, attrs: _constant(b, attrs.float("base", 10.0) ** _even(attrs), _element(attrs))),
    ("_npi_indices", "The coordinates of each place of a tensor of `dimensions`, along a new first axis.",
     lambda b, attrs: _constant(b, _indices(attrs.ints("dimensions")), _element(attrs, i32))),
    operands=0, ignored=["ctx"],
)

expressions(
    ("_np_diagflat", "The matrix of the flat tensor.",
     lambda b, attrs, x: diagonal_matrix(b, b.reshape(x, shape=(x.size,)), attrs.int("k", 0))),
    ("_np_diagonal", "The diagonals in two axes.",
     lambda b, attrs, x: diagonal_of(b, x, attrs.int("offset", 0), attrs.int("axis1", 0), attrs.int("axis2", 1))),
    ("_linalg_extractdiag", "The diagonals of the matrices in the last two axes.",
     lambda b, attrs, x: diagonal_of(b, x, attrs.int("offset", 0))),
    ("_linalg_makediag", "The inverse of extractdiag.",
     lambda b, attrs, x: diagonal_matrix(b, x, attrs.int("offset", 0))),
    operands=1, types=MOVED,
)
