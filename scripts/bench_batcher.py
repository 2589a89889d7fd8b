#!/usr/bin/env python3
"""Threads that call a small net through `ngraph_mxnet.Batcher`, against one thread that calls it with one row.

The net is three convolutions on 3x32x32, or three dense layers, of which reading the weights takes most of the time of
one row: as a hybridized Gluon block, and compiled of its symbol. Outputs are compared first. All variants run in turns;
a ratio is the median over the rounds of a variant's rows a second / those of one thread.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import outputs

SHAPE = (3, 32, 32)
Call = Callable[[np.ndarray], Any]


def make_net(kind: str, channels: list[int], units: int) -> Any:
    import mxnet as mx
    from mxnet.gluon import nn

    mx.random.seed(0)
    net = nn.HybridSequential()
    if kind == "dense":
        net.add(*(nn.Dense(units, activation="relu") for _ in range(2)))
    else:
        for count in channels:
            net.add(nn.Conv2D(count, 3, padding=1, activation="relu"), nn.MaxPool2D(2))
    net.add(nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    net(mx.nd.zeros((1, *SHAPE)))
    return net


def gluon(net: Any, options: argparse.Namespace) -> tuple[Call, Any]:
    """One call of one row, and the Batcher."""
    import mxnet as mx

    from ngraph_mxnet import Batcher

    def alone(x: np.ndarray) -> np.ndarray:
        data = mx.nd.empty(x.shape)
        data._sync_copyfrom(x)  # as the Batcher does it
        return net(data).asnumpy()

    return alone, Batcher(net, options.sizes, options.wait_ms, example=np.zeros((1, *SHAPE), np.float32))


def compiled(net: Any, options: argparse.Namespace) -> tuple[Call, Any]:
    """The same, compiled of the net's symbol for each size."""
    import mxnet as mx

    import ngraph_mxnet

    symbol = net(mx.sym.var("data"))
    weights = {name: parameter.data() for name, parameter in net.collect_params().items()}
    by_size = {size: ngraph_mxnet.compile(symbol, weights=weights, shapes={"data": (size, *SHAPE)})
               for size in {1, *options.sizes}}
    batcher = ngraph_mxnet.Batcher({size: by_size[size] for size in options.sizes}, wait_ms=options.wait_ms,
                                   example=np.zeros((1, *SHAPE), np.float32))
    return lambda x: by_size[1](x)[0], lambda x: batcher(x)[0]


def rows_per_second(call: Call, inputs: list[np.ndarray], seconds: float) -> float:
    """Of as many threads as there are inputs, each of which calls again when it has its result."""
    counts = [0] * len(inputs)
    stop = threading.Event()

    def client(place: int) -> None:
        while not stop.is_set():
            call(inputs[place])
            counts[place] += 1

    threads = [threading.Thread(target=client, args=(place,)) for place in range(len(inputs))]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - begin)


def difference(alone: Call, batcher: Call, inputs: list[np.ndarray]) -> float:
    """Of rows in a batch from the rows alone."""
    return outputs.difference(batcher(np.concatenate(inputs)), np.concatenate([alone(x) for x in inputs]))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", choices=["convolutions", "dense"], default="convolutions")
    parser.add_argument("--channels", type=int, nargs=3, default=[16, 32, 64], help="of the convolutions")
    parser.add_argument("--units", type=int, default=1024, help="of the dense layers")
    parser.add_argument("--clients", type=int, default=8, help="threads")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--wait-ms", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a variant in a round")
    parser.add_argument("--threads", type=int, default=2, help="OMP_NUM_THREADS")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    os.environ["MXNET_SUBGRAPH_BACKEND"] = "NGRAPH"
    import ngraph_mxnet  # noqa: F401

    net = make_net(options.model, options.channels, options.units)
    inputs = list(np.random.default_rng(0).normal(size=(options.clients, 1, *SHAPE)).astype(np.float32))
    variants: dict[str, tuple[Call, list[np.ndarray], str]] = {}
    errors = []
    for name, make in (("Gluon", gluon), ("compiled", compiled)):
        alone, batcher = make(net, options)
        errors.append(difference(alone, batcher, inputs))
        one = f"{name}, one thread"
        variants[one] = alone, inputs[:1], one
        variants[f"{name}, one thread, Batcher"] = batcher, inputs[:1], one
        variants[f"{name}, {options.clients} threads"] = alone, inputs, one
        variants[f"{name}, {options.clients} threads, Batcher"] = batcher, inputs, one
    rounds = [{name: rows_per_second(call, given, options.seconds) for name, (call, given, _) in variants.items()}
              for _ in range(options.rounds)]
    print(f"{options.model}, {options.threads} threads of OpenMP, sizes {options.sizes}, wait_ms {options.wait_ms:g}; "
          f"outputs differ by {max(errors):.1e}")
    print(f"{'':<30} {'rows/s':>8} {'ratio':>6} {'least':>6} {'most':>6}")
    for name, (_, _, one) in variants.items():
        ratios = [taken[name] / taken[one] for taken in rounds]
        print(f"{name:<30} {median(taken[name] for taken in rounds):>8.0f} {median(ratios):>6.2f} {min(ratios):>6.2f} "
              f"{max(ratios):>6.2f}")
    return outputs.status(errors, options.tolerance)


if __name__ == "__main__":
    sys.exit(main())
