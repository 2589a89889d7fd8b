"""What ordinary scripts write between a net and the update: gradients and losses as MXNet's, without its own pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import loss as losses
from mxnet.gluon import nn
from mxnet_helpers import run_script

from ngraph_mxnet import _core
from ngraph_mxnet.plugin.binding import backward_passes, clipping
from ngraph_mxnet.plugin.binding.gluon_blocks import Kinds
from ngraph_mxnet.plugin.report import report

STEPS = 3


@pytest.fixture(autouse=True)
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NGRAPH")
    monkeypatch.setattr(backward_passes, "links", Kinds())  # the first are due at once


def dense() -> nn.HybridSequential:
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(6, activation="tanh", in_units=7), nn.Dense(5, in_units=6))
    return net


def normed() -> nn.HybridSequential:
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(6, in_units=7), nn.BatchNorm(in_channels=6), nn.Activation("relu"), nn.Dense(5, in_units=6))
    return net


def made(net: gluon.HybridBlock, **flags: bool) -> gluon.HybridBlock:
    mx.random.seed(3)
    net.initialize(mx.init.Xavier(), force_reinit=True)
    net.hybridize(**flags)
    mx.nd.waitall()  # a pass goes back MXNet's way while gradients have no memory yet
    return net


def data(seed: int = 0, shape: tuple[int, ...] = (4, 7)) -> mx.nd.NDArray:
    return mx.nd.array(np.random.default_rng(seed).standard_normal(shape))


LABELS = mx.nd.array([0, 4, 2, 1])
CROSS, SQUARES = losses.SoftmaxCrossEntropyLoss(), losses.L2Loss()


class Own(gluon.HybridBlock):
    def hybrid_forward(self, F: Any, scores: Any, labels: Any) -> Any:  # noqa: N803
        return 0 - F.pick(F.log_softmax(scores), labels)


def own(hybridized: bool) -> Own:
    block = Own()
    if hybridized:
        block.hybridize()
    return block


def with_l2(net: gluon.Block, x: mx.nd.NDArray) -> mx.nd.NDArray:
    value = CROSS(net(x), LABELS).mean()
    for parameter in net.collect_params().values():
        if parameter.grad_req != "null":
            value = value + 0.1 * (parameter.data() ** 2).sum()
    return value


def focal(net: gluon.Block, x: mx.nd.NDArray) -> mx.nd.NDArray:
    share = mx.nd.pick(mx.nd.softmax(net(x)), LABELS)
    return (-((1 - share) ** 2) * mx.nd.log(share + 1e-6)).mean()


def smoothed(net: gluon.Block, x: mx.nd.NDArray) -> mx.nd.NDArray:
    scores = mx.nd.log_softmax(net(x))
    rows = mx.nd.one_hot(LABELS, 5) * 0.9 + 0.02
    return -(rows * scores).sum(axis=1).mean()


def both_losses(net: gluon.Block, x: mx.nd.NDArray) -> tuple[mx.nd.NDArray, mx.nd.NDArray]:
    scores = net(x)
    return CROSS(scores, LABELS), SQUARES(scores, data(9, (4, 5)))


def contrastive(net: gluon.Block, x: mx.nd.NDArray) -> mx.nd.NDArray:
    apart = mx.nd.sqrt(((net(x) - net(x * 0.5)) ** 2).sum(axis=1) + 1e-6)
    return (LABELS * apart + mx.nd.maximum(1 - apart, 0)).mean()


IDIOMS: dict[str, Callable[[gluon.Block, mx.nd.NDArray], Any]] = {
    "plain": lambda net, x: CROSS(net(x), LABELS),
    "mean": lambda net, x: CROSS(net(x), LABELS).mean(),
    "sum": lambda net, x: CROSS(net(x), LABELS).sum(),
    "scale": lambda net, x: CROSS(net(x), LABELS) * 3,
    "divide": lambda net, x: CROSS(net(x), LABELS) / 4 + 1,
    "weights of rows": lambda net, x: (CROSS(net(x), LABELS) * mx.nd.array([1, 0, 2, 0.5])).sum() / 4,
    "reshaped": lambda net, x: (net(x).reshape((2, 10)) ** 2).reshape((-1,)).mean(),
    "own block": lambda net, x: own(True)(net(x), LABELS),
    "own block, mean": lambda net, x: own(True)(net(x), LABELS).mean(),
    "own block, not hybridized": lambda net, x: own(False)(net(x), LABELS).mean(),
    "focal": focal,
    "smoothed": smoothed,
    "L2 term": with_l2,
    "two losses": lambda net, x: sum(both_losses(net, x)),
    "two means": lambda net, x: both_losses(net, x)[0].mean() + 0.3 * both_losses(net, x)[1].mean(),
    "heads": lambda net, x: list(both_losses(net, x)),
    "heads with a mean": lambda net, x: [both_losses(net, x)[0].mean(), both_losses(net, x)[1]],
    "slices": lambda net, x: CROSS(net(x)[1:3], LABELS[1:3]).mean() + net(x)[0][2:4].sum(),
    "siamese": contrastive,
    "siamese by a loss": lambda net, x: SQUARES(net(x), net(x * 2)),
    "operators between calls": lambda net, x: CROSS(net(mx.nd.concat(net(x), net(x * 2), dim=1).slice_axis(1, 0, 7)),
                                                    LABELS).mean(),
}


def steps(net: gluon.HybridBlock, idiom: Callable[..., Any], request_: str = "write") -> dict[str, np.ndarray]:
    """Losses, gradients, weights and statistics of a few steps."""
    parameters, found = net.collect_params(), {}
    trained = [parameter for parameter in parameters.values() if parameter.grad_req != "null"]
    for parameter in trained:
        parameter.grad_req = request_
    trainer = gluon.Trainer(parameters, "sgd", {"learning_rate": 0.05, "momentum": 0.9})
    for step in range(STEPS):
        with autograd.record():
            heads = idiom(net, data(step))
        if isinstance(heads, list):
            autograd.backward(heads)
        else:
            heads.backward()
        found |= {f"{step} {parameter.name} gradient": parameter.grad().asnumpy() for parameter in trained}
        trainer.step(4)
        found[f"{step} loss"] = (heads[0] if isinstance(heads, list) else heads).asnumpy()
        found |= {f"{step} {name}": parameter.data().asnumpy() for name, parameter in parameters.items()}
    return found


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-4, atol=2e-5, err_msg=name)


def both(monkeypatch: pytest.MonkeyPatch, script: Callable[[], dict[str, np.ndarray]], short: int) -> None:
    """The script gives MXNet's results, and so many backward passes are none of MXNet's."""
    results = []
    for flag in ("0", "1"):
        monkeypatch.setenv("NGRAPH_TRAINING", flag)
        before = _core.short_ways()
        results.append(script())
        assert _core.short_ways() - before == (short if flag == "1" else 0)
    same(results[1], results[0])


@pytest.mark.parametrize("name", IDIOMS)
@pytest.mark.parametrize("net", [dense, normed])
def test_idioms(monkeypatch: pytest.MonkeyPatch, name: str, net: Callable[[], gluon.HybridBlock]) -> None:
    both(monkeypatch, lambda: steps(made(net()), IDIOMS[name]), short=STEPS)


@pytest.mark.parametrize("name", ["mean", "L2 term", "two losses", "siamese"])
def test_gradients_are_added(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    both(monkeypatch, lambda: steps(made(dense()), IDIOMS[name], "add"), short=STEPS)


@pytest.mark.parametrize("name", ["plain", "mean", "own block"])
def test_hybridized_statically(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    both(monkeypatch, lambda: steps(made(normed(), static_alloc=True, static_shape=True), IDIOMS[name]), short=STEPS)


class Pair(gluon.HybridBlock):
    """A body that reads both halves of the input, one after the other."""

    def __init__(self) -> None:
        super().__init__(prefix="pair_")
        with self.name_scope():
            self.body = normed()

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803
        left, right = F.split(x, num_outputs=2, axis=0)
        return F.concat(self.body(left), self.body(right * 3), dim=0)


@pytest.mark.parametrize("name", ["mean", "smoothed"])
def test_a_body_that_is_used_twice_in_a_block(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    both(monkeypatch, lambda: steps(made(Pair()), IDIOMS[name]), short=STEPS)


@pytest.mark.parametrize("is_short", [True, False])
def test_statistics_that_move_twice(monkeypatch: pytest.MonkeyPatch, is_short: bool) -> None:
    """By a pass of ours, by MXNet's, and by an executor's."""
    def script() -> dict[str, np.ndarray]:
        net = made(Pair())
        with autograd.record():
            value = net(data())
            value = (value if is_short else mx.nd.Dropout(value, p=1e-9)).sum()  # it draws random numbers
        value.backward()
        found = {parameter.name: parameter.data().asnumpy() for parameter in net.collect_params().values()}
        symbol, arrays = net(mx.sym.var("data")), {name: parameter.data() for name, parameter in
                                                   net.collect_params().items()}
        executor = symbol.simple_bind(mx.cpu(), data=(4, 7), grad_req="write")
        executor.copy_params_from({name: arrays[name] for name in symbol.list_arguments() if name in arrays},
                                  {name: arrays[name] for name in symbol.list_auxiliary_states()})
        executor.forward(is_train=True, data=data())
        executor.backward([mx.nd.ones((4, 5))])
        return found | {f"executor {name}": array.asnumpy() for name, array in executor.aux_dict.items()}

    both(monkeypatch, script, short=int(is_short))


@pytest.mark.parametrize("wanted", ["all", "weights", "data", "the second's data"])
@pytest.mark.parametrize("chained", [False, True])
def test_shared_statistics_move_in_mxnets_order(monkeypatch: pytest.MonkeyPatch, wanted: str, chained: bool) -> None:
    """A norm of three branches, or of three steps in a row; the order in which it moves its statistics hangs on what is
    differentiated."""
    shared = [mx.sym.var(name) for name in ("gamma", "beta", "mean", "var")]
    draws = np.random.default_rng(3)
    arrays = {name: mx.nd.array(draws.normal(10 * place, 1, (4, 3, 2, 2))) for place, name in enumerate("pqr")}
    arrays |= {"gamma": mx.nd.array([1, 2, 3]), "beta": mx.nd.array([0, 1, 2])}
    wishes = {"all": set(arrays), "weights": {"gamma", "beta"}, "data": set("pqr"), "the second's data": {"q"}}[wanted]

    def script() -> dict[str, np.ndarray]:
        value, branches = mx.sym.zeros((4, 3, 2, 2)), list[mx.sym.Symbol]()
        for name in "pqr":
            read = mx.sym.var(name)
            value = mx.sym.BatchNorm(read + value if chained else read, *shared, fix_gamma=False)
            branches.append(value)
        executor = sum(branches[1:], branches[0]).bind(
            mx.cpu(), arrays, {name: mx.nd.zeros_like(arrays[name]) for name in wishes},
            {name: "write" if name in wishes else "null" for name in arrays},
            {"mean": mx.nd.zeros(3), "var": mx.nd.ones(3)})
        executor.forward(is_train=True)
        executor.backward([mx.nd.ones((4, 3, 2, 2))])
        return {name: array.asnumpy() for name, array in executor.aux_dict.items()}

    both(monkeypatch, script, short=0)


def test_inputs_that_want_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> dict[str, np.ndarray]:
        net, x, scale = made(dense()), data(), mx.nd.array([2.0])
        x.attach_grad()
        scale.attach_grad("add")
        for _ in range(2):
            with autograd.record():
                value = (CROSS(net(x), LABELS) * scale).mean() + (x * x).sum()
            value.backward()
        return {"x": x.grad.asnumpy(), "scale": scale.grad.asnumpy()}

    both(monkeypatch, script, short=2)


def test_passes_that_are_repeated_and_heads_with_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> dict[str, np.ndarray]:
        net = made(dense())
        with autograd.record():
            value = CROSS(net(data()), LABELS) * 2
        value.backward(data(1, (4,)), retain_graph=True)
        first = net[0].weight.grad().asnumpy()
        value.backward(data(2, (4,)))
        with pytest.raises(mx.base.MXNetError):
            value.backward()
        return {"first": first, "second": net[0].weight.grad().asnumpy()}

    both(monkeypatch, script, short=2)


def test_passes_in_predict_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> dict[str, np.ndarray]:
        net, found = made(dense()), {}
        for step in range(3):
            with autograd.record():
                value = (CROSS(net(data(step)), LABELS) * 2).mean()
            value.backward(train_mode=False)
            found[str(step)] = net[0].weight.grad().asnumpy()
        return found

    both(monkeypatch, script, short=3)


@pytest.mark.parametrize("idiom", [
    lambda value, number: value * number,
    lambda value, number: (number - (value.reshape((2, 2)) + number) / number).sum(),
    lambda value, number: (number / (value + number)).mean() * 3,
])
def test_numbers_that_change_are_not_compiled_for_each(
        monkeypatch: pytest.MonkeyPatch, idiom: Callable[[mx.nd.NDArray, float], mx.nd.NDArray]) -> None:
    """From the sixth on they are read from an array."""
    def script() -> dict[str, np.ndarray]:
        net, found = made(dense()), {}
        for step in range(30):
            with autograd.record():
                value = idiom(CROSS(net(data(step)), LABELS), 1 + step / 7)
            value.backward()
            found[str(step)] = net[0].weight.grad().asnumpy()
        return found

    monkeypatch.setenv("NGRAPH_TRAINING", "0")
    expected = script()
    monkeypatch.setenv("NGRAPH_TRAINING", "1")
    before = _core.short_ways()
    same(script(), expected)
    assert _core.short_ways() - before > 20
    assert len(backward_passes.links.values()) < 8


def runs(script: Callable[[], Any]) -> int:
    """How many compiled runs the script makes."""
    mx.nd.waitall()
    before = _core.direct_calls()
    script()
    mx.nd.waitall()
    return _core.direct_calls() - before


def test_operators_around_calls_are_computed_past_mxnet(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second step on: a mean, and a rescaling, take a run each."""
    monkeypatch.setenv("NGRAPH_TRAINING", "1")
    net, x = made(dense()), data()

    def record(idiom: Callable[[gluon.Block, mx.nd.NDArray], mx.nd.NDArray]) -> mx.nd.NDArray:
        with autograd.record():
            return idiom(net, x)

    plain = runs(lambda: record(IDIOMS["plain"]))
    first = record(lambda net, x: (CROSS(net(x), LABELS) * 7).mean())
    first.backward()
    found: list[mx.nd.NDArray] = []
    assert runs(lambda: found.append(record(lambda net, x: (CROSS(net(x), LABELS) * 7).mean()))) == plain + 2
    np.testing.assert_allclose(found[0].asnumpy(), first.asnumpy(), rtol=1e-6)


