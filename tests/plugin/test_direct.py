"""Graphs that are ours as a whole run past MXNet's op: the same results, in the engine's order, with its exceptions."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet_helpers import CONV_SHAPE, backend, bound, close, conv_net, fill, mx, needs_library, run_script

from mxnet import autograd  # isort: skip  # the helpers make it importable
from mxnet.gluon import nn  # isort: skip
from ngraph_mxnet import _core

pytestmark = needs_library

WIDTH = 6
FLAGS = [{}, {"static_alloc": True, "static_shape": True}]


def dense_net(flags: dict[str, bool], layers: int = 2, seed: int = 0) -> nn.HybridBlock:
    net = nn.HybridSequential()
    for _ in range(layers):
        net.add(nn.Dense(WIDTH, in_units=WIDTH, flatten=False, activation="tanh"))
    net.initialize()
    rng = np.random.default_rng(seed)
    for parameter in net.collect_params().values():
        parameter.set_data(mx.nd.array(rng.uniform(-1, 1, parameter.shape)))
    net.hybridize(**flags)
    return net


def some(rows: int = 3, seed: int = 1) -> mx.nd.NDArray:
    array = mx.nd.array(np.random.default_rng(seed).uniform(-1, 1, (rows, WIDTH)))
    array.wait_to_read()
    return array


def in_mxnet(net: nn.HybridBlock, *args: mx.nd.NDArray) -> np.ndarray:
    """MXNet's own result, without a graph. It may leave the parameters in another layout, behind the caller's back."""
    net._active = False
    try:
        with backend(None):
            return net(*args).asnumpy()
    finally:
        net._active = True
        mx.nd.waitall()


@contextmanager
def direct(calls: int | None) -> Iterator[None]:
    """So many calls go past MXNet's op; None: most do. Not an executor's first, whose outputs have no memory yet."""
    before, ops = _core.direct_calls(), _core.op_calls()
    yield
    mx.nd.waitall()
    assert _core.op_calls() > ops
    found = _core.direct_calls() - before
    assert found >= (_core.op_calls() - ops) / 2 if calls is None else found == calls


@pytest.fixture(autouse=True)
def ours(monkeypatch):
    monkeypatch.setenv("NGRAPH_DIRECT", "1")
    with backend("NGRAPH"):
        yield


@pytest.mark.parametrize("flags", FLAGS)
def test_blocks(flags):
    net = dense_net(flags)
    for rows in (3, 5):
        net(some(rows)).wait_to_read()  # the first call makes the op
    with direct(None):
        for seed in range(5):
            for rows in (3, 5):
                x = some(rows, seed)
                y = net(x)
                assert (y.shape, y.dtype, y.context, y.stype) == ((rows, WIDTH), np.float32, mx.cpu(), "default")
                close(y, in_mxnet(net, x))


def test_executors(monkeypatch):
    symbol = conv_net()
    executor, theirs = (bound(symbol, value, data=CONV_SHAPE) for value in ("NGRAPH", "NONE"))
    with direct(None):
        for seed in range(4):
            fill(executor, seed), fill(theirs, seed)
            x = mx.nd.array(np.random.default_rng(seed).uniform(size=CONV_SHAPE))
            close(executor.forward(is_train=False, data=x)[0], theirs.forward(is_train=False, data=x)[0])
    with direct(1):
        executor.forward(is_train=True, data=x)
        executor.backward(mx.nd.ones((2, 5)))
        executor.forward(is_train=False)[0].wait_to_read()
        monkeypatch.setenv("NGRAPH_DIRECT", "0")
        bound(symbol, "NGRAPH", data=CONV_SHAPE).forward()


def test_outputs_keep_their_order():
    x, y = mx.sym.var("x"), mx.sym.var("y")
    total = x + y
    symbol = mx.sym.Group([mx.sym.exp(total), mx.sym.concat(total, x, dim=1), total - 1])
    executor = bound(symbol, "NGRAPH", x=(2, 3), y=(2, 3))
    a, b = (np.random.default_rng(seed).uniform(size=(2, 3)).astype("f") for seed in (0, 1))
    executor.forward(x=mx.nd.array(a), y=mx.nd.array(b))
    for _ in range(3):
        expected = np.exp(a + b), np.concatenate([a + b, a], 1), a + b - 1
        for output, values in zip(executor.outputs, expected, strict=True):
            close(output, values)
        with direct(None):
            for _ in range(4):
                executor.forward()
                mx.nd.waitall()


def test_an_input_used_twice_and_slices():
    class Sum(nn.HybridBlock):
        def hybrid_forward(self, F, a, b):  # noqa: N803
            return F.tanh(a) + 2 * b

    net = Sum()
    net.hybridize()
    whole = some(8)
    net(whole[0:3], whole[0:3])
    with direct(None):
        for a, b in ((whole[1:4], whole[1:4]), (whole[0:3], whole[5:8]), (whole[2:5], whole[3:6])):
            close(net(a, b), np.tanh(a.asnumpy()) + 2 * b.asnumpy())


@pytest.mark.parametrize("awaited", [False, True])
def test_what_onednn_lays_out_in_its_own_way(awaited):
    conv = nn.Conv2D(16, 3, padding=1)
    conv.initialize()
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3, in_channels=16), nn.Dense(5))
    net.initialize(mx.init.Uniform(0.5))
    image = mx.nd.random.uniform(shape=(2, 8, 14, 14))
    expected = net(conv(image)).asnumpy()  # leaves the parameters in oneDNN's layout, too
    net.hybridize()
    for _ in range(3):
        x = conv(image)
        if awaited:
            x.wait_to_read()
        close(net(x), expected)
    with direct(None):
        for x in (conv(image), mx.nd.Pooling(conv(image), kernel=(3, 3), pad=(1, 1), pool_type="max")):
            x.wait_to_read()
            close(net(x), in_mxnet(net, x))


def test_other_devices():
    net, x = dense_net({}), some()
    expected = in_mxnet(net, x)
    net.collect_params().reset_ctx(mx.cpu(1))
    there = x.as_in_context(mx.cpu(1))
    net(there).wait_to_read()
    with direct(1):
        y = net(there)
        assert y.context == mx.cpu(1)
        close(y, expected)
    with direct(1):
        for elsewhere in (x, x.as_in_context(mx.Context("cpu_shared", 0))):
            with pytest.raises(mx.MXNetError, match="same context"):
                net(elsewhere)
        close(net(there), expected)


@pytest.mark.parametrize("flags", FLAGS)
def test_autograd(flags, monkeypatch):
    monkeypatch.setenv("NGRAPH_TRAINING", "0")  # compiled steps are direct calls, too
    net, x = dense_net(flags), some()
    net(x)
    x.attach_grad()
    with direct(1):
        close(net(x), in_mxnet(net, x))
        with autograd.record():
            y = net(x)
        y.backward()
        assert float(x.grad.abs().sum().asscalar()) > 0
        close(y, in_mxnet(net, x))


def failing() -> mx.nd.NDArray:
    """An array whose computation fails behind the caller's back."""
    return mx.nd.random.normal(0, -1, shape=(3, WIDTH))


