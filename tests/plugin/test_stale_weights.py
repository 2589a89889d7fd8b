"""No call gives what MXNet's own operators would not give at that moment, whoever wrote to a weight, and how."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mxnet_helpers import backend, close, mx, needs_library

from ngraph_mxnet.plugin.binding import gluon_blocks

from mxnet import gluon  # isort: skip  # the helpers make it importable
from mxnet.gluon import nn  # isort: skip

from ngraph_mxnet.targets.cpu.backend import CPUBackend  # isort: skip

pytestmark = needs_library

INPUTS, UNITS = 512, 16
FLAGS = [{}, {"static_alloc": True}, {"static_alloc": True, "static_shape": True}]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def dense_net(**flags: bool) -> nn.Dense:
    net = nn.Dense(UNITS, use_bias=False, in_units=INPUTS)
    net.initialize()
    net.hybridize(**flags)
    return net


def dense_executor(weight: mx.nd.NDArray, data: mx.nd.NDArray) -> mx.executor.Executor:
    symbol = mx.sym.FullyConnected(mx.sym.Variable("data"), mx.sym.Variable("weight"), num_hidden=UNITS, no_bias=True)
    return symbol.bind(mx.cpu(), {"data": data, "weight": weight}, grad_req="null")


def check(found: mx.nd.NDArray, data: np.ndarray, weight: np.ndarray) -> None:
    np.testing.assert_allclose(found.asnumpy(), data @ weight.T, rtol=1e-4, atol=1e-4)


# ---- arrays that come and go -----------------------------------------------------------------------------

def test_binding_candidates_that_differ_in_one_element():
    """Their memory is that of the candidate before, and their versions are alike."""
    data, weight = random(4, INPUTS), random(UNITS, INPUTS, seed=1)
    with backend("NGRAPH"):
        for step in range(30):
            weight[step % UNITS, 7 * step] += 1
            check(dense_executor(mx.nd.array(weight), mx.nd.array(data)).forward()[0], data, weight)


@pytest.mark.parametrize("flags", FLAGS)
def test_parameters_that_are_replaced(flags):
    data, weight = random(4, INPUTS), random(UNITS, INPUTS, seed=1)
    net = dense_net(**flags)
    with backend("NGRAPH"):
        for step in range(20):
            weight[step % UNITS, 7 * step] += 1
            net.weight._data = None
            gc.collect()
            net.weight._load_init(mx.nd.array(weight), mx.cpu())
            check(net(mx.nd.array(data)), data, weight)


class Product(gluon.HybridBlock):
    """The block's second input stands where weights stand."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def hybrid_forward(self, F, x, w):  # noqa: N803
        if self.kind == "FullyConnected":
            return F.FullyConnected(x, w, num_hidden=UNITS, no_bias=True)
        if self.kind == "dot":
            return F.dot(x, w, transpose_b=True)
        image = F.Convolution(F.reshape(x, (0, 0, 1, 1)), F.reshape(w, (0, 0, 1, 1)), num_filter=UNITS, kernel=(1, 1),
                              no_bias=True)
        return F.flatten(image)


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("kind", ["FullyConnected", "dot", "Convolution"])
def test_an_input_in_a_weights_slot_is_data(kind, flags):
    net, data = Product(kind), random(4, INPUTS)
    net.hybridize(**flags)
    with backend("NGRAPH"):
        for step in range(20):
            weight = np.zeros((UNITS, INPUTS), np.float32)
            weight[step % UNITS, 11 * step] = 1  # between the words that a sample would read
            check(net(mx.nd.array(data), mx.nd.array(weight)), data, weight)


@pytest.fixture
def made(own_backend, monkeypatch):
    """The executables of what is compiled."""
    found = []

    def compile(self: Any, graph: Any, options: Any) -> Any:
        found.append(CPUBackend.compile(self, graph, options))
        return found[-1]

    own_backend(CPUBackend, compile=compile)
    monkeypatch.setenv("NGRAPH_BACKEND", "OWN")
    monkeypatch.setenv("NGRAPH_DYNAMIC", "off")
    return found


