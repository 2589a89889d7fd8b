"""Graphs on two devices: right results wherever nodes go, and a plan that says where and why.

The second device is the interpreter, at costs that the tests make up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_records import array_of
from random_graphs import graphs

from ngraph_mxnet.base.errors import ConfigError, PackageError, UnsupportedError
from ngraph_mxnet.ir import Builder, Graph, print_graph
from ngraph_mxnet.ir.graph import Node, node_cost
from ngraph_mxnet.ir.types import Role
from ngraph_mxnet.program.backend import DeviceCosts, load
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.program.package import Package
from ngraph_mxnet.targets.hybrid.backend import HybridBackend, HybridExecutable
from ngraph_mxnet.targets.interpreter import InterpreterBackend, InterpreterExecutable

PAIR = ("CPU", "INTERPRETER")


Seconds = Callable[[Node], float]


def costs(cpu: Seconds, other: Seconds, transfer: float = 0.0) -> dict[str, DeviceCosts]:
    """`transfer`: seconds a byte."""
    return {"CPU": DeviceCosts(cpu, 0.0, None, "made up"),
            "INTERPRETER": DeviceCosts(other, 0.0, (lambda t: transfer * t.bytes) if transfer else None, "made up")}


def place(graph: Graph, made_up: dict[str, DeviceCosts], **options: Any) -> HybridExecutable:
    options = {"devices": PAIR, "costs": made_up, **options}
    return HybridBackend().compile(graph.clone(), options)


def scattered(seed: int) -> dict[str, DeviceCosts]:
    """Costs at random, so that nodes go everywhere."""
    rng = np.random.default_rng(seed)
    known: dict[tuple[Node, int], float] = {}
    return costs(*(lambda node, d=device: known.setdefault((node, d), rng.uniform(1, 2)) for device in (0, 1)))


def arrays_for(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [array_of(p.type, rng) for p in graph.parameters]


def check(graph: Graph, found: HybridExecutable, arrays: list[np.ndarray]) -> None:
    found.module.verify()
    expected = compile(graph, "INTERPRETER")(*arrays)
    for one, other in zip(found(*arrays), expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        error = 4e-3 if one.dtype == np.float16 else 1e-4
        scale = np.abs(other[np.isfinite(other)].astype(np.float64)).max(initial=1.0)
        np.testing.assert_allclose(one, other, error, error * scale, err_msg=print_graph(graph))


@settings(max_examples=30)
@given(graphs(), st.integers(0, 1000), st.booleans())
def test_random_graphs_in_pieces(graph: Graph, seed: int, overlap: bool):
    for parameter in graph.parameters[1::2]:
        parameter.role = Role.WEIGHT
    check(graph, place(graph, scattered(seed), overlap=overlap), arrays_for(graph, seed))


def net() -> Graph:
    b = Builder(name="net")
    x = b.parameter("x", (2, 3, 12, 12))
    for number, channels in enumerate((8, 8)):
        b.origin = f"mx:conv{number} Convolution"
        w = b.weight(f"w{number}", (channels, x.shape[1], 3, 3))
        x = b.convolution(x, w, pads_begin=(1, 1), pads_end=(1, 1))
        b.origin = f"mx:act{number} Activation"
        x = b.sigmoid(x)
    b.origin = "mx:flat Flatten"
    x = b.reshape(x, shape=(2, 8 * 144))
    b.origin = "mx:fc Dense"
    return b.results(b.softmax(b.matmul(x, b.weight("w", (5, 8 * 144)), transpose_b=True), axis=-1))


def contractions_away(transfer: float = 0.0) -> dict[str, DeviceCosts]:
    """Contractions are fast on the second device, all else on the CPU."""
    return costs(lambda n: 10.0 if node_cost(n).macs else 1.0, lambda n: 1.0 if node_cost(n).macs else 10.0, transfer)


def test_nodes_go_where_they_are_fast():
    found = place(net(), contractions_away())
    devices = {node.op: node.device for node in found.plan.nodes}
    assert (devices["convolution"], devices["matmul"]) == ("INTERPRETER", "INTERPRETER")
    assert (devices["sigmoid"], devices["softmax"]) == ("CPU", "CPU")
    assert found.plan.seconds < min(found.plan.alone)
    check(net(), found, arrays_for(net()))
    assert not any(parameter.is_weight for part in found.module.graphs.values() for parameter in part.parameters
                   if not parameter.name.startswith("w"))


def test_packages_hold_the_plan():
    graph, found = net(), place(net(), contractions_away(), pins={"conv0": "CPU", "nothing*": "CPU"})
    again = load(Package.from_bytes(found.package().to_bytes()))
    assert isinstance(again, HybridExecutable)
    assert str(again.plan) == str(found.plan) and again.plan.to_dict() == found.plan.to_dict()
    assert (again.plan.svg(), again.devices) == (found.plan.svg(), found.devices)
    assert again.module.flow == found.module.flow and again.simulate() is again.plan
    check(graph, again, arrays_for(graph))


@pytest.mark.parametrize("change", [
    lambda s: s.update(devices=[0]), lambda s: s.update(devices=[9] * len(s["devices"])), lambda s: s.pop("plan"),
    lambda s: s["plan"].pop("graph"), lambda s: s["plan"]["nodes"].append(99), lambda s: s["plan"].update(problem=[]),
    lambda s: s["plan"]["placement"][1][0].pop(), lambda s: s["plan"].update(graph=7),
])
def test_damaged_packages_are_refused(change: Callable[[dict[str, Any]], None]):
    package = Package.from_bytes(place(net(), contractions_away()).package().to_bytes())
    change(package.settings)  # type: ignore[arg-type]
    with pytest.raises(PackageError):
        load(package)


def test_weights_stay_weights():
    """They are prepared in their region, again when they change."""
    graph = net()
    found, arrays = place(graph, contractions_away()), arrays_for(graph)
    for factor in (1, -1):
        arrays[2] *= factor
        check(graph, found, arrays)
    names = {p.name for part in found.module.graphs.values() for p in part.parameters if p.is_weight}
    assert names == {"w0", "w1", "w"}


def test_dear_transfers_keep_all_on_one_device():
    found = place(net(), contractions_away(transfer=1.0))
    assert {node.device for node in found.plan.nodes} == {"CPU"}
    assert not found.plan.transfers
    assert found.native is not None  # MXNet calls the CPU's program itself
    assert "all on CPU is fastest" in str(found.plan)
    check(net(), found, arrays_for(net()))


def test_shared_memory_saves_copies():
    found = place(net(), contractions_away(transfer=1.0), shared_memory=1)
    assert len({node.device for node in found.plan.nodes}) == 2
    shared = found.plan.to_dict()["shared"]
    assert shared["tensors"] == len(found.plan.transfers) > 0
    assert shared["bytes"] == sum(t.bytes for t in found.plan.transfers) == shared["seconds"]
    assert "which saved" in str(found.plan)


@pytest.mark.parametrize("pins", [{"conv0": "CPU"}, "conv0=cpu", {"mx:conv0 *": "CPU"}])
def test_pins_are_kept(pins: Any):
    found = place(net(), contractions_away(), pins=pins)
    where = {node.name: (node.device, node.why) for node in found.plan.nodes}
    assert where["conv0"] == ("CPU", "pinned by the user")
    assert where["conv1"][0] == "INTERPRETER"
    check(net(), found, arrays_for(net()))


def test_a_pinned_node_does_not_become_part_of_another():
    """The activation would be the convolution's clamp."""
    b = Builder(name="clamp")
    x, w = b.parameter("x", (1, 3, 4, 4)), b.weight("w", (4, 3, 1, 1))
    b.origin = "mx:conv Convolution"
    y = b.convolution(x, w)
    b.origin = "mx:act Activation"
    graph = b.results(b.relu(y))
    assert [node.op for node in place(graph, contractions_away()).plan.nodes] == ["convolution"]
    found = place(graph, contractions_away(), pins={"act": "CPU"})
    assert {node.op: node.device for node in found.plan.nodes} == {"convolution": "INTERPRETER", "relu": "CPU"}
    check(graph, found, arrays_for(graph))


