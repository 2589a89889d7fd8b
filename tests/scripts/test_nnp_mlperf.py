"""MLPerf's ResNet-50 on the simulated NNP-I."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from mlperf.resnet import random_weights, resnet50
from nnp_mlperf import PUBLISHED_OFFLINE, main

from ngraph_mxnet.ir.graph import graph_cost


def test_the_model_is_v1_5():
    """4.089 billion multiply-adds; v1, with the stride in the 1x1 convolution, has 3.857."""
    graph = resnet50(2)
    assert graph_cost(graph).macs == 2 * 4_089_184_256
    strided = [node for node in graph.nodes if node.op.name == "convolution" and node.attrs["strides"] == (2, 2)]
    assert sorted({node.inputs[1].shape[2] for node in strided}) == [1, 3, 7]  # 1: shortcuts only
    assert sum(node.inputs[1].shape[2] == 1 for node in strided) == 3
    assert [array.shape for array in random_weights(graph)] == [value.shape for value in graph.parameters[1:]]


@pytest.mark.slow
def test_both_scenarios_are_near_what_was_published():
    result = CliRunner().invoke(main, ["--json"], catch_exceptions=False)
    (found,) = json.loads(result.stdout)
    assert found["device"] == "nnp-i-1100:12W"
    assert found["offline"]["images"] == pytest.approx(PUBLISHED_OFFLINE, rel=0.15)
    assert 0.7 * 5.7e-3 < found["server"]["mean"] < 1.3 * 6.5e-3
    assert found["server"]["percentile99"] <= 0.015
