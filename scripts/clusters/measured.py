"""Measured steps, and how far predictions are from them.

The file is a JSON list of objects with the fields of `Measured`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ngraph_mxnet.distributed.simulation import (
    Cluster,
    Link,
    Prediction,
    Scheme,
    SimulationError,
    Trace,
    made,
    predict,
    read,
    require,
)


@dataclass(frozen=True)
class Measured:
    """A step that was measured.

    Attributes:
        model, batch: as in the trace.
        gbit: of the network; 0: the cluster's.
        overlap, bf16: as in `Scheme`; what the step had, whatever other predictions have.

    Raises:
        SimulationError: the time is not above 0.
    """

    model: str
    batch: int
    step_seconds: float
    nodes: int = 1
    ranks_per_node: int = 1
    gbit: float = 0.0
    overlap: bool = True
    bf16: bool = False

    def __post_init__(self) -> None:
        require(0 < self.step_seconds < float("inf"), "step_seconds", self.step_seconds, "more than 0")

    @staticmethod
    def load(path: str | Path) -> list[Measured]:
        """
        Raises:
            SimulationError: it can't be read, or is not such a file.
        """
        found = read(path)
        require(isinstance(found, list) and bool(found), str(path), type(found).__name__, "a list of measured steps")
        try:
            return [made(Measured, each, "a measured step") for each in found]
        except SimulationError as error:
            raise SimulationError(f"{path}: {error}") from None


@dataclass(frozen=True)
class Comparison:
    """`error`: the predicted time over the measured one, less 1."""

    measured: Measured
    prediction: Prediction

    @property
    def error(self) -> float:
        return self.prediction.step_seconds / self.measured.step_seconds - 1


def compare(traces: Sequence[Trace], cluster_of: Callable[[Trace], Cluster], scheme: Scheme,
            measured: Sequence[Measured]) -> list[Comparison]:
    """A prediction for each measured step, by the trace of the same model and batch: of several the one that was
    recorded beside as many others as the step had on its node, and of those the slowest, whom all wait for.

    Args:
        cluster_of: what a trace's ranks run on, but for what `measured` says.

    Raises:
        SimulationError: there is no such trace.
    """
    found = []
    for step in measured:
        fitting = [trace for trace in traces if (trace.model, trace.batch) == (step.model, step.batch)]
        require(bool(fitting), f"traces of {step.model}, batch {step.batch}", "none", "one at least")
        beside = [trace for trace in fitting if trace.ranks == step.ranks_per_node]
        trace = max(beside or fitting, key=lambda each: each.compute_seconds)
        cluster = cluster_of(trace)
        network = Link.of_gbit(step.gbit, cluster.network.latency_seconds) if step.gbit else cluster.network
        changed = replace(cluster, nodes=step.nodes, ranks_per_node=step.ranks_per_node, network=network)
        found.append(Comparison(step, predict(trace, changed, replace(scheme, overlap=step.overlap, bf16=step.bf16))))
    return found
