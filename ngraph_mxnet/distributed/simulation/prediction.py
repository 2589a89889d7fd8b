"""What a step takes on a cluster."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ngraph_mxnet.distributed.simulation.allreduce import all_reduce_seconds
from ngraph_mxnet.distributed.simulation.cluster import Cluster, Scheme
from ngraph_mxnet.distributed.simulation.timeline import Sum, timeline
from ngraph_mxnet.distributed.simulation.trace import Trace, buckets


@dataclass(frozen=True)
class BucketTimes:
    """Of one bucket; seconds from the step's start, means over the steps.

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
        """Of the step."""
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
