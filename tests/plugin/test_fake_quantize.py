"""Gluon nets that are fake-quantised: what they compute and give back, native and compiled, and beside int8."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import ngraph_mxnet
from ngraph_mxnet import _core
from ngraph_mxnet.base.errors import CalibrationError, ConfigError
from ngraph_mxnet.frontends.model import model_of
from ngraph_mxnet.passes.base import PassManager
from ngraph_mxnet.plugin.binding import environment
from ngraph_mxnet.plugin.binding.gluon_blocks import of_block
from ngraph_mxnet.program.compile import compile as compile_graph
from ngraph_mxnet.quantisation.apply import RESIDUAL, Recipe, Scale, calibrate, observed, products
from ngraph_mxnet.quantisation.calibration import Calibration
from ngraph_mxnet.quantisation.division import DivideData
from ngraph_mxnet.targets.cpu.pipeline import pipeline

SHAPE = (4, 3, 8, 8)
needs_library = pytest.mark.skipif(environment.problem() is not None, reason=str(environment.problem()))


def graph_of(net: Any, x: np.ndarray) -> Any:
    shapes = {"data": x.shape}
    return model_of(net).graph(shapes, "CPU")()


def recipe_of(net: Any, x: np.ndarray) -> Recipe:
    """Of a calibration on these samples."""
    graph, weights = graph_of(net, x)
    PassManager(pipeline()).run(graph)
    watched, names = observed(graph)
    executable, calibration = compile_graph(watched, "CPU", weights), Calibration()
    calibrate(names, lambda sample: executable(*sample), [[x]], calibration)
    return Recipe.of_calibration(calibration, "minmax")


def in_int8(net: Any, recipe: Recipe, x: np.ndarray, **options: Any) -> np.ndarray:
    """What the net gives compiled in 8 bits."""
    graph, weights = graph_of(net, x)
    (found,) = compile_graph(graph, "CPU", weights, precision="int8", recipe=recipe, **options)(x)
    return found


def network(**options: Any) -> nn.HybridSequential:
    mx.random.seed(3)
    np.random.seed(3)
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        inner = nn.HybridSequential()
        with inner.name_scope():
            inner.add(nn.Conv2D(8, 3, padding=1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))
        net.add(inner, nn.MaxPool2D(), nn.Conv2D(16, 3, padding=1, activation="relu"), nn.Dense(5))
    net.initialize(mx.init.Xavier())
    net.hybridize(**options)
    return net


def images(seed: int = 0, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def rounded(x: np.ndarray, scale: Scale) -> np.ndarray:
    whole = np.clip(np.rint(x / np.float32(scale.scale)) + scale.zero_point, 0, 255)
    return ((whole - scale.zero_point) * scale.scale).astype(np.float32)


def rounded_weights(weights: np.ndarray) -> np.ndarray:
    steps = np.abs(weights).reshape(len(weights), -1).max(axis=1) / np.float32(127)
    steps = np.maximum(steps, np.float32(1e-30)).reshape(-1, *[1] * (weights.ndim - 1))
    return (np.rint(weights / steps) * steps).astype(np.float32)


LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...], str]] = {
    "Conv1D": (lambda: nn.Conv1D(4, 3, strides=2, in_channels=3), (2, 3, 9), "Convolution"),
    "Conv2D": (lambda: nn.Conv2D(4, 3, groups=2, in_channels=4, activation="relu"), (2, 4, 5, 6), "Convolution"),
    "Dense": (lambda: nn.Dense(4, in_units=6, use_bias=False), (3, 2, 3), "FullyConnected"),
    "Dense of rows": (lambda: nn.Dense(4, in_units=3, flatten=False), (3, 2, 3), "FullyConnected"),
}


def gradients(layer: Any, x: mx.nd.NDArray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The layer's result, and the gradients of its square's sum by data and weights."""
    x.attach_grad()
    with autograd.record():
        y = layer(x)
        total = (y * y).sum()
    total.backward()
    return y.asnumpy(), x.grad.asnumpy(), layer.weight.grad().asnumpy()


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("hybridize", [False, True])
def test_a_layer_computes_with_what_8_bits_hold_and_gradients_go_straight_through(kind: str, hybridize: bool) -> None:
    make, shape, operator = LAYERS[kind]
    scale, x = Scale(0.01, 100), images(1, shape)
    layer = make()
    layer.initialize(mx.init.Normal(1))
    weights = layer.weight.data().asnumpy().copy()
    weights[1] = 0
    layer.weight.set_data(mx.nd.array(rounded_weights(weights)))
    expected = gradients(layer, mx.nd.array(rounded(x, scale)))
    layer.weight.set_data(mx.nd.array(weights))
    if hybridize:
        layer.hybridize()
        layer(mx.nd.array(x))  # what was traced before is forgotten
    handle = ngraph_mxnet.fake_quantize(layer, Recipe({f"mx:{layer.name}_fwd {operator}": scale}))
    assert handle.scales == {layer.name: scale}
    y, by_x, by_weights = gradients(layer, mx.nd.array(x))
    inside = (x / scale.scale >= -100) & (x / scale.scale <= 155)
    assert 0.1 < inside.mean() < 0.98
    for found, wanted in ((y, expected[0]), (by_x, expected[1] * inside), (by_weights, expected[2])):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_removing_leaves_the_net_as_before_but_for_its_weights(tmp_path: Path) -> None:
    net, x = network(), mx.nd.array(images())
    before, names = net(x).asnumpy(), list(net.collect_params())
    recipe = recipe_of(net, images())
    assert len(recipe.scales) == 3
    with ngraph_mxnet.fake_quantize(net, recipe) as handle:
        assert np.abs(net(x).asnumpy() - before).max() > 1e-5
        assert list(net.collect_params()) == names
        net.save_parameters(str(tmp_path / "net.params"))
    handle.remove()
    np.testing.assert_array_equal(net(x).asnumpy(), before)
    other = network()
    other.load_parameters(str(tmp_path / "net.params"))
    np.testing.assert_array_equal(other(x).asnumpy(), before)
    recipe.save(tmp_path / "recipe.json")
    with ngraph_mxnet.fake_quantize(net, tmp_path / "recipe.json"):
        assert np.abs(net(x).asnumpy() - before).max() > 1e-5


