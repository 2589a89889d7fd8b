"""Graphs with gradients: what goes in, what comes out, what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from test_adjoints import check_gradients

from ngraph_mxnet.autodiff import differentiate
from ngraph_mxnet.autodiff.reverse import described
from ngraph_mxnet.base.errors import GraphError, UnsupportedError
from ngraph_mxnet.ir import Builder, Graph, all_ops
from ngraph_mxnet.ir.graph import verify
from ngraph_mxnet.program.compile import compile as compile_graph


def mlp(element: str) -> Graph:
    b = Builder(name="mlp")
    x = b.parameter("x", (5, 7), element)
    first, second = b.weight("first", (4, 7), element), b.weight("second", (4, 3), element)
    hidden = b.tanh(b.matmul(x, first, transpose_b=True))
    return b.results(b.log_softmax(b.matmul(hidden, second)), b.reduce_sum(b.square(second), axes=[0, 1]))


def convolutions(element: str) -> Graph:
    """A residual block with strides, pools, a normalization and groups."""
    b = Builder(name="convolutions")
    x, w, v, u = (b.parameter(name, shape, element) for name, shape in (
        ("x", (2, 4, 9, 8)), ("w", (6, 4, 3, 3)), ("v", (6, 3, 3, 2)), ("u", (6, 6, 1, 1))))
    gamma, beta, mean, variance = (b.parameter(name, (6,), element) for name in ("gamma", "beta", "mean", "variance"))
    y = b.convolution(x, w, strides=(2, 1), pads_begin=(1, 1), pads_end=(1, 1))
    y = b.relu(b.batch_norm(y, gamma, beta, mean, variance))
    y = b.max_pool(y, kernel=(3, 3), pads_begin=(1, 1), pads_end=(1, 1))
    z = b.convolution(y, v, groups=2, pads_begin=(1, 0), pads_end=(1, 1), dilations=(1, 1))
    y = b.add(b.convolution(y, u), z)
    return b.results(b.avg_pool(y, kernel=(2, 3), strides=(2, 2), rounding="ceil", include_pad=False))


def shared(element: str) -> Graph:
    """A weight that is read thrice, and a value that is read by two branches."""
    b = Builder(name="shared")
    x, w = b.parameter("x", (3, 3), element), b.parameter("w", (3, 3), element)
    y = b.sigmoid(b.matmul(x, w))
    z = b.multiply(b.matmul(y, w), b.reduce_mean(y, axes=[1], keep_dims=True))
    return b.results(b.add(z, w), y)


def recurrent(element: str) -> Graph:
    """Two layers, one from each side with a projection, whose last states go on; the other's are not read."""
    b = Builder(name="recurrent")
    x, w, v = (b.parameter(name, shape, element) for name, shape in (("x", (5, 2, 16)), ("w", (16, 3)), ("v", (9, 3))))
    bias, h, c = (b.parameter(name, shape, element) for name, shape in (("bias", (16,)), ("h", (2, 3)), ("c", (2, 4))))
    down, up = b.parameter("down", (3, 4), element), b.parameter("up", (3, 9), element)
    states, last, cell = b.node("rnn", [x, w, bias, h, c, down], {"cell": "lstm", "reverse": True}).outputs
    zeros = b.constant(np.zeros(9), element)
    gates = b.matmul(states, up)
    top = b.node("rnn", [gates, v, zeros, last], {"cell": "gru"}).outputs[0]
    return b.results(top, cell)


GRAPHS: list[Callable[[str], Graph]] = [mlp, convolutions, shared, recurrent]


def arrays_for(graph: Graph, rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.uniform(0.5, 1.5, p.type.shape).astype(p.type.element.numpy) if p.name in ("variance", "gamma")
            else rng.standard_normal(p.type.shape).astype(p.type.element.numpy) for p in graph.parameters]


@pytest.mark.parametrize("make", GRAPHS)
@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_derivatives(make: Callable[[str], Graph], seed: int) -> None:
    rng, graph = np.random.default_rng(seed), make("f64")
    check_gradients(graph, arrays_for(graph, rng), rng)


@pytest.mark.parametrize("make", GRAPHS)
def test_the_cpu_computes_what_the_interpreter_does(make: Callable[[str], Graph]) -> None:
    rng, graph = np.random.default_rng(5), make("f32")
    joint = differentiate(graph, [p.name for p in graph.parameters]).graph
    verify(joint)
    arrays = [*arrays_for(graph, rng), *(rng.standard_normal(r.type.shape).astype("f") for r in graph.results)]
    expected = compile_graph(joint.clone(), "INTERPRETER")(*arrays)
    for one, other in zip(compile_graph(joint, "CPU")(*arrays), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * float(np.abs(other).max()))


@pytest.mark.parametrize("cell", ["lstm", "gru", "tanh"])
@pytest.mark.parametrize("target", ["CPU", "INTERPRETER"])
def test_a_recurrent_layer_of_an_empty_batch(cell: str, target: str) -> None:
    columns = {"lstm": 12, "gru": 9, "tanh": 3}[cell]
    b = Builder(name="empty")
    shapes = [(2, 0, columns), (columns, 3), (columns,), (0, 3), *([(0, 3)] if cell == "lstm" else [])]
    operands = [b.parameter(f"x{number}", shape) for number, shape in enumerate(shapes)]
    graph = b.results(*b.node("rnn", operands, {"cell": cell}).outputs)
    joint = differentiate(graph, [operand.name for operand in operands]).graph
    arrays = [np.ones(p.type.shape, "f") for p in joint.parameters]
    for found, shape in zip(compile_graph(joint, target)(*arrays)[-len(shapes):], shapes, strict=True):
        np.testing.assert_array_equal(found, np.zeros(shape, "f"))


