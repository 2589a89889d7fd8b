"""Every elementwise kernel, against NumPy, compiled for AVX2 and for the baseline."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_library import (
    SEEDS,
    SHAPES,
    SPECIAL,
    SPLITS,
    close,
    element_strides,
    every_isa,
    run,
    strided,
    widened,
)
from packing_references import round_bf16_reference

from ngraph_mxnet.ir.opdef import ops_of
from ngraph_mxnet.ops.elementwise import SCALARS
from ngraph_mxnet.targets.cpu.kernels import ALL_KERNELS
from ngraph_mxnet.targets.cpu.params.strided import CONVERTED, EXPRESSIONS, STRIDED, loops
from ngraph_mxnet.targets.cpu.params.strided import strided as strided_params

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _modulo(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(y == 0, 0, np.mod(x.astype(np.float32), y.astype(np.float32)))


UNARY = {
    "abs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
    "atan": np.arctan, "atanh": np.arctanh, "cbrt": np.cbrt, "ceiling": np.ceil, "cos": np.cos,
    "cosh": np.cosh, "erf": _erf, "exp": np.exp, "expm1": np.expm1, "floor": np.floor,
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / np.sqrt(2))), "identity": lambda x: x, "log": np.log,
    "log10": np.log10, "log1p": np.log1p, "log2": np.log2, "negative": np.negative,
    "reciprocal": np.reciprocal, "relu": lambda x: np.maximum(x, 0), "round": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": _sigmoid, "sign": np.sign, "sin": np.sin, "sinh": np.sinh,
    "silu": lambda x: x * _sigmoid(x),
    "softplus": lambda x: np.logaddexp(x, 0), "softsign": lambda x: x / (1 + np.abs(x)), "sqrt": np.sqrt,
    "square": np.square, "tan": np.tan, "tanh": np.tanh, "trunc": np.trunc,
    "clamp": lambda x: np.clip(x, -0.75, 6), "leaky_relu": lambda x: np.where(x > 0, x, 0.1 * x),
    "hard_swish": lambda x: x * np.clip(0.2 * x + 0.5, 0, 1) * 1.5 - 0.1,
    "elu": lambda x: np.where(x > 0, x, 0.7 * np.expm1(np.minimum(x, 0))),
}
PARAMETERS = {"clamp": (-0.75, 6.0), "leaky_relu": (0.1,), "elu": (0.7,), "hard_swish": (0.2, 0.5, 1.5, -0.1)}
BINARY = {
    "add": np.add, "divide": np.divide, "maximum": np.maximum, "minimum": np.minimum, "multiply": np.multiply,
    "power": np.power, "prelu": lambda x, slope: np.where(x > 0, x, x * slope), "subtract": np.subtract, "mod": _modulo,
    "gelu_gradient": lambda x, head: head * ((1 + _erf(x / np.sqrt(2))) / 2
                                             + x * np.exp(x * x * -0.5) / np.sqrt(2 * np.pi)),
}


def elementwise_case(
    random: np.random.Generator,
    shape: tuple[int, ...],
    values: list[np.ndarray],
    out: type,
    *,
    broadcast: bool,
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
    params = strided_params(name, arrays[0].shape, *map(element_strides, arrays), floats=PARAMETERS.get(name, ()),
                            grain=grain)
    run(isa, name, arrays, params, (), splits)


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
    names = {elements: {name for name, (taken, _) in STRIDED.items() if taken == elements and name in SCALARS}
             for elements in ("f32 f32", "f32 f32 f32", "f32 f32 bool")}
    assert [*names.values()] == [set(UNARY), set(BINARY), set(ops_of("comparison"))]


@every_isa
@pytest.mark.parametrize("name", sorted(name for name in EXPRESSIONS if name in UNARY or name in BINARY))
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
ULPS = {"exp": 2, "log": 2, "tanh": 4, "erf": 6, "sigmoid": 4, "expm1": 4, "log1p": 4, "softplus": 4}


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
def test_binary(
    isa: str, name: str, seed: int, shape: tuple[int, ...], splits: list[int], broadcast: bool
) -> None:
    random = np.random.default_rng(seed)
    values = np.r_[random.normal(size=60), SPECIAL].astype(np.float32)
    arrays, grain = elementwise_case(random, shape, [values] * 2, np.float32, broadcast=broadcast)
    run_elementwise(isa, name, arrays, grain, splits)
    with np.errstate(all="ignore"):
        close(arrays[2], BINARY[name](*(a.astype(np.float64) for a in arrays[:2])))


@every_isa
@pytest.mark.parametrize("name", ops_of("comparison"))
@given(seed=SEEDS, shape=SHAPES, splits=SPLITS, broadcast=st.booleans())
def test_comparison(
    isa: str, name: str, seed: int, shape: tuple[int, ...], splits: list[int], broadcast: bool
) -> None:
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
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
@given(seed=SEEDS, shape=SHAPES, splits=SPLITS)
def test_copy_and_fill(isa: str, dtype: type, seed: int, shape: tuple[int, ...], splits: list[int]) -> None:
    random = np.random.default_rng(seed)
    values = random.integers(-100, 100, 50).astype(dtype)
    arrays, grain = elementwise_case(random, shape, [values], dtype, broadcast=True)
    run_elementwise(isa, f"copy_{dtype().itemsize}", arrays, grain, splits)
    np.testing.assert_array_equal(*arrays)
    target = strided(random, shape, np.float32 if dtype is np.int32 else dtype)
    ints = [*loops(shape, element_strides(target), grain=grain).values()]
    run(isa, f"fill_{dtype().itemsize}", [target], ints, [-3.0], splits)
    assert (target == -3).all()


@every_isa
@given(seed=SEEDS, rows=st.integers(1, 70), columns=st.integers(1, 70), pages=st.integers(1, 2), gap=st.integers(0, 5),
       splits=SPLITS)
def test_copy_of_rows_pages_apart(isa: str, seed: int, rows: int, columns: int, pages: int, gap: int,
                                  splits: list[int]) -> None:
    """A transposed copy goes by squares, and leaves the gaps behind rows of the output alone."""
    source = np.random.default_rng(seed).integers(0, 2**32, (columns, 1024 * pages), dtype=np.uint32)[:, :rows]
    target = np.full((rows, columns + gap), 7, np.uint32)
    params = strided_params("copy_4", (rows, columns), (1, 1024 * pages), (columns + gap, 1), grain=512)
    run(isa, "copy_4", [source, target], params, (), splits)
    np.testing.assert_array_equal(target[:, :columns], source.T)
    assert (target[:, columns:] == 7).all()


DTYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "i32": np.int32,
    "i64": np.int64,
    "i8": np.int8,
    "u8": np.uint8,
    "bool": np.bool_,
}


@every_isa
@pytest.mark.parametrize("name", sorted(f"convert_{a}_{b}" for a in CONVERTED for b in CONVERTED if a != b))
@given(seed=SEEDS, shape=SHAPES, splits=SPLITS)
def test_convert(isa: str, name: str, seed: int, shape: tuple[int, ...], splits: list[int]) -> None:
    random = np.random.default_rng(seed)
    first, second = (DTYPES[n] for n in name.split("_")[1:])
    low = 0 if first in (np.uint8, np.bool_) or second is np.uint8 else -100
    values = (
        random.uniform(low, 100, 50) if first in (np.float32, np.float64) else random.integers(low, 100, 50)
    )
    values = np.r_[values, 0, 1].astype(first)
    arrays, grain = elementwise_case(random, shape, [values], second, broadcast=False)
    run_elementwise(isa, name, arrays, grain, splits)
    np.testing.assert_array_equal(arrays[1], arrays[0].astype(second))


@every_isa
@given(seed=SEEDS, shape=SHAPES, splits=SPLITS)
def test_convert_bf16(isa: str, seed: int, shape: tuple[int, ...], splits: list[int]) -> None:
    random = np.random.default_rng(seed)
    halfway = np.float32(1) + np.arange(-9, 9, dtype=np.float32) * np.float32(2**-8)
    values = np.r_[SPECIAL, halfway, random.normal(size=50)].astype(np.float32)
    arrays, grain = elementwise_case(random, shape, [values], np.uint16, broadcast=False)
    run_elementwise(isa, "convert_f32_bf16", arrays, grain, splits)
    np.testing.assert_array_equal(arrays[1], round_bf16_reference(arrays[0]))
    back = strided(random, shape, np.float32)
    run_elementwise(isa, "convert_bf16_f32", [arrays[1], back], grain, splits)
    np.testing.assert_array_equal(back, widened(arrays[1]))


def test_strided_ints_merges_contiguous_dimensions() -> None:
    assert [*loops((2, 3, 4), (12, 4, 1), (12, 4, 1)).values()][:7] == [1, 24, 1, 1, 1, 1, 24]
    assert [*loops((2, 3, 4), (12, 4, 1), (0, 4, 1)).values()][:7] == [2, 12, 1, 1, 1, 2, 12]
    with pytest.raises(ValueError, match="dimensions remain"):
        loops((2,) * 6, (32, 16, 8, 4, 2, 1), (1, 2, 4, 8, 16, 32))
