#!/usr/bin/env python3
"""Measure the inference latency of a model-zoo network in plain MXNet: nothing here knows of ngraph_mxnet.

The steps are those of nGraph's tutorial "Testing inference latency of ResNet-50-V2 with MXNet": make the
Gluon model static by exporting it, load the checkpoint, bind the symbol, and time forward passes. With
ngraph_mxnet installed, set MXNET_SUBGRAPH_BACKEND=NGRAPH and run it unchanged. The weights are random:
latency does not depend on them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

DRY_RUNS = 5
INPUTS = 4


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the inference latency of a model-zoo network.")
    parser.add_argument(
        "--model", default="resnet50_v2", help="a name of the Gluon model zoo; default: %(default)s"
    )
    parser.add_argument("--batch", type=int, default=1, help="images a forward pass; default: %(default)s")
    parser.add_argument(
        "--iterations", type=int, default=100, help="timed forward passes; default: %(default)s"
    )
    parser.add_argument("--threads", type=int, help="sets OMP_NUM_THREADS; default: leave it as it is")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    options = parser.parse_args()
    if min(options.batch, options.iterations, options.threads or 1) < 1:
        parser.error("--batch, --iterations and --threads are at least 1")
    return options


def image_shape(model: str, batch: int) -> tuple[int, int, int, int]:
    size = 299 if model.startswith("inception") else 224
    return (batch, 3, size, size)


def export(model: str, shape: tuple[int, ...], prefix: str) -> None:
    """Turn the Gluon model into a static graph on disk: `prefix`-symbol.json and `prefix`-0000.params."""
    import mxnet as mx

    net = mx.gluon.model_zoo.vision.get_model(model)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    net(mx.nd.zeros(shape)).wait_to_read()
    net.export(prefix)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    import mxnet as mx

    shape = image_shape(options.model, options.batch)
    mx.random.seed(0)
    inputs = [mx.nd.random.normal(shape=shape) for _ in range(INPUTS)]
    with tempfile.TemporaryDirectory() as folder:
        prefix = str(Path(folder) / options.model)
        export(options.model, shape, prefix)
        symbol, arguments, states = mx.model.load_checkpoint(prefix, 0)
    mx.nd.waitall()

    start = time.perf_counter()
    executor = symbol.simple_bind(ctx=mx.cpu(), data=shape, grad_req="null")
    executor.copy_params_from(arguments, states)
    executor.forward(is_train=False, data=inputs[0])[0].wait_to_read()
    bind = time.perf_counter() - start

    for index in range(DRY_RUNS):
        executor.forward(is_train=False, data=inputs[index % INPUTS])[0].wait_to_read()
    seconds = []
    for index in range(options.iterations):
        start = time.perf_counter()
        executor.forward(is_train=False, data=inputs[index % INPUTS])[0].wait_to_read()
        seconds.append(time.perf_counter() - start)
    return summary(options, bind, seconds)


def summary(options: argparse.Namespace, bind: float, seconds: list[float]) -> dict[str, Any]:
    ordered = sorted(seconds)
    average = statistics.fmean(ordered)

    def percentile(percent: int) -> float:
        """Nearest rank: the smallest time that at least `percent` of 100 passes did not exceed."""
        return ordered[-(-len(ordered) * percent // 100) - 1]

    return {
        "model": options.model,
        "batch": options.batch,
        "iterations": options.iterations,
        "backend": os.environ.get("MXNET_SUBGRAPH_BACKEND"),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "average_ms": average * 1e3,
        "median_ms": statistics.median(ordered) * 1e3,
        "p90_ms": percentile(90) * 1e3,
        "p99_ms": percentile(99) * 1e3,
        "images_per_second": options.batch / average,
        "bind_to_first_result_ms": bind * 1e3,
    }


def main() -> int:
    options = parse_arguments()
    if options.threads:
        os.environ["OMP_NUM_THREADS"] = str(options.threads)
    result = measure(options)
    if options.json:
        print(json.dumps(result))
        return 0
    print(
        f"{result['model']}, batch {result['batch']}, {result['iterations']} forward passes, "
        f"MXNET_SUBGRAPH_BACKEND={result['backend'] or '(unset)'}, "
        f"OMP_NUM_THREADS={result['threads'] or '(unset)'}"
    )
    print(f"Average Latency: {result['average_ms']:8.2f} ms")
    print(f"Median:          {result['median_ms']:8.2f} ms")
    print(f"90th percentile: {result['p90_ms']:8.2f} ms")
    print(f"99th percentile: {result['p99_ms']:8.2f} ms")
    print(f"Throughput:      {result['images_per_second']:8.1f} images/s")
    print(f"Bind to result:  {result['bind_to_first_result_ms']:8.1f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
