"""What MXNet's partitioner made of a graph is remembered, whatever the names."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mxnet_helpers import backend, close, fill, mx, needs_library

from ngraph_mxnet.mxnet_bridge import callbacks, judgement, kept_partitions, known, partitioner
from ngraph_mxnet.mxnet_bridge.kept_partitions import UnnamedGraph
from ngraph_mxnet.partition.cost import Cost
from ngraph_mxnet.partition.report import Partition, Region
from ngraph_mxnet.partition.support import Verdict

pytestmark = needs_library

SHAPE = (2, 3, 6, 6)


@pytest.fixture
def partitioned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[object]:
    """What is given to MXNet's partitioner, beginning with nothing known."""
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(known, "memory", known.Memory())
    monkeypatch.setattr(kept_partitions, "memory", known.Memory())
    given: list[object] = []
    stock = partitioner.stock_optimize_for

    def counting(symbol, *args, **kwargs):
        if len(symbol.get_internals().list_outputs()) > 1:  # not the lone variable that clears the names
            given.append(symbol)
        return stock(symbol, *args, **kwargs)

    monkeypatch.setattr(partitioner, "stock_optimize_for", counting)
    return given


def two_regions(prefix: str) -> mx.sym.Symbol:
    """With an operator that we lack in the middle, and inputs that come late."""
    data = mx.sym.Variable(prefix + "data")
    conv = mx.sym.Convolution(data, num_filter=4, kernel=(3, 3), pad=(1, 1), name=prefix + "conv")
    norm = mx.sym.BatchNorm(conv, fix_gamma=False, name=prefix + "norm")
    lost = mx.sym.Correlation(norm, mx.sym.Variable(prefix + "other"), pad_size=1, name=prefix + "lost")
    return mx.sym.FullyConnected(mx.sym.relu(lost, name=prefix + "act"), num_hidden=5, name=prefix + "dense")


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
    partition = callbacks.partitions()[-1]
    assert [verdict.name for verdict in partition.left()] == [prefix + "lost"]
    assert [[name for name, _ in region.nodes] for region in partition.regions] == [
        [prefix + "conv", prefix + "norm"], [prefix + "act", prefix + "dense"]]
    assert partition.regions[0].inputs[0] == prefix + "data"


