"""The kernels of attention, against the op that defines it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_library import SEEDS, SPLITS, close, every_isa, run

from ngraph_mxnet.ir import get_op
from ngraph_mxnet.targets.cpu.params.record import by_name
from ngraph_mxnet.targets.cpu.params.sequences import ATTENTION, ATTENTION_FEW

SIZES = st.sampled_from([1, 3, 4, 7, 16, 21, 33, 64, 87])
STRIDES = [f"{operand}_{axis}" for operand in ("q", "k", "v", "out") for axis in ("outer", "inner", "row")]


def between_others(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Rows with NaNs behind them."""
    wide = np.full((*shape[:-1], shape[-1] + 3), np.nan, np.float32)
    wide[..., :shape[-1]] = random.standard_normal(shape)
    return wide[..., :shape[-1]]


@every_isa
@pytest.mark.parametrize("mask", ["none", "chosen", "zeroed", "added", "one"])
@given(seed=SEEDS, sizes=st.tuples(st.integers(1, 4), SIZES, SIZES, SIZES), splits=SPLITS)
def test_attention_few(isa: str, mask: str, seed: int, sizes: tuple[int, int, int, int], splits: list[int]) -> None:
    random = np.random.default_rng(seed)
    queries, keys, depth, width = sizes
    q, k, v = (between_others(random, 2, 3, *last) for last in ((queries, depth), (keys, depth), (keys, width)))
    drawn = random.standard_normal((2, 1, queries, 1 if mask == "one" else keys)).astype(np.float32)
    masks = {"none": [], "added": [drawn]}.get(mask, [drawn > 0])
    attrs = {"scale": 0.3, "fill": -1e4, "zeroed": mask == "zeroed"}
    found = between_others(random, 2, 3, queries, width)
    found[...] = np.nan
    params = ATTENTION_FEW(
        outer=2, inner=3, queries=queries, keys=keys, depth=depth, width=width,
        mask_kind={"none": 0, "added": 2}.get(mask, 1), zeroed=attrs["zeroed"],
        **by_name(STRIDES, [step // 4 for array in (q, k, v, found) for step in array.strides[:3]]),
        mask_outer=queries * drawn.shape[-1], mask_inner=0, mask_row=drawn.shape[-1], mask_column=int(mask != "one"),
        scale=0.3, fill=-1e4)
    run(isa, "attention_few", [q, k, v, masks[0] if masks else q, found], params, (), splits)
    close(found, get_op("attention").evaluate([q, k, v, *masks], attrs)[0], 1e-5, 1e-5)
    assert np.isnan(found.base[..., width:]).all()


def packed(keys: np.ndarray) -> np.ndarray:
    """Of each matrix tiles of 16 keys, `[tile][depth, in whole 16][16]`, filled up with zeros."""
    *batch, count, depth = keys.shape
    tiles, deep = -(-count // 16), -(-depth // 16) * 16
    whole = np.zeros((*batch, tiles * 16, deep), np.float32)
    whole[..., :count, :depth] = keys
    return np.ascontiguousarray(whole.reshape(*batch, tiles, 16, deep).swapaxes(-1, -2))


@every_isa
@pytest.mark.parametrize("wide", [0, 1])
@pytest.mark.parametrize("mask", ["none", "chosen", "all masked", "zeroed", "added", "one"])
@given(seed=SEEDS, sizes=st.tuples(st.integers(1, 29), SIZES, SIZES, SIZES), rows=st.sampled_from([6, 12, 30]),
       key_rows=st.sampled_from([16, 32, 48, 112]), fill=st.sampled_from([-1e4, -np.inf]), splits=SPLITS)
def test_attention(isa: str, wide: int, mask: str, seed: int, sizes: tuple[int, int, int, int], rows: int,
                   key_rows: int, fill: float, splits: list[int]) -> None:
    """By blocks of keys: those masked as a whole, greatest scores that come first and last, rows without a key."""
    random = np.random.default_rng(seed)
    queries, keys, depth, width = sizes
    q, k, v = (between_others(random, 2, 3, *last) for last in ((queries, depth), (keys, depth), (keys, width)))
    k *= np.linspace(*random.permutation([0.1, 8]), keys, dtype=np.float32)[:, None]
    v = np.concatenate([v, np.full((*v.shape[:-1], 19), np.nan, np.float32)], -1)[..., :width]  # readable to whole 16
    drawn = random.standard_normal((2, 1, queries, 1 if mask == "one" else keys)).astype(np.float32)
    drawn[..., :random.integers(keys)] = -1
    if mask == "all masked":
        drawn[:, :, random.integers(queries)] = -1
    masks = {"none": [], "added": [drawn]}.get(mask, [drawn > 0])
    attrs = {"scale": 0.3, "fill": fill, "zeroed": mask in ("zeroed", "all masked")}
    found = between_others(random, 2, 3, queries, width)
    found[...] = np.nan
    packed_keys = packed(k)
    params = ATTENTION(
        outer=2, inner=3, queries=queries, keys=keys, depth=depth, width=width, rows=rows, key_rows=key_rows, wide=wide,
        key_matrix=packed_keys[0, 0].size, mask_kind={"none": 0, "added": 2}.get(mask, 1), zeroed=attrs["zeroed"],
        **{f"{name}_{axis}": step // 4 for name, array in (("q", q), ("v", v), ("out", found))
           for axis, step in zip(("outer", "inner", "row"), array.strides[:3], strict=True)},
        mask_outer=queries * drawn.shape[-1], mask_inner=0, mask_row=drawn.shape[-1], mask_column=int(mask != "one"),
        scale=0.3, fill=fill)
    run(isa, "attention", [q, packed_keys, v, masks[0] if masks else q, found], params, (), splits)
    with np.errstate(invalid="ignore"):
        wanted = get_op("attention").evaluate([q, k, v, *masks], attrs)[0]
    close(found, wanted, 3e-5, 3e-5)  # of scores as large as these, a rounding is so much
    assert np.isnan(found.base[..., width:]).all()
