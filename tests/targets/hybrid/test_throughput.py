"""Requests that follow each other through the devices of a placed graph."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx.parser
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import problems

from ngraph_mxnet.ir import Builder
from ngraph_mxnet.program.backend import DeviceCosts, get_backend
from ngraph_mxnet.targets.hybrid.search import Item, Problem, Tensor, place
from ngraph_mxnet.targets.hybrid.throughput import throughput
from ngraph_mxnet.tools.cli.commands import main

INFINITE = float("inf")


def chain(*seconds: tuple[float, float], crossing: float = 0.0) -> Problem:
    """Items one after the other."""
    items = tuple(Item(f"item{number}", each) for number, each in enumerate(seconds))
    tensors = tuple(Tensor(f"tensor{number}", number, (number + 1,), 4, (crossing, crossing))
                    for number in range(len(seconds) - 1))
    return Problem(items, tensors, devices=("CPU", "NNP"))


def test_devices_that_take_turns_work_at_once():
    """A request takes 2 + 3 + 1 s. The next one runs on the NNP while the CPU works: both are busy for 3 s of each."""
    problem = chain((2.0, INFINITE), (INFINITE, 3.0), (1.0, INFINITE))
    found = throughput(problem, place(problem), {})
    assert found is not None
    assert (found.latency, found.rate, found.bound) == pytest.approx((6.0, 1 / 3, 1 / 3))
    assert {stage.name: stage.seconds for stage in found.stages} == {"CPU": 3.0, "NNP": 3.0}
    assert [stage.busy for stage in found.stages] == pytest.approx([1.0, 1.0])


def test_the_simulated_region_is_the_bottleneck():
    """It takes 5 s with its transfers, where 3 s and two transfers of 4 s were predicted."""
    problem = chain((2.0, INFINITE), (INFINITE, 3.0), (1.0, INFINITE), crossing=4.0)
    placement = place(problem)
    predicted, found = throughput(problem, placement, {}), throughput(problem, placement, {1: 5.0})
    assert predicted is not None and predicted.bottleneck in ("link to NNP", "link to CPU")
    assert predicted.rate == pytest.approx(1 / 4)
    assert found is not None and (found.bottleneck, found.latency) == ("NNP", pytest.approx(8.0))
    assert found.rate == pytest.approx(1 / 5) and "link to NNP" not in {stage.name for stage in found.stages}


@settings(max_examples=40, deadline=None)
@given(problems(most=8), st.floats(0.5, 2))
def test_the_bottleneck_bounds_the_rate(problem: Problem, factor: float):
    placement = place(problem)
    simulated = {number: factor * region.seconds for number, region in enumerate(placement.regions) if region.device}
    found = throughput(problem, placement, simulated)
    if found is None:
        assert not any(region.seconds for region in placement.regions)
        return
    assert 1 / found.latency <= found.rate * (1 + 1e-9)
    assert 0.9 * found.bound <= found.rate <= found.bound
    assert found.bound == pytest.approx(1 / max(stage.seconds for stage in found.stages))
    assert all(0 < stage.busy <= 1 for stage in found.stages)


DETECTOR = """
<ir_version: 10, opset_import: ["" : 21]>
detector (float[1,16,32,32] x) => (int64[n,3] chosen)
<float[16,16,3,3] w = {W}, int64[3] places = {1,4,1024}, int64[3] of_classes = {1,1,1024}, int64[1] most = {10},
 float[4,16,1,1] wb = {B}, float[1,16,1,1] ws = {S}>
{
    [first] y = Conv <pads = [1,1,1,1]> (x, w)
    [active] a = Relu (y)
    [where] b = Conv (a, wb)
    [score] s = Conv (a, ws)
    r = Reshape (b, places)
    boxes = Transpose <perm = [0,2,1]> (r)
    scores = Reshape (s, of_classes)
    [nms] chosen = NonMaxSuppression (boxes, scores, most)
}
"""


def detector(path: Path) -> str:
    """Features that are worth the NNP, and what Intel's software left to the CPU."""
    weights = {"{W}": 16 * 16 * 9, "{B}": 64, "{S}": 16}
    text = DETECTOR
    for mark, count in weights.items():
        text = text.replace(mark, "{" + ",".join(["0.1"] * count) + "}")
    onnx.save(onnx.parser.parse_model(text), path)
    return str(path)


def test_explain_tells_the_rate_and_why_nms_is_on_the_cpu(tmp_path: Path):
    command = ["explain", detector(tmp_path / "detector.onnx"), "--backend", "HYBRID", "--throughput", "--option",
               "pins=first=NNP,where=NNP,score=NNP"]
    result = CliRunner().invoke(main, [*command, "--json"], catch_exceptions=False)
    (plan,) = json.loads(result.stdout)["plans"]
    nms = next(node for node in plan["nodes"] if node["op"] == "box_nms")
    assert nms["device"] == "CPU" and "no NonMaxSuppression" in nms["why"]
    served = plan["throughput"]
    assert 0.9 <= served["requests_per_second"] / served["bound_per_second"] <= 1.0
    assert served["requests_per_second"] > 1 / served["latency_seconds"]
    assert served["bottleneck"] == "NNP" and {stage["name"] for stage in served["stages"]} == {"CPU", "NNP"}
    text = CliRunner().invoke(main, command, catch_exceptions=False).stdout
    assert "requests a second follow each other (simulated): NNP is the bottleneck" in text


def test_without_the_option_nothing_is_said_of_it():
    b = Builder(name="one")
    graph = b.results(b.relu(b.parameter("x", (4, 4))))
    costs = {name: DeviceCosts(lambda node: 1e-3, 0.0, None, "made up") for name in ("CPU", "NNP")}
    assert "throughput" not in get_backend("HYBRID").plan(graph, {"costs": costs}).to_dict()
