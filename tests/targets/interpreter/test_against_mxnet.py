"""The references against native MXNet."""

from __future__ import annotations

from itertools import product

import mxnet as mx
import numpy as np
import pytest

from ngraph_mxnet.ir import Builder
from ngraph_mxnet.program.compile import compile


def run(op: str, *arrays: np.ndarray, **attrs) -> np.ndarray:
    b = Builder(name=op)
    operands = [b.parameter(f"x{i}", a.shape, b.constant(a).type.element) for i, a in enumerate(arrays)]
    (result,) = compile(b.results(b.apply(op, *operands, **attrs)), "INTERPRETER")(*arrays)
    return result


def nd(array: np.ndarray):
    return mx.nd.array(array, dtype=array.dtype)


def data(*shape: int, seed: int = 0, low: float = -2, high: float = 2) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def agree(found: np.ndarray, expected, tolerance: float = 1e-5) -> None:
    expected = expected.asnumpy()
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("rank", "groups", "stride", "dilation", "pad"),
    [(1, 1, 2, 1, 1), (2, 1, 1, 1, 0), (2, 2, 2, 1, 1), (2, 4, 1, 2, 2), (3, 1, 2, 1, 1)],
)
def test_convolution(rank, groups, stride, dilation, pad):
    x, w, bias = data(2, 4, *[7] * rank), data(8, 4 // groups, *[3] * rank, seed=1), data(8, seed=2)
    found = run(
        "convolution",
        x,
        w,
        bias,
        strides=[stride] * rank,
        dilations=[dilation] * rank,
        pads_begin=[pad] * rank,
        pads_end=[pad] * rank,
        groups=groups,
    )
    agree(
        found,
        mx.nd.Convolution(
            nd(x),
            nd(w),
            nd(bias),
            kernel=(3,) * rank,
            stride=(stride,) * rank,
            dilate=(dilation,) * rank,
            pad=(pad,) * rank,
            num_group=groups,
            num_filter=8,
        ),
    )


_POOLS = [
    (rank, k, s, p, size)
    for rank, (k, s, p, size) in product(
        (1, 2, 3), [(2, 2, 0, 7), (3, 2, 1, 8), (3, 2, 0, 6), (3, 1, 1, 5), (4, 3, 1, 7)]
    )
]


@pytest.mark.parametrize(("rounding", "convention"), [("floor", "valid"), ("ceil", "full")])
@pytest.mark.parametrize(("rank", "kernel", "stride", "pad", "size"), _POOLS)
def test_pools(rank, kernel, stride, pad, size, rounding, convention):
    x = data(2, 3, *[size] * rank)
    ours = {
        "kernel": [kernel] * rank,
        "strides": [stride] * rank,
        "pads_begin": [pad] * rank,
        "pads_end": [pad] * rank,
        "rounding": rounding,
    }
    theirs = {
        "kernel": (kernel,) * rank,
        "stride": (stride,) * rank,
        "pad": (pad,) * rank,
        "pooling_convention": convention,
    }
    agree(run("max_pool", x, **ours), mx.nd.Pooling(nd(x), pool_type="max", **theirs))
    for include in (True, False):
        agree(
            run("avg_pool", x, **ours, include_pad=include),
            mx.nd.Pooling(nd(x), pool_type="avg", count_include_pad=include, **theirs),
        )


def test_batch_norm():
    x = data(2, 5, 3, 4)
    gamma, beta, mean, variance = (data(5, seed=s, low=0.2) for s in range(1, 5))
    found = run("batch_norm", x, gamma, beta, mean, variance, epsilon=1e-3)
    agree(
        found,
        mx.nd.BatchNorm(
            nd(x),
            nd(gamma),
            nd(beta),
            nd(mean),
            nd(variance),
            eps=1e-3,
            fix_gamma=False,
            use_global_stats=True,
        ),
    )


def test_layer_norm():
    x, gamma, beta = data(2, 5, 6), data(5, seed=1), data(5, seed=2)
    agree(
        run("layer_norm", x, gamma, beta, axis=1, epsilon=1e-3),
        mx.nd.LayerNorm(nd(x), nd(gamma), nd(beta), axis=1, eps=1e-3),
    )


def test_lrn():
    x = data(2, 7, 3, 3)
    agree(
        run("lrn", x, size=5, alpha=0.1, beta=0.6, bias=1.5),
        mx.nd.LRN(nd(x), nsize=5, alpha=0.1, beta=0.6, knorm=1.5),
    )


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax(axis):
    x = data(3, 4, 5)
    agree(run("softmax", x, axis=axis), mx.nd.softmax(nd(x), axis=axis))
    agree(run("log_softmax", x, axis=axis), mx.nd.log_softmax(nd(x), axis=axis))


def test_fully_connected():
    x, w, bias = data(3, 6), data(4, 6, seed=1), data(4, seed=2)
    agree(
        run("matmul", x, w, bias, transpose_b=True),
        mx.nd.FullyConnected(nd(x), nd(w), nd(bias), num_hidden=4),
    )


@pytest.mark.parametrize(("transpose_a", "transpose_b"), list(product([False, True], [False, True])))
def test_batched_matmul(transpose_a, transpose_b):
    a = data(2, 5, 3) if transpose_a else data(2, 3, 5)
    b = data(2, 4, 5, seed=1) if transpose_b else data(2, 5, 4, seed=1)
    agree(
        run("matmul", a, b, transpose_a=transpose_a, transpose_b=transpose_b),
        mx.nd.batch_dot(nd(a), nd(b), transpose_a=transpose_a, transpose_b=transpose_b),
    )


# our op: MXNet's name where it differs
_UNARY = dict.fromkeys(
    [
        "abs",
        "cbrt",
        "cos",
        "cosh",
        "erf",
        "exp",
        "expm1",
        "floor",
        "negative",
        "reciprocal",
        "relu",
        "sigmoid",
        "sign",
        "sin",
        "sinh",
        "softsign",
        "square",
        "tan",
        "tanh",
        "trunc",
    ]
)
_UNARY |= {"atan": "arctan", "asinh": "arcsinh", "ceiling": "ceil", "round": "rint"}


@pytest.mark.parametrize("op", _UNARY)
def test_unary(op):
    x = data(3, 7)
    agree(run(op, x), getattr(mx.nd, _UNARY[op] or op)(nd(x)))


@pytest.mark.parametrize("op", ["log", "log10", "log1p", "log2", "rsqrt", "sqrt"])
def test_unary_of_positive(op):
    x = data(3, 7, low=0.1)
    agree(run(op, x), getattr(mx.nd, op)(nd(x)))


@pytest.mark.parametrize(("op", "native"), [("acos", "arccos"), ("asin", "arcsin"), ("atanh", "arctanh")])
def test_unary_within_one(op, native):
    x = data(3, 7, low=-0.95, high=0.95)
    agree(run(op, x), getattr(mx.nd, native)(nd(x)))


@pytest.mark.parametrize(
    ("op", "act", "attrs"),
    [("leaky_relu", "leaky", {"slope": 0.3}), ("elu", "elu", {"alpha": 0.3}), ("gelu", "gelu", {})],
)
def test_leaky_family(op, act, attrs):
    x = data(3, 7)
    agree(run(op, x, **attrs), mx.nd.LeakyReLU(nd(x), act_type=act, slope=0.3))


def test_softplus_and_clamp():
    x = data(3, 7)
    agree(run("softplus", x), mx.nd.Activation(nd(x), act_type="softrelu"))
    agree(run("clamp", x, lower=-1, upper=0.5), mx.nd.clip(nd(x), -1, 0.5))


@pytest.mark.parametrize(
    ("op", "native"),
    [
        ("add", "broadcast_add"),
        ("subtract", "broadcast_sub"),
        ("multiply", "broadcast_mul"),
        ("divide", "broadcast_div"),
        ("maximum", "broadcast_maximum"),
        ("minimum", "broadcast_minimum"),
        ("mod", "broadcast_mod"),
    ],
)
def test_binary(op, native):
    a, b = data(2, 3, 4), data(2, 1, 4, seed=1)
    agree(run(op, a, b), getattr(mx.nd, native)(nd(a), nd(b)), 1e-4)


def test_mod_by_zero_and_signs():
    a, b = np.float32([5, -5, 5, -5, 3]), np.float32([3, 3, -3, -3, 0])
    agree(run("mod", a, b), mx.nd.broadcast_mod(nd(a), nd(b)))


def test_power():
    a, b = data(3, 4, low=0.1), data(4, seed=1)
    agree(run("power", a, b), mx.nd.broadcast_power(nd(a), nd(b.reshape(1, 4))))


@pytest.mark.parametrize(
    ("op", "native"),
    [
        ("reduce_sum", "sum"),
        ("reduce_mean", "mean"),
        ("reduce_prod", "prod"),
        ("reduce_max", "max"),
        ("reduce_min", "min"),
    ],
)
def test_reductions(op, native):
    x = data(2, 3, 4)
    agree(run(op, x, axes=(0, 2), keep_dims=True), getattr(mx.nd, native)(nd(x), axis=(0, 2), keepdims=True))


def test_movement():
    x = data(2, 3, 4, 5)
    agree(run("transpose", x, order=(0, 2, 3, 1)), mx.nd.transpose(nd(x), axes=(0, 2, 3, 1)))
    for mode in ("constant", "edge", "reflect"):
        agree(
            run("pad", x, pads_begin=(0, 0, 1, 2), pads_end=(0, 0, 2, 1), mode=mode, value=3),
            mx.nd.pad(nd(x), mode=mode, pad_width=(0, 0, 0, 0, 1, 2, 2, 1), constant_value=3),
        )
    agree(
        run("slice", x, begin=(0, 2, 1, 4), end=(2, -1, 4, 0), strides=(1, -1, 2, -2)),
        mx.nd.slice(nd(x), begin=(0, None, 1, 4), end=(2, None, 4, 0), step=(1, -1, 2, -2)),
    )
    indices = np.array([[-3, 1], [9, 0]], np.int32)
    agree(run("gather", x, indices, axis=1), mx.nd.take(nd(x), nd(indices), axis=1, mode="clip"))
