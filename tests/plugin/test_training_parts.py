"""Training of what is not ours as a whole: regions of ours and MXNet's parts by turns, against MXNet's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn
from mxnet_helpers import check_that_all_is_kept

from ngraph_mxnet.plugin.binding import environment, gluon_training
from ngraph_mxnet.plugin.binding.gluon_blocks import of_block
from ngraph_mxnet.plugin.training.parts import PartedCalls
from ngraph_mxnet.plugin.training.steps import MOST_STEPS

pytestmark = pytest.mark.skipif(environment.problem() is not None, reason=str(environment.problem()))


@pytest.fixture(autouse=True)
def on(monkeypatch: pytest.MonkeyPatch, small_parts: None) -> None:
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NGRAPH")
    monkeypatch.setenv("NGRAPH_TRAINING", "1")
    check_that_all_is_kept(monkeypatch)


class Scaled(mx.operator.CustomOp):
    def forward(self, is_train: bool, req: list[str], in_data: list[Any], out_data: list[Any], aux: list[Any]) -> None:
        self.assign(out_data[0], req[0], in_data[0] * 3)

    def backward(self, req: list[str], out_grad: list[Any], in_data: list[Any], out_data: list[Any],
                 in_grad: list[Any], aux: list[Any]) -> None:
        self.assign(in_grad[0], req[0], out_grad[0] * 5)  # no derivative: seen in all that comes before it


@mx.operator.register("scaled_in_parts")
class ScaledProp(mx.operator.CustomOpProp):
    def infer_shape(self, in_shape: list[Any]) -> Any:
        return in_shape, [in_shape[0]], []

    def create_operator(self, ctx: Any, shapes: Any, dtypes: Any) -> Scaled:
        return Scaled()


class Net(gluon.HybridBlock):
    """Dense layers, and something between them that is none of ours."""

    def __init__(self, between: Callable[..., Any]) -> None:
        super().__init__(prefix="net_")
        self._between = between
        with self.name_scope():
            self.first, self.norm = nn.Dense(8, in_units=6), nn.BatchNorm(in_channels=8)
            self.last = nn.Dense(3, in_units=8)

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803 - MXNet's name
        h = self.norm(F.tanh(self.first(x)))
        return self.last(h + self._between(F, h))


def custom(space: Any, h: Any) -> Any:
    return space.Custom(h, op_type="scaled_in_parts")


def loop(space: Any, h: Any) -> Any:
    outputs, _ = space.contrib.foreach(lambda x, s: (x * 2 + s, s + x), h, space.zeros_like(
        space.slice_axis(h, axis=0, begin=0, end=1).reshape((-1,))))
    return outputs


def solved(space: Any, h: Any) -> Any:
    return space.linalg.trsm(space.eye(16) * 2, h)


def noisy(space: Any, h: Any) -> Any:
    """As in a variational autoencoder; nothing of the noise is seen here, for each draws its own."""
    return h + 1e-9 * space.random.normal_like(h) + 1e-9 * space.random.normal(shape=(16, 8))


BETWEEN = [custom, loop, solved, noisy]


def network(between: Callable[..., Any], **options: Any) -> Net:
    np.random.seed(3)
    mx.random.seed(3)
    net = Net(between)
    net.initialize(mx.init.Xavier())
    net.hybridize(**options)
    return net


def data(seed: int = 0, batch: int = 16) -> mx.nd.NDArray:
    return mx.nd.array(np.random.default_rng(seed).standard_normal((batch, 6)))


def training(net: gluon.HybridBlock) -> gluon_training.GluonTraining:
    found: gluon_training.GluonTraining = of_block(net).training
    return found


def kinds(net: gluon.HybridBlock) -> list[str]:
    """What the parts of its calls are, in order."""
    (calls,) = training(net).calls.values()
    assert isinstance(calls, PartedCalls)
    return ["ours" if part.is_compiled else "MXNet's" for part in calls.parts]


def state(net: gluon.HybridBlock) -> dict[str, np.ndarray]:
    found = {}
    for name, parameter in net.collect_params().items():
        found[name] = parameter.data().asnumpy()
        if parameter.grad_req != "null":
            found[f"{name}.grad"] = parameter.grad().asnumpy()
    return found


def both(monkeypatch: pytest.MonkeyPatch, between: Callable[..., Any], script: Callable[[Net], Any],
         **options: Any) -> Net:
    """The script gives the same and leaves the same with MXNet and in parts."""
    results = []
    for flag in ("0", "1"):
        monkeypatch.setenv("NGRAPH_TRAINING", flag)
        net = network(between, **options)
        results.append((script(net), state(net)))
    (wanted, left), (found, right) = results
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    for name, array in left.items():
        np.testing.assert_allclose(right[name], array, rtol=1e-4, atol=1e-4 * max(1, np.abs(array).max()), err_msg=name)
    return net


def steps(net: Net) -> list[float]:
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": 0.9})
    loss, losses = gluon.loss.SoftmaxCrossEntropyLoss(), []
    for step in range(5):
        with autograd.record():
            value = loss(net(data(step)), mx.nd.array(np.arange(16) % 3))
        value.backward()
        trainer.step(16)
        losses.append(value.mean())
    return [float(one.asscalar()) for one in losses]


@pytest.mark.parametrize(("between", "options"), [
    *((between, {}) for between in BETWEEN),
    # MXNet's loops record nothing under static_alloc, and fail.
    *((between, {"static_alloc": True, "static_shape": True}) for between in BETWEEN if between is not loop)])
def test_steps(monkeypatch: pytest.MonkeyPatch, between: Callable[..., Any], options: dict[str, bool]) -> None:
    net = both(monkeypatch, between, steps, **options)
    assert training(net).count == 5
    assert "ours, MXNet's, ours" in ", ".join(kinds(net))


def test_a_sparse_gradient_goes_through_mxnets_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> tuple[Any, list[np.ndarray]]:
        np.random.seed(3)
        mx.random.seed(3)
        net = nn.HybridSequential(prefix="net_")
        with net.name_scope():
            net.add(nn.Embedding(10, 4, sparse_grad=True), nn.Dense(5, activation="tanh", in_units=8),
                    nn.Dense(2, in_units=5))
        net.initialize(mx.init.Xavier())
        net.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        for _ in range(2):
            with autograd.record():
                loss = (net(mx.nd.array([[1, 2], [3, 4], [1, 7]])) ** 2).sum()
            loss.backward()
            assert net[0].weight.grad().stype == "row_sparse"
            trainer.step(1)
        return net, [parameter.data().asnumpy() for parameter in net.collect_params().values()]

    monkeypatch.setenv("NGRAPH_TRAINING", "0")
    _, wanted = script()
    monkeypatch.setenv("NGRAPH_TRAINING", "1")
    net, found = script()
    assert kinds(net) == ["MXNet's", "ours"]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_more_calls_than_steps_and_adding_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those beyond run in MXNet, part by part."""
    def script(net: Net) -> float:
        for parameter in net.collect_params().values():
            if parameter.grad_req != "null":
                parameter.grad_req = "add"
        with autograd.record():
            loss = sum(((net(data(seed)) - 1) ** 2).sum() for seed in range(MOST_STEPS + 2))
        loss.backward()
        return float(loss.asscalar())

    net = both(monkeypatch, custom, script)
    assert training(net).count == MOST_STEPS + 2


def test_what_is_not_cut(caplog: pytest.LogCaptureFixture) -> None:
    """Gradients of a loss layer go back whichever output they are asked of."""
    class Two(Net):
        def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803 - MXNet's name
            h = F.linalg.trsm(F.eye(16), self.norm(self.first(x)))
            return F.MakeLoss(F.sum(h)), self.last(h)

    net = Two(custom)
    net.initialize()
    net.hybridize()
    with autograd.record():
        _, y = net(data())
    y.backward()
    assert training(net).count == 0
    assert "gradients go back from" in caplog.text and "whichever output is asked for" in caplog.text
