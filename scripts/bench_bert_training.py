#!/usr/bin/env python3
"""Times whole training steps of a classifier on BERT's encoder, compiled and MXNet's own by turns in one process.

    OMP_NUM_THREADS=2 python scripts/bench_bert_training.py [--layers 12] [--rounds 8] [--gluon]

A step is forward, backward and Adam's update, by an executor of `simple_bind`, or with `--gluon` by a hybridized block
and a Trainer. Before it measures, it compares the losses of three steps.
Medians of wall and CPU time, and their ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.environ["MXNET_SUBGRAPH_BACKEND"] = "NGRAPH"

import ngraph_mxnet  # noqa: F401  # isort: skip
import mxnet as mx
import numpy as np
from mxnet.gluon import HybridBlock, nn
from peers import bert

LENGTH, BATCH, CLASSES = 128, 8, 2
WAYS = (("NGRAPH", "1"), ("NONE", "0"), ("MKLDNN", "0"))
"""MXNET_SUBGRAPH_BACKEND and NGRAPH_TRAINING."""
Step = Callable[[], float]


class Classifier(HybridBlock):  # type: ignore[misc]
    """Tokens [batch, length] -> [batch, classes], of the first token's result."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.encoder = bert.Encoder(LENGTH)
            self.pooler = nn.Dense(bert.UNITS, activation="tanh", in_units=bert.UNITS)
            self.classes = nn.Dense(CLASSES, in_units=bert.UNITS)

    def hybrid_forward(self, F, tokens):  # type: ignore[no-untyped-def]  # noqa: N803
        first = F.slice_axis(self.encoder(tokens), axis=0, begin=0, end=1)
        return self.classes(self.pooler(F.reshape(first, shape=(-1, bert.UNITS))))


def drawn() -> tuple[mx.nd.NDArray, mx.nd.NDArray]:
    rng = np.random.default_rng(0)
    tokens, labels = rng.integers(0, bert.VOCABULARY, (BATCH, LENGTH)), rng.integers(0, CLASSES, BATCH)
    return mx.nd.array(tokens), mx.nd.array(labels)


def initialized(net: Classifier) -> None:
    mx.random.seed(1)
    np.random.seed(1)
    net.initialize(mx.init.Normal(0.02), force_reinit=True)


def gluon_step(net: Classifier) -> Step:
    initialized(net)
    net.hybridize()
    tokens, labels = drawn()
    trainer = mx.gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 1e-5})
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()

    def step() -> float:
        with mx.autograd.record():
            loss = loss_of(net(tokens), labels)
        loss.backward()
        trainer.step(BATCH)
        mx.nd.waitall()
        return float(loss.mean().asscalar())

    return step


def executor_step(net: Classifier) -> Step:
    initialized(net)
    tokens, labels = drawn()
    net(tokens)
    symbol = mx.sym.SoftmaxOutput(net(mx.sym.var("tokens")), mx.sym.var("labels"), name="softmax")
    values = {name: parameter.data() for name, parameter in net.collect_params().items()}
    requests = {name: "write" if name in values else "null" for name in symbol.list_arguments()}
    executor = symbol.simple_bind(mx.cpu(), grad_req=requests, tokens=tokens.shape, labels=labels.shape)
    for name, array in {**values, "tokens": tokens, "labels": labels}.items():
        executor.arg_dict[name][:] = array
    names = [name for name in symbol.list_arguments() if name in values]
    update = mx.optimizer.get_updater(mx.optimizer.Adam(learning_rate=1e-5, rescale_grad=1 / BATCH))
    chosen = labels.asnumpy().astype(int)

    def step() -> float:
        executor.forward(is_train=True)
        executor.backward()
        update(list(range(len(names))), [executor.grad_dict[name] for name in names],
               [executor.arg_dict[name] for name in names])
        mx.nd.waitall()
        return float(-np.log(executor.outputs[0].asnumpy()[np.arange(BATCH), chosen]).mean())

    return step


def timed(step: Step, way: tuple[str, str]) -> tuple[float, float]:
    """Milliseconds of wall and CPU time."""
    os.environ["MXNET_SUBGRAPH_BACKEND"], os.environ["NGRAPH_TRAINING"] = way
    wall, cpu = time.perf_counter(), time.process_time()
    step()
    return (time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=bert.LAYERS)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--gluon", action="store_true")
    options = parser.parse_args()
    bert.LAYERS = options.layers
    steps, losses = [], []
    for way in WAYS:
        os.environ["MXNET_SUBGRAPH_BACKEND"], os.environ["NGRAPH_TRAINING"] = way
        steps.append((gluon_step if options.gluon else executor_step)(Classifier()))
        losses.append([steps[-1]() for _ in range(3)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)
    np.testing.assert_allclose(losses[0], losses[2], rtol=1e-3)
    times = [[timed(step, way) for step, way in zip(steps, WAYS, strict=True)] for _ in range(options.rounds)]
    for kind, name in enumerate(("wall", "CPU")):
        found = [statistics.median(row[way][kind] for row in times) for way in range(len(WAYS))]
        shown = ", ".join(f"{way[0]} {ms:.0f} ms" for way, ms in zip(WAYS, found, strict=True))
        print(f"{name}: {shown}; ratio {found[0] / min(found[1:]):.3f}")


if __name__ == "__main__":
    main()
