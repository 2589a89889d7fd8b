"""Simulation of a data-parallel training step on a cluster: the trace of a real step, on links of stated speed.

A trace is a JSON object: `"format": "ngraph-mxnet step trace"`, `"version": 1`, and the fields of `Trace`; times are in
seconds. So is a calibration, of format `ngraph-mxnet network calibration`, with the fields of `Calibration`.

Times of an all-reduce follow the alpha-beta-gamma model, message by message. The ring: Patarasuk and Yuan, "Bandwidth
optimal all-reduce algorithms for clusters of workstations", 2009. Recursive halving and doubling, and binomial trees:
Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ngraph_mxnet.base.errors import NGraphError, listed
from ngraph_mxnet.base.rendered import Facts
from ngraph_mxnet.distributed.gradients import make_plan

Made = TypeVar("Made")
_VERSION = 1
"""Of all files."""

_TYPES: Mapping[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}
"""Python types that JSON gives for a field, by the field's declared type."""


class SimulationError(NGraphError, ValueError):
    """A trace, a cluster or measured times can't be read, or don't fit each other."""


def require(holds: bool, name: str, found: object, expected: str) -> None:
    """Raises SimulationError unless it `holds`."""
    if not holds:
        raise SimulationError(f"{name}: found {found}, expected {expected}")


def read(path: str | Path) -> Any:
    """Return the content of a JSON file. Raises SimulationError: it can't be read, or is no JSON."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SimulationError(f"{path} can't be read: {error}") from None


def read_as(path: str | Path, kind: str, make: Callable[[Mapping[str, Any]], Made]) -> Made:
    """Return what `make` makes of the fields of a file that `write_as` wrote. Raises SimulationError: it can't be read,
    is of another kind or version, or `make` refuses it; the text has the path."""
    found = read(path)
    header = (found.get("format"), found.get("version")) if isinstance(found, dict) else (type(found).__name__, None)
    require(header == (kind, _VERSION), str(path), f"format {header[0]!r}, version {header[1]!r}",
            f"{kind!r}, version {_VERSION}")
    try:
        return make({name: value for name, value in found.items() if name not in ("format", "version")})
    except SimulationError as error:
        raise SimulationError(f"{path}: {error}") from None


def write_as(path: str | Path, kind: str, content: Mapping[str, Any]) -> None:
    """One line for each field and each element of a list. Raises OSError: it can't be written."""
    lines = [f'  "{name}": {_shown(value)}' for name, value in {"format": kind, "version": _VERSION, **content}.items()]
    Path(path).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def made(kind: type[Made], content: object, what: str) -> Made:
    """The dataclass whose fields these are: no other names, and none that lacks a default is missing. A number is taken
    for a field that is a float, and the other types must fit exactly. Raises SimulationError: they are not; the text
    names the field."""
    assert is_dataclass(kind)
    require(isinstance(content, Mapping), what, type(content).__name__, "an object")
    assert isinstance(content, Mapping)
    known = {field.name: field for field in fields(kind)}
    unknown = [name for name in content if name not in known]
    require(not unknown, what, f"the fields {listed(map(str, unknown))}", f"among {listed(known, most=len(known))}")
    missing = [name for name, field in known.items()
               if name not in content and field.default is MISSING and field.default_factory is MISSING]
    require(not missing, what, f"no {listed(missing)}", "these fields")
    for name, value in content.items():
        wanted = str(known[name].type)
        if wanted in _TYPES:
            require(type(value) in _TYPES[wanted], f"{what}, {name}", repr(value), f"of type {wanted}")
    return kind(**content)


def _shown(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"    {json.dumps(each)}" for each in value) + "\n  ]"
    return json.dumps(value)


COSTS = ("copy_seconds_per_byte", "reduce_seconds_per_byte", "convert_seconds_per_byte")
"""Fields of a cluster: what communication takes of a rank's CPU."""


@dataclass(frozen=True)
class Link:
    """Full duplex: m bytes take `latency_seconds + m / bytes_per_second`, each way at once. Raises SimulationError: a
    number is out of bounds."""

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


_TRACE = "ngraph-mxnet step trace"
FLOAT = np.dtype(np.float32)


@dataclass(frozen=True)
class Gradient:
    """`ready_seconds`: from the backward pass's start until nothing writes the gradient any more. Raises
    SimulationError: the bytes are none of float32, or the time is negative."""

    name: str
    bytes: int
    ready_seconds: float

    def __post_init__(self) -> None:
        require(self.bytes > 0 and self.bytes % FLOAT.itemsize == 0, f"gradient {self.name}, bytes", self.bytes,
                "more than 0, of float32")
        require(0 <= self.ready_seconds < float("inf"), f"gradient {self.name}, ready_seconds", self.ready_seconds,
                "0 or more")


