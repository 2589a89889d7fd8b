"""What a graph was partitioned into is remembered, whatever the names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mxnet_helpers import backend, close, fill, forget_graphs, mx, needs_library

from ngraph_mxnet import _core
from ngraph_mxnet.frontends.verdicts import Partition, Region, Verdict
from ngraph_mxnet.ir import Graph
from ngraph_mxnet.ir.graph import Cost, Node
from ngraph_mxnet.plugin.binding import fallbacks, partitioner
from ngraph_mxnet.plugin.binding.partitioner import NamelessGraph, name_of, place_in
from ngraph_mxnet.plugin.regions import is_small
from ngraph_mxnet.targets.interpreter import InterpreterBackend

pytestmark = needs_library

SHAPE = (2, 3, 6, 6)


@pytest.fixture
def partitioned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, heard: Callable[[str], list[str]]) -> list[str]:
    """Gets an entry for each graph that is partitioned, beginning with nothing known."""
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path))
    forget_graphs()
    return heard("partition a graph ")


def two_regions(prefix: str) -> mx.sym.Symbol:
    """With an operator that we lack in the middle, and inputs that come late."""
    data = mx.sym.Variable(prefix + "data")
    conv = mx.sym.Convolution(data, num_filter=4, kernel=(3, 3), pad=(1, 1), name=prefix + "conv")
    norm = mx.sym.BatchNorm(conv, fix_gamma=False, name=prefix + "norm")
    lost = mx.sym.Correlation(norm, mx.sym.Variable(prefix + "other"), pad_size=1, name=prefix + "lost")
    return mx.sym.FullyConnected(mx.sym.relu(lost, name=prefix + "act"), num_hidden=5, name=prefix + "dense")


@pytest.mark.parametrize(("operators", "expected"), [(15, True), (16, False)])
def test_variables_count_among_the_nodes_of_a_small_graph(operators: int, expected: bool):
    symbol = mx.sym.Variable('"op"')
    for _ in range(operators):
        symbol = mx.sym.relu(symbol)
    assert is_small(symbol.tojson()) == is_small(NamelessGraph(symbol.tojson()).text) == expected


def executors(prefix: str, batch: int = 2) -> list[mx.executor.Executor]:
    """Compiled by both ways of binding, and MXNet's own; with the same values for the same places."""
    symbol = two_regions(prefix)
    shapes = {prefix + "data": (batch, *SHAPE[1:]), prefix + "other": (batch, 4, 6, 6)}
    found = []
    for value in ("NONE", "NGRAPH"):
        with backend(value):
            found.append(fill(symbol.simple_bind(mx.cpu(), grad_req="null", **shapes)))
    for executor in found[1:]:
        executor.copy_params_from(found[0].arg_dict, found[0].aux_dict)
    with backend("NGRAPH"):
        args, aux = ([array.copy() for array in arrays] for arrays in (found[0].arg_arrays, found[0].aux_arrays))
        found.append(symbol.bind(mx.cpu(), args, grad_req="null", aux_states=aux))
    return found


def check(prefix: str, batch: int = 2) -> None:
    symbol = two_regions(prefix)
    stock, *ours = executors(prefix, batch)
    expected = stock.forward()[0].copy()
    for executor in ours:
        assert executor.debug_str().count("NGraphSubgraphOp") == 2
        assert list(executor.arg_dict) == symbol.list_arguments()
        assert list(executor.aux_dict) == symbol.list_auxiliary_states()
        assert list(executor.output_dict) == symbol.list_outputs()
        assert set(executor.get_optimized_symbol().list_arguments()) == set(symbol.list_arguments())
        close(executor.forward()[0], expected)
        for one in (stock, executor):
            one.arg_dict[prefix + "dense_weight"][:] *= -2
        close(executor.forward()[0], stock.forward()[0])
        for one in (stock, executor):
            one.arg_dict[prefix + "dense_weight"][:] /= -2
        smaller = {prefix + "data": (1, *SHAPE[1:]), prefix + "other": (1, 4, 6, 6)}
        reshaped = executor.reshape(partial_shaping=True, **smaller)
        close(reshaped.forward()[0], expected[:1])
    partition = fallbacks.partitions()[-1]
    assert [verdict.name for verdict in partition.left()] == [prefix + "lost"]
    assert [[name for name, _ in region.nodes] for region in partition.regions] == [
        [prefix + "conv", prefix + "norm"], [prefix + "act", prefix + "dense"]]
    assert partition.regions[0].inputs[0] == prefix + "data"


def test_the_second_instance_is_not_partitioned(partitioned: list[str]) -> None:
    check("a_")
    assert len(partitioned) == 2, "one for each batch"
    for prefix in ("a_", "other_", "", 'näm"e_', "10"):
        check(prefix)
    forget_graphs()
    check("from_disk_")
    assert len(partitioned) == 2
    check("a_", batch=3)
    assert len(partitioned) == 3


