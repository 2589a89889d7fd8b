#!/usr/bin/env python3
"""Train a small convolutional net on scikit-learn's handwritten digits, as any Gluon script does.

It imports nothing of ngraph_mxnet, but with --record, to record the run: with MXNET_SUBGRAPH_BACKEND=NGRAPH its steps
are compiled. README.md beside this file says how to run it natively. It prints each epoch's loss and time, and at the
end the share of the test digits that are told right.
"""

from __future__ import annotations

import argparse
import os
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn

TEST = 360
"""Of the 1,797 digits, a fifth."""


def digits(seed: int) -> tuple[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]], ...]:
    """Images of 1x8x8 and labels: those to train with, then those to test with."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise SystemExit(
            "error: package scikit-learn is missing; examples/README.md says how to install it") from None
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).reshape(-1, 1, 8, 8).astype(np.float32)
    order = np.random.default_rng(seed).permutation(len(images))
    test, train = order[:TEST], order[TEST:]
    return (images[train], labels[train]), (images[test], labels[test])


def network() -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(16, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(),
            nn.Conv2D(32, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.GlobalAvgPool2D(), nn.Dense(10))
    return net


def accuracy(net: nn.HybridSequential, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
    found = net(mx.nd.array(images)).asnumpy().argmax(axis=1)
    return float((found == labels).mean())


def train(net: nn.HybridSequential, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], epochs: int, batch: int,
          rate: float, seed: int) -> list[tuple[float, float]]:
    """Print each epoch's loss and time, and return them. `seed`: of the order of the images."""
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": rate, "momentum": 0.9})
    rng = np.random.default_rng(seed)
    epochs_run = []
    for epoch in range(epochs):
        start, total, count = time.perf_counter(), 0.0, 0
        order = rng.permutation(len(images))
        for rows in np.array_split(order, -(-len(order) // batch)):
            with autograd.record():
                value = loss(net(mx.nd.array(images[rows])), mx.nd.array(labels[rows]))
            value.backward()
            trainer.step(len(rows))
            total += value.sum().asscalar()
            count += len(rows)
        mx.nd.waitall()
        epochs_run.append((total / count, time.perf_counter() - start))
        print(f"epoch {epoch + 1:>2}: loss {epochs_run[-1][0]:.4f}, {epochs_run[-1][1]:.2f} s", flush=True)
    return epochs_run


def recording(options: argparse.Namespace) -> AbstractContextManager[Any]:
    """What is recorded of a run, if that is wanted; only that needs ngraph_mxnet."""
    if not options.record:
        return nullcontext()
    from ngraph_mxnet.tools.experiments.store import record

    return record("train_digits", "digits", {name: value for name, value in vars(options).items() if name != "record"})


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small net on scikit-learn's digits.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the order of the digits")
    parser.add_argument("--record", action="store_true", default=bool(os.environ.get("NGRAPH_RUNS")),
                        help="add a run to the store of runs; so it is where NGRAPH_RUNS is set")
    options = parser.parse_args()

    mx.random.seed(options.seed)
    np.random.seed(options.seed)  # MXNet's initialisers draw from both
    (images, labels), test = digits(options.seed)
    net = network()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    backend = os.environ.get("MXNET_SUBGRAPH_BACKEND") or "none"
    print(f"{len(images)} digits to train with, {len(test[0])} to test with; backend {backend}")
    with recording(options) as run:
        epochs = train(net, images, labels, options.epochs, options.batch, options.rate, options.seed)
        right = accuracy(net, *test)
        if run is not None:
            for loss, seconds in epochs:
                run.metric("loss", loss)
                run.sample("epoch_ms", seconds * 1e3)
            run.metric("accuracy", right)
    print(f"accuracy: {right:.4f}")


if __name__ == "__main__":
    main()
