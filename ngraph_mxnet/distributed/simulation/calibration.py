"""Measurements of a link and of a rank's CPU, for a `Cluster`.

A JSON object: `"format": "ngraph-mxnet network calibration"`, `"version": 1`, and the fields of `Calibration`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ngraph_mxnet.distributed.simulation.cluster import COSTS, Cluster, Link, made, read_as, write_as

FORMAT, VERSION = "ngraph-mxnet network calibration", 1


@dataclass(frozen=True)
class Calibration:
    """The numbers are those of `Link` and `Cluster`.

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
        """
        Raises:
            SimulationError: it can't be read, or is not such a file.
        """
        return read_as(path, FORMAT, VERSION, lambda content: made(Calibration, content, "calibration"))

    def save(self, path: str | Path) -> None:
        """
        Raises:
            OSError: it can't be written.
        """
        write_as(path, FORMAT, VERSION, asdict(self))
