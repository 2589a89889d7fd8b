#!/usr/bin/env python3
"""Train a small convolutional net on handwritten digits with several processes.

    MXNET_SUBGRAPH_BACKEND=NGRAPH mpirun -n 2 python examples/train_distributed.py

The digits are scikit-learn's (`pip install scikit-learn`). Each process trains on its own part of them; rank 0 prints.
"""

from __future__ import annotations

import argparse

import ngraph_mxnet  # isort: skip  # noqa: F401  # MXNet then imports on current NumPy, and has the kvstore
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from sklearn.datasets import load_digits


def net() -> gluon.nn.HybridSequential:
    layers = gluon.nn.HybridSequential()
    layers.add(gluon.nn.Conv2D(32, 3, padding=1, activation="relu", in_channels=1), gluon.nn.MaxPool2D(),
               gluon.nn.Conv2D(64, 3, padding=1, activation="relu", in_channels=32), gluon.nn.Flatten(),
               gluon.nn.Dense(10, in_units=64 * 4 * 4))
    return layers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64, help="images a step, of all processes together")
    parser.add_argument("--kvstore", default="dist_sync_ngraph")
    arguments = parser.parse_args()

    store = mx.kv.create(arguments.kvstore)
    rank, ranks = store.rank, store.num_workers
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.images))
    images = (digits.images[order, None] / 16).astype(np.float32)
    labels = digits.target[order]
    train, test = slice(0, 1536), slice(1536, None)

    model = net()
    model.initialize(mx.init.Xavier())
    model.hybridize()
    trainer = gluon.Trainer(model.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, kvstore=store)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    share = arguments.batch // ranks
    for epoch in range(arguments.epochs):
        total = 0.0
        for begin in range(train.start, train.stop - arguments.batch + 1, arguments.batch):
            mine = slice(begin + rank * share, begin + (rank + 1) * share)
            with autograd.record():
                loss = loss_of(model(mx.nd.array(images[mine])), mx.nd.array(labels[mine]))
            loss.backward()
            trainer.step(share * ranks)
            total += float(loss.mean().asscalar())
        found = model(mx.nd.array(images[test])).argmax(axis=1).asnumpy()
        if rank == 0:
            print(f"epoch {epoch}: loss {total * arguments.batch / train.stop:.4f}, of images not trained on "
                  f"{np.mean(found == labels[test]):.3f} right, {ranks} processes", flush=True)


if __name__ == "__main__":
    main()
