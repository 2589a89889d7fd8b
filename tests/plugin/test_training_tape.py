"""Nodes of ours on autograd's tape: the short way back, what ends it, and losses, against MXNet's own."""

from __future__ import annotations

import gc
import multiprocessing
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.base import MXNetError
from mxnet.gluon import loss as losses
from mxnet.gluon import nn
from mxnet_helpers import run_script

from ngraph_mxnet import _core
from ngraph_mxnet.base import config
from ngraph_mxnet.plugin.binding import backward_passes
from ngraph_mxnet.plugin.binding.gluon_blocks import Kinds, of_block


@pytest.fixture(autouse=True)
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NGRAPH")
    monkeypatch.setenv("NGRAPH_TRAINING", "1")
    monkeypatch.setattr(backward_passes, "links", Kinds())  # the first are due at once


def network(units: int = 5, inputs: int = 7, prefix: str = "net_") -> nn.HybridSequential:
    mx.random.seed(3)
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(nn.Dense(6, activation="tanh", in_units=inputs), nn.Dense(units, in_units=6))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    mx.nd.waitall()  # a pass goes back MXNet's way while gradients have no memory yet
    return net


def data(seed: int = 0, shape: tuple[int, ...] = (4, 7)) -> mx.nd.NDArray:
    return mx.nd.array(np.random.default_rng(seed).standard_normal(shape))


LABELS = [0, 4, 2, 1]


def gradients(*nets: gluon.Block) -> dict[str, np.ndarray]:
    return {name: parameter.grad().asnumpy() for net in nets for name, parameter in net.collect_params().items()}


def both(monkeypatch: pytest.MonkeyPatch, script: Callable[[], Any], short: int) -> None:
    """The script gives the same with MXNet and compiled, and so many backward passes go the short way."""
    results = []
    for flag in ("0", "1"):
        monkeypatch.setenv("NGRAPH_TRAINING", flag)
        before = _core.short_ways()
        results.append(script())
        assert _core.short_ways() - before == (short if flag == "1" else 0)
    wanted, found = results
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> dict[str, np.ndarray]:
        net, loss, found = network(), losses.SoftmaxCrossEntropyLoss(), {}
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
        for step in range(5):
            with autograd.record():
                output = net(data(step))
                value = loss(output, mx.nd.array(LABELS))
            assert not any(parameter.data()._fresh_grad for parameter in net.collect_params().values())
            value.backward()
            assert all(parameter.data()._fresh_grad for parameter in net.collect_params().values())
            trainer.step(4)
            found |= {f"loss{step}": value.asnumpy(), f"output{step}": output.asnumpy()}
        return found | {name: parameter.data().asnumpy() for name, parameter in net.collect_params().items()}

    both(monkeypatch, script, short=5)


@pytest.mark.parametrize("request_", ["write", "add", "null"])
def test_requests(monkeypatch: pytest.MonkeyPatch, request_: str) -> None:
    def script() -> dict[str, np.ndarray]:
        net, loss, found = network(), losses.L2Loss(), {}
        net[0].bias.grad_req = request_
        for step in range(3):
            with autograd.record():
                value = loss(net(data(step)), data(9, (4, 5)))
            value.backward()
            found |= {f"{name}{step}": parameter.grad().asnumpy() for name, parameter in net.collect_params().items()
                      if parameter.grad_req != "null"}
        return found

    both(monkeypatch, script, short=3)


