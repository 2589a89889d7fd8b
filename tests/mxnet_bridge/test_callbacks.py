"""What the plugin is told: verdicts with reasons, reviews, compiled regions."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mxnet_helpers import needs_library
from native_runs import all_shapes, mx, random_arrays, run_native

from ngraph_mxnet.mxnet_bridge import callbacks, judgement, known
from ngraph_mxnet.mxnet_bridge.symbol_json import parse_symbol
from ngraph_mxnet.partition.regions import ALONE
from ngraph_mxnet.runtime.backend import get_backend

sym = mx.sym
INTERPRETER = {"ngraph_backend": "interpreter"}


def model() -> mx.sym.Symbol:
    conv = sym.Convolution(sym.var("data"), kernel=(3, 3), num_filter=4, name="conv")
    act = sym.Activation(conv, act_type="relu", name="act")
    flat = sym.Flatten(sym.cast_storage(act, stype="default", name="sorted"), name="flat")
    return sym.SoftmaxOutput(sym.FullyConnected(flat, num_hidden=3, name="dense"), name="out")


def with_types(symbol: mx.sym.Symbol, dtype: int = 0, hide: str = "", **shapes: tuple[int, ...]) -> str:
    """The JSON as the partitioner writes it; `hide` names a node whose shape MXNet does not know."""
    root = json.loads(symbol.tojson())
    internals = symbol.get_internals()
    known = dict(zip(internals.list_outputs(), internals.infer_shape(**shapes)[1], strict=True))
    for node in root["nodes"]:
        names = [node["name"], node["name"] + "_output", node["name"] + "_output0"]
        shape = next((known[name] for name in names if name in known), None)
        if shape and node["name"] != hide:
            types = {"__ext_shape__": json.dumps([shape]), "__ext_dtype__": f"[{dtype}]"}
            node["attrs"] = {**node.get("attrs", {}), **types}
    return json.dumps(root)


@dataclass(frozen=True)
class Text:
    """Stands for `_core.MXNetGraph`, whose parser trusts the text."""

    text: str

    def json(self) -> str:
        return self.text

    def digest(self, *, with_types: bool) -> str:
        if with_types:
            return self.text
        return str([(node["op"], node["inputs"], [item for item in node.get("attrs", {}).items()
                                                  if not item[0].startswith("__ext_")])
                    for node in json.loads(self.text)["nodes"]])

    @property
    def has_types(self) -> bool:
        return "__ext_shape__" in self.text

    @property
    def nodes(self) -> list[tuple[str, str]]:
        return [(node["name"], node["op"]) for node in json.loads(self.text)["nodes"]]

    @property
    def arguments(self) -> list[str]:
        return [name for name, op in self.nodes if op == "null"]

    @property
    def outputs(self) -> list[str]:
        return [self.nodes[head[0]][0] for head in json.loads(self.text)["heads"]]


def supported_ops(text: str, options: dict[str, str] = INTERPRETER) -> list[bool]:
    """Of each node whether it is in a region."""
    return [number != ALONE for number in callbacks.assign_regions(Text(text), options)]


def review_subgraph(text: str, options: dict[str, str] = INTERPRETER) -> callbacks.Review:
    return callbacks.review_subgraph(Text(text), options)


def verdicts(text: str) -> dict[str, str | None]:
    with callbacks.log.listening() as heard:
        flags = supported_ops(text)
    result = {v.name: v.reason for v in heard[0].verdicts}
    nodes = parse_symbol(text).nodes
    assert flags == [result.get(n.name, "a variable") is None for n in nodes]
    return result


def test_verdicts() -> None:
    assert verdicts(with_types(model(), data=(2, 3, 5, 5))) == {
        **dict.fromkeys(["conv", "act", "flat", "dense", "out"]),
        "sorted": "cast_storage stays with MXNet: it works on sparse arrays",
    }


def test_unknown_shapes_and_other_types_are_reasons() -> None:
    reasons = verdicts(with_types(model(), hide="conv", data=(2, 3, 5, 5)))
    assert reasons["act"] == "the shape or type of input 0 is unknown"
    assert verdicts(model().tojson())["conv"] == "the shape or type of input 0 is unknown"
    assert verdicts(with_types(model(), dtype=2, data=(2, 3, 5, 5)))["conv"] is None
    assert "f64[2,3,5,5]; supported element types: f16, f32" in str(
        verdicts(with_types(model(), dtype=1, data=(2, 3, 5, 5)))["conv"])


def test_a_disagreement_about_shapes_is_a_reason() -> None:
    text = with_types(sym.relu(sym.var("x"), name="r"), x=(2, 3)).replace("[[2, 3]]", "[[2, 9]]", 2)
    text = text.replace("[[2, 9]]", "[[2, 3]]", 1)
    assert verdicts(text)["r"] == "output 0 would be f32[2,3], for MXNet it is f32[2,9]"


def test_reading_an_output_that_is_not_computed_is_a_reason() -> None:
    norm = sym.BatchNorm(sym.var("x"), name="bn")
    root = json.loads(with_types(sym.relu(norm, name="r"), x=(2, 3)))
    root["nodes"][-1]["inputs"] = [[5, 1, 0]]
    reason = "output 1 of mx:bn BatchNorm is read, which is not computed at inference"
    assert verdicts(json.dumps(root))["bn"] == reason


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test judges anew."""
    monkeypatch.setattr(known, "memory", known.Memory())