def test_an_input_in_a_weights_slot_is_not_prepared(made):
    net = Product("FullyConnected")
    net.hybridize()
    with backend("NGRAPH"):
        for seed in range(3):
            net(mx.nd.array(random(5, INPUTS)), mx.nd.array(random(UNITS, INPUTS, seed=seed))).wait_to_read()
    assert [executable.native.prepare_runs for executable in made] == [0]


# ---- writes that MXNet does not count ------------------------------------------------------------------

@pytest.mark.parametrize("flags", FLAGS)
def test_writes_within_a_bulk(flags):
    net, data = dense_net(**flags), random(4, INPUTS)
    with backend("NGRAPH"):
        x = mx.nd.array(data)
        for step in range(10):
            change = np.zeros((UNITS, INPUTS), np.float32)
            change[step, 13 * step + 1] = 1  # not in the words that a sample would read
            more = mx.nd.array(change)
            with mx.engine.bulk(20):
                net(x)
                weight = net.weight.data()
                weight += more
                found = net(x)
                weight += more
                last = net(x)
            after = net.weight.data().asnumpy()
            check(found, data, after - change)
            check(last, data, after)
            check(net(x), data, after)


def _from_numpy(memory: np.ndarray) -> mx.nd.NDArray:
    return mx.nd.from_numpy(memory.view())  # MXNet makes what it is given read-only


def _from_dlpack(memory: np.ndarray) -> mx.nd.NDArray:
    return mx.nd.from_dlpack(mx.nd.to_dlpack_for_read(_from_numpy(memory)))


@pytest.mark.parametrize("share", [_from_numpy, _from_dlpack])
@pytest.mark.parametrize("how", ["bind", "gluon"])
def test_writes_to_shared_memory(share: Callable[[np.ndarray], mx.nd.NDArray], how):
    data, memory = random(4, INPUTS), random(UNITS, INPUTS, seed=1)
    with backend("NGRAPH"):
        weight, x = share(memory), mx.nd.array(data)
        if how == "bind":
            executor = dense_executor(weight, x)
        else:
            net = dense_net()
            net.weight._data[0] = weight
        for step in range(20):
            memory[step % UNITS, 9 * step + 1] += 1
            check(executor.forward()[0] if how == "bind" else net(x), data, memory)


def test_writes_to_exported_memory():
    """Also those that nobody read before the memory was no longer shared."""

    class Exported:
        def __init__(self, array: mx.nd.NDArray) -> None:
            self._capsule = mx.nd.to_dlpack_for_write(array)

        def __dlpack__(self, **_):
            return self._capsule

        def __dlpack_device__(self):
            return 1, 0

    def writeable(view: np.ndarray) -> np.ndarray:
        """NumPy makes what it is given by DLPack read-only."""
        buffer = (ctypes.c_float * view.size).from_address(view.ctypes.data)
        return np.frombuffer(buffer, np.float32).reshape(view.shape)

    data, weight = random(4, INPUTS), mx.nd.array(random(UNITS, INPUTS, seed=1))
    with backend("NGRAPH"):
        executor = dense_executor(weight, mx.nd.array(data))
        for step in range(6):
            executor.forward()[0].wait_to_read()
            shared = np.from_dlpack(Exported(weight))
            view = writeable(shared)
            view[step, 3 * step + 1] += 1
            if step % 2:
                check(executor.forward()[0], data, weight.asnumpy())
                view[step, 3 * step + 2] += 1
            del view, shared
            gc.collect()
            check(executor.forward()[0], data, weight.asnumpy())


