"""Times 3x3 convolutions of stride 1 computed directly and by Winograd's F(2x2) and F(4x4).

    python scripts/bench_convolutions.py [--threads 1] [--isa avx2] [--batch 1] [--repeats 15] [--layer 256,256,14]

Each row is the best time of one layer within a chain of equal layers (C -> K -> C -> ...), with bias and ReLU,
run by the executor. The chain's weights do not fit into cache together, as those of a network do not, and the
three algorithms take turns.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from ngraph_mxnet import compile
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.targets.cpu.planning import algorithm

NAMES = {0: "direct", 2: "F(2x2)", 4: "F(4x4)"}
_WEIGHTS = 64 << 20
"""Bytes of weights in a chain, as far as `_LONGEST` allows."""
_LONGEST = 16


@dataclass(frozen=True)
class Layer:
    """`network` has a convolution of `inputs` to `outputs` channels on an image of `size` x `size`, padded by 1."""

    network: str
    inputs: int
    outputs: int
    size: int


LAYERS = (
    Layer("ResNet", 64, 64, 56),
    Layer("ResNet", 128, 128, 28),
    Layer("ResNet", 256, 256, 14),
    Layer("ResNet", 512, 512, 7),
    Layer("VGG", 64, 64, 224),
    Layer("VGG", 64, 128, 112),
    Layer("VGG", 128, 128, 112),
    Layer("VGG", 128, 256, 56),
    Layer("VGG", 256, 256, 56),
    Layer("VGG", 256, 512, 28),
    Layer("VGG", 512, 512, 28),
    Layer("VGG", 512, 512, 14),
    Layer("Inception", 32, 64, 147),
    Layer("Inception", 64, 96, 35),
    Layer("Inception", 96, 96, 35),
    Layer("Inception", 448, 384, 8),
    Layer("small", 16, 16, 32),
    Layer("small", 32, 32, 32),
    Layer("small", 32, 32, 16),
    Layer("small", 32, 32, 8),
    Layer("small", 64, 64, 16),
    Layer("small", 64, 64, 8),
    Layer("small", 128, 128, 8),
    Layer("small", 256, 256, 8),
    Layer("small", 128, 128, 4),
    Layer("small", 16, 128, 28),
    Layer("small", 128, 16, 28),
)


def chain_length(layer: Layer) -> int:
    """Layers in a chain; even, so that the result has the input's channels."""
    wanted = -(-_WEIGHTS // (layer.inputs * layer.outputs * 9 * 4))
    return 2 * max(1, min(wanted, _LONGEST) // 2)


def build(layer: Layer, batch: int, threads: int) -> dict[int, Any]:
    """The compiled chain by tile."""
    b = Builder()
    rng = np.random.default_rng(0)
    weights = {}

    def parameter(name: str, shape: tuple[int, ...]) -> Value:
        spread = np.float32((2 / np.prod(shape[1:])) ** 0.5)
        weights[name] = rng.standard_normal(shape, dtype=np.float32) * spread
        return b.weight(name, shape)

    x = b.parameter("x", (batch, layer.inputs, layer.size, layer.size))
    for number in range(chain_length(layer)):
        outputs = layer.inputs if number % 2 else layer.outputs
        y = b.convolution(x, parameter(f"w{number}", (outputs, x.shape[1], 3, 3)), pads_begin=(1, 1), pads_end=(1, 1))
        x = b.relu(b.add(y, parameter(f"b{number}", (outputs, 1, 1))))
    graph = b.results(b.reduce_mean(x, axes=(2, 3)))
    compiled = {}
    for tile in NAMES:
        with mock.patch.object(algorithm, "choose_tile", lambda *_, tile=tile: tile):
            compiled[tile] = compile(graph, "CPU", weights, threads=threads)
    return compiled


def measure(layer: Layer, batch: int, threads: int, repeats: int) -> dict[int, float]:
    """Best seconds of one layer by tile."""
    executables = build(layer, batch, threads)
    image = np.random.default_rng(1).standard_normal((batch, layer.inputs, layer.size, layer.size), dtype=np.float32)
    out = [np.empty((batch, layer.inputs), np.float32)]
    best = dict.fromkeys(executables, float("inf"))
    for repeat in range(repeats + 1):
        for tile, executable in executables.items():
            start = time.perf_counter()
            executable.native.run([image], out)
            if repeat:
                best[tile] = min(best[tile], (time.perf_counter() - start) / chain_length(layer))
    return best


def main() -> None:
    """Prints one row of a Markdown table per layer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--layer", action="append", help="C,K,size in place of the list")
    options = parser.parse_args()
    os.environ["NGRAPH_CPU_ISA"] = options.isa
    layers = [Layer("", *map(int, text.split(","))) for text in options.layer or ()] or LAYERS
    print(f"{options.isa}, {options.threads} thread(s), batch {options.batch}; microseconds\n")
    print("| layer | direct | F(2x2) | F(4x4) | F(2x2) gains | F(4x4) gains |\n|---|---|---|---|---|---|")
    for layer in layers:
        best = measure(layer, options.batch, options.threads, options.repeats)
        name = f"{layer.network} {layer.inputs} -> {layer.outputs} at {layer.size}x{layer.size}"
        times = " | ".join(f"{best[tile] * 1e6:.0f}" for tile in NAMES)
        gains = " | ".join(f"{best[0] / best[tile]:.2f}x" for tile in NAMES if tile)
        print(f"| {name.strip()} | {times} | {gains} |", flush=True)


if __name__ == "__main__":
    main()
