"""The report of a simulated run: totals that agree with the timeline, and the trace."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from nnp_programs import programs
from rich.console import Console

from ngraph_mxnet.targets.nnp.hazards import order
from ngraph_mxnet.targets.nnp.program import Buffer, Instruction, Program, whole
from ngraph_mxnet.targets.nnp.report import make_report, trace_text
from ngraph_mxnet.targets.nnp.timing import simulate


def run():
    """A product of [64, 256] and [256, 64] in f16 on one engine, with its loads."""
    shapes = {"a": (64, 256), "b": (256, 64), "c": (64, 64)}
    far, near = ({name: whole(Buffer(name, memory, 1 << 16 << place, "f16", shape))
                  for place, (name, shape) in enumerate(shapes.items())} for memory in ("dram", "ice2.sram"))
    result = whole(Buffer("c", "ice2.tcm", 0, "f16", (64, 64)))
    return simulate(order(Program("product", "nnp-i-1100", [
        Instruction("ice2.dma0", "copy", (near["a"],), (far["a"],), origin="load"),
        Instruction("ice2.dma0", "copy", (near["b"],), (far["b"],), origin="load"),
        Instruction("ice2.grid", "matmul", (result,), (near["a"], near["b"]), origin="mx:fc"),
        Instruction("ice2.dma1", "copy", (far["c"],), (result,), origin="mx:fc"),
        Instruction("ice2.vector", "barrier", (), (), after=(3,)),
    ])))


def test_totals():
    timeline = run()
    report = make_report(timeline)
    assert report.seconds == timeline.seconds and report.macs == {"f16": 64 * 256 * 64}
    assert report.peak_part == pytest.approx(64 * 256 * 64 / (12.5e12 / 2) / timeline.seconds)
    assert [row.kind for row in report.units] == ["host dma", "dma", "grid", "vector"]
    grid = report.units[2]
    assert grid.units == 12 and grid.most == pytest.approx(12 * grid.mean)
    levels = {row.level: row for row in report.levels}
    assert levels["dram"].bytes == (2 * 64 * 256 + 64 * 64) * 2
    assert levels["sram"].most == 64 * 256 * 2 * 2 and levels["tcm"].most == 64 * 64 * 2
    assert levels["host link in"].bytes == 0
    assert 0 < levels["dram"].utilisation <= 1 and 0 < levels["engine ports"].utilisation <= 1
    assert report.joules == pytest.approx(sum(timeline.energy.values()))
    load, fc = report.nodes
    assert (load.origin, load.instructions, fc.origin, fc.instructions) == ("load", 2, "mx:fc", 2)
    assert load.grid == 0 < load.dma and fc.grid == pytest.approx(timeline.busy["ice2.grid"])
    assert fc.end == timeline.seconds


def test_where_the_time_of_engines_went():
    """Two loads, a product and a store, of which none overlaps another."""
    timeline = run()
    load, again, product, store = range(4)
    row = make_report(timeline).engines[2]
    assert row.engine == "ice2" and row.dependence == 0
    starts = timeline.startup / timeline.seconds
    times = (timeline.end - timeline.start) / timeline.seconds
    assert row.busy == pytest.approx(times[product] - starts[product])
    assert row.startup == pytest.approx(starts[load] + starts[again] + starts[product])
    assert row.transfer == pytest.approx(times[[load, again]].sum() - starts[[load, again]].sum() + times[store])
    assert [each.no_work for each in make_report(timeline).engines if each.engine != "ice2"] == [1.0] * 11


def test_an_engine_waits_for_another():
    memories = {"x": "ice0.sram", "y": "ice0.sram", "z": "ice1.sram", "w": "ice1.sram"}
    near = {name: whole(Buffer(name, memory, place << 16, "f16", (4096,)))
            for place, (name, memory) in enumerate(memories.items())}
    timeline = simulate(order(Program("two", "nnp-i-1100", [
        Instruction("ice0.vector", "vector", (near["y"],), (near["x"],), {"op": "exp"}),
        Instruction("ice1.dma0", "copy", (near["z"],), (near["y"],)),
        Instruction("ice1.vector", "vector", (near["w"],), (near["z"],), {"op": "exp"}),
    ], [near["x"].buffer], [near["w"].buffer])))
    first, second = make_report(timeline).engines[:2]
    times = (timeline.end - timeline.start) / timeline.seconds
    starts = timeline.startup / timeline.seconds
    assert (first.busy, first.startup) == pytest.approx((times[0] - starts[0], starts[0]))
    assert first.no_work == pytest.approx(1 - times[0])
    assert second.dependence == pytest.approx(times[0]) and second.transfer == pytest.approx(times[1] - starts[1])
    assert second.startup == pytest.approx(starts[1] + starts[2]) and second.no_work == pytest.approx(0)
    assert second.busy == pytest.approx(times[2] - starts[2])


def test_everything_is_labelled_simulated():
    report = make_report(run())
    content = json.loads(json.dumps(report.to_dict()))
    assert content["simulated"] is True and content["simulated_seconds"] == report.seconds and "seconds" not in content
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(report)
    text = console.export_text()
    assert "product on nnp-i-1100:12W (simulated)" in text and "mx:fc" in text
    titles = ("Where the time of each engine went", "Units", "Memories and links", "Energy", "Nodes that took longest")
    assert all(f"{title} (simulated" in text for title in titles)


@settings(max_examples=15, deadline=None)
@given(programs(most=15))
def test_any_program_has_a_report(program: Program):
    report = make_report(simulate(order(program)))
    assert all(0 <= row.utilisation <= 1 + 1e-9 for row in report.levels)
    assert all(0 <= row.mean <= row.most <= 1 + 1e-9 for row in report.units)
    for row in report.engines:
        parts = (row.busy, row.dependence, row.transfer, row.startup, row.no_work)
        assert all(0 <= part <= 1 + 1e-9 for part in parts) and sum(parts) == pytest.approx(1)
    json.dumps(report.to_dict())


def test_the_trace():
    timeline = run()
    content = json.loads(trace_text(timeline))
    assert content["otherData"] == {"times": "simulated"}
    spans = [event for event in content["traceEvents"] if event["ph"] == "X"]
    names = {e["tid"]: e["args"]["name"] for e in content["traceEvents"] if e["name"] == "thread_name"}
    assert [names[event["tid"]] for event in spans] == ["ice2.dma0", "ice2.dma0", "ice2.grid", "ice2.dma1"]
    assert all(event["args"]["simulated"] for event in spans)
    assert spans[2]["ts"] == pytest.approx(timeline.start[2] * 1e6)
    assert spans[-1]["ts"] + spans[-1]["dur"] == pytest.approx(timeline.seconds * 1e6)
    (process,) = (e for e in content["traceEvents"] if e["name"] == "process_name")
    assert process["args"]["name"] == "simulated nnp-i-1100:12W"
