"""Regions of one NNP are parts of one call: values stay in the device, and times are those of the whole call."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_records import array_of
from random_graphs import graphs

from ngraph_mxnet.base.errors import ConfigError, PackageError, UnsupportedError
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.program.backend import DeviceCosts, load
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.program.package import Package
from ngraph_mxnet.targets.hybrid.backend import HybridExecutable, simulate_call
from ngraph_mxnet.targets.nnp.executable import NNPParts
from ngraph_mxnet.targets.nnp.program import parse_program, print_program

STEPS = ("floor", "argmax", "greater")
"""Where a number that is rounded otherwise gives quite another result."""
PINS = "conv*=NNP,add=NNP,act=CPU,last=CPU"


def net(channels: int = 32, size: int = 14) -> Graph:
    """conv0 is read by an activation and, past it, by the sum of the next region."""
    b = Builder(name="net")

    def conv(number: int, x: Any) -> Any:
        b.origin = f"onnx:conv{number} Conv"
        w = b.weight(f"w{number}", (channels, channels, 3, 3))
        y = b.convolution(x, w, pads_begin=(1, 1), pads_end=(1, 1))
        return b.multiply(y, b.constant(np.float32(0.05)))

    first = conv(0, b.parameter("x", (1, channels, size, size)))
    second = conv(1, first)
    b.origin = "onnx:act Sigmoid"
    gate = b.sigmoid(second)
    b.origin = "onnx:add Add"
    both = b.add(conv(2, gate), first)
    b.origin = "onnx:last Sigmoid"
    return b.results(b.sigmoid(both))


def arrays_for(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [array_of(p.type, rng) for p in graph.parameters]


def placed(graph: Graph, backend: str = "HYBRID", pins: str = PINS, **options: Any
           ) -> tuple[HybridExecutable, NNPParts]:
    found = compile(graph, backend, pins=pins, **options)
    assert isinstance(found, HybridExecutable)
    (parts,) = found.parts.values()
    assert isinstance(parts, NNPParts)
    return found, parts


def check(graph: Graph, found: list[np.ndarray], arrays: list[np.ndarray], error: float = 2e-2) -> None:
    for one, other in zip(found, compile(graph, "INTERPRETER")(*arrays), strict=True):
        scale = np.abs(other[np.isfinite(other)].astype(np.float64)).max(initial=1.0)
        np.testing.assert_allclose(one, other, error, error * scale)


def alone(found: HybridExecutable) -> float:
    """The seconds of the call if each region were compiled by itself, one region after the other."""
    steps = zip(found.module.flow.steps, found.plan.regions, strict=True)
    return sum(compile(found.module.graphs[step.graph], "NNP").simulated_seconds() if region.device == "NNP"
               else region.seconds for step, region in steps)


def test_a_value_stays_in_the_device():
    """What only later regions read does not cross the host's link, and the call is no slower."""
    graph = net()
    found, parts = placed(graph)
    assert [region.device for region in found.plan.regions] == ["NNP", "CPU", "NNP", "CPU"]
    whole = parts.whole
    assert [len(whole.inputs), len(whole.outputs)] == [2 + 3, 2]  # conv0's result is neither
    stored = {tile.memory for number in whole.program.part(1) for tile in whole.program.instructions[number].writes
              if whole.program.instructions[number].unit.endswith(".dma1")}
    assert "llc" in stored  # conv0's result, before the second region begins
    image, f16, f32 = 32 * 14 * 14, 2, 4
    assert host_bytes(parts) == image * (f16 + f32 + f16 + f32)  # inputs are f16, results f32
    times = simulate_call(found)
    assert times.seconds < alone(found)
    for seed in range(2):
        arrays = arrays_for(graph, seed)
        check(graph, found(*arrays), arrays)


def test_a_region_waits_for_its_inputs_whatever_becomes_of_weights():
    """Prepared weights are no inputs of the Program, whose inputs are then fewer than the graph's."""
    b = Builder(name="net")
    x = b.parameter("x", (1, 32, 14, 14))
    for number in range(2):
        b.origin = f"onnx:conv{number} Conv"
        w = b.weight(f"a{number}", (32, 32, 3, 3))
        x = b.multiply(b.convolution(x, w, pads_begin=(1, 1), pads_end=(1, 1)), b.constant(np.float32(0.05)))
    found = compile(b.results(x), "HYBRID", pins={"conv0": "CPU", "conv1": "NNP"})
    (begin, end), (start, stop) = simulate_call(found, {0: 1e-3}).regions
    cpu, nnp = found.plan.outline.problem.launch
    assert (begin, end) == (pytest.approx(cpu), pytest.approx(cpu + 1e-3)) and end + nnp <= start < stop