@needs_library
def test_names_do_not_matter_to_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    digests: list[tuple[str, str]] = []

    def assign_regions(graph: callbacks.PartitionedGraph, options: object) -> list[int]:
        digests.append((graph.digest(with_types=True), graph.digest(with_types=False)))
        assert graph.has_types
        return [ALONE] * len(graph.nodes)

    monkeypatch.setattr(callbacks, "assign_regions", assign_regions)

    def partition(prefix: str, rows: int = 2, **changes: int) -> tuple[str, str]:
        net(prefix, **changes).optimize_for("NGRAPH", {prefix + "data": mx.nd.ones((rows, 4))})
        return digests[-2]  # the last is of the variable that clears the names

    one = partition("a")
    assert partition("b") == one
    typed, structure = partition("a", rows=3)
    assert typed != one[0]
    assert structure == one[1]
    assert len({one[1], partition("a", hidden=4)[1]}) == 2


@needs_library
@pytest.mark.parametrize("name", ["NGRAPH_CODEGEN", "NGRAPH_AUTOTUNE"])
def test_settings_are_part_of_the_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(name, raising=False)
    before = callbacks.settings_key("digest")
    monkeypatch.setenv(name, "1")
    assert callbacks.settings_key("digest") != before


def test_names_are_as_the_user_wrote_them() -> None:
    odd = sym.relu(sym.cast_storage(sym.var('d"a\\ta'), stype="default", name='s"o\\rt'), name="r")
    with callbacks.log.listening() as heard:
        odd.optimize_for("NGRAPH", {'d"a\\ta': mx.nd.ones((2, 1024))})
    assert heard[0].verdicts[0].name == 's"o\\rt'
    assert heard[0].regions[0].nodes == (("r", "relu"),)


def net(prefix: str, hidden: int = 3) -> mx.sym.Symbol:
    data = mx.sym.Variable(prefix + "data")
    dense = mx.sym.FullyConnected(data, num_hidden=hidden, name=prefix + "fc")
    return mx.sym.Activation(dense, act_type="relu", name=prefix + "relu")