def test_the_second_instance_is_not_partitioned(partitioned: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    check("a_")
    assert len(partitioned) == 2, "one for each batch"
    for prefix in ("a_", "other_", "", 'näm"e_', "10"):
        check(prefix)
    monkeypatch.setattr(kept_partitions, "memory", known.Memory())
    check("from_disk_")
    assert len(partitioned) == 2
    check("a_", batch=3)
    assert len(partitioned) == 3


def test_settings_partition_anew(partitioned: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    check("a_")
    monkeypatch.setenv("NGRAPH_CPU_WINOGRAD", "0")
    check("a_")
    assert len(partitioned) == 4
    monkeypatch.setenv("NGRAPH_BACKEND", "INTERPRETER")
    check("a_")
    assert len(partitioned) == 6
    assert callbacks.partitions()[-1].backend == "INTERPRETER"


@pytest.mark.parametrize("bind", ["bind", "simple_bind"])
def test_types_and_parameters_partition_anew(partitioned: list[object], bind: str) -> None:
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


def test_a_failed_review_is_not_remembered(partitioned: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    data = mx.sym.Variable("x")
    symbol = mx.sym.FullyConnected(data, num_hidden=4, name="fc")
    with backend("NGRAPH"), monkeypatch.context() as broken:
        broken.setattr(callbacks, "judge_region", lambda *args: 1 / 0)
        assert "NGraphSubgraphOp" not in symbol.simple_bind(mx.cpu(), grad_req="null", x=(2, 3)).debug_str()
    with backend("NGRAPH"):
        assert "NGraphSubgraphOp" in symbol.simple_bind(mx.cpu(), grad_req="null", x=(2, 3)).debug_str()


def test_a_review_without_types_is_not_remembered(
    partitioned: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It repeats what was said of other shapes, or nothing if nothing was."""
    symbol = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=4, name="fc")
    for unknown in (True, False, True):
        with backend("NGRAPH"), monkeypatch.context() as patched:
            if unknown:
                patched.setattr(callbacks, "_region_facts", lambda *args: None)
            executor = symbol.simple_bind(mx.cpu(), grad_req="null", x=(2, 3))
        assert ("NGraphSubgraphOp" in executor.debug_str()) == (len(partitioned) == 2)
    assert len(partitioned) == 2, "the second is remembered"


def graph_of(names: list[str]) -> UnnamedGraph:
    return UnnamedGraph(json.dumps({"nodes": [{"op": "null", "name": name} for name in names]}))


texts = st.text(st.characters(exclude_characters="\x7f", exclude_categories=("Cs",)), max_size=6)
name_lists = st.lists(texts.filter(bool), min_size=1, max_size=6, unique=True)


@given(name_lists, st.data())
def test_names_come_back(names: list[str], data: st.DataObject) -> None:
    graph = graph_of(names)
    assert graph.usable
    text = data.draw(st.sampled_from(names)) + data.draw(texts)
    bare = json.dumps(graph.without_names(text), ensure_ascii=False)
    assert json.loads(graph.with_names(bare)) == text
    renamed = graph_of([f"new{place}" for place in range(len(names))])
    for place, name in enumerate(names):
        bare = json.dumps(graph.without_names(name), ensure_ascii=False)
        assert json.loads(renamed.with_names(bare)) == f"new{place}"


@given(name_lists, st.lists(st.tuples(texts, texts), max_size=3), st.none() | texts)
def test_records_come_back(names: list[str], nodes: list[tuple[str, str]], reason: str | None) -> None:
    region = Region(tuple(nodes), tuple(names), (names[0],), Cost(1, 2, 3), reason)
    partition = Partition("CPU", [Verdict(name, "Op", reason) for name in names], [region, region])
    graph = graph_of(names)
    kept = kept_partitions._dump(kept_partitions._record(partition, graph.without_names))
    assert kept_partitions._partition(json.loads(graph.with_names(kept))) == partition


@pytest.mark.parametrize("names", [["a", "a"], ["a\x7f1\x7f"], ["a", ""]])
def test_names_that_tell_no_place_are_not_used(names: list[str]) -> None:
    graph = graph_of(names)
    assert not graph.usable
    kept_partitions.keep(graph, "facts", Partition("CPU", []), None)
    assert kept_partitions.recall(graph, "facts") is None


def test_graphs_differ_by_anything_but_names() -> None:
    def structure(name: str, value: str) -> str:
        node = {"op": "x", "name": name, "attrs": {"a": value}}
        return UnnamedGraph(json.dumps({"nodes": [node]})).structure

    assert structure("n", "1") == structure("m", "1") != structure("n", "2")


@needs_library
def test_a_block_that_is_called_twice_is_one_region(partitioned: list[object]) -> None:
    """Its operators share names, by which MXNet's partitioner would tell them."""
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


class Slow(mx.operator.CustomOp):
    done = threading.Event()

    def forward(self, is_train, req, in_data, out_data, aux):
        time.sleep(0.2)
        self.assign(out_data[0], req[0], in_data[0])
        self.done.set()


@mx.operator.register("slow_copy")
class SlowCopy(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Slow()


@pytest.mark.parametrize("how", ["args", "aux"])
def test_arrays_are_computed_before_the_partitioner_sees_them(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It allocates an array that is not computed yet, at the same time as the thread that computes it: one time in some
    thousands, the values were lost."""
    computed: list[bool] = []
    stock = partitioner.stock_optimize_for

    def spy(*args, **kwargs):
        computed.append(Slow.done.is_set())
        return stock(*args, **kwargs)

    monkeypatch.setattr(partitioner, "stock_optimize_for", spy)
    Slow.done.clear()
    slow = mx.nd.Custom(mx.nd.ones(4), op_type="slow_copy")
    if how == "aux":
        net = mx.sym.BatchNorm(mx.sym.Variable("x"), name="bn")
        arrays = {"x": mx.nd.ones((2, 4)), "bn_gamma": mx.nd.ones(4), "bn_beta": mx.nd.ones(4)}
        net.optimize_for("NGRAPH", arrays, {"bn_moving_mean": mx.nd.ones(4), "bn_moving_var": slow})
    else:
        net = mx.sym.exp(mx.sym.Variable("x"))
        net.optimize_for("NGRAPH", {"x": slow})
    assert all(computed) and computed


@pytest.mark.parametrize("how", ["bind", "block"])
def test_a_region_is_lowered_once(partitioned: list[object], how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the review lowered is compiled, and is what lowering the region anew gives."""
    from ngraph_mxnet import _core

    _core.clear_compile_cache()
    lowered, compiled = [], []
    anew, stock = judgement.lower_graph, callbacks.region_graph
    monkeypatch.setattr(judgement, "lower_graph",
                        lambda *args, **rest: lowered.append(anew(*args, **rest)) or lowered[-1])

    def taken(*args):
        compiled.append((stock(*args), args))
        return compiled[-1][0]

    monkeypatch.setattr(callbacks, "region_graph", taken)
    monkeypatch.setattr(callbacks, "lower_graph", lambda *args, **rest: pytest.fail("lowered anew"))
    if how == "bind":
        with backend("NGRAPH"):
            fill(two_regions("once_").simple_bind(mx.cpu(), grad_req="null", once_data=SHAPE, once_other=(2, 4, 6, 6)))
    else:
        net = mx.gluon.nn.HybridSequential()
        net.add(mx.gluon.nn.Conv2D(4, 3, in_channels=3), mx.gluon.nn.BatchNorm(in_channels=4), mx.gluon.nn.Dense(3))
        net.initialize()
        net.hybridize(backend="NGRAPH")
        net(mx.nd.ones(SHAPE)).wait_to_read()
    monkeypatch.setattr(callbacks, "lower_graph", anew)
    assert len(lowered) == len(compiled) == (2 if how == "bind" else 1)
    for graph, args in compiled:
        assert any(graph is one for one in lowered)
        assert str(graph) == str(stock(*args))
