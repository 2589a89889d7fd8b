"""ResNet-50 v1 and v2: what is left, what it costs, and that small ones compute the same."""

from __future__ import annotations

import time

import pytest
from pass_helpers import check, check_split, ops
from pass_models import resnet_v1, resnet_v2

from ngraph_mxnet.ir import print_graph
from ngraph_mxnet.passes import optimize, split_prepare
from ngraph_mxnet.passes.clusters import MAIN, PREPARE
from ngraph_mxnet.targets.cpu.pipeline import pipeline

MODELS = {"resnet_v1": resnet_v1, "resnet_v2": resnet_v2}


def counts(graph) -> str:
    return "".join(f"{count:5d} {name}\n" for name, count in ops(graph).items())


@pytest.mark.parametrize("name", MODELS)
def test_small_one_computes_the_same(name, golden):
    small = MODELS[name]((2, 1), size=32, width=8, classes=10)
    graph = check(small, lambda g: optimize(g, pipeline(), verify_each=True))
    prepare, main = check_split(graph)
    golden(f"{name}_small.prepare.ngraph", print_graph(prepare, elide=True))
    golden(f"{name}_small.main.ngraph", print_graph(main, elide=True))


@pytest.mark.parametrize("name", MODELS)
def test_resnet50_op_counts(name, golden):
    graph = MODELS[name]()
    before = counts(graph)
    report = optimize(graph, pipeline(), verify_each=True)
    module = split_prepare(graph)
    prepare, main = counts(module.graphs[PREPARE]), counts(module.graphs[MAIN])
    golden(f"{name}_50.counts.txt", f"before\n{before}\nprepare\n{prepare}\nmain\n{main}")
    assert not report.unsettled


def test_resnet50_v1_is_fully_fused():
    graph = resnet_v1()
    optimize(graph, pipeline())
    assert ops(split_prepare(graph).graphs[MAIN]) == {
        "convolution+bias": 37, "convolution+bias+residual": 16, "matmul+bias": 1, "max_pool": 1, "reduce_mean": 1,
    }


def test_resnet50_v2_without_the_last_fusion():
    graph = resnet_v2()
    optimize(graph, pipeline(), disable=["fuse_scale_shift"])
    assert ops(split_prepare(graph).graphs[MAIN]) == {
        "constant": 4, "convolution+bias": 37, "convolution+bias+residual": 16, "matmul+bias": 1, "max_pool": 1,
        "reduce_mean": 1, "scale_shift": 18,
    }


@pytest.mark.parametrize("name", MODELS)
def test_resnet50_takes_less_than_150_ms(name):
    """The best of five, in processor time: what else the machine does is not the passes' fault."""
    best = float("inf")
    for _ in range(5):
        graph = MODELS[name]()
        start = time.thread_time()
        optimize(graph, pipeline())
        best = min(best, time.thread_time() - start)
    assert best < 0.150
