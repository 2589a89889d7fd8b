"""The kernels of gradients of layer norm, losses of labels and attention, against the ops that define them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_library import SEEDS, SPLITS, close, every_isa, run

from ngraph_mxnet.ir import get_op
from ngraph_mxnet.targets.cpu.params.record import by_name
from ngraph_mxnet.targets.cpu.params.reduction import (
    LAYER_NORM_GRADIENT,
    LOG_SOFTMAX_PICK,
    LOG_SOFTMAX_PICK_GRADIENT,
    PICK_BLOCK,
)
from ngraph_mxnet.targets.cpu.params.selection import OUTSIDE_CODES
from ngraph_mxnet.targets.cpu.params.sequences import ATTENTION_GRADIENT

SIZES = st.sampled_from([1, 3, 7, 16, 20, 33, 64])


def normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


@every_isa
@given(seed=SEEDS, rows=st.integers(1, 12), columns=st.sampled_from([2, 7, 16, 50, 300]), chunk=st.integers(1, 5),
       splits=SPLITS)
def test_layer_norm_gradient(isa: str, seed: int, rows: int, columns: int, chunk: int, splits: list[int]) -> None:
    """Rows apart; each task's sums are of its own rows."""
    random = np.random.default_rng(seed)
    wide, gamma, heads = normal(random, rows, columns + 2) * 2 + 3, normal(random, columns), normal(random, rows,
                                                                                                    columns + 5)
    x, head = wide[:, :columns], heads[:, :columns]
    by_x = np.full((rows, columns + 1), np.nan, np.float32)
    sums = np.full((-(-rows // chunk), 2, columns), np.nan, np.float32)
    params = LAYER_NORM_GRADIENT(rows=rows, columns=columns, chunk=chunk, x_row=columns + 2, head_row=columns + 5,
                                 by_x_row=columns + 1, epsilon=1e-3)
    run(isa, "layer_norm_gradient", [x, gamma, head, by_x[:, :columns], sums], params, (), splits)
    op = get_op("layer_norm_gradient")
    for task in range(len(sums)):
        own = slice(task * chunk, (task + 1) * chunk)
        wanted = op.evaluate([x[own], gamma, head[own]], {"axis": 1, "epsilon": 1e-3})
        close(by_x[own, :columns], wanted[0], 1e-5, 2e-5)
        close(sums[task, 0], wanted[1], 1e-5, 2e-5)
        close(sums[task, 1], wanted[2], 1e-5, 2e-5)
    assert np.isnan(by_x[:, columns:]).all()


@every_isa
@pytest.mark.parametrize("mode", ["clip", "wrap", "from_end"])
@given(seed=SEEDS, rows=st.integers(1, 9), size=st.sampled_from([1, 3, 16, 77, PICK_BLOCK, 2 * PICK_BLOCK + 40]),
       scale=st.sampled_from([1.0, 30.0]), splits=SPLITS)
def test_log_softmax_pick(isa: str, mode: str, seed: int, rows: int, size: int, scale: float,
                          splits: list[int]) -> None:
    """A part of a row may be greater than those before it; a row may hold infinities, NaN, or nothing but -inf."""
    random = np.random.default_rng(seed)
    x, head = normal(random, rows, size) * np.float32(scale), normal(random, rows, 1)
    odd = random.random()
    for number, share in ((-np.inf, 0.3), (np.inf, 0.01), (np.nan, 0.01)):
        if odd < 0.3:
            x[random.random(x.shape) < share * random.integers(2)] = number
    if odd < 0.1:
        x[0] = -np.inf
        x[-1, :size // 2] = -np.inf
    indices = random.integers(-2 * size, 2 * size, (rows, 1))
    found, by_x = np.full((3, rows, 1), np.nan, np.float32), np.full_like(x, np.nan)
    params = {"rows": rows, "size": size, "outside": OUTSIDE_CODES[mode]}
    run(isa, "log_softmax_pick", [x, indices, *found], LOG_SOFTMAX_PICK(**params), (), splits)
    wanted = get_op("log_softmax_pick").evaluate([x, indices], {"mode": mode})
    for own, other in zip(found, wanted, strict=True):
        close(own, other, 1e-5, 2e-6)
    run(isa, "log_softmax_pick_gradient", [x, indices, *found[1:], head, by_x], LOG_SOFTMAX_PICK_GRADIENT(**params), (),
        splits)
    (wanted_by_x,) = get_op("log_softmax_pick_gradient").evaluate([x, indices, *wanted[1:], head], {"mode": mode})
    close(by_x, wanted_by_x, 1e-5, 2e-6)


@every_isa
def test_exponentials_of_a_loss(isa: str) -> None:
    """Of a row whose greatest score and logarithm are 0, less the label's, the gradient is the exponentials."""
    x = np.append(-np.inf, np.linspace(-90, 0, 40_001)).astype(np.float32)[None]
    zero, head, found = np.zeros(1, np.float32), np.full(1, -1, np.float32), np.empty_like(x)
    params = LOG_SOFTMAX_PICK_GRADIENT(rows=1, size=x.size, outside=0)
    run(isa, "log_softmax_pick_gradient", [x, np.ones(1, np.int64), zero, zero, head, found], params)
    with np.errstate(all="ignore"):
        wanted = np.exp(x.astype(np.float64))
        error = np.abs(found / wanted - 1)
    assert found[0, 0] == 0 and found[0, -1] == 1
    assert (found[0, 2:][x[0, 2:] < -87] == 0).all()
    assert error[(x >= -87)].max() < 4e-6 and error[x >= -10].max() < 6e-7


def packed(matrix: np.ndarray) -> np.ndarray:
    """[N, D] as [tiles][D up to whole blocks][16]: element (n, d) is at [n // 16][d][n % 16]."""
    rows, depth = matrix.shape
    out = np.zeros((-(-rows // 16) * 16, -(-depth // 16) * 16), np.float32)
    out[:rows, :depth] = matrix
    return np.ascontiguousarray(out.reshape(-1, 16, out.shape[1]).swapaxes(1, 2))


def readable(array: np.ndarray) -> np.ndarray:
    """The same, with rows that may be read up to whole blocks: there is garbage."""
    out = np.full((*array.shape[:-1], -(-array.shape[-1] // 16) * 16), 7, np.float32)
    out[..., :array.shape[-1]] = array
    return out[..., :array.shape[-1]]


@every_isa
@pytest.mark.parametrize("mask", ["none", "chosen", "zeroed", "added"])
@given(seed=SEEDS, sizes=st.tuples(SIZES, SIZES, SIZES, SIZES), rows=st.sampled_from([6, 12, 36]), splits=SPLITS)
def test_attention_gradient(isa: str, mask: str, seed: int, sizes: tuple[int, int, int, int], rows: int,
                            splits: list[int]) -> None:
    random = np.random.default_rng(seed)
    (queries, keys, depth, width), matrices = sizes, (2, 3)
    q, k, v, head = (normal(random, *matrices, *last) for last in (
        (queries, depth), (keys, depth), (keys, width), (queries, width)))
    attrs = {"scale": 0.3, "fill": -1e4, "zeroed": mask == "zeroed"}
    drawn = normal(random, 2, 1, queries, keys)
    masks = {"none": [], "added": [drawn]}.get(mask, [drawn > 0])
    wanted = get_op("attention_gradient").evaluate([q, k, v, head, *masks], attrs)
    found = [np.full(array.shape, np.nan, np.float32) for array in wanted]
    views = [readable(array) for array in (q, k, head)]
    steps = [step // 4 for view in views for step in view.strides[:3]]
    kind = {"none": 0, "added": 2}.get(mask, 1)
    params = ATTENTION_GRADIENT(
        outer=2, inner=3, queries=queries, keys=keys, depth=depth, width=width, rows=rows, mask_kind=kind,
        zeroed=attrs["zeroed"],
        **by_name("q_outer q_inner q_row k_outer k_inner k_row h_outer h_inner h_row".split(), steps),
        mask_outer=queries * keys, mask_inner=0, mask_row=keys, mask_column=1, scale=0.3, fill=-1e4)
    tiles = [np.stack([packed(matrix) for matrix in array.reshape(6, keys, -1)]) for array in (k, v)]
    run(isa, "attention_gradient", [*views, *tiles, masks[0] if masks else q, *found], params, (), splits)
    for own, other in zip(found, wanted, strict=True):
        close(own, other, 1e-4, 2e-5)