def test_failures_of_inputs_show_where_the_output_is_awaited():
    net, x = dense_net({}), some()
    net(x).wait_to_read()
    for _ in range(3):
        y = net(failing())
        with pytest.raises(mx.MXNetError, match="scale"):
            y.asnumpy()
    with direct(None):
        close(net(x), in_mxnet(net, x))


def test_failures_of_ours_show_where_the_output_is_awaited(tmp_path):
    """Such as of memory that the system does not give."""
    run = run_script("""
import resource
import mxnet as mx
from ngraph_mxnet import _core

def bound(pixels):
    net = mx.sym.var("x")
    for _ in range(3):
        net = mx.sym.Pooling(net, kernel=(3, 3), pad=(1, 1), pool_type="max")
    return net.simple_bind(mx.cpu(), x=(1, 64, pixels, pixels))

def outcome(executor):
    try:
        return executor.outputs[0][0, 0, 0, :1].asscalar()
    except mx.MXNetError as error:
        assert "NGraphSubgraphOp: " in str(error) and "bad_alloc" in str(error), error

executors = bound(1024), bound(1024)
for executor in executors:
    executor.forward()
    print(outcome(executor))
limits = resource.getrlimit(resource.RLIMIT_AS)
with open("/proc/self/statm") as file:
    pages = int(file.read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + 100 * 2**20, limits[1]))
for executor in executors:
    executor.forward()
print(*sorted(str(outcome(executor)) for executor in executors))  # one has the memory of the first calls
resource.setrlimit(resource.RLIMIT_AS, limits)
for executor in executors:
    executor.forward()
    print(outcome(executor))
assert _core.direct_calls() >= 2
""", tmp_path, "NGRAPH")
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["0.0", "0.0", "0.0", "None", "0.0", "0.0"]


