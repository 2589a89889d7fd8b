"""Recorded calls and executors whose sizes change: what a template gives is what MXNet gives at each size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn, rnn
from mxnet_helpers import check_that_all_is_kept

import ngraph_mxnet
from ngraph_mxnet.plugin import regions
from ngraph_mxnet.plugin.binding.gluon_blocks import of_block
from ngraph_mxnet.program.cache import small_made

losses = gluon.loss


@pytest.fixture(autouse=True)
def on(monkeypatch: pytest.MonkeyPatch, nothing_is_compiled: None) -> Iterator[None]:
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NGRAPH")
    monkeypatch.setenv("NGRAPH_TRAINING", "1")
    check_that_all_is_kept(monkeypatch)
    yield
    regions.forget()


def normal(*shape: int) -> mx.nd.NDArray:
    return mx.nd.array(RNG.standard_normal(shape))


def below(count: int, *shape: int) -> mx.nd.NDArray:
    return mx.nd.array(RNG.integers(0, count, shape))


RNG = np.random.default_rng(0)


class Attention(gluon.HybridBlock):
    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.q, self.k, self.v = (nn.Dense(16, flatten=False, in_units=16) for _ in range(3))
            self.norm = nn.LayerNorm(in_channels=16)

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803 - MXNet\'s name
        scores = F.softmax(F.batch_dot(self.q(x), self.k(x), transpose_b=True) / 4.0, axis=-1)
        return self.norm(x + F.LeakyReLU(F.batch_dot(scores, self.v(x)), act_type="gelu"))


class Residual(gluon.HybridBlock):
    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.first = nn.Conv2D(16, 3, padding=1, in_channels=3, use_bias=False)
            self.norm = nn.BatchNorm(in_channels=16)
            self.deep = nn.Conv2D(16, 3, padding=1, groups=16, in_channels=16)
            self.last = nn.Dense(5, in_units=16)

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803 - MXNet\'s name
        x = F.relu(self.norm(self.first(x)))
        y = F.Pooling(x, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max")
        y = y + F.Pooling(self.deep(x), kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="avg")
        return self.last(F.Pooling(y, global_pool=True, pool_type="avg"))


class Words(gluon.HybridBlock):
    """Convolutions over words, of several widths."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.embedding = nn.Embedding(50, 12)
            self.wide = nn.Conv1D(8, 2, in_channels=12)
            self.wider = nn.Conv1D(8, 3, in_channels=12)
            self.last = nn.Dense(5, in_units=16)

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803 - MXNet\'s name
        x = self.embedding(x).transpose((0, 2, 1))
        return self.last(F.concat(*(F.max(F.relu(way(x)), axis=2) for way in (self.wide, self.wider)), dim=1))


class Masked(gluon.HybridBlock):
    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.embedding = nn.Embedding(50, 12)
            self.cells = rnn.GRU(16, layout="NTC", input_size=12, bidirectional=True)
            self.last = nn.Dense(5, in_units=32)

    def hybrid_forward(self, F: Any, x: Any, lengths: Any) -> Any:  # noqa: N803 - MXNet\'s name
        y = self.cells(self.embedding(x)).transpose((1, 0, 2))
        total = F.sum(F.SequenceMask(y, sequence_length=lengths, use_sequence_length=True), axis=0)
        return self.last(F.broadcast_div(total, lengths.reshape((-1, 1))))


def stack(*layers: gluon.HybridBlock) -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(*layers)
    return net


def tagger(kind: Any, **options: Any) -> Callable[[], nn.HybridSequential]:
    wide = 32 if options.get("bidirectional") else 16
    return lambda: stack(nn.Embedding(50, 12), kind(16, input_size=12, layout="NTC", **options),
                         nn.Dense(7, flatten=False, in_units=wide))


def perceptron() -> nn.HybridSequential:
    return stack(nn.Dense(16, activation="relu", in_units=10), nn.BatchNorm(in_channels=16), nn.Dense(4, in_units=16))


def sentences(n: int, t: int, _: int) -> tuple[list[mx.nd.NDArray], mx.nd.NDArray]:
    return [below(50, n, t)], below(7, n, t)


def of_classes(*inputs: Callable[[int, int, int], mx.nd.NDArray]) -> Callable[[int, int, int], Any]:
    return lambda n, t, u: ([one(n, t, u) for one in inputs], below(5, n))


def rows(labels: Callable[[int], mx.nd.NDArray]) -> Callable[[int, int, int], Any]:
    return lambda n, t, u: ([normal(n * t, 10)], labels(n * t))


