"""Modules and binds that train compiled, in every way, against MXNet's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mxnet_helpers import backend, bound, classifier, close, mx, needs_library

pytestmark = needs_library


@pytest.fixture(autouse=True)
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_TRAINING", "1")


def both(script: Callable[[], list[Any]]) -> None:
    results = []
    for value in ("NGRAPH", None):
        with backend(value):
            mx.random.seed(5)
            np.random.seed(5)
            results.append([one.asnumpy() if isinstance(one, mx.nd.NDArray) else one for one in script()])
    for one, other in zip(*results, strict=True):
        close(one, other, rtol=1e-3, atol=1e-5)


def trained(executor: Any, compiled: bool = True) -> None:
    """Whether the last step was compiled is as expected, where that can be told."""
    if hasattr(executor, "training"):
        assert executor.training.ran == compiled


def batch(number: int, size: int = 4) -> mx.io.DataBatch:
    x = np.random.default_rng(number).uniform(size=(size, 6))
    return mx.io.DataBatch([mx.nd.array(x)], [mx.nd.array(x[:, :3].argmax(axis=1))])


def module(**bind: Any) -> mx.mod.Module:
    made = mx.mod.Module(classifier())
    made.bind([("data", (4, 6))], [("softmax_label", (4,))], **bind)
    made.init_params(mx.init.Xavier())
    made.init_optimizer(optimizer_params={"learning_rate": 0.2})
    return made


def test_batches_of_other_sizes() -> None:
    def script() -> list[Any]:
        made, found = module(inputs_need_grad=True), []
        for number, size in enumerate((4, 2, 8, 4)):
            made.forward_backward(batch(number, size))
            trained(made._exec_group.execs[0])
            found += [made.get_outputs()[0].copy(), made.get_input_grads()[0].copy()]
            made.update()
            made.forward(batch(9, size), is_train=False)
            found.append(made.get_outputs()[0].copy())
        return [*found, *made.get_params()[0].values()]

    both(script)


def test_buckets() -> None:
    def net(length: int) -> Any:
        hidden = mx.sym.FullyConnected(mx.sym.mean(mx.sym.Variable("data"), axis=1), num_hidden=3, name="fc")
        return mx.sym.SoftmaxOutput(mx.sym.tanh(hidden), name="softmax"), ("data",), ("softmax_label",)

    def script() -> list[Any]:
        made, found = mx.mod.BucketingModule(net, default_bucket_key=8), []
        made.bind([("data", (2, 8, 5))], [("softmax_label", (2,))])
        made.init_params(mx.init.Xavier())
        made.init_optimizer("adam")
        for length in (8, 4, 6, 4, 8):
            x = np.random.default_rng(length).uniform(size=(2, length, 5))
            made.forward_backward(mx.io.DataBatch([mx.nd.array(x)], [mx.nd.array([0, 2])], bucket_key=length,
                                                  provide_data=[("data", x.shape)],
                                                  provide_label=[("softmax_label", (2,))]))
            trained(made._curr_module._exec_group.execs[0])
            made.update()
            found.append(made.get_outputs()[0].copy())
        return [*found, *made.get_params()[0].values()]

    both(script)


def test_modules_in_sequence() -> None:
    def script() -> list[Any]:
        first = mx.sym.tanh(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="first"))
        made = mx.mod.SequentialModule()
        made.add(mx.mod.Module(first, label_names=None))
        made.add(mx.mod.Module(classifier()), take_labels=True, auto_wiring=True)
        made.bind([("data", (4, 6))], [("softmax_label", (4,))])
        made.init_params(mx.init.Xavier())
        made.init_optimizer()
        found = []
        for number in range(3):
            made.forward_backward(batch(number))
            for one in made._modules:
                trained(one._exec_group.execs[0])
            made.update()
            found.append(made.get_outputs()[0].copy())
        return [*found, *made.get_params()[0].values()]

    both(script)


def test_a_monitor_sees_all_operators() -> None:
    """MXNet runs the steps."""
    seen: list[set[str]] = []

    def script() -> list[Any]:
        made = module()
        monitor = mx.mon.Monitor(1, stat_func=lambda array: array.max(), pattern=".*")
        made.install_monitor(monitor)
        monitor.tic()
        made.forward_backward(batch(0))
        trained(made._exec_group.execs[0], compiled=False)
        made.update()
        seen.append({name for _, name, _ in monitor.toc()})
        return list(made.get_params()[0].values())

    both(script)
    assert any("relu1" in name for name in seen[0])


@pytest.mark.parametrize("grad_req", [
    "write", "add", {"fc1_weight": "add", "data": "write"}, ["null", "write", "add", "write", "null", "null"]])
def test_requests_of_a_bind(grad_req: Any) -> None:
    executors = [bound(classifier(), value, grad_req, data=(4, 6)) for value in ("NGRAPH", None)]
    for made in executors:
        for grad in made.grad_arrays:
            if grad is not None:
                grad[:] = 0
        for number in range(3):
            made.forward(is_train=True, data=batch(number).data[0])
            made.backward()
        trained(made)
    for name, grad in executors[1].grad_dict.items():
        if grad is None:
            assert executors[0].grad_dict[name] is None
        else:
            close(executors[0].grad_dict[name], grad)


def test_one_array_for_two_gradients_is_mxnets() -> None:
    """Arguments that share their memory."""
    def script() -> list[Any]:
        weight, gradient = mx.nd.ones((6, 6)) * 0.1, mx.nd.zeros((6, 6))
        x = mx.sym.Variable("x")
        y = mx.sym.dot(mx.sym.dot(x, mx.sym.Variable("a")), mx.sym.Variable("b"))
        made = y.bind(mx.cpu(), {"x": mx.nd.ones((4, 6)), "a": weight, "b": weight},
                      {"a": gradient, "b": gradient}, {"a": "add", "b": "add"})
        made.forward(is_train=True)
        made.backward(mx.nd.ones((4, 6)))
        return [gradient, made.outputs[0]]

    both(script)
