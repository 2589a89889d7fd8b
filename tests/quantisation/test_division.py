"""Products whose data is divided: the same results in float, where the division goes, and what it does to 8 bits."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngraph_mxnet import compile
from ngraph_mxnet.base.errors import CalibrationError
from ngraph_mxnet.ir import Builder, Graph, Value, verify
from ngraph_mxnet.ir.graph import count_ops
from ngraph_mxnet.passes.base import PassManager
from ngraph_mxnet.quantisation.apply import Numbers, QuantizeProducts, Recipe, Scale, calibrate, observed, products
from ngraph_mxnet.quantisation.calibration import Calibration, Channels
from ngraph_mxnet.quantisation.division import DivideData, factors_of
from ngraph_mxnet.quantisation.layers import EQUALISATION, SMOOTHING, data_axis
from ngraph_mxnet.targets.cpu.pipeline import pipeline

SECOND = "convolution#2"


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def random_factors(graph: Graph, rng: np.random.Generator) -> dict[str, Numbers]:
    """For each product; the same for those that read one value."""
    of_value: dict[Value, Numbers] = {}
    for node in products(graph).values():
        channels = node.inputs[0].shape[data_axis(node)]
        of_value.setdefault(node.inputs[0], tuple((4.0 ** rng.uniform(-2, 2, channels)).astype(np.float32).tolist()))
    return {name: of_value[node.inputs[0]] for name, node in products(graph).items()}


def divided(graph: Graph, factors: dict[str, Numbers]) -> Graph:
    copy = graph.clone()
    assert DivideData(factors, {}).run(copy)
    verify(copy)
    assert list(products(copy)) == list(products(graph))
    return copy


BETWEEN: dict[str, Callable[[Builder, Value], Value]] = {
    "nothing": lambda b, x: x,
    "relu": lambda b, x: b.relu(x),
    "relu6": lambda b, x: b.clamp(x, lower=0.0, upper=6.0),
    "hard swish": lambda b, x: b.multiply(x, b.clamp(b.add(x, b.constant(3.0)), lower=0.0, upper=6.0)),
    "max pool": lambda b, x: b.max_pool(b.relu(x), kernel=(2, 2), strides=(2, 2)),
    "mean pool": lambda b, x: b.avg_pool(b.relu(x), kernel=(2, 2), strides=(1, 1)),
    "residual": lambda b, x: b.relu(b.add(b.relu(x), x)),
    "norm": lambda b, x: b.batch_norm(
        x, *(b.weight(f"n{len(b.graph.parameters)}{i}", (x.shape[1],)) for i in range(4))),
}


@st.composite
def convolutions(draw: st.DrawFn) -> Graph:
    b = Builder()
    x = b.parameter("x", (2, 4, 12, 12))
    for _ in range(draw(st.integers(2, 4))):
        groups, size = draw(st.sampled_from([1, 2, x.shape[1]])), draw(st.sampled_from([1, 3]))
        outputs = draw(st.sampled_from([8, 16]))
        w = b.weight(f"w{len(b.graph.parameters)}", (outputs, x.shape[1] // groups, size, size))
        x = b.convolution(x, w, groups=groups, pads_begin=(size // 2,) * 2, pads_end=(size // 2,) * 2)
        x = BETWEEN[draw(st.sampled_from(sorted(BETWEEN)))](b, x)
    if draw(st.booleans()):
        x = b.reshape(b.reduce_mean(x, axes=(2, 3)), shape=(2, x.shape[1]))
        x = b.matmul(x, b.weight("dense", (x.shape[1], 5)))
    return b.results(x)


@st.composite
def matrices(draw: st.DrawFn) -> Graph:
    b = Builder()
    x = b.parameter("x", (2, 5, 8))
    for at in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            x = b.layer_norm(x, b.weight(f"g{at}", (8,)), b.weight(f"b{at}", (8,)))
        several = [b.matmul(x, b.weight(f"w{at}.{i}", (8, 8)), transpose_b=draw(st.booleans()))
                   for i in range(draw(st.integers(1, 3)))]
        y = several[0]
        for other in several[1:]:
            y = b.add(y, other)
        y = b.relu(y) if draw(st.booleans()) else y
        x = b.add(x, y) if draw(st.booleans()) else y
    return b.results(x, *several)


@settings(deadline=None, max_examples=80)
@given(st.one_of(convolutions(), matrices()), st.integers(0, 99), st.booleans())
def test_results_in_float_stay(graph: Graph, seed: int, are_constants: bool) -> None:
    if are_constants:
        graph = with_constants(graph)
    PassManager(pipeline()).run(graph)
    arrays = [numbers(*p.shape, seed=seed) ** (2 if p.shape[0] == p.type.size else 1) for p in graph.parameters]
    factors = random_factors(graph, np.random.default_rng(seed))
    changed = divided(graph, factors) if factors else graph
    wanted, found = (compile(each, "INTERPRETER")(*arrays) for each in (graph, changed))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * max(np.abs(other).max(), 1e-6))


def with_constants(graph: Graph, seed: int = 0) -> Graph:
    """Its weights, or vectors of ones for norms, as constants."""
    from ngraph_mxnet.program.compile import bind_weights

    def content(parameter: Value) -> np.ndarray:
        array = numbers(*parameter.shape, seed=seed)
        return np.abs(array) + 0.5 if array.ndim == 1 else array

    return bind_weights(graph, {p.name: content(p) for p in graph.parameters if p.is_weight})


def pair(between: str, *, groups: int = 1, second: int | None = None) -> Graph:
    """Two convolutions of 16 channels, with constant weights."""
    b = Builder()
    x = b.convolution(b.parameter("x", (2, 3, 10, 10)), b.weight("w", (16, 3, 3, 3)))
    y = BETWEEN[between](b, x)
    z = b.convolution(y, b.weight("v", (16, 16 // groups, 3, 3)), groups=groups)
    graph = with_constants(b.results(z, *([y] if second else [])))
    PassManager(pipeline()).run(graph)
    return graph


def seen(graph: Graph, factors: dict[str, Numbers] | None = None) -> tuple[Calibration, Channels]:
    copy = graph.clone()
    DivideData(factors or {}, {}).run(copy)
    watched, names = observed(copy)
    calibration = Calibration()
    channels = Channels({name: data_axis(node) for name, node in products(graph).items()})
    run = compile(watched, "INTERPRETER")
    samples = ([numbers(*p.shape, seed=seed) * 3 for p in graph.parameters] for seed in range(3))
    calibrate(names, lambda sample: run(*sample), samples, calibration, channels)
    return calibration, channels


def corrected(graph: Graph, kind: str) -> Recipe:
    calibration, channels = seen(graph)
    factors = factors_of(graph, channels)[kind]
    return Recipe.of_calibration(calibration, "minmax").dividing(kind, factors, seen(graph, factors)[0])


@pytest.mark.parametrize("between", ["nothing", "relu", "relu6", "max pool", "mean pool"])
@pytest.mark.parametrize("groups", [1, 16])
def test_what_goes_into_the_layer_before(between: str, groups: int) -> None:
    """In the graph with bytes nothing divides; elsewhere ReLU6 makes a node of its own."""
    graph = pair(between, groups=groups)
    recipe = corrected(graph, EQUALISATION)
    (name,) = recipe.factors
    assert name == SECOND
    in_float, in_bytes = graph.clone(), graph.clone()
    DivideData(recipe.factors, {}).run(in_float)
    DivideData(recipe.factors, recipe.scales).run(in_bytes)
    before = count_ops(graph.nodes)
    assert ("scale_shift" in count_ops(in_float.nodes)) == (between == "relu6") and "scale_shift" not in before
    assert {op: count for op, count in count_ops(in_bytes.nodes).items() if op != "constant"} == {
        op: count for op, count in before.items() if op != "constant"}
    assert all(node.attrs["upper"] == math.inf for node in in_bytes.nodes if node.op.contraction)


@pytest.mark.parametrize("groups", [1, 16])
@pytest.mark.parametrize("size", [1, 40])
def test_bytes_saturate_before_a_bound_that_is_left_out(groups: int, size: float) -> None:
    """The same bits as with the bound, also of data beyond it. (By powers of two divisions are exact.)"""
    graph = pair("relu6", groups=groups)
    factors = {SECOND: tuple(2.0 ** (np.arange(16) % 6))}
    scales = {SECOND: Scale(6 / max(factors[SECOND]) / 255, 0)}
    folded, plain = graph.clone(), graph.clone()
    DivideData(factors, scales).run(folded)
    DivideData(factors, {}).run(plain)
    assert "scale_shift" in count_ops(plain.nodes) and "scale_shift" not in count_ops(folded.nodes)
    image = numbers(2, 3, 10, 10, seed=5) * np.float32(size)
    results = []
    for each in (folded, plain):
        QuantizeProducts(scales).run(each)
        results.append(compile(each, "INTERPRETER")(image)[0])
    np.testing.assert_array_equal(*results)
    assert np.unique(results[0]).size > 100


def test_a_scale_by_which_bytes_reach_further_keeps_the_bound() -> None:
    factors = {SECOND: tuple(np.linspace(0.1, 2, 16))}
    for part, is_kept in ((0.99, False), (1.01, True)):
        graph = pair("relu6")
        DivideData(factors, {SECOND: Scale(3 / 255 * part, 0)}).run(graph)
        assert ("scale_shift" in count_ops(graph.nodes)) == is_kept


@pytest.mark.parametrize(("graph", "kind"), [
    (pair("hard swish"), EQUALISATION), (pair("residual"), EQUALISATION), (pair("relu", second=1), EQUALISATION),
], ids=["hard swish", "residual", "a result"])
def test_what_is_not_equalised(graph: Graph, kind: str) -> None:
    assert factors_of(graph, seen(graph)[1])[kind].keys() <= set()


def attention(*, with_residual: bool) -> Graph:
    """A layer norm, two products of it, and what else may read it."""
    b = Builder()
    x = b.layer_norm(b.parameter("x", (2, 6, 16)), b.weight("g", (16,)), b.weight("s", (16,)))
    rows = b.reshape(x, shape=(12, 16))
    results = [b.matmul(rows, b.weight(f"w{i}", (16, 16)), transpose_b=bool(i)) for i in range(2)]
    graph = with_constants(b.results(*results, *([b.relu(x)] if with_residual else [])))
    PassManager(pipeline()).run(graph)
    return graph


@pytest.mark.parametrize("with_residual", [False, True])
def test_smoothing_goes_into_a_layer_norm_that_nothing_else_reads(with_residual: bool) -> None:
    graph = attention(with_residual=with_residual)
    recipe = corrected(graph, SMOOTHING)
    assert set(recipe.factors) == {"matmul", "matmul#2"} and len(set(recipe.factors.values())) == 1
    DivideData(recipe.factors, recipe.scales).run(graph)
    assert count_ops(graph.nodes).get("multiply", 0) == int(with_residual)


def test_channels_of_depthwise_data_come_nearer() -> None:
    """By the square root, whatever the weights are, which take up any factor."""
    graph = pair("relu", groups=16)
    (node,) = [node for node in graph.nodes if node.op.contraction and node.inputs[0].is_parameter]
    weights = node.inputs[1].node
    assert weights is not None
    sizes = np.geomspace(1e-2, 10, 16, dtype=np.float32)
    weights.attrs = {"value": weights.attrs["value"] * sizes.reshape(16, 1, 1, 1)}
    recipe = corrected(graph, EQUALISATION)
    before, after = (seen(graph, factors)[1].largest(SECOND) for factors in (None, recipe.factors))
    np.testing.assert_allclose(after, np.sqrt(before), rtol=1e-5)
    assert before.max() > 100 * before.min()


def test_factors_of_another_model() -> None:
    with pytest.raises(CalibrationError, match="found 3 factors of the data of convolution#2, expected 16"):
        DivideData({SECOND: (1.0, 2.0, 3.0)}, {}).run(pair("relu"))


def test_channels_that_are_seen() -> None:
    channels = Channels({"a": 1, "b": 2, "c": 1})
    one, other = numbers(2, 3, 4), numbers(5, 3, 4)
    for array in (one, other):
        channels.observe(["a", "b", "what is no product"], array)
    channels.observe(["c"], np.float32([[1, np.inf]]))
    both = np.concatenate([one, other])
    np.testing.assert_allclose(channels.means("a"), both.mean(axis=(0, 2)), atol=1e-6)
    np.testing.assert_allclose(channels.means("b"), both.mean(axis=(0, 1)), atol=1e-6)
    np.testing.assert_array_equal(channels.largest("a"), np.abs(both).max(axis=(0, 2)))
    assert channels.is_finite("a") and not channels.is_finite("c") and not channels.is_finite("d")