def test_parameters_heads_and_results_have_their_places() -> None:
    joint = differentiate(mlp("f32"), ["second", "x"])
    assert [p.name for p in joint.graph.parameters] == ["x", "first", "second", "head.0", "head.1"]
    assert [str(r.type) for r in joint.results] == ["f32[5,3]", "f32[]"]
    assert [str(g.type) for g in joint.gradients] == ["f32[4,3]", "f32[5,7]"]
    assert {node.op.name for node in joint.forward} == {node.op.name for node in mlp("f32").nodes}


def test_only_chosen_heads_give_something_back() -> None:
    graph = mlp("f64")
    arrays = arrays_for(graph, np.random.default_rng(1))
    joint = differentiate(graph, ["x", "second"], heads=[1])
    assert [p.name for p in joint.graph.parameters][3:] == ["head.1"]
    *_, of_x, of_second = compile_graph(joint.graph, "INTERPRETER")(*arrays, np.asarray(3.0))
    np.testing.assert_array_equal(of_x, np.zeros((5, 7)))
    np.testing.assert_allclose(of_second, 6 * arrays[2])


def test_what_is_differentiated_stays() -> None:
    graph = mlp("f32")
    before = str(graph)
    differentiate(graph, ["x"])
    assert str(graph) == before


def test_what_has_no_gradient_is_refused() -> None:
    b = Builder(name="wrong")
    x, n = b.parameter("x", (1, 2, 4, 5)), b.parameter("n", (3,), "i32")
    regions = b.constant(np.array([[0, 0, 0, 2, 2]], "f"))
    graph = b.results(b.roi_max_pool(b.roi_align(x, regions, sizes=(3, 3)), regions, sizes=(2, 2)), b.argmax(x, axis=0))
    with pytest.raises(GraphError, match=r"no parameter 'y'; it has x, n"):
        differentiate(graph, ["y"])
    with pytest.raises(GraphError, match=r"parameter 'n' is i32.*only floats have gradients"):
        differentiate(graph, ["n"])
    with pytest.raises(GraphError, match="result 1 of graph wrong takes no head gradient"):
        differentiate(graph, ["x"], heads=[1])
    with pytest.raises(UnsupportedError, match=r"(?s)no gradient through.*roi_align.*no adjoint.*roi_max_pool"):
        differentiate(graph, ["x"])
    w, bias = b.parameter("w", (2, 2, 1, 1)), b.parameter("b", (2,))
    fused = b.results(b.convolution(x, w, bias))
    with pytest.raises(UnsupportedError, match=r"(?s)no gradient through.*convolution: passes make it of"):
        differentiate(fused, ["w"])
    assert n.name == "n"


def test_nothing_is_asked_of_nodes_that_no_gradient_comes_by() -> None:
    b = Builder()
    x, y = b.parameter("x", (1, 6, 5)), b.parameter("y", (1, 6, 5))
    boxes = {"coordinates": 1, "score": 0}
    graph = b.results(b.multiply(b.box_nms(x, **boxes), y), b.box_nms(y, **boxes))
    (gradient,) = differentiate(graph, ["y"], heads=[0]).gradients
    assert gradient.type == y.type
    with pytest.raises(UnsupportedError, match="box_nms"):
        differentiate(graph, ["x"], heads=[0])


def test_every_op_says_how_gradients_go_back() -> None:
    said = {name: described(op) for name, op in all_ops().items()}
    assert "multiply(%head.0, %x1)" in said["multiply"]
    assert said["convolution"] == "in ngraph_mxnet.autodiff.images"
    assert said["floor"].startswith("nothing goes back: ")
    assert said["box_nms"].startswith("none: ")


@pytest.mark.parametrize("scaled", [False, True])
def test_an_own_gradient_is_what_goes_back(scaled: bool) -> None:
    b = Builder()
    x, g = b.parameter("x", (2, 3), "f64"), b.parameter("g", (2, 3), "f64")
    graph = b.results(b.own_gradient(b.exp(x), x, b.square(g), scaled=scaled))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, 3)) for _ in range(3)]
    found = compile_graph(differentiate(graph, ["x", "g"]).graph, "INTERPRETER")(*arrays)
    own = np.square(arrays[1])
    expected = [np.exp(arrays[0]), own * arrays[2] if scaled else own, np.zeros((2, 3))]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other)


def test_nothing_goes_back_where_it_is_stopped() -> None:
    b = Builder()
    x = b.parameter("x", (3,), "f64")
    graph = b.results(b.multiply(b.stop_gradient(x), x))
    found = compile_graph(differentiate(graph, ["x"]).graph, "INTERPRETER")(np.arange(3.0), np.ones(3))
    np.testing.assert_array_equal(found[1], np.arange(3.0))


@pytest.mark.parametrize("op", ["gamma", "lgamma"])
def test_gradients_of_gamma_functions_on_both_sides_of_their_poles(op: str) -> None:
    x = np.array([-3.7, -2.2, -1.5, -0.3, 1e-3, 0.4, 0.5, 1.0, 1.4616321, 2.5, 40.0])
    b = Builder()
    value = b.parameter("x", x.shape, "f64")
    graph = b.results(b.apply(op, value))
    run, step = compile_graph(graph.clone(), "INTERPRETER"), 1e-6
    found = compile_graph(differentiate(graph, ["x"]).graph, "INTERPRETER")(x, np.ones_like(x))[1]
    expected = (run(x + step)[0] - run(x - step)[0]) / (2 * step)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)
