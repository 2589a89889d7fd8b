"""Times of an all-reduce: the alpha-beta-gamma model, message by message.

The ring: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009. Recursive
halving and doubling, and binomial trees: Thakur, Rabenseifner and Gropp, "Optimization of collective communication
operations in MPICH", 2005.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ngraph_mxnet.distributed.simulation.cluster import Cluster, Link, Scheme, require
from ngraph_mxnet.distributed.simulation.trace import Sum, Trace, buckets, timeline
from ngraph_mxnet.errors import listed


@dataclass(frozen=True)
class Channel:
    """The links on which all ranks send their messages at once, and the costs of a message.

    Attributes:
        links: a message takes as long as on the slowest of them.
        wire: bytes sent for each byte of a gradient.
        per_byte: seconds for each byte beside those on the wire; `reducing`: of a message that is added to a gradient.
        waiting: seconds for each message, until somebody looks.
    """

    links: tuple[Link, ...]
    wire: float = 1.0
    per_byte: float = 0.0
    reducing: float = 0.0
    waiting: float = 0.0

    def seconds(self, size: float, reduces: bool) -> float:
        """Return the seconds of one message that carries `size` bytes of a gradient."""
        sent = size * self.wire
        on_the_wire = max(link.latency_seconds + sent / link.bytes_per_second for link in self.links)
        return self.waiting + on_the_wire + size * (self.per_byte + (self.reducing if reduces else 0.0))


def _ring(size: float, ranks: int, channel: Channel) -> float:
    """In ranks - 1 steps each rank gets the sum of a part, in as many more it gets the other sums."""
    part = size / ranks
    return (ranks - 1) * (channel.seconds(part, True) + channel.seconds(part, False))


def _halving(size: float, ranks: int, channel: Channel) -> float:
    """Ranks beyond a power of two give all to a partner first, and get the sums from it at last."""
    rounds = ranks.bit_length() - 1
    halves = [size / 2**number for number in range(1, rounds + 1)]
    if ranks != 1 << rounds:
        halves.append(size)
    return sum(channel.seconds(half, True) + channel.seconds(half, False) for half in halves)


def _tree(size: float, ranks: int, channel: Channel) -> float:
    """A binomial tree to the root, and one back."""
    return (ranks - 1).bit_length() * (channel.seconds(size, True) + channel.seconds(size, False))


ALGORITHMS: Mapping[str, Callable[[float, int, Channel], float]] = {
    "ring": _ring, "halving": _halving, "tree": _tree}
"""Seconds for a gradient of so many bytes, ranks and a channel. `halving`: recursive halving, then doubling."""


def all_reduce_seconds(size: float, cluster: Cluster, scheme: Scheme, *, computing: bool = False) -> float:
    """From the last rank's call until all have the sums of `size` bytes of float32; 0 for one rank.

    Args:
        computing: whether the ranks compute meanwhile, so that `poll_seconds` counts.

    Raises:
        SimulationError: there is no such algorithm, or it is not modelled for several ranks on each of several nodes.
    """
    require(scheme.algorithm in ALGORITHMS, "algorithm", repr(scheme.algorithm), f"one of {listed(ALGORITHMS)}")
    if cluster.ranks == 1:
        return 0.0
    nodes, local = cluster.nodes, cluster.ranks_per_node
    waiting = cluster.poll_seconds / 2 if computing else 0.0
    copied = size * cluster.copy_seconds_per_byte

    def by_messages(ranks: int, *links: Link) -> float:
        wire, convert = (0.5, cluster.convert_seconds_per_byte) if scheme.bf16 else (1.0, 0.0)
        channel = Channel(links, wire, convert, cluster.reduce_seconds_per_byte, waiting)
        return ALGORITHMS[scheme.algorithm](size, ranks, channel)

    if local == 1:
        return copied + by_messages(nodes, cluster.network)
    if scheme.shared_memory:
        return copied * (local - 1) / local + _shared(size, cluster, waiting) + by_messages(nodes, cluster.network)
    if nodes == 1:
        return copied + by_messages(local, cluster.memory)
    require(scheme.algorithm == "ring", f"algorithm, {local} ranks on each of {nodes} nodes", repr(scheme.algorithm),
            "'ring', or shared memory")
    return copied + by_messages(cluster.ranks, cluster.network, cluster.memory)


def _shared(size: float, cluster: Cluster, waiting: float) -> float:
    """All wait for each other, and each adds a part for all; they do before the sums go to other nodes, and after."""
    barriers = 2 if cluster.nodes == 1 else 3
    added = size * (cluster.ranks_per_node - 1) / cluster.ranks_per_node
    return barriers * (waiting + cluster.memory.latency_seconds) + added * cluster.reduce_seconds_per_byte


@dataclass(frozen=True)
class BucketTimes:
    """Times of one bucket, in seconds from the step's start: means over the steps.

    Attributes:
        ready: when the last rank has its gradients.
        start, end: of the all-reduce.
        updated: when the last rank has updated the weights.
    """

    bytes: int
    ready: float
    start: float
    end: float
    updated: float


@dataclass(frozen=True)
class Prediction:
    """Means over the steps.

    `step_seconds` = `compute_seconds` + `waiting_seconds` + `exposed_seconds`, but for rounding.

    Attributes:
        compute_seconds: of a rank, the mean over the ranks: what a step takes without communication.
        waiting_seconds: what the slowest rank computes longer than the mean.
        exposed_seconds: what the step takes longer than the slowest rank's computing: communication that nothing
            hides, and what it takes away from computing.
        communication_seconds: of all all-reduces, hidden or not, also while others are under way.
        samples_per_second: of all ranks.
    """

    ranks: int
    step_seconds: float
    compute_seconds: float
    waiting_seconds: float
    exposed_seconds: float
    communication_seconds: float
    samples_per_second: float
    buckets: tuple[BucketTimes, ...]

    @property
    def efficiency(self) -> float:
        """t(1) / t(N), with the same batch for each rank."""
        return self.compute_seconds / self.step_seconds

    @property
    def exposed_share(self) -> float:
        """The share of the step that `exposed_seconds` take."""
        return self.exposed_seconds / self.step_seconds

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "efficiency": self.efficiency, "exposed_share": self.exposed_share}


def compute_factors(cluster: Cluster) -> np.ndarray:
    """How many times as long as in the trace each rank computes in each step: float64, [steps, ranks].

    Without jitter there is one step.
    """
    steps = cluster.steps if cluster.jitter else 1
    drawn = np.random.default_rng(cluster.seed).standard_normal((steps, cluster.ranks))
    factors: np.ndarray = np.exp(cluster.jitter * drawn) / cluster.compute_speed
    return factors


def predict(trace: Trace, cluster: Cluster, scheme: Scheme | None = None) -> Prediction:
    """The trace's step on each rank of the cluster; all ranks begin a step at once.

    Raises:
        SimulationError: `scheme` has an algorithm that is not modelled for this cluster.
    """
    scheme = scheme or Scheme()
    filled = buckets(trace.gradients, scheme.bucket_bytes)
    sums = [Sum(*(all_reduce_seconds(bucket.bytes, cluster, scheme, computing=each) for each in (True, False)))
            for bucket in filled]
    factors = compute_factors(cluster)
    found = [timeline(trace, filled, sums, each, scheme, cluster.taken_share) for each in factors]
    step = float(np.mean([each.seconds for each in found]))
    compute = trace.compute_seconds * float(factors.mean())
    slowest = trace.compute_seconds * float(factors.max(1).mean())
    times = [np.mean([getattr(each, name) for each in found], 0) for name in ("ready", "start", "end", "updated")]
    return Prediction(
        cluster.ranks, step, compute, slowest - compute, step - slowest, float((times[2] - times[1]).sum()),
        cluster.ranks * trace.batch / step,
        tuple(BucketTimes(bucket.bytes, *map(float, each))
              for bucket, each in zip(filled, np.transpose(times), strict=True)))
