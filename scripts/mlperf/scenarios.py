"""MLPerf Inference's Offline and Server scenarios on simulated chips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

import ngraph_mxnet
from mlperf.resnet import IMAGE, random_weights, resnet50
from mlperf.serving import Batch, Stream, highest_rate, stream
from ngraph_mxnet.targets.nnp.device import Device
from ngraph_mxnet.targets.nnp.executable import NNPExecutable
from ngraph_mxnet.targets.nnp.program import Program

BOUND = 0.015
"""Seconds within which 99 % of the Server scenario's requests must be answered."""
_REPEATS = 4
"""Batches one after the other, from which the period of a batch is taken."""


@dataclass(frozen=True)
class Offline:
    """`images` a second of all chips; `used` is the part of the grids' peak that this is. `watts`: a chip's mean power
    by the energy that the simulator counts; `per_watt`: images a second and watt."""

    images: float
    used: float
    watts: float
    per_watt: float


@dataclass(frozen=True)
class Server:
    """At the highest rate that the bound allows: requests a second, and latencies in s. All simulated."""

    rate: float
    mean: float
    least: float
    percentile99: float


def compiled(device: str, precision: str, instances: int, batch: int, seed: int = 0) -> NNPExecutable:
    """ResNet-50 for `batch` images on each of `instances` parts of the chip, run once on random images."""
    graph = resnet50(instances * batch)
    images = np.random.default_rng(seed).normal(0, 1, (instances * batch, *IMAGE)).astype(np.float32)
    executable = ngraph_mxnet.compile(graph, backend="NNP", device=device, precision=precision, mode="throughput",
                                      instances=instances)
    executable(images, *random_weights(graph))
    return cast(NNPExecutable, executable)


def runs(program: Program, device: Device) -> Stream:
    """`program` run a few times, one after the other."""
    return stream(program, device, _REPEATS)


def offline(found: Stream, images: int, chips: int) -> Offline:
    """Images a second when all are there from the beginning; `images` are in one run of the program."""
    (element, macs), = found.timeline.macs.items()
    watts = sum(found.timeline.energy.values()) / found.timeline.seconds
    return Offline(chips * images / found.period, macs / _REPEATS / found.period / found.timeline.device.peak(element),
                   watts, images / found.period / watts)


def server(batches: Sequence[Batch], instances: int, chips: int) -> Server:
    """`batches[b - 1]`: one of b requests on each of a chip's instances."""
    rate, served = highest_rate(batches, instances * chips, BOUND)
    return Server(rate, float(served.latencies.mean()), float(served.latencies.min()), served.percentile(99))
