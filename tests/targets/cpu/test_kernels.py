"""Every kernel that is not elementwise, against NumPy, compiled for AVX2 and for the baseline."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_library import (
    SEEDS,
    SHAPES,
    SPLITS,
    Blocked,
    close,
    element_strides,
    every_isa,
    images,
    run,
    strided,
)
from packing_references import (
    pack_channels_reference,
    pack_depthwise_reference,
    pack_pairs_reference,
    pack_weights_reference,
)

from ngraph_mxnet.ops.movement import gather
from ngraph_mxnet.targets.cpu.kernels import reduction
from ngraph_mxnet.targets.cpu.kernels.record import KernelRecord, register
from ngraph_mxnet.targets.cpu.microkernels.params import super_groups
from ngraph_mxnet.targets.cpu.params import Params
from ngraph_mxnet.targets.cpu.params.layout import packed_contraction, packed_depthwise, packed_matrices
from ngraph_mxnet.targets.cpu.params.record import by_name
from ngraph_mxnet.targets.cpu.params.reduction import POOLS, REDUCE, around, reduced
from ngraph_mxnet.targets.cpu.params.selection import GATHER, OUTSIDE_CODES

IMAGE = st.tuples(
    st.integers(1, 2),
    st.sampled_from([1, 3, 16, 20, 32, 35]),
    st.integers(1, 9),
    st.sampled_from([1, 2, 7, 16, 21, 40]),
)
HALO = st.tuples(st.integers(0, 2), st.integers(0, 2))


@every_isa
@given(seed=SEEDS, shape=IMAGE, halo=HALO, splits=SPLITS, order=st.permutations(range(4)))
def test_layout_round_trip(isa: str, seed: int, shape: tuple, halo: tuple, splits: list[int], order: list[int]) -> None:
    plain = images(seed, *shape)
    plain = plain.transpose(order).copy().transpose(np.argsort(order))  # any axis may be the contiguous one
    blocked = Blocked(*shape, halo)
    run(
        isa,
        "to_blocked",
        [plain, blocked.inner],
        [*shape, *element_strides(plain), *blocked.strides],
        (),
        splits,
    )
    wanted = Blocked(*shape, halo).fill(plain)
    np.testing.assert_array_equal(blocked.whole, wanted.whole)
    narrow, wanted = Blocked(*shape, halo, True), Blocked(*shape, halo, True).fill(plain)
    run(isa, "to_blocked_f32_bf16", [plain, narrow.inner], [*shape, *element_strides(plain), *narrow.strides], (),
        splits)
    np.testing.assert_array_equal(narrow.whole, wanted.whole)
    back = np.full_like(plain, np.nan)
    run(
        isa,
        "from_blocked",
        [blocked.inner, back],
        [*shape, *blocked.strides, *element_strides(back)],
        (),
        splits,
    )
    np.testing.assert_array_equal(back, plain)


@every_isa
@given(seed=SEEDS, shape=IMAGE, halo=HALO, splits=SPLITS, bf16=st.booleans())
def test_zero_halo(isa: str, seed: int, shape: tuple, halo: tuple, splits: list[int], bf16: bool) -> None:
    plain = images(seed, *shape)
    found = Blocked(*shape, halo, bf16=bf16).fill(plain)
    wanted = Blocked(*shape, halo, bf16=bf16)
    wanted.whole[...] = 0
    wanted.fill(plain)
    sizes = [wanted.whole.shape[0] * wanted.whole.shape[1], *shape[2:], halo[0], halo[0], halo[1], halo[1]]
    run(isa, "zero_halo", [found.whole], [*sizes, 8 if bf16 else 16], (), splits)
    np.testing.assert_array_equal(found.whole, wanted.whole)


def pool_reference(x: np.ndarray, kind: str, size: tuple[int, int], p: dict) -> np.ndarray:
    """Window by window."""
    out = np.zeros((*x.shape[:2], *size))
    height, width = x.shape[2:]
    for oh in range(size[0]):
        for ow in range(size[1]):
            top, left = oh * p["stride"][0] - p["before"][0], ow * p["stride"][1] - p["before"][1]
            rows = [top + k * p["dilation"][0] for k in range(p["kernel"][0])]
            columns = [left + k * p["dilation"][1] for k in range(p["kernel"][1])]
            window = x[:, :, [r for r in rows if 0 <= r < height]][
                ..., [c for c in columns if 0 <= c < width]
            ]
            if kind == "max":
                out[:, :, oh, ow] = window.max((2, 3), initial=-np.inf)
            else:
                count = window.shape[2] * window.shape[3]
                if p["include_pad"]:
                    count = sum(r < height + p["after"][0] for r in rows) * sum(
                        c < width + p["after"][1] for c in columns
                    )
                out[:, :, oh, ow] = window.sum((2, 3), dtype=np.float64) / max(count, 1)
    return out


@every_isa
@pytest.mark.parametrize(("kind", "storage"), [("max", ""), ("max", "_bf16"), ("avg", ""), ("avg", "_bf16"),
                                             ("avg", "_bf16_f32")])
@given(seed=SEEDS, shape=IMAGE, halo=HALO, out_halo=HALO, splits=SPLITS, data=st.data())
def test_pooling(
    isa: str,
    kind: str,
    storage: str,
    seed: int,
    shape: tuple,
    halo: tuple,
    out_halo: tuple,
    splits: list[int],
    data: st.DataObject,
) -> None:
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    pads = st.tuples(st.integers(0, 2), st.integers(0, 2))
    p = {
        "kernel": data.draw(pair),
        "stride": data.draw(pair),
        "dilation": data.draw(pair),
        "before": data.draw(pads),
        "after": data.draw(pads),
        "include_pad": data.draw(st.booleans()),
    }
    if data.draw(st.booleans()):
        p.update(kernel=shape[2:], dilation=(1, 1))
    size = tuple(
        max(1, -(-(s + b + a - d * (k - 1) - 1) // t) + 1)
        for s, b, a, d, k, t in zip(
            shape[2:], p["before"], p["after"], p["dilation"], p["kernel"], p["stride"], strict=True
        )
    )
    x = images(seed, *shape, special=kind == "max")
    source = Blocked(*shape, halo, "_bf16" in storage).fill(x)
    target = Blocked(*shape[:2], *size, out_halo, storage == "_bf16")
    # No depth: pools over three axes are in tests/backend.
    strides = ((*view.strides[:2], 0, *view.strides[2:]) for view in (source, target))
    ints = POOLS[storage](
        n=shape[0], c16=source.whole.shape[1], d=1, h=shape[2], w=shape[3], windows=(1, *size),
        kernel=(1, *p["kernel"]), stride=(1, *p["stride"]), dilation=p["dilation"],
        pad=(0, *p["before"], 0, *p["after"]), include_pad=p["include_pad"], **by_name("input output", strides))
    run(isa, f"{kind}_pool_blocked{storage}", [source.inner, target.inner], ints, (), splits)
    close(target.plain, pool_reference(source.plain, kind, size, p), 2**-8 if storage == "_bf16" else 2e-6)
    assert target.is_clean


@every_isa
@pytest.mark.parametrize("end", ["", "_bf16", "_f32_bf16"])
@given(seed=SEEDS, shape=IMAGE, halo=HALO, out_halo=HALO, splits=SPLITS)
def test_scale_shift(
    isa: str, end: str, seed: int, shape: tuple, halo: tuple, out_halo: tuple, splits: list[int]
) -> None:
    x, vectors = images(seed, *shape, special=True), np.zeros((2, -(-shape[1] // 16) * 16), np.float32)
    vectors[:, : shape[1]] = images(seed + 1, 2, shape[1])
    source, target = Blocked(*shape, halo, end == "_bf16").fill(x), Blocked(*shape, out_halo, bool(end))
    ints = [shape[0], source.whole.shape[1], *shape[2:], *source.strides, *target.strides]
    run(isa, f"scale_shift_blocked{end}", [source.inner, *vectors, target.inner], ints, [-0.5, 1.0], splits)
    scale, offset = vectors[:, : shape[1], None, None]
    wanted = np.clip(source.plain * scale.astype(np.float64) + offset, -0.5, 1.0)
    close(target.plain, wanted, *((2**-8,) if end else ()))
    assert target.is_clean


AXES = st.tuples(st.integers(1, 4), st.sampled_from([1, 3, 16, 33, 100]), st.sampled_from([1, 5, 16, 37]))


@every_isa
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@given(seed=SEEDS, shape=AXES, splits=SPLITS, in_place=st.booleans())
def test_softmax(isa: str, name: str, seed: int, shape: tuple, splits: list[int], in_place: bool) -> None:
    random = np.random.default_rng(seed)
    source = strided(random, shape)
    source[...] = random.normal(size=shape) * 10
    if random.random() < 0.3:
        source[random.random(shape) < 0.3] = -np.inf
        source[:, 0] = 1
    x = source.astype(np.float64)
    target = source if in_place and name == "softmax" else strided(random, shape)
    run(isa, name, [source, target], [*shape, *element_strides(source), *element_strides(target)], (), splits)
    shifted = x - x.max(1, keepdims=True)
    total = np.exp(shifted).sum(1, keepdims=True)
    close(target, np.exp(shifted) / total if name == "softmax" else shifted - np.log(total), absolute=2e-6)


@every_isa
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("across", [False, True], ids=["rows", "columns"])
def test_softmax_of_special_rows(isa: str, name: str, across: bool) -> None:
    """Shares far below the greatest are 0. A NaN, an infinity or nothing but -inf makes its row NaN, and no other."""
    rows = np.random.default_rng(0).normal(size=(40, 83)).astype(np.float32)
    rows[:, 5] = np.linspace(-200, 100, 40)
    rows[3, 17] = rows[4, 82] = rows[6, 0] = np.nan
    rows[8, 80], rows[9, 2], rows[11] = np.inf, -np.inf, -np.inf
    source = np.ascontiguousarray(rows.T).T if across else rows
    target = np.full_like(source, 7)
    # Across, the rows are neighbours in the inner dimension.
    shape, steps = ((1, 83, 40), (0, 40, 1)) if across else ((40, 83, 1), (83, 1, 0))
    run(isa, name, [source, target], [*shape, *steps, *steps])
    with np.errstate(invalid="ignore"):
        x = rows.astype(np.float64)
        shifted = x - x.max(1, keepdims=True)
        total = np.exp(shifted).sum(1, keepdims=True)
        wanted = np.exp(shifted) / total if name == "softmax" else shifted - np.log(total)
    broken = [3, 4, 6, 8, 11]
    assert np.isnan(target[broken]).sum(1).tolist() == np.isnan(wanted[broken]).sum(1).tolist()
    fine = np.setdiff1d(np.arange(40), broken)
    close(target[fine], wanted[fine], absolute=2e-6)
    if name == "softmax":
        assert not target[fine][np.exp(shifted[fine]) < 1e-38].any()


@every_isa
@pytest.mark.parametrize("name", sorted(reduction.REDUCTIONS))
@given(seed=SEEDS, shape=SHAPES, splits=SPLITS, data=st.data())
def test_reduce(
    isa: str, name: str, seed: int, shape: tuple[int, ...], splits: list[int], data: st.DataObject
) -> None:
    random = np.random.default_rng(seed)
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    source = strided(random, shape)
    source[...] = random.normal(size=shape)
    if random.random() < 0.3:
        source[random.random(shape) < 0.1] = random.choice([np.nan, np.inf, -np.inf])
    kept = tuple(s for i, s in enumerate(shape) if i not in axes)
    target = strided(random, kept) if kept else np.zeros((), np.float32)
    ints = reduced(REDUCE, shape, axes, element_strides(source), element_strides(target))
    run(isa, f"reduce_{name}", [source, target], ints, (), splits)
    with np.errstate(invalid="ignore"):
        close(target, getattr(np, name)(source.astype(np.float64), axis=axes))


@every_isa
def test_sums_of_many_elements_are_accurate(isa: str) -> None:
    x = np.random.default_rng(0).normal(1, 1, (10_000, 48)).astype(np.float32)
    for axis in (0, 1):
        out = np.zeros(x.shape[1 - axis], np.float32)
        run(isa, "reduce_sum", [x, out], reduced(REDUCE, x.shape, (axis,), (48, 1), (1,)))
        np.testing.assert_allclose(out, x.astype(np.float64).sum(axis), rtol=1e-7)


@every_isa
@pytest.mark.parametrize("name", ["argmax", "argmin"])
@given(seed=SEEDS, shape=AXES, splits=SPLITS)
def test_arg(isa: str, name: str, seed: int, shape: tuple, splits: list[int]) -> None:
    random = np.random.default_rng(seed)
    source, target = strided(random, shape), strided(random, (shape[0], shape[2]), np.int64)
    source[...] = random.choice([1, 2, 3, np.inf, -np.inf, *([np.nan] if seed % 2 else [])], shape)
    run(isa, name, [source, target], [*shape, *element_strides(source), *element_strides(target)], (), splits)
    np.testing.assert_array_equal(target, getattr(np, name)(source, axis=1))


@every_isa
@given(seed=SEEDS, rows=st.integers(1, 5), columns=st.sampled_from([1, 7, 16, 50, 768]), splits=SPLITS)
def test_layer_norm(isa: str, seed: int, rows: int, columns: int, splits: list[int]) -> None:
    x, (gamma, beta) = (images(seed, rows, columns + 2) + 3)[:, :columns], images(seed + 1, 2, columns)
    target = np.zeros((rows, columns), np.float32)
    run(isa, "layer_norm", [x, gamma, beta, target], [rows, columns, columns + 2, columns], [1e-5], splits)
    wide = x.astype(np.float64)
    norm = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    close(target, norm * gamma + beta, 1e-5, 1e-5)


@every_isa
@given(seed=SEEDS, channels=st.sampled_from([1, 7, 16, 50]))
def test_batch_norm_factors(isa: str, seed: int, channels: int) -> None:
    gamma, beta, mean, deviation = images(seed, 4, channels)
    scale, shift = np.zeros((2, channels), np.float32)
    run(isa, "batch_norm_factors", [gamma, beta, mean, deviation**2, scale, shift], [channels], [1e-3])
    factor = gamma / np.sqrt(deviation.astype(np.float64) ** 2 + 1e-3)
    close(scale, factor, 1e-6, 1e-6)
    close(shift, beta - mean * factor, 1e-5, 1e-5)


@every_isa
@given(
    seed=SEEDS,
    shape=st.tuples(st.integers(1, 2), st.integers(1, 9), st.integers(1, 20)),
    splits=SPLITS,
    size=st.sampled_from([1, 3, 5]),
    beta=st.sampled_from([0.75, 0.5]),
)
def test_lrn(isa: str, seed: int, shape: tuple, splits: list[int], size: int, beta: float) -> None:
    x = images(seed, *shape)
    target = np.zeros_like(x)
    strides = element_strides(x)[:2]
    run(isa, "lrn", [x, target], [*shape, size, *strides, *strides], [0.3, beta, 2.0], splits)
    squares = np.pad(x.astype(np.float64) ** 2, ((0, 0), (size // 2, size // 2), (0, 0)))
    total = sum(squares[:, i : i + shape[1]] for i in range(size))
    close(target, x / (2 + 0.3 / size * total) ** beta)


@every_isa
@given(
    seed=SEEDS,
    groups=st.sampled_from([1, 2, 4, 8, 16]),
    ocg=st.sampled_from([1, 2, 5, 16, 24]),
    icg=st.sampled_from([1, 3, 8, 16, 20]),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    oc_tile=st.sampled_from([16, 32, 48]),
    lanes=st.sampled_from([1, 16]),
    splits=SPLITS,
)
def test_pack_contraction(
    isa: str,
    seed: int,
    groups: int,
    ocg: int,
    icg: int,
    kernel: tuple,
    oc_tile: int,
    lanes: int,
    splits: list[int],
) -> None:
    weights = strided(np.random.default_rng(seed), (groups * ocg, icg, *kernel))
    weights[...] = images(seed, *weights.shape)
    wanted = pack_weights_reference(weights, groups=groups, oc_tile=oc_tile, lanes=lanes)
    supers = super_groups(groups, groups * icg, groups * ocg, lanes)
    packed = np.full_like(wanted, np.nan)
    ints = packed_contraction(
        weights.shape, element_strides(weights), groups=groups, supers=supers, oc_tile=oc_tile, lanes=lanes
    )
    run(isa, "pack_contraction", [weights, packed], ints, (), splits)
    np.testing.assert_array_equal(packed, wanted)
    if lanes == 16:
        check_pairs(isa, weights, wanted, ints, splits)


def check_pairs(isa: str, weights: np.ndarray, packed: np.ndarray, ints: Params, splits: list[int]) -> None:
    """`pack_contraction_bf16` gives `packed` in pairs."""
    wanted = np.stack([pack_pairs_reference(p) for p in packed]) if packed.ndim == 5 else pack_pairs_reference(packed)
    pairs = np.full_like(wanted, 0xFFFF)
    run(isa, "pack_contraction_bf16", [weights, pairs], ints, (), splits)
    np.testing.assert_array_equal(pairs, wanted)


@every_isa
@given(
    seed=SEEDS,
    shape=st.tuples(st.integers(1, 3), st.sampled_from([5, 16, 33]), st.sampled_from([7, 16, 48])),
    order=st.sampled_from([(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 0, 1)]),
    oc_tile=st.sampled_from([16, 32, 48]),
    splits=SPLITS,
)
def test_pack_matrices(
    isa: str, seed: int, shape: tuple, order: tuple, oc_tile: int, splits: list[int]
) -> None:
    matrices = images(seed, *shape).transpose(order)
    count, columns, depth = matrices.shape
    wanted = np.stack(
        [pack_weights_reference(m[:, :, None, None], groups=1, oc_tile=oc_tile, lanes=16) for m in matrices]
    )
    packed = np.full_like(wanted, np.nan)
    between, *strides = element_strides(matrices)
    ints = packed_matrices((columns, depth), tuple(strides), count=count, between=between, oc_tile=oc_tile)
    run(isa, "pack_contraction", [matrices, packed], ints, (), splits)
    np.testing.assert_array_equal(packed, wanted)
    check_pairs(isa, matrices, wanted, ints, splits)


@every_isa
@given(
    seed=SEEDS,
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    axis=st.integers(0, 2),
    count=st.integers(0, 20),
    dtype=st.sampled_from([np.int8, np.float32, np.int64]),
    rows=st.integers(1, 9),
    mode=st.sampled_from(list(OUTSIDE_CODES)),
    splits=SPLITS,
)
def test_gather(
    isa: str, seed: int, shape: list, axis: int, count: int, dtype: type, rows: int, mode: str, splits: list[int]
) -> None:
    random = np.random.default_rng(seed)
    axis %= len(shape)
    data = random.integers(-100, 100, shape).astype(dtype)
    indices = random.integers(-3, 9, count)
    (wanted,) = gather.evaluate([data, indices], {"axis": axis, "mode": mode})
    out = np.full_like(wanted, 77)
    ints = GATHER(**around(shape, axis), count=count, rows=rows, outside=OUTSIDE_CODES[mode])
    run(isa, f"gather_{data.itemsize}", [data, indices, out], ints, (), splits)
    np.testing.assert_array_equal(out, wanted)


@every_isa
@given(
    seed=SEEDS,
    groups=st.integers(1, 3),
    channels=st.integers(1, 40),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    splits=SPLITS,
)
def test_pack_depthwise_and_channels(
    isa: str, seed: int, groups: int, channels: int, kernel: tuple, splits: list[int]
) -> None:
    weights = images(seed, channels, 1, *kernel)
    wanted = pack_depthwise_reference(weights)
    packed = np.full_like(wanted, np.nan)
    ints = packed_depthwise(weights.shape, element_strides(weights))
    run(isa, "pack_depthwise", [weights, packed], ints, (), splits)
    np.testing.assert_array_equal(packed, wanted)
    values = images(seed, groups * channels, 2)[:, 0]
    for oc_tile in (16, 32):
        wanted = pack_channels_reference(values, groups=groups, oc_tile=oc_tile)
        packed = np.full_like(wanted, np.nan)
        run(isa, "pack_channels", [values, packed], [groups, channels, oc_tile, 2], (), splits)
        np.testing.assert_array_equal(packed, wanted)


def test_registering_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="twice"):
        register(KernelRecord(name="relu", function=print, doc=""))
