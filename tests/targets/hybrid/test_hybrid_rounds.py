"""Localised costs: what is compiled tells the search what its regions take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.ir.graph import Node, node_cost
from ngraph_mxnet.program.backend import DeviceCosts, load
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.program.executable import Executable
from ngraph_mxnet.program.package import Package
from ngraph_mxnet.targets.hybrid.backend import HybridBackend, HybridExecutable, simulate_call

Compiled = Callable[[Graph, Executable], float | None]


def chain(length: int = 6) -> Graph:
    """Products and sigmoids in turn."""
    b = Builder(name="chain")
    x = b.parameter("x", (8, 8))
    for number in range(length):
        b.origin = f"mx:{number} Op"
        x = b.sigmoid(x) if number % 2 else b.matmul(x, b.weight(f"w{number}", (8, 8)))
    return b.results(x)


def placed(compiled: Compiled | None, graph: Graph | None = None, cpu: Compiled | None = None,
           **options: Any) -> HybridExecutable:
    """Products take 4 s on the CPU and 1 s on the other device, sigmoids the reverse; a transfer takes 0.1 s."""

    def seconds(dear: bool) -> Callable[[Node], float]:
        return lambda node: 4.0 if bool(node_cost(node).macs) == dear else 1.0

    costs = {"CPU": DeviceCosts(seconds(True), 0.0, None, "made up", compiled=cpu),
             "INTERPRETER": DeviceCosts(seconds(False), 0.0, lambda _: 0.1, "made up", compiled=compiled)}
    options = {"devices": ("CPU", "INTERPRETER"), "costs": costs, **options}
    return HybridBackend().compile(graph or chain(), options)


def nodes_of(graph: Graph) -> list[float]:
    """The seconds of each node by itself on the other device, what prepares weights aside."""
    return [1.0 if node_cost(node).macs else 4.0 for node in graph.nodes if node.op.name != "constant"]


def test_nothing_is_known_of_what_tells_nothing():
    plan = placed(None).plan
    assert plan.simulated_seconds is None and not plan.simulated
    assert plan.to_dict()["simulated_seconds"] is None


def test_times_that_are_as_predicted_change_nothing():
    predicted = placed(None).plan
    plan = placed(lambda graph, _: sum(nodes_of(graph)) + 0.1 * (len(graph.results) + 1)).plan
    assert plan.placement.devices == predicted.placement.devices
    assert plan.simulated_seconds == pytest.approx(predicted.seconds)
    assert plan.seconds == pytest.approx(predicted.seconds)
    assert plan.placement.method != "simulation of what was compiled"


def test_regions_that_take_long_are_given_up():
    """By themselves the products are faster there; a region starts for 9 s, so that all on the CPU is better."""
    seen = []
    plan = placed(lambda graph, _: seen.append(len(graph.nodes)) or sum(nodes_of(graph)) + 9.0).plan
    assert set(plan.placement.devices) == {0}
    assert plan.simulated_seconds == plan.seconds == pytest.approx(15.0) == plan.alone[0]
    assert plan.alone[1] == pytest.approx(15.0 + 9.0)
    assert plan.placement.method == "simulation of what was compiled"
    assert len(seen) <= 5 * 3 + 1  # each region once


def test_one_region_is_better_than_many():
    """Values that stay on the device cost nothing there."""
    plan = placed(lambda graph, _: 0.25 * len(nodes_of(graph)) + 2.0).plan
    assert set(plan.placement.devices) == {1}
    assert plan.simulated_seconds == pytest.approx(0.25 * 6 + 2.0) == plan.alone[1]
    assert plan.seconds == pytest.approx(plan.simulated_seconds)


def test_both_devices_tell_and_the_best_counts():
    rng = np.random.default_rng(5)
    for _ in range(12):
        ratios = rng.uniform(0.2, 5, 2)
        own: list[Compiled] = [lambda graph, _, r=r, s=s: float(r * len(graph.nodes) + s)  # type: ignore[misc]
                               for r, s in zip(ratios, rng.uniform(0, 3, 2), strict=True)]
        plan = placed(own[1], cpu=own[0]).plan
        alone = [placed(own[1], cpu=own[0], pins={"*": device}).plan.simulated_seconds
                 for device in ("CPU", "INTERPRETER")]
        assert plan.simulated_seconds is not None
        assert plan.simulated_seconds <= min(one for one in alone if one is not None) * (1 + 1e-9)
        assert plan.seconds == pytest.approx(plan.simulated_seconds, rel=0.1)


def test_devices_at_once():
    """Two branches, each with its region: the call is as long as the longer one."""
    b = Builder(name="branches")
    x = b.parameter("x", (8, 8))
    b.origin = "mx:left Op"
    left = b.matmul(x, x)
    b.origin = "mx:right Op"
    right = b.sigmoid(x)
    graph = b.results(left, right)
    plan = placed(lambda *_: 3.0, graph, cpu=lambda *_: 2.5, pins={"left": "INTERPRETER", "right": "CPU"}).plan
    assert plan.simulated_seconds == pytest.approx(3.0)
    assert [region.simulated_seconds for region in plan.regions if region.device == "CPU"] == [2.5]
    alike = placed(lambda *_: 3.0, graph, cpu=lambda *_: 2.5, overlap=0,
                   pins={"left": "INTERPRETER", "right": "CPU"}).plan
    assert alike.simulated_seconds == pytest.approx(5.5)


@pytest.mark.parametrize("pins", [{}, {"0": "INTERPRETER", "1": "CPU", "2": "INTERPRETER"}])
def test_the_rounds_and_a_simulated_call_are_one_schedule(pins: dict[str, str]):
    """Launches of each region among them; and the NNP's regions as parts of a Program."""
    told = placed(lambda graph, _: sum(nodes_of(graph)), pins=pins)
    assert simulate_call(told, told.plan.simulated).seconds == pytest.approx(told.plan.simulated_seconds)
    parts = compile(chain(), "HYBRID", pins={name: on.replace("INTERPRETER", "NNP") for name, on in pins.items()})
    assert isinstance(parts, HybridExecutable) and bool(parts.parts) == bool(pins)
    assert simulate_call(parts).seconds == pytest.approx(parts.plan.simulated_seconds)


def test_packages_keep_the_times():
    found = placed(lambda graph, _: sum(nodes_of(graph)) + 9.0, pins={"0": "INTERPRETER"})
    again = load(Package.from_bytes(found.package().to_bytes()))
    assert isinstance(again, HybridExecutable)
    assert again.plan.to_dict() == found.plan.to_dict() and again.plan.simulated_seconds is not None
    arrays = [np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32) for _ in found.inputs]
    for one, other in zip(again(*arrays), compile(chain(), "INTERPRETER")(*arrays), strict=True):
        np.testing.assert_allclose(one, other, 1e-4, 1e-4)


def test_the_nnp_and_measured_kernels(tmp_path, monkeypatch):
    """Measured once: a second plan is the same, to the last bit."""
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path))
    plans = [compile(chain(), "HYBRID", cpu_costs="measured").plan for _ in range(2)]
    assert plans[0].to_dict() == plans[1].to_dict()
    assert plans[0].kinds == ("measured", "simulated")
    for device in ("CPU", "NNP"):
        alone = compile(chain(), "HYBRID", cpu_costs="measured", pins={"*": device}).plan
        assert {region.device for region in alone.regions} == {device}
        assert None not in {region.simulated_seconds for region in alone.regions}
        assert alone.seconds == pytest.approx(alone.simulated_seconds)
        assert plans[0].simulated_seconds <= alone.simulated_seconds
    assert list((tmp_path / "kernels").iterdir())
