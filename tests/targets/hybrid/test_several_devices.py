"""More than two devices: placements no worse than is said, possible schedules, and right results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import all_placements, problems, serial_costs
from random_graphs import graphs
from test_hybrid_backend import arrays_for, check, net
from test_placement import check as check_schedule
from test_placement import placements

from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.ir import Graph
from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.program.backend import DeviceCosts
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.targets.hybrid.search import (
    Problem,
    form_regions,
    least_seconds,
    place,
    predict,
    schedule,
    serial_placement,
)
from ngraph_mxnet.targets.interpreter import InterpreterBackend

several = st.sampled_from((3, 4)).flatmap(lambda devices: problems(most=5, devices=devices))


@settings(max_examples=60, deadline=None)
@given(several)
def test_no_two_devices_alone_better_the_serial_placement(problem: Problem):
    everywhere = all_placements(len(problem.items), len(problem.launch))
    costs, found = serial_costs(problem, everywhere), serial_placement(problem)
    assert problem.allowed(found)
    mine = problem.serial_seconds(found)
    assert mine == pytest.approx(costs[(everywhere == found).all(axis=1)][0])
    for one in range(len(problem.launch)):
        for other in range(one):
            pair = np.isin(found, (one, other))
            moved = np.isin(everywhere, (one, other)) == pair
            near = (moved & ((everywhere == found) | pair)).all(axis=1)
            assert mine <= costs[near].min() * (1 + 1e-9) + 1e-12


@settings(max_examples=60, deadline=None)
@given(several, st.integers(0, 99), st.sampled_from(("fewest", "phases")), st.booleans())
def test_schedules_are_possible(problem: Problem, seed: int, forming: Any, overlap: bool):
    placement = [choices[seed % len(choices)] for choices in map(problem.choices, range(len(problem.items)))]
    placement = placement if seed % 2 else placements(problem, seed)
    if not problem.allowed(placement):
        return
    found = schedule(problem, placement, forming, overlap=overlap)
    check_schedule(problem, placement, found, overlap)
    assert found.seconds >= least_seconds(problem, placement) * (1 - 1e-9)
    assert len(set(form_regions(problem, placement, "fewest"))) <= len(placement)


@settings(max_examples=15, deadline=None)
@given(several)
def test_small_problems_are_solved_exactly(problem: Problem):
    found = place(problem)
    allowed = [p for p in all_placements(len(problem.items), len(problem.launch)).tolist() if problem.allowed(p)]
    assert found.method == "all placements tried"
    assert found.seconds == min(predict(problem, p).seconds for p in allowed)
    assert found.seconds <= min(found.alone)


class Second(InterpreterBackend):
    name = "SECOND"


DEVICES = ("CPU", "INTERPRETER", "SECOND")


@pytest.fixture(autouse=True)
def second(register: Callable[..., None]) -> None:
    register("SECOND", f"{__name__}:Second")


def scattered(seed: int) -> dict[str, DeviceCosts]:
    rng = np.random.default_rng(seed)
    known: dict[tuple[Node, str], float] = {}

    def seconds(device: str) -> Any:
        return lambda node: known.setdefault((node, device), rng.uniform(1, 2))

    return {name: DeviceCosts(seconds(name), 0.0, lambda type_: 1e-3, "made up") for name in DEVICES}


@settings(max_examples=15, deadline=None)
@given(graph=graphs(), seed=st.integers(0, 1000), overlap=st.booleans())
def test_random_graphs_in_pieces(graph: Graph, seed: int, overlap: bool):
    found = compile(graph, "HYBRID", devices=DEVICES, costs=scattered(seed), overlap=int(overlap))
    check(graph, found, arrays_for(graph, seed))


def test_all_work_on_one_graph():
    graph, pins = net(), {"conv0": "CPU", "conv1": "SECOND", "act*": "INTERPRETER"}
    found = compile(graph, "HYBRID", devices="CPU,INTERPRETER,SECOND", costs=scattered(1), pins=pins)
    plan = found.plan
    assert {plan.devices[device] for device in found.devices} == set(DEVICES)
    check(graph, found, arrays_for(graph))
    text = str(plan)
    assert all(f"all on {name}" in text and f"nodes on {name}" in text for name in DEVICES)
    assert [len(node["seconds"]) for node in plan.to_dict()["nodes"]] == [3] * len(plan.nodes)
    assert all(f"to {name}" in plan.timeline_svg() for name in DEVICES) and "conv1" in plan.svg()


@pytest.mark.parametrize("devices", ["CPU", "CPU,NNP,cpu", (), 7])
def test_devices_are_named_once_each(devices: Any):
    with pytest.raises(ConfigError, match="expected two backends or more, each once"):
        compile(net(), "HYBRID", devices=devices)