def test_settings_partition_anew(partitioned: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    check("a_")
    monkeypatch.setenv("NGRAPH_CPU_WINOGRAD", "0")
    check("a_")
    assert len(partitioned) == 4
    monkeypatch.setenv("NGRAPH_BACKEND", "INTERPRETER")
    check("a_")
    assert len(partitioned) == 6
    assert fallbacks.partitions()[-1].backend == "INTERPRETER"


@pytest.mark.parametrize("bind", ["bind", "simple_bind"])
def test_types_and_parameters_partition_anew(partitioned: list[str], bind: str) -> None:
    """The same names every time; so what is remembered of one graph would fit the next by its names."""
    def result(dtype: str, width: int, act: str, value: str) -> mx.nd.NDArray:
        total = mx.sym.elemwise_add(mx.sym.Variable("x"), mx.sym.Variable("y"), name="total")
        symbol = mx.sym.Activation(total, act_type=act, name="act")
        with backend(value):
            executor = fill(symbol.simple_bind(mx.cpu(), "null", {"x": dtype, "y": dtype}, x=(2, width)))
            if bind == "bind":
                executor = symbol.bind(mx.cpu(), executor.arg_dict, grad_req="null")
        assert ("NGraphSubgraphOp" in executor.debug_str()) == (value == "NGRAPH")
        return executor.forward()[0]

    cases = [("float32", 3, "relu"), ("float32", 5, "relu"), ("float32", 3, "tanh"), ("float16", 3, "relu")]
    for case in [*cases, *cases]:
        ours, stock = result(*case, "NGRAPH"), result(*case, "NONE")
        assert ours.dtype == stock.dtype
        np.testing.assert_allclose(ours.asnumpy(), stock.asnumpy(), rtol=2e-3 if "float16" in case else 1e-5)
    assert len(partitioned) == len(cases)


def test_a_first_call_does_each_thing_once(own_backend: Callable[..., None], heard: Callable[[str], list[str]],
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """The traced symbol is exported once, and the partitioned one, for its wiring. Each operator is lowered once, and
    the backend is asked once of those that are alike."""
    exported, asked, lowered = [], [], heard("lowered a graph ")
    export = mx.sym.Symbol.tojson
    monkeypatch.setattr(mx.sym.Symbol, "tojson", lambda self, *args, **given: exported.append(
        export(self, *args, **given)) or exported[-1])

    def supports(self: object, node: Node) -> None:
        asked.append((node.op.name, str(node.output.type)))

    own_backend(InterpreterBackend, supports=supports)
    monkeypatch.setenv("NGRAPH_BACKEND", "OWN")
    net = mx.gluon.nn.HybridSequential()
    for _ in range(4):
        net.add(mx.gluon.nn.Dense(3, in_units=3, activation="tanh"))
    net.initialize()
    net.hybridize()
    with backend("NGRAPH"):
        net(mx.nd.ones((2, 3))).wait_to_read()
    assert len(exported) == len(set(exported)) == 2
    assert len(lowered) == 1
    compiled = asked[len(set(asked)):]  # when a program is made, the backend asks itself of the whole graph
    assert len(set(asked)) == 3 and [op for op, _ in compiled].count("tanh") == 4


def test_a_failed_review_is_not_remembered(partitioned: list[str], own_backend: Callable[..., None],
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend fails when it is asked."""
    failed: list[object] = []

    def supports(self: object, node: Node) -> None:
        if failing and node.inputs[0].node is not None:
            failed.append(node)
            raise ZeroDivisionError

    own_backend(InterpreterBackend, supports=supports)
    monkeypatch.setenv("NGRAPH_BACKEND", "OWN")
    symbol = mx.sym.exp(mx.sym.relu(mx.sym.Variable("x")))
    with backend("NGRAPH"):
        for failing in (True, False):
            found = symbol.simple_bind(mx.cpu(), grad_req="null", x=(2, 3)).debug_str()
            assert ("NGraphSubgraphOp" in found) is not failing
    assert len(failed) == 1 and len(partitioned) == 2


def graph_of(names: list[str], op: str = "null") -> NamelessGraph:
    return NamelessGraph(json.dumps({"nodes": [{"op": op, "name": name} for name in names]}, ensure_ascii=False))


texts = st.text(st.characters(exclude_characters="\x7f", exclude_categories=("Cs",)), max_size=6)
name_lists = st.lists(texts.filter(bool), min_size=1, max_size=6, unique=True)


@given(name_lists, texts)
def test_names_come_back(names: list[str], text: str) -> None:
    graph = graph_of(names)
    for place, name in enumerate(names):
        assert json.loads(graph.with_names(json.dumps(name_of(place) + text, ensure_ascii=False))) == name + text
        assert place_in(name_of(place) + text) == place


@given(name_lists, st.lists(texts, max_size=3), st.none() | texts)
def test_records_come_back(names: list[str], ops: list[str], reason: str | None) -> None:
    def partition(names: list[str]) -> Partition:
        region = Region(tuple(zip(names, ops, strict=False)), tuple(names), (names[0],), Cost(1, 2, 3), reason)
        reasons = [reason and reason + name for name in names]
        verdicts = [Verdict(name, "Op", why) for name, why in zip(names, reasons, strict=True)]
        return Partition("CPU", verdicts, [region, region])

    marked = partition([name_of(place) for place in range(len(names))])
    assert partitioner.with_names(marked, graph_of(names)) == partition(names)


@given(st.lists(st.sampled_from(["a", "b", "a_again1", "a_again2"]), max_size=8))
def test_operators_get_names_of_their_own(names: list[str]) -> None:
    found = graph_of(names, "Op").names
    assert len(set(found)) == len(names)
    assert all(ours.startswith(theirs) for ours, theirs in zip(found, names, strict=True))
    assert {name for name in names if names.count(name) == 1} <= set(found)


def test_graphs_differ_by_anything_but_names() -> None:
    def text(name: str, value: str) -> str:
        return NamelessGraph(json.dumps({"nodes": [{"op": "x", "name": name, "attrs": {"a": value}}]})).text

    assert text("n", "1") == text("m", "1") != text("n", "2")


@needs_library
def test_a_block_that_is_called_twice_is_one_region(partitioned: list[str]) -> None:
    """Its operators share names."""
    class Twice(mx.gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.dense = mx.gluon.nn.Dense(4, in_units=4, activation="tanh")

        def hybrid_forward(self, F, x):  # noqa: N803
            return self.dense(F.exp(self.dense(x), name="same")) + F.exp(x, name="same")

    net = Twice()
    net.initialize(mx.init.Uniform(1.0))
    x = mx.nd.random.uniform(-1, 1, (8, 4))
    expected = net(x).asnumpy()
    symbol = net(mx.sym.var("data"))
    names = [node["name"] for node in json.loads(symbol.tojson())["nodes"]]
    assert len(set(names)) < len(names)
    parameters = {name: parameter.data() for name, parameter in net.collect_params().items()}
    for _ in range(2):
        with backend("NGRAPH"):
            executor = symbol.bind(mx.cpu(), {"data": x, **parameters}, grad_req="null")
        assert executor.debug_str().count("Op:") == 1
        close(executor.forward()[0].asnumpy(), expected)
        assert executor.output_dict.keys() == dict.fromkeys(symbol.list_outputs()).keys()
    assert len(partitioned) == 1
    with backend("NGRAPH"):
        net.hybridize()
        close(net(x).asnumpy(), expected)


@pytest.mark.parametrize("how", ["bind", "block"])
def test_a_region_is_lowered_once(partitioned: list[str], how: str, heard: Callable[[str], list[str]],
                                  own_backend: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A region is cut from the graph that was judged, and is what lowering the region anew gives."""
    lowered, compiled = heard("lowered a graph "), []

    def compile(self: Any, graph: Graph, options: Any) -> Any:
        compiled.append(str(graph))
        return InterpreterBackend.compile(self, graph, options)

    own_backend(InterpreterBackend, compile=compile)
    monkeypatch.setenv("NGRAPH_BACKEND", "OWN")
    monkeypatch.setenv("NGRAPH_DYNAMIC", "off")  # the two regions are alike but for their shapes
    for again in (0, 1):  # what is partitioned is remembered, what is lowered was taken
        monkeypatch.setenv("NGRAPH_CACHE_DIR", "off")
        _core.clear_compile_cache()
        if how == "bind":
            shapes = {"once_data": SHAPE, "once_other": (2, 4, 6, 6)}
            with backend("NGRAPH"):
                fill(two_regions("once_").simple_bind(mx.cpu(), grad_req="null", **shapes))
        else:
            net = mx.gluon.nn.HybridSequential(prefix="once_")
            with net.name_scope():
                net.add(mx.gluon.nn.Conv2D(4, 3, in_channels=3), mx.gluon.nn.BatchNorm(in_channels=4),
                        mx.gluon.nn.Dense(3))
            net.initialize()
            net.hybridize(backend="NGRAPH")
            net(mx.nd.ones(SHAPE)).wait_to_read()
        assert len(partitioned) == 1
        regions = 2 if how == "bind" else 1
        assert len(compiled) == (1 + again) * regions
        assert len(lowered) == 1 + again * regions  # the whole once; and again from its JSON, when it was taken
    half = len(compiled) // 2
    assert compiled[:half] == compiled[half:]