def test_requests_that_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between calls, between a call and its backward pass, and past Gluon."""
    def script() -> dict[str, np.ndarray]:
        net, loss, found = network(), losses.L2Loss(), {}

        def step(number: int, between: Callable[[], Any] = lambda: None) -> None:
            with autograd.record():
                value = loss(net(data(number)), data(9, (4, 5)))
            between()
            value.backward()
            found.update({f"{name}{number}": parameter.data().grad.asnumpy() for name, parameter in
                          net.collect_params().items() if parameter.data().grad is not None})

        step(0)
        net[0].bias.grad_req = "add"
        step(1)
        step(2)
        net[0].bias.grad_req = "null"
        step(3)
        net[0].bias.grad_req = "write"
        step(4)
        step(5, lambda: net[1].weight.data().attach_grad("add"))
        step(6)
        step(7)
        return found

    both(monkeypatch, script, short=8)


def test_head_gradients_and_retained_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> dict[str, np.ndarray]:
        net, loss = network(), losses.SoftmaxCrossEntropyLoss()
        with autograd.record():
            output = net(data())
            value = loss(output, mx.nd.array(LABELS))
        value.backward(mx.nd.array([1, -2, 0, 3]), retain_graph=True)
        found = {"given": net[0].weight.grad().asnumpy()}
        value.backward(retain_graph=True)
        found["ones"] = net[0].weight.grad().asnumpy()
        output.backward(output * 0 + 2)
        return found | {"output": net[0].weight.grad().asnumpy()}

    both(monkeypatch, script, short=3)


def test_what_was_gone_back_through_is_on_the_tape_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """As MXNet has it: a second pass is an error, and what is computed from it later takes it as a constant."""
    def script() -> dict[str, np.ndarray]:
        net, loss, scale = network(), losses.SoftmaxCrossEntropyLoss(), mx.nd.array([2.0])
        scale.attach_grad()
        with autograd.record():
            output = net(data())
            value = loss(output, mx.nd.array(LABELS))
        value.backward()
        before = gradients(net)
        for gone in (value, output):
            with pytest.raises(MXNetError, match="not in a computational graph"):
                gone.backward()
        with autograd.record():
            scaled = output * scale
        scaled.backward()
        after = gradients(net)
        for name in before:
            np.testing.assert_array_equal(before[name], after[name])
        return before | {"scale": scale.grad.asnumpy()}

    both(monkeypatch, script, short=1)


def test_outputs_that_got_gradients_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> dict[str, np.ndarray]:
        net, loss = network(), losses.SoftmaxCrossEntropyLoss()
        with autograd.record():
            output = net(data())
            value = loss(output, mx.nd.array(LABELS))
        output.attach_grad()
        value.backward()
        with autograd.record():
            again = (output * 3).sum()
        again.backward()
        return gradients(net) | {"output": output.grad.asnumpy()}

    both(monkeypatch, script, short=1)


def test_blocks_in_a_row_and_shared_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two calls with the same parameters MXNet adds up the gradients."""
    def script() -> dict[str, np.ndarray]:
        first, second, loss = network(7, prefix="a_"), network(prefix="b_"), losses.L2Loss()
        with autograd.record():
            value = loss(second(first(data())), data(9, (4, 5)))
        value.backward()
        found = {f"{name} once": value for name, value in gradients(first, second).items()}
        with autograd.record():
            value = loss(second(first(first(data()))), data(9, (4, 5)))
        value.backward()
        return found | gradients(first, second)

    both(monkeypatch, script, short=2)


@pytest.mark.parametrize("shapes", [[(-1, 5)], [(2, 2, 5), (-3, 0)], [(-1,), (4, 5)]])
@pytest.mark.parametrize("given", [False, True])
def test_what_is_reshaped_before_the_loss(monkeypatch: pytest.MonkeyPatch, shapes: list[tuple[int, ...]],
                                          given: bool) -> None:
    def script() -> dict[str, np.ndarray]:
        net, loss = network(), losses.SoftmaxCrossEntropyLoss()
        with autograd.record():
            output = scores = net(data())
            for shape in shapes:
                scores = scores.reshape(shape)
            value = loss(scores, mx.nd.array(LABELS))
        value.backward(data(1, (4,)) if given else None, retain_graph=True)
        first = gradients(net)
        value.backward(data(2, (4,)) if given else None)
        for array in (value, scores, output):
            with pytest.raises(MXNetError):
                array.backward()
        return {"loss": value.asnumpy(), "scores": scores.asnumpy()} | first | {
            f"{name} again": array for name, array in gradients(net).items()}

    both(monkeypatch, script, short=2)


