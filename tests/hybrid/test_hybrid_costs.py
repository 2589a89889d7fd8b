"""What nodes and transfers are said to cost."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ngraph_mxnet.hybrid import costs
from ngraph_mxnet.hybrid.costs import Machine, cpu_seconds, simulated_nnp, this_machine
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.ir.types import TensorType, element_type
from ngraph_mxnet.nnp.cost import transfer_seconds
from ngraph_mxnet.nnp.device import load_device
from ngraph_mxnet.partition.cost import Cost, node_cost
from ngraph_mxnet.passes.pipelines import optimize


def test_fused_contractions_cost_what_their_parts_do():
    b = Builder(name="fused")
    x, w = b.parameter("x", (2, 3, 8, 8)), b.parameter("w", (4, 3, 3, 3), cacheable=True)
    b.convolution(x, w)
    plain = b.graph.nodes[-1]
    graph = b.results(b.relu(plain.output))
    expected = node_cost(plain)
    optimize(graph)
    (node,) = [node for node in graph.nodes if node.op.name == "convolution_bias"]
    assert node_cost(node) == expected == Cost(macs=2 * 4 * 36 * 27)


def test_attention_and_recurrent_layers_count_their_products():
    b = Builder(name="layers")
    q, k, v = b.parameter("q", (2, 5, 8)), b.parameter("k", (2, 7, 8)), b.parameter("v", (2, 7, 3))
    b.attention(q, k, v)
    assert node_cost(b.graph.nodes[-1]).macs == 2 * 5 * 7 * (8 + 3)
    x, w, bias = b.parameter("x", (6, 2, 16)), b.parameter("w", (16, 4)), b.parameter("b", (16,))
    node = b.node("rnn", [x, w, bias, b.parameter("h", (2, 4)), b.parameter("c", (2, 4))], {"cell": "lstm"})
    assert node_cost(node).macs == 6 * 2 * 16 * 4


def test_the_cpus_model_is_the_longer_of_computing_and_moving():
    machine = Machine(gflops=100.0, gigabytes=10.0, call=1e-6)
    b = Builder(name="costs")
    x = b.parameter("x", (512, 512))
    b.matmul(x, x)
    b.transpose(x, order=(1, 0))
    product, moved = (cpu_seconds(node, machine) - costs.NODE_SECONDS for node in b.graph.nodes)
    assert product == pytest.approx(2 * 512**3 / costs.CONTRACTION_SHARE / 100e9)
    assert moved == pytest.approx(2 * 4 * 512**2 / 10e9)


def test_this_machine_is_measured_once(monkeypatch, tmp_path):
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path))
    measured = []
    monkeypatch.setattr(costs, "measure_machine", lambda threads: measured.append(threads) or Machine(5.0, 6.0, 7e-6))
    this_machine.cache_clear()
    try:
        assert this_machine(3) == Machine(5.0, 6.0, 7e-6)
        this_machine.cache_clear()
        assert this_machine(3) == Machine(5.0, 6.0, 7e-6)
        assert measured == [3]
        monkeypatch.setattr(costs, "recorder", lambda: object())  # whose events a measurement would take
        monkeypatch.setattr(costs, "_elsewhere", lambda threads: json.dumps(
            {"gflops": 1.0, "gigabytes": 2.0, "call": 3.0}).encode())
        assert this_machine(4) == Machine(1.0, 2.0, 3.0)
        assert measured == [3]
    finally:
        this_machine.cache_clear()


def test_the_nnp_copies_what_it_stores():
    device = load_device("nnp-i-1100")
    found = simulated_nnp(device, "f16")
    tensors = {name: TensorType(element_type(name), (1000,)) for name in ("f32", "i32", "u8")}
    for name, size in (("f32", 2000), ("i32", 4000), ("u8", 1000)):
        assert found.transfer is not None
        assert found.transfer(tensors[name]) == transfer_seconds(size, device)
    assert (found.kind, found.shares_memory) == ("simulated", False)
    assert simulated_nnp(load_device("nnp-i-1100", {"host_link.shared": 1}), "f16").shares_memory
    b = Builder(name="costs")
    b.matmul(b.parameter("x", (512, 512)), b.constant(np.ones((512, 512), np.float32)))
    assert 0 < found.seconds(b.graph.nodes[-1]) < 1e-3