def test_regions_take_turns_in_the_simulated_call():
    """Each waits for what it reads and is then launched; the seconds of a region on the CPU may be given."""
    found, _ = placed(net())
    seconds = {1: 1e-3, 3: 2e-3}
    times = simulate_call(found, seconds)
    (_, a), (b, c), (d, e), (f, g) = times.regions
    cpu, nnp = found.plan.outline.problem.launch
    slack = 1 + 1e-9
    assert a + cpu <= b * slack and c + nnp <= d * slack and e + cpu <= f * slack and g == times.seconds
    assert c - b == pytest.approx(1e-3) and g - f == pytest.approx(2e-3)
    assert 3e-3 < times.seconds < 3e-3 + simulate_call(found).seconds  # what waits for no region goes on meanwhile
    plan = found.simulate()
    assert plan.simulated.keys() == {0, 2}
    events = json.loads(times.trace())["traceEvents"]
    assert sum(event["name"] == "meanwhile" for event in events) == 2 + 2  # regions on the CPU, starts of the NNP's
    assert json.loads(found.simulated_trace())["traceEvents"]


def test_a_package_has_the_parts():
    graph = net()
    found, parts = placed(graph)
    program = parts.whole.program
    assert len(program.begins) == 1 and parse_program(print_program(program)) == program
    again = load(Package.from_bytes(found.package().to_bytes()))
    assert isinstance(again, HybridExecutable)
    arrays = arrays_for(graph)
    assert np.array_equal(again(*arrays)[0], found(*arrays)[0])
    assert simulate_call(again).seconds == simulate_call(found).seconds
    assert "from instruction" in found.listing()


@pytest.mark.parametrize("change", [
    lambda s: s.pop("parts"), lambda s: s.update(parts=[]), lambda s: s["parts"][0].__setitem__(0, 7),
    lambda s: s["parts"][0][1]["settings"].update(arrivals=[0]),
    lambda s: s["parts"][0][1]["settings"].update(near=[[0]]),
    lambda s: s["parts"][0][1]["settings"]["versions"][0][1].update(
        program=s["parts"][0][1]["settings"]["versions"][0][1]["program"].replace("\npart ", "\npart 99999")),
])
def test_damaged_parts_are_refused(change: Callable[[dict[str, Any]], None]):
    package = Package.from_bytes(placed(net(8))[0].package().to_bytes())
    change(package.settings)  # type: ignore[arg-type]
    with pytest.raises(PackageError):
        load(package)


def test_two_simulated_devices():
    """One is simulated as a whole; the regions of the other take their time alone, and are steps of its call."""
    graph = net()
    found = compile(graph, "HYBRID:cpu,nnp,nnp:nnp-t-1400", pins="conv*=NNP,act=NNP:nnp-t-1400,last=CPU")
    assert isinstance(found, HybridExecutable) and len(found.parts) == 2
    arrays = arrays_for(graph)
    check(graph, found(*arrays), arrays, error=5e-2)  # bf16 has 8 bits
    times, plan = simulate_call(found), found.simulate()
    assert [plan.regions[number].device for number in plan.simulated] == ["NNP", "NNP:nnp-t-1400", "NNP"]
    (_, a), (b, c), (d, _), _ = times.regions
    assert a <= b < c <= d and plan.simulated[1] == pytest.approx(c - b)


def test_int8_is_calibrated_as_a_whole():
    """By samples or by the first call; before it there are no simulated times."""
    graph, arrays = net(), arrays_for(net())
    found, _ = placed(graph, nnp_precision="int8")
    with pytest.raises(ConfigError, match="int8 has no scales before the first call"):
        simulate_call(found)
    first = found(*arrays)
    check(graph, first, arrays, error=1e-1)
    told, parts = placed(graph, nnp_precision="int8", calibration=arrays)
    assert np.array_equal(told(*arrays)[0], first[0])
    assert parts.whole.version.quantization.products
    real, _ = placed(graph)
    assert simulate_call(told).seconds < simulate_call(real).seconds
    again = load(Package.from_bytes(told.package().to_bytes()))
    assert np.array_equal(again(*arrays)[0], first[0])


def test_calls_from_several_threads_and_other_weights():
    graph = net(8)
    found, _ = placed(graph)
    inputs = [arrays_for(graph, seed) for seed in range(4)]
    expected = [found(*arrays)[0] for arrays in inputs]
    check(graph, [expected[3]], inputs[3])
    with ThreadPoolExecutor(4) as pool:
        for one, other in zip(pool.map(lambda arrays: found(*arrays)[0], inputs * 2), expected * 2, strict=True):
            assert np.array_equal(one, other)


@pytest.mark.parametrize("overlap", [0, 1])
def test_two_towers(overlap: int):
    """They are simulated at once, but not without `overlap`."""
    b = Builder(name="towers")
    x = b.parameter("x", (1, 32, 28, 28))
    b.origin = "onnx:conv0 Conv"
    left = b.convolution(x, b.weight("w0", (32, 32, 3, 3)), pads_begin=(1, 1), pads_end=(1, 1))
    b.origin = "onnx:act Sigmoid"
    right = b.sigmoid(b.multiply(x, b.constant(np.float32(0.5))))
    graph = b.results(left, right)
    found, _ = placed(graph, overlap=overlap, costs={"CPU": DeviceCosts(lambda node: 1e-4, 0.0, None, "made up")})
    times = simulate_call(found, dict.fromkeys(range(len(found.plan.regions)), 1e-4))
    cpu = [span for span, region in zip(times.regions, found.plan.regions, strict=True) if region.device == "CPU"]
    nnp = [span for span, region in zip(times.regions, found.plan.regions, strict=True) if region.device == "NNP"]
    beside = any(a < d and c < b for a, b in cpu for c, d in nnp)
    assert beside == bool(overlap)
    arrays = arrays_for(graph)
    check(graph, found(*arrays), arrays)



