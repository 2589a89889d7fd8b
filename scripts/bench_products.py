#!/usr/bin/env python3
"""Speed of matrix products as the CPU backend runs them, in percent of this machine's measured peak.

Fully connected layers by batch size, each with weights that are not in the caches (in brackets: GB/s of weights, what
bounds small batches); then the products of attention and attention itself, of one sequence of BERT base. The least
time of all rounds counts.
"""

from __future__ import annotations

import argparse

import numpy as np

from ngraph_mxnet import _core, compile
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.targets.cpu.machine.isa import supported
from ngraph_mxnet.targets.cpu.machine.peak import measure_peak

LAYERS = ((768, 768), (768, 3072), (3072, 768), (2048, 1000))
"""Inputs and outputs of fully connected layers."""
HEADS, DEPTH = 12, 64
_COLD_BYTES = 48 << 20
"""Weights of one pass: more than the caches keep."""


def connected(rows: int, inputs: int, outputs: int) -> Graph:
    """As many layers as make their weights cold, all of one input."""
    b = Builder()
    x, rng = b.parameter("x", (rows, inputs)), np.random.default_rng(0)
    layers = range(-(-_COLD_BYTES // (4 * inputs * outputs)))
    weights = (rng.random((outputs, inputs), dtype=np.float32) for _ in layers)
    return b.results(*(b.matmul(x, b.constant(w), transpose_b=True) for w in weights))


def scores(length: int) -> Graph:
    b = Builder()
    q, k = (b.parameter(name, (HEADS, length, DEPTH)) for name in "qk")
    return b.results(b.matmul(q, k, transpose_b=True))


def context(length: int) -> Graph:
    b = Builder()
    return b.results(b.matmul(b.parameter("p", (HEADS, length, length)), b.parameter("v", (HEADS, length, DEPTH))))


def attention(length: int) -> Graph:
    b = Builder()
    q, k, v = (b.parameter(name, (1, HEADS, length, DEPTH)) for name in "qkv")
    return b.results(b.attention(q, k, v, scale=DEPTH**-0.5))


def gflops(graph: Graph, threads: int, rounds: int) -> tuple[float, float]:
    """10^9 operations a second of the products in `graph`, and 10^9 of their instructions' bytes."""
    executable = compile(graph, "CPU", threads=threads)
    instructions = [i for level in executable.main.levels() for i in level]  # type: ignore[attr-defined]
    rng = np.random.default_rng(1)
    inputs = [rng.random(p.shape, dtype=np.float32) for p in graph.parameters]
    outputs = [np.empty(port.type.shape, np.float32) for port in executable.outputs]
    native = executable.native  # type: ignore[attr-defined]
    times = np.array([[seconds for _, seconds in native.profile(inputs, outputs)] for _ in range(rounds + 1)])
    chosen = np.array([i.operations > 0 for i in instructions])
    seconds = times[1:, chosen].min(axis=0).sum()
    work, read = (sum(getattr(i, name) for i in instructions if i.operations > 0) for name in ("operations", "bytes"))
    return work / seconds / 1e9, read / seconds / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--batches", default="1,4,8,16,32,64,128", help="rows of the fully connected layers")
    parser.add_argument("--lengths", default="64,128,384", help="tokens of the sequences")
    options = parser.parse_args()
    batches, lengths = ([int(n) for n in text.split(",")] for text in (options.batches, options.lengths))
    isa = supported(_core.cpu_features())[0]
    peak = measure_peak(isa, options.threads).gflops
    print(f"{isa}, {options.threads} thread(s), peak {peak:.0f} GFLOP/s")
    print("| fully connected | " + " | ".join(map(str, batches)) + " |")
    print("|---" * (len(batches) + 1) + "|")
    for inputs, outputs in LAYERS:
        cells = []
        for rows in batches:
            speed, bandwidth = gflops(connected(rows, inputs, outputs), options.threads, options.rounds)
            cells.append(f"{100 * speed / peak:.0f} ({bandwidth:.0f})")
        print(f"| {inputs} to {outputs} | " + " | ".join(cells) + " |", flush=True)
    print("\n| one sequence, 12 heads | " + " | ".join(map(str, lengths)) + " |")
    print("|---" * (len(lengths) + 1) + "|")
    for make, name in ((scores, "queries by keys"), (context, "weights by values"), (attention, "attention")):
        cells = [f"{100 * gflops(make(n), options.threads, options.rounds)[0] / peak:.0f}" for n in lengths]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
