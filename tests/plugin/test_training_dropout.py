"""Dropout in compiled training steps (NGRAPH_TRAINING=1): what is dropped, and what it follows from."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mxnet_helpers import backend, mx, needs_library

from ngraph_mxnet.plugin.training.steps import Seeds

pytestmark = needs_library


@pytest.fixture(autouse=True)
def trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_TRAINING", "1")


def bound(symbol: mx.sym.Symbol, **shapes: tuple[int, ...]) -> mx.executor.Executor:
    with backend("NGRAPH"):
        made = symbol.simple_bind(mx.cpu(), **shapes)
    rng = np.random.default_rng(0)
    for array in made.arg_arrays:
        array[:] = rng.uniform(0.5, 1.5, array.shape)
    return made


def dropout(**attrs: object) -> mx.sym.Symbol:
    return mx.sym.Dropout(mx.sym.Variable("x"), name="drop", **attrs)


def step(made: mx.executor.Executor, head: np.ndarray | None = None) -> list[np.ndarray]:
    """The outputs, then the gradients."""
    outputs = made.forward(is_train=True)
    heads = [mx.nd.ones(output.shape) if head is None else mx.nd.array(head) for output in outputs]
    made.backward(heads)
    assert made.training.ran
    return [array.asnumpy() for array in [*outputs, *made.grad_arrays]]


@pytest.mark.parametrize("p", [0.2, 0.5])
@pytest.mark.parametrize("mode", ["training", "always"])
def test_what_is_kept_grows_and_its_gradient_too(p: float, mode: str) -> None:
    made, shape = bound(dropout(p=p, mode=mode), x=(200, 300)), (200, 300)
    head = np.random.default_rng(1).normal(size=shape).astype("f")
    y, gradient = step(made, head)
    kept, share = y != 0, np.float32(1) / (np.float32(1) - np.float32(p))
    assert abs(int(kept.sum()) - (1 - p) * y.size) <= 5 * math.sqrt(y.size * p * (1 - p))
    np.testing.assert_array_equal(y, np.where(kept, made.arg_dict["x"].asnumpy() * share, 0))
    np.testing.assert_array_equal(gradient, np.where(kept, head * share, 0))
    if mode == "training":
        made.forward(is_train=False)
        np.testing.assert_array_equal(made.outputs[0].asnumpy(), made.arg_dict["x"].asnumpy())


def test_steps_follow_from_the_seed() -> None:
    """Another executor goes on where the last step ended."""
    def run(seed: int) -> list[bytes]:
        mx.random.seed(seed)
        first, second = (bound(dropout(p=0.5), x=(40, 50)) for _ in range(2))
        return [step(each)[0].tobytes() for each in (first, first, second, first)]

    once = run(3)
    assert len(set(once)) == 4
    assert run(3) == once
    assert not set(run(4)) & set(once)


def test_steps_that_are_not_awaited_keep_their_masks() -> None:
    results = []
    for awaited in (True, False):
        mx.random.seed(9)
        made = bound(dropout(p=0.5), x=(300, 400))
        found = []
        for _ in range(6):
            found.append(made.forward(is_train=True)[0].copy())
            made.backward([mx.nd.ones((300, 400))])
            found.append(made.grad_arrays[0].copy())
            if awaited:
                mx.nd.waitall()
        results.append([array.asnumpy().tobytes() for array in found])
    assert results[0] == results[1]
    assert len(set(results[0][::2])) == 6


def test_dropouts_of_a_graph_draw_apart() -> None:
    x = mx.sym.Variable("x")
    first, second, _ = step(bound(mx.sym.Group([mx.sym.Dropout(x, p=0.5), mx.sym.Dropout(x, p=0.5)]), x=(100, 100)))
    assert abs(int(((first == 0) == (second == 0)).sum()) - 5000) <= 250


def test_along_axes_all_share_their_lot() -> None:
    y, gradient = step(bound(dropout(p=0.5, axes=(0, 2)), x=(3, 400, 5)))
    kept = y != 0
    assert (kept == kept[:1, :, :1]).all() and abs(int(kept[0, :, 0].sum()) - 200) <= 50
    np.testing.assert_array_equal(gradient != 0, kept)


def test_nothing_is_dropped_with_p_0_and_p_1_is_mxnets(caplog: pytest.LogCaptureFixture) -> None:
    made = bound(dropout(p=0.0), x=(3, 4))
    np.testing.assert_array_equal(step(made)[0], made.arg_dict["x"].asnumpy())
    made = bound(mx.sym.Dropout(mx.sym.Variable("x"), p=1, name="all"), x=(3, 4))
    made.forward(is_train=True)
    assert not made.training.ran
    assert "p=1.0 drops everything" in caplog.text


def test_layers_of_a_recurrent_net_drop_between_them() -> None:
    """As layers by themselves with a dropout between them; nothing behind the last one."""
    steps, batch, units = 3, 4, 5
    count = (units * units * 2 + 2 * units)
    x, h = mx.sym.Variable("x"), [mx.sym.Variable(f"h{i}") for i in range(2)]
    w = [mx.sym.Variable(f"w{i}") for i in range(2)]
    same = {"state_size": units, "mode": "rnn_tanh"}
    matrices, vectors = ([mx.sym.slice_axis(each, axis=0, begin=begin, end=end) for each in w]
                         for begin, end in ((0, 2 * units * units), (2 * units * units, count)))
    joined = mx.sym.concat(*matrices, *vectors, dim=0)
    together = mx.sym.RNN(x, joined, mx.sym.concat(*h, dim=0), num_layers=2, p=0.5, **same)
    first = mx.sym.Dropout(mx.sym.RNN(x, w[0], h[0], num_layers=1, **same), p=0.5)
    apart = mx.sym.RNN(first, w[1], h[1], num_layers=1, **same)
    shapes = {"x": (steps, batch, units), **{f"h{i}": (1, batch, units) for i in range(2)},
              **{f"w{i}": (count,) for i in range(2)}}
    found = []
    for symbol in (together, apart):
        made = bound(symbol, **shapes)
        for name, array in made.arg_dict.items():
            array[:] = np.random.default_rng(sum(map(ord, name))).uniform(-0.5, 0.5, array.shape)
        mx.random.seed(1)
        outputs = step(made)
        found.append([outputs[0], *(made.grad_dict[name].asnumpy() for name in shapes)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_module_learns_the_same_with_the_same_seed() -> None:
    x = np.random.default_rng(0).normal(size=(64, 10)).astype("f")
    y = (x.sum(axis=1) > 0).astype("f")

    def learned(seed: int) -> list[bytes]:
        hidden = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=32, name="one")
        hidden = mx.sym.Dropout(mx.sym.Activation(hidden, act_type="relu"), p=0.3)
        symbol = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=2, name="two"), name="softmax")
        with backend("NGRAPH"):
            module = mx.mod.Module(symbol)
            module.bind([("data", (16, 10))], [("softmax_label", (16,))])
            mx.random.seed(seed)
            module.fit(mx.io.NDArrayIter(x, y, batch_size=16, label_name="softmax_label"), num_epoch=4,
                       initializer=mx.init.One(), optimizer_params={"learning_rate": 0.05})
            assert module._exec_group.execs[0].training.ran
            return [array.asnumpy().tobytes() for array in module.get_params()[0].values()]

    once = learned(2)
    assert learned(2) == once
    assert learned(5) != once


def test_seeds_are_those_of_devices() -> None:
    seeds, cpu, other, gpu = Seeds(), (1, 0), (1, 1), (2, 0)
    assert [seeds.next(cpu), seeds.next(cpu), seeds.next(other)] == [(0, 0), (0, 1), (1 << 32, 0)]
    seeds.seed(7)
    assert [seeds.next(cpu), seeds.next(other), seeds.next(gpu)] == [(7, 0), (7 + (1 << 32), 0), (7, 0)]
    seeds.seed_device(-1, other)
    assert [seeds.next(cpu), seeds.next(other), seeds.next(other)] == [(7, 1), (2**32 - 1, 0), (2**32 - 1, 1)]
    seeds.seed(7)
    assert seeds.next(other) == (7 + (1 << 32), 0)


def test_mxnet_seeds_ours() -> None:
    masks = []
    for seed in (lambda: mx.random.seed(11), lambda: mx.random.seed(11, ctx=mx.cpu())):
        seed()
        masks.append(step(bound(dropout(p=0.5), x=(20, 20)))[0].tobytes())
    assert len(set(masks)) == 1
    with pytest.raises(ValueError, match="must be int"):
        mx.random.seed("a")