def test_what_is_reshaped_and_read_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> dict[str, np.ndarray]:
        net, loss, found = network(), losses.SoftmaxCrossEntropyLoss(), {}
        with autograd.record():
            scores = net(data()).reshape((-1, 5))
            value = loss(scores, mx.nd.array(LABELS)).mean() + (scores * scores).mean()
        value.backward()
        found |= {f"two {name}": array for name, array in gradients(net).items()}
        with autograd.record():
            scores = net(data()).reshape((-1, 5))
            scores.attach_grad()
            value = loss(scores, mx.nd.array(LABELS))
        value.backward()
        found["its own"] = scores.grad.asnumpy()
        with autograd.record():
            scores = net(data())
        aside = scores.reshape((-1, 5))  # off the tape
        with autograd.record():
            value = loss(aside, mx.nd.array(LABELS))
        with pytest.raises(MXNetError):
            value.backward()
        return found

    both(monkeypatch, script, short=1)


@pytest.mark.parametrize("native", [False, True])
def test_what_is_read_again_is_read_as_it_is_by_then(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    """Weights and data that a script writes between the passes count as MXNet lets them; those that it writes behind
    the backward pass don't."""
    def script() -> dict[str, np.ndarray]:
        net, x, found = network(), data(), {}
        x.attach_grad()
        weights = [net[layer].weight.data() for layer in (0, 1)]
        for step in range(3):
            with autograd.record():
                output = net(x)
                head = mx.nd.Dropout(output, p=1e-9).sum() if native else output  # it draws random numbers
            if step == 1:
                weights[1][:] = weights[1] * 2
                x[:] = x + 1
            head.backward()
            for array in (*weights, x):
                array[:] = array * 0.5
            found |= {f"{name}{step}": array for name, array in gradients(net).items()}
            found[f"x{step}"] = x.grad.asnumpy()
        return found

    both(monkeypatch, script, short=0 if native else 3)


@pytest.mark.parametrize("sliced", [False, True])
def test_outputs_are_the_scripts_to_write(monkeypatch: pytest.MonkeyPatch, sliced: bool) -> None:
    """The gradient of tanh reads the output as it was."""
    def script() -> dict[str, np.ndarray]:
        net, x = network(), data()
        net.add(nn.Activation("tanh"))
        x.attach_grad()
        with autograd.record():
            output = net(x)
            head = output[0].sum() if sliced else output
        output[:] = output * 0.5
        head.backward()
        return gradients(net) | {"x": x.grad.asnumpy()}

    both(monkeypatch, script, short=1)


def test_what_is_read_again_lives_as_long_as_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> dict[str, np.ndarray]:
        net, loss, found = network(), losses.SoftmaxCrossEntropyLoss(), {}
        with autograd.record():
            value = loss(net(data(5)), mx.nd.array(LABELS))
        kept = {name: parameter.grad() for name, parameter in net.collect_params().items()}
        del net, loss
        gc.collect()
        waste = [mx.nd.full((4, 7), number) for number in range(50)]
        value.backward()
        found |= {name: array.asnumpy() for name, array in kept.items()}
        return found | {"waste": waste[0].asnumpy()}

    both(monkeypatch, script, short=1)


def test_calls_that_wait_while_another_goes_mxnets_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pass back copies what both read, before an update; the second must not write these copies anew."""
    def script() -> dict[str, np.ndarray]:
        net, other, found = network(), network(4, 7, "other_"), {}
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        for step in range(4):
            with autograd.record():
                first, second = net(data(step)), other(data(step + 9))
                loss = mx.nd.Dropout(first * first, p=1e-9).mean()  # MXNet's way: it draws random numbers
                waiting = mx.nd.Dropout(second * second, p=1e-9).mean()
            loss.backward()
            trainer.step(1)
            waiting.backward()
            found |= {f"{name}{step}": array for name, array in gradients(net, other).items()}
        return found

    both(monkeypatch, script, short=0)


def test_what_is_mxnets_to_go_back_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators that draw random numbers, gradients that lie in one array, `autograd.grad`."""
    def script() -> dict[str, np.ndarray]:
        net, loss, x = network(), losses.L2Loss(), data()
        target, found = data(9, (4, 5)), {}
        with autograd.record():
            value = mx.nd.Dropout(loss(net(x), target), p=1e-9)
        value.backward()
        found |= {f"part {name}": grad for name, grad in gradients(net).items()}
        with autograd.record():
            value = loss(net(x), target)
        (by_weight,) = autograd.grad(value, [net[0].weight.data()])
        return found | {"grad": by_weight.asnumpy()}

    both(monkeypatch, script, short=0)


def test_backward_while_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> dict[str, np.ndarray]:
        net, loss = network(), losses.L2Loss()
        net[0].weight.grad_req = "add"
        with autograd.record():
            for step in range(2):
                loss(net(data(step)), data(9, (4, 5))).backward()
            assert autograd.is_recording()
        return gradients(net)

    both(monkeypatch, script, short=2)


def test_inputs_under_way_and_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays that are still computed are waited for; the error of one that failed is raised where MXNet raises it."""
    def script() -> dict[str, np.ndarray]:
        net, loss = network(), losses.L2Loss()
        x = data(0, (300, 300))
        for _ in range(5):
            x = mx.nd.dot(x, x) / 300
        with autograd.record():
            value = loss(net(x[:4, :7]), data(9, (4, 5)))
        value.backward()
        found = gradients(net)
        bad = mx.nd.random.normal(0, -1, (4, 7))  # a negative scale is an error of the engine's
        with autograd.record():
            value = loss(net(bad), data(9, (4, 5)))
        value.backward()
        with pytest.raises(MXNetError):
            net[0].weight.grad().asnumpy()
        return found

    both(monkeypatch, script, short=2)


def test_a_list_of_losses_keeps_no_graph() -> None:
    net, loss, kept = network(), losses.SoftmaxCrossEntropyLoss(), []
    for step in range(40):
        with autograd.record():
            value = loss(net(data(step)), mx.nd.array(LABELS))
        value.backward()
        kept.append(value)
    assert of_block(loss).loss.count == 40
    assert not any(_core.may_be_recorded(value.handle.value) for value in kept)


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with a net of its own; and all with one net, in turns. One after the other in MXNet, whose own training in
    several threads at a time leaves gradients unwritten now and then."""
    def train(net: gluon.HybridBlock, loss: losses.Loss, lock: Any) -> None:
        for step in range(20):
            with lock:
                with autograd.record():
                    value = loss(net(data(step)), mx.nd.array(LABELS))
                value.backward()

    def script() -> dict[str, np.ndarray]:
        nets = [network(prefix=f"n{number}_") for number in range(4)]
        loss, lock = losses.SoftmaxCrossEntropyLoss(), threading.Lock()
        for each in ([threading.Thread(target=train, args=(net, loss, threading.Lock())) for net in nets],
                     [threading.Thread(target=train, args=(nets[0], loss, lock)) for _ in range(4)]):
            for thread in each:
                thread.start()
                if not config.get("NGRAPH_TRAINING"):
                    thread.join()
            for thread in each:
                thread.join()
        return gradients(*nets)

    both(monkeypatch, script, short=160)


def _train_in_child(queue: Any) -> None:
    net, loss = network(), losses.SoftmaxCrossEntropyLoss()
    with autograd.record():
        value = loss(net(data()), mx.nd.array(LABELS))
    value.backward()
    queue.put((gradients(net)["net_dense0_weight"], _core.short_ways()))


def test_forks() -> None:
    context = multiprocessing.get_context("fork")
    _train_in_child(queue := context.Queue())
    wanted, before = queue.get()
    child = context.Process(target=_train_in_child, args=(queue,))
    child.start()
    found, after = queue.get(timeout=60)
    child.join()
    np.testing.assert_array_equal(found, wanted)
    assert after == before + 1


ALL_LOSSES: list[tuple[losses.Loss, str]] = [
    (losses.L1Loss(), "like"), (losses.L2Loss(weight=3.0), "like"), (losses.SigmoidBinaryCrossEntropyLoss(), "unit"),
    (losses.SigmoidBinaryCrossEntropyLoss(from_sigmoid=True), "unit"), (losses.SoftmaxCrossEntropyLoss(), "class"),
    (losses.SoftmaxCrossEntropyLoss(sparse_label=False), "unit"), (losses.SoftmaxCrossEntropyLoss(weight=0.5), "class"),
    (losses.KLDivLoss(from_logits=False), "unit"), (losses.HuberLoss(), "like"), (losses.HingeLoss(), "sign"),
    (losses.SquaredHingeLoss(), "sign"), (losses.LogisticLoss(), "sign"), (losses.PoissonNLLLoss(), "unit"),
]


@pytest.mark.parametrize("number", range(len(ALL_LOSSES)))
@pytest.mark.parametrize("weighted", [False, True])
def test_losses(monkeypatch: pytest.MonkeyPatch, number: int, weighted: bool) -> None:
    loss, kind = ALL_LOSSES[number]
    label = {"like": data(9, (4, 5)), "unit": mx.nd.softmax(data(9, (4, 5))), "class": mx.nd.array(LABELS),
             "sign": mx.nd.sign(data(9, (4, 5)))}[kind]
    weights = [mx.nd.array([[1.0], [0.5], [0.0], [2.0]])] if weighted else []

    def script() -> dict[str, np.ndarray]:
        net = network()
        with autograd.record():
            output = net(data())
            if getattr(loss, "_from_sigmoid", False):
                output = output.sigmoid()
            value = loss(output, label, *weights)
        value.backward()
        return gradients(net) | {"value": value.asnumpy()}

    both(monkeypatch, script, short=1)


def test_what_is_no_loss_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Own classes, hooks, what comes from MXNet: operators, which the pass goes through all the same. Not so an
    attribute that changes, and predict mode."""
    class Own(losses.L2Loss):
        def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:  # noqa: N803
            return super().hybrid_forward(F, pred, label, sample_weight) * 2

    def script() -> dict[str, np.ndarray]:
        net, target, found, hooked = network(), data(9, (4, 5)), {}, losses.L2Loss()
        hooked.register_forward_hook(lambda *args: found.setdefault("hook", np.ones(1)))
        changed, counts = losses.L2Loss(), []
        for number, loss in enumerate((Own(), hooked, changed, changed)):
            with autograd.record():
                value = loss(net(data()), target)
            value.backward()
            found |= {f"{name}{number}": grad for name, grad in gradients(net).items()}
            changed._weight = 5.0
            counts.append(of_block(loss).loss.count if of_block(loss).loss else 0)
        assert counts in ([0, 0, 0, 0], [0, 0, 1, 2])
        with autograd.record():
            value = changed(net(data()) * 2, target)
        value.backward()
        found |= gradients(net)
        with autograd.record(train_mode=False):
            value = changed(net(data()), target)
        value.backward()
        return found | {f"{name} predict": grad for name, grad in gradients(net).items()}

    both(monkeypatch, script, short=6)


def test_steps_are_free_at_once() -> None:
    """What went the short way needs no step more than one."""
    net, loss = network(), losses.SoftmaxCrossEntropyLoss()
    kept = []
    for step in range(10):
        with autograd.record():
            output = net(data(step))
            value = loss(output, mx.nd.array(LABELS))
        value.backward()
        kept += [output, value]
    gc.collect()
    (calls,) = of_block(net).training.calls.values()
    assert calls.made == 1


def test_a_script_ends_whose_last_steps_nobody_waits_for(tmp_path: Path) -> None:
    """MXNet ends the threads that call recorded nodes before it waits for its engine."""
    code = """
import mxnet as mx
from mxnet import autograd, gluon
net = gluon.nn.HybridSequential()
for _ in range(8):
    net.add(gluon.nn.Dense(700, activation="relu"))
net.initialize()
net.hybridize()
data = mx.nd.random.uniform(shape=(512, 700))
for step in range(5):
    with autograd.record():
        output = net(data)
        mean = mx.nd.Dropout(output * output, p=1e-9).mean()  # MXNet's way: it draws random numbers
    mean.backward()
    if step < 3:
        mx.nd.waitall()
from ngraph_mxnet.plugin.binding import backward_passes
from ngraph_mxnet.plugin.binding.gluon_blocks import Kinds, of_block
assert of_block(net).training.count == 5
print("end")
"""
    for _ in range(6):  # without our wait one in three did not end
        done = run_script(code, tmp_path, "NGRAPH", NGRAPH_TRAINING="1")
        assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_threads_that_go_back_the_long_way_read_their_own_copies() -> None:
    """A pass that MXNet runs copies what all waiting passes borrow, other threads' too: each has its own gradients."""
    wrong: list[float] = []

    def train(number: int) -> None:
        net, random = network(prefix=f"thread{number}_"), np.random.default_rng(number)
        weight, bias, last = (parameter.data().asnumpy() for parameter in (net[0].weight, net[0].bias, net[1].weight))
        for _ in range(1500):
            data = random.uniform(-1, 1, (3, 7)).astype(np.float32)
            with autograd.record():
                heads = [mx.nd.Dropout(net(mx.nd.array(x)), p=1e-9) for x in (data, 2 * data)]
            autograd.backward(heads)
            slopes = [(1 - np.tanh(x @ weight.T + bias) ** 2) * last.sum(0) for x in (data, 2 * data)]
            expected = slopes[0].T @ data + slopes[1].T @ (2 * data)
            apart = float(np.abs(net[0].weight.grad().asnumpy() - expected).max())
            if not apart < 1e-4:
                wrong.append(apart)

    threads = [threading.Thread(target=train, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


_REFUSING = """
#include <cstdlib>
void MXAPISetLastError(const char* text);
#include <dlfcn.h>
static int left = -1;
extern "C" void refuse_after(int calls) { left = calls; }
extern "C" int MXImperativeInvoke(void* op, int inputs, void** in, int* outputs, void*** out, int options,
                                  const char** keys, const char** values) {
  static auto* const real = reinterpret_cast<decltype(&MXImperativeInvoke)>(dlsym(RTLD_NEXT, "MXImperativeInvoke"));
  if (left == 0) {
    MXAPISetLastError("refused by the test");
    return -1;
  }
  if (left > 0) --left;
  return real(op, inputs, in, outputs, out, options, keys, values);
}
"""

_ADDED_ONCE = """
import ctypes
import os
import subprocess
import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.gluon import nn
from ngraph_mxnet import _core

net = nn.HybridSequential()
net.add(nn.Dense(600, activation="tanh", in_units=500), nn.Dense(500, in_units=600))  # MXNet adds gradients so large
net.initialize(mx.init.Xavier())
net.collect_params().setattr("grad_req", "add")
net.hybridize()
mx.nd.waitall()
x = mx.nd.random.uniform(shape=(4, 500))

def go_back():
    with autograd.record():
        y = net(x)
    y.backward()
    return [parameter.grad().asnumpy() for parameter in net.collect_params().values()]

go_back()
first, second = go_back(), go_back()
one = [b - a for a, b in zip(first, second)]
before = _core.short_ways()
subprocess.run(["g++", "-shared", "-fPIC", "refusing.cc", mx.base._LIB._name, "-ldl", "-o", "refusing.so"], check=True)
path = os.path.abspath("refusing.so")
library = ctypes.CDLL(path)
_core.connect_mxnet(path)  # what it does not have itself it finds in libmxnet
go_back()
assert _core.short_ways() == before + 1
library.refuse_after(1)
try:
    go_back()
except mx.base.MXNetError as error:
    assert "refused by the test" in str(error), error
else:
    raise AssertionError("no error")
library.refuse_after(-1)
mx.nd.waitall()
found = [parameter.grad().asnumpy() for parameter in net.collect_params().values()]
times = [round(float(np.abs((now - was) / one_).max())) for now, was, one_ in zip(found, second, one)]
print(sorted(times))
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_no_gradient_is_added_twice(tmp_path: Path) -> None:
    """MXNet refuses the second of two sums: the pass is an error, and the first gradient is added to once."""
    (tmp_path / "refusing.cc").write_text(_REFUSING)
    done = run_script(_ADDED_ONCE, tmp_path, "NGRAPH", NGRAPH_TRAINING="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[1, 1, 1, 2]\n"