def host_bytes(parts: NNPParts) -> int:
    """The bytes that the device's instructions read and write in the host's memory."""
    return sum(tile.bytes for one in parts.whole.program.instructions for tile in one.reads + one.writes
               if tile.memory == "host")


def test_the_chips_own_cores_need_no_copy():
    """Tensors between them and the engines stay in the device, and a call is no slower than with copies; same bits."""
    graph, pins = net(), PINS.replace("act=CPU", "act=NNP-IA")
    arrays, image = arrays_for(graph), 32 * 14 * 14
    times, results = [], []
    for shared, crossed in ((None, image * (2 + 4)), (0, image * (2 + 4 + 2 + 4))):
        options = {} if shared is None else {"shared_memory": shared}
        found, parts = placed(graph, "HYBRID:cpu,nnp,nnp-ia", pins, **options)
        assert [region.device for region in found.plan.regions] == ["NNP", "NNP-IA", "NNP", "CPU"]
        assert host_bytes(parts) == crossed
        times.append(simulate_call(found, {1: 1e-5, 3: 1e-5}).seconds)
        results.append(found(*arrays)[0])
        check(graph, results[-1:], arrays)
        again = load(Package.from_bytes(found.package().to_bytes()))
        assert np.array_equal(again(*arrays)[0], results[-1])
    assert times[0] < times[1] and np.array_equal(*results)
    assert found.plan.kinds == ("modelled", "simulated", "modelled")


@settings(max_examples=6)
@given(graphs(), st.integers(0, 1000))
def test_random_graphs_on_three_devices(graph: Graph, seed: int):
    """Sharing changes no bit of the results."""
    if any(node.op.name in STEPS for node in graph.nodes):
        return

    def scattered(name: str, **memory: str) -> DeviceCosts:
        return DeviceCosts(lambda node: 1 + crc32(f"{seed} {name} {node}".encode()) / 2**32, 0.0, None, "made up",
                           **memory)

    arrays, results = arrays_for(graph, seed), []
    for shared in ({}, {"memory": "chip"}):
        costs = {"CPU": scattered("CPU"), "NNP": scattered("NNP", **shared), "NNP-IA": scattered("NNP-IA", **shared)}
        found = compile(graph, "HYBRID:cpu,nnp,nnp-ia", costs=costs)
        results.append(found(*arrays))
    check(graph, results[0], arrays)
    assert all(np.array_equal(one, other, equal_nan=one.dtype.kind == "f") for one, other in zip(*results, strict=True))


@settings(max_examples=20)
@given(graphs())
def test_no_plan_is_slower_than_one_device(graph: Graph):
    """As simulated, where the CPU's regions take what its model says."""
    found = compile(graph, "HYBRID").plan.simulated_seconds
    for device in ("CPU", "NNP"):
        try:
            alone = compile(graph, "HYBRID", pins={"*": device}).plan.simulated_seconds
        except UnsupportedError:
            continue
        assert found is None or alone is None or found <= 1.02 * alone, device


def test_devices_without_cores():
    with pytest.raises(ConfigError, match="nnp-t-1400 has no cores of its own; such as have: nnp-i-1100"):
        compile(net(), "HYBRID:cpu,nnp:nnp-t-1400,nnp-ia:nnp-t-1400")
    with pytest.raises(ConfigError, match="NNP-IA can't share the host's memory: Intel's driver"):
        compile(net(), "HYBRID:cpu,nnp-ia", shared_memory=1)


def test_regions_of_the_cpu_pass_arrays_that_share_memory():
    """What one makes is what the next one reads, without a copy."""
    found, _ = placed(net(), "HYBRID", "conv0=CPU,conv1=CPU,act=NNP,conv2=CPU,add=CPU,last=CPU")
    read: list[np.ndarray] = []
    made: list[np.ndarray] = []

    def recording(call: Any) -> Any:
        run = call.executable.run

        def recorded(arrays: list[np.ndarray]) -> list[np.ndarray]:
            results = run(arrays)
            read.extend(arrays)
            made.extend(results)
            return results

        return recorded

    for call in found.session.calls:
        if call.lane == 0:
            call.executable.run = recording(call)
    assert sum(call.lane == 0 for call in found.session.calls) == 2
    found(*arrays_for(net()))
    first = made[:2]  # of conv0, which the other region of the CPU reads, and of conv1, which the NNP reads
    assert sum(np.shares_memory(one, other) for one in first for other in read) == 1
