"""Which values become i8, with which scales, and what a quantised graph computes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.ir.graph import Builder, Graph, Value, verify
from ngraph_mxnet.passes.pipelines import optimize
from ngraph_mxnet.targets.nnp.quantization import FORMATS, Quantization, on_grid, uniform
from ngraph_mxnet.targets.nnp.quantize import observe, quantize, quantized_reference

RELU = {"lower": 0.0}


def array(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


class Net:
    """A graph whose weights are known parameters."""

    def __init__(self, seed: int = 0) -> None:
        self.b, self.rng, self.known = Builder(), np.random.default_rng(seed), dict[Value, np.ndarray]()

    def weight(self, *shape: int) -> Value:
        value = self.b.parameter(f"w{len(self.known)}", shape)
        self.known[value] = array(self.rng, *shape) / np.float32(max(np.prod(shape[1:]), 1)) ** 0.5
        return value

    def convolution(self, x: Value, outputs: int, residual: Value | None = None, **attrs) -> Value:
        attrs = {"pads_begin": (1, 1), "pads_end": (1, 1), **RELU, **attrs}
        weights, bias = self.weight(outputs, x.shape[1], 3, 3), self.weight(outputs)
        if residual is None:
            return self.b.convolution(x, weights, bias, **attrs)
        return self.b.convolution(x, weights, bias, residual, **attrs)

    def sample(self) -> list[np.ndarray]:
        return [self.known[p] if p in self.known else array(self.rng, *p.shape) for p in self.b.graph.parameters]


def small_net(seed: int = 0) -> Net:
    """Convolutions, a residual, pools, a concat, a product, a softmax."""
    net = Net(seed)
    b = net.b
    x = b.parameter("x", (2, 3, 12, 12))
    stem = net.convolution(x, 8)
    pooled = b.max_pool(stem, kernel=(2, 2), strides=(2, 2))
    inner = net.convolution(pooled, 8)
    summed = net.convolution(inner, 8, residual=pooled)
    side = net.convolution(pooled, 4)
    joined = net.convolution(b.concat(summed, side, axis=1), 6)
    vector = b.reshape(b.reduce_mean(joined, axes=(2, 3), keep_dims=True), shape=(2, 6))
    logits = b.matmul(vector, net.weight(5, 6), net.weight(5), transpose_b=True)
    b.results(b.softmax(logits, axis=-1), inner)
    return net


def run_float(graph: Graph, sample: list[np.ndarray]) -> list[np.ndarray]:
    return observe(graph, [sample], set())[1][0]


def is_consistent(graph: Graph, q: Quantization, element: str) -> None:
    """What lowering relies on."""
    verify(graph)
    assert set(q.elements) == set(graph.values())
    for value, stored in q.elements.items():
        assert (stored == "i8") == (value in q.scales or value in q.weights)
        assert stored in FORMATS
    for node in graph.nodes:
        if on_grid(node):
            wanted = "i8" if node in q.products else element
            assert [q.elements[v] for v in node.inputs[:2]] == [wanted, wanted], node
            assert node not in q.products or q.sum_scale(node).dtype == np.float32
    assert all(q.elements[result] == "f32" for result in graph.results)


def test_what_is_i8():
    net = small_net()
    graph, known = net.b.graph, net.known
    q = quantize(graph, known, [net.sample()])
    is_consistent(graph, q, "f16")
    elements = {value.node.op.name: q.elements[value] for value in graph.values() if value.node}
    assert len(q.products) == 6
    assert elements["max_pool"] == elements["reshape"] == elements["reduce_mean"] == elements["concat"] == "i8"
    assert elements["softmax"] == "f32"  # a result
    by_op = {node.op.name: node for node in graph.nodes}
    pool, concat, reshape = by_op["max_pool"], by_op["concat"], by_op["reshape"]
    assert q.scales[pool.inputs[0]] == q.scales[pool.output]
    assert q.scales[reshape.inputs[0]] == q.scales[reshape.output]
    assert len({q.scales[v] for v in (*concat.inputs, concat.output)}) == 1
    # `inner` is a result, in f32, and what the next convolution multiplies: that one reads a conversion.
    inner = graph.results[1]
    assert q.elements[inner] == "f32"
    (conversion,) = [node for node in graph.nodes if node.op.name == "identity"]
    assert conversion.inputs == [inner] and q.elements[conversion.output] == "i8"


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 99), st.sampled_from(["i8", "f16", "bf16"]))
def test_results_are_near_those_of_float32(seed, name):
    net = small_net(seed)
    graph, known, sample = net.b.graph, net.known, net.sample()
    expected = run_float(graph, sample)
    if name == "i8":
        q = quantize(graph, known, [sample, net.sample()])
        is_consistent(graph, q, "f16")
    else:
        q = uniform(graph, known, name)
        is_consistent(graph, q, name)
    for found, exact in zip(quantized_reference(graph, q, sample), expected, strict=True):
        assert found.dtype == np.float32
        error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
        assert 0 < error < {"i8": 0.05, "bf16": 0.015, "f16": 0.002}[name]


def test_numbers_that_i8_holds_are_exact():
    """Where scales are powers of two and nothing saturates, no product is rounded."""
    net, rng = Net(), np.random.default_rng(1)
    x = net.b.parameter("x", (1, 4, 6, 6))
    weights = net.weight(3, 4, 3, 3)
    net.known[weights] = rng.integers(-127, 128, (3, 4, 3, 3)).astype(np.float32)
    net.known[weights][:, 0, 0, 0] = 127
    data = rng.integers(-127, 128, (1, 4, 6, 6)).astype(np.float32) / 8
    data[0, 0, 0, 0] = 127 / 8
    net.b.results(net.b.convolution(x, weights))
    graph = net.b.graph
    q = quantize(graph, net.known, [[data, net.known[weights]]], element="f16", methods=("minmax",))
    (conversion,) = [value for value, element in q.elements.items() if element == "i8" and value in q.scales]
    assert q.scales[conversion] == 1 / 8
    (found,) = quantized_reference(graph, q, [data, net.known[weights]])
    np.testing.assert_array_equal(found, run_float(graph, [data, net.known[weights]])[0])


def test_products_of_activations_and_those_to_keep_stay_in_the_other_element():
    net = Net()
    x, y = net.b.parameter("x", (4, 6)), net.b.parameter("y", (6, 5))
    net.b.results(net.b.matmul(net.b.matmul(x, y), net.weight(5, 3)))
    graph = net.b.graph
    first, last = graph.nodes
    q = quantize(graph, net.known, [net.sample()])
    assert q.products == {last} and q.elements[first.inputs[1]] == "f16"
    is_consistent(graph, q, "f16")
    q = quantize(graph, net.known, [net.sample()], keep=[last])
    assert not q.products
    is_consistent(graph, q, "f16")


def test_weights_that_others_read_too_are_not_quantised():
    net = Net()
    x, table = net.b.parameter("x", (4, 6)), net.weight(9, 6)
    rows = net.b.gather(table, net.b.constant(np.int32([1, 2])), axis=0)
    net.b.results(net.b.matmul(net.b.concat(x, rows, axis=0), table, transpose_b=True))
    q = quantize(net.b.graph, net.known, [net.sample()])
    assert not q.products
    is_consistent(net.b.graph, q, "f16")


def test_what_float16_cannot_hold_is_stored_in_float32():
    net = Net()
    x = net.b.parameter("x", (2, 3))
    mask = net.b.constant(np.full((2, 3), -1e9, np.float32))
    large = net.b.multiply(x, net.b.constant(np.float32(1e6)))
    net.b.results(net.b.matmul(net.b.tanh(net.b.add(large, mask)), net.weight(3, 2)))
    sample = net.sample()
    q = quantize(net.b.graph, net.known, [sample])
    assert q.elements[mask] == q.elements[large] == "f32"
    assert np.isfinite(quantized_reference(net.b.graph, q, sample)[0]).all()


def test_zeros_have_a_scale_and_are_told(caplog):
    net = Net()
    x, weights = net.b.parameter("x", (2, 3)), net.weight(3, 2)
    net.known[weights][:, 0] = 0
    net.b.results(net.b.matmul(x, weights))
    q = quantize(net.b.graph, net.known, [[np.zeros((2, 3), np.float32), net.known[weights]]])
    assert "inputs ['x'] were zeros" in caplog.text
    assert np.all(quantized_reference(net.b.graph, q, [np.zeros((2, 3), np.float32), net.known[weights]])[0] == 0)


def test_quantisation_without_samples_is_refused():
    net = small_net()
    with pytest.raises(UnsupportedError, match="found no samples"):
        quantize(net.b.graph, net.known, [])


def test_an_optimised_graph_gives_the_numbers_of_the_fused_one():
    """Pads, clamps and biases in ops of their own end up in the products."""
    net = Net(3)
    b = net.b
    x = b.parameter("x", (1, 3, 8, 8))
    y = b.relu(b.convolution(x, net.weight(4, 3, 3, 3)))
    b.results(b.convolution(y, net.weight(2, 4, 1, 1)))
    graph, sample = b.graph, net.sample()
    expected = run_float(graph, sample)
    optimize(graph)
    q = quantize(graph, net.known, [sample])
    is_consistent(graph, q, "f16")
    (found,) = quantized_reference(graph, q, sample)
    assert np.linalg.norm(found - expected[0]) < 0.03 * np.linalg.norm(expected[0])
