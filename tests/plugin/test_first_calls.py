"""One bad call takes nothing from the good ones: what fails goes to MXNet for these shapes, the next is compiled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mxnet_helpers import CONV_SHAPE, backend, close, conv_net, fill, forget_graphs, mx, needs_library, run_script

from mxnet import autograd, gluon  # isort: skip  # the helpers make it importable
import ngraph_mxnet
from ngraph_mxnet import _core
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.plugin.binding import gluon_patch

pytestmark = needs_library

PACKAGE = str(Path(ngraph_mxnet.__file__).parent)
BINDING = str(Path(gluon_patch.__file__).parent)


def mlp(**flags: bool) -> gluon.nn.HybridSequential:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(64, activation="relu"), gluon.nn.Dense(64, activation="tanh"), gluon.nn.Dense(4))
    net.initialize(mx.init.One())
    with backend("NONE"):
        net(mx.nd.ones((1, 32)))
    net.hybridize(**flags)
    return net


def calls() -> int:
    mx.nd.waitall()
    return int(_core.op_calls() + _core.direct_calls())


@pytest.mark.parametrize("flags", [{}, {"static_alloc": True, "static_shape": True}])
@pytest.mark.parametrize("bad", [(1, 33), (0, 32), (2, 3, 3)])
def test_after_a_call_of_wrong_shape_the_next_is_compiled(flags, bad):
    net = mlp(**flags)
    with backend("NGRAPH"):
        for _ in range(3):
            try:
                net(mx.nd.zeros(bad)).wait_to_read()
            except Exception:
                continue
        before = calls()
        net(mx.nd.zeros((1, 32))).wait_to_read()
        assert calls() > before


def test_after_a_recorded_call_of_wrong_shape_the_next_is_compiled(caplog):
    net = mlp()
    with backend("NGRAPH"):
        with autograd.record(), pytest.raises(mx.MXNetError):
            net(mx.nd.zeros((1, 33))).wait_to_read()
        assert not caplog.records, "the caller's mistake is told by MXNet alone"
        before = calls()
        with autograd.record():
            loss = net(mx.nd.ones((1, 32))).sum()
        loss.backward()
        assert calls() > before + 1


def test_shapes_that_fail_are_not_tried_for_ever(monkeypatch):
    net = mlp()
    tried = []

    def fail(symbol: mx.sym.Symbol, *args: Any, **options: Any) -> None:
        tried.append(symbol)
        raise KeyError("odd")

    monkeypatch.setattr(mx.sym.Symbol, "optimize_for", fail)
    with backend("NGRAPH"):
        for size in range(1, 30):
            net(mx.nd.zeros((size, 32))).wait_to_read()
            net(mx.nd.zeros((size, 32))).wait_to_read()
    assert len(tried) == gluon_patch.MOST_FAILURES + 1


def infer(size: int) -> np.ndarray:
    return mlp()(mx.nd.ones((size, 32)) / 32).asnumpy()


def train(size: int) -> np.ndarray:
    net = mlp()
    trainer = gluon.Trainer(net.collect_params(), "adam")
    loss = gluon.loss.L2Loss()
    for _ in range(2):
        with autograd.record():
            value = loss(net(mx.nd.ones((size, 32)) / 32), mx.nd.ones((size, 4)))
        value.backward()
        trainer.step(size)
    return net.collect_params()[net[0].weight.name].data().asnumpy()


def bind(size: int) -> np.ndarray:
    return fill(conv_net().simple_bind(mx.cpu(), grad_req="null", data=(size, *CONV_SHAPE[1:]))).forward()[0].asnumpy()


def bind_and_train(size: int) -> np.ndarray:
    executor = fill(conv_net().simple_bind(mx.cpu(), data=(size, *CONV_SHAPE[1:])))
    executor.forward(is_train=True)
    executor.backward(mx.nd.ones(executor.outputs[0].shape))
    return executor.grad_dict["dense_weight"].asnumpy()


Profile = Callable[[Any, str, Any], None]


def raising(error: type[BaseException] | None, moment: int, skipped: str) -> tuple[Profile, list[int]]:
    """For `sys.setprofile`: such an error is raised at this one of the calls of our functions, those left out
    whose files are in `skipped`; and how many calls there were."""
    seen = [0]

    def profile(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        path = code.co_filename
        if event != "call" or code.co_name == "__del__":
            return
        if path.startswith(PACKAGE) and not path.startswith(skipped):
            seen[0] += 1
            if seen[0] == moment and error is not None:
                sys.setprofile(None)
                raise error("odd")

    return profile, seen


def run_raising(run: Callable[[int], np.ndarray], size: int, error: type[BaseException] | None, moment: int,
                skipped: str) -> tuple[np.ndarray | None, int]:
    forget_graphs()
    profile, seen = raising(error, moment, skipped)
    sys.setprofile(profile)
    try:
        return run(size), seen[0]
    except KeyboardInterrupt:
        return None, seen[0]
    finally:
        sys.setprofile(None)
        sys.setprofile(None)


@pytest.mark.parametrize("run", [infer, train, bind, bind_and_train])
@pytest.mark.parametrize("error", [UnsupportedError, RuntimeError, KeyboardInterrupt])  # one that is kept keeps frames
@pytest.mark.parametrize("count", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_an_error_anywhere_leaves_results_right_and_later_calls_compiled(run, error, count):
    """Errors of ours where something is compiled, interrupts anywhere."""
    skipped = "nowhere" if error is KeyboardInterrupt else BINDING
    with backend("NONE"):
        expected = {size: run(size) for size in (2, 3)}
    with backend("NGRAPH"):
        last = run_raising(run, 2, None, 0, skipped)[1]
        moments = np.random.default_rng(count).integers(1, last + 1, count)
        for moment in map(int, moments):
            found, _ = run_raising(run, 2, error, moment, skipped)
            if found is not None:
                close(found, expected[2])
            before = calls()
            close(run(3), expected[3])
            assert calls() > before, f"at call {moment} of {last}"


DAEMONS = """
import threading, time, numpy as np, mxnet as mx, ngraph_mxnet
b = ngraph_mxnet.Builder()
graph = b.results(b.tanh(b.parameter("x", (64, 64))))
ones, net = np.ones((64, 64), "f4"), mx.gluon.nn.HybridSequential()
net.add(mx.gluon.nn.Dense(8, activation="tanh", in_units=8), mx.gluon.nn.Dense(8, in_units=8))
net.initialize()
net.hybridize()
def compiled():
    run = ngraph_mxnet.compile(graph)
    while True: run(ones)
