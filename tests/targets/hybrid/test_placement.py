"""Schedules are possible ones, and placements as good as is said."""

from __future__ import annotations

import itertools
import math
import random

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import all_placements, problems

from ngraph_mxnet.targets.hybrid.search import (
    HOST,
    MOST_ENUMERATED,
    Item,
    Problem,
    Schedule,
    Tensor,
    enumerate_all,
    form_regions,
    least_seconds,
    place,
    predict,
    schedule,
    search,
    serial_placement,
)


def placements(problem: Problem, seed: int) -> list[int]:
    choose = random.Random(seed)
    return [choose.randrange(len(problem.launch)) for _ in problem.items]


def check(problem: Problem, placement: list[int], found: Schedule, overlap: bool) -> None:
    """The schedule computes everything once, where it is placed, and nothing before what it needs is there."""
    assert sorted(item for region in found.regions for item in region.items) == list(range(len(placement)))
    region_of = {item: n for n, region in enumerate(found.regions) for item in region.items}
    for region in found.regions:
        assert {placement[item] for item in region.items} == {region.device}
    ends = {span.what: span.end for span in found.spans}
    begins = {span.what: span.begin for span in found.spans}
    assert len(ends) == len(found.spans) == len(found.regions) + len(problem.crossings(placement))
    for crossing in problem.crossings(placement):
        tensor = problem.tensors[crossing.tensor]
        assert ends[crossing] - begins[crossing] == pytest.approx(problem.crossing_seconds(crossing))
        if tensor.producer is not None:
            assert begins[crossing] >= ends[region_of[tensor.producer]]
        for reader in tensor.readers:
            if placement[reader] == crossing.to:
                assert begins[region_of[reader]] >= ends[crossing]
    for tensor in problem.tensors:
        for reader in tensor.readers:
            here = region_of.get(tensor.producer)
            if here is not None and here != region_of[reader]:
                assert begins[region_of[reader]] >= ends[here]
    assert found.seconds == max(ends.values(), default=0.0)
    for number, region in enumerate(found.regions):
        costs = [problem.items[item].seconds[region.device] for item in region.items]
        assert ends[number] - begins[number] == pytest.approx(sum(costs) + problem.launch[region.device])
    for one, other in itertools.combinations(found.spans, 2):
        if not overlap or _resource(found, one.what) == _resource(found, other.what):
            assert one.end <= other.begin or other.end <= one.begin


def _resource(found: Schedule, what) -> tuple[str, int]:
    return ("device", found.regions[what].device) if isinstance(what, int) else ("link", what.to)


@settings(max_examples=80)
@given(problems(pins=False), st.integers(0, 99), st.sampled_from(("fewest", "phases")), st.booleans())
def test_schedules_are_possible(problem: Problem, seed: int, forming, overlap: bool):
    placement = placements(problem, seed)
    found = schedule(problem, placement, forming, overlap=overlap)
    check(problem, placement, found, overlap)
    launches = [problem.launch[region.device] for region in found.regions]
    once = sum(problem.launch[device] for device in set(placement))
    serial = problem.serial_seconds(placement) + sum(launches) - once
    assert found.seconds == pytest.approx(serial) if not overlap else found.seconds <= serial * (1 + 1e-9) + 1e-12
    assert found.seconds >= least_seconds(problem, placement) * (1 - 1e-9)


@settings(max_examples=50)
@given(problems(pins=False), st.integers(0, 99))
def test_there_are_as_few_regions_as_can_be(problem: Problem, seed: int):
    """Of all partitions in convex groups: on some path so many groups follow each other."""
    placement = placements(problem, seed)
    length = [1] * len(placement)
    for item, read in enumerate(problem.sources):
        length[item] = max([1, *(length[s] + (placement[s] != placement[item]) for s in read)])
    least = max(length, default=0)
    regions = len(set(form_regions(problem, placement, "fewest")))
    # One more if paths of that length begin on either device.
    longest = {(placement[item] + n) % 2 for item, n in enumerate(length) if n == least}
    assert regions == least + (len(longest) > 1)


@settings(max_examples=50)
@given(problems(pins=False), st.integers(0, 99))
def test_regions_by_phases_are_connected(problem: Problem, seed: int):
    numbers = form_regions(problem, placements(problem, seed), "phases")
    near = networkx.Graph()
    near.add_nodes_from(range(len(numbers)))
    near.add_edges_from((a, b) for b, read in enumerate(problem.sources) for a in read if numbers[a] == numbers[b])
    assert networkx.number_connected_components(near) == len(set(numbers))


