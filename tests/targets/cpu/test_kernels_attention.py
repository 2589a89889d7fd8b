"""The kernels of attention, against the op that defines it."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_library import AVX512_BF16, SEEDS, SPLITS, close, every_isa, library, run, widened
from packing_references import round_bf16_reference

from ngraph_mxnet.ir import get_op
from ngraph_mxnet.targets.cpu.kernels import symbol
from ngraph_mxnet.targets.cpu.machine.isa import kernels_of
from ngraph_mxnet.targets.cpu.params import KERNELS
from ngraph_mxnet.targets.cpu.params.record import by_name
from ngraph_mxnet.targets.cpu.params.sequences import ATTENTION_FEW, attention_units

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


def packed_pairs(keys: np.ndarray) -> np.ndarray:
    """The same in bf16, `[tile][depth / 2][16][2]`."""
    whole = packed(keys)
    pairs = whole.reshape(*whole.shape[:-2], whole.shape[-2] // 2, 2, 16).swapaxes(-1, -2)
    return round_bf16_reference(np.ascontiguousarray(pairs))


def rounded(values: np.ndarray) -> np.ndarray:
    return widened(round_bf16_reference(values))


def attention_of_bf16(operands: list[np.ndarray], attrs: dict[str, Any], key_rows: int) -> np.ndarray:
    """Attention whose queries, keys, values and powers are rounded to bf16. A power is relative to the greatest score
    so far, of blocks of `key_rows` keys. Sums are float32."""
    q, k, v, *masks = operands
    scores = attrs["scale"] * (rounded(q) @ rounded(k).swapaxes(-1, -2))
    kept = np.ones(scores.shape, bool)
    if masks and masks[0].dtype == bool:
        kept = np.broadcast_to(masks[0], scores.shape)
        scores = np.where(kept, scores, np.float32(attrs["fill"]))
    elif masks:
        scores = scores + masks[0]
    greatest = np.full((*scores.shape[:-1], 1), -np.inf, np.float32)
    sums, total = np.zeros((*scores.shape[:-1], v.shape[-1])), np.zeros(greatest.shape)
    for first in range(0, k.shape[-2], key_rows):
        block = slice(first, first + key_rows)
        before, greatest = greatest, np.maximum(greatest, scores[..., block].max(-1, keepdims=True))
        base = np.where(greatest > -np.inf, greatest, 0)
        factor, powers = np.exp(before - base), np.exp(scores[..., block] - base)
        total = total * factor + powers.sum(-1, keepdims=True)
        weights = powers * kept[..., block] if attrs["zeroed"] else powers
        sums = sums * factor + rounded(weights) @ rounded(v[..., block, :])
    found = sums / total
    return np.where(kept.any(-1, keepdims=True), found, 0) if attrs["zeroed"] else found


BF16_KERNELS = [pytest.param(name, isa, marks=AVX512_BF16)
                for name, isa in (("attention_bf16", "avx512"), ("attention_bf16_amx", "amx"))]
MASKS = ["none", "chosen", "all masked", "zeroed", "added", "one"]
COUNTS = st.tuples(st.integers(1, 29), SIZES, st.one_of(SIZES, st.integers(1, 100)), SIZES)


def attend(name: str, isa: str, wide: int, mask: str, seed: int, sizes: tuple[int, int, int, int], rows: int,
           key_rows: int, fill: float, splits: list[int]) -> tuple[np.ndarray, list[np.ndarray], dict[str, Any]]:
    """What the kernel gives, its operands, and attributes of the op.

    There are keys that are masked as a block, greatest scores that come first and last, and rows without a key.
    """
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
    packed_keys = packed(k) if name == "attention" else packed_pairs(k)
    params = KERNELS[name](
        outer=2, inner=3, queries=queries, keys=keys, depth=depth, width=width, rows=rows, key_rows=key_rows, wide=wide,
        key_matrix=packed_keys[0, 0].nbytes // 4, mask_kind={"none": 0, "added": 2}.get(mask, 1),
        zeroed=attrs["zeroed"],
        **{f"{name}_{axis}": step // 4 for name, array in (("q", q), ("v", v), ("out", found))
           for axis, step in zip(("outer", "inner", "row"), array.strides[:3], strict=True)},
        mask_outer=queries * drawn.shape[-1], mask_inner=0, mask_row=drawn.shape[-1], mask_column=int(mask != "one"),
        scale=0.3, fill=fill)
    address = ctypes.cast(getattr(library(), symbol(name, kernels_of(isa))), ctypes.c_void_p).value  # type: ignore[arg-type]
    run(isa, name, [q, packed_keys, v, masks[0] if masks else q, found], params, (), splits, address,
        bf16=name != "attention")
    assert np.isnan(found.base[..., width:]).all()
    return found, [q, k, v, *masks], attrs


@every_isa
@pytest.mark.parametrize("wide", [0, 1])
@pytest.mark.parametrize("mask", MASKS)
@given(seed=SEEDS, sizes=COUNTS, rows=st.sampled_from([6, 12, 30]), key_rows=st.sampled_from([16, 32, 48, 112]),
       fill=st.sampled_from([-1e4, -np.inf]), splits=SPLITS)
def test_attention(isa: str, wide: int, mask: str, seed: int, sizes: tuple[int, int, int, int], rows: int,
                   key_rows: int, fill: float, splits: list[int]) -> None:
    found, operands, attrs = attend("attention", isa, wide, mask, seed, sizes, rows, key_rows, fill, splits)
    with np.errstate(invalid="ignore"):
        wanted = get_op("attention").evaluate(operands, attrs)[0]
    close(found, wanted, 3e-5, 3e-5)  # of scores as large as these, a rounding is so much


@pytest.mark.parametrize(("name", "isa"), BF16_KERNELS)
@pytest.mark.parametrize("mask", MASKS)
@given(seed=SEEDS, sizes=COUNTS, rows=st.sampled_from([1, 2, 5]), key_rows=st.sampled_from([32, 64, 96]),
       fill=st.sampled_from([-1e4, -np.inf]), splits=SPLITS)
def test_attention_in_bf16(name: str, isa: str, mask: str, seed: int, sizes: tuple[int, int, int, int], rows: int,
                           key_rows: int, fill: float, splits: list[int]) -> None:
    """A power that lies between two bf16 may be rounded to either."""
    unit, _ = attention_units(tiled=isa == "amx")
    found, operands, attrs = attend(name, isa, 1, mask, seed, sizes, rows * unit, key_rows, fill, splits)
    with np.errstate(invalid="ignore"):
        close(found, attention_of_bf16(operands, attrs, key_rows), 2e-3, 2e-3)
