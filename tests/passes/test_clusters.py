"""Which ops become one `fused` node, and that the graph computes what it did."""

from __future__ import annotations

import numpy as np
import pytest
from cluster_graphs import cluster_graphs
from hypothesis import given, settings
from random_graphs import graphs

from ngraph_mxnet.base.errors import GraphError, TypeRuleError
from ngraph_mxnet.ir import Builder, Graph, parse_graph, print_graph, verify
from ngraph_mxnet.passes.clusters import inline_bodies
from ngraph_mxnet.targets.cpu.codegen.clusters import cluster_pass
from ngraph_mxnet.targets.interpreter import InterpreterExecutable


def clustered(graph: Graph) -> list[str]:
    """The ops after the pass; a cluster as `fused(op op)`."""
    cluster_pass().run(graph)
    verify(graph)
    return [
        f"fused({' '.join(n.op.name for n in node.attrs['body'].nodes)})" if node.op.name == "fused" else node.op.name
        for node in graph.nodes
    ]


def evaluate(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = [np.asarray(rng.standard_normal(p.shape), p.type.element.numpy) for p in graph.parameters]
    return InterpreterExecutable(graph).run(arrays)


@settings(max_examples=40)
@given(cluster_graphs() | cluster_graphs(images=True) | graphs())
def test_the_graph_computes_what_it_did(graph: Graph):
    before = graph.clone()
    before.remove_dead()
    expected = evaluate(before)
    clustered(graph)
    for found, wanted in zip(evaluate(graph), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    text = print_graph(graph)
    assert print_graph(parse_graph(text)) == text
    assert print_graph(graph.clone()) == text
    inline_bodies(graph)
    verify(graph)
    assert not any(node.op.name == "fused" for node in graph.nodes)
    for found, wanted in zip(evaluate(graph), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_chain_with_a_branch():
    b = Builder()
    x = b.parameter("x", (4, 8))
    y = b.multiply(x, b.sigmoid(x))
    assert clustered(b.results(b.add(y, b.parameter("bias", (8,))), y)) == ["fused(sigmoid multiply add)"]


def test_constants_of_one_element_are_inside():
    b = Builder()
    x = b.parameter("x", (4, 8))
    graph = b.results(b.relu(b.add(x, b.constant(3.0))))
    assert clustered(graph) == ["fused(constant add relu)"]
    assert len(graph.nodes[0].inputs) == 1


def test_one_op_stays_as_it_is():
    b = Builder()
    assert clustered(b.results(b.sigmoid(b.parameter("x", (4, 8))))) == ["sigmoid"]


def test_another_shape_is_another_cluster():
    b = Builder()
    x, v = b.parameter("x", (4, 8)), b.parameter("v", (8,))
    graph = b.results(b.relu(b.add(x, b.exp(b.negative(v)))))
    assert clustered(graph) == ["fused(negative exp)", "fused(add relu)"]


def test_no_cluster_goes_around_another_op():
    """exp -> sin -> add: the sum may not join the exponential."""
    b = Builder()
    x = b.parameter("x", (4, 8))
    y = b.exp(b.negative(x))
    graph = b.results(b.relu(b.add(y, b.sin(y))))
    assert clustered(graph) == ["fused(negative exp)", "sin", "fused(add relu)"]


def test_no_two_clusters_wait_for_each_other():
    b = Builder()
    x, v = b.parameter("x", (4, 8)), b.parameter("v", (8,))
    a, c = b.exp(x), b.exp(v)
    a2 = b.transpose(a, order=(1, 0))
    c2 = b.add(c, b.reduce_sum(a2, axes=(1,)))  # v's cluster after x's
    a3 = b.add(a, b.sin(b.broadcast(c, shape=(4, 8))))  # x's cluster after v's
    ops = clustered(b.results(a3, c2))
    assert sum("fused" in op for op in ops) == 1


def test_rows():
    b = Builder()
    x, g = b.parameter("x", (2, 4, 8)), b.parameter("g", (8,))
    y = b.softmax(b.multiply(x, b.constant(0.5)), axis=-1)
    assert clustered(b.results(b.layer_norm(b.add(y, x), g, g, axis=2, epsilon=1e-5))) == [
        "fused(constant multiply softmax add layer_norm)"
    ]


def test_a_row_value_broadcasts_along_its_row_only():
    b = Builder()
    x = b.parameter("x", (4, 4))
    total = b.reduce_sum(b.exp(x), axes=(1,))
    assert clustered(b.results(b.subtract(x, total))) == ["fused(exp reduce_sum)", "subtract"]
    b = Builder()
    x = b.parameter("x", (4, 4))
    total = b.reduce_sum(b.exp(x), axes=(1,), keep_dims=True)
    assert clustered(b.results(b.subtract(x, b.sqrt(total)))) == ["fused(exp reduce_sum sqrt subtract)"]


def test_no_reduction_of_images():
    b = Builder()
    x = b.max_pool(b.parameter("x", (1, 16, 4, 4)), kernel=(2, 2))
    y = b.multiply(x, b.sigmoid(x))
    graph = b.results(b.reduce_mean(y, axes=(2, 3)))
    assert clustered(graph) == ["max_pool", "fused(sigmoid multiply)", "reduce_mean"]


def test_bodies_are_checked():
    b = Builder()
    x = b.parameter("x", (4, 8))
    body = b.results(b.relu(x))
    outer = Builder()
    y = outer.parameter("y", (4, 9))
    with pytest.raises(TypeRuleError, match=r"operand 0: found f32\[4,9\], expected f32\[4,8\], as the body's"):
        outer.fused(y, body=body)
    with pytest.raises(TypeRuleError, match="operands: found 2, expected 1"):
        outer.fused(y, y, body=body)


@pytest.mark.parametrize(("line", "error"), [
    ("body @b() -> () {\nbody @c() -> () {", "line 3: the text ends before the graph 'body' does"),
    ("lid @b(%x: f32[2]) -> (f32[2]) {\nreturn %x\n}", "fused has no graph 'lid'"),
    ("body @b(%x: f32[2]) -> (f32[2]) {\nreturn %x\n}\nbody @b(%x: f32[2]) -> (f32[2]) {\nreturn %x\n}", "given twice"),
    ("body @b(%x: f32[2]) -> (f32[2]) {\nreturn %y\n}", "line 4: %y is not defined"),
])
def test_wrong_text_of_bodies(line: str, error: str):
    text = f"graph @g(%x: f32[2]) -> (f32[2]) {{\n  %0: f32[2] = fused(%x)\n{line}\n  return %0\n}}\n"
    with pytest.raises(GraphError, match=error):
        parse_graph(text)
