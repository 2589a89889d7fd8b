"""Traces and clusters drawn at random."""

from __future__ import annotations

from hypothesis import strategies as st

from ngraph_mxnet.distributed.simulation import Cluster, Gradient, Link, Scheme, Trace

_SECONDS = st.floats(0, 2)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    shares = sorted(draw(st.lists(st.floats(0, 1), min_size=1, max_size=12)))
    backward = draw(st.floats(1e-3, 2))
    gradients = [Gradient(f"g{number}", 4 * draw(st.integers(1, 1 << 26)), share * backward)
                 for number, share in enumerate(shares)]
    return Trace("drawn", draw(st.integers(1, 64)), 1, "", draw(_SECONDS), backward, draw(_SECONDS), tuple(gradients))


@st.composite
def clusters(draw: st.DrawFn, *, jitter: bool = True, polls: bool = True) -> Cluster:
    return Cluster(
        draw(st.integers(1, 9)), Link(draw(st.floats(0, 1e-3)), draw(st.floats(1e7, 1e11))), draw(st.integers(1, 4)),
        Link(draw(st.floats(0, 1e-4)), draw(st.floats(1e8, 1e11))), *(draw(st.floats(0, 1e-9)) for _ in range(3)),
        draw(st.sampled_from([0.0, 0.3, 1.0])), draw(st.sampled_from([0.0, 1e-3])) if polls else 0.0,
        draw(st.floats(0.5, 50)),
        draw(st.sampled_from([0.0, 0.1])) if jitter else 0.0, draw(st.integers(0, 99)), 3)


@st.composite
def schemes(draw: st.DrawFn, cluster: Cluster) -> Scheme:
    shared_memory = draw(st.booleans())
    several = cluster.nodes > 1 and cluster.ranks_per_node > 1
    algorithms = ["ring"] if several and not shared_memory else ["ring", "halving", "tree"]
    return Scheme(draw(st.sampled_from(algorithms)), shared_memory, draw(st.booleans()),
                  draw(st.sampled_from([0, 1 << 20, 25 << 20, 1 << 40])), draw(st.booleans()), draw(st.booleans()))


@st.composite
def steps(draw: st.DrawFn, *, jitter: bool = True, polls: bool = True) -> tuple[Trace, Cluster, Scheme]:
    cluster = draw(clusters(jitter=jitter, polls=polls))
    return draw(traces()), cluster, draw(schemes(cluster))
