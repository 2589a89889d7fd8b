"""Gluon blocks behind a `Batcher`: NumPy's arrays in and out, in any thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from mxnet_helpers import backend, mx, needs_library

from mxnet.gluon import nn  # isort: skip  # the helpers make it importable
from ngraph_mxnet import Batcher

pytestmark = needs_library


def make_net() -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(nn.Dense(6, in_units=5, activation="relu"), nn.Dense(3, in_units=6))
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    return net


@pytest.mark.parametrize("value", [None, "NGRAPH"])
def test_a_block(value: str | None) -> None:
    with backend(value):
        net = make_net()
        inputs = [np.random.default_rng(n).normal(size=(1 + n % 3, 5)).astype(np.float32) for n in range(40)]
        expected = [net(mx.nd.array(x)).asnumpy() for x in inputs]
        with Batcher(net, example=inputs[0]) as batcher, ThreadPoolExecutor(8) as pool:
            for found, wanted in zip(pool.map(batcher, inputs), expected, strict=True):
                assert type(found) is np.ndarray
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(batcher(mx.nd.array(inputs[0])), expected[0], rtol=1e-5, atol=1e-6)


def test_a_block_of_numpy_arrays() -> None:
    mx.npx.set_np()
    try:
        net = nn.Lambda(lambda x: mx.np.add(x, 1))  # refuses NDArrays
        batcher = Batcher(net)
        with ThreadPoolExecutor(2) as pool:
            found = pool.submit(batcher, np.ones((3, 2), np.float32)).result(60)
        np.testing.assert_array_equal(found, np.full((3, 2), 2, np.float32))
    finally:
        mx.npx.reset_np()
