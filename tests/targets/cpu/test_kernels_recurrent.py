"""The gates of recurrent cells, forth and back, against the ops that define them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_library import SEEDS, SPLITS, close, every_isa, run

from ngraph_mxnet.ops.recurrent import GATES, SLOPES, gru_cell, gru_reset_first, lstm_cell, rnn_gradient, rnn_training
from ngraph_mxnet.targets.cpu.params.record import by_name
from ngraph_mxnet.targets.cpu.params.sequences import CELL_GRADIENTS, CELLS, GRU_RESET, GRU_UPDATE, TRAINING_CELLS


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


@every_isa
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("units", [5, 16])
def test_gates_far_out(isa: str, cell: str, units: int) -> None:
    """Closed and open gates, a state far from 0, infinite sums: as exact as others. NaN stays with its unit."""
    sums = np.float32([-np.inf, -1e30, -300, -90, -61, -30, -9.3, -1e-6, 0, 1e-20, 0.3, 9.1, 60, 88, 1e30, np.inf])
    grid = np.array(np.meshgrid(*[sums[::3]] * (GATES[cell] - 1), sums)).reshape(GATES[cell], -1).T.copy()
    count = len(grid) // units * units
    rows = count // units
    x = grid[:count].reshape(rows, units, GATES[cell]).transpose(0, 2, 1).reshape(rows, -1).copy()
    p = np.zeros_like(x)
    before = np.resize(np.float32([-3, -1e-3, 0, 0.5, 40]), (rows, units))
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = after(cell, x, p, before)
    x[0, 0] = np.nan
    h, c = np.full((rows, 16), np.nan, np.float32), before.copy()
    params = CELLS[cell](rows=rows, units=units, chunk=16, x_row=x.shape[1], p_row=x.shape[1], before_row=units,
                         h_row=16, c_row=units)
    run(isa, f"{cell}_cell", [x, p, before, h, c], params, (), [])
    assert np.isnan(h[0, 0]) and not np.isnan(h[1:]).any() and not np.isnan(h[0, 1:]).any()
    h[0, 0] = wanted[0][0, 0]
    np.testing.assert_allclose(h[:, :units], wanted[0], rtol=2e-6, atol=1e-7)
    if cell == "lstm":
        c[0, 0] = wanted[1][0, 0]
        np.testing.assert_allclose(c, wanted[1], rtol=2e-6, atol=1e-7)


@every_isa
@given(seed=SEEDS, rows=st.integers(1, 4), units=st.sampled_from([1, 7, 16, 17, 130, 300]), gap=st.integers(0, 3),
       splits=SPLITS)
def test_halves_of_a_gru_that_resets_first(isa: str, seed: int, rows: int, units: int, gap: int,
                                           splits: list[int]) -> None:
    """As one step of `gru_reset_first` whose weights are zeros but the own ones, which are the identity."""
    random = np.random.default_rng(seed)
    x, before = (padded(random.uniform(-2, 2, (rows, count * units)).astype(np.float32), gap) for count in (3, 1))
    zeros, none = np.zeros((2 * units, units), np.float32), np.zeros(units, np.float32)
    wanted, _ = gru_reset_first.evaluate([x[None], zeros, zeros[:, 0], np.eye(units, dtype=np.float32), none, before], {
        "reverse": False})
    blocks = -(-units // 16) * 16
    left, h = (np.full((rows, blocks + 5), np.nan, np.float32) for _ in range(2))
    z, product = np.full((rows, units + 2), np.nan, np.float32), np.zeros((rows, 2 * units), np.float32)
    for record, name, arrays in ((GRU_RESET, "gru_reset_cell", [x, product, before, left, z]),
                                 (GRU_UPDATE, "gru_update_cell", [x[:, 2 * units:], left, before, h, z])):
        strides = [array.strides[0] // 4 for array in arrays]
        params = record(rows=rows, units=units, chunk=min(blocks, 128),
                        **by_name("x_row p_row before_row h_row c_row", strides))
        run(isa, name, arrays, params, (), splits)
    close(h[:, :units], wanted[0])
    for array in (left, h):
        assert not array[:, units:blocks].any() and np.isnan(array[:, blocks:]).all()
    assert np.isnan(z[:, units:]).all()


@every_isa
@pytest.mark.parametrize("cell", GATES)
@given(seed=SEEDS, rows=st.integers(1, 4), units=st.sampled_from([1, 7, 16, 17, 130, 300]), splits=SPLITS)
def test_a_step_of_training(isa: str, cell: str, seed: int, rows: int, units: int, splits: list[int]) -> None:
    """As one step of `rnn_training` whose weights are zeros and whose bias is the same for all rows."""
    random, attrs = np.random.default_rng(seed), {"cell": cell, "reverse": False}
    x = random.uniform(-4, 4, (rows, GATES[cell] * units)).astype(np.float32)
    p = np.repeat(random.uniform(-4, 4, (1, GATES[cell] * units)), rows, axis=0).astype(np.float32)
    before = random.uniform(-2, 2, (rows, units)).astype(np.float32)
    states = [before] * (2 if cell == "lstm" else 1)
    weights = np.zeros((GATES[cell] * units, units), np.float32)
    _, *wanted, slopes = rnn_training.evaluate([x[None], weights, p[0], *states], attrs)
    blocks = -(-units // 16) * 16
    h, c, made = (np.full((rows, columns + 3), np.nan, np.float32) for columns in (blocks, units, slopes.shape[2]))
    arrays = [x, p, before, h, c, made]
    params = TRAINING_CELLS[cell](rows=rows, units=units, chunk=min(blocks, 128), **by_name(
        "x_row p_row before_row h_row c_row slopes_row", [array.strides[0] // 4 for array in arrays]))
    run(isa, f"{cell}_cell_training", arrays, params, (), splits)
    close(made[:, :-3], slopes[0])
    assert np.isnan(made[:, -3:]).all()
    close(h[:, :units], wanted[0])
    if cell == "lstm":
        close(c[:, :units], wanted[1])


@every_isa
@pytest.mark.parametrize("cell", ["lstm", "gru", "tanh"])
@given(seed=SEEDS, rows=st.integers(1, 4), units=st.sampled_from([1, 7, 16, 17, 130, 300]), splits=SPLITS)
def test_a_step_back(isa: str, cell: str, seed: int, rows: int, units: int, splits: list[int]) -> None:
    """As one step of `rnn_gradient` whose weights are zeros; what goes on may lie where what comes did."""
    random, attrs = np.random.default_rng(seed), {"cell": cell, "reverse": False}
    columns, blocks = GATES[cell] * units, -(-GATES[cell] * units // 16) * 16
    slopes, head, product, before = (random.uniform(-2, 2, (rows, count * units)).astype(np.float32)
                                     for count in (SLOPES[cell], 1, 1, 1))
    arriving = product + before if cell == "gru" else product
    operands = [np.zeros((columns, units), np.float32), slopes[None], head[None], arriving]
    of_x, *wanted = rnn_gradient.evaluate([*operands, *([before] if cell == "lstm" else [])], attrs)
    x, sums = (np.full((rows, blocks + 3), np.nan, np.float32) for _ in range(2))
    arrays = [slopes, head, product, before, carry := before.copy() if seed % 2 else before, x, sums]
    params = CELL_GRADIENTS[cell](rows=rows, units=units, chunk=min(-(-units // 16) * 16, 128), **by_name(
        "slopes_row head_row product_row before_row carry_row x_row sums_row",
        [array.strides[0] // 4 for array in arrays]))
    run(isa, f"{cell}_cell_gradient", arrays, params, (), splits)
    for array, expected in ((x, of_x), *([(sums, wanted[-1])] if cell == "gru" else [])):
        close(array[:, :columns], expected[0])
        assert not array[:, columns:blocks].any()
        assert np.isnan(array[:, blocks:]).all()
    if cell != "tanh":
        close(carry, wanted[1 if cell == "lstm" else 0])