def test_wrong_pins_are_told():
    with pytest.raises(ConfigError, match="'conv0' is pinned to 'GPU', expected one of CPU, INTERPRETER"):
        place(net(), contractions_away(), pins={"conv0": "GPU"})
    with pytest.raises(ConfigError, match="option pins: found 'conv0', expected PATTERN=DEVICE"):
        place(net(), contractions_away(), pins="conv0")
    found = place(net(), contractions_away(), pins={"nothing*": "CPU"})
    assert "no node here is called 'nothing*'" in str(found.plan)


def test_both_devices_work_at_once():
    """Two branches, each on its device: each waits until the other has begun."""
    b = Builder(name="branches")
    x = b.parameter("x", (4,))
    b.origin = "mx:left Op"
    left = b.exp(x)
    b.origin = "mx:right Op"
    right = b.tanh(x)
    b.origin = "mx:join Op"
    graph = b.results(b.add(left, right))
    pins = {"left": "CPU", "right": "INTERPRETER"}
    found = place(graph, costs(lambda n: 1.0, lambda n: 1.0), pins=pins)
    assert found.plan.overlaps
    meet = threading.Barrier(2, timeout=20)

    def meeting(run: Callable[..., Any]) -> Callable[..., Any]:
        def call(arrays: list[np.ndarray]) -> Any:
            meet.wait()
            return run(arrays)
        return call

    for call in found.session.calls[:2]:
        call.executable.run = meeting(call.executable.run)  # type: ignore[method-assign]
    check(graph, found, arrays_for(graph))
    assert not place(graph, costs(lambda n: 1.0, lambda n: 1.0), pins=pins, overlap=0).plan.overlaps