NETS: dict[str, tuple[Callable[[], gluon.HybridBlock], losses.Loss, Callable[[int, int, int], Any]]] = {
    "lstm": (tagger(rnn.LSTM), losses.SoftmaxCELoss(), sentences),
    "gru": (tagger(rnn.GRU), losses.SoftmaxCELoss(), sentences),
    "rnn": (tagger(rnn.RNN), losses.SoftmaxCELoss(), sentences),
    "two ways": (tagger(rnn.LSTM, num_layers=2, bidirectional=True), losses.SoftmaxCELoss(), sentences),
    "attention": (Attention, losses.L2Loss(), lambda n, t, u: ([normal(n, t, 16)], normal(n, t, 16))),
    "images": (Residual, losses.SoftmaxCELoss(), of_classes(lambda n, t, u: normal(n, 3, 2 * t, 2 * u))),
    "words": (Words, losses.SoftmaxCELoss(), of_classes(lambda n, t, u: below(50, n, t))),
    "masked": (Masked, losses.SoftmaxCELoss(), of_classes(lambda n, t, u: below(50, n, t),
                                                          lambda n, t, u: below(5, n) + 1)),
    "L2": (perceptron, losses.L2Loss(), rows(lambda n: normal(n, 4))),
    "L1": (perceptron, losses.L1Loss(), rows(lambda n: normal(n, 4))),
    "Huber": (perceptron, losses.HuberLoss(), rows(lambda n: normal(n, 4))),
    "two classes": (perceptron, losses.SigmoidBCELoss(), rows(lambda n: below(2, n, 4))),
    "hinge": (perceptron, losses.HingeLoss(), rows(lambda n: below(2, n, 4) * 2 - 1)),
    "squared hinge": (perceptron, losses.SquaredHingeLoss(), rows(lambda n: below(2, n, 4) * 2 - 1)),
    "logistic": (perceptron, losses.LogisticLoss(), rows(lambda n: below(2, n, 4) * 2 - 1)),
    "divergence": (perceptron, losses.KLDivLoss(from_logits=False), rows(lambda n: mx.nd.softmax(normal(n, 4)))),
    "cross entropy": (perceptron, losses.SoftmaxCELoss(sparse_label=False),
                      rows(lambda n: mx.nd.softmax(normal(n, 4)))),
    "Poisson": (perceptron, losses.PoissonNLLLoss(), rows(lambda n: below(4, n, 4))),
}
SIZES = [(3, 8, 9), (3, 11, 7), (5, 17, 12), (1, 9, 20), (4, 1, 6), (2, 30, 16), (7, 16, 16), (3, 8, 9)]


def stepped(net: gluon.HybridBlock, loss: losses.Loss, inputs: list[mx.nd.NDArray], label: mx.nd.NDArray
            ) -> dict[str, np.ndarray]:
    """The loss and all gradients of a step, that of the first input too; statistics."""
    by_input = inputs[0].dtype == np.float32 and inputs[0].ndim > 2
    if by_input:
        inputs[0].attach_grad()
    with autograd.record():
        value = loss(net(*inputs), label)
    value.backward()
    found = {"loss": value.asnumpy(), **({"input": inputs[0].grad.asnumpy()} if by_input else {})}
    for number, parameter in enumerate(net.collect_params().values()):
        found[f"{number} {parameter.name}"] = (
            parameter.data() if parameter.grad_req == "null" else parameter.grad()).asnumpy()
    return found


def drawn(make: Callable[[], gluon.HybridBlock]) -> gluon.HybridBlock:
    """Hybridized, with the same weights each time."""
    mx.random.seed(4)
    net = make()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


@pytest.mark.parametrize("name", NETS)
def test_a_range_gives_what_mxnet_gives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, loss, data = NETS[name]
    nets = [drawn(make) for _ in range(2)]
    loss.hybridize()
    # Over one word there is nothing to convolve, and MXNet's max is over no elements.
    sizes = [one for one in SIZES if name not in ("words", "images") or one[1] > 2]
    for n, t, u in sizes:
        given = data(n, t, u)
        results = []
        for net, flag in zip(nets, "01", strict=True):
            monkeypatch.setenv("NGRAPH_TRAINING", flag)
            results.append(stepped(net, loss, *given))
        for (what, wanted), found in zip(results[0].items(), results[1].values(), strict=True):
            most = max(1e-2, float(np.abs(wanted).max(initial=0)))
            np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=1e-4 * most, err_msg=f"{what} of {n, t, u}")
    assert of_block(nets[1]).training.count == len(sizes)
    told = [(verdict.inputs, verdict.reason) for verdict in regions.range_verdicts()]
    # A single step of recurrent cells has a template of its own.
    assert told and all(reason is None or reason.startswith("T - 1 == 0") for _, reason in told), told


