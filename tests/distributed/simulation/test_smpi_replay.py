"""SimGrid as the judge of the simulated network, where it is installed; its input everywhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from clusters.smpi_replay import is_there, replay

from ngraph_mxnet.distributed.simulation import Cluster, Gradient, Link, Scheme, SimulationError, Trace, predict

TRACE = Trace("net", 8, 2, "a CPU", 1.0, 2.0, 0.3, tuple(
    Gradient(f"w{number}", (number + 1) << 20, 0.2 * number) for number in range(10)))
needs_simgrid = pytest.mark.skipif(not is_there(), reason="smpirun of SimGrid is not installed")


@needs_simgrid
@pytest.mark.parametrize("nodes", [1, 2, 3, 8])
@pytest.mark.parametrize("scheme", [
    Scheme(), Scheme(early_update=False, bf16=True), Scheme(overlap=False), Scheme("halving", overlap=False),
    Scheme("tree", overlap=False, bucket_bytes=0),
], ids=lambda scheme: f"{scheme.algorithm}, {'beside' if scheme.overlap else 'behind'}")
def test_simgrid_agrees(nodes: int, scheme: Scheme) -> None:
    cluster = Cluster(nodes, Link(5e-5, 2e7), compute_speed=2.0)
    assert replay(TRACE, cluster, scheme) == pytest.approx(predict(TRACE, cluster, scheme).step_seconds, rel=1e-3)


@needs_simgrid
def test_tcp_is_slower_than_the_ideal_network() -> None:
    cluster = Cluster(4, Link(5e-5, 2e7))
    ideal, tcp = (replay(TRACE, cluster, Scheme(overlap=False), model) for model in ("ideal", "TCP"))
    assert ideal < tcp < 2 * ideal


@needs_simgrid
@pytest.mark.parametrize(("cluster", "scheme", "words"), [
    (Cluster(2, Link(0, 1), 2), Scheme(), "ranks_per_node: found 2, expected 1 for SimGrid"),
    (Cluster(2, Link(0, 1), jitter=0.1), Scheme(), "jitter: found 0.1"),
    (Cluster(2, Link(0, 1)), Scheme("tree"), "'ring' for SimGrid with overlap"),
    (Cluster(2, Link(0, 1)), Scheme("none"), "algorithm: found 'none'"),
])
def test_what_is_not_replayed_is_refused(cluster: Cluster, scheme: Scheme, words: str) -> None:
    with pytest.raises(SimulationError, match=words):
        replay(TRACE, cluster, scheme)


def test_without_simgrid_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SimulationError, match=r"smpirun: found none on the PATH, expected SimGrid's"):
        replay(TRACE, replace(Cluster(2, Link(0, 1))), Scheme())
