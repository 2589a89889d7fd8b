"""What nodes are said to cost on the CPU."""

from __future__ import annotations

import json

import pytest

from ngraph_mxnet.ir import Builder
from ngraph_mxnet.targets.cpu import costs
from ngraph_mxnet.targets.cpu.costs import Machine, node_seconds, this_machine


def test_the_cpus_model_is_the_longer_of_computing_and_moving():
    machine = Machine(gflops=100.0, gigabytes=10.0, call=1e-6)
    b = Builder(name="costs")
    x = b.parameter("x", (512, 512))
    b.matmul(x, x)
    b.transpose(x, order=(1, 0))
    product, moved = (node_seconds(node, machine) - costs.NODE_SECONDS for node in b.graph.nodes)
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
