"""Hybridized blocks under `autograd.record` with NGRAPH_TRAINING=1, against MXNet's own."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn
from mxnet_helpers import check_that_all_is_kept

from ngraph_mxnet import _core
from ngraph_mxnet.plugin.binding.gluon_blocks import of_block
from ngraph_mxnet.plugin.training import steps

SHAPE = (4, 3, 8, 8)


@pytest.fixture(autouse=True)
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NGRAPH")
    monkeypatch.setenv("NGRAPH_TRAINING", "1")
    check_that_all_is_kept(monkeypatch)


def network(**options: Any) -> nn.HybridSequential:
    np.random.seed(3)
    mx.random.seed(3)
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(16, 3, padding=1, use_bias=False, in_channels=3), nn.BatchNorm(in_channels=16),
                nn.Activation("relu"), nn.MaxPool2D(), nn.Dense(5, in_units=256))
    net.initialize(mx.init.Xavier())
    net.hybridize(**options)
    return net


def data(seed: int = 0, batch: int = SHAPE[0]) -> mx.nd.NDArray:
    return mx.nd.array(np.random.default_rng(seed).standard_normal((batch, *SHAPE[1:])))


def count(net: gluon.HybridBlock) -> int:
    """Compiled calls so far."""
    training = of_block(net).training
    return training.count if training is not None else 0


def state(net: gluon.HybridBlock) -> dict[str, np.ndarray]:
    found = {}
    for name, parameter in net.collect_params().items():
        found[name] = parameter.data().asnumpy()
        if parameter.grad_req != "null":
            found[f"{name}.grad"] = parameter.grad().asnumpy()
    return found


def both(monkeypatch: pytest.MonkeyPatch, script: Callable[[nn.HybridSequential], Any], compiled: int = 1,
         rtol: float = 1e-4, **options: Any) -> None:
    """The script gives the same and leaves the same with MXNet and compiled."""
    results = []
    for flag in ("0", "1"):
        monkeypatch.setenv("NGRAPH_TRAINING", flag)
        net = network(**options)
        given = script(net)
        results.append((given, state(net)))
        assert count(net) == (compiled if flag == "1" else 0)
    (wanted, left), (found, right) = results
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol / 10)
    for name in left:
        np.testing.assert_allclose(right[name], left[name], rtol=rtol, atol=rtol * max(1, np.abs(left[name]).max()))


@pytest.mark.parametrize("options", [{}, {"static_alloc": True}, {"static_alloc": True, "static_shape": True}])
def test_a_step(monkeypatch: pytest.MonkeyPatch, options: dict[str, bool]) -> None:
    def script(net: nn.HybridSequential) -> np.ndarray:
        with autograd.record():
            y = net(data())
            loss = (y * y).sum()
        loss.backward()
        return y.asnumpy()

    both(monkeypatch, script, **options)


def test_a_loop_with_a_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits between the steps; the last batch is smaller; inference in between sees the new weights."""
    def script(net: nn.HybridSequential) -> list[float]:
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": 0.9})
        loss, losses = gluon.loss.SoftmaxCrossEntropyLoss(), []
        for step in range(12):
            batch = 4 if step % 3 < 2 else 2
            with autograd.record():
                value = loss(net(data(step, batch)), mx.nd.array(np.arange(batch) % 5))
            value.backward()
            trainer.step(batch)
            losses += [value.mean(), net(data(99)).mean()]
        return [float(one.asscalar()) for one in losses]

    both(monkeypatch, script, compiled=12, rtol=1e-3)  # MXNet's log_softmax is right to 4e-6 only


def test_adding_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(net: nn.HybridSequential) -> float:
        for parameter in net.collect_params().values():
            if parameter.grad_req != "null":
                parameter.grad_req = "add"
        for seed in range(3):
            with autograd.record():
                loss = (net(data(seed)) ** 2).mean()
            loss.backward()
        return float(loss.asscalar())

    both(monkeypatch, script, compiled=3)


def test_several_calls_before_one_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(net: nn.HybridSequential) -> np.ndarray:
        with autograd.record():
            first, second = net(data(1)), net(data(2))
            loss = (first * second).sum()
        loss.backward()
        return first.asnumpy()

    both(monkeypatch, script, compiled=2)


def test_gradients_by_data_and_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(net: nn.HybridSequential) -> np.ndarray:
        x = data()
        x.attach_grad()
        with autograd.record():
            loss = (net(x * 2) ** 2).sum()
        loss.backward(retain_graph=True)
        first = x.grad.asnumpy()
        loss.backward()
        np.testing.assert_array_equal(x.grad.asnumpy(), first)
        return first

    both(monkeypatch, script)


