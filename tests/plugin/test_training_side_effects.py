"""What a pass writes beside outputs and gradients, moving statistics and gammas, against MXNet (docs/training.md)."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

from ngraph_mxnet import _core
from ngraph_mxnet.plugin.binding.gluon_blocks import of_block

State = dict[str, np.ndarray]


@pytest.fixture(autouse=True)
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NGRAPH")


def both(monkeypatch: pytest.MonkeyPatch, script: Callable[[], Any], tolerance: float = 2e-4) -> list[int]:
    """What the script notes, in arrays, is the same with MXNet and compiled. Returns how many steps were compiled."""
    noted, counts = [], []
    for flag in ("0", "1"):
        monkeypatch.setenv("NGRAPH_TRAINING", flag)
        np.random.seed(7)
        mx.random.seed(7)
        notes, count = script()
        noted.append(notes)
        counts.append(count)
    assert len(noted[0]) == len(noted[1])
    for number, (native, ours) in enumerate(zip(*noted, strict=True)):
        assert native.keys() == ours.keys()
        for name, array in native.items():
            np.testing.assert_allclose(ours[name], array, rtol=tolerance, err_msg=f"note {number}: {name}",
                                       atol=tolerance * max(1, np.abs(array).max(initial=0)))
    assert counts[0] == 0
    return counts


def count(net: gluon.HybridBlock) -> int:
    """Compiled calls so far."""
    training = of_block(net).training
    return training.count if training is not None else 0


class Layers(gluon.HybridBlock):
    """Dense or convolutional layers with norms, of which some have BlockGrad before them; maybe a second branch."""

    def __init__(self, random: np.random.Generator, images: bool, prefix: str) -> None:
        super().__init__(prefix=prefix)
        self.blocked = [bool(random.random() < 0.15) for _ in range(3)]
        self.branches = bool(random.random() < 0.3)
        with self.name_scope():
            for number in range(3):
                # Without bias: MXNet leaves the gradient of a bias 0 where that of the weight is not wanted.
                layer = nn.Conv2D(4, 1, in_channels=4, use_bias=False) if images else \
                    nn.Dense(4, in_units=4, use_bias=False)
                norm = nn.BatchNorm(in_channels=4, momentum=0.5, scale=bool(random.random() < 0.5),
                                    use_global_stats=bool(random.random() < 0.2), epsilon=1e-2)
                setattr(self, f"layer{number}", layer)
                setattr(self, f"norm{number}", norm)

    def hybrid_forward(self, ops: Any, x: Any) -> Any:
        for number, is_blocked in enumerate(self.blocked):
            y = ops.BlockGrad(x) if is_blocked else x
            y = ops.tanh(getattr(self, f"norm{number}")(getattr(self, f"layer{number}")(y)))
            x = x + y if self.branches and number else y
        return x


def state_of(net: gluon.Block) -> State:
    mx.nd.waitall()
    found = {}
    for name, parameter in net.collect_params().items():
        found[name] = parameter.data().asnumpy()
        if parameter.grad_req != "null":
            found[f"{name}.grad"] = parameter.grad().asnumpy()
    return found


def images_or_rows(random: np.random.Generator, images: bool) -> mx.nd.NDArray:
    return mx.nd.array(random.normal(size=(6, 4, 3, 3) if images else (6, 4)) + 1)


def drawn_script(seed: int, options: dict[str, bool]) -> Callable[[], Any]:
    """Two bodies in a row, maybe apart; parameters are frozen and thawed between the steps, gammas set; all passes."""

    def script() -> Any:
        random = np.random.default_rng(seed)
        images = bool(random.random() < 0.5)
        bodies = [Layers(random, images, "first_"), Layers(random, images, "second_")]
        parameters = [one for body in bodies for one in body.collect_params().values()]
        trainable = [one for one in parameters if one.grad_req != "null"]
        for body in bodies:
            body.initialize(mx.init.Xavier())
            body.hybridize(**options)
        notes = []
        for _ in range(5):
            for parameter in trainable:
                if random.random() < 0.3:
                    parameter.grad_req = str(random.choice(["null", "write", "add"]))
                if "gamma" in parameter.name and random.random() < 0.3:
                    parameter.set_data(mx.nd.array(random.normal(size=4)))
            x = images_or_rows(random, images)
            if random.random() < 0.3:
                x.attach_grad()
            with autograd.record():
                middle = bodies[0](x)
                result = bodies[1](middle.detach() if random.random() < 0.3 else middle)
            notes.append({"result": result.asnumpy()})
            go_back(random, result, [one for one in trainable if one.grad_req != "null"])
            notes += [state_of(body) for body in bodies]
            if x.grad is not None:
                notes.append({"x": x.grad.asnumpy()})
            predicted = bodies[0](images_or_rows(random, images)).asnumpy()
            if not options:  # behind MXNet's own static backward pass, inference may read older statistics
                notes.append({"predicted": predicted})
        return notes, sum(count(body) for body in bodies)

    return script


def go_back(random: np.random.Generator, result: mx.nd.NDArray, trained: list[gluon.Parameter]) -> None:
    kind = int(random.integers(6))
    try:
        if kind == 1:
            result.backward(retain_graph=True)
            result.backward()
        elif kind == 2:
            result.backward(train_mode=False)
        elif kind == 3 and trained:
            variable = trained[int(random.integers(len(trained)))]
            autograd.grad([result], [variable.data()], retain_graph=False)
        elif kind == 4:
            with autograd.record():
                loss = (result * result).sum()
            loss.backward()
        elif kind == 5:
            result.backward(images_or_rows(random, result.ndim == 4))
    except mx.MXNetError:
        pass  # everything on the way is frozen: MXNet's error, of both


@pytest.mark.parametrize("options", [{}, {"static_alloc": True, "static_shape": True}])
@pytest.mark.parametrize("seed", range(6))
def test_drawn_blocks(monkeypatch: pytest.MonkeyPatch, seed: int, options: dict[str, bool]) -> None:
    both(monkeypatch, drawn_script(seed, options))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_more_drawn_blocks(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    both(monkeypatch, drawn_script(seed, {"static_alloc": True} if seed % 2 else {}))


def drawn_symbol(random: np.random.Generator) -> mx.sym.Symbol:
    x, mid = mx.sym.var("data"), None
    for number in range(3):
        y = mx.sym.FullyConnected(x, num_hidden=4, no_bias=True, name=f"layer{number}")
        y = mx.sym.BatchNorm(y, name=f"norm{number}", momentum=0.5, fix_gamma=bool(random.random() < 0.5), eps=1e-2,
                             use_global_stats=bool(random.random() < 0.2))
        y = mx.sym.BlockGrad(y) if random.random() < 0.15 else mx.sym.Activation(y, act_type="tanh")
        x = x + y if number and random.random() < 0.3 else y
        mid = y if number == 0 else mid
    out = mx.sym.SoftmaxOutput(x, mx.sym.var("label"), name="softmax")
    return mx.sym.Group([out, mx.sym.MakeLoss(mx.sym.mean(mid * mid))]) if random.random() < 0.3 else out


@pytest.mark.parametrize("seed", range(8))
def test_drawn_executors(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    def script() -> Any:
        random = np.random.default_rng(seed)
        symbol = drawn_symbol(random)
        requests = {name: str(random.choice(["null", "write", "add"])) for name in symbol.list_arguments()}
        requests.update(label="null", data=str(random.choice(["null", "write"])))
        executor = symbol.simple_bind(mx.cpu(), data=(6, 4), label=(6,), grad_req=requests)
        for name, array in executor.arg_dict.items():
            array[:] = random.integers(4, size=6) if name == "label" else random.normal(size=array.shape)
        for array in executor.aux_dict.values():
            array[:] = 1
        notes, count = [], 0
        for _ in range(4):
            executor.forward(is_train=True, data=mx.nd.array(random.normal(size=(6, 4)) + 1))
            count += executor.training.ran
            if random.random() < 0.8:  # a second time MXNet reads memory that it has used for something else
                executor.backward(is_train=bool(random.random() < 0.8))
            mx.nd.waitall()
            for given in (executor.arg_dict, executor.aux_dict, executor.grad_dict):
                notes.append({name: array.asnumpy() for name, array in given.items() if array is not None})
            notes.append({"output": executor.outputs[0].asnumpy()})
        return notes, count

    both(monkeypatch, script)


def test_fixed_parameters_of_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> Any:
        symbol = drawn_symbol(np.random.default_rng(3))
        fixed = [name for name in symbol.list_arguments() if name.startswith(("layer0", "norm0"))]
        module = mx.mod.Module(symbol, label_names=["label"], fixed_param_names=fixed)
        data = mx.io.NDArrayIter(np.random.RandomState(0).normal(size=(24, 4)) + 1, np.arange(24) % 4, 6,
                                 label_name="label")
        module.fit(data, num_epoch=2, optimizer_params={"learning_rate": 0.05}, initializer=mx.init.Xavier())
        found = {name: array.asnumpy() for given in module.get_params() for name, array in given.items()}
        assert np.all(found["norm0_moving_mean"] == 0)
        return [found], module._exec_group.execs[0].training.ran

    assert both(monkeypatch, script)[1]


def test_dropout_and_outputs_stay_in_predict_mode_and_under_a_profiler(tmp_path: Any) -> None:
    """What ran forward goes back: the mask is that of its outputs."""
    data = mx.sym.var("data")
    executor = mx.sym.Dropout(mx.sym.BatchNorm(data * 1, name="norm") * 0 + data, p=0.5).simple_bind(
        mx.cpu(), data=(40, 50))
    executor.arg_dict["data"][:] = 1
    mx.profiler.set_config(filename=str(tmp_path / "profile.json"), profile_all=True)
    for is_train, profiles in ((False, False), (True, True), (False, True)):
        mask = executor.forward(is_train=True)[0].asnumpy()
        assert executor.training.ran and set(np.unique(mask)) == {0, 2}
        if profiles:
            mx.profiler.set_state("run")
        try:
            executor.backward([mx.nd.ones((40, 50))], is_train=is_train)
            np.testing.assert_allclose(executor.grad_dict["data"].asnumpy(), mask, atol=1e-6)
            np.testing.assert_array_equal(executor.outputs[0].asnumpy(), mask)
        finally:
            mx.profiler.set_state("stop")


def test_a_profiler_between_a_recorded_call_and_its_backward_pass(tmp_path: Any) -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(64, in_units=8, use_bias=False), nn.BatchNorm(in_channels=64, momentum=0.5), nn.Dropout(0.5))
    net.initialize()
    net.hybridize()
    x = mx.nd.random.normal(shape=(16, 8))
    mx.profiler.set_config(filename=str(tmp_path / "profile.json"), profile_all=True)
    with autograd.record():
        y = net(x)
    assert count(net) == 1
    mx.profiler.set_state("run")
    try:
        y.backward()
        mx.nd.waitall()
    finally:
        mx.profiler.set_state("stop")
    beta = net[1].beta.grad().asnumpy()
    np.testing.assert_allclose(beta, 2 * (y.asnumpy() != 0).sum(0), rtol=1e-5)  # of the mask that y has
    assert np.any(net[1].running_mean.data().asnumpy() != 0)


def test_calls_never_gone_back_move_nothing_and_leave_nothing() -> None:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(16, 3, in_channels=3), nn.BatchNorm(in_channels=16), nn.Activation("relu"))
    net.initialize()
    net.hybridize()
    x = mx.nd.ones((4, 3, 24, 24))

    def calls(count: int) -> float:
        for _ in range(count):
            with autograd.record():
                y = net(x)
        y.wait_to_read()
        del y
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize() / 2**20

    first = calls(600)
    assert calls(600) < first + 8
    assert count(net) == 1200
    assert np.all(net[1].running_mean.data().asnumpy() == 0)
    assert not _core.is_any_recorded()


NAIVE = """
import mxnet as mx
from mxnet import autograd, gluon
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(8, in_units=4), gluon.nn.BatchNorm(in_channels=8), gluon.nn.Dense(2, in_units=8))
net.initialize()
net.hybridize()
trainer = gluon.Trainer(net.collect_params(), "sgd")
for _ in range(3):
    with autograd.record():
        loss = gluon.loss.L2Loss()(net(mx.nd.ones((4, 4))), mx.nd.ones((4, 2)))
    loss.backward()
    trainer.step(4)
executor = mx.sym.FullyConnected(mx.sym.var("x"), num_hidden=2).simple_bind(mx.cpu(), x=(3, 4))
executor.forward(is_train=True)
executor.backward(mx.nd.ones((3, 2)))
print("trained", loss.shape)
"""


def test_the_naive_engine_trains() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", NAIVE], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "MXNET_ENGINE_TYPE": "NaiveEngine"})
    assert done.stdout == "trained (4,)\n", done.stderr
