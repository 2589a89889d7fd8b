"""What training steps save with NGRAPH_REMATERIALIZE, and what `report` says of it."""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd
from mxnet.gluon import nn

import ngraph_mxnet
from ngraph_mxnet.plugin.training.steps import Step, types_of

SHARES = ("0", "0.4", "1")


@pytest.fixture(autouse=True)
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NGRAPH")
    monkeypatch.setenv("NGRAPH_TRAINING", "1")


def images() -> mx.sym.Symbol:
    x = mx.sym.Convolution(mx.sym.var("data"), num_filter=32, kernel=(3, 3), pad=(1, 1), no_bias=True, name="first")
    for number in range(6):
        y = mx.sym.Activation(mx.sym.BatchNorm(x, name=f"norm{number}"), act_type="relu")
        y = mx.sym.Convolution(y, num_filter=32, kernel=(3, 3), pad=(1, 1), no_bias=True, name=f"conv{number}")
        x = x + mx.sym.Dropout(y, p=0.2)
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=5, name="last"), name="softmax")


def words() -> mx.sym.Symbol:
    cells = mx.rnn.SequentialRNNCell()
    cells.add(mx.rnn.LSTMCell(16, prefix="a_"))
    cells.add(mx.rnn.LSTMCell(16, prefix="b_"))
    begin = [mx.sym.zeros((4, 16)) for _ in range(4)]
    made, _ = cells.unroll(6, mx.sym.var("data"), begin_state=begin, layout="NTC", merge_outputs=True)
    x = mx.sym.LeakyReLU(mx.sym.LayerNorm(made, name="norm"), act_type="gelu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=5, name="last"), name="softmax")


NETS = {"images": (images, (4, 3, 12, 12)), "words": (words, (4, 6, 8))}


def trained(name: str) -> tuple[int, list[np.ndarray]]:
    """Bytes saved; the outputs, gradients and states of three steps."""
    before = ngraph_mxnet.report().steps
    make, shape = NETS[name]
    executor = make().simple_bind(mx.cpu(), data=shape)
    rng = np.random.default_rng(1)
    for argument, array in executor.arg_dict.items():
        array[:] = rng.integers(0, 5, array.shape) if argument == "softmax_label" else \
            rng.standard_normal(array.shape) / 4
    mx.random.seed(7)
    found = []
    for _ in range(3):
        executor.forward(is_train=True)
        executor.backward()
        arrays = [*executor.outputs, *executor.grad_arrays, *executor.aux_arrays]
        found += [array.asnumpy() for array in arrays]
    step, = steps_but(before)
    return step.saved, found


@pytest.mark.parametrize("name", NETS)
def test_no_bit_depends_on_the_share(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    for share in SHARES:
        monkeypatch.setenv("NGRAPH_REMATERIALIZE", share)
        size, arrays = trained(name)
        gc.collect()
        sizes.append(size)
        if share == SHARES[0]:
            expected = arrays
        for one, other in zip(arrays, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] < 0.6 * sizes[0]


def steps_but(before: Sequence[Any]) -> list[Any]:
    """What the report has beside steps of other tests, which may still be there."""
    found = list(ngraph_mxnet.report().steps)
    for step in before:
        if step in found:
            found.remove(step)
    return found


def test_the_report_has_the_bytes_of_a_step(caplog: pytest.LogCaptureFixture) -> None:
    gc.collect()
    caplog.set_level(logging.INFO, "ngraph_mxnet")
    before = ngraph_mxnet.report().steps
    symbol = images()
    names = symbol.list_arguments() + symbol.list_auxiliary_states()
    shapes, _, states = symbol.infer_shape(data=(4, 3, 12, 12))
    arrays = {name: mx.nd.zeros(shape) for name, shape in zip(names, [*shapes, *states], strict=True)}
    made = Step(symbol.tojson(), types_of(arrays), ["first_weight", "conv0_weight"])
    assert "softmax trains compiled, with gradients of 2 arrays" in caplog.text
    step, = steps_but(before)
    assert step.name == "softmax" and step.times == 0 and step.total == step.forward + step.backward
    own = [made.new_arrays(mx.cpu()) for _ in range(2)]
    step, = steps_but(before)
    assert step.times == 2
    for arrays_of_one in own:
        saved = arrays_of_one[-len(made.saved):]
        assert sum(array.asnumpy().nbytes for array in saved) == step.saved
    image = 4 * 32 * 12 * 12 * 4
    # Winograd's matrices are some images, too.
    assert 3 * image <= step.forward <= 12 * image and 3 * image <= step.backward <= 24 * image
    assert step.total == step.forward + step.backward + 2 * step.saved
    text = str(ngraph_mxnet.report())
    assert "Memory of training steps" in text and f"{step.saved / 2**20:.1f}" in text
    assert step.saved in [known["saved"] for known in ngraph_mxnet.report().to_dict()["steps"]]
    del made
    gc.collect()
    assert not steps_but(before)


def test_calls_of_a_block_that_wait_count_apart() -> None:
    gc.collect()
    before = ngraph_mxnet.report().steps
    net = nn.HybridSequential()
    net.add(nn.Dense(8, in_units=4, activation="tanh"), nn.Dense(2, in_units=8))
    net.initialize()
    net.hybridize()
    with autograd.record():
        total = net(mx.nd.ones((3, 4))) + net(mx.nd.ones((3, 4)))
    total.backward()
    mx.nd.waitall()
    step, = steps_but(before)
    assert step.times == 2
