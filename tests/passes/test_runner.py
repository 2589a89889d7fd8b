"""The runner keeps passes honest: verification, change detection, fixed points, reports."""

from __future__ import annotations

import pytest
from pass_helpers import ops

from ngraph_mxnet.base.errors import ConfigError, GraphError
from ngraph_mxnet.ir import Builder, Graph, parse_graph
from ngraph_mxnet.passes import FixedPoint, PassManager, optimize, shared_passes
from ngraph_mxnet.passes.base import fingerprint
from ngraph_mxnet.passes.simplify import DeadCode, algebraic
from ngraph_mxnet.tools.debug import Dump, to_dot


def chain(length: int = 4) -> Graph:
    b = Builder()
    b.origin = 'mx:"quoted" name'
    x = b.parameter("x", (2, 3))
    for _ in range(length):
        x = b.negative(x)
    return b.results(b.relu(x))


class Lambda:
    def __init__(self, name, run):
        self.name, self.run = name, run


def test_record_counts_and_change():
    graph = chain()
    report = PassManager([algebraic(), algebraic(), DeadCode()]).run(graph)
    assert [r.changed for r in report.records] == [True, False, False]
    assert report.records[0].before == {"negative": 4, "relu": 1}
    assert report.records[0].after == {"clamp": 1} == ops(graph)
    assert report.changed and report.ms > 0
    assert "negative -4" in str(report)


def test_change_is_seen_in_attributes_wiring_and_results():
    graph = chain()
    seen = {fingerprint(graph)}
    graph.nodes[-1].inputs[0] = graph.nodes[0].output
    seen.add(fingerprint(graph))
    graph.results[0] = graph.nodes[0].output
    seen.add(fingerprint(graph))
    b = Builder()
    graph = b.results(b.leaky_relu(b.parameter("x", (2,)), slope=0.5))
    seen.add(fingerprint(graph))
    assert fingerprint(graph) == fingerprint(graph.clone())
    graph.nodes[0].attrs["slope"] = 0.25
    seen.add(fingerprint(graph))
    assert len(seen) == 5


def test_broken_pass_is_named():
    def break_it(graph):
        graph.nodes.reverse()

    with pytest.raises(GraphError, match="after pass breaker: "):
        PassManager([Lambda("breaker", break_it)], verify_each=True).run(chain())


def test_a_pass_that_hides_a_change_is_named():
    def shorten(graph):
        del graph.nodes[-1]
        graph.results = [graph.nodes[-1].output]
        return False

    with pytest.raises(GraphError, match="pass shorten changed the graph and says that it did not"):
        PassManager([Lambda("shorten", shorten)], verify_each=True).run(chain())


def test_fixed_point_stops_when_all_have_seen_the_graph():
    calls = []

    def shorten(graph):
        calls.append(len(graph.nodes))
        if len(graph.nodes) <= 3:
            return False
        graph.nodes[-1].inputs = [graph.nodes[-3].output]
        del graph.nodes[-2]
        return True

    graph = chain(6)
    report = PassManager([FixedPoint("group", (Lambda("shorten", shorten), DeadCode()))]).run(graph)
    assert calls == [7, 6, 5, 4, 3] and not report.unsettled
    # The last run of dead_code changed nothing, so it and the last run of shorten settle the group.
    assert [r.name for r in report.records][-2:] == ["dead_code", "shorten"]


def test_fixed_point_bound_is_reported():
    def flip(graph):
        graph.nodes[0].attrs["slope"] = 1 - graph.nodes[0].attrs["slope"]
        return True

    b = Builder()
    graph = b.results(b.leaky_relu(b.parameter("x", (2,))))
    report = PassManager([FixedPoint("group", (Lambda("flip", flip),), bound=3)]).run(graph)
    assert report.unsettled == ["group"] and len(report.records) == 3
    assert "group: not settled" in str(report)


def test_disable():
    graph = chain()
    optimize(graph, disable=["algebraic"], verify_each=True)
    assert ops(graph) == {"negative": 4, "relu": 1}
    optimize(graph, disable=["simplify", "tidy"], verify_each=True)
    assert ops(graph) == {"negative": 4, "relu": 1}
    with pytest.raises(ConfigError, match="no pass is called nonsense; there are "):
        PassManager(shared_passes(), disable=["nonsense"])


def test_explain_names_node_and_reason():
    b = Builder()
    b.origin = "mx:mul0 _mul_scalar"
    b.results(b.multiply(b.parameter("x", (2,)), b.constant(0.0)))
    report = PassManager([algebraic()]).run(b.graph)
    assert report.explain() == (
        "algebraic: multiply_zero at multiply (mx:mul0 _mul_scalar): 0 times NaN or infinity is NaN"
    )


def test_dump_writes_what_changed(tmp_path):
    optimize(chain(), observer=Dump(tmp_path / "new", dot=True, elide=False))
    names = sorted(p.name for p in (tmp_path / "new").iterdir())
    assert names == ["main.003.algebraic.dot", "main.003.algebraic.ngraph"]
    text = (tmp_path / "new" / names[1]).read_text(encoding="utf-8")
    assert ops(parse_graph(text)) == {"clamp": 1}


def test_dot():
    graph = chain(1)
    text = to_dot(graph, highlight=[graph.nodes[0]])
    assert 'n0 -> n1 [label="f32[2,3]"]' in text and 'label="%x\\nf32[2,3]", shape=ellipse' in text
    assert 'mx:\\"quoted\\" name' in text and text.count("color=red") == 1
