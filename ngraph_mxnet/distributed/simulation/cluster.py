"""A cluster in a few numbers, and how gradients are summed on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite

from ngraph_mxnet.distributed.simulation.fields import require

COSTS = ("copy_seconds_per_byte", "reduce_seconds_per_byte", "convert_seconds_per_byte")
"""Fields of a cluster: what communication takes of a rank's CPU."""


@dataclass(frozen=True)
class Link:
    """Full duplex: m bytes take `latency_seconds + m / bytes_per_second`, each way at once.

    Raises:
        SimulationError: a number is out of bounds.
    """

    latency_seconds: float
    bytes_per_second: float

    def __post_init__(self) -> None:
        require(0 <= self.latency_seconds < inf, "latency_seconds", self.latency_seconds, "0 or more")
        require(self.bytes_per_second > 0, "bytes_per_second", self.bytes_per_second, "more than 0")

    @staticmethod
    def of_gbit(gbit: float, latency_seconds: float) -> Link:
        """A link of so many Gb/s (10⁹ bits a second)."""
        return Link(latency_seconds, gbit * 1e9 / 8)


@dataclass(frozen=True)
class Cluster:
    """Nodes of one kind, each with one network interface, all at one switch that never is the bottleneck.

    Attributes:
        network: from node to node.
        memory: from rank to rank of a node.
        copy_seconds_per_byte: what copying a gradient to the buffer that is sent or shared takes, for each byte.
        reduce_seconds_per_byte: what adding one float32 gradient to another takes, for each byte.
        convert_seconds_per_byte: what rounding a float32 gradient to bf16 and widening it again takes, for each byte.
        taken_share: of a rank's computing power, what its communication takes away while it is under way. 0: the
            progress thread has a core of its own; 1: nothing computes meanwhile.
        poll_seconds: between two looks of the progress thread at what is under way, while the rank computes: each
            message waits for half of it. Behind the backward pass it looks all the time.
        compute_speed: how many times as fast as in the trace a rank computes.
        jitter: each rank computes each step exp(jitter · z) times as long, z from a standard normal distribution.
        seed: of z.
        steps: over which times are averaged where there is jitter.

    Raises:
        SimulationError: a number is out of bounds.
    """

    nodes: int
    network: Link
    ranks_per_node: int = 1
    memory: Link = field(default_factory=lambda: Link(1e-6, 10e9))
    copy_seconds_per_byte: float = 0.0
    reduce_seconds_per_byte: float = 0.0
    convert_seconds_per_byte: float = 0.0
    taken_share: float = 0.0
    poll_seconds: float = 0.0
    compute_speed: float = 1.0
    jitter: float = 0.0
    seed: int = 0
    steps: int = 50

    def __post_init__(self) -> None:
        for name in ("nodes", "ranks_per_node", "steps"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")
        for name in (*COSTS, "poll_seconds", "jitter"):
            require(0 <= getattr(self, name) < inf, name, getattr(self, name), "0 or more")
        require(0 <= self.taken_share <= 1, "taken_share", self.taken_share, "from 0 to 1")
        require(self.compute_speed > 0 and isfinite(self.compute_speed), "compute_speed", self.compute_speed,
                "more than 0")
        require(self.seed >= 0, "seed", self.seed, "0 or more")

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node


@dataclass(frozen=True)
class Scheme:
    """How gradients are summed.

    Attributes:
        algorithm: of the all-reduce, one of `ALGORITHMS`.
        shared_memory: the ranks of a node sum in memory that they share, each a part of a bucket, and one of them
            sums with those of the other nodes; else all send messages to each other.
        bf16: messages are rounded to bf16; sums are float32.
        bucket_bytes: a bucket of so many bytes is full; 0: each gradient is one; None: as of the kvstore.
        overlap: a bucket's all-reduce begins when its gradients are final; else when the backward pass has ended.
        early_update: a bucket's weights are updated when its sums are there; else all when the last sums are.

    Raises:
        SimulationError: the bytes are negative.
    """

    algorithm: str = "ring"
    shared_memory: bool = True
    bf16: bool = False
    bucket_bytes: int | None = None
    overlap: bool = True
    early_update: bool = True

    def __post_init__(self) -> None:
        require(self.bucket_bytes is None or self.bucket_bytes >= 0, "bucket_bytes", self.bucket_bytes, "0 or more")
