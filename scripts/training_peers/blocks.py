"""Small nets of the kinds that people train, as Gluon blocks: `spec.NETS` says of what data. No other peer has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mxnet as mx
from mxnet import gluon
from mxnet.gluon import nn, rnn

WORDS = 5000


class Function(gluon.HybridBlock):
    """A function of `f` and the children's results: `function(f, x, *children)`, where a child is called by it."""

    def __init__(self, function: Callable[..., Any], *children: Any) -> None:
        super().__init__()
        self.function, self.parts = function, children
        for child in children:
            self.register_child(child)

    def hybrid_forward(self, f: Any, x: Any) -> Any:
        return self.function(f, x, *self.parts)


def chain(*blocks: Any) -> Any:
    net = nn.HybridSequential()
    net.add(*blocks)
    return net


def normal(channels: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: Any = None) -> Any:
    """A convolution, batch norm and an activation, relu by default."""
    return chain(nn.Conv2D(channels, kernel, stride, kernel // 2, groups=groups, use_bias=False), nn.BatchNorm(),
                 act or nn.Activation("relu"))


def residual(*blocks: Any) -> Any:
    return Function(lambda f, x, inner: f.relu(x + inner(x)), chain(*blocks))


def up_and_down() -> Any:
    """A U-Net of three levels."""

    def forward(f: Any, x: Any, one: Any, two: Any, three: Any, pool: Any, up2: Any, left2: Any, up1: Any, left1: Any,
                last: Any) -> Any:
        a = one(x)
        b = two(pool(a))
        y = left2(f.concat(up2(three(pool(b))), b, dim=1))
        return last(left1(f.concat(up1(y), a, dim=1)))

    return Function(forward, normal(16), normal(32), normal(64), nn.MaxPool2D(2), nn.Conv2DTranspose(32, 2, 2),
                    normal(32), nn.Conv2DTranspose(16, 2, 2), normal(16), nn.Conv2D(3, 1))


def generator(*widths: int) -> Any:
    """From a vector to an image of 32 x 32."""
    steps = [(width, 4, 1 if at == 0 else 2, 0 if at == 0 else 1) for at, width in enumerate(widths)]
    layers = [layer for step in steps for layer in (
        nn.Conv2DTranspose(*step, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))]
    return chain(*layers, nn.Conv2DTranspose(3, 4, 2, 1), nn.Activation("tanh"))


def discriminator() -> Any:
    layers = [layer for width in (64, 128, 256) for layer in (
        nn.Conv2D(width, 4, 2, 1, use_bias=False), nn.BatchNorm(), nn.LeakyReLU(0.2))]
    return chain(*layers, nn.Conv2D(2, 4), nn.Flatten())


def text_convolutions() -> Any:
    def forward(f: Any, x: Any, words: Any, *parts: Any) -> Any:
        y = f.transpose(words(x), axes=(0, 2, 1))
        return parts[-1](f.concat(*[f.max(part(y), axis=2) for part in parts[:-1]], dim=1))

    return Function(forward, nn.Embedding(WORDS, 100), *(nn.Conv1D(100, taps, activation="relu") for taps in (3, 4, 5)),
                    nn.Dense(2))


def steps(cell: Any, outputs: int, words: int = 0) -> Any:
    """A recurrent layer over [T, N, C], or [T, N] words, and a layer of each step."""
    return chain(*([nn.Embedding(words, 64)] if words else []), cell, nn.Dense(outputs, flatten=False))


def attended(width: int, heads: int) -> Any:
    """Self-attention over [N, T, C]."""

    def forward(f: Any, x: Any, q: Any, k: Any, v: Any, last: Any) -> Any:
        def split(y: Any) -> Any:
            y = f.transpose(f.reshape(y, shape=(0, 0, heads, -1)), axes=(0, 2, 1, 3))
            return f.reshape(y, shape=(-1, 0, 0), reverse=True)

        weights = f.softmax(f.batch_dot(split(q(x)), split(k(x)), transpose_b=True) * (width / heads) ** -0.5)
        y = f.reshape(f.batch_dot(weights, split(v(x))), shape=(-1, heads, 0, 0), reverse=True)
        return last(f.reshape(f.transpose(y, axes=(0, 2, 1, 3)), shape=(0, 0, -1)))

    return Function(forward, *(nn.Dense(width, flatten=False) for _ in range(4)))


def layer(width: int, heads: int) -> Any:
    """One of a transformer."""
    inner = chain(nn.Dense(4 * width, flatten=False), nn.GELU(), nn.Dense(width, flatten=False))
    added = [Function(lambda f, x, part, norm: norm(x + part(x)), part, nn.LayerNorm())
             for part in (attended(width, heads), inner)]
    return chain(*added)


def patches() -> Any:
    """A vision transformer of two layers."""
    to_rows = nn.HybridLambda(lambda f, x: f.transpose(f.reshape(x, shape=(0, 0, -1)), axes=(0, 2, 1)))
    mean = nn.HybridLambda(lambda f, x: f.mean(x, axis=1))
    return chain(nn.Conv2D(192, 8, 8), to_rows, layer(192, 3), layer(192, 3), mean, nn.Dense(10))


def heads() -> Any:
    """Scores and boxes at four scales, as an SSD's."""

    def forward(f: Any, x: Any, trunk: Any, *parts: Any) -> Any:
        y, found = trunk(x), []
        for scale in range(4):
            found += [f.flatten(f.transpose(part(y), axes=(0, 2, 3, 1))) for part in parts[3 * scale:3 * scale + 2]]
            y = parts[3 * scale + 2](y) if scale < 3 else y
        return f.concat(*found, dim=1)

    parts = [part for scale in range(4) for part in (
        nn.Conv2D(84, 3, 1, 1), nn.Conv2D(16, 3, 1, 1), *([normal(128, 3, 2)] if scale < 3 else []))]
    return Function(forward, chain(normal(32, 3, 2), normal(64, 3, 2)), *parts)


def face() -> Any:
    """Depthwise bottlenecks with PReLU."""

    def bottleneck(outputs: int, stride: int, inner: int) -> Any:
        part = chain(normal(inner, 1, act=nn.PReLU()), normal(inner, 3, stride, inner, nn.PReLU()),
                     nn.Conv2D(outputs, 1, use_bias=False), nn.BatchNorm())
        return Function(lambda f, x, part: part(x) if stride > 1 else x + part(x), part)

    return chain(normal(32, 3, 2), bottleneck(32, 1, 64), bottleneck(64, 2, 128), bottleneck(64, 1, 128),
                 nn.GlobalAvgPool2D(), nn.Dense(512))


def squeezed(channels: int) -> Any:
    """Squeeze and excite."""
    return Function(lambda f, x, pool, one, two: f.broadcast_mul(x, two(one(pool(x)))), nn.GlobalAvgPool2D(),
                    nn.Conv2D(channels // 4, 1, activation="relu"), nn.Conv2D(channels, 1, activation="sigmoid"))


def factorisation() -> Any:
    def forward(f: Any, x: Any, weights: Any, vectors: Any) -> Any:
        v = vectors(x)
        pairs = f.square(f.sum(v, axis=1)) - f.sum(f.square(v), axis=1)
        return f.expand_dims(f.sum(weights(x), axis=(1, 2)) + 0.5 * f.sum(pairs, axis=1), axis=1)

    return Function(forward, nn.Embedding(WORDS, 1), nn.Embedding(WORDS, 16))


def wide_and_deep() -> Any:
    deep = chain(nn.Embedding(WORDS, 32), nn.Dense(256, activation="relu"), nn.Dense(128, activation="relu"),
                 nn.Dense(2))
    return Function(lambda f, x, wide, deep: f.sum(wide(x), axis=1) + deep(x), nn.Embedding(WORDS, 2), deep)


def volume() -> Any:
    return chain(nn.Conv3D(32, 3, padding=1, activation="relu"), nn.MaxPool3D((1, 2, 2)),
                 nn.Conv3D(64, 3, padding=1, activation="relu"), nn.MaxPool3D(2), nn.GlobalAvgPool3D(), nn.Dense(10))


def volume_and_back() -> Any:
    """A V-Net of two levels."""
    return chain(nn.Conv3D(16, 3, padding=1, activation="relu"), nn.Conv3D(32, 2, 2, activation="relu"),
                 nn.Conv3D(32, 3, padding=1, activation="relu"), nn.Conv3DTranspose(16, 2, 2, activation="relu"),
                 nn.Conv3D(2, 1))


def autoencoder() -> Any:
    return chain(nn.Dense(400, activation="relu"), nn.Dense(40), nn.Dense(400, activation="relu"),
                 nn.Dense(784, activation="sigmoid"))


def small_resnet(groups: int = 1, gate: bool = False) -> Any:
    stages = []
    for width, stride in ((32, 1), (64, 2)):
        inner = [normal(width, 1), normal(width, 3, 1, groups), nn.Conv2D(width, 1)] if groups > 1 else [
            normal(width), nn.Conv2D(width, 3, 1, 1)]
        stages += [normal(width, 3, stride), residual(*inner, nn.BatchNorm(), *([squeezed(width)] if gate else []))]
    return chain(*stages, nn.GlobalAvgPool2D(), nn.Dense(10))


def lenet() -> Any:
    return chain(nn.Conv2D(20, 5, activation="tanh"), nn.MaxPool2D(2, 2), nn.Conv2D(50, 5, activation="tanh"),
                 nn.MaxPool2D(2, 2), nn.Dense(500, activation="tanh"), nn.Dense(10))


def dilated() -> Any:
    """Convolutions over time, further and further apart."""
    return chain(*(nn.Conv1D(64, 3, padding=far, dilation=far, activation="relu") for far in (1, 2, 4)),
                 nn.Conv1D(1, 1))


def instance_norms() -> Any:
    part = [(nn.Conv2D(32, 3, 1, 1), nn.InstanceNorm(), nn.Activation("relu")) for _ in range(2)]
    return chain(*part[0], *part[1], nn.Conv2D(3, 3, 1, 1))


BLOCKS: dict[str, Callable[[], Any]] = {
    "unet": up_and_down,
    "generator_64": lambda: generator(128, 64, 32),
    "generator_100": lambda: generator(256, 128, 64),
    "discriminator": discriminator,
    "textcnn": text_convolutions,
    "deepar": lambda: steps(rnn.LSTM(40, 2), 2),
    "gru": lambda: steps(rnn.GRU(128), 10),
    "lstm_words": lambda: steps(rnn.LSTM(128), 2000, 2000),
    "bilstm_tagger": lambda: steps(rnn.LSTM(100, bidirectional=True), 9, 3000),
    "transformer": lambda: chain(nn.Embedding(1000, 128), layer(128, 4), layer(128, 4), nn.Dense(10)),
    "vit": patches,
    "conv3d": volume,
    "vnet": volume_and_back,
    "ssd_heads": heads,
    "face": face,
    "autoencoder": autoencoder,
    "factorisation": factorisation,
    "wide_and_deep": wide_and_deep,
    "resnet_cifar": small_resnet,
    "resnext": lambda: small_resnet(groups=8),
    "squeeze_excite": lambda: small_resnet(gate=True),
    "lenet": lenet,
    "tcn": dilated,
    "style": instance_norms,
    "mobilenetv2_0.5": lambda: gluon.model_zoo.vision.get_model("mobilenetv2_0.5"),
}
"""By the names of `spec.NETS`."""


def block(name: str) -> Any:
    """A net by its name, from data to scores or numbers."""
    mx.random.seed(0)
    return BLOCKS[name]()