def test_operators_of_other_shapes_are_mxnets_until_they_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_TRAINING", "1")
    net = made(dense())
    for rows in (4, 2, 4, 3):
        with autograd.record():
            scores = net(data(0, (rows, 7)))
            value = (scores * 2).sum(axis=1)
        value.backward()
        np.testing.assert_allclose(value.asnumpy(), 2 * scores.asnumpy().sum(axis=1), rtol=1e-5)
        with autograd.record(), pytest.raises(mx.base.MXNetError, match=r"(?i)shape"):
            net(data(0, (rows, 7))) * mx.nd.ones((rows, 9))


def test_what_was_computed_past_mxnet_is_on_its_tape(monkeypatch: pytest.MonkeyPatch) -> None:
    """MXNet's own passes go through it: by chosen variables, and twice."""
    monkeypatch.setenv("NGRAPH_TRAINING", "1")
    net, x = made(dense()), data()
    w = data(5, (3, 3))
    w.attach_grad()
    for step in range(3):
        with autograd.record():
            total = CROSS(net(x), LABELS).mean() + mx.nd.sin(w).sum()
        if step < 2:
            total.backward()
    np.testing.assert_allclose(autograd.grad(total, [w])[0].asnumpy(), np.cos(w.asnumpy()), rtol=1e-5)
    with autograd.record():
        net(x)
        first = autograd.grad(mx.nd.sin(w), [w], create_graph=True, retain_graph=True)[0]
    first.backward()
    np.testing.assert_allclose(w.grad.asnumpy(), -np.sin(w.asnumpy()), rtol=1e-5)


