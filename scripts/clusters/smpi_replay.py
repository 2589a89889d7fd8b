"""The same step replayed by SMPI of SimGrid, whose simulated network judges this model's.

Without overlap each bucket is an all-reduce of SMPI's own. SMPI replays no all-reduce beside computing, so with overlap
each rank is two processes, one that computes and one that sends the ring's messages.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ngraph_mxnet.distributed.simulation import (
    COSTS,
    Bucket,
    Cluster,
    Scheme,
    SimulationError,
    Trace,
    buckets,
    require,
)

OWN_ALGORITHMS = {
    "ring": ("smpi/allreduce:lr",),
    "halving": ("smpi/allreduce:rab_rdb",),
    "tree": ("smpi/allreduce:redbcast", "smpi/reduce:binomial", "smpi/bcast:binomial_tree"),
}
"""SMPI's settings for each of ours."""
NETWORK_MODELS = {"ideal": ("network/model:CM02", "network/crosstraffic:0"), "TCP": ("network/model:LV08",)}
"""SimGrid's settings for two networks. `ideal`: messages take latency + bytes / bandwidth, and those of the two ways
don't slow each other, as `Link` has it. `TCP`: what SimGrid fitted to TCP, with acknowledgements on the way back."""
PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="cluster" prefix="node" radical="0-{last}" suffix="" speed="1f" bw="{rate!r}Bps" lat="{latency!r}s"
           loopback_bw="1e30Bps" loopback_lat="0s"/>
</platform>
"""
"""A message passes two links, its sender's and its receiver's. A second of computing is one operation."""
TIMEOUT = 600
_TIME = re.compile(r"Simulation time (\S+)")


def without_cpus(cluster: Cluster) -> Cluster:
    """The cluster as it can be replayed: communication costs its CPUs nothing."""
    nothing: dict[str, Any] = dict.fromkeys(COSTS, 0.0)
    return replace(cluster, **nothing, poll_seconds=0.0, taken_share=0.0)


def is_there() -> bool:
    """True if `smpirun` is found."""
    return shutil.which("smpirun") is not None


def replay(trace: Trace, cluster: Cluster, scheme: Scheme, network_model: str = "ideal") -> float:
    """The seconds of one step, as SMPI simulates it.

    Args:
        network_model: one of `NETWORK_MODELS`.

    Raises:
        SimulationError: SimGrid is not installed or fails, or what is asked can't be replayed: several ranks a node,
            jitter, costs of the CPU, or overlap with another algorithm than the ring.
    """
    require(is_there(), "smpirun", "none on the PATH", "SimGrid's (Debian: libsimgrid-dev)")
    require(cluster.ranks_per_node == 1, "ranks_per_node", cluster.ranks_per_node, "1 for SimGrid")
    for name in (*COSTS, "poll_seconds", "taken_share", "jitter"):
        require(getattr(cluster, name) == 0, name, getattr(cluster, name), "0 for SimGrid")
    require(scheme.algorithm in OWN_ALGORITHMS, "algorithm", repr(scheme.algorithm), f"one of {[*OWN_ALGORITHMS]}")
    require(scheme.algorithm == "ring" or not scheme.overlap, "algorithm", repr(scheme.algorithm),
            "'ring' for SimGrid with overlap")
    lines, processes = (_overlapped, 2) if scheme.overlap else (_one_by_one, 1)
    filled = buckets(trace.gradients, scheme.bucket_bytes)
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "platform.xml").write_text(PLATFORM.format(
            last=cluster.nodes - 1, rate=cluster.network.bytes_per_second, latency=cluster.network.latency_seconds / 2))
        hosts = [f"node{node}\n" for node in range(cluster.nodes) for _ in range(processes)]
        (folder / "hosts").write_text("".join(hosts))
        (folder / "traces").write_text("actions\n")
        with (folder / "actions").open("w") as file:
            file.writelines(f"{line}\n" for line in lines(trace, filled, cluster, scheme))
        return _run(folder, len(hosts), [*NETWORK_MODELS[network_model], *OWN_ALGORITHMS[scheme.algorithm]])


def _run(folder: Path, processes: int, settings: Sequence[str]) -> float:
    command = ["smpirun", "-platform", "platform.xml", "-hostfile", "hosts", "-np", str(processes), "-replay", "traces",
               *(f"--cfg={setting}" for setting in settings)]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SimulationError(f"SimGrid can't replay: {error}") from None
    text = done.stdout + done.stderr
    found = _TIME.findall(text)
    if done.returncode or not found:
        raise SimulationError(f"SimGrid can't replay, exit status {done.returncode}: {text.strip()[-500:]}")
    return float(found[-1])


def _wire(size: float, scheme: Scheme) -> int:
    return round(size / 2 if scheme.bf16 else size)


def _update(trace: Trace, bucket: Bucket, cluster: Cluster) -> float:
    return trace.update_seconds * bucket.bytes / trace.bytes / cluster.compute_speed


def _one_by_one(trace: Trace, filled: Sequence[Bucket], cluster: Cluster, scheme: Scheme) -> Iterator[str]:
    passes = (trace.forward_seconds + trace.backward_seconds) / cluster.compute_speed
    for rank in range(cluster.ranks):
        yield f"{rank} init"
        yield f"{rank} compute {passes!r}"
        for bucket in filled:
            yield f"{rank} allreduce {_wire(bucket.bytes, scheme)} 0"
        for bucket in filled:
            yield f"{rank} compute {_update(trace, bucket, cluster)!r}"
        yield f"{rank} finalize"


def _overlapped(trace: Trace, filled: Sequence[Bucket], cluster: Cluster, scheme: Scheme) -> Iterator[str]:
    """Process 2 r computes for rank r, process 2 r + 1 sends. A message's tag is its bucket's number."""
    for rank in range(cluster.ranks):
        yield from _computing(trace, filled, cluster, scheme, 2 * rank)
        yield from _sending(filled, cluster, scheme, rank)


def _computing(trace: Trace, filled: Sequence[Bucket], cluster: Cluster, scheme: Scheme, own: int) -> Iterator[str]:
    yield f"{own} init"
    done = -trace.forward_seconds
    for tag, bucket in enumerate(filled):
        yield f"{own} compute {(bucket.ready_seconds - done) / cluster.compute_speed!r}"
        yield f"{own} send {own + 1} {tag} 0"
        done = bucket.ready_seconds
    yield f"{own} compute {(trace.backward_seconds - done) / cluster.compute_speed!r}"
    sums = [f"{own} recv {own + 1} {tag} 0" for tag in range(len(filled))]
    updates = [f"{own} compute {_update(trace, bucket, cluster)!r}" for bucket in filled]
    if scheme.early_update:
        yield from (line for pair in zip(sums, updates, strict=True) for line in pair)
    else:
        yield from [*sums, *updates]
    yield f"{own} finalize"


def _sending(filled: Sequence[Bucket], cluster: Cluster, scheme: Scheme, rank: int) -> Iterator[str]:
    ranks, own = cluster.ranks, 2 * rank + 1
    left, right = (2 * ((rank + step) % ranks) + 1 for step in (-1, 1))
    yield f"{own} init"
    for tag, bucket in enumerate(filled):
        yield f"{own} recv {own - 1} {tag} 0"
        part = _wire(bucket.bytes / ranks, scheme)
        for _ in range(2 * (ranks - 1)):
            yield f"{own} irecv {left} {tag} {part}"
            yield f"{own} send {right} {tag} {part}"
            yield f"{own} wait {left} {own} {tag}"
        yield f"{own} send {own - 1} {tag} 0"
    yield f"{own} finalize"
