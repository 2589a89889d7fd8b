"""JSON files of the simulator, and the bounds of their numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any, TypeVar

from ngraph_mxnet.errors import NGraphError, listed

Made = TypeVar("Made")

_TYPES: Mapping[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}
"""Python types that JSON gives for a field, by the field's declared type."""


class SimulationError(NGraphError, ValueError):
    """A trace, a cluster or measured times can't be read, or don't fit each other."""


def require(holds: bool, name: str, found: object, expected: str) -> None:
    """Raises SimulationError unless it `holds`."""
    if not holds:
        raise SimulationError(f"{name}: found {found}, expected {expected}")


def read(path: str | Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        SimulationError: it can't be read, or is no JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SimulationError(f"{path} can't be read: {error}") from None


def read_as(path: str | Path, kind: str, version: int, make: Callable[[Mapping[str, Any]], Made]) -> Made:
    """Return what `make` makes of the fields of a file that `write_as` wrote.

    Raises:
        SimulationError: it can't be read, is of another kind or version, or `make` refuses it; the text has the path.
    """
    found = read(path)
    header = (found.get("format"), found.get("version")) if isinstance(found, dict) else (type(found).__name__, None)
    require(header == (kind, version), str(path), f"format {header[0]!r}, version {header[1]!r}",
            f"{kind!r}, version {version}")
    try:
        return make({name: value for name, value in found.items() if name not in ("format", "version")})
    except SimulationError as error:
        raise SimulationError(f"{path}: {error}") from None


def write_as(path: str | Path, kind: str, version: int, content: Mapping[str, Any]) -> None:
    """One line for each field and each element of a list.

    Raises:
        OSError: it can't be written.
    """
    lines = [f'  "{name}": {_shown(value)}' for name, value in
             {"format": kind, "version": version, **content}.items()]
    Path(path).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def made(kind: type[Made], content: object, what: str) -> Made:
    """The dataclass whose fields these are: no other names, and none that lacks a default is missing. A number is taken
    for a field that is a float, and the other types must fit exactly.

    Raises:
        SimulationError: they are not; the text names the field.
    """
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