def test_open_shapes_are_inferred() -> None:
    known = network()
    recipe = recipe_of(known, images())
    net = network()
    ngraph_mxnet.fake_quantize(net, recipe)
    ngraph_mxnet.fake_quantize(known, recipe)
    assert net(mx.nd.array(images())).shape == (4, 5)
    assert net[0][0].weight.shape == known[0][0].weight.shape


class Twice(nn.HybridSequential):
    """Its first layer is called twice, and held twice."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803  as Gluon calls it
        first, second, again = self._children.values()
        assert again is first
        return second(first(first(x) * 10))


def test_a_layer_that_is_called_twice_has_the_range_that_holds_both() -> None:
    net = Twice(prefix="twice_")
    with net.name_scope():
        first = nn.Dense(6, in_units=6)
        net.add(first, nn.Dense(2, in_units=6))
        net.register_child(first, "again")
    net.initialize(mx.init.Xavier())
    x = images(0, (4, 6))
    recipe = recipe_of(net, x)
    name = f"mx:{first.name}_fwd FullyConnected"
    one, two = recipe.scales[name], recipe.scales[f"{name}#2"]
    (scale, _) = ngraph_mxnet.fake_quantize(net, recipe).scales.values()
    low = min(-one.zero_point * one.scale, -two.zero_point * two.scale)
    high = max((255 - one.zero_point) * one.scale, (255 - two.zero_point) * two.scale)
    assert abs(-scale.zero_point * scale.scale - low) <= scale.scale
    assert abs((255 - scale.zero_point) * scale.scale - high) <= scale.scale
    assert np.isfinite(net(mx.nd.array(x)).asnumpy()).all()


def test_residuals_are_skipped() -> None:
    net = network()
    recipe = recipe_of(net, images())
    name = next(iter(recipe.scales))
    more = Recipe({**recipe.scales, name + RESIDUAL: Scale(1.0, 0)})
    assert ngraph_mxnet.fake_quantize(net, more).scales.keys() == ngraph_mxnet.fake_quantize(
        network(), recipe).scales.keys()


def test_the_numpy_interface() -> None:
    mx.npx.set_np()
    try:
        net = nn.HybridSequential(prefix="np_")
        with net.name_scope():
            net.add(nn.Conv2D(4, 3, in_channels=3, activation="relu"), nn.Dense(3, in_units=144))
        net.initialize(mx.init.Xavier())
        recipe = recipe_of(net, images())
        assert len(recipe.scales) == 2
        x = mx.np.array(images())
        plain = net(x).asnumpy()
        ngraph_mxnet.fake_quantize(net, recipe)
        found = []
        for hybridize in (False, True):
            net.hybridize(hybridize)
            with autograd.record():
                y = net(x)
                total = (y * y).sum()
            total.backward()
            found.append((y.asnumpy(), net[0].weight.grad().asnumpy()))
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
        assert 1e-5 < np.abs(found[0][0] - plain).max() < 0.1 * np.abs(plain).max()
        assert np.abs(found[0][1]).max() > 0
    finally:
        mx.npx.reset_np()


def test_errors() -> None:
    net = network()
    recipe = recipe_of(net, images())
    unknown = Recipe({**recipe.scales, "mx:other0_fwd Convolution": Scale(1.0, 0), "matmul": Scale(1.0, 0)})
    with pytest.raises(CalibrationError, match=r"computes: mx:other0_fwd Convolution, matmul; it has net_.*_fwd"):
        ngraph_mxnet.fake_quantize(net, unknown)
    with pytest.raises(ConfigError, match="found a Dataset to fake-quantise, expected a Gluon HybridBlock"):
        ngraph_mxnet.fake_quantize(gluon.data.Dataset(), recipe)
    handle = ngraph_mxnet.fake_quantize(net, recipe)
    with pytest.raises(ConfigError, match="hybrid_forward set on it"):
        ngraph_mxnet.fake_quantize(net, recipe)
    handle.remove()
    with pytest.raises(ConfigError, match=r"conv0: found weights of the shape \(8, 0, 3, 3\).*call the net once"):
        ngraph_mxnet.fake_quantize(network(), recipe, short_sums=True)
    net.cast("float16")
    with pytest.raises(ConfigError, match="found weights of float16, expected float32"):
        ngraph_mxnet.fake_quantize(net, recipe)
    assert not any("hybrid_forward" in layer.__dict__ for layer in (net[0][0], net[2], net[3]))


@pytest.mark.parametrize("isa", ["baseline", "avx2"])
def test_the_same_numbers_as_in_8_bits(isa: str) -> None:
    """AVX2 has short sums, the others have not. Where roundings of sums move a number over the middle between two
    multiples, a result is off by a multiple."""
    if isa == "avx2" and not _core.cpu_features()["avx2"]:
        pytest.skip("the CPU has no AVX2")
    x = images(5, (64, *SHAPE[1:]))
    net = network()
    for seed in range(3):  # moving statistics that fold into weights, and some of whose factors are negative
        with autograd.record():
            net(mx.nd.array(images(seed)))
    gamma = net[0][1].gamma
    gamma.set_data(gamma.data() * mx.nd.array(np.array([1, -1, 2, -0.5, 1, 1, -3, 0.1])))
    recipe = recipe_of(net, images(5, (8, *SHAPE[1:])))
    plain = net(mx.nd.array(x)).asnumpy()
    found = {}
    for short in (False, True):
        with ngraph_mxnet.fake_quantize(net, recipe, short_sums=short):
            found[short] = net(mx.nd.array(x)).asnumpy()
    expected = in_int8(net, recipe, x, isa=isa)

    def share(y: np.ndarray) -> float:
        return float((np.abs(y - expected) <= 1e-5 * np.abs(expected).max()).mean())

    assert share(found[isa == "avx2"]) > 0.9
    assert share(found[isa != "avx2"]) < 0.1 and share(plain) < 0.1


def losses(net: Any, steps: int, rate: float = 0.05) -> list[float]:
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": rate, "momentum": 0.9})
    loss, found = gluon.loss.SoftmaxCrossEntropyLoss(), []
    for step in range(steps):
        with autograd.record():
            value = loss(net(mx.nd.array(images(step % 2))), mx.nd.array(np.arange(SHAPE[0]) % 5))
        value.backward()
        trainer.step(SHAPE[0])
        found.append(float(value.mean().asscalar()))
    return found


@needs_library
def test_it_trains_compiled_as_a_whole_with_the_losses_of_mxnet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NGRAPH")
    found = {}
    for flag in ("0", "1"):
        monkeypatch.setenv("NGRAPH_TRAINING", flag)
        net = network()
        ngraph_mxnet.fake_quantize(net, recipe_of(net, images()))
        found[flag] = losses(net, 20)
        assert (of_block(net).training.count if of_block(net).training else 0) == (20 if flag == "1" else 0)
        told = ngraph_mxnet.explain_training(net(mx.sym.var("data")), {"data": SHAPE})
        assert told.whole is None and {node.forward for node in told.nodes} == {"whole"}, told
    # A number in the middle between two multiples may be rounded to the other one.
    np.testing.assert_allclose(found["1"], found["0"], rtol=1e-3, atol=1e-4)
    assert found["1"][-1] < 0.5 * found["1"][0]


def corrected(net: Any, x: np.ndarray, recipe: Recipe) -> Recipe:
    """With means and factors of any kind, which a calibration might give."""
    rng = np.random.default_rng(4)
    graph, weights = graph_of(net, x)
    PassManager(pipeline()).run(graph)
    factors = {name: tuple(np.float32(4.0 ** rng.uniform(-1, 1, node.inputs[0].shape[1])).tolist())
               for name, node in products(graph).items()}
    divided = graph.clone()
    DivideData(factors, {}).run(divided)
    watched, names = observed(divided)
    executable, calibration = compile_graph(watched, "CPU", weights), Calibration()
    calibrate(names, lambda sample: executable(*sample), [[x]], calibration)
    means = {name: rng.uniform(-5, 5, len(numbers)) for name, numbers in factors.items()}
    return recipe.dividing("equalisation", factors, calibration).correcting(means)


def grouped_net() -> nn.HybridSequential:
    """Of groups, without a bias, and for rows."""
    mx.random.seed(3)
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(8, 3, groups=2, use_bias=False, in_channels=4), nn.Activation("relu"),
                nn.Conv2D(8, 3, groups=8, in_channels=8), nn.GlobalAvgPool2D(), nn.Dense(5, in_units=8),
                nn.Dense(3, in_units=5, flatten=False, use_bias=False))
    net.initialize(mx.init.Xavier())
    return net


# MXNet names constants by addresses, which may come again.
@pytest.mark.filterwarnings("ignore:.*New initializer:UserWarning")
@pytest.mark.parametrize("hybridize", [False, True])
def test_corrections_are_those_of_int8(hybridize: bool, tmp_path: Path) -> None:
    """And parameters stay."""
    net, x = grouped_net(), images(2, (4, 4, 8, 8))
    net.hybridize(hybridize)
    before, names = net(mx.nd.array(x)).asnumpy(), list(net.collect_params())
    recipe = corrected(net, x, recipe_of(net, x))
    assert len(recipe.factors) == len(recipe.means) == 4
    expected = in_int8(net, recipe, x, isa="baseline")
    with ngraph_mxnet.fake_quantize(net, recipe):
        found = net(mx.nd.array(x)).asnumpy()
        net.save_parameters(str(tmp_path / "net.params"))
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())
    assert np.abs(found - before).max() > 0.1 * np.abs(expected).max()  # for the means are far off
    np.testing.assert_array_equal(net(mx.nd.array(x)).asnumpy(), before)
    assert list(net.collect_params()) == names
    net.load_parameters(str(tmp_path / "net.params"))


def test_corrections_in_the_numpy_interface() -> None:
    x = images(2, (4, 4, 8, 8))
    plain = grouped_net()
    recipe = corrected(plain, x, recipe_of(plain, x))
    with ngraph_mxnet.fake_quantize(plain, recipe):
        expected = plain(mx.nd.array(x)).asnumpy()
    mx.npx.set_np()
    try:
        net = grouped_net()
        for layer, other in zip(net.collect_params().values(), plain.collect_params().values(), strict=True):
            layer.set_data(mx.np.array(other.data().asnumpy()))
        ngraph_mxnet.fake_quantize(net, recipe)
        for hybridize in (False, True):
            net.hybridize(hybridize)
            np.testing.assert_allclose(net(mx.np.array(x)).asnumpy(), expected, rtol=1e-4, atol=1e-5)
    finally:
        mx.npx.reset_np()


def test_corrections_that_do_not_fit_a_layer() -> None:
    net = nn.Dense(4, in_units=6, prefix="net_")
    net.initialize()
    name = "mx:net_fwd FullyConnected"
    scales = {name: Scale(1.0, 0), f"{name}#2": Scale(1.0, 0)}
    corrections: dict[str, dict[str, dict[str, tuple[float, ...]]]] = {
        "layer net: found corrections for 1 input channels in the recipe, expected 6": {"bias": {name: (1.0,)}},
        "layer net: found data that is divided by several factors": {"smoothing": {name: (1.0,) * 6}}}
    for text, given in corrections.items():
        with pytest.raises(CalibrationError, match=text):
            ngraph_mxnet.fake_quantize(net, Recipe(scales, corrections=given))
