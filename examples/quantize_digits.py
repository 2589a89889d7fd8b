#!/usr/bin/env python3
"""Train a small convolutional net on scikit-learn's handwritten digits, quantise it, and compare both.

`ngraph_mxnet.quantize` chooses which layers compute in 8 bits, on digits that the net was not trained on, so that it
tells at most so many of them less right. It prints the report, and for other digits how many both models tell right,
and what a call takes. With -o it writes the compiled file, with --recipe the recipe.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import ngraph_mxnet  # isort: skip  # before MXNet, which then imports on current NumPy
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn

TRAIN, CHOOSE, BATCH = 1000, 400, 32
"""Of the 1,797 digits: those to train with and to choose layers with; the others are to test with."""
Digits = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def digits() -> tuple[Digits, Digits, Digits]:
    """Images of 1x8x8 and labels: to train, to choose and to test with."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise SystemExit(
            "error: package scikit-learn is missing; examples/README.md says how to install it") from None
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).reshape(-1, 1, 8, 8).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    train, choose, test = np.split(order, [TRAIN, TRAIN + CHOOSE])
    return (images[train], labels[train]), (images[choose], labels[choose]), (images[test], labels[test])


def network() -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(32, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"),
            nn.Conv2D(64, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(),
            nn.Conv2D(64, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.Flatten(), nn.Dense(10))
    net.initialize(mx.init.Xavier())
    return net


def train(net: nn.HybridSequential, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], epochs: int) -> None:
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.002})
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    data = gluon.data.DataLoader(gluon.data.ArrayDataset(images, labels), BATCH, shuffle=True)
    for _ in range(epochs):
        for some, wanted in data:
            with autograd.record():
                loss = loss_of(net(some), wanted)
            loss.backward()
            trainer.step(len(some))


def measured(run: Any, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> tuple[float, float]:
    """The share that is told right, of whole batches, and milliseconds of a call in the median."""
    right, times = [], []
    for first in range(0, len(images) - BATCH + 1, BATCH):
        begin = time.perf_counter()
        scores, = run(images[first:first + BATCH])
        times.append(time.perf_counter() - begin)
        right.append(scores.argmax(axis=1) == labels[first:first + BATCH])
    return float(np.mean(right)), float(np.median(times)) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description="Train and quantise a small net on scikit-learn's digits.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--max-drop", type=float, default=0.003, help="of the share of digits that are told right")
    parser.add_argument("--even-if-slower", action="store_true", help="layers that are not faster in 8 bits are, too")
    parser.add_argument("-o", "--output", help="the compiled file to write")
    parser.add_argument("--recipe", help="the recipe to write")
    options = parser.parse_args()

    mx.random.seed(0)
    np.random.seed(0)  # MXNet's initialisers draw from both
    trained, choose, test = digits()
    net = network()
    train(net, *trained, options.epochs)
    loader = gluon.data.DataLoader(gluon.data.ArrayDataset(*choose), BATCH)
    quantized = ngraph_mxnet.quantize(net, loader, max_drop=options.max_drop, only_faster=not options.even_if_slower)
    print(quantized.report)
    in_float = quantized.compile(precision="f32", recipe=None)
    for name, run in (("float", in_float), ("quantised", quantized)):
        measured(run, *test)  # the first call compiles
        share, milliseconds = measured(run, *test)
        print(f"{name}: {share:.4f} told right, {milliseconds:.3f} ms for {BATCH} digits")
    if options.output:
        quantized.save(options.output)
    if options.recipe:
        quantized.save_recipe(options.recipe)


if __name__ == "__main__":
    main()
