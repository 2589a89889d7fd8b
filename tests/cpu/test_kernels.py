"""Every kernel against NumPy, compiled for AVX2 (where the CPU has it) and for the baseline."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_library import Blocked, element_strides, run

from ngraph_mxnet.cpu.kernels import ALL_KERNELS, elementwise, reduction, strided_ints
from ngraph_mxnet.cpu.kernels.record import KernelRecord, register
from ngraph_mxnet.cpu.microkernels import (
    pack_channels_reference,
    pack_depthwise_reference,
    pack_weights_reference,
    super_groups,
)

_FLAGS = Path("/proc/cpuinfo").read_text().split()
ISAS = [
    pytest.param("avx2", marks=pytest.mark.skipif("avx2" not in _FLAGS, reason="the CPU has no AVX2")),
    "baseline",
]
every_isa = pytest.mark.parametrize("isa", ISAS)
SPLITS = st.lists(st.integers(0, 10**6), max_size=3)
SEEDS = st.integers(0, 2**32 - 1)
SPECIAL = np.array([0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 88.7, 88.8, -87.5, -103.0, -104.5, 1e-40, -1e-40,
                    1e30, -1e30, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan, 1e-8, -1e-8, 4.0, 9.5, 0.625, -0.625],
                   np.float32)  # fmt: skip
_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _modulo(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.mod(x.astype(np.float32), y.astype(np.float32))


UNARY = {
    "abs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atanh": np.arctanh, "cbrt": np.cbrt, "ceiling": np.ceil, "cos": np.cos, "cosh": np.cosh, "erf": _erf,
    "exp": np.exp, "expm1": np.expm1, "floor": np.floor, "gelu": lambda x: 0.5 * x * (1 + _erf(x / np.sqrt(2))),
    "identity": lambda x: x, "log": np.log, "log10": np.log10, "log1p": np.log1p, "log2": np.log2,
    "negative": np.negative, "reciprocal": np.reciprocal, "relu": lambda x: np.maximum(x, 0), "round": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": _sigmoid, "sign": np.sign, "sin": np.sin, "sinh": np.sinh,
    "softplus": lambda x: np.logaddexp(x, 0), "softsign": lambda x: x / (1 + np.abs(x)), "sqrt": np.sqrt,
    "square": np.square, "tan": np.tan, "tanh": np.tanh, "trunc": np.trunc,
    "clamp": lambda x: np.clip(x, -0.75, 6), "leaky_relu": lambda x: np.where(x > 0, x, 0.1 * x),
    "elu": lambda x: np.where(x > 0, x, 0.7 * np.expm1(np.minimum(x, 0))),
}  # fmt: skip
PARAMETERS = {"clamp": (-0.75, 6.0), "leaky_relu": (0.1,), "elu": (0.7,)}
BINARY = {
    "add": np.add, "divide": np.divide, "maximum": np.maximum, "minimum": np.minimum, "multiply": np.multiply,
    "power": np.power, "subtract": np.subtract, "mod": _modulo,
}  # fmt: skip


def close(actual: np.ndarray, wanted: np.ndarray, relative: float = 2e-6, absolute: float = 1e-6) -> None:
    """Equal up to float32 rounding; overflow and NaN in the same places."""
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(actual, np.asarray(wanted).astype(np.float32), relative, absolute)


def strided(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype | type = np.float32) -> np.ndarray:
    """An uninitialised view with gaps, a permuted order of dimensions and negative strides."""
    order = random.permutation(len(shape)) if random.random() < 0.4 else np.arange(len(shape))
    gaps = random.integers(0, 3, len(shape))
    steps = random.choice([1, 1, 1, 2, -1], len(shape))
    whole = np.zeros([(shape[i] + gaps[i]) * abs(steps[i]) for i in order], dtype)
    view = whole[tuple(slice(None, None, int(steps[i])) for i in order)].transpose(np.argsort(order))
    return view[tuple(slice(0, s) for s in shape)]


SHAPES = st.one_of(
    st.lists(st.integers(1, 6), min_size=1, max_size=5).map(tuple),
    st.tuples(st.integers(1, 5), st.sampled_from([1, 15, 16, 17, 40, 100])),
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.sampled_from([16, 64])),
)


def elementwise_case(
    random: np.random.Generator, shape: tuple[int, ...], values: list[np.ndarray], out: type, *, broadcast: bool
) -> tuple[list[np.ndarray], int]:
    """Inputs of `shape` (perhaps broadcast) with elements drawn from `values`, an output, and a grain."""
    arrays = []
    for choices in values:
        own = tuple(1 if broadcast and random.random() < 0.4 else s for s in shape)
        array = strided(random, own, choices.dtype)
        array[...] = random.choice(choices, own)
        arrays.append(np.broadcast_to(array, shape))
    return [*arrays, strided(random, shape, out)], int(random.choice([1, 7, 64, 8192]))


def run_elementwise(isa: str, name: str, arrays: list[np.ndarray], grain: int, splits: list[int]) -> None:
    ints = strided_ints(arrays[0].shape, *map(element_strides, arrays), grain=grain)
    run(isa, name, arrays, ints, PARAMETERS.get(name, ()), splits)


@every_isa
@pytest.mark.parametrize("name", sorted(UNARY))
@given(seed=SEEDS, shape=SHAPES, splits=SPLITS)
def test_unary(isa: str, name: str, seed: int, shape: tuple[int, ...], splits: list[int]) -> None:
    random = np.random.default_rng(seed)
    values = np.r_[random.normal(size=100) * 2, random.uniform(-1, 1, 50), SPECIAL].astype(np.float32)
    (source, target), grain = elementwise_case(random, shape, [values], np.float32, broadcast=False)
    run_elementwise(isa, name, [source, target], grain, splits)
    with np.errstate(all="ignore"):
        close(target, UNARY[name](source.astype(np.float64)))


@every_isa
@pytest.mark.parametrize("name", sorted(UNARY))
@pytest.mark.parametrize("width", [1, 16, 333])
def test_unary_special_values_in_every_path(isa: str, name: str, width: int) -> None:
    source = np.resize(SPECIAL, (29, width)).copy()
    target = np.zeros_like(source)
    pad = np.zeros((29, width + 3), np.float32)[:, :width]
    for out in (target, pad):
        run_elementwise(isa, name, [source, out], 8192, [])
        with np.errstate(all="ignore"):
            close(out, UNARY[name](source.astype(np.float64)))


def test_every_elementwise_kernel_has_a_reference() -> None:
    assert set(UNARY) == {*elementwise.UNARY, *elementwise.LIBM}
    assert set(BINARY) == {*elementwise.BINARY, *elementwise.LIBM_BINARY}


@every_isa
@pytest.mark.parametrize("name", sorted({**elementwise.UNARY, **elementwise.BINARY}))
def test_in_place(isa: str, name: str) -> None:
    """The output may be exactly an input."""
    random = np.random.default_rng(1)
    for shape in ((1000,), (7, 16)):
        source = random.uniform(0.1, 2, (*shape[:-1], shape[-1] + 1)).astype(np.float32)[..., :-1]
        inputs = [source] * len(ALL_KERNELS[name].inputs)
        wanted, target = np.zeros_like(source), source.copy()
        run_elementwise(isa, name, [*inputs, wanted], 8192, [])
        run_elementwise(isa, name, [target] * len(inputs) + [target], 8192, [])
        np.testing.assert_array_equal(target, wanted)


# The bound on ulps of the polynomials, against float64.
ULPS = {"exp": 2, "log": 2, "tanh": 4, "erf": 8, "sigmoid": 4, "expm1": 4, "log1p": 4, "softplus": 4}


@every_isa
@pytest.mark.parametrize("name", sorted(ULPS))
def test_accuracy_in_ulps(isa: str, name: str) -> None:
    low, high = (1e-38, 1e4) if name == "log" else (-0.99, 1e3) if name == "log1p" else (-86, 88)
    random = np.random.default_rng(0)
    small = np.exp(random.uniform(-20, 3, 50_000)) * random.choice([-1, 1], 50_000)
    x = np.r_[random.uniform(low, high, 50_000), np.clip(small, low, high), random.uniform(0.5, 2, 20_000)]
    x = x.astype(np.float32)
    y = np.zeros_like(x)
    run_elementwise(isa, name, [x, y], 8192, [])
    exact = UNARY[name](x.astype(np.float64))
    error = np.abs(y - exact) / np.spacing(np.abs(exact).astype(np.float32))
    assert error.max() <= ULPS[name], (error.max(), x[error.argmax()])


@every_isa
@pytest.mark.parametrize("name", sorted(BINARY))
@given(seed=SEEDS, shape=SHAPES, splits=SPLITS, broadcast=st.booleans())
def test_binary(isa: str, name: str, seed: int, shape: tuple[int, ...], splits: list[int], broadcast: bool) -> None:
    random = np.random.default_rng(seed)
    values = np.r_[random.normal(size=60), SPECIAL].astype(np.float32)
    arrays, grain = elementwise_case(random, shape, [values] * 2, np.float32, broadcast=broadcast)
    run_elementwise(isa, name, arrays, grain, splits)
    with np.errstate(all="ignore"):
        close(arrays[2], BINARY[name](*(a.astype(np.float64) for a in arrays[:2])))


@every_isa
@pytest.mark.parametrize("name", sorted(elementwise.COMPARISON))
@given(seed=SEEDS, shape=SHAPES, splits=SPLITS, broadcast=st.booleans())
def test_comparison(isa: str, name: str, seed: int, shape: tuple[int, ...], splits: list[int], broadcast: bool) -> None:
    random = np.random.default_rng(seed)
    values = np.array([0, -0.0, 1, 2, -1, np.inf, np.nan], np.float32)
    arrays, grain = elementwise_case(random, shape, [values] * 2, np.uint8, broadcast=broadcast)
    run_elementwise(isa, name, arrays, grain, splits)
    np.testing.assert_array_equal(arrays[2], getattr(np, name)(*arrays[:2]).astype(np.uint8))


@every_isa
@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor", "logical_not"])
@given(seed=SEEDS, shape=SHAPES, splits=SPLITS)
def test_logical(isa: str, name: str, seed: int, shape: tuple[int, ...], splits: list[int]) -> None:
    random = np.random.default_rng(seed)
    count = 1 if name == "logical_not" else 2
    truth = np.array([0, 1], np.uint8)
    arrays, grain = elementwise_case(random, shape, [truth] * count, np.uint8, broadcast=True)
    run_elementwise(isa, name, arrays, grain, splits)
    np.testing.assert_array_equal(arrays[-1], getattr(np, name)(*arrays[:-1]).astype(np.uint8))


@every_isa
@given(seed=SEEDS, shape=SHAPES, splits=SPLITS)
def test_select(isa: str, seed: int, shape: tuple[int, ...], splits: list[int]) -> None:
    random = np.random.default_rng(seed)
    values = [np.array([0, 1], np.uint8), SPECIAL, SPECIAL]
    arrays, grain = elementwise_case(random, shape, values, np.float32, broadcast=True)
    run_elementwise(isa, "select", arrays, grain, splits)
    np.testing.assert_array_equal(arrays[3], np.where(arrays[0] != 0, arrays[1], arrays[2]))


@every_isa
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
@given(seed=SEEDS, shape=SHAPES, splits=SPLITS)
def test_copy_and_fill(isa: str, dtype: type, seed: int, shape: tuple[int, ...], splits: list[int]) -> None:
    random = np.random.default_rng(seed)
    values = random.integers(-100, 100, 50).astype(dtype)
    arrays, grain = elementwise_case(random, shape, [values], dtype, broadcast=True)
    run_elementwise(isa, f"copy_{dtype().itemsize}", arrays, grain, splits)
    np.testing.assert_array_equal(*arrays)
    target = strided(random, shape, np.float32 if dtype is np.int32 else dtype)
    ints = strided_ints(shape, element_strides(target), grain=grain)
    run(isa, f"fill_{dtype().itemsize}", [target], ints, [-3.0], splits)
    assert (target == -3).all()


DTYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "i8": np.int8, "u8": np.uint8, "bool": np.bool_}  # fmt: skip


@every_isa
@pytest.mark.parametrize("name", sorted(n for n in ALL_KERNELS if n.startswith("convert_")))
@given(seed=SEEDS, shape=SHAPES, splits=SPLITS)
def test_convert(isa: str, name: str, seed: int, shape: tuple[int, ...], splits: list[int]) -> None:
    random = np.random.default_rng(seed)
    first, second = (DTYPES[n] for n in name.split("_")[1:])
    low = 0 if first in (np.uint8, np.bool_) or second is np.uint8 else -100
    values = random.uniform(low, 100, 50) if first in (np.float32, np.float64) else random.integers(low, 100, 50)
    values = np.r_[values, 0, 1].astype(first)
    arrays, grain = elementwise_case(random, shape, [values], second, broadcast=False)
    run_elementwise(isa, name, arrays, grain, splits)
    np.testing.assert_array_equal(arrays[1], arrays[0].astype(second))


def images(seed: int, *shape: int, special: bool = False) -> np.ndarray:
    random = np.random.default_rng(seed)
    values = random.normal(size=shape).astype(np.float32)
    if special and random.random() < 0.3:
        values[random.random(shape) < 0.05] = random.choice([np.nan, np.inf, -np.inf])
    return values


IMAGE = st.tuples(st.integers(1, 2), st.sampled_from([1, 3, 16, 20, 32, 35]), st.integers(1, 9), st.sampled_from([1, 2, 7, 16, 21]))  # fmt: skip
HALO = st.tuples(st.integers(0, 2), st.integers(0, 2))


@every_isa
@given(seed=SEEDS, shape=IMAGE, halo=HALO, splits=SPLITS, channels_last=st.booleans())
def test_layout_round_trip(isa: str, seed: int, shape: tuple, halo: tuple, splits: list[int], channels_last: bool) -> None:
    plain = images(seed, *shape)
    if channels_last:
        plain = plain.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)
    blocked = Blocked(*shape, halo)
    run(isa, "to_blocked", [plain, blocked.inner], [*shape, *element_strides(plain), *blocked.strides], (), splits)
    wanted = Blocked(*shape, halo).fill(plain)
    np.testing.assert_array_equal(blocked.whole, wanted.whole)
    back = np.full_like(plain, np.nan)
    run(isa, "from_blocked", [blocked.inner, back], [*shape, *blocked.strides, *element_strides(back)], (), splits)
    np.testing.assert_array_equal(back, plain)
    sizes = [shape[0], blocked.whole.shape[1], *shape[2:]]
    run(isa, "zero_halo", [blocked.inner], [*sizes, *halo, *halo, *blocked.strides], (), splits)
    assert not np.isnan(blocked.whole).any()
    np.testing.assert_array_equal(blocked.inner, wanted.inner)
    blocked.inner[...] = 0
    assert not blocked.whole.any()


def pool_reference(x: np.ndarray, kind: str, size: tuple[int, int], p: dict) -> np.ndarray:
    """Window by window."""
    out = np.zeros((*x.shape[:2], *size))
    height, width = x.shape[2:]
    for oh in range(size[0]):
        for ow in range(size[1]):
            top, left = oh * p["stride"][0] - p["before"][0], ow * p["stride"][1] - p["before"][1]
            rows = [top + k * p["dilation"][0] for k in range(p["kernel"][0])]
            columns = [left + k * p["dilation"][1] for k in range(p["kernel"][1])]
            window = x[:, :, [r for r in rows if 0 <= r < height]][..., [c for c in columns if 0 <= c < width]]
            if kind == "max":
                out[:, :, oh, ow] = window.max((2, 3), initial=-np.inf)
            else:
                count = window.shape[2] * window.shape[3]
                if p["include_pad"]:
                    count = sum(r < height + p["after"][0] for r in rows) * sum(c < width + p["after"][1] for c in columns)
                out[:, :, oh, ow] = window.sum((2, 3), dtype=np.float64) / max(count, 1)
    return out


@every_isa
@pytest.mark.parametrize("kind", ["max", "avg"])
@given(seed=SEEDS, shape=IMAGE, halo=HALO, out_halo=HALO, splits=SPLITS, data=st.data())
def test_pooling(isa: str, kind: str, seed: int, shape: tuple, halo: tuple, out_halo: tuple, splits: list[int], data: st.DataObject) -> None:  # fmt: skip
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    pads = st.tuples(st.integers(0, 2), st.integers(0, 2))
    p = {"kernel": data.draw(pair), "stride": data.draw(pair), "dilation": data.draw(pair), "before": data.draw(pads),
         "after": data.draw(pads), "include_pad": data.draw(st.booleans())}  # fmt: skip
    if data.draw(st.booleans()):
        p.update(kernel=shape[2:], dilation=(1, 1))
    size = tuple(
        max(1, -(-(s + b + a - d * (k - 1) - 1) // t) + 1)
        for s, b, a, d, k, t in zip(shape[2:], p["before"], p["after"], p["dilation"], p["kernel"], p["stride"], strict=True)  # fmt: skip
    )
    x = images(seed, *shape, special=kind == "max")
    source, target = Blocked(*shape, halo).fill(x), Blocked(*shape[:2], *size, out_halo)
    ints = [shape[0], source.whole.shape[1], *shape[2:], *size, *p["kernel"], *p["stride"], *p["dilation"], *p["before"],
            *p["after"], int(p["include_pad"]), *source.strides, *target.strides]  # fmt: skip
    run(isa, f"{kind}_pool_blocked", [source.inner, target.inner], ints, (), splits)
    close(target.plain, pool_reference(x, kind, size, p))
    target.inner[...] = np.nan
    assert np.isnan(target.whole).all()


@every_isa
@given(seed=SEEDS, shape=IMAGE, halo=HALO, out_halo=HALO, splits=SPLITS)
def test_scale_shift(isa: str, seed: int, shape: tuple, halo: tuple, out_halo: tuple, splits: list[int]) -> None:
    x, vectors = images(seed, *shape, special=True), np.zeros((2, -(-shape[1] // 16) * 16), np.float32)
    vectors[:, : shape[1]] = images(seed + 1, 2, shape[1])
    source, target = Blocked(*shape, halo).fill(x), Blocked(*shape, out_halo)
    ints = [shape[0], source.whole.shape[1], *shape[2:], *source.strides, *target.strides]
    run(isa, "scale_shift_blocked", [source.inner, *vectors, target.inner], ints, [-0.5, 1.0], splits)
    scale, offset = vectors[:, : shape[1], None, None]
    close(target.plain, np.clip(x * scale.astype(np.float64) + offset, -0.5, 1.0))


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
@pytest.mark.parametrize("name", sorted(reduction.REDUCTIONS))
@given(seed=SEEDS, shape=SHAPES, splits=SPLITS, data=st.data())
def test_reduce(isa: str, name: str, seed: int, shape: tuple[int, ...], splits: list[int], data: st.DataObject) -> None:
    random = np.random.default_rng(seed)
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    source = strided(random, shape)
    source[...] = random.normal(size=shape)
    if random.random() < 0.3:
        source[random.random(shape) < 0.1] = random.choice([np.nan, np.inf, -np.inf])
    kept = tuple(s for i, s in enumerate(shape) if i not in axes)
    target = strided(random, kept) if kept else np.zeros((), np.float32)
    ints = reduction.reduce_ints(shape, axes, element_strides(source), element_strides(target))
    run(isa, f"reduce_{name}", [source, target], ints, (), splits)
    with np.errstate(invalid="ignore"):
        close(target, getattr(np, name)(source.astype(np.float64), axis=axes))


@every_isa
def test_sums_of_many_elements_are_accurate(isa: str) -> None:
    x = np.random.default_rng(0).normal(1, 1, (10_000, 48)).astype(np.float32)
    for axis in (0, 1):
        out = np.zeros(x.shape[1 - axis], np.float32)
        run(isa, "reduce_sum", [x, out], reduction.reduce_ints(x.shape, (axis,), (48, 1), (1,)))
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
@given(seed=SEEDS, shape=st.tuples(st.integers(1, 2), st.integers(1, 9), st.integers(1, 20)), splits=SPLITS,
       size=st.sampled_from([1, 3, 5]))  # fmt: skip
def test_lrn(isa: str, seed: int, shape: tuple, splits: list[int], size: int) -> None:
    x = images(seed, *shape)
    target = np.zeros_like(x)
    strides = element_strides(x)[:2]
    run(isa, "lrn", [x, target], [*shape, size, *strides, *strides], [0.3, 0.75, 2.0], splits)
    squares = np.pad(x.astype(np.float64) ** 2, ((0, 0), (size // 2, size // 2), (0, 0)))
    total = sum(squares[:, i : i + shape[1]] for i in range(size))
    close(target, x / (2 + 0.3 / size * total) ** 0.75)


@every_isa
@given(seed=SEEDS, groups=st.sampled_from([1, 2, 4, 8, 16]), ocg=st.sampled_from([1, 2, 5, 16, 24]),
       icg=st.sampled_from([1, 3, 8, 16, 20]), kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
       oc_tile=st.sampled_from([16, 32]), lanes=st.sampled_from([1, 16]), splits=SPLITS)  # fmt: skip
def test_pack_contraction(isa: str, seed: int, groups: int, ocg: int, icg: int, kernel: tuple, oc_tile: int, lanes: int, splits: list[int]) -> None:  # fmt: skip
    weights = strided(np.random.default_rng(seed), (groups * ocg, icg, *kernel))
    weights[...] = images(seed, *weights.shape)
    wanted = pack_weights_reference(weights, groups=groups, oc_tile=oc_tile, lanes=lanes)
    supers = super_groups(groups, groups * icg, groups * ocg, lanes)
    packed = np.full_like(wanted, np.nan)
    ints = [supers, groups // supers, ocg, icg, *kernel, oc_tile, lanes, *element_strides(weights)]
    run(isa, "pack_contraction", [weights, packed], ints, (), splits)
    np.testing.assert_array_equal(packed, wanted)


@every_isa
@given(seed=SEEDS, groups=st.integers(1, 3), channels=st.integers(1, 40), kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)), splits=SPLITS)  # fmt: skip
def test_pack_depthwise_and_channels(isa: str, seed: int, groups: int, channels: int, kernel: tuple, splits: list[int]) -> None:  # fmt: skip
    weights = images(seed, channels, 1, *kernel)
    wanted = pack_depthwise_reference(weights)
    packed = np.full_like(wanted, np.nan)
    taps = kernel[0] * kernel[1]
    run(isa, "pack_depthwise", [weights, packed], [channels, taps, taps, 1], (), splits)
    np.testing.assert_array_equal(packed, wanted)
    values = images(seed, groups * channels, 2)[:, 0]
    for oc_tile in (16, 32):
        wanted = pack_channels_reference(values, groups=groups, oc_tile=oc_tile)
        packed = np.full_like(wanted, np.nan)
        run(isa, "pack_channels", [values, packed], [groups, channels, oc_tile, 2], (), splits)
        np.testing.assert_array_equal(packed, wanted)


def test_registering_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="twice"):
        register(KernelRecord(name="relu", function=print, tasks=len, doc=""))


def test_strided_ints_merges_contiguous_dimensions() -> None:
    assert strided_ints((2, 3, 4), (12, 4, 1), (12, 4, 1))[:7] == [1, 24, 1, 1, 1, 1, 24]
    assert strided_ints((2, 3, 4), (12, 4, 1), (0, 4, 1))[:7] == [2, 12, 1, 1, 1, 2, 12]
    with pytest.raises(ValueError, match="dimensions remain"):
        strided_ints((2,) * 6, (32, 16, 8, 4, 2, 1), (1, 2, 4, 8, 16, 32))
