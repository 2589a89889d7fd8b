"""MLPerf Inference's Offline and Server scenarios on simulated chips, and single products on the NNP-T."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

import ngraph_mxnet
from mlperf.published import CHIPS, ENGINES, LOADS, Load, rows
from mlperf.resnet import IMAGE, random_weights, resnet50
from mlperf.serving import Queue, Stream, loadgen_arrivals, serve, stream
from ngraph_mxnet.ir.graph import Builder, Graph
from ngraph_mxnet.targets.nnp.device import Device, owner
from ngraph_mxnet.targets.nnp.executable import NNPExecutable
from ngraph_mxnet.targets.nnp.hazards import order
from ngraph_mxnet.targets.nnp.program import Program
from ngraph_mxnet.targets.nnp.report import make_report
from ngraph_mxnet.targets.nnp.timing import simulate

INSTANCES = ENGINES // CHIPS
_REPEATS = 4
"""Batches one after the other, from which the period of a batch is taken."""
_BURST = 1024
PUBLISHED = {row.id: row.value for row in rows()}
PERIOD, ALONE = ENGINES / PUBLISHED["offline"], PUBLISHED["server-least"] * 1e-3
"""Seconds of an inference on an engine of the submission: if others always wait, and of one that is alone."""


@dataclass(frozen=True)
class Offline:
    """`images` a second of one chip; `used` is the part of the grids' peak that this is. `watts` is the mean power by
    the energy that the simulator counts: `static` and the rest, which is by operations and bytes."""

    images: float
    used: float
    watts: float
    static: float

    def per_watt(self, scale: float = 1.0) -> float:
        """Images a joule, with all energies of operations and bytes times `scale`."""
        return self.images / (self.static + scale * (self.watts - self.static))

    def scale(self, per_watt: float) -> float:
        """The `scale` that gives so many images a joule."""
        return (self.images / per_watt - self.static) / (self.watts - self.static)


def compiled(device: str, precision: str = "int8", seed: int = 0) -> NNPExecutable:
    """ResNet-50 for an image on each engine of a chip, run once on random images."""
    graph = resnet50(INSTANCES)
    images = np.random.default_rng(seed).normal(0, 1, (INSTANCES, *IMAGE)).astype(np.float32)
    executable = ngraph_mxnet.compile(graph, backend="NNP", device=device, precision=precision, mode="throughput")
    executable(images, *random_weights(graph))
    return cast(NNPExecutable, executable)


def runs(program: Program, device: Device) -> Stream:
    """`program` run a few times, one after the other."""
    return stream(program, device, _REPEATS)


def offline(found: Stream) -> Offline:
    """The rate when all images are there from the beginning, one on each engine in each run of the program."""
    timeline, images = found.timeline, INSTANCES / found.period
    (element, macs), = timeline.macs.items()
    watts = sum(timeline.energy.values()) / timeline.seconds
    return Offline(images, macs / _REPEATS / found.period / timeline.device.peak(element), watts,
                   timeline.energy["static"] / timeline.seconds)


def server(load: Load, alone: float, period: float, queue: Queue) -> dict[str, float]:
    """Milliseconds by name, as in `load.latencies`: the load's requests on the submission's engines, for seconds
    `alone` and `period` as `serve` has them.

    The times between requests are stretched by the period over the published one, so that the engines are as busy as
    the submission's were.
    """
    arrivals = loadgen_arrivals(load.target, load.count, load.seed) * 1e-9 * period / PERIOD
    latencies = 1e3 * serve(arrivals, alone, period, ENGINES, queue)
    return {name: float(latencies.mean() if name == "mean" else np.percentile(latencies, float(name[1:])))
            for name in load.latencies}


def burst(found: Stream, queue: Queue) -> tuple[float, float]:
    """Images a second, and the milliseconds to the first result, of images that are all there at once."""
    latencies = serve(np.zeros(_BURST), found.first, found.period, ENGINES, queue)
    return _BURST / float(latencies.max()), float(latencies.min()) * 1e3


def loads(found: Stream, queue: Queue) -> Iterator[tuple[str, float]]:
    """The id of each row of the Server scenario, and its simulated milliseconds."""
    for load in LOADS:
        for name, value in server(load, found.first, found.period, queue).items():
            yield f"{load.id}-{name}", value


def product(name: str) -> Graph:
    """The graph of a row's name such as `gemm-1024x700x512` (rows x inner x columns) or `conv-c64-56x56-k64-3x3-n128`
    (channels, image, output channels, kernel, images; padded to keep the size)."""
    numbers = [int(number) for number in re.findall(r"\d+", name)]
    b = Builder(name=name)
    if name.startswith("gemm"):
        rows_, inner, columns = numbers
        return b.results(b.matmul(b.parameter("a", (rows_, inner)), b.weight("b", (inner, columns))))
    channels, height, width, filters, kernel, _, images = numbers
    pads = (kernel // 2, kernel // 2)
    x, w = b.parameter("x", (images, channels, height, width)), b.weight("w", (filters, channels, kernel, kernel))
    return b.results(b.convolution(x, w, pads_begin=pads, pads_end=pads))


def used_part(name: str) -> float:
    """The part of an NNP-T's peak that one product reaches, from the device's DRAM and back to it."""
    program = cast(NNPExecutable, ngraph_mxnet.compile(product(name), backend="NNP:nnp-t-1400", instances=1)).program
    within = [replace(each, after=()) for each in program.instructions if owner(each.unit) != "host"]
    return make_report(simulate(order(replace(program, instructions=within)))).peak_part
