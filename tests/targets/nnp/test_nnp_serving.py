"""The queue before the simulated instances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlperf.serving import Batch, highest_rate, poisson_arrivals, serve

from ngraph_mxnet.base.errors import NGraphError


def test_mean_wait_is_that_of_an_m_d_1_queue():
    """Pollaczek and Khinchine: rho / (2 (1 - rho)) of the service time, one at a time and at random."""
    load = 0.7
    served = serve(poisson_arrivals(load, 200_000), [Batch(1.0, 1.0)], instances=1)
    assert served.latencies.mean() - 1 == pytest.approx(load / (2 * (1 - load)), rel=0.05)


@given(st.lists(st.floats(0, 5), min_size=1, max_size=40),
       st.lists(st.builds(Batch, st.floats(0.1, 3), st.floats(0.1, 3)), min_size=1, max_size=4), st.integers(1, 4))
def test_against_a_clock(gaps: list[float], batches: list[Batch], instances: int) -> None:
    """The definition, written as what each instance does next."""
    arrivals = np.cumsum(gaps)
    idle, queue, ends = [0.0] * instances, list(range(len(gaps))), {}
    while queue:
        who = min(range(instances), key=idle.__getitem__)
        start = max(idle[who], arrivals[queue[0]])
        batch = [request for request in queue if arrivals[request] <= start][:len(batches)]
        idle[who] = start + batches[len(batch) - 1].period
        ends |= dict.fromkeys(batch, start + batches[len(batch) - 1].seconds)
        queue = queue[len(batch):]
    served = serve(arrivals, batches, instances)
    np.testing.assert_allclose(served.latencies, [ends[i] - arrivals[i] for i in range(len(gaps))], atol=1e-9)
    assert served.counts @ np.arange(1, len(batches) + 1) == len(gaps)


def test_the_highest_rate_is_below_what_the_instances_can_do():
    batches = [Batch(seconds, seconds) for seconds in (0.0027, 0.0032, 0.0038, 0.0045)]
    rate, served = highest_rate(batches, 12, 0.015, count=50_000)
    assert 0.9 < rate / (12 * 4 / 0.0045) < 1
    assert served.percentile(99) <= 0.015
    assert served.latencies.min() == pytest.approx(0.0027)
    over = serve(poisson_arrivals(rate * 1.02, 50_000), batches, 12)
    assert over.percentile(99) > 0.015


@pytest.mark.parametrize(("batches", "instances"), [([], 1), ([Batch(1, 1), Batch(1, 0)], 1), ([Batch(1, 1)], 0)])
def test_what_cannot_serve_is_refused(batches: list[Batch], instances: int) -> None:
    with pytest.raises(NGraphError):
        serve(np.zeros(3), batches, instances)


def test_a_bound_that_nothing_meets_is_refused():
    with pytest.raises(NGraphError, match="lone request"):
        highest_rate([Batch(0.02, 0.01)], 1, 0.015)
