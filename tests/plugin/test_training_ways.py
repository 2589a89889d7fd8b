"""Every way in which Gluon trains, compiled, against MXNet's own: scripts that know nothing of us."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

from ngraph_mxnet.plugin.binding import environment
from ngraph_mxnet.plugin.binding.gluon_blocks import of_block

pytestmark = pytest.mark.skipif(environment.problem() is not None, reason=str(environment.problem()))


@pytest.fixture(autouse=True)
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NGRAPH")
    monkeypatch.setenv("NGRAPH_TRAINING", "1")


def dense(prefix: str = "net_", hybridize: bool = True, **layer: Any) -> nn.HybridSequential:
    mx.random.seed(3)
    np.random.seed(3)
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(nn.Dense(8, activation="tanh", in_units=6, **layer), nn.Dense(7, activation="relu", in_units=8),
                nn.Dense(3, in_units=7))
    net.initialize(mx.init.Xavier())
    if hybridize:
        net.hybridize()
    return net


def data(seed: int = 0, batch: int = 4) -> mx.nd.NDArray:
    return mx.nd.array(np.random.default_rng(seed).standard_normal((batch, 6)))


def compiled(net: Any) -> int:
    """Compiled calls of the block and those in it."""
    found: list[Any] = []
    net.apply(found.append)
    return sum(of_block(block).training.count for block in found if of_block(block).training)


def numbers(net: Any) -> list[np.ndarray]:
    """Weights and gradients."""
    found = []
    for parameter in net.collect_params().values():
        found.append(parameter.data().asnumpy())
        if parameter.grad_req != "null":
            found.append(parameter.grad().asnumpy())
    return found


Script = Callable[[], tuple[Any, list[Any]]]


def both(monkeypatch: pytest.MonkeyPatch, script: Script, calls: int) -> None:
    """The script, which returns its block and what it has found, finds and leaves the same compiled and not."""
    results = []
    for flag in ("0", "1"):
        monkeypatch.setenv("NGRAPH_TRAINING", flag)
        net, found = script()
        assert compiled(net) == (calls if flag == "1" else 0)
        given = [one.asnumpy() if isinstance(one, mx.nd.NDArray) else one for one in found]
        results.append([*given, *numbers(net)])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


def step(net: Any, seed: int = 0) -> mx.nd.NDArray:
    with autograd.record():
        loss = (net(data(seed)) ** 2).mean()
    loss.backward()
    return loss


@pytest.mark.parametrize(("kvstore", "on_kvstore"), [
    (None, False), ("local", False), ("device", False), ("local", None), ("a store", True), ("a store", False)])
def test_trainers(monkeypatch: pytest.MonkeyPatch, kvstore: str | None, on_kvstore: bool | None) -> None:
    def script() -> tuple[Any, list[Any]]:
        net = dense()
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01}, update_on_kvstore=on_kvstore,
                                kvstore=mx.kv.create("local") if kvstore == "a store" else kvstore)
        losses = []
        for seed in range(4):
            losses.append(step(net, seed))
            trainer.step(4)
        return net, losses

    both(monkeypatch, script, 4)


def test_blocks_in_a_block_that_is_not_hybrid(monkeypatch: pytest.MonkeyPatch) -> None:
    class Outer(gluon.Block):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = dense("first_"), dense("second_")

        def forward(self, x: Any) -> Any:
            return self.second(mx.nd.concat(self.first(x), x[:, :3], dim=1))

    def script() -> tuple[Any, list[Any]]:
        net = Outer()
        return net, [step(net, seed) for seed in range(3)]

    both(monkeypatch, script, 6)


def test_a_block_in_a_hybrid_block(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> tuple[Any, list[Any]]:
        net = nn.HybridSequential()
        net.add(dense("first_"), nn.Dense(2, in_units=3))
        net[1].initialize(mx.init.One())
        net.hybridize()
        return net, [step(net)]

    both(monkeypatch, script, 1)


def test_shared_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> tuple[Any, list[Any]]:
        one = dense()
        other = nn.HybridSequential(prefix="net_", params=one.collect_params())
        with other.name_scope():
            other.add(nn.Dense(8, activation="relu", in_units=6), nn.Dense(7, in_units=8), nn.Dense(3, in_units=7))
        other.hybridize()
        for parameter in one.collect_params().values():
            parameter.grad_req = "add"
        with autograd.record():
            loss = (one(data()) * other(data(1))).sum()
        loss.backward()
        pair = nn.Sequential(prefix="pair_")
        pair.add(one, other)
        return pair, [loss]

    both(monkeypatch, script, 2)


def test_outputs_of_which_one_gets_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    class Two(nn.HybridSequential):
        def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803 - MXNet's name
            first = self[0](x)
            return self[1](first), [first, self[2](first)]

    def script() -> tuple[Any, list[Any]]:
        np.random.seed(1)
        mx.random.seed(1)
        net = Two(prefix="two_")
        with net.name_scope():
            net.add(nn.Dense(5, in_units=6), nn.Dense(4, in_units=5), nn.Dense(3, in_units=5))
        net.initialize(mx.init.Xavier())
        net.hybridize()
        with autograd.record():
            one, (two, three) = net(data())
            loss = one.sum() + (two ** 2).sum()
        loss.backward()
        return net, [one, two, three]

    both(monkeypatch, script, 1)


def test_pause_and_inference_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> tuple[Any, list[Any]]:
        net = dense()
        with autograd.record():
            y = net(data())
            with autograd.pause():
                target = net(data(1))
            loss = ((y - target) ** 2).sum()
        loss.backward()
        return net, [loss, net(data(2))]

    both(monkeypatch, script, 1)


def test_marked_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> tuple[Any, list[Any]]:
        net, x, gradient = dense(), data(), mx.nd.ones((4, 6))
        autograd.mark_variables([x], [gradient], "add")
        return net, [*(step_of(net, x) for _ in range(2)), gradient]

    def step_of(net: Any, x: Any) -> Any:
        with autograd.record():
            y = net(x)
        y.backward(mx.nd.ones((4, 3)) * 2)
        return y

    both(monkeypatch, script, 2)


def test_predict_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled where nothing depends on the mode."""
    def script() -> tuple[Any, list[Any]]:
        net, x = dense(), data()
        x.attach_grad()
        with autograd.record(train_mode=False):
            y = net(x)
        y.backward(train_mode=False)
        return net, [y, x.grad]

    both(monkeypatch, script, 1)


