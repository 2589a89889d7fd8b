"""The backend HYBRID as it is registered: on the CPU and the simulated NNP."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_records import array_of
from random_graphs import graphs

from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.ir import Builder, Graph, print_graph
from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.program.backend import DeviceCosts, get_backend
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.program.executable import InputError
from ngraph_mxnet.targets.hybrid.backend import simulate_call
from ngraph_mxnet.targets.nnp import backend as nnp_backend
from ngraph_mxnet.targets.nnp.device import load_device

STEPS = ("floor", "argmax", "greater")
"""Where a number that is rounded otherwise gives quite another result."""


def arrays_for(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [array_of(p.type, rng) for p in graph.parameters]


def check(graph: Graph, found: list[np.ndarray], arrays: list[np.ndarray], error: float = 2e-2) -> None:
    for one, other in zip(found, compile(graph, "INTERPRETER")(*arrays), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        scale = np.abs(other[np.isfinite(other)].astype(np.float64)).max(initial=1.0)
        np.testing.assert_allclose(one, other, error, error * scale, err_msg=print_graph(graph))


@settings(max_examples=8)
@given(graphs(), st.integers(0, 1000))
def test_random_graphs_in_pieces(graph: Graph, seed: int):
    if any(node.op.name in STEPS for node in graph.nodes):
        return
    rng = np.random.default_rng(seed)
    known: dict[tuple[Node, int], float] = {}

    def scattered(device: int) -> DeviceCosts:
        return DeviceCosts(lambda node: known.setdefault((node, device), rng.uniform(1, 2)), 0.0, None, "made up")

    found = compile(graph, "HYBRID", costs={"CPU": scattered(0), "NNP": scattered(1)})
    arrays = arrays_for(graph, seed)
    check(graph, found(*arrays), arrays)


def net(channels: int = 32) -> Graph:
    b = Builder(name="net")
    x = b.parameter("x", (1, channels, 28, 28))
    for number in range(3):
        b.origin = f"onnx:conv{number} Conv"
        w = b.weight(f"w{number}", (channels, channels, 3, 3))
        x = b.multiply(b.convolution(x, w, pads_begin=(1, 1), pads_end=(1, 1)), b.constant(np.float32(0.05)))
        b.origin = f"onnx:act{number} Sigmoid"
        x = b.sigmoid(x)
    return b.results(x)


def test_heavy_nodes_go_to_the_nnp():
    executable = compile(net(), "HYBRID")
    plan = executable.plan
    assert {node.device for node in plan.nodes if node.op.startswith("convolution")} == {"NNP"}
    assert plan.kinds == ("modelled", "simulated")
    assert plan.seconds <= min(plan.alone)
    arrays = arrays_for(net())
    check(net(), executable(*arrays), arrays)


def test_a_product_is_named():
    backend = get_backend("hybrid:NNP-T-1400")
    assert (backend.name, backend.devices) == ("HYBRID:nnp-t-1400", ("CPU", "NNP:nnp-t-1400"))
    executable = compile(net(), "HYBRID:nnp-t-1400", pins={"conv0": "CPU", "conv1": "nnp"})
    where = {node.name: node.device for node in executable.plan.nodes}
    assert (where["conv0"], where["conv1"]) == ("CPU", "NNP:nnp-t-1400")
    arrays = arrays_for(net())
    check(net(), executable(*arrays), arrays, error=5e-2)  # bf16 has 8 bits
    with pytest.raises(ConfigError, match="no device 'nnp-x'"):
        compile(net(), "HYBRID:nnp-x")


def test_int8_is_cheaper_and_calibrated_by_the_first_call():
    graph = net()
    pins = {f"conv{number}": "NNP" for number in range(3)} | {"act0": "CPU"}
    real, narrow = (compile(graph, "HYBRID", nnp_precision=precision, pins=pins) for precision in ("f16", "int8"))
    convolutions = [sum(n.seconds[1] for n in e.plan.nodes if "conv" in n.op) for e in (real, narrow)]
    assert convolutions[1] < convolutions[0]
    arrays = arrays_for(graph)
    check(graph, narrow(*arrays), arrays, error=1e-1)


def test_int8_is_calibrated_by_samples():
    """Scales come from the samples, not from a first call on other data; values between regions are passed on."""
    graph, arrays = net(16), arrays_for(net(16))
    options = {"nnp_precision": "int8", "pins": "conv*=NNP,act0=CPU,act1=NNP"}
    small = [arrays[0] * np.float32(1e-3), *arrays[1:]]
    found = []
    for samples in (arrays, [arrays], ()):
        executable = compile(graph, "HYBRID", calibration=samples, **options)
        executable(*small)
        found.append(executable(*arrays))
    check(graph, found[0], arrays, error=5e-2)
    assert np.array_equal(found[0][0], found[1][0])
    assert not np.array_equal(found[0][0], found[2][0])
    with pytest.raises(InputError, match="found a sample of 1 arrays, expected 4"):
        compile(graph, "HYBRID", calibration=[arrays[:1]], **options)


def test_a_precision_that_only_the_cpu_may_have(monkeypatch: pytest.MonkeyPatch):
    """The NNP then computes in its own; asked for by the option, it is refused."""
    arrays = arrays_for(net(16))
    expected = compile(net(16), "HYBRID", pins="conv*=NNP")(*arrays)
    monkeypatch.setenv("NGRAPH_PRECISION", "bf16")
    found = compile(net(16), "HYBRID", pins="conv*=NNP")(*arrays)
    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))
    with pytest.raises(ConfigError, match="found 'bf16', expected f16 or int8"):
        compile(net(16), "HYBRID", nnp_precision="bf16")


def test_what_f16_cannot_hold_stays_on_the_cpu():
    """Samples tell; without them the sum is infinite on the NNP."""
    b = Builder(name="sum")
    x = b.parameter("x", (64, 2048))
    b.origin = "onnx:sum ReduceSum"
    total = b.reduce_sum(x, axes=(1,))
    b.origin = "onnx:mean Mul"
    graph = b.results(b.multiply(total, b.constant(np.float32(1 / 2048))))
    arrays = [np.full((64, 2048), 50, np.float32)]
    dear = {"CPU": DeviceCosts(lambda node: 1.0, 0.0, None, "made up")}
    blind, told = (compile(graph, "HYBRID", costs=dear, calibration=samples) for samples in ((), arrays))
    assert {node.device for node in blind.plan.nodes} == {"NNP"}
    where = {node.name: (node.device, node.why) for node in told.plan.nodes}
    assert where["sum"][0] == where["mean"][0] == "CPU"
    assert where["sum"][1] == ("NNP does not run it: its numbers reach 1.02e+05 on the samples, f16 holds up to 65504")
    check(graph, told(*arrays), arrays, error=1e-5)
    pinned = compile(graph, "HYBRID", costs=dear, calibration=arrays, pins="sum=NNP")
    assert {node.name: node.device for node in pinned.plan.nodes}["sum"] == "NNP"


@pytest.mark.parametrize(("product", "reason"), [
    ("nnp-i-1100", "Intel's driver .* the device DRAM as well as the ICEs are not accessible from host CPU"),
    ("nnp-t-1400", "PCIe 4 copies")])
def test_memory_is_not_shared_over_pcie(product: str, reason: str):
    with pytest.raises(ConfigError, match=f"shared_memory: found 1, but NNP:{product} can't share .*: {reason}"):
        compile(net(), f"HYBRID:{product}", shared_memory=1)


def test_nothing_is_copied_where_memory_is_shared(monkeypatch: pytest.MonkeyPatch):
    """By the numbers of a device. The same bits, no bytes over the link, and no call that is slower."""
    monkeypatch.setattr(nnp_backend, "load_device", lambda name: load_device(name, {"host_link.shared": 1}))
    found = []
    arrays = arrays_for(net())
    for shared in (0, 1, None):
        options = {} if shared is None else {"shared_memory": shared}
        executable = compile(net(), "HYBRID", nnp_device="nnp-i-1100", pins="act*=CPU,conv*=NNP", **options)
        times = simulate_call(executable)
        events = json.loads(times.trace())["traceEvents"]
        crossing = sum("host" in text for event in events if event.get("cat") and event["name"] != "meanwhile"
                       for text in (*event["args"]["writes"], *event["args"]["reads"]))
        found.append((executable.plan, times.seconds, crossing, executable(*arrays)[0]))
    (copied, first, some, result), (plan, second, none, same), default = found
    assert copied.to_dict()["shared"] == {"tensors": 0, "bytes": 0, "seconds": 0}
    assert plan.to_dict()["shared"]["tensors"] == len(plan.transfers) == 6 <= some
    assert plan.to_dict()["shared"]["seconds"] > 0  # by the costs of tensors by themselves: see rounds.py
    assert none == default[2] == 0 and second < first and plan.seconds < copied.seconds
    assert np.array_equal(result, same) and default[1] == pytest.approx(second, rel=0.2)
