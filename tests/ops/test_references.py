"""The references against other ways to compute the same: loops, identities, worked values."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from ngraph_mxnet.ir import all_ops, get_op
from ngraph_mxnet.ir.types import ELEMENT_TYPES, TensorType
from ngraph_mxnet.ops.elementwise import SCALARS

UNARY = [name for name, op in SCALARS.items()
         if op.least == 1 and op.kind == "arithmetic" and "f" in op.domain and not op.schema]
BINARY = [name for name, op in SCALARS.items() if op.least == 2]

def evaluate(op_name: str, *inputs, **attrs):
    """The op's only result; its type is checked against the type rule."""
    op = get_op(op_name)
    arrays = [np.asarray(a) for a in inputs]
    types = [
        TensorType(next(e for e in ELEMENT_TYPES.values() if e.numpy == a.dtype), a.shape) for a in arrays
    ]
    checked = op.complete(types, op.check_attrs(attrs))
    (type_,) = op.infer(types, checked)
    (result,) = op.evaluate(arrays, checked)
    assert (result.shape, result.dtype) == (type_.shape, type_.element.numpy)
    return result


def f32(*values) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize("op", all_ops())
def test_every_op_says_what_it_computes(op: str):
    assert all_ops()[op].doc
    assert all_ops()[op].has_reference


def test_commutative_ops():
    found = {name for name, op in all_ops().items() if op.commutative}
    assert found == {
        "add",
        "multiply",
        "maximum",
        "minimum",
        "equal",
        "not_equal",
        "logical_and",
        "logical_or",
        "logical_xor",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
    }


@pytest.mark.parametrize("op", UNARY)
def test_unary_ops_keep_rank_0_and_f16(op: str):
    for dtype in (np.float16, np.float32, np.float64):
        exact = evaluate(op, np.float64(0.75))
        found = evaluate(op, np.array(0.75, dtype))
        if not np.isnan(exact):
            np.testing.assert_allclose(found, exact, rtol={2: 2e-3, 4: 1e-6, 8: 1e-12}[found.dtype.itemsize])


@pytest.mark.parametrize("op", UNARY)
def test_unary_ops_keep_nan(op: str):
    assert np.isnan(evaluate(op, f32(np.nan))).all()


@pytest.mark.parametrize("op", ["relu", "leaky_relu", "elu", "maximum", "minimum", "clamp"])
def test_activations_keep_nan(op: str):
    inputs = [f32(np.nan, -1, 5), f32(0)][: get_op(op).least]
    attrs = {"lower": 0, "upper": 2} if op == "clamp" else {}
    found = evaluate(op, *inputs, **attrs)
    assert np.isnan(found).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("op", "x", "expected"),
    [
        ("round", f32(0.5, 1.5, -0.5, 2.5, -1.5), [0, 2, -0.0, 2, -2]),
        ("trunc", f32(-1.7, 1.7), [-1, 1]),
        ("cbrt", f32(-8, 27), [-2, 3]),
        ("softplus", f32(-1000, 1000), [0, 1000]),
        ("sigmoid", f32(-1000, 0, 1000), [0, 0.5, 1]),
        ("erf", f32(-10, 0, 10), [-1, 0, 1]),
        ("gelu", f32(0, 1), [0, 0.5 * (1 + math.erf(math.sqrt(0.5)))]),
        ("silu", f32(-1000, 0, 1, 1000), [0, 0, 1 / (1 + math.exp(-1)), 1000]),
        ("negative", np.array([1, 0], np.uint8), [255, 0]),
        ("abs", np.array([-128, -3], np.int8), [-128, 3]),
        ("log", f32(0, 1), [-np.inf, 0]),
    ],
)
def test_worked_values(op, x, expected):
    np.testing.assert_allclose(evaluate(op, x), expected, rtol=1e-6)


