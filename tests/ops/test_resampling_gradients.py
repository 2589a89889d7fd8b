"""What goes back to each element of a resampled axis: the outputs that read it, by their weights there."""

from __future__ import annotations

import numpy as np
import pytest

from ngraph_mxnet.ops.pooling import Taps, adaptive_taps, resize_taps, turned


def matrix(taps: Taps, columns: int) -> np.ndarray:
    first, weights = taps
    whole = np.zeros((len(first), columns + weights.shape[1]), np.float32)
    for row, (begin, line) in enumerate(zip(first, weights, strict=True)):
        whole[row, begin:begin + len(line)] += line
    assert not whole[:, columns:].any()
    return whole[:, :columns]


@pytest.mark.parametrize("size", [1, 2, 5, 16])
@pytest.mark.parametrize("out", [1, 2, 3, 7, 33])
def test_turned_taps_are_the_transposed_matrix(size: int, out: int) -> None:
    every = [resize_taps(size, out, mode, corners) for mode in ("nearest", "bilinear") for corners in (True, False)]
    for taps in (*every, adaptive_taps(size, out)):
        back = turned(taps, size)
        assert len(back[0]) == size and (back[0] >= 0).all() and (back[0] < out).all()
        np.testing.assert_array_equal(matrix(back, out), matrix(taps, size).T)
