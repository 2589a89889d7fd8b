"""Efficiency over nodes and bandwidths, and what single changes of a scheme do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngraph_mxnet.base.rendered import Facts, make_figure, save_figure, table
from ngraph_mxnet.distributed.simulation import Cluster, Link, Prediction, Scheme, Trace, buckets, predict, require

if TYPE_CHECKING:
    from rich.console import RenderableType


JITTER = 0.05
UNCHANGED = "as above"


@dataclass(frozen=True, repr=False)
class Study(Facts):
    """The predictions for one trace. A study prints as tables; `to_dict` is for programs.

    Attributes:
        nodes: of each curve's points.
        curves: by Gb/s of the network.
        variants: at the last number of nodes, by what is changed, then by Gb/s.
    """

    trace: Trace
    cluster: Cluster
    scheme: Scheme
    nodes: tuple[int, ...]
    curves: Mapping[float, tuple[Prediction, ...]]
    variants: Mapping[str, Mapping[float, Prediction]]

    width = 120

    def to_dict(self) -> dict[str, Any]:
        trace = {name: value for name, value in asdict(self.trace).items() if name != "gradients"}
        return {
            "trace": {**trace, "bytes": self.trace.bytes, "gradients": len(self.trace.gradients)},
            "cluster": {name: value for name, value in asdict(self.cluster).items() if name not in ("nodes", "network")}
            | {"latency_seconds": self.cluster.network.latency_seconds},
            "scheme": asdict(self.scheme),
            "curves": [{"gbit": gbit, "nodes": nodes, **found.to_dict()} for gbit, curve in self.curves.items()
                       for nodes, found in zip(self.nodes, curve, strict=True)],
            "variants": [{"change": change, "gbit": gbit, "nodes": self.nodes[-1], **found.to_dict()}
                         for change, row in self.variants.items() for gbit, found in row.items()],
        }

    def shown(self) -> Iterator[RenderableType]:
        trace, last = self.trace, self.nodes[-1]
        step = trace.compute_seconds / self.cluster.compute_speed
        filled = buckets(trace.gradients, self.scheme.bucket_bytes)
        yield (f"{trace.model}, batch {trace.batch} for each rank, threads {trace.threads}, {trace.cpu}: "
               f"{1e3 * step:.1f} ms a step alone, {trace.bytes / 2**20:.1f} MiB of gradients, buckets: {len(filled)}")
        yield table("Gb/s", *map(str, self.nodes), f"exposed at {last}", f"samples/s at {last}", rows=(
            (f"{gbit:g}", *(f"{found.efficiency:.3f}" for found in curve), _percent(curve[-1].exposed_share),
             f"{curve[-1].samples_per_second:.1f}") for gbit, curve in self.curves.items()),
            title="Efficiency t(1) / t(N), by nodes")
        yield table("change", *(f"{gbit:g} Gb/s" for gbit in self.curves), rows=(
            (change, *(f"{found.efficiency:.3f}  {_percent(found.exposed_share):>5}" for found in row.values()))
            for change, row in self.variants.items()),
            title=f"Efficiency and exposed communication at {last} nodes")


def _percent(share: float) -> str:
    """Format a share as a percentage. The share is 0 or more, but for rounding."""
    return f"{max(share, 0):.1%}"


def study(trace: Trace, cluster: Cluster, scheme: Scheme, nodes: Sequence[int], gbits: Sequence[float]) -> Study:
    """The trace on 1 to many of the cluster's nodes, on networks of the cluster's latency and of these bandwidths.

    Raises:
        SimulationError: there are no nodes or bandwidths, or the scheme is not modelled for the cluster.
    """
    require(bool(nodes), "nodes", "none", "one number at least")
    require(bool(gbits), "Gb/s", "none", "one number at least")
    networks = {gbit: Link.of_gbit(gbit, cluster.network.latency_seconds) for gbit in gbits}
    curves = {gbit: tuple(predict(trace, replace(cluster, nodes=count, network=network), scheme) for count in nodes)
              for gbit, network in networks.items()}
    changes = variants(replace(cluster, nodes=nodes[-1]), scheme)
    return Study(trace, cluster, scheme, tuple(nodes), curves, {
        change: {gbit: predict(trace, replace(changed, network=network), other) for gbit, network in networks.items()}
        for change, (changed, other) in changes.items()})


def variants(cluster: Cluster, scheme: Scheme) -> dict[str, tuple[Cluster, Scheme]]:
    """The scheme as it is, and with one change each."""
    several = cluster.nodes > 1 and cluster.ranks_per_node > 1
    schemes: dict[str, dict[str, Any]] = {
        "no overlap": {"overlap": False},
        "updates behind all sums": {"early_update": False},
        "bf16 on the wire": {"bf16": True},
        "each gradient alone": {"bucket_bytes": 0},
        "buckets of 25 MB": {"bucket_bytes": 25 << 20},
        "buckets of 100 MB": {"bucket_bytes": 100 << 20},
        "one bucket": {"bucket_bytes": 1 << 60},
        "recursive halving": {"algorithm": "halving"},
        "tree": {"algorithm": "tree"},
    }
    if several:
        schemes["messages in the nodes"] = {"algorithm": "ring", "shared_memory": False}
    clusters: dict[str, dict[str, Any]] = {
        "a look at messages each ms": {"poll_seconds": 1e-3},
        f"jitter of {JITTER:.0%}": {"jitter": JITTER},
    }
    found = {UNCHANGED: (cluster, scheme)}
    found |= {change: (cluster, replace(scheme, **fields)) for change, fields in schemes.items()
              if scheme.shared_memory or not several or "algorithm" not in fields}
    found |= {change: (replace(cluster, **fields), scheme) for change, fields in clusters.items()}
    return {change: pair for change, pair in found.items() if change == UNCHANGED or pair != found[UNCHANGED]}


def plot(studies: Sequence[Study], path: str | Path) -> None:
    """A panel for each study, a line for each bandwidth; the ending of `path` says in which format.

    Raises:
        ConfigError: matplotlib is not installed, or knows no such format.
        OSError: it can't be written.
    """
    figure = make_figure(3.2 * len(studies), 3.2)
    for axes, study in zip(figure.subplots(1, len(studies), sharey=True, squeeze=False)[0], studies, strict=True):
        for gbit, curve in study.curves.items():
            axes.plot(study.nodes, [found.efficiency for found in curve], "o-", markersize=3, label=f"{gbit:g} Gb/s")
        axes.set_xscale("log", base=2)
        axes.set_xticks(study.nodes, [str(nodes) for nodes in study.nodes])
        axes.set_ylim(0, 1.05)
        axes.grid(linewidth=0.4)
        axes.set_title(f"{study.trace.model}, batch {study.trace.batch}", fontsize=9)
        axes.set_xlabel("nodes")
        axes.legend(fontsize=8, loc="lower left")
    figure.supylabel("efficiency, t(1) / t(N)")
    save_figure(figure, path)
