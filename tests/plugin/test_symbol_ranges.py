"""MXNet symbols that are compiled for ranges of sizes."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
import pytest

import ngraph_mxnet
from ngraph_mxnet.program.executable import InputError
from ngraph_mxnet.program.ranges import RangeExecutable

rng = np.random.default_rng(0)


def net() -> tuple[Any, dict[str, np.ndarray]]:
    x = mx.sym.var("data")
    y = mx.sym.Activation(mx.sym.Convolution(x, num_filter=16, kernel=(3, 3), pad=(1, 1), name="a"), act_type="relu")
    y = mx.sym.Convolution(y, num_filter=16, kernel=(3, 3), pad=(1, 1), name="b") + y
    y = mx.sym.Pooling(y, global_pool=True, pool_type="avg", kernel=(1, 1))
    symbol = mx.sym.FullyConnected(y, num_hidden=5, name="c")
    shapes = {"a_weight": (16, 3, 3, 3), "a_bias": (16,), "b_weight": (16, 16, 3, 3), "b_bias": (16,),
              "c_weight": (5, 16), "c_bias": (5,)}
    return symbol, {name: rng.standard_normal(shape, np.float32) / 8 for name, shape in shapes.items()}


def test_a_symbol_for_a_range() -> None:
    symbol, weights = net()
    run = ngraph_mxnet.compile(symbol, "CPU", weights=weights, shapes={"data": ("1..32", 3, "H", "W")})
    assert isinstance(run, RangeExecutable) and str(run.inputs[0]) == "data: f32[N,3,H,W]"
    for shape in ((2, 3, 20, 30), (32, 3, 8, 9), (1, 3, 33, 32)):
        x = rng.standard_normal(shape, np.float32)
        expected = ngraph_mxnet.compile(symbol, "CPU", weights=weights, shapes={"data": shape})(x)[0]
        np.testing.assert_allclose(run(x)[0], expected, rtol=1e-4, atol=1e-5)
    assert len(run.templates) == 1
    with pytest.raises(InputError, match=r"input 'data': found shape \(33, 3, 8, 8\), expected f32\[N,3,H,W\] with N"):
        run(np.zeros((33, 3, 8, 8), np.float32))


def test_states_whose_batch_is_open() -> None:
    """A cell begins with zeros of batch 0, for unknown, which MXNet infers."""
    cell = mx.rnn.LSTMCell(4, prefix="l_")
    symbol, _ = cell.unroll(2, mx.sym.var("data"), merge_outputs=True)
    shapes = {"l_i2h_weight": (16, 3), "l_i2h_bias": (16,), "l_h2h_weight": (16, 4), "l_h2h_bias": (16,)}
    weights = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    run = ngraph_mxnet.compile(symbol, "CPU", weights=weights, shapes={"data": ("1..4", 2, 3)})
    assert isinstance(run, RangeExecutable)
    for batch in (2, 4, 1):
        x = rng.standard_normal((batch, 2, 3), np.float32)
        given = {"data": x, **weights}
        bound = symbol.bind(mx.cpu(), {name: mx.nd.array(given[name]) for name in symbol.list_arguments()})
        np.testing.assert_allclose(run(x)[0], bound.forward()[0].asnumpy(), rtol=1e-5, atol=1e-6)
    assert len(run.templates) == 1