def test_large_results_stay_while_somebody_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_TRAINING", "1")
    net, kept = made(dense()), []
    for step in range(5):
        x = data(step, (8000, 7))
        with autograd.record():
            scores = net(x)
            rows = mx.nd.log_softmax(scores)
            value = rows.mean()
        value.backward()
        kept.append((scores, rows, rows.asnumpy()))
    for scores, rows, then in kept:
        np.testing.assert_array_equal(rows.asnumpy(), then)
        np.testing.assert_allclose(then, mx.nd.log_softmax(scores).asnumpy(), rtol=1e-4, atol=1e-5)


def test_slices_off_the_tape_and_gradients_set_to_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two halves a step, whose gradients are added: the slices are computed past MXNet when they have come often."""
    def script() -> dict[str, np.ndarray]:
        net, found = made(dense()), {}
        for parameter in net.collect_params().values():
            parameter.grad_req = "add"
        for step in range(5):
            net.collect_params().zero_grad()
            whole = data(step, (8, 7))
            for begin in (0, 4):
                part = whole.slice_axis(axis=0, begin=begin, end=begin + 4)
                with autograd.record():
                    value = CROSS(net(part), LABELS)
                value.backward()
                np.testing.assert_array_equal(part.asnumpy(), whole.asnumpy()[begin:begin + 4])
            found |= {f"{step} {name}": parameter.grad().asnumpy() for name, parameter in net.collect_params().items()}
        return found

    both(monkeypatch, script, short=10)
    whole = data(0, (8, 7))
    assert runs(lambda: whole.slice_axis(axis=0, begin=4, end=8)) == 1
    assert runs(lambda: whole.slice_axis(axis=0, begin=3, end=7)) == 0
    assert [array.asnumpy().any() for array in (whole, whole[2:])] == [True, True]
    mx.nd.reset_arrays(whole, whole[2:], num_arrays=2)
    assert not whole.asnumpy().any()


_DROPPED = """
import time
import mxnet as mx
from mxnet import autograd, gluon
from ngraph_mxnet import _core
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(6, activation="tanh", in_units=7), gluon.nn.Dense(5, in_units=6))
net.initialize()
net.hybridize()
for step in range(3):
    with autograd.record():
        value = net(mx.nd.ones((4, 7)))
        for _ in range(20):
            value = value * 1.5
    assert _core.is_any_recorded()
    del value
    mx.nd.waitall()
    end = time.monotonic() + 10  # MXNet's threads drop what an operator read behind its end
    while _core.is_any_recorded() and time.monotonic() < end:
        time.sleep(1e-3)
    assert not _core.is_any_recorded()