def test_calls_from_several_threads():
    graph = net()
    found, inputs = place(graph, scattered(3)), [arrays_for(graph, seed) for seed in range(6)]
    alone = [found(*arrays) for arrays in inputs]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda arrays: found(*arrays), inputs * 3))
    for one, other in zip(together, alone * 3, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


class Failing(InterpreterExecutable):
    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        raise ZeroDivisionError


@pytest.mark.parametrize("failing", ["left", "right"])
def test_a_failing_device_does_not_hold_the_other(own_backend: Callable[..., None], failing: str):
    own_backend(InterpreterBackend, compile=lambda self, graph, options: Failing(graph))
    b = Builder(name="failing")
    x = b.parameter("x", (4,))
    b.origin = "mx:left Op"
    left = b.exp(x)
    b.origin = "mx:right Op"
    right = b.tanh(x)
    graph = b.results(b.add(left, right), b.subtract(right, left))
    on = {"left": "CPU", "right": "INTERPRETER", failing: "OWN"}
    even = dict.fromkeys(on.values(), DeviceCosts(lambda n: 1.0, 0.0, None, "made up"))
    found = place(graph, even, devices=tuple(on.values()), pins=on)
    with pytest.raises(ZeroDivisionError):
        found(*arrays_for(graph))


def test_results_that_no_device_computes():
    """Parameters, weights' expressions, constants, and values that are returned twice."""
    b = Builder(name="odd")
    x, w = b.parameter("x", (3,)), b.weight("w", (3,))
    y = b.relu(x)
    graph = b.results(x, w, b.exp(w), b.constant(np.ones(2, np.float32)), y, y)
    found = place(graph, scattered(1))
    arrays = arrays_for(graph)
    check(graph, found, arrays)
    everything = [*arrays, *found(*arrays), *found(*arrays)]
    for i, one in enumerate(everything):
        assert not any(np.shares_memory(one, other) for other in everything[:i])


class Half(InterpreterBackend):
    """Runs exp alone."""

    name = "HALF"

    def supports(self, node: Node) -> str | None:
        return None if node.op.name in ("exp", "constant") else "it is too hard"

    def compile(self, graph: Graph, options: Any) -> InterpreterExecutable:
        self.require_support(graph)
        return super().compile(graph, options)


def test_what_a_device_does_not_run(register: Callable[..., None], own_backend: Callable[..., None]):
    """Verdicts hold of nodes, and of what prepares their weights."""
    register("HALF", f"{__name__}:Half")
    b = Builder(name="half")
    x, w = b.parameter("x", (3,)), b.weight("w", (3,))
    graph = b.results(b.exp(b.tanh(b.exp(x))), b.exp(b.add(x, b.tanh(w))))
    zero = {"CPU": DeviceCosts(lambda n: 1.0, 0.0, None, "made up"),
            "HALF": DeviceCosts(lambda n: 0.1, 0.0, None, "made up")}
    found = place(graph, zero, devices="CPU,HALF")
    why = {(node.op, node.device): node.why for node in found.plan.nodes}
    assert set(why) == {("exp", "HALF"), ("tanh", "CPU"), ("add", "CPU")}
    assert why["tanh", "CPU"] == "HALF does not run it: it is too hard"
    check(graph, found, arrays_for(graph))
    own_backend(InterpreterBackend, supports=lambda self, node: "no" if node.op.name == "tanh" else None)
    with pytest.raises(UnsupportedError, match="does not run tanh: HALF: it is too hard; OWN: no"):
        place(graph, zero | {"OWN": zero["HALF"]}, devices=("HALF", "OWN"))


def test_the_cpus_costs_are_modelled_or_measured():
    graph = net()
    for kind in ("modelled", "measured"):
        made_up = contractions_away()
        del made_up["CPU"]
        found = place(graph, made_up, cpu_costs=kind)
        assert found.plan.kinds == (kind, "made up")
        assert 1e-6 < found.plan.alone[0] < 0.1
        check(graph, found, arrays_for(graph))
    with pytest.raises(ConfigError, match="nothing is known of what nodes cost on INTERPRETER"):
        place(graph, {})
    with pytest.raises(ConfigError, match="found 'guessed', expected modelled or measured"):
        place(graph, made_up, cpu_costs="guessed")


def test_options_are_passed_on():
    with pytest.raises(ConfigError, match="backend INTERPRETER has no option precision"):
        place(net(), contractions_away(), interpreter_precision="f16")
    with pytest.raises(ConfigError, match="backend HYBRID has no option speed"):
        place(net(), contractions_away(), speed=2)
    with pytest.raises(ConfigError, match="expected two backends"):
        place(net(), contractions_away(), devices="CPU")
    found = place(net(), contractions_away(), cpu_threads=1)
    assert {call.executable.settings.threads for call in found.session.calls if call.lane == 0} == {1}


def test_plans_as_pictures_and_json():
    import json
    from xml.etree import ElementTree

    plan = place(net(), contractions_away(transfer=1e-6)).plan
    found = json.loads(json.dumps(plan.to_dict()))
    assert len(found["nodes"]) == len(plan.nodes)
    assert [node["device"] for node in found["nodes"]] == [plan.devices[d] for d in plan.placement.devices]
    assert found["predicted_seconds"] == plan.seconds
    assert sum(len(region["nodes"]) for region in found["regions"]) == len(plan.nodes)
    for picture in (plan.svg(), plan.timeline_svg()):
        root = ElementTree.fromstring(picture)
        text = " ".join(root.itertext())
        assert all(kind in text for kind in plan.kinds)
        assert text.count("conv0") + text.count("region 1") > 0
    boxes = list(ElementTree.fromstring(plan.svg()).iter("{http://www.w3.org/2000/svg}rect"))
    looks = {node.device for node in plan.nodes}
    assert len(boxes) == len(plan.nodes) + len(looks) + 1  # the legend's, and the ground