def test_each_length_is_compiled_at_its_first_visit() -> None:
    """Where a template binds; compiling for each would wait for its second or third visit."""
    net, loss, data = NETS["lstm"][0](), NETS["lstm"][1], NETS["lstm"][2]
    net.initialize()
    net.hybridize()
    for t in range(3, 40):
        stepped(net, loss, *data(4, t, 0))
    training = of_block(net).training
    assert training.count == 37
    assert [calls.was_compiled for calls in training.calls.values()].count(True) == 1
    (verdict, _) = regions.range_verdicts()
    assert verdict.inputs == ("data: f32[4,T]",) and verdict.reason is None
    assert "data: f32[4,T]" in str(ngraph_mxnet.report())


def test_sizes_that_are_told_change_from_the_first_call_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_DYNAMIC", "data:1")
    net, loss, data = NETS["gru"][0](), NETS["gru"][1], NETS["gru"][2]
    net.initialize()
    net.hybridize()
    stepped(net, loss, *data(4, 5, 0))
    (calls,) = of_block(net).training.calls.values()
    assert not calls.was_compiled
    monkeypatch.setenv("NGRAPH_DYNAMIC", "off")
    stepped(net, loss, *data(4, 6, 0))
    assert [calls.was_compiled for calls in of_block(net).training.calls.values()] == [False, True]


def test_another_process_takes_the_template(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """The process is this one, which has forgotten all; nothing may be compiled."""
    monkeypatch.undo()  # what is kept is on disk here
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NGRAPH")
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path))
    small_made.clear()
    made, loss, data = NETS["two ways"]
    results, entries = [], []
    for _ in range(2):
        with mx.name.NameManager():  # names as in another process
            net = drawn(made)
        RNG.bit_generator.state = np.random.default_rng(8).bit_generator.state
        results.append([stepped(net, loss, *data(4, t, 0)) for t in (5, 6, 13)])
        regions.forget()
        # An entry that is made again is another file.
        entries.append({path: path.stat().st_ino for path in tmp_path.glob("template/*")})
    assert entries[0] and entries[0] == entries[1]
    for first, second in zip(*results, strict=True):
        for one, other in zip(first.values(), second.values(), strict=True):
            np.testing.assert_array_equal(one, other)


def classifier() -> mx.sym.Symbol:
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=16, flatten=False, name="first")
    x = mx.sym.FullyConnected(mx.sym.Activation(x, act_type="tanh"), num_hidden=6, flatten=False, name="last")
    return mx.sym.SoftmaxOutput(x, preserve_shape=True, normalization="batch", name="softmax")


def regression() -> mx.sym.Symbol:
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=6, flatten=False, name="first")
    return mx.sym.LinearRegressionOutput(x, mx.sym.var("softmax_label"), name="softmax")


def penalty() -> mx.sym.Symbol:
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=6, flatten=False, name="first")
    return mx.sym.MakeLoss(mx.sym.square(x), normalization="batch", grad_scale=3.0)


@pytest.mark.parametrize("make", [classifier, regression, penalty])
def test_executors_of_many_shapes(make: Callable[[], mx.sym.Symbol], monkeypatch: pytest.MonkeyPatch) -> None:
    symbol = make()
    for n, t, _ in SIZES:
        rng, made = np.random.default_rng(n), []
        shapes = {"data": (n, t, 8)}
        if make is regression:
            shapes["softmax_label"] = (n, t, 6)
        for flag in "01":
            monkeypatch.setenv("NGRAPH_TRAINING", flag)
            made.append(symbol.simple_bind(mx.cpu(), **shapes))
        for name, array in made[0].arg_dict.items():
            array[:] = rng.integers(0, 6, array.shape) if name == "softmax_label" and make is classifier else \
                rng.standard_normal(array.shape)
            made[1].arg_dict[name][:] = array
        for flag, one in zip("01", made, strict=True):
            monkeypatch.setenv("NGRAPH_TRAINING", flag)
            one.forward(is_train=True)
            one.backward()
        for wanted, found in zip([*made[0].outputs, *made[0].grad_arrays], [*made[1].outputs, *made[1].grad_arrays],
                                 strict=True):
            if wanted is not None:
                np.testing.assert_allclose(found.asnumpy(), wanted.asnumpy(), rtol=1e-4, atol=1e-5)
    told = regions.range_verdicts()
    assert told and all(verdict.reason is None for verdict in told), told
