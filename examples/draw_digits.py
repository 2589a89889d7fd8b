#!/usr/bin/env python3
"""Learn to draw handwritten digits of any kind that is asked for, by a conditional variational autoencoder.

The digits are scikit-learn's 1,797 of 8x8 pixels. The decoder, two transposed convolutions behind a dense layer, draws
from noise and a kind; a support vector machine that was trained on the real digits says whether it can be read. The
script imports nothing of ngraph_mxnet: with MXNET_SUBGRAPH_BACKEND=NGRAPH its steps and the decoder are compiled. It
prints some digits, what share of 1,000 is read as what was asked for, and how long drawing one, and 64 at once, takes.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn
from timed import median_ms

KINDS, NOISE = 10, 8
SHADES = " .:-=+*#%@"

Array = np.ndarray[Any, Any]


def digits() -> tuple[Array, Array, Any]:
    """Images of 1x8x8, from 0 to 1, and labels; and a judge that tells images apart."""
    try:
        from sklearn.datasets import load_digits
        from sklearn.svm import SVC
    except ImportError:
        raise SystemExit(
            "error: package scikit-learn is missing; examples/README.md says how to install it") from None
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    return images.reshape(-1, 1, 8, 8), labels, SVC(gamma=0.3, C=10).fit(images, labels)


class Encoder(gluon.HybridBlock):
    """Where the noise of a digit lies: mean, and the logarithm of the variance."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(nn.Conv2D(16, 3, padding=1, activation="relu"),
                          nn.Conv2D(32, 3, strides=2, padding=1, activation="relu"), nn.Flatten())
            self.joined = nn.Dense(64, activation="relu")
            self.mean, self.spread = nn.Dense(NOISE), nn.Dense(NOISE)

    def hybrid_forward(self, F: Any, images: Any, kinds: Any) -> tuple[Any, Any]:  # noqa: N803  # MXNet's name
        joined = self.joined(F.concat(self.body(images), F.one_hot(kinds, depth=KINDS), dim=1))
        return self.mean(joined), self.spread(joined)


class Decoder(gluon.HybridBlock):
    """Draws: of noise and kinds, the logits of pixels."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.seed = nn.Dense(32 * 2 * 2, activation="relu")
            self.body = nn.HybridSequential()
            self.body.add(nn.Conv2DTranspose(32, 4, strides=2, padding=1), nn.BatchNorm(), nn.Activation("relu"),
                          nn.Conv2DTranspose(16, 4, strides=2, padding=1), nn.BatchNorm(), nn.Activation("relu"),
                          nn.Conv2D(1, 3, padding=1))

    def hybrid_forward(self, F: Any, noise: Any, kinds: Any) -> Any:  # noqa: N803  # MXNet's name
        seed = self.seed(F.concat(noise, F.one_hot(kinds, depth=KINDS), dim=1))
        return self.body(F.reshape(seed, (0, 32, 2, 2)))


def train(encoder: Encoder, decoder: Decoder, images: Array, labels: Array, epochs: int, batch: int, seed: int) -> None:
    """Print each epoch's loss and time."""
    pixels = gluon.loss.SigmoidBinaryCrossEntropyLoss(batch_axis=0)
    trainers = [gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 2e-3}) for net in (encoder, decoder)]
    random, size = np.random.default_rng(seed), images[0].size
    for epoch in range(epochs):
        start, total, order = time.perf_counter(), 0.0, random.permutation(len(images))
        for rows in np.array_split(order, -(-len(order) // batch)):
            some, kinds = mx.nd.array(images[rows]), mx.nd.array(labels[rows])
            noise = mx.nd.array(random.standard_normal((len(rows), NOISE)))
            with autograd.record():
                mean, spread = encoder(some, kinds)
                drawn = decoder(mean + mx.nd.exp(spread / 2) * noise, kinds)
                apart = 0.5 * (mean ** 2 + mx.nd.exp(spread) - spread - 1).sum(axis=1)
                value = size * pixels(drawn, some) + apart
            value.backward()
            for trainer in trainers:
                trainer.step(len(rows))
            total += value.sum().asscalar()
        print(f"epoch {epoch + 1:>2}: loss {total / len(images):.3f}, {time.perf_counter() - start:.2f} s", flush=True)


def draw(decoder: Decoder, noise: mx.nd.NDArray, kinds: mx.nd.NDArray) -> Array:
    """Images from 0 to 1."""
    drawn: Array = decoder(noise, kinds).asnumpy()
    return 1 / (1 + np.exp(-drawn))


def text_of(images: Array) -> str:
    """Images side by side."""
    shades = np.minimum((images[:, 0] * len(SHADES)).astype(int), len(SHADES) - 1)
    return "\n".join("  ".join("".join(SHADES[shade] * 2 for shade in image[row]) for image in shades)
                     for row in range(images.shape[2]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn to draw digits by a conditional variational autoencoder.")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0, help="of the weights, the order of the digits and the noise")
    options = parser.parse_args()

    mx.random.seed(options.seed)
    np.random.seed(options.seed)  # MXNet's initialisers draw from both
    images, labels, judge = digits()
    encoder, decoder = Encoder(), Decoder()
    for net in (encoder, decoder):
        net.initialize(mx.init.Xavier())
        net.hybridize()
    backend = os.environ.get("MXNET_SUBGRAPH_BACKEND") or "none"
    print(f"{len(images)} digits to learn from; backend {backend}")
    train(encoder, decoder, images, labels, options.epochs, options.batch, options.seed)
    random = np.random.default_rng(options.seed)
    kinds = np.arange(1000) % KINDS
    noise, asked = mx.nd.array(random.standard_normal((len(kinds), NOISE))), mx.nd.array(kinds)
    drawn = draw(decoder, noise, asked)
    print(text_of(drawn[:5]), text_of(drawn[5:10]), sep="\n\n")
    for count in (1, 64):
        some = noise[:count], asked[:count]
        print(f"drawing {count}: {median_ms(lambda some=some: draw(decoder, *some)):.4f} ms")
    print(f"read as asked for: {(judge.predict(drawn.reshape(len(drawn), -1)) == kinds).mean():.4f}")


if __name__ == "__main__":
    main()
