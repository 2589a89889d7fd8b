#!/usr/bin/env python3
"""The LSTM language model of `examples/`, NGRAPH against MXNet's MKLDNN, in turns in one process.

Outputs are compared first. The ratio is the median over the rounds of NGRAPH's time / MKLDNN's; below 1, NGRAPH is
faster.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import outputs

ROOT = Path(__file__).resolve().parents[1]
OURS, THEIRS = "NGRAPH", "MKLDNN"


def bind(symbol: Any, arrays: dict[str, Any], backend: str) -> Any:
    import mxnet as mx

    os.environ["MXNET_SUBGRAPH_BACKEND"] = backend
    return symbol.bind(mx.cpu(), arrays, grad_req="null")


def forward(executor: Any) -> float:
    """Seconds of one pass."""
    start = time.perf_counter()
    for output in executor.forward(is_train=False):
        output.wait_to_read()
    return time.perf_counter() - start


def difference(executors: dict[str, Any]) -> float:
    """The largest over the outputs, from MKLDNN's."""
    pairs = zip(executors[OURS].outputs, executors[THEIRS].outputs, strict=True)
    return float(np.max([outputs.difference(a.asnumpy(), b.asnumpy()) for a, b in pairs]))  # which keeps NaN


def compare(unrolled: bool, options: argparse.Namespace, batch: int) -> float:
    """Print a row and return the outputs' difference."""
    from lstm_language_model import language_model, random_arrays

    symbol, shapes = language_model(options.steps, batch, options.units, options.words, unrolled=unrolled)
    arrays = random_arrays(symbol, shapes, options.words)
    executors = {backend: bind(symbol, arrays, backend) for backend in (OURS, THEIRS)}
    for executor in executors.values():
        forward(executor)
    error = difference(executors)
    rounds: list[dict[str, float]] = []
    for index in range(options.rounds):
        order = (OURS, THEIRS) if index % 2 else (THEIRS, OURS)
        times = {}
        for backend in order:
            forward(executors[backend])  # brings its weights back into the caches
            times[backend] = forward(executors[backend])
        rounds.append(times)
    regions = executors[OURS].debug_str().count("Op:NGraphSubgraphOp")
    medians = {backend: median(times[backend] for times in rounds) * 1e3 for backend in executors}
    ratio = median(times[OURS] / times[THEIRS] for times in rounds)
    print(f"{'unrolled' if unrolled else 'RNN':<9} {batch:>6} {medians[OURS]:>10.2f} {medians[THEIRS]:>10.2f} "
          f"{ratio:>7.2f} {regions:>8} {error:>11.1e}", flush=True)
    return error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--steps", type=int, default=35)
    parser.add_argument("--units", type=int, default=650)
    parser.add_argument("--words", type=int, default=10000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    os.environ["MXNET_SUBGRAPH_BACKEND"] = OURS
    sys.path[:0] = [str(ROOT), str(ROOT / "examples")]
    import ngraph_mxnet  # noqa: F401

    print(f"{options.units} units, {options.steps} steps, {options.words} words, {options.threads} threads; median ms")
    print(f"{'layers':<9} {'batch':>6} {OURS:>10} {THEIRS:>10} {'ratio':>7} {'regions':>8} {'difference':>11}")
    errors = [compare(unrolled, options, batch) for unrolled in (False, True) for batch in options.batch]
    return outputs.status(errors, options.tolerance)


if __name__ == "__main__":
    sys.exit(main())