def test_frozen_parameters_and_grad(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(net: nn.HybridSequential) -> np.ndarray:
        net[0].weight.grad_req = "null"
        variables = [net[4].weight.data(), net[1].gamma.data()]
        with autograd.record():
            loss = (net(data()) ** 2).sum()
        grads = autograd.grad(loss, variables)
        return np.concatenate([grad.asnumpy().ravel() for grad in grads])

    both(monkeypatch, script)


def test_steps_are_used_again() -> None:
    net = network()
    for seed in range(12):
        with autograd.record():
            loss = net(data(seed)).sum()
        loss.backward()
        mx.nd.waitall()
    del loss
    gc.collect()
    (calls,) = of_block(net).training.calls.values()
    assert count(net) == 12
    assert calls.made <= 5  # MXNet lets go of a node some time after it was gone back through


def test_the_same_bits_on_any_team() -> None:
    """Short runs are on one thread or on more, as was faster lately."""
    net, x, found = network(), data(), set()
    for _ in range(40):
        with autograd.record():
            loss = (net(x) ** 2).sum()
        loss.backward()
        found.add(net[4].weight.grad().asnumpy().tobytes() + net[0].weight.grad().asnumpy().tobytes())
    assert len(found) == 1


def test_inputs_written_behind_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read as the call has found them; a part of an array is read where it lies."""
    def script(net: nn.HybridSequential) -> np.ndarray:
        whole = data(batch=2 * SHAPE[0])
        x = whole[SHAPE[0]:]
        with autograd.record():
            loss = (net(x) ** 2).sum()
        loss.backward()
        whole[:] = 0
        net[0].weight.set_data(net[0].weight.data() * 0)
        return net[0].weight.grad().asnumpy()

    both(monkeypatch, script)


@pytest.mark.parametrize("made", [lambda: mx.nd.ones(3), lambda: mx.nd.ones((2, 3)) * 2])
def test_what_may_be_recorded(made: Callable[[], mx.nd.NDArray]) -> None:
    array = made()
    assert not _core.may_be_recorded(array.handle.value)
    array.attach_grad()
    assert _core.may_be_recorded(array.handle.value)
    with autograd.record():
        double = array * 2
    assert _core.may_be_recorded(double.handle.value)
    assert not _core.may_be_recorded(double.detach().handle.value)
    assert not _core.may_be_recorded(double.copy().handle.value)


def test_too_many_calls_are_mxnets() -> None:
    net = network()
    most = steps.MOST_STEPS
    with autograd.record():
        kept = [net(data(seed)) for seed in range(most + 2)]
        loss = sum(one.sum() for one in kept)
    loss.backward()
    assert np.isfinite(net[0].weight.grad().asnumpy()).all()
    assert count(net) == most


def test_a_step_that_fails_to_compile_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network()
    with autograd.record():
        first = net(data())
    calls = next(iter(of_block(net).training.calls.values()))
    assert calls.made == 1

    def fails(*args: object) -> None:
        raise MemoryError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(steps.Step, "new_arrays", fails)
        with autograd.record():
            net(data())  # is MXNet's
    assert calls.made == 1 and count(net) == 1
    with autograd.record():
        both_calls = first + net(data(1))
    assert calls.made == 2
    both_calls.backward()


def test_what_is_not_tried() -> None:
    """Predict mode under record, and recording off."""
    net = network()
    with autograd.record(train_mode=False):
        loss = net(data()).sum()
    loss.backward()
    with autograd.train_mode():
        net(data())
    net(data())
    assert count(net) == 0


def test_refused_with_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    net = nn.HybridSequential()
    net.add(nn.Embedding(10, 4, sparse_grad=True), nn.Dense(2, in_units=8), nn.Dense(2, in_units=2))
    net.initialize()
    net.hybridize()
    with autograd.record():
        loss = net(mx.nd.array([[1, 2], [3, 4]])).sum()
    loss.backward()
    assert count(net) == 0
    assert "sparse" in caplog.text


def test_parameters_on_two_devices_are_refused_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    devices = [mx.cpu(0), mx.cpu(1)]
    net = network()
    net.collect_params().reset_ctx(devices)
    with autograd.record():
        losses = [net(part).sum() for part in gluon.utils.split_and_load(data(), devices)]
    autograd.backward(losses)
    assert count(net) == 0
    (text,) = {record.message for record in caplog.records if record.levelname == "WARNING"}
    assert text.endswith("is not on one device")


def test_rare_shapes_are_mxnets_and_common_ones_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_DYNAMIC", "off")  # else they are one range
    net = gluon.nn.HybridSequential()
    net.add(nn.Dense(6, activation="relu", flatten=False), nn.Dense(3, flatten=False))
    net.initialize()
    net.hybridize()
    net(mx.nd.ones((1, 2, 5)))
    weight = net[0].weight
    for turn, expected in ((1, 4), (2, 4 + 8), (3, 4 + 8 + 12)):  # how many calls were compiled so far
        for length in range(2, 14):
            data = mx.nd.array(np.random.default_rng(length).normal(size=(2, length, 5)))
            found = []
            for call in (net, lambda data: plain(net, data)):
                with autograd.record():
                    total = call(data).sum()
                total.backward()
                found.append((total.asscalar(), weight.grad().asnumpy()))
            np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5)
            np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-4, atol=1e-5)
        training = of_block(net).training
        assert training.count == expected, turn
    assert len(training.calls.values()) == 12


def plain(net: gluon.nn.HybridSequential, data: mx.nd.NDArray) -> mx.nd.NDArray:
    """The net's own layers one by one, by MXNet."""
    for layer in net:
        weight, bias = layer.weight.data(), layer.bias.data()
        data = mx.nd.FullyConnected(data, weight, bias, num_hidden=len(bias), flatten=False)
        data = data if layer.act is None else mx.nd.relu(data)
    return data


def test_a_step_that_nobody_calls_is_given_back() -> None:
    """As where a signal comes between the two; and outputs own their memory from the first moment on."""
    net = network()
    x = data()
    with autograd.record():
        net(x)
    (calls,) = of_block(net).training.calls.values()
    native, made = calls._native, calls.made
    numbers = []
    for _ in range(3 * steps.MOST_STEPS):
        step = native.take()
        numbers.append(step.number)
        del step
    assert len(set(numbers)) == 1
    with autograd.record():
        (y,) = native.call(native.take(), False, mx.nd.NDArray, x.handle.value)
    assert type(y) is mx.nd.NDArray and y.writable and y.handle is not None and calls.made == made
    del y
    assert not _core.is_any_recorded()
