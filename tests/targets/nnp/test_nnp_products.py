"""The grid's fast products equal their definitions, and these do not depend on how a contraction is tiled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngraph_mxnet.ir.opdef import get_op
from ngraph_mxnet.targets.nnp import functional
from ngraph_mxnet.targets.nnp.quantization import FORMATS

SIZES = st.sampled_from([1, 2, 3, 4, 5, 8, 17, 31, 33, 64])
DEPTHS = st.sampled_from([1, 2, 5, 31, 32, 33, 64, 100])
DEEP = st.sampled_from([1, 2, 100, 1023, 1024, 1025, 2500])
LEADING = st.sampled_from([((), ()), ((3,), (3,)), ((1,), (4,)), ((2, 1), (2, 3)), ((), (2,)), ((2,), ())])


def floats(rng: np.random.Generator, name: str, shape: tuple[int, ...], wild: bool) -> np.ndarray:
    """Numbers of a format as float32: near 1, or any bits at all."""
    format = FORMATS[name]
    if wild:
        bits = rng.integers(0, 1 << 16, shape, dtype=np.uint16)
        return format.to_float32(bits.view(format.storage))
    return format.to_float32(format.round_to(rng.normal(size=shape).astype(np.float32)))


def same(a: np.ndarray, b: np.ndarray) -> None:
    """Equal bits, but that one NaN is as good as another."""
    assert a.dtype == b.dtype and a.shape == b.shape
    if a.dtype.kind == "f":
        assert np.array_equal(np.isnan(a), np.isnan(b))
        a, b = np.nan_to_num(a, nan=1.0).view(np.uint32), np.nan_to_num(b, nan=1.0).view(np.uint32)
    np.testing.assert_array_equal(a, b)


def defined_integer_product(a: np.ndarray, b: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    """start + a b in int32, which wraps, of i8 numbers."""
    sums = np.matmul(a.astype(np.int32), b.astype(np.int32))
    return sums if start is None else start + sums


def defined_float_product(a: np.ndarray, b: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    """start + a b in float32, of float32 numbers, added in the order of k."""
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    total = np.zeros(shape, np.float32) if start is None else start
    with np.errstate(all="ignore"):
        for k in range(a.shape[-1]):
            total = total + a[..., :, k, None] * b[..., k, None, :]
    return total


@settings(max_examples=25, deadline=None)
@given(
    LEADING, SIZES, DEPTHS, SIZES, st.sampled_from(["f16", "bf16"]), st.booleans(), st.booleans(), st.integers(0, 99)
)
def test_float_products_equal_their_definition(leading, rows, depth, columns, name, wild, started, seed):
    rng = np.random.default_rng(seed)
    a = floats(rng, name, (*leading[0], rows, depth), wild)
    b = floats(rng, name, (*leading[1], depth, columns), wild)
    shape = (*np.broadcast_shapes(*leading), rows, columns)
    start = rng.normal(size=shape).astype(np.float32) if started else None
    same(np.ascontiguousarray(functional.float_product(a, b, start)), defined_float_product(a, b, start))


@settings(max_examples=40, deadline=None)
@given(LEADING, SIZES, DEEP, SIZES, st.booleans(), st.sampled_from(["random", "least"]), st.integers(0, 99))
def test_integer_products_equal_their_definition(leading, rows, depth, columns, started, kind, seed):
    """Also where all products are 2**14, the largest, and where int32 wraps."""
    rng = np.random.default_rng(seed)

    def numbers(shape):
        return rng.integers(-128, 128, shape, dtype=np.int8) if kind == "random" else np.full(shape, -128, np.int8)

    a, b = numbers((*leading[0], rows, depth)), numbers((*leading[1], depth, columns))
    shape = (*np.broadcast_shapes(*leading), rows, columns)
    start = rng.integers(-(2**31), 2**31, shape, dtype=np.int64).astype(np.int32) if started else None
    fast = functional.integer_product(a.astype(np.float32), b.astype(np.float32), start)
    if fast.dtype == np.float32:
        assert np.abs(fast).max() <= 2**24
        fast = fast.astype(np.int32)
    same(fast, defined_integer_product(a, b, start))


@settings(max_examples=30, deadline=None)
@given(SIZES, DEPTHS, SIZES, st.data())
def test_tiles_of_a_float_product_give_its_bits(rows, depth, columns, data):
    """Rows and columns cut anywhere; K cut anywhere and continued in order."""
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    a, b = floats(rng, "bf16", (rows, depth), False), floats(rng, "bf16", (depth, columns), False)
    i, j, k = (data.draw(st.integers(0, size)) for size in (rows, columns, depth))
    pieces = [
        [
            functional.float_product(a[r, k:], b[k:, c], functional.float_product(a[r, :k], b[:k, c]))
            for c in (slice(j), slice(j, None))
        ]
        for r in (slice(i), slice(i, None))
    ]
    same(np.block(pieces), functional.float_product(a, b))


@st.composite
def convolutions(draw):
    """(data's shape, weights' shape, attributes)"""
    rank, groups = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 2, 3]))
    inner, outer = draw(st.sampled_from([1, 2, 5, 16])), draw(st.sampled_from([1, 3, 8]))
    per_axis = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(rank))  # noqa: E731
    kernel, dilations = per_axis(1, 3), per_axis(1, 2)
    begins, ends = per_axis(0, 2), per_axis(0, 2)
    sizes = tuple(
        max(d * (k - 1) + 1 - b - e, 1) + draw(st.integers(0, 6))
        for k, d, b, e in zip(kernel, dilations, begins, ends, strict=True)
    )
    attrs = {
        "strides": per_axis(1, 3),
        "dilations": dilations,
        "pads_begin": begins,
        "pads_end": ends,
        "groups": groups,
    }
    return (draw(st.integers(1, 3)), groups * inner, *sizes), (groups * outer, inner, *kernel), attrs


@settings(max_examples=60, deadline=None)
@given(convolutions(), st.sampled_from(["i8", "f16", "bf16"]), st.booleans(), st.integers(0, 99))
def test_convolutions_equal_the_definition_and_the_op(case, name, started, seed):
    shape, weights_shape, attrs = case
    rng = np.random.default_rng(seed)
    if name == "i8":
        data, weights = (rng.integers(-128, 128, s).astype(np.float32) for s in (shape, weights_shape))
        fast, plain = functional.integer_product, defined_integer_product
    else:
        data, weights = floats(rng, name, shape, False), floats(rng, name, weights_shape, False)
        fast, plain = functional.float_product, defined_float_product
    op = get_op("convolution")
    (expected,) = op.evaluate([data.astype(np.float64), weights.astype(np.float64)],
                              op.check_attrs({**attrs, "data_dilations": (1,) * (len(shape) - 2)}))
    start = None
    if started:
        start = rng.integers(-99, 99, expected.shape).astype(np.int32 if name == "i8" else np.float32)
        expected = expected + start
    found = np.stack(list(functional.convolution(data, weights, attrs, fast, start)))
    if name == "i8":
        data, weights = data.astype(np.int8), weights.astype(np.int8)
        found = found.astype(np.int32)
    defined = np.stack(list(functional.convolution(data, weights, attrs, plain, start)))
    same(found, defined)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("element", ["i8", "f16", "bf16", "f32"])
def test_finish_is_each_operation_rounded_to_float32(element):
    rng = np.random.default_rng(0)
    sums = rng.integers(-40000, 40000, (4, 50)).astype(np.int32)
    scale, bias = rng.uniform(1e-4, 1e-3, (4, 1)).astype(np.float32), rng.normal(size=(4, 1)).astype(np.float32)
    residual = rng.integers(-128, 128, (4, 50)).astype(np.float32)
    found = functional.finish(
        sums,
        element,
        scale=scale,
        bias=bias,
        residual=residual,
        residual_scale=0.3,
        lower=-2.0,
        upper=6.0,
        out_scale=0.05,
    )
    f = np.float32
    for index in np.ndindex(*sums.shape):
        row = (index[0], 0)
        value = f(f(f(f(sums[index]) * scale[row]) + bias[row]) + f(residual[index] * f(0.3)))
        value = np.minimum(np.maximum(value, f(-2.0)), f(6.0))
        stored = FORMATS[element].round_to(np.array([value / f(0.05) if element == "i8" else value], np.float32))
        assert found[index] == stored[0]


def test_a_bound_of_zero_gives_plus_zero():
    for length in range(1, 40):  # vectors and what is left over
        values = np.full(length, -0.0, np.float32)
        assert not np.signbit(functional.finish(values.copy(), "f16", lower=0.0)).any()
        assert not np.signbit(functional.finish(values.copy(), "f32", upper=0.0, lower=-1.0)).any()
