"""What nodes are said to cost on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict

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
    """No two measurements are alike, so what is alike was measured once."""
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path))
    found = []
    for _ in range(2):
        this_machine.cache_clear()
        found.append(this_machine(1))
    this_machine.cache_clear()
    assert found[0] == found[1] and min(asdict(found[0]).values()) > 0
    assert len(list((tmp_path / "machine").iterdir())) == 1


def test_a_process_that_is_traced_is_measured_in_another(tmp_path):
    """The measurement would take the recorder of the process, which the trace has: its events are none of the trace."""
    program = """
from ngraph_mxnet.targets.cpu.costs import this_machine
assert this_machine(1).gflops > 0"""
    subprocess.run([sys.executable, "-c", program], check=True, env={
        **os.environ, "NGRAPH_CACHE_DIR": str(tmp_path), "NGRAPH_PROFILE": str(tmp_path / "trace.json")})
    assert len(list((tmp_path / "machine").iterdir())) == 1
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert not [event for event in trace if event["ph"] == "X"]
