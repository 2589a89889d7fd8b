"""The kernels of float64, int64 and float16, against NumPy and the ops' references."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_library import SEEDS, SHAPES, SPLITS, element_strides, every_isa, run, strided

from ngraph_mxnet.ir import element_type, get_op
from ngraph_mxnet.targets.cpu.params.layout import PRODUCT
from ngraph_mxnet.targets.cpu.params.record import by_name
from ngraph_mxnet.targets.cpu.params.reduction import REDUCE_CODES, REDUCE_WIDE, position, reduced
from ngraph_mxnet.targets.cpu.params.strided import WIDE_CODES
from ngraph_mxnet.targets.cpu.params.strided import strided as strided_params

F64 = np.r_[np.linspace(-3, 3, 41), 0.0, -0.0, 1e300, -1e300, np.inf, -np.inf, np.nan, 0.999999, -0.999999]
I64 = np.array([0, 1, -1, 2, -7, 100, 2**40, -(2**63), 2**63 - 1], np.int64)
VALUES = {"f64": F64, "i64": I64}
ATTRS = {"elu": {"alpha": 0.7}, "leaky_relu": {"slope": 0.1}}


def reference(name: str, arrays: list[np.ndarray]) -> np.ndarray:
    if name.endswith("_unsigned"):
        return reference(name.removesuffix("_unsigned"), [x.view(np.uint64) for x in arrays]).view(np.int64)
    op = get_op(name)
    with np.errstate(all="ignore"):
        return op.evaluate(arrays, op.check_attrs(ATTRS.get(name, {})))[0]


def elementwise(isa: str, kernel: str, arrays: list[np.ndarray], out: np.ndarray, floats: list[float],
                splits: list[int]) -> None:
    params = strided_params(kernel, out.shape, *map(element_strides, (*arrays, out)), floats=floats)
    run(isa, kernel, [*arrays, out], params, (), splits)


def drawn(random: np.random.Generator, shape: tuple[int, ...], element: str) -> np.ndarray:
    array = strided(random, shape, VALUES[element].dtype)
    array[...] = random.choice(VALUES[element], shape)
    return array


@every_isa
@pytest.mark.parametrize("element", ["f64", "i64"])
@given(seed=SEEDS, shape=SHAPES, splits=SPLITS)
def test_unary(isa: str, element: str, seed: int, shape: tuple[int, ...], splits: list[int]) -> None:
    random = np.random.default_rng(seed)
    for name, code in WIDE_CODES[f"unary_{element}"].items():
        x = drawn(random, shape, element)
        out = np.zeros(shape, x.dtype)
        parameter = next(iter(ATTRS.get(name, {"": 0.0}).values()))
        elementwise(isa, f"unary_{element}", [x], out, [code, parameter], splits)
        wanted = reference(name, [x])
        if name == "gamma":  # at -0 C says -inf and at -inf NaN; the reference of Python's math agrees but for signs
            out, wanted = np.abs(out), np.abs(wanted)
        np.testing.assert_allclose(out, wanted, rtol=1e-9 if element == "f64" else 0, atol=0, err_msg=name)


@every_isa
@pytest.mark.parametrize("kernel", ["binary_f64", "binary_i64", "compare_f64", "compare_i64"])
@given(seed=SEEDS, shape=SHAPES, splits=SPLITS)
def test_binary(isa: str, kernel: str, seed: int, shape: tuple[int, ...], splits: list[int]) -> None:
    random, element = np.random.default_rng(seed), kernel[-3:]
    for name, code in WIDE_CODES[kernel].items():
        x, y = drawn(random, shape, element), drawn(random, shape, element)
        out = np.zeros(shape, bool if kernel.startswith("compare") else x.dtype)
        number = np.broadcast_to(np.array(code, np.int64), shape)
        elementwise(isa, kernel, [number, x, y], out, [], splits)
        with np.errstate(all="ignore"):
            wanted = reference(name, [x, y])
        if name == "mod" and element == "f64":  # NumPy and C differ about infinite divisors
            keep = np.isfinite(x) & np.isfinite(y) & (np.abs(x) < 1e9) & (np.abs(y) < 1e9)
            out, wanted = out[keep], wanted[keep]
        np.testing.assert_allclose(out, wanted, rtol=1e-9 if element == "f64" else 0, atol=0, err_msg=name)


@every_isa
@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.int32, np.float64])
@given(seed=SEEDS, shape=SHAPES, splits=SPLITS)
def test_select(isa: str, dtype: type, seed: int, shape: tuple[int, ...], splits: list[int]) -> None:
    random = np.random.default_rng(seed)
    condition, x, y = random.integers(0, 2, shape).astype(bool), *random.integers(-9, 9, (2, *shape)).astype(dtype)
    out = np.zeros(shape, dtype)
    elementwise(isa, f"select_{out.itemsize}", [condition, x, y], out, [], splits)
    np.testing.assert_array_equal(out, np.where(condition, x, y))


@every_isa
def test_every_float16_is_widened_exactly(isa: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    out = np.zeros(every.shape, np.float32)
    elementwise(isa, "convert_f16_f32", [every], out, [], [1000])
    np.testing.assert_array_equal(out, every.astype(np.float32))


@every_isa
def test_float32_is_rounded_to_the_nearest_float16(isa: str) -> None:
    """Around every float16 and between neighbours, ties included, and everywhere at random."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    exact = every[np.isfinite(every)].astype(np.float32)
    order = np.sort(exact)
    between = (order[1:].astype(np.float64) + order[:-1]) / 2
    around = [np.nextafter(exact, np.float32(side)) for side in (-np.inf, np.inf)]
    ties = [np.nextafter(between.astype(np.float32), np.float32(side)) for side in (-np.inf, np.inf)]
    some = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, dtype=np.uint64).astype(np.uint32).view(np.float32)
    ends = [65519.99, 65520, 1e9, np.inf, -np.inf, np.nan]
    x = np.concatenate([np.asarray(part, np.float32) for part in (exact, between, *around, *ties, some, ends)])
    out = np.zeros(x.shape, np.float16)
    elementwise(isa, "convert_f32_f16", [x], out, [], [1000])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(out, x.astype(np.float16))


