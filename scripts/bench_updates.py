#!/usr/bin/env python3
"""Times the optimizers' updates, compiled and MXNet's own by turns in one process.

    python scripts/bench_updates.py [--rounds 30] [--optimizers sgd adam]

For each net and optimizer: how long `Trainer.step` takes until it returns, and until the weights are there (medians).
`bytes/s` are those that the formula must read and write, by the latter time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from math import prod

os.environ.setdefault("MXNET_SUBGRAPH_BACKEND", "NGRAPH")

import ngraph_mxnet  # isort: skip
import mxnet as mx

Shapes = list[tuple[int, ...]]
MLP: Shapes = [(256, 784), (256,), (128, 256), (128,), (10, 128), (10,)]
OPTIMIZERS = {
    "sgd": ({"momentum": 0.9, "wd": 1e-4}, 5), "nag": ({"momentum": 0.9, "wd": 1e-4}, 5), "adam": ({"wd": 1e-4}, 7),
    "rmsprop": ({}, 5), "adagrad": ({}, 5), "ftrl": ({}, 7), "lamb": ({}, 10),
}
"""Options, and how many times an element of a parameter's arrays is read or written."""


def resnet50() -> Shapes:
    net = mx.gluon.model_zoo.vision.resnet50_v1()
    net.initialize()
    net(mx.nd.zeros((1, 3, 224, 224)))
    return [parameter.shape for parameter in net.collect_params().values() if parameter.grad_req != "null"]


def new_trainer(shapes: Shapes, name: str) -> mx.gluon.Trainer:
    parameters = []
    for number, shape in enumerate(shapes):
        parameters.append(mx.gluon.Parameter(f"p{number}_weight", shape=shape))
        parameters[-1].initialize(mx.init.Normal(0.1))
        parameters[-1].grad()[:] = 1e-3
    return mx.gluon.Trainer(parameters, name, dict(OPTIMIZERS[name][0]))


def step(trainer: mx.gluon.Trainer, compiled: bool) -> tuple[float, float]:
    """Seconds until the call returns, and until all is done."""
    os.environ["NGRAPH_TRAINING"] = str(int(compiled))
    for parameter in trainer._params:
        parameter.data()._fresh_grad = True
    mx.nd.waitall()
    begin = time.perf_counter()
    trainer.step(32)
    returned = time.perf_counter() - begin
    mx.nd.waitall()
    return returned, time.perf_counter() - begin


def measure(shapes: Shapes, name: str, rounds: int) -> str:
    trainers = [new_trainer(shapes, name) for _ in range(2)]
    before = ngraph_mxnet.report().updates
    first = step(trainers[1], True)[0]
    step(trainers[0], False)
    times = [[step(trainer, bool(number)) for number, trainer in enumerate(trainers)] for _ in range(rounds)]
    assert ngraph_mxnet.report().updates == before + rounds + 1
    native, ours = (tuple(statistics.median(row[i][j] for row in times) * 1e3 for j in range(2)) for i in range(2))
    rate = OPTIMIZERS[name][1] * 4 * sum(map(prod, shapes)) / ours[1] / 1e6
    return (f"| {native[0]:.2f} / {native[1]:.2f} | {ours[0]:.2f} / {ours[1]:.2f} | {ours[1] / native[1]:.2f} | "
            f"{rate:.0f} | {first * 1e3:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--optimizers", nargs="+", choices=OPTIMIZERS, default=["sgd", "adam", "lamb"])
    options = parser.parse_args()
    print("| net, optimizer | MXNet: call / done, ms | compiled: call / done, ms | ratio | GB/s | first call, ms |")
    print("|---|---|---|---|---|---|")
    for net, shapes in (("MLP of 3 layers", MLP), ("ResNet-50", resnet50())):
        for name in options.optimizers:
            print(f"| {net}, {name} {measure(shapes, name, options.rounds)}", flush=True)


if __name__ == "__main__":
    main()