def test_monitors_hooks_and_the_profiler(tmp_path):
    executor = bound(mx.sym.exp(mx.sym.var("x")), "NGRAPH", x=(2, 3))
    seen: list[str] = []
    net, x = dense_net({}), some()
    net(x).wait_to_read()
    with direct(0):
        mx.profiler.set_config(profile_all=True, aggregate_stats=True, filename=str(tmp_path / "profile.json"))
        mx.profiler.set_state("run")
        executor.forward()
        net(x)
        mx.nd.waitall()
        mx.profiler.set_state("stop")
        assert "NGraphSubgraphOp" in mx.profiler.dumps(reset=True)
    with direct(2):
        executor.forward()
        net(x)
    executor.set_monitor_callback(lambda name, _: seen.append(name))
    net.register_op_hook(lambda name, *_: seen.append(name))
    calls = _core.direct_calls()
    executor.forward()
    net(x)
    mx.nd.waitall()
    assert _core.direct_calls() == calls and len(seen) >= 3


def test_the_graph_shows_our_op_still():
    executor = bound(conv_net(), "NGRAPH", data=CONV_SHAPE)
    executor.forward()
    assert "NGraphSubgraphOp" in executor.debug_str()


def test_the_naive_engine_runs_all(tmp_path):
    run = run_script("""
import mxnet as mx
from ngraph_mxnet import _core
executor = mx.sym.exp(mx.sym.var("x")).simple_bind(mx.cpu(), x=(2, 3))
for _ in range(3):
    assert (executor.forward()[0].asnumpy() == 1).all()
assert _core.op_calls() == 3 and _core.direct_calls() == 0
""", tmp_path, "NGRAPH", MXNET_ENGINE_TYPE="NaiveEngine")
    assert run.returncode == 0, run.stderr


def test_long_graphs_leave_the_caller_alone():
    """And whoever drops the arrays meanwhile, or asks for the next result before the first is there, does no harm."""
    symbol = mx.sym.var("x")
    for number in range(6):
        symbol = mx.sym.FullyConnected(symbol, num_hidden=1024, no_bias=True, name=f"dense{number}")
    executor = bound(symbol, "NGRAPH", x=(512, 1024))
    for name, array in executor.arg_dict.items():
        array[:] = 1 if name == "x" else 1 / 1024
    executor.forward()[0].wait_to_read()
    calls, whole = [], []
    with direct(None):
        for _ in range(10):
            begin = time.perf_counter()
            executor.forward()
            calls.append(time.perf_counter() - begin)
            executor.outputs[0].wait_to_read()
            whole.append(time.perf_counter() - begin)
    assert min(calls) < min(whole) / 3
    for _ in range(3):
        executor.forward()
    outputs = executor.outputs
    del executor
    close(outputs[0], np.ones((512, 1024)))