def interpreted():
    run = ngraph_mxnet.compile(graph, "INTERPRETER")
    while True: run(ones)
def gluon():
    while True: net(mx.nd.ones((2, 8))).wait_to_read()
def trained():
    while True:
        with mx.autograd.record(): loss = net(mx.nd.ones((3, 8)))
        loss.backward()
        mx.nd.waitall()
def compiling():  # in a callback of MXNet's most of the time
    for units in range(1, 10000):
        one = mx.gluon.nn.HybridSequential()
        one.add(mx.gluon.nn.Dense(units, activation="tanh", in_units=8), mx.gluon.nn.Dense(8, in_units=units))
        one.initialize()
        one.hybridize()
        one(mx.nd.ones((2, 8))).wait_to_read()
for work in (compiled, compiled, interpreted, gluon, trained, compiling):
    threading.Thread(target=work, daemon=True).start()
time.sleep(SECONDS)
"""


@pytest.mark.parametrize("seconds", [0.3, 1.0, pytest.param(1.7, marks=pytest.mark.slow)])
def test_a_process_ends_quietly_while_daemon_threads_compute(seconds, tmp_path):
    done = run_script(DAEMONS.replace("SECONDS", str(seconds)), tmp_path, "NGRAPH")
    assert done.returncode == 0, done.stderr[-2000:]
    assert not done.stderr, done.stderr[-2000:]