@dataclass(frozen=True)
class Trace:
    """A step without communication: the forward pass, the backward pass, the update of all weights.

    Attributes:
        batch: samples of this rank's batch.
        threads: that computed.
        gradients: float32, in the order in which they become final.
        ranks: how many trained on this machine at once while it was recorded.
        source: how the times were found.

    Raises:
        SimulationError: a number is out of bounds, or the gradients are not in order.
    """

    model: str
    batch: int
    threads: int
    cpu: str
    forward_seconds: float
    backward_seconds: float
    update_seconds: float
    gradients: tuple[Gradient, ...]
    rank: int = 0
    ranks: int = 1
    source: str = ""

    def __post_init__(self) -> None:
        require(self.batch > 0, "batch", self.batch, "more than 0")
        require(self.threads > 0, "threads", self.threads, "more than 0")
        require(0 <= self.rank < self.ranks, "rank", self.rank, f"below ranks, {self.ranks}")
        for name in ("forward_seconds", "backward_seconds", "update_seconds"):
            value = getattr(self, name)
            require(value >= 0 and isfinite(value), name, value, "0 or more")
        require(self.compute_seconds > 0, "the seconds of all", 0, "more than 0")
        require(bool(self.gradients), "gradients", "none", "one at least")
        before = 0.0
        for gradient in self.gradients:
            ready = gradient.ready_seconds
            require(before <= ready <= self.backward_seconds, f"gradient {gradient.name}, ready_seconds", ready,
                    f"from {before}, that of the one before, to backward_seconds, {self.backward_seconds}")
            before = ready

    @property
    def compute_seconds(self) -> float:
        return self.forward_seconds + self.backward_seconds + self.update_seconds

    @property
    def bytes(self) -> int:
        return sum(gradient.bytes for gradient in self.gradients)

    @staticmethod
    def load(path: str | Path) -> Trace:
        """Raises SimulationError: it can't be read, or is not such a file."""
        return read_as(path, _TRACE, _trace)

    def save(self, path: str | Path) -> None:
        """Raises OSError: it can't be written."""
        write_as(path, _TRACE, asdict(self) | {"gradients": [asdict(each) for each in self.gradients]})


def _trace(content: Mapping[str, Any]) -> Trace:
    gradients = content.get("gradients", [])
    require(isinstance(gradients, list), "gradients", type(gradients).__name__, "a list")
    return made(Trace, {**content, "gradients": tuple(made(Gradient, each, "a gradient") for each in gradients)},
                "trace")


@dataclass(frozen=True)
class Bucket:
    """Gradients that one all-reduce takes; `ready_seconds`: of the last of them."""

    bytes: int
    ready_seconds: float


