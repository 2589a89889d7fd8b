#!/usr/bin/env python3
"""Record the trace of a training step, for `simulate_cluster.py`.

The step's passes are timed as MXNet's Module runs them. Ready times are those of the backward half's instructions, one
after the other, stretched to the backward pass as it was timed. Under mpirun each rank records its own step while the
others run theirs; `{rank}` in the output's name is its number.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
from training_peers.spec import TRAININGS

from ngraph_mxnet.distributed.simulation import Gradient, SimulationError, Trace

WARM_UP = 2
"""Steps that are not timed."""
PASSES = ("forward", "backward", "update")
SOURCE = "passes as timed, ready times by the instructions of the backward half, one by one"
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Job:
    """What trains: `symbol` ends in the loss, `trained` are the names of the arguments with a gradient, `arrays` those
    of arguments and states."""

    symbol: Any
    trained: list[str]
    arrays: Arrays


def timed_passes(model: str, batch: int, rounds: int) -> tuple[dict[str, float], Job]:
    """Median seconds of each pass in a Module, and what it trains.

    Raises:
        SimulationError: it is not compiled as a whole.
    """
    from training_peers.mxnet_peer import Module, draw_weights

    import ngraph_mxnet

    training = TRAININGS[model]
    inputs = list(training.inputs)
    inputs[training.labelled - 1] = batch
    training = replace(training, inputs=tuple(inputs))
    peer = Module("ngraph")
    peer.load(model, training, draw_weights(model))
    data, labels = training.batches()
    native = peer.native(data[0], labels[0])
    peer.compile()
    seconds: dict[str, list[float]] = {name: [] for name in PASSES}
    for _ in range(WARM_UP + rounds):
        for name in PASSES:
            begin = time.perf_counter()
            if name == "forward":
                peer.module.forward(native, is_train=True)
            else:
                getattr(peer.module, name)()
            peer.mx.nd.waitall()
            seconds[name].append(time.perf_counter() - begin)
    left = peer.detail()
    if left or not ngraph_mxnet.report().steps:
        raise SimulationError(f"{model} is not compiled as a whole: {left or 'no training step was'}")
    arguments, states = peer.module.get_params()
    arrays = {name: array.asnumpy() for name, array in {**arguments, **states}.items()}
    job = Job(peer.symbol, peer.names, {**arrays, "data": data[0], "label": labels[0]})
    return {name: median(times[WARM_UP:]) for name, times in seconds.items()}, job


def ready_shares(job: Job) -> dict[str, float]:
    """When each gradient is final, in the order of these times: the share of the backward pass until then.

    Raises:
        UnsupportedError: the symbol is not trained as a whole.
    """
    from ngraph_mxnet.bridges.mxnet.judging import partitioner
    from ngraph_mxnet.bridges.mxnet.training.compiled import compile_step
    from ngraph_mxnet.ir import TensorType, element_type
    from ngraph_mxnet.targets.cpu.program.instruction import Space

    types = {name: TensorType(element_type(array.dtype), array.shape) for name, array in job.arrays.items()}
    facts, (forward, backward) = compile_step(partitioner.json_of(job.symbol), types, job.trained, recorded=False)
    results = forward(*(job.arrays[port.name] for port in forward.inputs))
    outputs = results[:len(facts["outputs"])]
    known = {**job.arrays, **dict(zip((name for name, *_ in facts["saved"]), results[len(outputs):], strict=True)),
             **{name: outputs[number] for name, number in facts["repeated"].items()},
             **{name: np.ones_like(outputs[number]) for number, name in facts["heads"]}}
    made = [np.empty(port.type.shape, port.type.element.numpy) for port in backward.outputs]
    profile = backward.native.profile([known[port.name] for port in backward.inputs], made)
    last: dict[int, float] = {}
    clock = 0.0
    instructions = (each for level in backward.package().code["main"]["levels"] for each in level)
    for (_, operands, *_), (_, seconds) in zip(instructions, profile, strict=True):
        clock += seconds
        last.update({number: clock for space, number, _ in operands if space == Space.OUTPUT})
    first = len(facts["updated"])
    ready = {name: last[first + number] / clock for number, name in enumerate(job.trained)}
    return dict(sorted(ready.items(), key=lambda item: item[1]))


def record(model: str, batch: int, threads: int, rounds: int, rank: int, ranks: int) -> Trace:
    """
    Raises:
        NGraphError: the model is not trained as a whole; the text says why.
    """
    seconds, job = timed_passes(model, batch, rounds)
    from ngraph_mxnet.experiments.facts import machine

    sizes = {name: job.arrays[name].nbytes for name in job.trained}
    gradients = tuple(Gradient(name, sizes[name], share * seconds["backward"])
                      for name, share in ready_shares(job).items())
    return Trace(model, batch, threads, machine()["cpu"], seconds["forward"], seconds["backward"], seconds["update"],
                 gradients, rank, ranks, SOURCE)


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
    os.environ.update(MXNET_SUBGRAPH_BACKEND="NGRAPH", NGRAPH_TRAINING="1", OMP_NUM_THREADS=str(threads))
    rank, ranks = position()
    trace = record(model, batch or TRAININGS[model].samples, threads, rounds, rank, ranks)
    trace.save(Path(output.replace("{rank}", str(rank))))
    click.echo(f"{model}, batch {trace.batch}: forward {trace.forward_seconds:.3f} s, backward "
               f"{trace.backward_seconds:.3f} s, update {trace.update_seconds:.3f} s; {len(trace.gradients)} gradients "
               f"of {trace.bytes / 2**20:.1f} MiB, the first after {trace.gradients[0].ready_seconds:.3f} s")


if __name__ == "__main__":
    main()