@pytest.mark.parametrize("modal", [nn.Dropout(0.5), nn.BatchNorm(in_channels=3)])
def test_predict_mode_of_what_depends_on_it(monkeypatch: pytest.MonkeyPatch, modal: Any) -> None:
    def script() -> tuple[Any, list[Any]]:
        net = dense()
        net.add(modal)
        modal.initialize(force_reinit=True)
        net.hybridize()
        with autograd.record(train_mode=False):
            y = net(data())
        y.backward(train_mode=False)
        return net, [y]

    both(monkeypatch, script, 0)


def test_saving_and_loading_in_the_middle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def script() -> tuple[Any, list[Any]]:
        net, file = dense(), str(tmp_path / "net.params")
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
        step(net)
        trainer.step(1)
        net.save_parameters(file)
        step(net, 1)
        trainer.step(1)
        changed = net(data(5))
        net.load_parameters(file)
        step(net, 2)
        trainer.step(1)
        return net, [changed, net(data(5))]

    both(monkeypatch, script, 3)


def test_an_exception_between_forward_and_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> tuple[Any, list[Any]]:
        net = dense()
        with autograd.record():
            y = net(data(1))
        with contextlib.suppress(ZeroDivisionError), autograd.record():
            net(data())
            raise ZeroDivisionError
        y.backward()
        gradient = net[0].weight.grad().copy()
        with autograd.record():
            y = net(data(2))
        with pytest.raises(mx.MXNetError):
            backward_and_wait(y, mx.nd.ones((4, 2)))
        return net, [gradient, step(net, 2)]

    def backward_and_wait(y: Any, head: Any) -> None:
        y.backward(head)
        mx.nd.waitall()

    both(monkeypatch, script, 4)


def test_gradients_that_nobody_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> tuple[Any, list[Any]]:
        net = dense()
        losses = [step(net)]
        net[0].collect_params().setattr("grad_req", "null")
        losses.append(step(net, 1))
        net.collect_params().setattr("grad_req", "null")
        with autograd.record():
            loss = net(data(2)).sum()
        with pytest.raises(mx.MXNetError, match="not in a computational graph"):
            loss.backward()
        net.collect_params().setattr("grad_req", "write")
        return net, [*losses, step(net, 3)]

    both(monkeypatch, script, 3)


def test_shapes_that_only_the_first_call_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> tuple[Any, list[Any]]:
        mx.random.seed(3)
        np.random.seed(3)
        net = nn.HybridSequential(prefix="net_")
        net.add(nn.Dense(8, activation="tanh"), nn.Dense(3))
        net.initialize(mx.init.One())
        net.hybridize()
        return net, [step(net, seed) for seed in range(2)]

    both(monkeypatch, script, 2)


def test_hybridized_after_training_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> tuple[Any, list[Any]]:
        net = dense(hybridize=False)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        losses = []
        for seed in range(4):
            if seed == 2:
                net.hybridize(static_alloc=True)
            losses.append(step(net, seed))
            trainer.step(1)
        return net, losses

    both(monkeypatch, script, 2)


def test_float16() -> None:
    """MXNet's own dense layers have no gradients of float16 on a CPU."""
    found = []
    for kind in ("float32", "float16"):
        net = dense()
        net.cast(kind)
        with autograd.record():
            loss = (net(data().astype(kind)) ** 2).mean()
        loss.backward()
        found.append([loss.asnumpy(), *numbers(net)])
        assert compiled(net) == 1
        assert found[-1][1].dtype == kind
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-2, atol=2e-3)


def test_gradients_of_gradients() -> None:
    """MXNet itself refuses them of hybridized blocks, but for those whose few operators it runs one by one."""
    net, x = dense(), data()
    x.attach_grad()

    def penalty(net: Any) -> None:
        with autograd.record():
            first = autograd.grad(net(x), x, create_graph=True, retain_graph=True)[0]
            loss = (first ** 2).sum()
        loss.backward()
        mx.nd.waitall()

    with pytest.raises(mx.MXNetError, match="does not support higher order gradients"):
        penalty(net)
    one = nn.Dense(3, in_units=6)
    one.initialize(mx.init.One())
    one.hybridize()
    penalty(one)
    np.testing.assert_allclose(one.weight.grad().asnumpy(), np.full((3, 6), 24.0), rtol=1e-5)
    assert compiled(one) == 0