def buckets(gradients: Sequence[Gradient], full_bytes: int | None) -> list[Bucket]:
    """The gradients in their order, in the buckets of `make_plan`; with `full_bytes` of 0 each is one."""
    if full_bytes == 0:
        return [Bucket(gradient.bytes, gradient.ready_seconds) for gradient in gradients]
    sizes = [gradient.bytes // FLOAT.itemsize for gradient in gradients]
    plan = make_plan(sizes, [FLOAT] * len(sizes), range(len(sizes)), full_bytes)
    return [Bucket(sum(slot.bytes for slot in each.slots), gradients[each.slots[-1].gradient].ready_seconds)
            for each in plan]


Seconds = np.ndarray
"""float64, [ranks]."""


@dataclass(frozen=True)
class Timeline:
    """Seconds from the step's start, which all ranks have in common.

    Attributes:
        ready: float64, [buckets]: when the last rank has its gradients of the bucket.
        start, end: float64, [buckets]: of its all-reduce.
        updated: float64, [buckets]: when the last rank has updated its weights of the bucket.
    """

    ready: np.ndarray
    start: np.ndarray
    end: np.ndarray
    updated: np.ndarray

    @property
    def seconds(self) -> float:
        return float(self.updated[-1])


@dataclass(frozen=True)
class Sum:
    """Seconds of a bucket's all-reduce while the ranks compute, and when they wait for it: its messages wait for looks
    while they do, in which the next bucket's are sent."""

    beside: float
    alone: float


def timeline(trace: Trace, filled: Sequence[Bucket], sums: Sequence[Sum], factors: Seconds, scheme: Scheme,
             taken_share: float) -> Timeline:
    """
    Args:
        filled: the buckets.
        sums: of each bucket.
        factors: how many times as long as in the trace each rank computes.
        taken_share: as in `Cluster`.
    """
    passes = (trace.forward_seconds + trace.backward_seconds) * factors
    none = np.zeros_like(factors)
    busy: list[tuple[float, float]] = []
    ready, start, end = (np.zeros(len(filled)) for _ in range(3))
    free = 0.0
    for number, (bucket, each) in enumerate(zip(filled, sums, strict=True)):
        work = (trace.forward_seconds + bucket.ready_seconds) * factors
        ready[number] = _computed(none, work, busy, taken_share).max()
        begins = ready[number] if scheme.overlap else passes.max()
        start[number] = max(begins, free)
        free = end[number] = start[number] + each.alone
        if scheme.overlap and each.beside:
            busy.append((start[number], free))
            computing = max(_computed(none, passes, busy, taken_share).max() - start[number], 0.0)
            beside = min(computing / each.beside, 1.0)
            end[number] = start[number] + beside * each.beside + (1 - beside) * each.alone
    now = _computed(none, passes, busy, taken_share)
    updated = np.zeros(len(filled))
    for number, bucket in enumerate(filled):
        waits = end[number] if scheme.overlap and scheme.early_update else end.max()
        work = trace.update_seconds * bucket.bytes / trace.bytes * factors
        now = _computed(np.maximum(now, waits), work, busy, taken_share)
        updated[number] = now.max()
    return Timeline(ready, start, end, updated)


def _computed(begin: Seconds, work: Seconds, busy: Sequence[tuple[float, float]], taken_share: float) -> Seconds:
    """When so many seconds of computing have ended that begin then, with communication under way while `busy`."""
    if not taken_share:
        return begin + work
    now, left, rate = begin, work, 1 - taken_share
    for start, end in busy:
        alone = np.clip(start - now, 0, left)
        now, left = now + alone, left - alone
        beside = np.clip(end - np.maximum(now, start), 0, None) * rate
        last = left <= beside  # where nothing computes beside, nothing is left
        now = np.where(last, now + (left / rate if rate else 0.0), np.maximum(now, end))
        left = np.where(last, 0, left - beside)
    return now + left


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
    return (ranks - 1).bit_length() * (channel.seconds(size, True) + channel.seconds(size, False))


ALGORITHMS: Mapping[str, Callable[[float, int, Channel], float]] = {"ring": _ring, "halving": _halving, "tree": _tree}
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
class Prediction(Facts):
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
        return self.exposed_seconds / self.step_seconds

    derived = ("efficiency", "exposed_share")


def compute_factors(cluster: Cluster) -> np.ndarray:
    """How many times as long as in the trace each rank computes in each step: float64, [steps, ranks].

    Without jitter there is one step.
    """
    steps = cluster.steps if cluster.jitter else 1
    drawn = np.random.default_rng(cluster.seed).standard_normal((steps, cluster.ranks))
    factors: np.ndarray = np.exp(cluster.jitter * drawn) / cluster.compute_speed
    return factors


def predict(trace: Trace, cluster: Cluster, scheme: Scheme | None = None) -> Prediction:
    """The trace's step on each rank of the cluster; all ranks begin a step at once. Raises SimulationError: `scheme`
    has an algorithm that is not modelled for this cluster."""
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


_CALIBRATION = "ngraph-mxnet network calibration"


@dataclass(frozen=True)
class Calibration:
    """Measurements of a link and of a rank's CPU, for a `Cluster`. The numbers are those of `Link` and `Cluster`.

    Attributes:
        taken_share: of a rank that computes with one thread.
        same_node: whether the ranks that were measured share a node.
        mpi: the library and its version.

    Raises:
        SimulationError: a number is out of bounds.
    """

    latency_seconds: float
    bytes_per_second: float
    copy_seconds_per_byte: float
    reduce_seconds_per_byte: float
    convert_seconds_per_byte: float
    taken_share: float
    same_node: bool
    mpi: str = ""
    cpu: str = ""

    def __post_init__(self) -> None:
        self.of(Cluster(1, self.link), 1)

    @property
    def link(self) -> Link:
        return Link(self.latency_seconds, self.bytes_per_second)

    def of(self, cluster: Cluster, threads: int) -> Cluster:
        """The cluster with what was measured: its memory or its network, and what a rank's CPU does, of whose `threads`
        communication takes one away."""
        cluster = replace(cluster, memory=self.link) if self.same_node else replace(cluster, network=self.link)
        return replace(cluster, **{name: getattr(self, name) for name in COSTS}, taken_share=self.taken_share / threads)

    @staticmethod
    def load(path: str | Path) -> Calibration:
        """Raises SimulationError: it can't be read, or is not such a file."""
        return read_as(path, _CALIBRATION, lambda content: made(Calibration, content, "calibration"))

    def save(self, path: str | Path) -> None:
        """Raises OSError: it can't be written."""
        write_as(path, _CALIBRATION, asdict(self))
