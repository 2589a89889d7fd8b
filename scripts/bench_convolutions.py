"""Times 3x3 convolutions of stride 1 computed directly and by Winograd's F(2x2) and F(4x4).

    python scripts/bench_convolutions.py [--threads 1] [--isa avx2] [--batch 1] [--repeats 15] [--layer 256,256,14]

Each row is the best time of one layer within a chain of equal layers (C -> K -> C -> ...), with bias and ReLU,
run by the executor. The chain's weights do not fit into cache together, as those of a network do not, and the
three algorithms take turns with what a plan chooses, whose regret is its time over that of the fastest.
`--random 20` takes as many layers of random sizes.

    python scripts/bench_convolutions.py --gradients [--isa avx2] [--batch 16] [--only 3x3]

Convolutions of ResNet-50 and MobileNet 1.0 with their two gradients: milliseconds, and the share of the peak that the
same run measures, on one thread: a profile can't tell the instructions of several threads apart. Data and head
gradients come blocked, as in a network; what prepares weights counts. The sum over a network weighs each layer by how
often the network has it.

    python scripts/bench_convolutions.py --parts [--isa amx] [--batch 8]

An experiment: ResNet-50's convolutions in float32, and as products of bf16 whose sums agree with float32's to 1e-5.
Each float32 x is nearly the sum of two bf16, hi + lo, and x w nearly hi w_hi + lo w_hi + hi w_lo: one convolution of
three times the channels. What makes the parts is not counted: its producer could store them.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np

from ngraph_mxnet import _core, compile
from ngraph_mxnet.autodiff import differentiate
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Graph, Value
from ngraph_mxnet.targets.cpu.machine.isa import choose_isa
from ngraph_mxnet.targets.cpu.machine.peak import measure_peak
from ngraph_mxnet.targets.cpu.planning import algorithm

NAMES = {0: "direct", 2: "F(2x2)", 4: "F(4x4)"}
CHOSEN = None
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


@dataclass(frozen=True)
class Training:
    """A convolution that `network` has `count` times: padded to keep the image's size, but for the stride."""

    network: str
    count: int
    inputs: int
    outputs: int
    size: int
    kernel: int = 1
    stride: int = 1
    depthwise: bool = False

    @property
    def name(self) -> str:
        """Kind, channels and size of the input."""
        kind = f"{'depthwise ' * self.depthwise}{self.kernel}x{self.kernel}{f'/{self.stride}' * (self.stride > 1)}"
        channels = self.inputs if self.depthwise else f"{self.inputs} to {self.outputs}"
        return f"{kind}, {channels} @{self.size}"

    def flops(self, batch: int) -> int:
        """Of the convolution, and of each of its gradients."""
        places = batch * (-(-self.size // self.stride)) ** 2
        return 2 * places * self.outputs * self.kernel**2 * (1 if self.depthwise else self.inputs)

    def graphs(self, batch: int) -> dict[str, Graph]:
        """The convolution and its gradients, of operands that a scale and shift of their own writes."""
        shape = self.outputs, 1 if self.depthwise else self.inputs, self.kernel, self.kernel
        pads = (self.kernel // 2,) * 2
        b = Builder()
        x, w = b.parameter("x", (batch, self.inputs, self.size, self.size)), b.parameter("w", shape)
        forward = b.results(b.convolution(x, w, strides=(self.stride,) * 2, pads_begin=pads, pads_end=pads,
                                          groups=self.inputs if self.depthwise else 1))
        found = {"forward": forward}
        for name, wanted in (("by data", "x"), ("by weights", "w")):
            joint = differentiate(forward, [wanted]).graph
            del joint.results[0]
            joint.remove_dead()
            found[name] = joint
        for graph in found.values():
            _behind_producers(graph)
        return found


def _behind_producers(graph: Graph) -> None:
    """The parameters of images become results of scale and shift, which are blocked as those of other layers are."""
    b = Builder(graph)
    made = {}
    for value in [value for value in graph.parameters if value.name != "w"]:
        if any(value in node.inputs for node in graph.nodes):
            ones, zeros = (b.constant(np.full(value.shape[1], number, np.float32)) for number in (1, 0))
            made[value] = b.scale_shift(value, ones, zeros)
    for node in graph.nodes:
        if node.op.name != "scale_shift":
            node.inputs[:] = [made.get(value, value) for value in node.inputs]
    graph.sort()


TRAINING = (
    Training("ResNet-50", 1, 3, 64, 224, 7, 2),
    Training("ResNet-50", 1, 64, 64, 56),
    Training("ResNet-50", 3, 64, 64, 56, 3),
    Training("ResNet-50", 4, 64, 256, 56),
    Training("ResNet-50", 2, 256, 64, 56),
    Training("ResNet-50", 1, 256, 128, 56),
    Training("ResNet-50", 1, 128, 128, 56, 3, 2),
    Training("ResNet-50", 1, 256, 512, 56, 1, 2),
    Training("ResNet-50", 4, 128, 512, 28),
    Training("ResNet-50", 3, 512, 128, 28),
    Training("ResNet-50", 3, 128, 128, 28, 3),
    Training("ResNet-50", 1, 512, 256, 28),
    Training("ResNet-50", 1, 256, 256, 28, 3, 2),
    Training("ResNet-50", 1, 512, 1024, 28, 1, 2),
    Training("ResNet-50", 6, 256, 1024, 14),
    Training("ResNet-50", 5, 1024, 256, 14),
    Training("ResNet-50", 5, 256, 256, 14, 3),
    Training("ResNet-50", 1, 1024, 512, 14),
    Training("ResNet-50", 1, 512, 512, 14, 3, 2),
    Training("ResNet-50", 1, 1024, 2048, 14, 1, 2),
    Training("ResNet-50", 3, 512, 2048, 7),
    Training("ResNet-50", 2, 2048, 512, 7),
    Training("ResNet-50", 2, 512, 512, 7, 3),
    Training("MobileNet", 1, 3, 32, 224, 3, 2),
    Training("MobileNet", 1, 32, 32, 112, 3, 1, True),
    Training("MobileNet", 1, 32, 64, 112),
    Training("MobileNet", 1, 64, 64, 112, 3, 2, True),
    Training("MobileNet", 1, 64, 128, 56),
    Training("MobileNet", 1, 128, 128, 56, 3, 1, True),
    Training("MobileNet", 1, 128, 128, 56),
    Training("MobileNet", 1, 128, 128, 56, 3, 2, True),
    Training("MobileNet", 1, 128, 256, 28),
    Training("MobileNet", 1, 256, 256, 28, 3, 1, True),
    Training("MobileNet", 1, 256, 256, 28),
    Training("MobileNet", 1, 256, 256, 28, 3, 2, True),
    Training("MobileNet", 1, 256, 512, 14),
    Training("MobileNet", 5, 512, 512, 14, 3, 1, True),
    Training("MobileNet", 5, 512, 512, 14),
    Training("MobileNet", 1, 512, 512, 14, 3, 2, True),
    Training("MobileNet", 1, 512, 1024, 7),
    Training("MobileNet", 1, 1024, 1024, 7, 3, 1, True),
    Training("MobileNet", 1, 1024, 1024, 7),
)


def chain_length(layer: Layer) -> int:
    """Layers in a chain; even, so that the result has the input's channels."""
    wanted = -(-_WEIGHTS // (layer.inputs * layer.outputs * 9 * 4))
    return 2 * max(1, min(wanted, _LONGEST) // 2)


def random_layers(count: int, seed: int) -> list[Layer]:
    """Of up to 2 GFLOP, from 16 to 512 channels and from 4 x 4 to 112 x 112 places."""
    rng, found = np.random.default_rng(seed), []
    while len(found) < count:
        inputs, outputs = (int(2 * 2 ** rng.uniform(0, 5)) * 8 for _ in range(2))
        size = int(4 * 2 ** rng.uniform(0, 4.8))
        if 18 * inputs * outputs * size**2 <= 2e9:
            found.append(Layer("random", inputs, outputs, size))
    return found


def build(layer: Layer, batch: int, threads: int) -> dict[int | None, Any]:
    """The compiled chain by tile, and as the plan chooses."""
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
    compiled: dict[int | None, Any] = {CHOSEN: compile(graph, "CPU", weights=weights, threads=threads)}
    for tile in NAMES:
        with mock.patch.object(algorithm, "choose_tile", lambda *_, tile=tile: tile):
            compiled[tile] = compile(graph, "CPU", weights=weights, threads=threads)
    return compiled


def measure(layer: Layer, batch: int, threads: int, repeats: int) -> dict[int | None, float]:
    """Best seconds of one layer by tile, and as the plan chooses."""
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


def in_parts(x: np.ndarray, axis: int, *, weights: bool) -> np.ndarray:
    """A float32 array as three along `axis`, each of numbers that bf16 holds: hi, lo, hi of data; of weights hi, hi,
    lo."""
    def rounded(y: np.ndarray) -> np.ndarray:
        bits = y.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)

    high = rounded(x)
    low = rounded(x - high)
    return np.concatenate([high, high, low] if weights else [high, low, high], axis)


def by_parts(batch: int, repeats: int, only: Sequence[str]) -> None:
    """Prints a Markdown table: a row for each layer of ResNet-50 but the first one, and all of them."""
    print("| layer | float32 ms | by parts ms | gain |\n|---|---|---|---|")
    sums = np.zeros(2)
    for layer in TRAINING[1:]:
        if layer.network != "ResNet-50" or (only and not any(text in layer.name for text in only)):
            continue
        whole, parts = layer, replace(layer, inputs=3 * layer.inputs)
        times = [milliseconds(each.graphs(batch)["forward"], repeats, images=True, precision=precision)
                 for each, precision in ((whole, "f32"), (parts, "bf16"))]
        sums += layer.count * np.array(times)
        print(f"| {layer.name} | {times[0]:.2f} | {times[1]:.2f} | {times[0] / times[1]:.2f} |", flush=True)
    print(f"| all | {sums[0]:.1f} | {sums[1]:.1f} | {sums[0] / sums[1]:.2f} |")


def milliseconds(graph: Graph, repeats: int, *, images: bool, precision: str = "f32") -> float:
    """The least times of the instructions behind the producers, added. A result that is `images` stays blocked. NaN if
    the backend does not run the graph."""
    try:
        exe = compile(graph, "CPU", threads=1, precision=precision)
    except UnsupportedError:
        return float("nan")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(port.type.shape, dtype=np.float32) for port in exe.inputs]
    outs = [np.empty(port.type.shape, np.float32) for port in exe.outputs]
    ordered = sorted(exe.main.instructions, key=lambda instruction: instruction.level)
    ends = {"from_blocked"} if images else set()
    counts = ["scale_shift" not in instruction.origin and instruction.name not in ends for instruction in ordered]
    best = [float("inf")] * len(ordered)
    for _ in range(repeats):
        rows = exe.native.profile(arrays, outs)
        if [name for name, _ in rows] != [instruction.kernel for instruction in ordered]:
            raise RuntimeError(f"the profile has {[name for name, _ in rows]}, the Program {list(map(str, ordered))}")
        best = [min(least, seconds) for least, (_, seconds) in zip(best, rows, strict=True)]
    return 1e3 * sum(seconds for seconds, counted in zip(best, counts, strict=True) if counted)


def gradients(isa: str, batch: int, repeats: int, only: Sequence[str]) -> None:
    """Prints a Markdown table: a row for each layer whose name has one of the texts of `only`, and each network."""
    peak = measure_peak(choose_isa(_core.cpu_features(), isa), 1).gflops
    print(f"{isa}, 1 thread, batch {batch}, peak {peak:.0f} GFLOP/s; milliseconds (percent of peak)\n")
    print("| layer | forward | by data | by weights |\n|---|---|---|---|")
    sums: dict[str, list[float]] = {}
    for layer in TRAINING:
        if only and not any(text in layer.name for text in only):
            continue
        floor = layer.flops(batch) / peak / 1e6
        times = [milliseconds(graph, repeats, images=name != "by weights")
                 for name, graph in layer.graphs(batch).items()]
        print(f"| {layer.name} | {' | '.join(_share(each, floor) for each in times)} |", flush=True)
        row = sums.setdefault(layer.network, [0.0] * (1 + len(times)))
        row[:] = [total + layer.count * each for total, each in zip(row, (floor, *times), strict=True)]
    for network, (floor, *times) in sums.items():
        print(f"| {network} | {' | '.join(_share(each, floor) for each in times)} |")


def _share(taken: float, floor: float) -> str:
    return f"{taken:.2f} ({100 * floor / taken:.0f})" if taken == taken else "none"


def main() -> None:
    """Prints one row of a Markdown table per layer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--batch", type=int, help="1 by default, 16 for gradients, 8 for parts")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--layer", action="append", help="C,K,size in place of the list")
    parser.add_argument("--random", type=int, metavar="N", help="N layers of random sizes in place of the list")
    parser.add_argument("--seed", type=int, default=0, help="of the random sizes")
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--only", action="append", default=[], help="a text in the names of layers to take")
    options = parser.parse_args()
    os.environ["NGRAPH_CPU_ISA"] = options.isa
    options.batch = options.batch or (16 if options.gradients else 8 if options.parts else 1)
    if (options.gradients or options.parts) and options.threads != 1:
        parser.error(f"--threads {options.threads}: gradients and parts are measured on one thread")
    if options.parts:
        by_parts(options.batch, options.repeats, options.only)
        return
    if options.gradients:
        gradients(options.isa, options.batch, options.repeats, options.only)
        return
    layers: Sequence[Layer] = LAYERS
    if options.random or options.layer:
        layers = [Layer("", *map(int, text.split(","))) for text in options.layer or ()]
        layers += random_layers(options.random or 0, options.seed)
    print(f"{options.isa}, {options.threads} thread(s), batch {options.batch}; microseconds\n")
    print("| layer | direct | F(2x2) | F(4x4) | chosen | F(2x2) gains | F(4x4) gains | regret |")
    print("|---|---|---|---|---|---|---|---|")
    total = least = 0.0
    for layer in layers:
        best = measure(layer, options.batch, options.threads, options.repeats)
        name = f"{layer.network} {layer.inputs} -> {layer.outputs} at {layer.size}x{layer.size}"
        times = " | ".join(f"{best[tile] * 1e6:.0f}" for tile in (*NAMES, CHOSEN))
        gains = " | ".join(f"{best[0] / best[tile]:.2f}x" for tile in NAMES if tile)
        print(f"| {name.strip()} | {times} | {gains} | {best[CHOSEN] / min(best.values()):.2f} |", flush=True)
        total, least = total + best[CHOSEN], least + min(best.values())
    print(f"\nAll together, what is chosen takes {total / least:.3f} of the fastest's time.")


if __name__ == "__main__":
    main()
