"""What nodes are counted as."""

from __future__ import annotations

from ngraph_mxnet.ir import Builder
from ngraph_mxnet.ir.graph import Cost, node_cost
from ngraph_mxnet.passes.pipelines import optimize


def test_fused_contractions_cost_what_their_parts_do():
    b = Builder(name="fused")
    x, w = b.parameter("x", (2, 3, 8, 8)), b.weight("w", (4, 3, 3, 3))
    b.convolution(x, w)
    plain = b.graph.nodes[-1]
    graph = b.results(b.relu(plain.output))
    expected = node_cost(plain)
    optimize(graph)
    (node,) = [node for node in graph.nodes if "bias" in node.epilogue]
    assert node_cost(node) == expected == Cost(macs=2 * 4 * 36 * 27)


def test_attention_and_recurrent_layers_count_their_products():
    b = Builder(name="layers")
    q, k, v = b.parameter("q", (2, 5, 8)), b.parameter("k", (2, 7, 8)), b.parameter("v", (2, 7, 3))
    b.attention(q, k, v)
    assert node_cost(b.graph.nodes[-1]).macs == 2 * 5 * 7 * (8 + 3)
    x, w, bias = b.parameter("x", (6, 2, 16)), b.parameter("w", (16, 4)), b.parameter("b", (16,))
    node = b.node("rnn", [x, w, bias, b.parameter("h", (2, 4)), b.parameter("c", (2, 4))], {"cell": "lstm"})
    assert node_cost(node).macs == 6 * 2 * 16 * 4
    shapes = {"gates": (6, 2, 12), "u": (8, 4), "v": (8,), "own": (4, 4), "own_bias": (4,), "s": (2, 4)}
    gru = b.node("gru_reset_first", [b.parameter(name, shape) for name, shape in shapes.items()], {})
    assert node_cost(gru) == Cost(macs=6 * 2 * (8 + 4) * 4, operations=6 * 2 * 12)


def test_windows_count_their_elements_and_moves_count_nothing():
    b = Builder(name="windows")
    x = b.parameter("x", (2, 3, 8, 8))
    b.max_pool(x, kernel=(2, 2), strides=(2, 2))
    assert node_cost(b.graph.nodes[-1]) == Cost(operations=2 * 3 * 4 * 4 * 4)
    b.node("lrn", [x], {"size": 5})
    assert node_cost(b.graph.nodes[-1]) == Cost(operations=2 * 3 * 8 * 8 * 5)
    b.transpose(x, order=(0, 2, 3, 1))
    assert node_cost(b.graph.nodes[-1]) == Cost()
    b.reduce_sum(x, axes=(2, 3))
    assert node_cost(b.graph.nodes[-1]) == Cost(operations=2 * 3 * 8 * 8)