Step = Callable[[nn.HybridBlock, list[mx.nd.NDArray]], None]
STEPS: dict[str, Step] = {
    "call": lambda net, arrays: arrays.append(net(arrays[-1])),
    "call the first": lambda net, arrays: arrays.append(net(arrays[0])),
    "wait": lambda net, arrays: arrays[-1].wait_to_read(),
    "add in place": lambda net, arrays: arrays[0].__iadd__(arrays[-1]),
    "overwrite": lambda net, arrays: arrays[-1].__setitem__(slice(None), arrays[-1].asnumpy()[::-1] * 0.5),
    "overwrite, unread": lambda net, arrays: arrays[-1].__setitem__(slice(None), 0.25),
    "native": lambda net, arrays: arrays.append(mx.nd.softmax(arrays[-1] * 2)),
    "copy": lambda net, arrays: arrays[-1].copyto(arrays[0]),
    "a slice": lambda net, arrays: arrays.append(net(mx.nd.concat(arrays[0], arrays[-1], dim=0)[1:4])),
    "weights": lambda net, arrays: net[0].weight.set_data(net[0].weight.data() * 0.9),
    "weights in place": lambda net, arrays: net[1].bias.data().__isub__(0.1),
}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=30), st.sampled_from(FLAGS))
def test_any_order_of_reads_and_writes(steps, flags):
    """The engine of MXNet decides it, with our op as without it."""
    results = []
    for setting in ("1", "0"):
        os.environ["NGRAPH_DIRECT"] = setting  # not by a fixture, of which there is one for all examples
        net, arrays = dense_net(flags), [some()]
        net(arrays[0])
        for step in steps:
            STEPS[step](net, arrays)
        results.append([array.asnumpy() for array in arrays])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def in_threads(count: int, body: Callable[[int], None]) -> None:
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            body(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures and not any(thread.is_alive() for thread in threads)


def test_threads_with_executors_of_their_own():
    executors = [fill(bound(conv_net(), "NGRAPH", data=CONV_SHAPE), 0) for _ in range(6)]
    images = [np.random.default_rng(number).uniform(size=CONV_SHAPE).astype("f") for number in range(6)]
    expected = [executors[0].forward(data=mx.nd.array(image))[0].asnumpy() for image in images]

    def body(number: int) -> None:
        for turn in range(60):
            which = (number + turn) % 6
            executors[number].forward(data=mx.nd.array(images[which]))
            np.testing.assert_array_equal(executors[number].outputs[0].asnumpy(), expected[which])

    with direct(None):
        in_threads(6, body)


@pytest.mark.parametrize("flags", FLAGS)
def test_threads_with_one_block(flags):
    net = dense_net(flags)
    expected = {rows: net(some(rows)).asnumpy() for rows in range(1, 5)}

    def body(number: int) -> None:
        for turn in range(60):
            rows = 1 + (number + turn) % 4
            np.testing.assert_array_equal(net(some(rows)).asnumpy(), expected[rows])

    with direct(None):
        in_threads(6, body)


def test_pools_and_event_loops():
    net = dense_net({})
    expected = {rows: net(some(rows)).asnumpy() for rows in range(1, 5)}

    def call(number: int) -> bool:
        rows = 1 + number % 4
        return np.array_equal(net(some(rows)).asnumpy(), expected[rows])

    async def many() -> list[bool]:
        return await asyncio.gather(*(asyncio.to_thread(call, number) for number in range(100)))

    with direct(None):
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(call, range(100)))
        assert all(asyncio.run(many()))


def test_threads_with_one_executor():
    """Results are anybody's, as in MXNet; but nothing hangs, whichever arrays are read and written."""
    x, y = mx.sym.var("x"), mx.sym.var("y")
    symbol = mx.sym.Group([x + y, x * y])
    one = bound(symbol, "NGRAPH", x=(2, 3), y=(2, 3))
    other = symbol.bind(mx.cpu(), {"x": one.outputs[0], "y": one.outputs[1]}, grad_req="null")

    def body(number: int) -> None:
        for _ in range(100):
            (one, other)[number % 2].forward()
            (one, other)[number % 2].outputs[number % 3 % 2].wait_to_read()

    in_threads(6, body)
