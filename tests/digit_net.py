"""A small convolutional net that is trained on scikit-learn's handwritten digits, for what is asked of accuracy."""

from __future__ import annotations

import functools
import importlib.util

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

needs_digits = pytest.mark.skipif(importlib.util.find_spec("sklearn") is None,
                                  reason="the packages that examples/README.md names are not installed")
TEST = 597
"""Of the 1,797 digits, a third."""

Labelled = tuple[np.ndarray, np.ndarray]


@functools.cache
def digits() -> tuple[Labelled, Labelled]:
    """Images of 1x8x8 and labels: those to train with, then those to test with."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = (images / 16).reshape(-1, 1, 8, 8).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    test, train = order[:TEST], order[TEST:]
    return (images[train], labels[train].astype(np.float32)), (images[test], labels[test].astype(np.float32))


@functools.cache
def trained() -> nn.HybridSequential:
    """The net, which tells about 98 % of the digits right."""
    mx.random.seed(0)
    np.random.seed(0)  # MXNet's initialisers draw from both
    net = nn.HybridSequential(prefix="")
    for number, (channels, last) in enumerate(((16, nn.Activation("relu")), (32, nn.MaxPool2D()), (32, nn.Flatten()))):
        net.add(nn.Conv2D(channels, 3, padding=1, prefix=f"conv{number}_"), nn.BatchNorm(prefix=f"norm{number}_"),
                nn.Activation("relu"), last)
    net.add(nn.Dense(10, prefix="dense0_"))
    net.initialize(mx.init.Xavier())
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.003})
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    (images, labels), _ = digits()
    rng = np.random.default_rng(0)
    for _ in range(5):
        for rows in np.array_split(rng.permutation(len(images)), 38):
            with autograd.record():
                loss = loss_of(net(mx.nd.array(images[rows])), mx.nd.array(labels[rows]))
            loss.backward()
            trainer.step(len(rows))
    return net


def accuracy(outputs: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean(outputs.argmax(axis=1) == labels))
