"""Minimum cuts, against networkx."""

from __future__ import annotations

from math import inf

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraph_mxnet.autodiff.split import Network

EDGES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 9)), max_size=30)


@given(EDGES)
def test_cuts_are_least(edges: list[tuple[int, int, int]]) -> None:
    network, judge = Network(), networkx.DiGraph()
    judge.add_nodes_from((0, 7))
    for tail, head, capacity in edges:
        if tail != head:
            network.add(tail, head, capacity)
            known = judge.get_edge_data(tail, head, {"capacity": 0})["capacity"]
            judge.add_edge(tail, head, capacity=known + capacity)
    near = network.near_side(0, 7)
    assert 0 in near and 7 not in near
    assert sum(capacity for tail, head, capacity in edges if tail in near and head not in near) == \
        networkx.maximum_flow_value(judge, 0, 7)


def test_the_cut_is_near_the_source() -> None:
    network = Network()
    for tail, head in ((0, 1), (1, 2), (2, 3)):
        network.add(tail, head, 5)
    network.add(0, 4, inf)
    assert network.near_side(0, 3) == {0, 4}


def test_what_can_not_be_cut_is_refused() -> None:
    network = Network()
    network.add(0, 1, inf)
    network.add(1, 2, inf)
    with pytest.raises(ValueError, match="no cut is finite"):
        network.near_side(0, 2)
