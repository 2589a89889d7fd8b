"""Hybridized blocks: implicit by the environment variable, explicit by `backend="NGRAPH"`."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from mxnet_helpers import backend, close, mx, needs_library

from ngraph_mxnet.plugin.binding import gluon_blocks

from mxnet import autograd, gluon  # isort: skip  # the helpers make it importable
from mxnet.gluon import nn  # isort: skip
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.targets.interpreter import InterpreterBackend

pytestmark = needs_library

SHAPE = (2, 3, 8, 8)


def make_net(dropout: float = 0.5) -> nn.HybridSequential:
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(
            nn.Conv2D(4, 3, activation="relu"), nn.BatchNorm(), nn.Dropout(dropout), nn.Flatten(), nn.Dense(5)
        )
    net.initialize(mx.init.Xavier(rnd_type="gaussian"))
    return net


def batch(n: int = SHAPE[0], seed: int = 0) -> mx.nd.NDArray:
    return mx.nd.array(np.random.default_rng(seed).uniform(size=(n, *SHAPE[1:])).astype(np.float32))


def runs_compiled(net: gluon.HybridBlock) -> bool:
    bodies = gluon_blocks.of_block(net).bodies
    return bodies is not None and bodies.cached_op is net._cached_op and bodies.latest is not None


STATIC = [{}, {"static_alloc": True}, {"static_alloc": True, "static_shape": True}]


@pytest.mark.parametrize("flags", STATIC)
@pytest.mark.parametrize("explicit", [None, "NGRAPH", "ngraph"])
def test_inference(explicit, flags):
    net, x = make_net(), batch()
    expected = net(x)
    with backend(None if explicit else "nGraph"):
        net.hybridize(backend=explicit, **flags)
        for _ in range(3):
            close(net(x), expected)
        assert runs_compiled(net)
        for n in (5, 1, 2, 5):
            with_n = net(batch(n, seed=n))
            net_eager = net._cached_op
            assert with_n.shape == (n, 5)
            assert net._cached_op is net_eager
    with backend(None):
        net.hybridize(active=False)
        close(net(batch(5, seed=5)), with_n)


def test_without_the_variable_hybridize_is_stock():
    net = make_net()
    with backend(None):
        net.hybridize()
        net(batch())
    assert not runs_compiled(net)


@pytest.mark.parametrize("flags", STATIC)
def test_training_equals_native_and_inference_sees_each_step(flags):
    mx.random.seed(3)
    nets = [make_net(dropout=0) for _ in range(2)]
    x = batch()
    for net in nets:
        net(x)
    for ours, stock in zip(nets[0].collect_params().values(), nets[1].collect_params().values(), strict=True):
        stock.set_data(ours.data())
    results = []
    for net, value in zip(nets, ("NGRAPH", None), strict=True):
        with backend(value):
            net.hybridize(**flags)
            trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
            steps = []
            for _ in range(4):
                with autograd.record():
                    loss = (net(x) ** 2).mean()
                loss.backward()
                trainer.step(2)
                steps += [loss.asnumpy(), net(x).asnumpy()]
            results.append(steps)
    assert runs_compiled(nets[0])
    for ours, stock in zip(*results, strict=True):
        close(ours, stock, rtol=1e-3, atol=1e-4)


def test_modes_of_autograd():
    net, x = make_net(), batch()
    expected = net(x)
    with backend("NGRAPH"):
        net.hybridize()
        with autograd.train_mode():
            assert np.abs((net(x) - expected).asnumpy()).max() > 1e-3, "dropout drops in training mode"
        with autograd.record(train_mode=False):
            x.attach_grad()
            out = net(x)
        out.backward()
        assert np.abs(x.grad.asnumpy()).max() > 0
        close(out, expected)
        with autograd.record(), autograd.pause():
            close(net(x), expected)
        assert runs_compiled(net)


def test_set_data_changes_the_next_result():
    net, x = make_net(), batch()
    with backend("NGRAPH"):
        net.hybridize(static_alloc=True)
        net(x)
        net[4].weight.set_data(mx.nd.zeros_like(net[4].weight.data()))
        net[4].bias.set_data(mx.nd.ones(5))
        close(net(x), np.ones((2, 5)))


def test_deferred_initialisation_and_nested_children():
    class Outer(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.inner, self.dense = make_net(), nn.Dense(2)

        def hybrid_forward(self, F, x, scale=None):  # noqa: N803 - MXNet's name
            out = self.dense(self.inner(x))
            return out if scale is None else (out, F.broadcast_mul(out, scale))

    net = Outer()
    net.initialize()
    with backend("NGRAPH"):
        net.hybridize()
        net.inner.hybridize()
        ours = net(batch())
        inner = net.inner(batch())
        net.hybridize()
        pair = net(batch(), mx.nd.ones((1, 2)) * 3)
    net.hybridize(active=False)
    close(ours, net(batch()))
    close(inner, net.inner(batch()))
    close(pair[1], ours * 3)


def test_an_operator_hook_sees_every_operator():
    net, seen = make_net(), []
    with backend("NGRAPH"):
        net.hybridize()
        expected = net(batch())
        net.register_op_hook(lambda node, op, array: seen.append(node), monitor_all=False)
        close(net(batch()), expected)
    assert len(seen) > 3


def test_wrong_shape_and_the_call_after_it():
    net = make_net()
    with backend("NGRAPH"):
        net.hybridize()
        expected = net(batch())
        with pytest.raises(mx.MXNetError, match="Shape inconsistent"):
            net(mx.nd.ones((2, 4, 8, 8))).wait_to_read()
        close(net(batch()), expected)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_element_types(dtype):
    net = nn.HybridSequential()  # nothing that needs a matrix product: MXNet's CPU has none in float16
    net.add(nn.Activation("relu"), nn.MaxPool2D(2), nn.LeakyReLU(0.5), nn.Flatten())
    net.initialize()
    net.cast(dtype)
    x = batch().astype(dtype)
    expected = net(x)
    with backend("NGRAPH"):
        net.hybridize()
        out = net(x)
    assert out.dtype == expected.dtype
    close(out.astype("float64"), expected.astype("float64"), rtol=2e-2, atol=2e-2)


def test_a_shape_that_does_not_compile_runs_natively(own_backend, monkeypatch, caplog):
    net, asked = make_net(), []
    expected = net(batch(7))

    def refuse_seven(self, graph, options):
        asked.append(graph.results[0].shape[0])
        if asked[-1] == 7:
            raise UnsupportedError("no sevens")
        return InterpreterBackend.compile(self, graph, options)

    own_backend(InterpreterBackend, compile=refuse_seven)
    monkeypatch.setenv("NGRAPH_BACKEND", "OWN")
    monkeypatch.setenv("NGRAPH_DYNAMIC", "off")
    with backend("NGRAPH"):
        net.hybridize()
        net(batch())
        for _ in range(2):
            close(net(batch(7)), expected)
        assert net(batch(3)).shape == (3, 5)
    assert asked == [2, 7, 7, 3], "one body for all shapes, one for seven, then remembered"
    assert caplog.text.count("no sevens") == 1


def test_shapes_of_a_kind_take_no_room(monkeypatch):
    monkeypatch.setenv("NGRAPH_DIRECT", "0")  # else the first is taken for all
    net = make_net()
    with backend("NGRAPH"):
        net.hybridize()
        for n in range(1, 20):
            net(batch(n))
        assert len(gluon_blocks.of_block(net).bodies.found.values()) == 1, "one body serves them all"


@pytest.mark.parametrize("explicit", [False, True])
def test_export_and_import(tmp_path, explicit):
    net, x, path = make_net(), batch(), str(tmp_path / "net")
    with backend(None if explicit else "NGRAPH"):
        if explicit:
            net.optimize_for(x, backend="ngraph")
        else:
            net.hybridize()
        expected = net(x)
        net.export(path)
    text = (tmp_path / "net-symbol.json").read_text()
    assert ("NGraphSubgraphOp" in text) is explicit, "implicit: the original graph; explicit: as MXNet does"
    for value in ("NGRAPH", None):
        with backend(value):
            loaded = gluon.SymbolBlock.imports(path + "-symbol.json", ["data"], path + "-0000.params")
            close(loaded(x), expected)
            loaded.hybridize(static_alloc=True)
            close(loaded(x), expected)
            symbol, args, aux = mx.model.load_checkpoint(path, 0)
            executor = symbol.bind(mx.cpu(), {**args, "data": x}, aux_states=aux)
            close(executor.forward()[0], expected)


def test_threads():
    with backend("NGRAPH"):
        nets = [make_net() for _ in range(4)]
        expected = [net(batch()).asnumpy() for net in nets]
        failures = []

        def work(net, right):
            try:
                net.hybridize()
                for _ in range(10):
                    close(net(batch()), right)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=pair) for pair in zip(nets, expected, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


@pytest.mark.parametrize("layout", ["NHWC", "NDHWC"])
def test_convolutions_with_channels_last(layout: str) -> None:
    """As GPUs train them. MXNet raises on a CPU: the judge is the same block with channels first."""
    axes = len(layout) - 2
    block, first = ({2: nn.Conv2D, 3: nn.Conv3D}[axes](
        6, 3, 2, 1, groups=2, in_channels=4, layout=name, prefix="conv_")
        for name in (layout, f"NC{layout[1:-1]}"))
    for one in (block, first):
        one.initialize(mx.init.Normal(1))
        one.hybridize(backend="NGRAPH", inline_limit=0)
    to_last = (0, *range(2, axes + 2), 1)
    weight = first.weight.data()
    block.weight.set_data(weight.transpose(to_last))
    block.bias.set_data(first.bias.data() + 1)
    first.bias.set_data(block.bias.data())
    x, found = mx.nd.random.normal(shape=(2, 4, *(7, 6, 5)[:axes])), []
    for one, data in ((first, x), (block, x.transpose(to_last))):
        data.attach_grad()
        with autograd.record():
            (one(data) ** 2).sum().backward()
        found.append([array.asnumpy() for array in (one(data), data.grad, one.weight.grad(), one.bias.grad())])
    for number, (expected, got) in enumerate(zip(*found, strict=True)):
        np.testing.assert_allclose(got, expected if number == 3 else expected.transpose(to_last), rtol=1e-4, atol=1e-4)