@settings(max_examples=25)
@given(problems(most=8))
def test_small_problems_are_solved_exactly(problem: Problem):
    check_exact(problem)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.booleans().flatmap(lambda pins: problems(most=12, pins=pins)))
def test_problems_of_twelve_items_are_solved_exactly(problem: Problem):
    check_exact(problem)


def check_exact(problem: Problem) -> None:
    """Both models against all placements."""
    found = place(problem)
    check(problem, list(found.devices), found.schedule, overlap=True)
    allowed = [p for p in all_placements(len(problem.items)).tolist() if problem.allowed(p)]
    assert found.method == "all placements tried"
    assert found.seconds == min(predict(problem, p).seconds for p in allowed)
    assert found.serial == pytest.approx(min(map(problem.serial_seconds, allowed)), rel=1e-9, abs=1e-12)


@settings(max_examples=30)
@given(problems(), st.booleans())
def test_never_slower_than_one_device_or_the_serial_optimum(problem: Problem, overlap: bool):
    found = place(problem, overlap=overlap)
    assert problem.allowed(found.devices)
    assert found.seconds <= min(found.alone)
    for device, seconds in enumerate(found.alone):
        everywhere = [device] * len(problem.items)
        assert math.isfinite(seconds) == problem.allowed(everywhere)
        if problem.items and math.isfinite(seconds) and not overlap:
            assert seconds == pytest.approx(problem.serial_seconds(everywhere))


@settings(max_examples=30)
@given(problems())
def test_repeated_launches_are_all_that_serial_execution_takes_beyond_the_optimum(problem: Problem):
    cut = serial_placement(problem)
    regions = predict(problem, cut, overlap=False).schedule.regions
    launches = sum(problem.launch[region.device] for region in regions)
    repeated = launches - sum(problem.launch[device] for device in set(cut))
    found = place(problem, overlap=False)
    assert found.serial * (1 - 1e-9) <= found.seconds <= (found.serial + repeated) * (1 + 1e-9)


@settings(max_examples=15)
@given(problems(most=9))
def test_the_local_search_never_loses(problem: Problem):
    start = predict(problem, place(problem, overlap=False).devices)
    found = search(problem, start)
    assert enumerate_all(problem, start).seconds <= found.seconds <= start.seconds
    check(problem, list(found.placement), found.schedule, overlap=True)


def branches(pairs: int, length: int) -> Problem:
    """Pairs of equal chains side by side, joined at the end; either device is equally fast."""
    items = [Item(f"{chain}.{place}", (1.0, 1.0)) for chain in range(2 * pairs) for place in range(length)]
    tensors = [Tensor("in", None, tuple(chain * length for chain in range(2 * pairs)), 4, (0.1, 0.1))]
    join = len(items)
    for number in range(join):
        last = number % length == length - 1
        tensors.append(Tensor(str(number), number, (join if last else number + 1,), 4, (0.1, 0.1)))
    items.append(Item("join", (0.0, math.inf)))
    return Problem(tuple(items), (*tensors, Tensor("out", join, (), 4, (0.1, 0.1), result=True)))


def test_a_large_problem_uses_both_devices():
    """Serial execution leaves all with the host; overlap halves the time but for the crossings."""
    problem = branches(pairs=2, length=8)
    assert 2 ** len(problem.free()) > MOST_ENUMERATED
    assert set(place(problem, overlap=False).devices) == {HOST}
    found = place(problem)
    assert found.method == "local search"
    assert 16 < found.seconds < 16.5 < found.alone[HOST] == 32


def test_phases_let_the_other_device_begin_early():
    """One host chain feeds the device and goes on by itself: in one region, the device would wait for all of it."""
    items = (Item("first", (1, math.inf)), Item("long", (9, math.inf)), Item("other", (math.inf, 9)),
             Item("join", (1, math.inf)))
    tensors = (Tensor("a", 0, (1, 2), 4, (0, 0)), Tensor("b", 1, (3,), 4, (0, 0)), Tensor("c", 2, (3,), 4, (0, 0)),
               Tensor("d", 3, (), 4, (0, 0), result=True))
    found = place(Problem(items, tensors))
    assert found.seconds == 11
    assert [region.items for region in found.regions] == [(0,), (1,), (2,), (3,)]
    assert place(Problem(items, tensors), overlap=False).seconds == 20
