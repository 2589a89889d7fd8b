"""The gates of recurrent cells, against the ops that define them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_library import SEEDS, SPLITS, close, every_isa, run

from ngraph_mxnet.ops.recurrent import GATES, gru_cell, lstm_cell
from ngraph_mxnet.targets.cpu.params.record import by_name
from ngraph_mxnet.targets.cpu.params.recurrent import CELLS


def padded(array: np.ndarray, gap: int) -> np.ndarray:
    """The same with `gap` columns of garbage behind each row."""
    out = np.full((len(array), array.shape[1] + gap), np.nan, np.float32)
    out[:, : array.shape[1]] = array
    return out[:, : array.shape[1]]


def after(cell: str, x: np.ndarray, p: np.ndarray, before: np.ndarray) -> list[np.ndarray]:
    if cell in ("lstm", "gru"):
        result = (lstm_cell if cell == "lstm" else gru_cell).evaluate([x, p, before], {})
        return list(result)
    return [np.tanh(x + p) if cell == "tanh" else np.maximum(x + p, 0)]


@every_isa
@pytest.mark.parametrize("cell", GATES)
@given(seed=SEEDS, rows=st.integers(1, 4), units=st.sampled_from([1, 7, 16, 17, 130, 300]), gap=st.integers(0, 3),
       splits=SPLITS)
def test_cell(isa: str, cell: str, seed: int, rows: int, units: int, gap: int, splits: list[int]) -> None:
    """Rows apart; behind h zeros up to whole blocks, and nothing else is written; c may be where it was before."""
    random = np.random.default_rng(seed)
    x, p = (padded(random.uniform(-4, 4, (rows, GATES[cell] * units)).astype(np.float32), gap) for _ in range(2))
    before = padded(random.uniform(-2, 2, (rows, units)).astype(np.float32), gap)
    wanted = after(cell, x, p, before)
    blocks = -(-units // 16) * 16
    h, c = np.full((rows, blocks + 5), np.nan, np.float32), before.copy() if seed % 2 else before
    strides = [array.strides[0] // 4 for array in (x, p, before, h, c)]
    params = CELLS[cell](rows=rows, units=units, chunk=min(blocks, 128),
                         **by_name("x_row p_row before_row h_row c_row", strides))
    run(isa, f"{cell}_cell", [x, p, before, h, c], params, (), splits)
    close(h[:, :units], wanted[0])
    assert not h[:, units:blocks].any()
    assert np.isnan(h[:, blocks:]).all()
    if cell == "lstm":
        close(c[:, :units], wanted[1])