"""


def test_operators_are_dropped_with_their_arrays(tmp_path: Path) -> None:
    """What was recorded and is never gone back through keeps no memory of ours."""
    done = run_script(_DROPPED, tmp_path, "NGRAPH", NGRAPH_TRAINING="1")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("most", [0.5, 1e6])
@pytest.mark.parametrize("check", [True, False])
def test_gradients_that_are_clipped(monkeypatch: pytest.MonkeyPatch, most: float, check: bool) -> None:
    def script() -> dict[str, np.ndarray]:
        found = {}
        arrays = [data(seed, shape) for seed, shape in enumerate(((6, 7), (6,), (5, 6), (1,)))]
        for step in range(2):
            norm = gluon.utils.clip_global_norm(arrays, most, check_isfinite=check)
            found[f"norm{step}"] = np.asarray(norm if check else norm.asnumpy())
            found |= {f"{step} {place}": array.asnumpy() for place, array in enumerate(arrays)}
        return found

    monkeypatch.setenv("NGRAPH_TRAINING", "0")
    expected = script()
    monkeypatch.setenv("NGRAPH_TRAINING", "1")
    same(script(), expected)
    assert not any(left.what == "clip_global_norm" for left in report().fallbacks)


def test_a_clip_tells_of_what_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_TRAINING", "1")
    with pytest.warns(UserWarning, match="nan or inf is detected"):
        gluon.utils.clip_global_norm([mx.nd.array([np.inf, 1])], 1.0)


def test_what_is_clipped_by_mxnet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sparse arrays."""
    monkeypatch.setenv("NGRAPH_TRAINING", "1")
    arrays = [data(), data(1).tostype("row_sparse")]
    copies = [array.copy() for array in arrays]
    assert gluon.utils.clip_global_norm(arrays, 1.0) == clipping.stock_clip(copies, 1.0)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array.asnumpy(), copy.asnumpy())
