"""The grid's products, computed fast; the results are bit for bit those of `arithmetic.py`.

Integers go through float32's matrix product in pieces of K whose sums float32 holds exactly, in whatever order they are
added. Sums of floats keep their order: a loop compiled by Numba walks along k, with many outputs at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

EXACT = 1024
"""Products of i8 numbers, at most 2**14 each, whose sum float32 holds: 2**24 in all."""
_NARROW = 16
"""Results with fewer columns are computed transposed: the loops run along columns."""


def integer_product(a: np.ndarray, b: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    """start + a b of i8 numbers held in float32. Without `start` and with few k the int32 sums come in float32."""
    inner = a.shape[-1]
    if start is None and inner <= EXACT:
        return np.matmul(a, b)
    total = None if start is None else start.copy()
    for k in range(0, inner, EXACT):
        piece = np.matmul(a[..., k : k + EXACT], b[..., k : k + EXACT, :]).astype(np.int32)
        total = piece if total is None else np.add(total, piece, out=total)
    assert total is not None
    return total


def float_product(a: np.ndarray, b: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    """start + a b of float32 numbers, added in the order of k."""
    rows, columns = a.shape[-2], b.shape[-1]
    if columns < _NARROW and columns < rows:
        turned = None if start is None else start.swapaxes(-1, -2)
        return float_product(b.swapaxes(-1, -2), a.swapaxes(-1, -2), turned).swapaxes(-1, -2)
    leading = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    total = np.zeros((*leading, rows, columns), np.float32)
    if start is not None:
        total[...] = start
    places = [np.broadcast_to(np.arange(_count(x)).reshape(x.shape[:-2]), leading).reshape(-1) for x in (a, b)]
    matrices = [np.ascontiguousarray(x).reshape(_count(x), *x.shape[-2:]) for x in (a, b)]
    _ordered()(total.reshape(_count(total), rows, columns), matrices[0], places[0], matrices[1], places[1])
    return total


def _count(array: np.ndarray) -> int:
    return int(np.prod(array.shape[:-2], dtype=np.int64))


@functools.cache
def _ordered() -> Callable[..., None]:
    """The compiled loop; imported and compiled when first needed. No fast-math: the sums keep order and rounding."""
    import numba

    return numba.njit(nogil=True, error_model="numpy")(_add_products)


def _add_products(total, a, a_places, b, b_places):
    """total[n] += a[a_places[n]] b[b_places[n]], in the order of k. All arrays are C-contiguous."""
    rows, inner, columns = a.shape[1], a.shape[2], b.shape[2]
    width = 256  # four rows of sums and a line of b stay in the first cache
    fours = rows - rows % 4
    for n in range(total.shape[0]):
        left, right, sums = a[a_places[n]], b[b_places[n]], total[n]
        for begin in range(0, columns, width):
            end = min(columns, begin + width)
            for i in range(0, fours, 4):
                s0, s1 = sums[i, begin:end], sums[i + 1, begin:end]
                s2, s3 = sums[i + 2, begin:end], sums[i + 3, begin:end]
                for k in range(inner):
                    x0, x1, x2, x3 = left[i, k], left[i + 1, k], left[i + 2, k], left[i + 3, k]
                    line = right[k, begin:end]
                    for j in range(end - begin):
                        value = line[j]
                        s0[j] += x0 * value
                        s1[j] += x1 * value
                        s2[j] += x2 * value
                        s3[j] += x3 * value
            for i in range(fours, rows):
                s0 = sums[i, begin:end]
                for k in range(inner):
                    x0 = left[i, k]
                    line = right[k, begin:end]
                    for j in range(end - begin):
                        s0[j] += x0 * line[j]