@pytest.mark.parametrize("how", ["bind", "static"])
def test_a_write_while_another_thread_runs(how):
    """MXNet raises the version, and copies then: what was read in between must not stay."""
    inputs, units = 2048, 2048
    data, weight = random(1, inputs), mx.nd.zeros((units, inputs))
    symbol = mx.sym.FullyConnected(mx.sym.Variable("data"), mx.sym.Variable("weight"), num_hidden=units, no_bias=True)
    with backend("NGRAPH"):
        if how == "bind":
            executor = symbol.bind(mx.cpu(), {"data": mx.nd.array(data), "weight": weight}, grad_req="null")
            run = lambda: executor.forward()[0]  # noqa: E731
        else:
            net = gluon.SymbolBlock(symbol, [mx.sym.Variable("data")])
            net.initialize()
            net.hybridize(static_alloc=True, static_shape=True)
            x = mx.nd.array(data)
            net(x).wait_to_read()
            weight = net.params["weight"].data()
            run = lambda: net(x)  # noqa: E731
        run().wait_to_read()
        values = np.zeros((units, inputs), np.float32)
        for step in range(20):
            values[units * 2 // 5:units * 3 // 5] = step + 1  # a sample of words would see no change
            writer = threading.Thread(target=lambda values=values: weight.__setitem__(slice(None), values))
            writer.start()
            while writer.is_alive():
                run().wait_to_read()
            writer.join()
            np.testing.assert_allclose(run().asnumpy(), data @ values.T, rtol=1e-3, atol=1e-2)


def test_weights_that_are_the_same_are_not_read_again(made):
    """The other side: MXNet's own writers raise versions, so what is not written to is trusted."""
    net = dense_net(static_alloc=True)
    with backend("NGRAPH"):
        x = mx.nd.ones((3, INPUTS))
        for _ in range(5):
            net(x).wait_to_read()
        executor = dense_executor(net.weight.data(), x)
        for _ in range(5):
            executor.forward()[0].wait_to_read()
    assert sum(executable.native.prepare_runs for executable in made) == 1


def test_a_call_under_way_keeps_its_arrays():
    """Another thread's calls with other arrays come before this one has given MXNet its call."""
    released: list[int] = []

    class Holder:
        def hold(self, handles: list[int]) -> None:
            pass

        def release(self, handles: list[int]) -> None:
            released.extend(handles)

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

    first, *others = (mx.nd.ones(1) for _ in range(2 * gluon_blocks.MOST_LISTS))

    def run(array: mx.nd.NDArray) -> None:
        if array is first:
            for other in others:
                op(other)
            assert len(released) == len(others) - (gluon_blocks.MOST_LISTS - 1) and first.handle.value not in released

    op = gluon_blocks.HeldCachedOp(run, [0])
    op.holder = Holder()
    op(first)
    for other in others:
        op(other)
    assert first.handle.value in released


@pytest.mark.parametrize("flags", [{}, {"static_alloc": True}, {"static_alloc": True, "static_shape": True}])
def test_statistics_that_mxnets_own_training_moves(flags, monkeypatch):
    """Its ready-made operators raise no version of them."""
    monkeypatch.setenv("NGRAPH_TRAINING", "0")
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(4, in_units=4), mx.gluon.nn.BatchNorm(in_channels=4, momentum=0.5),
            mx.gluon.nn.Activation("tanh"))
    net.initialize(mx.init.Xavier())
    random = np.random.default_rng(0)
    with backend("NGRAPH"):
        net.hybridize(**flags)
        for _ in range(5):
            with mx.autograd.record():
                y = net(mx.nd.array(random.normal(size=(6, 4)) + 1))
            y.backward()
            x = mx.nd.array(random.normal(size=(6, 4)))
            y = net(x)
            norm = net[1]
            hidden = x.asnumpy() @ net[0].weight.data().asnumpy().T
            hidden = (hidden - norm.running_mean.data().asnumpy()) / np.sqrt(norm.running_var.data().asnumpy() + 1e-5)
            close(y, np.tanh(hidden))


def test_statistics_that_an_executors_native_training_moves(monkeypatch):
    monkeypatch.setenv("NGRAPH_TRAINING", "0")
    symbol = mx.sym.BatchNorm(mx.sym.tanh(mx.sym.var("data")) * 2, name="bn", fix_gamma=False, momentum=0.5, eps=1e-3)
    random = np.random.default_rng(0)
    with backend("NGRAPH"):
        executor = symbol.simple_bind(mx.cpu(), data=(6, 4))
        executor.arg_dict["bn_gamma"][:] = 1
        executor.aux_dict["bn_moving_var"][:] = 1
        for _ in range(5):
            executor.forward(is_train=True, data=mx.nd.array(random.normal(size=(6, 4)) + 1))
            executor.backward(mx.nd.ones((6, 4)))
            x = random.normal(size=(6, 4)).astype(np.float32)
            found = executor.forward(is_train=False, data=mx.nd.array(x))[0]
            mean, variance = (executor.aux_dict[f"bn_moving_{name}"].asnumpy() for name in ("mean", "var"))
            close(found, (np.tanh(x) * 2 - mean) / np.sqrt(variance + 1e-3))
