#!/usr/bin/env python3
"""Record the trace of a training step, for `simulate_cluster.py`.

Steps of a Gluon block with a Trainer are timed, pass by pass, and each gradient when the running backward pass
announces that it is final. Under mpirun each rank records its own step while the others run theirs; `{rank}` in the
output's name is its number.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import click
from training_peers.spec import TRAININGS

from ngraph_mxnet.base.errors import NGraphError
from ngraph_mxnet.distributed.simulation import Gradient, SimulationError, Trace
from ngraph_mxnet.tools.experiments.store import machine

WARM_UP = 2
"""Steps that are not timed."""
SOURCE = "passes and announcements of the steps themselves, medians"


class Announcements:
    """When gradients became final, as the executor announces them."""

    def __init__(self, arrays: Sequence[Any]) -> None:
        from ngraph_mxnet import _core

        self._count = len(arrays)
        self._watch = _core.ResultWatch([(address(array), 0) for array in arrays])

    def take(self) -> list[float]:
        """Of the last backward pass, which has ended: `time.monotonic` for each array.

        Raises:
            SimulationError: one was not announced.
        """
        last = {number: when for number, when, _ in self._watch.take(0.0)}
        missing = self._count - len(last)
        if missing:
            raise SimulationError(f"gradients: found no announcement of {missing}, expected all {self._count}; the "
                                  "model, or a part of it, is not trained compiled")
        return [last[number] for number in range(self._count)]


def address(array: Any) -> int:
    """Where an array of MXNet's lies."""
    from mxnet.base import _LIB, check_call

    found = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(array.handle, ctypes.byref(found)))
    return found.value or 0


def step(peer: Any, batch: Any, announcements: Announcements) -> tuple[list[float], list[float]]:
    """Seconds of forward pass, backward pass and update; of the backward pass until each gradient was final."""
    times = [time.monotonic()]
    losses = peer.forward(batch)
    peer.mx.nd.waitall()
    times.append(time.monotonic())
    losses.backward()
    peer.mx.nd.waitall()
    times.append(time.monotonic())
    ready = [when - times[1] for when in announcements.take()]
    peer.trainer.step(losses.size)
    peer.mx.nd.waitall()
    times.append(time.monotonic())
    return [after - before for before, after in pairwise(times)], ready


def record(model: str, batch: int, threads: int, rounds: int, rank: int, ranks: int) -> Trace:
    """
    Raises:
        SimulationError: the model, or a part of it, is not trained compiled.
    """
    from training_peers.mxnet_peer import Gluon, draw_weights, trained

    training = TRAININGS[model]
    inputs = list(training.inputs)
    inputs[training.labelled - 1] = batch
    training = replace(training, inputs=tuple(inputs))
    peer = Gluon("ngraph")
    peer.load(model, training, draw_weights(model))
    data, labels = training.batches()
    peer.compile()
    native = peer.native(data[0], labels[0])
    peer.step(native)
    parameters = trained(peer.net)
    announcements = Announcements([parameter.grad() for parameter in parameters])
    steps = [step(peer, native, announcements) for _ in range(WARM_UP + rounds)][WARM_UP:]
    forward, backward, update = (median(times) for times in zip(*(passes for passes, _ in steps), strict=True))
    ready = [median(times) for times in zip(*(times for _, times in steps), strict=True)]
    gradients = [Gradient(parameter.name, 4 * parameter.grad().size, min(seconds, backward))
                 for parameter, seconds in zip(parameters, ready, strict=True)]
    return Trace(model, batch, threads, machine()["cpu"], forward, backward, update,
                 tuple(sorted(gradients, key=lambda each: each.ready_seconds)), rank, ranks, SOURCE)


def position() -> tuple[int, int]:
    """This rank and how many there are, as Open MPI and MPICH tell those that they start; (0, 1) without them."""
    pairs = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))
    return next(((int(os.environ[rank]), int(os.environ[size])) for rank, size in pairs if size in os.environ), (0, 1))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model", type=click.Choice(list(TRAININGS)))
@click.option("--batch", type=click.IntRange(1), help="Samples. Default: those of bench_training.py.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1), help="Threads of each rank.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Timed steps; medians count.")
@click.option("-o", "--output", required=True, help="The trace's file; {rank} in its name is the rank's number.")
def main(model: str, batch: int | None, threads: int, rounds: int, output: str) -> None:
    """Record the trace of a training step of MODEL."""
    os.environ.update(MXNET_SUBGRAPH_BACKEND="NGRAPH", OMP_NUM_THREADS=str(threads))
    rank, ranks = position()
    try:
        trace = record(model, batch or TRAININGS[model].samples, threads, rounds, rank, ranks)
        trace.save(Path(output.replace("{rank}", str(rank))))
    except (NGraphError, OSError) as error:
        sys.exit(f"error: {error}")
    click.echo(f"{model}, batch {trace.batch}: forward {trace.forward_seconds:.3f} s, backward "
               f"{trace.backward_seconds:.3f} s, update {trace.update_seconds:.3f} s; {len(trace.gradients)} gradients "
               f"of {trace.bytes / 2**20:.1f} MiB, the first after {trace.gradients[0].ready_seconds:.3f} s")


if __name__ == "__main__":
    main()
