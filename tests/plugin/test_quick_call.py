"""A block's short way to its compiled graph: taken only where Gluon's own would give the same."""

from __future__ import annotations

import numpy as np
import pytest
from mxnet_helpers import backend, close, mx, needs_library

from mxnet import autograd  # isort: skip  # the helpers make it importable
from mxnet.gluon import nn  # isort: skip
from ngraph_mxnet import _core
from ngraph_mxnet.plugin.binding.gluon_blocks import of_block

pytestmark = needs_library

WIDTH = 4


@pytest.fixture(autouse=True)
def ours(monkeypatch):
    monkeypatch.setenv("NGRAPH_DIRECT", "1")
    with backend("NGRAPH"):
        yield


def some(rows: int = 2, seed: int = 0) -> mx.nd.NDArray:
    array = mx.nd.array(np.random.default_rng(seed).uniform(-1, 1, (rows, WIDTH)))
    array.wait_to_read()
    return array


def dense(**flags: bool) -> nn.HybridBlock:
    net = nn.HybridSequential()
    net.add(nn.Dense(WIDTH, in_units=WIDTH, activation="tanh"))
    net.initialize(mx.init.Uniform(1))
    net.hybridize(**flags)
    for rows in (2, 3):
        net(some(rows)).wait_to_read()
    return net


def expected(net: nn.HybridBlock, x: mx.nd.NDArray) -> np.ndarray:
    weight, bias = (parameter.data().asnumpy() for parameter in net.collect_params().values())
    return np.tanh(x.asnumpy() @ weight.T + bias)


@pytest.mark.parametrize("flags", [{}, {"static_alloc": True, "static_shape": True}])
def test_calls(flags, short):
    net = dense(**flags)
    for seed in range(4):
        for rows in (2, 3):
            x = some(rows, seed)
            y = net(x)
            assert type(y) is mx.nd.NDArray and y.shape == (rows, WIDTH)
            close(y, expected(net, x))
    assert short.count(True) >= 7


def test_parameters_that_change(short):
    net, x = dense(), some()
    for _ in range(2):
        net(x).wait_to_read()
    del short[:]
    weight = net[0].weight
    for change in (lambda: weight.set_data(weight.data() * 2), lambda: weight.data().__iadd__(0.5),
                   lambda: net.initialize(mx.init.Uniform(2), force_reinit=True), lambda: weight.data()[:].__isub__(1)):
        change()
        mx.nd.waitall()
        for _ in range(3):
            close(net(x), expected(net, x))
    assert short.count(False) == 1 and short.count(True) >= 8, "only another array is another matter"


def test_a_parameter_cast_or_moved(short):
    net, x = dense(), some()
    net.collect_params().reset_ctx(mx.cpu(1))
    with pytest.raises(mx.MXNetError, match="same context"):
        net(x)
    there = x.as_in_context(mx.cpu(1))
    close(net(there), expected(net, there))
    net.collect_params().reset_ctx(mx.cpu())
    net.cast("float64")
    y = net(x.astype("float64"))
    assert y.dtype == np.float64
    close(y, expected(net, x))


def test_what_is_not_for_it(short):
    net, x = dense(), some()
    net(x).wait_to_read()
    del short[:]
    seen: list[str] = []
    hook = net.register_forward_hook(lambda *_: seen.append("after"))
    before = net.register_forward_pre_hook(lambda *_: seen.append("before"))
    close(net(x), expected(net, x))
    assert seen == ["before", "after"]
    hook.detach(), before.detach()
    with autograd.record():
        y = net(x)
    y.backward()
    with autograd.train_mode():
        close(net(x), expected(net, x))
    assert isinstance(net(mx.sym.var("data")), mx.sym.Symbol)
    with pytest.raises((TypeError, ValueError, AttributeError)):
        net(x.asnumpy())
    with backend(None):
        close(net(x), expected(net, x))
    assert True not in short
    net.hybridize(False)
    close(net(x), expected(net, x))
    net.hybridize()
    net(x).wait_to_read()
    close(net(x), expected(net, x))
    assert short.count(True) == 1


def test_arguments_of_other_shapes_types_and_numbers(short):
    class Sum(nn.HybridBlock):
        def hybrid_forward(self, F, a, b):  # noqa: N803
            return [F.tanh(a) + b, (a * b, a)]

    net = Sum()
    net.hybridize()
    for _ in range(3):
        for a, b in ((some(2), some(2, 1)), (some(3), some(3, 1)), (some(2).astype("float64"),) * 2):
            total, (product, same) = net(a, b)
            close(total, np.tanh(a.asnumpy()) + b.asnumpy())
            close(product, a.asnumpy() * b.asnumpy())
            close(same, a)
    with pytest.raises((ValueError, mx.MXNetError, AssertionError)):
        net(some(2), some(3)).wait_to_read()
    with pytest.raises((TypeError, ValueError)):
        net(some(2))


def test_forward_of_the_users(short):
    class Doubled(nn.HybridSequential):
        def forward(self, x, *args):
            return super().forward(x, *args) * 2

    net = Doubled()
    net.add(nn.Dense(WIDTH, in_units=WIDTH, activation="tanh"))
    net.initialize()
    net.hybridize()
    for _ in range(3):
        close(net(some()), 2 * expected(net, some()))
    assert not short or True not in short


def test_a_symbol_block(short, tmp_path):
    net = dense()
    net.export(str(tmp_path / "net"))
    files = [str(tmp_path / name) for name in ("net-symbol.json", "net-0000.params")]
    loaded = mx.gluon.SymbolBlock.imports(files[0], ["data"], files[1])
    loaded.hybridize()
    for _ in range(3):
        close(loaded(some()), expected(net, some()))
        mx.nd.waitall()
    assert True in short


def test_a_block_is_not_kept_alive():
    import gc
    import weakref

    net = dense()
    net(some()).wait_to_read()
    assert of_block(net).quick is not None
    alive = weakref.ref(net)
    gc.disable()
    try:
        kept = alive() is not None
        del net
        freed_at_once = alive() is None
    finally:
        gc.enable()
    gc.collect()
    assert kept and (freed_at_once or alive() is None)


def test_direct_calls_check_their_arguments():
    with pytest.raises(ValueError, match="as many"):
        _core.DirectCall(0, [1], [])
    with pytest.raises(IndexError, match="argument 0"):
        _core.DirectCall(0, [1], [0]).call()
    assert _core.DirectCall(0, [1], [0]).call(1) is None
