"""Every pass, the pipeline and the split preserve what random graphs compute."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from pass_graphs import fusible_graphs
from pass_helpers import check, check_passes, check_split
from random_graphs import graphs

from ngraph_mxnet.ir import Graph
from ngraph_mxnet.passes import FixedPoint, optimize
from ngraph_mxnet.targets.cpu.pipeline import pipeline

PASSES = {
    p.name: p for item in pipeline()
    for p in (item.passes if isinstance(item, FixedPoint) else (item,))
}
# How many examples a property wants relative to the profile's own number.
MORE = settings(max_examples=settings().max_examples * 6)


@pytest.mark.parametrize("name", PASSES)
@given(graph=fusible_graphs())
@settings(max_examples=settings().max_examples * 2)
def test_each_pass_preserves(name: str, graph: Graph):
    check_passes(graph, PASSES[name])


@given(graph=fusible_graphs())
@MORE
def test_pipeline_preserves_and_settles(graph: Graph):
    after = check(graph, lambda g: optimize(g, pipeline(), verify_each=True))
    check_split(after)
    assert not optimize(graph, pipeline(), verify_each=True).unsettled


@given(graph=graphs())
@MORE
def test_pipeline_preserves_any_graph(graph: Graph):
    after = check(graph, lambda g: optimize(g, pipeline(), verify_each=True))
    check_split(after)


@given(graph=fusible_graphs())
@MORE
def test_a_second_run_finds_nothing(graph: Graph):
    optimize(graph, pipeline())
    optimize(graph, pipeline())  # what the late passes uncover for the early ones
    assert not optimize(graph, pipeline()).changed


@given(graph=fusible_graphs())
@settings(max_examples=settings().max_examples * 2)
def test_split_without_passes(graph: Graph):
    check_split(graph)