def test_the_backend_has_a_say(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = get_backend(callbacks.chosen_backend(INTERPRETER))
    monkeypatch.setattr(type(backend), "supports", lambda self, node: "not today")
    assert verdicts(with_types(model(), data=(2, 3, 5, 5)))["conv"] == "backend INTERPRETER: not today"


def test_a_failing_rule_leaves_the_node(monkeypatch: pytest.MonkeyPatch,
                                        caplog: pytest.LogCaptureFixture) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(judgement, "lower_node", broken)
    with caplog.at_level(logging.WARNING, "ngraph_mxnet"):
        reasons = verdicts(with_types(model(), data=(2, 3, 5, 5)))
    assert reasons["conv"] == "its rule failed: ZeroDivisionError('oops')"
    assert "the rule for mx:conv Convolution failed" in caplog.text


@given(st.text(max_size=40))
def test_no_text_makes_it_raise(text: str) -> None:
    graph = Broken(text)
    assert callbacks.assign_regions(graph, {}) == [ALONE]
    assert callbacks.review_subgraph(graph, {}) == (False, {})


class Broken(Text):
    """MXNet knows one node, whatever the text says."""

    has_types = True
    nodes = property(lambda self: [("x", "null")])


def test_a_wrong_backend_supports_nothing(caplog: pytest.LogCaptureFixture) -> None:
    text = with_types(model(), data=(2, 3, 5, 5))
    with caplog.at_level(logging.WARNING, "ngraph_mxnet"):
        assert not any(supported_ops(text, {"ngraph_backend": "TOASTER"}))
    assert "no backend 'TOASTER'" in caplog.text


# ---- review ---------------------------------------------------------------------------------------------

def test_review_accepts_and_repeats_itself_without_shapes() -> None:
    net = sym.Activation(sym.FullyConnected(sym.var("x"), num_hidden=3, name="repeat_me"), act_type="tanh")
    assert review_subgraph(net.tojson()) == (False, {})
    assert review_subgraph(with_types(net, x=(2, 4)), {**INTERPRETER, "dedup_subgraph": "1"})[0]
    accepted = review_subgraph(with_types(net, x=(2, 4)))
    assert accepted[0]
    assert accepted[1]["ngraph_backend"] == "INTERPRETER"
    assert review_subgraph(net.tojson()) == accepted


def test_a_region_without_computation_is_not_worth_it() -> None:
    with callbacks.log.listening() as heard:
        net = sym.transpose(sym.reshape(sym.var("x"), shape=(4, 2), name="r"), name="t")
        supported_ops(with_types(net, x=(2, 4)))
        assert review_subgraph(with_types(net, x=(2, 4))) == (False, {})
    assert heard[0].regions == []
    assert "only moves elements" in str(heard[0].reviewed[0].rejected)
    assert heard[0].left()[0].reason == heard[0].reviewed[0].rejected


def test_the_log_tells_regions_and_left_kinds(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ngraph_mxnet"):
        supported_ops(with_types(model(), data=(2, 3, 5, 5)))
        net = sym.FullyConnected(sym.var("x"), num_hidden=1000, name="fc")
        review_subgraph(with_types(net, x=(2, 1000)))
    assert "left to MXNet: 1 x cast_storage: cast_storage stays with MXNet: it works on sparse arrays" in caplog.text
    assert "region 1 on INTERPRETER: 1 nodes (FullyConnected x1), 2.0 million multiply-adds" in caplog.text


def test_the_record_is_bounded_and_threads_do_not_mix() -> None:
    text = with_types(model(), data=(2, 3, 5, 5))
    net = sym.relu(sym.var("x"), name="r")
    heard_by: dict[int, int] = {}

    def work(number: int) -> None:
        with callbacks.log.listening() as heard:
            for _ in range(10):
                supported_ops(text)
                review_subgraph(with_types(net, x=(2, number + 1)))
        assert all(len(partition.reviewed) == 1 for partition in heard)
        heard_by[number] = len(heard)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard_by == dict.fromkeys(range(4), 10)
    assert len(callbacks.partitions()) <= 16


# ---- compile --------------------------------------------------------------------------------------------

@needs_library
@pytest.mark.parametrize("backend", ["INTERPRETER", "CPU"])
def test_compiled_region(backend: str) -> None:
    net = sym.Activation(sym.FullyConnected(sym.var("x"), num_hidden=3, name="fc"), act_type="relu")
    shapes = all_shapes(net, {"x": (2, 4)})
    names = net.list_arguments()
    native = callbacks.compile_subgraph(net.tojson(), [shapes[n] for n in names], [0] * len(names),
                                        {"ngraph_backend": backend})
    arrays = random_arrays(shapes, 0)
    outputs = [np.empty((2, 3), np.float32)]
    native.run([arrays[name] for name in names], outputs)
    np.testing.assert_allclose(outputs[0], run_native(net, arrays)[0], rtol=1e-5, atol=1e-6)


@needs_library
def test_a_computed_input_is_never_cacheable() -> None:
    root = json.loads(sym.FullyConnected(sym.var("x"), num_hidden=3, no_bias=True, name="fc").tojson())
    for node in root["nodes"][:2]:
        node["attrs"] = {"isArg": "False", "isAux": "False"}
    native = callbacks.compile_subgraph(json.dumps(root), [(1, 2), (3, 2)], [0, 0], {"ngraph_backend": "CPU"})
    out = [np.empty((1, 3), np.float32)]
    for scale in (1, 2):
        native.run([np.ones((1, 2), "f"), np.full((3, 2), scale, "f")], out)
        assert out[0].tolist() == [[2 * scale] * 3]
    assert native.prepare_runs == 0
