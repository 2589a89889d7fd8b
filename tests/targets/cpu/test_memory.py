"""The memory plan: buffers that live at once never share a byte, and little is wasted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ngraph_mxnet.targets.cpu.planning.schedule import ALIGNMENT, Lifetime, align, peak, plan

lifetimes = st.lists(
    st.builds(lambda size, first, length: Lifetime(size, first, first + length),
              st.integers(1, 5000), st.integers(0, 20), st.integers(0, 8)),
    max_size=25,
)


@given(lifetimes)
def test_buffers_that_meet_do_not_overlap(requests):
    offsets, total = plan(requests)
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    for a in range(len(requests)):
        assert offsets[a] + requests[a].bytes <= total
        for b in range(a):
            if requests[a].first <= requests[b].last and requests[b].first <= requests[a].last:
                ends = offsets[a] + requests[a].bytes, offsets[b] + requests[b].bytes
                assert ends[0] <= offsets[b] or ends[1] <= offsets[a]


@given(lifetimes)
def test_total_lies_between_the_peak_and_no_sharing(requests):
    _, total = plan(requests)
    assert peak(requests) <= total <= sum(align(request.bytes) for request in requests)


def test_a_chain_needs_two_neighbours_only():
    requests = [Lifetime(640, level, level + 1) for level in range(10)]
    assert plan(requests)[1] == peak(requests) == 2 * 640
