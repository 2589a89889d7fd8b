"""The printer and the parser."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_records import RECORDS
from random_graphs import graphs

from ngraph_mxnet.base.errors import GraphError, NGraphError
from ngraph_mxnet.ir import Builder, Graph, all_ops, get_op, parse_graph, print_graph, verify
from ngraph_mxnet.ir.opdef import FORMER

HEAD = "graph @g(%x: f32[2]) -> (f32[2]) {\n"
TEXT = """\
graph @head(%data: f32[8,512,7,7], %w: f32[10,512] weight) -> (f32[8,10]) {
  %0: f32[8,512] = reduce_mean(%data) {axes=[2,3]}            # mx:pool1 Pooling
  %1: f32[8,10] = matmul(%0, %w) {transpose_b=true}           # mx:fc1 FullyConnected
  return %1
}
"""


def head() -> Graph:
    b = Builder(name="head")
    data, w = b.parameter("data", (8, 512, 7, 7)), b.weight("w", (10, 512))
    b.origin = "mx:pool1 Pooling"
    pooled = b.reduce_mean(data, axes=(2, 3))
    b.origin = "mx:fc1 FullyConnected"
    return b.results(b.matmul(pooled, w, transpose_b=True))


def test_printed_text():
    assert print_graph(head()) == TEXT


def test_parsed_graph():
    graph = parse_graph(TEXT)
    assert [(p.name, p.is_weight) for p in graph.parameters] == [("data", False), ("w", True)]
    assert [node.op.name for node in graph.nodes] == ["reduce_mean", "matmul"]
    bounds = {"lower": -math.inf, "upper": math.inf}
    assert graph.nodes[1].attrs == {"transpose_a": False, "transpose_b": True, "exact": False, **bounds}
    assert graph.nodes[1].origin == "mx:fc1 FullyConnected"


@settings(max_examples=60)
@given(graphs())
def test_random_graphs_round_trip(graph: Graph):
    verify(graph)
    text = print_graph(graph)
    copy = parse_graph(text)
    assert print_graph(copy) == text
    assert print_graph(graph.clone()) == text
    assert [str(r.type) for r in copy.results] == [str(r.type) for r in graph.results]


def comparable(attrs: dict[str, Any]) -> dict[str, Any]:
    return {key: str(value) if isinstance(value, Graph) else value for key, value in attrs.items()}


@pytest.mark.parametrize("name", RECORDS)
def test_every_op_round_trips(name: str):
    @settings(max_examples=3)
    @given(st.data())
    def check(data):
        types, attrs = RECORDS[name].case(data.draw)
        b = Builder(name=RECORDS[name].op)
        node = b.node(RECORDS[name].op, [b.parameter(f"x{i}", t.shape, t.element) for i, t in enumerate(types)], attrs)
        text = print_graph(b.results(*node.outputs))
        copy = parse_graph(text)
        assert print_graph(copy) == text
        assert comparable(copy.nodes[0].attrs) == comparable(node.attrs)

    check()


@pytest.mark.parametrize(
    "value",
    [
        np.float32(np.nan),
        np.array([np.inf, -0.0], np.float16),
        np.zeros((0, 3), np.int8),
        np.array(True),
        np.arange(24, dtype=np.uint64).reshape(2, 3, 4).T,
    ],
    ids=str,
)
def test_constants_round_trip_bit_for_bit(value):
    b = Builder(name="constants")
    graph = parse_graph(print_graph(b.results(b.constant(value))))
    found = graph.nodes[0].attrs["value"]
    assert (found.shape, found.dtype) == (value.shape, value.dtype)
    assert found.tobytes() == value.tobytes()


@pytest.mark.parametrize(
    "origin",
    ["   ", "trailing ", " leading", "a\nb", "x}  # y", "f(%0)  # {b=2}", "{a=1}", "日本", "\\u0041", "#"],
)
def test_any_origin_round_trips(origin: str):
    b = Builder(name="origins")
    b.origin = origin
    x = b.parameter("x", (2,))
    text = print_graph(b.results(b.clamp(b.relu(x), lower=0, upper=1)))
    copy = parse_graph(text)
    assert print_graph(copy) == text
    assert [node.origin for node in copy.nodes] == [origin, origin]


@pytest.mark.parametrize(
    "name", ["", "a b", "0", "x)", ") -> (", "x)  # y", "x) {a=1}", "ü", 'a"b\\', "%1", "naïve.w-1", " "]
)
def test_any_name_round_trips(name: str):
    b = Builder(name=name)
    x = b.weight(name, (2,))
    copy = parse_graph(print_graph(b.results(b.relu(x), x)))
    assert (copy.name, copy.parameters[0].name) == (name, name)
    assert copy.results[1] is copy.parameters[0]


FUSED = """\
graph @fused(%x: f32[1,2,4], %w: f32[2,2,1], %v: f32[2]) -> (f32[1,2,4], f32[1,2,4]) {
  %0: f32[1,2,4], %1: f32[1,2,4] = convolution(%x, %w, bias=%v, residual=%x, scale=%v, shift=%v) \
{strides=[1], dilations=[1], pads_begin=[0], pads_end=[0], data_dilations=[1], lower=0.0, lower2=-1.0}
  return %0, %1
}
"""


def test_operands_of_epilogues_have_names():
    graph = parse_graph(FUSED)
    x, _, v = graph.parameters
    assert graph.nodes[0].epilogue == {"bias": v, "residual": x, "scale": v, "shift": v}
    assert print_graph(graph) == FUSED


def test_texts_with_former_names_are_read():
    former = FUSED.replace("= convolution(", "= convolution_bias_add_scale_shift(")
    for name in ("bias", "residual", "scale", "shift"):
        former = former.replace(f"{name}=", "")
    assert print_graph(parse_graph(former)) == print_graph(parse_graph(FUSED))
    assert FORMER.keys().isdisjoint(all_ops())
    assert {get_op(name).name for name in FORMER} == {"convolution", "matmul", "quantized_convolution"}


def test_elided_text_is_short():
    b = Builder(name="big")
    text = print_graph(b.results(b.constant(np.zeros(10000, np.float32))), elide=True)
    assert len(text) < 150


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("", "empty text"),
        ("graf @g() -> () {", "expected 'graph @name"),
        ("graph @g(%x: f31[2]) -> (f32[2]) {\n return %x\n}", "no element type 'f31'"),
        ("graph @g(%x: f32[2], %x: f32[2]) -> (f32[2]) {\n return %x\n}", "'x'"),
        (HEAD + " %0: f32[2] = fly(%x)\n return %0\n}", "no op 'fly'"),
        (HEAD + " %0: f32[3] = relu(%x)\n return %0\n}", r"relu gives f32\[2\]"),
        (
            HEAD + " %0: f32[2] = relu(%1)\n %1: f32[2] = relu(%x)\n return %0\n}",
            "line 2: %1 is not defined",
        ),
        (
            HEAD + " %0: f32[2] = relu(%x) {up=1}\n return %0\n}",
            "no attribute 'up'",
        ),
        (HEAD + " %0: f32[2] = elu(%x) {alpha=one}\n return %0\n}", "line 2"),
        (
            HEAD + " %0: f32[2] = elu(%x) {alpha=1, alpha=2}\n return %0\n}",
            "line 2",
        ),
        (HEAD + " %0: f32[2] = relu(%x, %x)\n return %0\n}", "takes 1 operands"),
        (HEAD + " %0: f32[2] = relu(x=%x)\n return %0\n}", "line 2: operand 0 of relu is not called 'x'"),
        (HEAD + " %0: f32[2] = matmul(%x, %x, residual=%x)\n return %0\n}", "operand 2 of matmul is not called 'resid"),
        (
            HEAD + " %0: f32[2] = relu(%x)\n %0: f32[2] = relu(%x)\n return %0\n}",
            "line 3",
        ),
        (HEAD + " return %y\n}", "line 2: %y is not defined"),
        ("graph @g(%x: f32[2]) -> (f32[3]) {\n return %x\n}", "result"),
        (HEAD + "}", "not a node: '}'"),
        (HEAD + " return %x", "ends without"),
        (
            HEAD + " return %x\n}\n%0: f32[2] = relu(%x)\n}",
            "line 3: expected '}' and the end",
        ),
        ("graph @g() -> (f32[2]) {\n %0: f32[2] = constant() {value=dense<2;AAAA>}\n return %0\n}", "line 2"),
        ("graph @g() -> (f32[2]) {\n %0: f32[2] = constant() {value=dense<2>}\n return %0\n}", "line 2"),
        ('graph @"\\x"() -> () {\n return \n}', "line 1"),
        (HEAD + " %0: f32[2] = relu(%x) # \\x\n return %0\n}", "line 2"),
    ],
)
def test_parser_errors(line: str, text: str):
    with pytest.raises(GraphError, match=text):
        parse_graph(line)


@settings(max_examples=60)
@given(graphs(steps=4), st.data())
def test_damaged_text_raises_graph_errors_only(graph: Graph, data):
    text = print_graph(graph)
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = data.draw(
        st.sampled_from(
            [
                text[:at],
                text[at:],
                text[:at] + text[at + 1 :],
                text[:at] + "9" + text[at + 1 :],
                text[:at] + "\\" + text[at:],
                text[:at] + "\n" + text[at:],
                text[:at] + text[at:][::-1],
            ]
        )
    )
    with contextlib.suppress(GraphError):
        parse_graph(damaged)


def test_symbols_and_guards_read_back() -> None:
    from ngraph_mxnet.ir.ranges import Guards, assuming
    from ngraph_mxnet.ir.sizes import symbol

    sizes = {"N": 2, "H": 20, "W": 33}
    n, h, w = (symbol(name, 1, most) for name, most in zip("NHW", (32, 1 << 46, 4096), strict=True))
    with assuming(Guards(sizes)) as guards:
        b = Builder(name="open")
        x = b.parameter("x", (n, 3, h, w))
        y = b.max_pool(b.relu(x), kernel=(3, 3), strides=(2, 2))
        graph = b.results(b.reshape(y, shape=(n, 3 * y.shape[2] * y.shape[3])), b.reduce_mean(y, axes=(2, 3)))
    graph.guards = list(guards.found.values())
    text = str(graph)
    assert text.startswith("graph @open<N: 1..32, H: 1.., W: 1..4096>(%x: f32[N,3,H,W]) -> (f32[")
    assert "  guard H - 2 > 0\n" in text and str(parse_graph(text)) == text
    bound = graph.at(sizes)
    verify(bound)
    assert [value.shape for value in bound.results] == [(2, 3 * 9 * 16), (2, 3)]
    assert not bound.guards and "guard" not in str(bound)


@pytest.mark.parametrize(("text", "error"), [
    ("graph @g<N: 1..4>(%x: f32[N,M]) -> () {\n  return\n}", "M"),
    ("graph @g<N: 4..1>(%x: f32[N]) -> () {\n  return\n}", "bounds"),
    ("graph @g<N>(%x: f32[N]) -> () {\n  return\n}", "can't read"),
    ("graph @g<N: 1..4>(%x: f32[N]) -> () {\n  guard N > 9\n  return\n}", "never holds"),
    ("graph @g<N: 1..4>(%x: f32[N]) -> () {\n  guard N +\n  return\n}", "size"),
    ("graph @g<N: 1..>(%x: f32[N]) -> (f32[2]) {\n  %0: f32[2] = reshape(%x) {shape=[2]}\n  return %0\n}", "guard"),
])
def test_what_is_wrong_with_symbols_is_told(text: str, error: str) -> None:
    with pytest.raises(NGraphError, match=error):
        parse_graph(text)
