"""The law of queues before the simulated engines, and the arrivals of MLPerf's Server scenario."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlperf.published import LOADS, Load
from mlperf.serving import ALTERNATIVES, SUBMITTED, Queue, loadgen_arrivals, serve

from ngraph_mxnet.base.errors import NGraphError

GAPS = st.lists(st.floats(0, 5), min_size=1, max_size=40)


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.id)
def test_requests_arrive_when_the_submission_s_did(load: Load) -> None:
    """Its logs state when LoadGen sent the last request."""
    arrivals = loadgen_arrivals(load.target, load.count, load.seed)
    assert len(arrivals) == load.count and arrivals[-1] == load.last
    assert (np.diff(arrivals) >= 0).all()


def test_mean_wait_is_that_of_an_m_d_1_queue():
    """Pollaczek and Khinchine: rho / (2 (1 - rho)) of the service time, one at a time and at random."""
    load = 0.7
    arrivals = loadgen_arrivals(load * 1e3, 200_000, 1) * 1e-6  # seconds, at `load` a second
    for queue in (Queue("blind", "shared", 1), Queue("idlest", "in turn", 1)):
        latencies = serve(arrivals, 1.0, 1.0, 1, queue)
        assert latencies.mean() - 1 == pytest.approx(load / (2 * (1 - load)), rel=0.05)


def test_two_share_an_engine():
    """The second comes when the first has half its work left; then both advance at half of the engine's rate."""
    latencies = serve(np.array([0.0, 1.5]), 3.0, 2.0, 1, SUBMITTED)
    assert latencies[0] == pytest.approx(1.5 + 0.5 * 4.0)
    assert latencies[1] == pytest.approx(2.0 + 0.5 * 3.0)  # half beside the first, half alone
    both = serve(np.zeros(2), 3.0, 2.0, 1, SUBMITTED)
    assert both.tolist() == pytest.approx([4.0, 4.0])
    in_turn = serve(np.zeros(3), 3.0, 2.0, 1, Queue("blind", "in turn"))
    assert in_turn.tolist() == pytest.approx([3.0, 5.0, 7.0])


@given(GAPS, st.integers(1, 3))
def test_sharing_against_a_clock(gaps: list[float], slots: int) -> None:
    """One engine, by the definition: nothing happens between events, and all in flight advance alike."""
    alone, period, arrivals = 2.5, 2.0, np.cumsum(gaps)
    now, flying, ends, coming = 0.0, dict[int, float](), {}, list(range(len(gaps)))
    while coming or flying:
        while coming and len(flying) < slots and arrivals[coming[0]] <= now + 1e-12:
            flying[coming.pop(0)] = 1.0
        each = 1 / alone if len(flying) == 1 else 1 / (len(flying) * period) if flying else 0.0
        until = [now + left / each for left in flying.values()]
        if coming and len(flying) < slots:
            until.append(max(arrivals[coming[0]], now))
        step = min(until) - now
        flying = {request: left - step * each for request, left in flying.items()}
        now += step
        for request in [request for request, left in flying.items() if left < 1e-9]:
            ends[request] = now
            del flying[request]
    found = serve(arrivals, alone, period, 1, Queue("blind", "shared", slots))
    np.testing.assert_allclose(found, [ends[i] - arrivals[i] for i in range(len(gaps))], atol=1e-6)


@given(GAPS, st.integers(1, 4))
def test_one_queue_before_idle_engines(gaps: list[float], engines: int) -> None:
    """`idlest` and `in turn` is what each engine does next, if slots never run out."""
    arrivals, last, ends = np.cumsum(gaps), [-np.inf] * engines, []
    for arrival in arrivals:
        who = min(range(engines), key=lambda engine: max(last[engine] - arrival, 0.0))
        last[who] = max(arrival + 2.5, last[who] + 2.0)
        ends.append(last[who])
    found = serve(arrivals, 2.5, 2.0, engines, Queue("idlest", "in turn", slots=len(gaps)))
    if engines == 1:
        np.testing.assert_allclose(found, np.array(ends) - arrivals, atol=1e-9)
    else:  # which of several idle engines takes a request is left open
        assert found.mean() == pytest.approx(np.mean(np.array(ends) - arrivals), abs=1e-6)


@pytest.mark.parametrize("queue", [SUBMITTED, *ALTERNATIVES])
def test_no_law_beats_the_engines(queue: Queue) -> None:
    """A burst ends when the engines have done the work, whatever the order; no request is quicker than a lone one."""
    latencies = serve(np.zeros(240), 2.7, 2.3, 24, queue)
    assert 10 * 2.3 <= latencies.max() <= 10 * 2.3 + 2.7
    assert latencies.min() >= 2.7


@pytest.mark.parametrize(("alone", "period", "engines", "slots"),
                         [(0.0, 1, 1, 1), (1, 0.0, 1, 1), (1, 1, 0, 1), (1, 1, 1, 0)])
def test_what_cannot_serve_is_refused(alone: float, period: float, engines: int, slots: int) -> None:
    with pytest.raises(NGraphError, match="serving needs"):
        serve(np.zeros(3), alone, period, engines, Queue("blind", "shared", slots))