def test_integer_division_truncates_and_survives_zero():
    a, b = np.array([-7, 7, -7, -128, 5], np.int8), np.array([2, -2, -2, -1, 0], np.int8)
    assert evaluate("divide", a, b).tolist() == [-3, -3, 3, -128, 0]
    large = np.array([2**63 - 1, -(2**63)], np.int64)
    assert evaluate("divide", large, np.array([3, 3])).tolist() == [(2**63 - 1) // 3, -(2**63 // 3)]


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
def test_mod_takes_the_divisors_sign(dtype):
    a, b = np.array([7, -7, 7, -7, 5], dtype), np.array([3, 3, -3, -3, 0], dtype)
    assert evaluate("mod", a, b).tolist() == [1, 2, -2, -1, 0]


@pytest.mark.parametrize("op", BINARY)
def test_binary_ops_broadcast(op: str):
    dtype = bool if op.startswith("logical") else np.int32 if op.startswith("bitwise") else np.float32
    assert evaluate(op, np.ones((3, 1, 4), dtype), np.ones((2, 1), dtype)).shape == (3, 2, 4)


@pytest.mark.parametrize("element", [e for e in ELEMENT_TYPES.values() if e.numpy.kind in "iu"], ids=str)
def test_arithmetic_of_integers_keeps_the_element_type(element):
    """Scalars too, of which NumPy 1 would make int64, and of those of uint64 nothing at all."""
    for op in BINARY:
        if SCALARS[op].kind == "arithmetic" and element.numpy.kind in SCALARS[op].domain:
            assert evaluate(op, element.numpy.type(3), element.numpy.type(1)).dtype == element.numpy


def test_clamp_of_integers_rounds_inwards():
    x = np.array([-5, 0, 1, 2, 3], np.int64)
    assert evaluate("clamp", x, lower=-0.5, upper=2.5).tolist() == [0, 0, 1, 2, 2]
    assert evaluate("clamp", np.array([0, 255], np.uint8), lower=-3, upper=math.inf).tolist() == [0, 255]
    big = np.array([2**62 + 1], np.int64)
    assert evaluate("clamp", big, lower=-math.inf, upper=math.inf).tolist() == [2**62 + 1]


def test_reductions():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert evaluate("reduce_sum", x, axes=(-1, 0)).tolist() == [60, 92, 124]
    assert evaluate("reduce_mean", x, axes=(0, 1, 2), keep_dims=True).tolist() == [[[11.5]]]
    np.testing.assert_array_equal(evaluate("reduce_max", x, axes=()), x)
    assert evaluate("argmax", f32(1, np.nan, 3), axis=0) == 1
    assert evaluate("argmin", f32(2, 1, 1), axis=-1, keep_dims=True).tolist() == [1]
    assert evaluate("reduce_prod", np.zeros((0, 2), np.float32), axes=(0,)).tolist() == [1, 1]
    assert evaluate("reduce_sum", np.full(3, 100, np.int8), axes=(0,)) == 44


def test_slices():
    x = np.arange(12).reshape(3, 4)
    found = evaluate("slice", x, begin=(2, 3), end=(-1, 0), strides=(-2, -1))
    np.testing.assert_array_equal(found, x[::-2, 3:0:-1])
    assert found.flags.c_contiguous
    assert evaluate("slice", x, begin=(1, 2), end=(1, 4)).shape == (0, 2)


def test_gather_clips():
    x = np.arange(6).reshape(2, 3)
    indices = np.array([[-1, 0], [2, 9]], np.int32)
    assert evaluate("gather", x, indices, axis=1).tolist() == [[[0, 0], [2, 2]], [[3, 3], [5, 5]]]


def test_pads():
    x = f32(1, 2, 3)
    assert evaluate("pad", x, pads_begin=(2,), pads_end=(1,), mode="reflect").tolist() == [3, 2, 1, 2, 3, 2]
    assert evaluate("pad", x, pads_begin=(2,), pads_end=(1,), mode="edge").tolist() == [1, 1, 1, 2, 3, 3]
    assert evaluate("pad", x, pads_end=(1,), value=7).tolist() == [1, 2, 3, 7]


@pytest.mark.parametrize(
    ("groups", "strides", "dilations"), [(1, (1, 1), (1, 1)), (2, (2, 1), (1, 2)), (4, (1, 3), (2, 1))]
)
def test_convolution_is_its_formula(groups, strides, dilations):
    rng = np.random.default_rng(0)
    data, weights = rng.normal(size=(2, 4, 5, 6)), rng.normal(size=(8, 4 // groups, 2, 3))
    begin, end = (1, 0), (2, 1)
    found = evaluate(
        "convolution",
        data,
        weights,
        strides=strides,
        dilations=dilations,
        pads_begin=begin,
        pads_end=end,
        groups=groups,
    )
    for n, o, y, x in np.ndindex(*found.shape):
        total = 0.0
        for c, ky, kx in np.ndindex(*weights.shape[1:]):
            row = y * strides[0] + ky * dilations[0] - begin[0]
            column = x * strides[1] + kx * dilations[1] - begin[1]
            if 0 <= row < 5 and 0 <= column < 6:
                channel = o // (8 // groups) * (4 // groups) + c
                total += data[n, channel, row, column] * weights[o, c, ky, kx]
        assert math.isclose(found[n, o, y, x], total, abs_tol=1e-12)


@pytest.mark.parametrize(("rounding", "include_pad"), list(product(["floor", "ceil"], [True, False])))
def test_pools_are_their_definition(rounding, include_pad):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 2, 7))  # padded 8: windows start at -1, 1, 3 and, with ceil, 5
    attrs = {"kernel": (3,), "strides": (2,), "pads_begin": (1,), "pads_end": (0,), "rounding": rounding}
    greatest, mean = (
        evaluate("max_pool", x, **attrs),
        evaluate("avg_pool", x, **attrs, include_pad=include_pad),
    )
    assert mean.shape[2] == {"floor": 3, "ceil": 4}[rounding]
    for i in range(mean.shape[2]):
        start, stop = 2 * i - 1, min(2 * i + 2, 7)
        window = x[:, :, max(start, 0) : stop]
        np.testing.assert_allclose(greatest[:, :, i], window.max(axis=2))
        count = stop - start if include_pad else window.shape[2]
        np.testing.assert_allclose(mean[:, :, i], window.sum(axis=2) / count)


def test_lrn_is_its_formula():
    x = np.random.default_rng(0).normal(size=(2, 5, 3))
    found = evaluate("lrn", x, size=3, alpha=0.3, beta=0.5, bias=1.5)
    for c in range(5):
        total = np.square(x[:, max(c - 1, 0) : c + 2]).sum(axis=1)
        np.testing.assert_allclose(found[:, c], x[:, c] / np.sqrt(1.5 + 0.1 * total))


def test_softmax_of_large_values():
    np.testing.assert_allclose(evaluate("softmax", f32(1e4, 1e4, -1e4)), [0.5, 0.5, 0])
    np.testing.assert_allclose(evaluate("log_softmax", f32(1e4, 1e4)), [-math.log(2)] * 2, rtol=1e-6)


def test_f16_is_computed_in_f32():
    x = np.full((1, 4096), 1.0, np.float16)
    assert evaluate("matmul", x, x, transpose_b=True) == 4096  # an f16 sum sticks at 2048
    large = np.full((1, 2), 300.0, np.float16)
    assert evaluate("lrn", large, size=1, alpha=1.0, beta=0.5, bias=0.0).tolist() == [[1.0, 1.0]]


def test_fused_ops_are_the_ops_they_stand_for():
    rng = np.random.default_rng(0)
    x, w, bias = rng.normal(size=(2, 3, 5, 5)), rng.normal(size=(4, 3, 3, 3)), rng.normal(size=4)
    attrs = {"strides": (2, 2), "pads_begin": (1, 1), "pads_end": (1, 1)}
    core = evaluate("convolution", x, w, **attrs)
    total = evaluate("add", core, bias.reshape(4, 1, 1))
    np.testing.assert_allclose(
        evaluate("convolution", x, w, bias, **attrs, lower=0), np.maximum(total, 0)
    )
    both = evaluate("convolution", x, w, bias, core, **attrs, lower=-1, upper=1)
    np.testing.assert_allclose(both, np.clip(total + core, -1, 1))
    scaled = evaluate("scale_shift", total, bias, bias, upper=0.5)
    np.testing.assert_allclose(scaled, np.minimum(total * bias.reshape(4, 1, 1) + bias.reshape(4, 1, 1), 0.5))
    op = get_op("convolution")
    first, second = op.evaluate(
        [x, w, bias, core, bias, bias],
        op.check_attrs({**attrs, "dilations": (1, 1), "data_dilations": (1, 1), "lower": -1, "upper": 1, "lower2": 0}),
    )
    np.testing.assert_allclose(first, both)
    np.testing.assert_allclose(second, evaluate("scale_shift", both, bias, bias, lower=0))
    a, b = rng.normal(size=(2, 3)), rng.normal(size=(4, 3))
    np.testing.assert_allclose(
        evaluate("matmul", a, b, bias, transpose_b=True, lower=0), np.maximum(a @ b.T + bias, 0)
    )