@every_isa
@pytest.mark.parametrize("element", ["f64", "i64"])
@given(seed=SEEDS, shape=SHAPES, splits=SPLITS, data=st.data())
def test_reductions(isa: str, element: str, seed: int, shape: tuple[int, ...], splits: list[int],
                    data: st.DataObject) -> None:
    random = np.random.default_rng(seed)
    axes = sorted(data.draw(st.sets(st.integers(0, len(shape) - 1)))) if shape else []
    x = strided(random, shape, VALUES[element].dtype)
    x[...] = random.integers(-4, 5, shape)
    for name, code in REDUCE_CODES.items():
        if name == "reduce_mean" and element == "i64":
            continue
        op = get_op(name)
        (wanted,) = op.evaluate([x], op.check_attrs({"axes": axes}))
        out = np.zeros(wanted.shape, x.dtype)
        params = reduced(REDUCE_WIDE, shape, axes, element_strides(x), element_strides(out), code=code)
        run(isa, f"reduce_{element}", [x, out], params, (), splits)
        np.testing.assert_allclose(out, wanted, rtol=1e-12, atol=1e-12)


@every_isa
@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("element", ["f64", "i64"])
def test_positions(isa: str, name: str, element: str) -> None:
    x = np.random.default_rng(0).choice(VALUES[element], (3, 7, 5))
    out = np.zeros((3, 5), np.int64)
    run(isa, f"{name}_{element}", [x, out], position(x.shape, 1), [], [2])
    np.testing.assert_array_equal(out, getattr(np, name)(x, axis=1))


@every_isa
@pytest.mark.parametrize(("source", "target"), [("i16", "i64"), ("u16", "i64"), ("u32", "i64"), ("i64", "i16"),
                                                ("u64", "f64"), ("u64", "f32"), ("f64", "u64")])
@given(seed=SEEDS, shape=SHAPES, splits=SPLITS)
def test_conversions(isa: str, source: str, target: str, seed: int, shape: tuple[int, ...], splits: list[int]) -> None:
    x = strided(np.random.default_rng(seed), shape, element_type(source).numpy)
    x[...] = np.random.default_rng(seed).integers(0, 1 << 63, shape, dtype=np.uint64).astype(x.dtype) \
        * x.dtype.type(2 if source == "u64" else 1)
    out = np.zeros(shape, element_type(target).numpy)
    elementwise(isa, f"convert_{source}_{target}", [x], out, [], splits)
    np.testing.assert_array_equal(out, x.astype(out.dtype))


@every_isa
@pytest.mark.parametrize("element", ["f64", "i64"])
@given(seed=SEEDS, sizes=st.tuples(*[st.integers(1, 5)] * 4), turned=st.booleans(), splits=SPLITS)
def test_products(isa: str, element: str, seed: int, sizes: tuple[int, ...], turned: bool, splits: list[int]) -> None:
    random, (batch, rows, inner, columns) = np.random.default_rng(seed), sizes
    a, b = (random.integers(-100, 100, shape).astype(VALUES[element].dtype)
            for shape in ((batch, rows, inner), (batch, inner, columns)))
    out = np.full((batch, rows, columns), 77, a.dtype)
    stored = np.ascontiguousarray(b.swapaxes(1, 2)) if turned else b
    last = (inner, 1) if turned else (1, columns)
    ints = PRODUCT(**by_name("batch rows inner columns", sizes), a=(rows * inner, inner, 1),
                   b=(inner * columns, *last))
    run(isa, f"product_{element}", [a, stored, out], ints, (), splits)
    np.testing.assert_array_equal(out, a @ b)
