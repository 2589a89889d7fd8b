"""How a symbol's graph is partitioned: verdicts with reasons, regions, the symbol that has them as nodes."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet_helpers import close, forget_graphs, needs_library
from native_runs import mx

from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.frontends.mxnet.judgement import INFERENCE, WholeGraph, contracted, cut_region, judge_graph
from ngraph_mxnet.frontends.mxnet.rules.registry import Rule, find_rule
from ngraph_mxnet.frontends.mxnet.symbol_json import SymbolNode, parse_symbol
from ngraph_mxnet.ir.types import TensorType, f32
from ngraph_mxnet.plugin import regions
from ngraph_mxnet.plugin.binding import fallbacks, partitioner
from ngraph_mxnet.plugin.binding.partitioner import NamelessGraph, Partitioned, partition
from ngraph_mxnet.program.backend import get_backend
from ngraph_mxnet.targets.interpreter import InterpreterBackend

pytestmark = needs_library
sym = mx.sym


@pytest.fixture(autouse=True)
def forgetful() -> None:
    """Each test judges anew."""
    forget_graphs()


def model() -> mx.sym.Symbol:
    conv = sym.Convolution(sym.var("data"), kernel=(3, 3), num_filter=4, name="conv")
    act = sym.Activation(conv, act_type="relu", name="act")
    flat = sym.Flatten(sym.cast_storage(act, stype="default", name="sorted"), name="flat")
    return sym.SoftmaxOutput(sym.FullyConnected(flat, num_hidden=3, name="dense"), name="out")


def parts(symbol: mx.sym.Symbol, dtype: str = "float32", **shapes: tuple[int, ...]) -> Partitioned:
    types = {name: (shape, dtype) for name, shape in shapes.items()}
    return partition(symbol, NamelessGraph(partitioner.json_of(symbol)), types, get_backend("INTERPRETER"))


def verdicts(symbol: mx.sym.Symbol, dtype: str = "float32", backend: str = "INTERPRETER",
             **shapes: tuple[int, ...]) -> dict[str, str | None]:
    graph = NamelessGraph(partitioner.json_of(symbol))
    types = {name: (shape, dtype) for name, shape in shapes.items()}
    found = partition(symbol, graph, types, get_backend(backend)).partition
    return {graph.with_names(verdict.name): verdict.reason and graph.with_names(verdict.reason)
            for verdict in found.verdicts}


def test_verdicts() -> None:
    assert verdicts(model(), data=(2, 3, 5, 5)) == {
        **dict.fromkeys(["conv", "act", "flat", "dense", "out"]),
        "sorted": "cast_storage stays with MXNet: it works on sparse arrays",
    }


def test_unknown_shapes_and_other_types_are_reasons() -> None:
    reasons = verdicts(model())
    assert reasons["conv"] == reasons["act"] == "the shape or type of input 0 is unknown"
    assert verdicts(model(), "float16", data=(2, 3, 5, 5))["conv"] is None
    assert "f64[2,3,5,5]; supported element types: f16, f32" in str(
        verdicts(model(), "float64", data=(2, 3, 5, 5))["conv"])


def test_a_shape_that_only_the_computation_tells_is_a_reason() -> None:
    chosen = sym.contrib.boolean_mask(sym.var("x"), sym.var("mask"), name="chosen")
    reasons = verdicts(sym.exp(sym.relu(chosen, name="r"), name="e"), x=(4, 64), mask=(4,))
    assert reasons["r"] == reasons["e"] == "the shape or type of input 0 is unknown"


@pytest.mark.parametrize("fault", [TypeError("no such thing"), RuntimeError("no such thing")])
def test_a_rule_that_fails_is_told_apart_from_a_refusal(fault: Exception, caplog: pytest.LogCaptureFixture) -> None:
    def lower(*_: object) -> None:
        raise fault

    def broken(op: str) -> Rule | None:
        found = find_rule(op)
        return None if found is None else replace(found, lower=lower)

    graph = parse_symbol(sym.relu(sym.var("x"), name="r").tojson())
    nodes = tuple(replace(node, types=(TensorType(f32, (2, 3)),)) for node in graph.nodes)
    whole = WholeGraph(replace(graph, nodes=nodes), get_backend("INTERPRETER"), replace(INFERENCE, rules=broken))
    assert whole.reasons[1] == f"its rule failed: {fault!r}" and "the rule for relu failed" in caplog.text


def test_a_disagreement_about_shapes_is_a_reason() -> None:
    graph = parse_symbol(sym.relu(sym.var("x"), name="r").tojson())
    types = (TensorType(f32, (2, 3)),), (TensorType(f32, (2, 9)),)
    nodes = tuple(replace(node, types=of) for node, of in zip(graph.nodes, types, strict=True))
    reasons, _ = judge_graph(WholeGraph(replace(graph, nodes=nodes), get_backend("INTERPRETER")))
    assert reasons[1] == "output 0 would be f32[2,3], for MXNet it is f32[2,9]"


def test_reading_an_output_that_is_not_computed_is_a_reason() -> None:
    root = json.loads(sym.relu(sym.BatchNorm(sym.var("x"), name="bn"), name="r").tojson())
    root["nodes"][-1]["inputs"] = [[5, 1, 0]]
    graph = parse_symbol(json.dumps(root))
    whole, channels = TensorType(f32, (2, 3)), TensorType(f32, (3,))
    types = [(whole,), *[(channels,)] * 4, (whole, channels), (channels,)]
    nodes = tuple(replace(node, types=of) for node, of in zip(graph.nodes, types, strict=True))
    reasons, _ = judge_graph(WholeGraph(replace(graph, nodes=nodes), get_backend("INTERPRETER")))
    assert reasons[5] == "output 1 of mx:bn BatchNorm is read, which is not computed at inference"


def test_names_are_as_the_user_wrote_them() -> None:
    odd = sym.relu(sym.cast_storage(sym.var('d"a\\ta'), stype="default", name='s"o\\rt'), name="r")
    with fallbacks.partition_log.listening() as heard:
        found = odd.optimize_for("NGRAPH", {'d"a\\ta': mx.nd.ones((2, 1024))})
    assert heard[0].verdicts[0].name == 's"o\\rt'
    assert heard[0].regions[0].nodes == (("r", "relu"),)
    assert found.list_arguments() == ['d"a\\ta']


def test_a_name_with_the_character_that_marks_places(caplog: pytest.LogCaptureFixture) -> None:
    symbol = sym.relu(sym.var("a\x7f0\x7f"), name="r")
    assert not partitioner.has_region(symbol.optimize_for("NGRAPH", {"a\x7f0\x7f": mx.nd.ones((2, 1024))}))
    assert "DEL" in caplog.text


def test_the_backend_has_a_say(own_backend: Callable[..., None]) -> None:
    own_backend(InterpreterBackend, supports=lambda self, node: "not today")
    assert verdicts(model(), backend="OWN", data=(2, 3, 5, 5))["conv"] == "backend OWN: not today"


def test_a_failing_rule_leaves_the_node(own_backend: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    """Or a backend that fails at what the rule made."""
    def broken(*args: object) -> None:
        raise ZeroDivisionError("oops")

    own_backend(InterpreterBackend, supports=broken)
    with caplog.at_level(logging.WARNING, "ngraph_mxnet"):
        reasons = verdicts(model(), backend="OWN", data=(2, 3, 5, 5))
    assert reasons["conv"] == "its rule failed: ZeroDivisionError('oops')"
    assert "the rule for Convolution failed" in caplog.text


def test_a_wrong_backend_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no backend 'OVEN'"):
        model().optimize_for("NGRAPH", {"data": mx.nd.ones((2, 3, 5, 5))}, ngraph_backend="OVEN")


def test_types_that_contradict_each_other_are_mxnets_error() -> None:
    arrays = {"x": mx.nd.ones((2, 3)), "y": mx.nd.ones((3, 4))}
    with pytest.raises(mx.MXNetError, match=r"(?i)incompatible|inconsistent"):
        (sym.var("x") + sym.var("y")).optimize_for("NGRAPH", arrays)


@pytest.mark.parametrize("outputs", [1, 2])
def test_arrays_that_the_symbol_does_not_read(outputs: int) -> None:
    """As when all parameters of a model are given for a part of it."""
    parts = sym.SliceChannel(sym.relu(sym.var("x")), num_outputs=2, axis=1)
    net = sym.exp(parts[0] + parts[1] if outputs == 2 else sym.relu(sym.var("x")))
    arrays = {"x": mx.nd.ones((64, 64)), "unread": mx.nd.ones(3)}
    assert partitioner.has_region(net.optimize_for("NGRAPH", arrays, {"unread_state": mx.nd.ones(3)}))


def test_skip_infer_takes_nothing() -> None:
    net = sym.exp(sym.relu(sym.var("x")))
    x = {"x": mx.nd.ones((64, 64))}
    assert partitioner.has_region(net.optimize_for("NGRAPH", x, dedup_subgraph=True))
    assert not partitioner.has_region(net.optimize_for("NGRAPH", x, skip_infer=True))


def test_shapes_alone_and_one_type_of_several() -> None:
    net = sym.exp(sym.elemwise_add(sym.var("x"), sym.cast(sym.var("i"), dtype="float32")))
    found = net.optimize_for("NGRAPH", shape_dict={"x": (64, 64), "i": (64, 64)}, type_dict={"i": "int32"})
    assert partitioner.has_region(found)
    i = mx.nd.ones((64, 64), dtype="int32")
    ours = found.bind(mx.cpu(), {"x": mx.nd.ones((64, 64)), "i": i}).forward()[0]
    close(ours, np.full((64, 64), np.exp(2), np.float32))


def test_a_region_without_computation_is_not_worth_it() -> None:
    found = parts(sym.transpose(sym.reshape(sym.var("x"), shape=(4, 2), name="r"), name="t"), x=(2, 4)).partition
    assert found.regions == []
    assert "only moves elements" in str(found.reviewed[0].rejected)
    assert found.left()[0].reason == found.reviewed[0].rejected


def test_the_log_tells_regions_and_left_kinds(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ngraph_mxnet"):
        model().optimize_for("NGRAPH", {"data": mx.nd.ones((2, 3, 5, 5))}, ngraph_backend="interpreter")
        net = sym.FullyConnected(sym.var("x"), num_hidden=1000, name="fc")
        net.optimize_for("NGRAPH", {"x": mx.nd.ones((2, 1000))}, ngraph_backend="interpreter")
    assert "left to MXNet: 1 x cast_storage: cast_storage stays with MXNet: it works on sparse arrays" in caplog.text
    assert "region 1 on INTERPRETER: 1 nodes (FullyConnected x1), 2.0 million multiply-adds" in caplog.text


def test_the_record_is_bounded_and_threads_do_not_mix() -> None:
    net = sym.relu(sym.var("x"), name="r")
    heard_by: dict[int, int] = {}

    def work(number: int) -> None:
        with fallbacks.partition_log.listening() as heard:
            for _ in range(10):
                net.optimize_for("NGRAPH", shape_dict={"x": (2, number + 1)})
        assert all(len(found.reviewed) == 1 for found in heard)
        heard_by[number] = len(heard)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard_by == dict.fromkeys(range(4), 10)
    assert len(fallbacks.partitions()) <= 16


@pytest.mark.parametrize("name", ["NGRAPH_CODEGEN", "NGRAPH_AUTOTUNE"])
def test_settings_are_part_of_the_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(name, raising=False)
    before = regions.settings_key("digest", {})
    monkeypatch.setenv(name, "1")
    assert regions.settings_key("digest", {}) != before


def test_what_is_in_files_that_options_name_is_part_of_the_key(tmp_path: Path) -> None:
    file = tmp_path / "recipe.json"
    found = []
    for content in ("one", "other"):
        file.write_text(content)
        found.append(regions.settings_key("digest", {"ngraph_recipe": str(file)}))
    assert found[0] != found[1]
    file.unlink()
    assert regions.settings_key("digest", {"ngraph_recipe": str(file)}) == regions.settings_key("digest", {})


def test_names_and_types_do_not_matter_to_the_structure() -> None:
    def structure(prefix: str, rows: int = 2, hidden: int = 3) -> str:
        dense = sym.FullyConnected(sym.Variable(prefix + "data"), num_hidden=hidden, name=prefix + "fc")
        found = parts(sym.Activation(dense, act_type="relu", name=prefix + "relu"), **{prefix + "data": (rows, 4)})
        return found.cuts[0].graph.structure

    assert structure("a") == structure("b") == structure("a", rows=3) != structure("a", hidden=4)


@st.composite
def graphs(draw: st.DrawFn) -> mx.sym.Symbol:
    """Operators with one, two and three inputs and outputs, over shared values; some outputs are read by nobody."""
    values = [sym.var(f"v{number}") for number in range(draw(st.integers(1, 3)))]
    for _ in range(draw(st.integers(1, 9))):
        pick = lambda: draw(st.sampled_from(values))  # noqa: E731
        kind = draw(st.sampled_from(["exp", "sum", "where", "split"]))
        if kind == "exp":
            values.append(sym.tanh(pick()))
        elif kind == "sum":
            values.append(sym.elemwise_add(pick(), pick()))
        elif kind == "where":
            values.append(sym.where(pick(), pick(), pick()))
        else:
            values.extend(sym.SliceChannel(sym.concat(pick(), pick(), dim=1), num_outputs=2, axis=1))
    heads = draw(st.lists(st.sampled_from(values[1:]), min_size=1, max_size=3)) if len(values) > 1 else values
    return sym.Group(heads)


@settings(max_examples=60, deadline=None)
@given(graphs(), st.data())
def test_what_is_contracted_computes_the_same(symbol: mx.sym.Symbol, data: st.DataObject) -> None:
    """Regions that one operator of MXNet's own stands for: nothing of ours computes."""
    graph = parse_symbol(partitioner.json_of(symbol))
    numbers = [node.index for node in graph.operators()]
    chosen = [index for index in numbers if data.draw(st.booleans())]
    cuts = [cut_region(graph, [index]) for index in chosen]  # of one node each: no cycle is possible
    back = contracted(graph, cuts, lambda cut: graph.nodes[cut.members[0]])
    for cut in cuts:
        assert list(cut.sources) == list(dict.fromkeys(graph.nodes[cut.members[0]].inputs))
        assert len(cut.graph.operators()) == 1
        assert all(edge.node == cut.members[0] for edge in cut.outputs)
    one_reader = all(len(set(graph.nodes[index].inputs)) == len(graph.nodes[index].inputs) for index in chosen)
    whole = all([edge.output for edge in cut.outputs] == list(range(len(cut.outputs))) for cut in cuts)
    assert {node.name for node in back.nodes} <= {node.name for node in graph.nodes}
    if one_reader and whole:  # then the node itself may stand where its region stood
        arrays = {name: mx.nd.random.uniform(-1, 1, (2, 4)) for name in symbol.list_arguments()}
        loaded = mx.sym.load_json(json.dumps(back.to_json()))
        expected = symbol.bind(mx.cpu(), arrays).forward()
        for ours, theirs in zip(loaded.bind(mx.cpu(), arrays).forward(), expected, strict=True):
            close(ours, theirs.asnumpy())


def test_a_region_reads_and_writes_in_order() -> None:
    """Sources are arguments in the order of reading; what two outside readers share is one output."""
    x, y = sym.var("x"), sym.var("y")
    total = sym.elemwise_add(y, x, name="total")
    root = sym.exp(total, name="root")
    left, right = sym.sin(root, name="left"), sym.cos(total, name="right")
    graph = parse_symbol(sym.Group([right, left, root]).tojson())
    place = {node.name: node.index for node in graph.nodes}
    cut = cut_region(graph, sorted([place["total"], place["root"]]))
    assert [graph.nodes[edge.node].name for edge in cut.sources] == ["y", "x"]
    assert {graph.nodes[edge.node].name for edge in cut.outputs} == {"total", "root"}
    made = contracted(graph, [cut], lambda cut: SymbolNode(0, "Region", "region", {}, ()))
    assert sorted(node.op for node in made.operators()) == ["Region", "cos", "sin"]
    region = next(node for node in made.nodes if node.op == "Region")
    assert [made.nodes[edge.node].name for edge in region.inputs] == ["y", "x"]
    assert len(made.heads) == 3 and made.heads[2].node == region.index
