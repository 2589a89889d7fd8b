"""Nets of MXNet's NumPy interface train compiled, updates too, with MXNet's results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, npx
from mxnet.gluon import nn

from ngraph_mxnet import _core
from ngraph_mxnet.plugin.binding import backward_passes
from ngraph_mxnet.plugin.binding.gluon_blocks import Kinds, of_block
from ngraph_mxnet.plugin.report import report

STEPS = 4


@pytest.fixture(autouse=True)
def on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NGRAPH")
    monkeypatch.setattr(backward_passes, "links", Kinds())  # the first are due at once
    npx.set_np()
    yield
    npx.reset_np()


def chain(*layers: gluon.Block) -> nn.HybridSequential:
    net = nn.HybridSequential(prefix="net_")
    net.add(*layers)
    return net


NETS: dict[str, Callable[[], tuple[gluon.HybridBlock, tuple[int, ...]]]] = {
    "dense": lambda: (chain(nn.Dense(16, activation="relu"), nn.Dense(5)), (4, 7)),
    "images": lambda: (chain(nn.Conv2D(4, 3, use_bias=False), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(),
                             nn.Dense(5)), (4, 3, 8, 8)),
    "rows": lambda: (chain(nn.Dense(6, flatten=False, activation="tanh"), nn.LayerNorm(), nn.Dense(5)), (4, 3, 7)),
}


def own(scores: Any, labels: Any) -> Any:
    return -npx.pick(npx.log_softmax(scores), labels).mean()


LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "plain": gluon.loss.SoftmaxCrossEntropyLoss(),
    "mean": lambda scores, labels: gluon.loss.SoftmaxCrossEntropyLoss()(scores, labels).mean(),
    "sum": lambda scores, labels: gluon.loss.SoftmaxCrossEntropyLoss()(scores, labels).sum() / 4,
    "own": own,
}


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("loss", LOSSES)
def test_steps(monkeypatch: pytest.MonkeyPatch, net: str, loss: str) -> None:
    def script(compiled: bool) -> dict[str, np.ndarray]:
        mx.random.seed(3)
        made, shape = NETS[net]()
        made.initialize(mx.init.Xavier())
        made.hybridize()
        random, found = np.random.default_rng(0), {}
        made(mx.np.array(random.standard_normal(shape, np.float32)))
        npx.waitall()
        parameters = made.collect_params()
        trainer = gluon.Trainer(parameters, "adam", {"learning_rate": 0.01})
        before, updates = _core.short_ways(), report().updates
        for step in range(STEPS):
            x = mx.np.array(random.standard_normal(shape, np.float32))
            with autograd.record():
                value = LOSSES[loss](made(x), mx.np.array([0, 4, 2, 1], dtype=np.float32))
            value.backward()
            trainer.step(1)
            assert type(value) is mx.np.ndarray
            found[f"{step} loss"] = value.asnumpy()
            found |= {f"{step} {place}": parameter.data().asnumpy()
                      for place, parameter in enumerate(parameters.values())}
        if compiled:
            assert of_block(made).training.count == STEPS, report().fallbacks
            assert report().updates - updates == _core.short_ways() - before == STEPS, report().fallbacks
        return found

    monkeypatch.setenv("NGRAPH_TRAINING", "0")
    expected = script(False)
    monkeypatch.setenv("NGRAPH_TRAINING", "1")
    found = script(True)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-3, atol=2e-4, err_msg=name)
