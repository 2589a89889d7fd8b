"""Executors and modules that train in parts, against MXNet's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mxnet_helpers import backend, bound, close, mx, needs_library

from ngraph_mxnet.plugin.training.parts import BoundParts

pytestmark = needs_library

SHAPES = {"data": (4, 6), "triangle": (4, 4)}


@pytest.fixture(autouse=True)
def on(monkeypatch: pytest.MonkeyPatch, small_parts: None) -> None:
    monkeypatch.setenv("NGRAPH_TRAINING", "1")


def network(loss: bool = True) -> mx.sym.Symbol:
    """Solves a system of equations between its layers."""
    hidden = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="fc1")
    hidden = mx.sym.BatchNorm(hidden, fix_gamma=False, name="norm")
    solved = mx.sym.linalg.trsm(mx.sym.Variable("triangle"), mx.sym.tanh(hidden), name="solved")
    last = mx.sym.FullyConnected(solved, num_hidden=3, name="fc2")
    return mx.sym.SoftmaxOutput(last, name="softmax") if loss else last


def both(symbol: mx.sym.Symbol, grad_req: Any = "write") -> list[mx.executor.Executor]:
    made = [bound(symbol, value, grad_req, **SHAPES) for value in ("NGRAPH", None)]
    for each in made:
        each.arg_dict["triangle"][:] = np.eye(4) * 2 + 0.1
        for grad in each.grad_arrays:
            if grad is not None:
                grad[:] = 0
    return made


def same(ours: mx.executor.Executor, theirs: mx.executor.Executor) -> None:
    mx.nd.waitall()  # reading MXNet's states does not wait for its backward pass
    assert isinstance(ours.training.step, BoundParts)
    for arrays in ("output_dict", "aux_dict", "grad_dict"):
        for name, array in getattr(theirs, arrays).items():
            if array is not None:
                close(getattr(ours, arrays)[name], array, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("grad_req", [
    "write", "add", {"fc1_weight": "add", "triangle": "write", "fc2_weight": "write"},
    ["null", "write", "add", "write", "write", "null", "write", "write", "null"]])
def test_steps(grad_req: Any) -> None:
    made = both(network(), grad_req)
    for number in range(3):
        for each in made:
            each.forward(is_train=True, data=mx.nd.array(np.random.default_rng(number).normal(size=SHAPES["data"])))
            each.backward()
        same(*made)
        for each in made:
            each.arg_dict["fc2_weight"][:] *= 0.9
            each.forward(is_train=False)
        close(made[0].outputs[0], made[1].outputs[0])


def test_head_gradients() -> None:
    made = both(network(loss=False))
    head = mx.nd.array(np.random.default_rng(0).normal(size=(4, 3)))
    for each in made:
        each.forward(is_train=True)
        with pytest.raises(mx.MXNetError, match="head_gradient is required"):
            each.backward()
        each.backward(head)
    same(*made)
    once = made[0].grad_dict["fc1_weight"].asnumpy()
    made[0].backward(head * 2)
    close(made[0].grad_dict["fc1_weight"], once * 2)


def test_several_outputs() -> None:
    whole = network(loss=False)
    made = both(mx.sym.Group([whole, mx.sym.BlockGrad(whole * 2), whole.get_internals()["solved_output"]]))
    heads = [mx.nd.array(np.random.default_rng(0).normal(size=output.shape)) for output in made[0].outputs]
    for each in made:
        each.forward(is_train=True)
        each.backward(heads)
    same(*made)


def test_a_module_learns_the_same() -> None:
    rng = np.random.default_rng(0)
    x, triangle = rng.uniform(size=(16, 6)).astype("f"), np.tile(np.eye(4, dtype="f") * 2, (4, 1))
    results = []
    for value in ("NGRAPH", None):
        with backend(value):
            mx.random.seed(5)
            np.random.seed(5)
            module = mx.mod.Module(network(), data_names=("data", "triangle"))
            batches = mx.io.NDArrayIter({"data": x, "triangle": triangle}, x[:, :3].argmax(axis=1).astype("f"), 4,
                                        label_name="softmax_label")
            module.bind(batches.provide_data, batches.provide_label, inputs_need_grad=True)
            module.fit(batches, eval_data=batches, num_epoch=3, optimizer_params={"learning_rate": 0.2},
                       initializer=mx.init.Xavier())
            results.append([*(array.asnumpy() for array in module.get_params()[0].values()),
                            module.get_input_grads()[0].asnumpy()])
    for one, other in zip(*results, strict=True):
        close(one, other, rtol=1e-3, atol=1e-4)
