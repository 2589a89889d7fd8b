"""The serial placement is the best of all."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from problems import all_placements, problems, serial_costs

from ngraph_mxnet.targets.hybrid.search import Item, Problem, Tensor, serial_placement


@settings(max_examples=60, deadline=None)
@given(problems())
def test_no_placement_is_better(problem: Problem):
    placements = all_placements(len(problem.items))
    costs = serial_costs(problem, placements)
    found = serial_placement(problem)
    assert problem.allowed(found)
    assert problem.serial_seconds(found) == pytest.approx(costs.min(), rel=1e-9, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(problems(most=5))
def test_the_cost_is_as_defined(problem: Problem):
    placements = all_placements(len(problem.items))
    for placement, cost in zip(placements, serial_costs(problem, placements), strict=True):
        assert problem.serial_seconds(placement.tolist()) == pytest.approx(cost)


def test_a_tensor_crosses_once_for_all_its_readers():
    """Each of two readers gains less than a crossing, both together gain more."""
    items = (Item("a", (0, math.inf)), Item("b", (3, 1)), Item("c", (3, 1)))
    shared = Tensor("t", 0, (1, 2), 4, (3, 3))
    assert serial_placement(Problem(items, (shared,))) == [0, 1, 1]
    apart = (Tensor("t", 0, (1,), 4, (3, 3)), Tensor("u", 0, (2,), 4, (3, 3)))
    assert serial_placement(Problem(items, apart)) == [0, 0, 0]


def test_results_go_back_to_the_host_once():
    items = (Item("a", (5, 1)), Item("b", (1, 9)))
    tensor = Tensor("t", 0, (1,), 4, (3, 0), result=True)
    assert serial_placement(Problem(items, (tensor,))) == [1, 0]
    assert Problem(items, (tensor,)).serial_seconds([1, 0]) == 1 + 1 + 3


def test_what_is_equal_stays_with_the_host():
    assert serial_placement(Problem((Item("a", (1, 1)), Item("b", (0, 0))), ())) == [0, 0]


def test_a_launch_is_paid_once():
    items = (Item("a", (2, 0)), Item("b", (2, 0)))
    assert serial_placement(Problem(items, (), launch=(0, 3))) == [1, 1]
    assert serial_placement(Problem(items, (), launch=(0, 5))) == [0, 0]


def test_wrong_problems_are_refused():
    with pytest.raises(ValueError, match="no device can run b"):
        serial_placement(Problem((Item("b", (math.inf, math.inf)),), ()))
    with pytest.raises(ValueError, match="tensor t of item 1: found readers"):
        Problem((Item("a", (1, 1)), Item("b", (1, 1))), (Tensor("t", 1, (0,), 4, (0, 0)),))
    with pytest.raises(ValueError, match="negative"):
        Problem((Item("a", (1, -1)),), ())
