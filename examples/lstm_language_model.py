#!/usr/bin/env python3
"""Measure the inference latency of an LSTM language model in plain MXNet: nothing here knows of ngraph_mxnet.

The model is the usual one of word-level modelling: an embedding, two LSTM layers, and a decoder that scores every
word of the vocabulary after each step. `--unrolled` builds the layers step by step of LSTM cells, as symbolic code
of 2016 does, in place of MXNet's fused RNN operator. Weights are random: latency does not depend on them. With
ngraph_mxnet installed, set MXNET_SUBGRAPH_BACKEND=NGRAPH and run it unchanged.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from typing import Any

LAYERS = 2
DRY_RUNS = 3


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the inference latency of an LSTM language model.")
    parser.add_argument("--batch", type=int, default=1, help="sequences a forward pass; default: %(default)s")
    parser.add_argument("--steps", type=int, default=35, help="words a sequence; default: %(default)s")
    parser.add_argument("--units", type=int, default=650, help="of embedding and layers; default: %(default)s")
    parser.add_argument("--words", type=int, default=10000, help="in the vocabulary; default: %(default)s")
    parser.add_argument("--unrolled", action="store_true", help="LSTM cells in place of the operator RNN")
    parser.add_argument("--iterations", type=int, default=30, help="timed forward passes; default: %(default)s")
    parser.add_argument("--threads", type=int, help="sets OMP_NUM_THREADS; default: leave it as it is")
    options = parser.parse_args()
    if min(options.batch, options.steps, options.units, options.words, options.iterations, options.threads or 1) < 1:
        parser.error("all numbers are at least 1")
    return options


def language_model(steps: int, batch: int, units: int, words: int, *, unrolled: bool) -> tuple[Any, dict[str, Any]]:
    """The symbol, whose outputs are the scores (steps, batch, words) and the last states, and its inputs' shapes.

    `data` holds word numbers (steps, batch); the states go in and come out, so that a text goes on in the next call.
    """
    import mxnet as mx

    table = mx.sym.var("embedding_weight", shape=(words, units))
    embedded = mx.sym.Embedding(mx.sym.var("data"), table, input_dim=words, output_dim=units)
    shapes: dict[str, Any] = {"data": (steps, batch)}
    if unrolled:
        cells = mx.rnn.SequentialRNNCell()
        for layer in range(LAYERS):
            cells.add(mx.rnn.LSTMCell(units, prefix=f"lstm{layer}_"))
        names = [f"{kind}{layer}" for layer in range(LAYERS) for kind in "hc"]
        shapes.update(dict.fromkeys(names, (batch, units)))
        outputs, states = cells.unroll(steps, embedded, [mx.sym.var(name) for name in names], layout="TNC",
                                       merge_outputs=True)
    else:
        shapes.update(h=(LAYERS, batch, units), c=(LAYERS, batch, units))
        outputs, *states = mx.sym.RNN(embedded, mx.sym.var("lstm_parameters"), mx.sym.var("h"), mx.sym.var("c"),
                                      state_size=units, num_layers=LAYERS, mode="lstm", state_outputs=True)
    scores = mx.sym.FullyConnected(outputs, num_hidden=words, flatten=False, name="decoder")
    return mx.sym.Group([scores, *states]), shapes


def random_arrays(symbol: Any, shapes: dict[str, Any], words: int) -> dict[str, Any]:
    """An array for each argument: word numbers, small weights, states of zero."""
    import mxnet as mx

    mx.random.seed(0)
    arrays = {}
    for name, shape in zip(symbol.list_arguments(), symbol.infer_shape(**shapes)[0], strict=True):
        if name == "data":
            arrays[name] = mx.nd.floor(mx.nd.random.uniform(0, words, shape=shape))
        else:
            arrays[name] = mx.nd.zeros(shape) if name in shapes else mx.nd.random.uniform(-0.05, 0.05, shape=shape)
    return arrays


def measure(options: argparse.Namespace) -> list[float]:
    """Seconds of each timed forward pass."""
    import mxnet as mx

    symbol, shapes = language_model(options.steps, options.batch, options.units, options.words,
                                    unrolled=options.unrolled)
    arrays = random_arrays(symbol, shapes, options.words)
    executor = symbol.bind(mx.cpu(), arrays, grad_req="null")
    seconds = []
    for index in range(DRY_RUNS + options.iterations):
        start = time.perf_counter()
        for output in executor.forward(is_train=False):
            output.wait_to_read()
        if index >= DRY_RUNS:
            seconds.append(time.perf_counter() - start)
    return seconds


def main() -> int:
    options = parse_arguments()
    if options.threads:
        os.environ["OMP_NUM_THREADS"] = str(options.threads)
    seconds = sorted(measure(options))
    median = statistics.median(seconds)
    kind = "unrolled, " if options.unrolled else ""
    backend = os.environ.get("MXNET_SUBGRAPH_BACKEND") or "(unset)"
    print(f"LSTM language model, {kind}batch {options.batch}, {options.steps} steps, MXNET_SUBGRAPH_BACKEND={backend}")
    print(f"Median latency: {median * 1e3:8.2f} ms, least {seconds[0] * 1e3:.2f} ms")
    print(f"Throughput:     {options.batch * options.steps / median:8.0f} words/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
