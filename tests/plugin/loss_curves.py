"""Small nets that train on real and on generated data, by Gluon and a Trainer: what a script's user sees of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ngraph_mxnet

# isort: split
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn

from ngraph_mxnet.plugin.binding.gluon_blocks import of_block

LENGTH = 16
"""Characters of a piece of text, tokens of a sentence."""


@dataclass(frozen=True)
class Data:
    """`train` and `test`: inputs and labels; the last axis of what the net gives is `classes`."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    classes: int


@dataclass(frozen=True)
class Run:
    """What a run shows: each step's loss, and of `test` the share that is right at the end."""

    losses: np.ndarray
    accuracy: float
    weights: dict[str, np.ndarray]
    compiled: int
    """Steps of which all was compiled: forward, backward and update."""


def _split(inputs: np.ndarray, labels: np.ndarray, classes: int) -> Data:
    """A fifth, drawn once, is for testing."""
    order = np.random.default_rng(0).permutation(len(inputs))
    test, train = np.split(order, [len(order) // 5])
    return Data((inputs[train], labels[train]), (inputs[test], labels[test]), classes)


def digits() -> Data:
    """1,797 handwritten digits of 8x8 pixels, which scikit-learn brings with it."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return _split((images / 16).reshape(-1, 1, 8, 8).astype(np.float32), labels.astype(np.float32), 10)


def text() -> Data:
    """Pieces of this project's licence; of each character the next one is to be told."""
    words = (Path(__file__).parents[2] / "LICENSE").read_text()[:8000]
    known = sorted(set(words))
    numbers = np.array([known.index(letter) for letter in words], np.float32)
    starts = range(0, len(numbers) - LENGTH - 1, 5)
    pieces = np.stack([numbers[start:start + LENGTH + 1] for start in starts])
    return _split(pieces[:, :-1], pieces[:, 1:], len(known))


def images() -> Data:
    """Noise with one of six patterns of waves in it, 3x16x16."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 6, 800)
    y, x = np.mgrid[:16, :16]
    waves = [np.sin((1 + label % 3) * (x if label < 3 else y) * 0.7) for label in labels]
    noise = rng.standard_normal((800, 3, 16, 16))
    return _split((noise + 0.7 * np.stack(waves)[:, None]).astype(np.float32), labels.astype(np.float32), 6)


def sentences() -> Data:
    """Sentences of numbers up to 19; the class is whether 3 comes before 5, or after, or one of them isn't there."""
    rng = np.random.default_rng(2)
    found = rng.integers(0, 20, (2000, LENGTH))
    threes, fives = ((found == number).argmax(1) + LENGTH * ~(found == number).any(1) for number in (3, 5))
    absent = (threes >= LENGTH) | (fives >= LENGTH)
    return _split(found.astype(np.float32), np.where(absent, 2, threes < fives).astype(np.float32), 3)


def mlp(dropout: float = 0.0) -> gluon.HybridBlock:
    net = nn.HybridSequential()
    net.add(nn.Dense(64, activation="relu"), nn.Dropout(dropout), nn.Dense(32, activation="relu"), nn.Dense(10))
    return net


def cnn(dropout: float = 0.0) -> gluon.HybridBlock:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(16, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(),
            nn.Conv2D(32, 3, padding=1, activation="relu"), nn.GlobalAvgPool2D(), nn.Dropout(dropout), nn.Dense(10))
    return net


class Residual(gluon.HybridBlock):  # type: ignore[misc]
    """Two convolutions, and the input added; with a stride, the input goes through one of 1x1."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(nn.Conv2D(channels, 3, stride, 1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"),
                          nn.Conv2D(channels, 3, 1, 1, use_bias=False), nn.BatchNorm())
            self.short = nn.Conv2D(channels, 1, stride, use_bias=False) if stride > 1 else nn.HybridLambda("identity")

    def hybrid_forward(self, F, x):  # type: ignore[no-untyped-def]  # noqa: N803
        return F.relu(self.body(x) + self.short(x))


def resnet20() -> gluon.HybridBlock:
    """Three stages of three blocks, as that for CIFAR, with half the channels."""
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3, padding=1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))
    for channels, stride in ((8, 1), (16, 2), (32, 2)):
        net.add(Residual(channels, stride), Residual(channels, 1), Residual(channels, 1))
    net.add(nn.GlobalAvgPool2D(), nn.Dense(6))
    return net


class LanguageModel(gluon.HybridBlock):  # type: ignore[misc]
    """[batch, length] of characters to scores of the next ones."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.embedding = nn.Embedding(80, 24)
            self.lstm = gluon.rnn.LSTM(48, layout="NTC")
            self.scores = nn.Dense(80, flatten=False)

    def hybrid_forward(self, F, x):  # type: ignore[no-untyped-def]  # noqa: N803
        return self.scores(self.lstm(self.embedding(x)))


class Attention(gluon.HybridBlock):  # type: ignore[misc]
    """[batch, length, units] to the same: four heads, a dense layer, a residual and a norm after each."""

    def __init__(self, units: int) -> None:
        super().__init__()
        with self.name_scope():
            self.project, self.attended = nn.Dense(3 * units, flatten=False), nn.Dense(units, flatten=False)
            self.hidden, self.output = nn.Dense(2 * units, flatten=False), nn.Dense(units, flatten=False)
            self.gelu, self.first, self.second = nn.GELU(), nn.LayerNorm(), nn.LayerNorm()

    def hybrid_forward(self, F, x):  # type: ignore[no-untyped-def]  # noqa: N803
        joined = F.transpose(self.project(x), axes=(1, 0, 2))
        weights = F.softmax(F.contrib.interleaved_matmul_selfatt_qk(joined, heads=4), axis=-1)
        context = F.transpose(F.contrib.interleaved_matmul_selfatt_valatt(joined, weights, heads=4), axes=(1, 0, 2))
        x = self.first(x + self.attended(context))
        return self.second(x + self.output(self.gelu(self.hidden(x))))


class Classifier(gluon.HybridBlock):  # type: ignore[misc]
    """[batch, length] of tokens to three classes, by two layers of attention."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.words = nn.Embedding(20, 32)
            self.places = self.params.get("places", shape=(1, LENGTH, 32), init=mx.init.Normal(0.3))
            self.layers = nn.HybridSequential()
            self.layers.add(Attention(32), Attention(32))
            self.scores = nn.Dense(3)

    def hybrid_forward(self, F, x, places):  # type: ignore[no-untyped-def]  # noqa: N803
        return self.scores(F.mean(self.layers(F.broadcast_add(self.words(x), places)), axis=1))


# Residual nets magnify roundings: at a rate of 0.05 MXNet's own losses differ by 1e-2 at the sixth step where the data
# differ by 1e-6, and no two ways of summing would pass.
Optimizer = tuple[str, dict[str, float]]
MOMENTUM: Optimizer = ("sgd", {"learning_rate": 0.03, "momentum": 0.9})
CURVES: dict[str, tuple[Callable[[], Data], Callable[[], gluon.HybridBlock], Optimizer]] = {
    "mlp": (digits, mlp, MOMENTUM), "cnn": (digits, cnn, MOMENTUM),
    "lstm": (text, LanguageModel, ("adam", {"learning_rate": 0.01})),
    "resnet20": (images, resnet20, ("sgd", {"learning_rate": 0.0003, "momentum": 0.9})),
    "transformer": (sentences, Classifier, ("adam", {"learning_rate": 0.001})),
}
DROPPING: dict[str, Callable[[], gluon.HybridBlock]] = {"mlp": lambda: mlp(0.3), "cnn": lambda: cnn(0.3)}


def train(name: str, steps: int, seed: int = 0, batch: int = 32, *, dropout: bool = False) -> Run:
    """A run of the curve of this name: all that is drawn follows from the seed."""
    make_data, make_net, (optimizer, options) = CURVES[name]
    data, net = make_data(), (DROPPING[name] if dropout else make_net)()
    mx.random.seed(seed)
    np.random.seed(seed)
    net.initialize(mx.init.Xavier())
    net(mx.nd.array(data.train[0][:1]))
    net.hybridize()
    rng = np.random.default_rng(seed)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), optimizer, dict(options))
    before = ngraph_mxnet.report().updates
    losses = []
    for step in range(steps):
        if step == steps * 3 // 5:
            trainer.set_learning_rate(trainer.learning_rate / 20)  # a run settles, where its last steps else decide
        rows = rng.choice(len(data.train[0]), batch, replace=False)
        with autograd.record():
            value = loss(net(mx.nd.array(data.train[0][rows])), mx.nd.array(data.train[1][rows]))
        value.backward()
        trainer.step(batch)
        losses.append(value.mean().asscalar())
    found = net(mx.nd.array(data.test[0])).asnumpy().argmax(-1)
    weights = {key: parameter.data().asnumpy() for key, parameter in net._collect_params_with_prefix().items()}
    compiled = min(of_block(net).training.count if of_block(net).training else 0,
                   ngraph_mxnet.report().updates - before)
    return Run(np.array(losses), float((found == data.test[1]).mean()), weights, compiled)
