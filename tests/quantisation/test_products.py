"""The pass that computes products in 8 bits: which, with which names, and how near to float32 the result is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraph_mxnet import _core, compile
from ngraph_mxnet.base.errors import CalibrationError, ConfigError
from ngraph_mxnet.ir import Builder, Graph, Value, verify
from ngraph_mxnet.passes.base import PassManager
from ngraph_mxnet.quantisation.apply import (
    RESIDUAL,
    QuantizeProducts,
    Recipe,
    Scale,
    calibrate,
    observed,
    outline_of,
    products,
)
from ngraph_mxnet.quantisation.byte_products import sums_of_pairs
from ngraph_mxnet.quantisation.calibration import Calibration
from ngraph_mxnet.targets.cpu.machine.isa import supported
from ngraph_mxnet.targets.cpu.pipeline import pipeline

SHAPE = (2, 3, 20, 20)


def network(first_channels: int = 16) -> Graph:
    """A residual block between a stem and a classifier."""
    b = Builder()

    def convolve(x: Value, channels: int, size: int) -> Value:
        w = b.weight(f"w{len(b.graph.parameters)}", (channels, x.shape[1], size, size))
        return b.convolution(x, w, pads_begin=(size // 2,) * 2, pads_end=(size // 2,) * 2)

    x = b.relu(convolve(b.parameter("x", SHAPE), first_channels, 3))
    y = b.relu(b.add(convolve(b.relu(convolve(x, 16, 3)), first_channels, 1), x))
    z = b.reshape(b.reduce_mean(b.relu(convolve(y, 24, 1)), axes=(2, 3)), shape=(2, 24))
    graph = b.results(b.matmul(z, b.weight("dense", (10, 24)), transpose_b=True))
    PassManager(pipeline()).run(graph)
    return graph


def weights_of(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(p.shape) / np.sqrt(p.type.size / p.shape[0])).astype(np.float32)
            for p in graph.parameters[1:]]


def images(seed: int, count: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(SHAPE).astype(np.float32) for _ in range(count)]


def calibrated(graph: Graph, weights: list[np.ndarray]) -> Calibration:
    watched, names = observed(graph)
    verify(watched)
    calibration, run = Calibration(), compile(watched, "INTERPRETER")
    calibrate(names, lambda sample: run(*sample), ([image, *weights] for image in images(0)), calibration)
    assert calibration.samples == 3
    return calibration


def test_names_are_the_frameworks_and_differ() -> None:
    graph = network()
    for node in graph.nodes:
        node.origin = "mx:conv0 Convolution + mx:relu0 Activation" if node.op.kind == "convolution" else node.origin
    first = "mx:conv0 Convolution"
    assert list(products(graph)) == [first, *(f"{first}#{i}" for i in (2, 3, 4)), "matmul"]


def test_products_of_two_activations_are_left() -> None:
    b = Builder()
    x = b.parameter("x", (4, 4))
    assert not products(b.results(b.matmul(x, b.relu(x))))


def test_all_products_are_in_bytes_and_near_to_float32() -> None:
    graph = network()
    weights = weights_of(graph)
    recipe = Recipe.of_calibration(calibrated(graph, weights), "minmax")
    assert {name.removesuffix(RESIDUAL) for name in recipe.scales} == set(products(graph))
    quantized = graph.clone()
    assert QuantizeProducts(recipe.scales).run(quantized)
    verify(quantized)
    assert not products(quantized)
    for image in images(7, 2):
        (exact,) = compile(graph, "INTERPRETER")(image, *weights)
        for backend, options in (("INTERPRETER", {}), ("CPU", {}), ("CPU", {"isa": "baseline"})):
            (found,) = compile(quantized, backend, **options)(image, *weights)
            assert np.linalg.norm(found - exact) <= 0.03 * np.linalg.norm(exact), backend


def test_pairs_are_the_same_numbers() -> None:
    """Products of float32 between pairs are those of bytes: also what the CPU makes of them."""
    graph = network()
    weights = weights_of(graph)
    recipe = Recipe.of_calibration(calibrated(graph, weights), "minmax")
    in_bytes, in_pairs = graph.clone(), graph.clone()
    QuantizeProducts(recipe.scales).run(in_bytes)
    assert QuantizeProducts(recipe.scales, in_pairs=True).run(in_pairs)
    verify(in_pairs)
    assert not any(node.op.multiplies_bytes for node in in_pairs.nodes)
    (image,) = images(7, 1)
    (expected,) = compile(in_bytes, "INTERPRETER")(image, *weights)
    for backend in ("INTERPRETER", "CPU"):
        (found,) = compile(in_pairs, backend)(image, *weights)
        assert np.linalg.norm(found - expected) <= 1e-3 * np.linalg.norm(expected), backend


def test_sums_of_pairs_differ_by_a_rounding() -> None:
    """Where a sum of two convolutions becomes bytes the first one does, too, and nothing saturates but what the sum
    does."""
    b = Builder()
    x, r = b.parameter("x", (1, 4, 5, 5)), b.parameter("r", (1, 4, 5, 5))
    w, zeros = b.weight("w", (4, 4, 1, 1)), np.zeros(4, np.int8)
    step, point = b.constant(np.float32(0.03)), b.constant(np.uint8(128))
    data, other = (b.dequantize(b.quantize(value, step, point), step, point) for value in (x, r))
    steps = b.constant(np.full(4, 0.01, np.float32))
    whole = b.dequantize(b.quantize(w, steps, b.constant(zeros), axis=0), steps, b.constant(zeros), axis=0)
    total = b.apply("convolution", data, whole, b.constant(np.ones(4, np.float32)), other, strides=(1, 1),
                    dilations=(1, 1), pads_begin=(0, 0), pads_end=(0, 0), lower=0.0)
    scale, zero = b.constant(np.float32(0.02)), b.constant(np.uint8(0))
    graph = b.results(b.quantize(total, scale, zero))
    apart = graph.clone()
    assert sums_of_pairs().run(apart)
    assert not any("residual" in node.epilogue for node in apart.nodes)
    rng = np.random.default_rng(3)
    arrays = [(3 * rng.standard_normal(value.shape)).astype(np.float32) for value in graph.parameters]
    (expected,), (found,) = (compile(one, "INTERPRETER")(*arrays) for one in (graph, apart))
    assert {0, 255} <= set(expected.reshape(-1).tolist()), "nothing saturates"
    assert np.abs(found.astype(int) - expected).max() <= 1 + 0.5 * (255 * 0.02 + 255 * 0.03) / 255 / 0.02


def test_what_stays_in_float_takes_its_residual_along() -> None:
    scales = {name: Scale(1.0, 0) for name in ("a", "a" + RESIDUAL, "b", "b" + RESIDUAL, "c")}
    recipe = Recipe(scales, {"d": "why"})
    assert recipe.products == ["a", "b", "c"] and list(recipe.alone("b").scales) == ["b", "b" + RESIDUAL]
    less = recipe.keeping({"a": "asked for"})
    assert list(less.scales) == ["b", "b" + RESIDUAL, "c"] and less.kept == {"d": "why", "a": "asked for"}
    calibration = Calibration()
    for name in scales:
        calibration.observe(name, np.full(3, np.nan if name in ("b", "a" + RESIDUAL) else 1, np.float32))
    found = Recipe.of_calibration(calibration, "minmax", {"c": "asked for"})
    assert list(found.scales) == ["a"]
    assert found.kept == {"b": "nothing finite was seen of its data", "c": "asked for"}


def test_the_option_is_the_pass() -> None:
    graph = network()
    weights = weights_of(graph)
    recipe = Recipe.of_calibration(calibrated(graph, weights), "minmax")
    quantized = graph.clone()
    QuantizeProducts(recipe.scales, short=False).run(quantized)
    image = images(3, 1)[0]
    expected = compile(quantized, "CPU", isa="baseline")(image, *weights)[0]
    for given_recipe in (recipe, replace(recipe, outline=outline_of(graph)).text()):
        found = compile(graph, "CPU", isa="baseline", precision="int8", recipe=given_recipe)(image, *weights)[0]
        np.testing.assert_allclose(found, expected, 1e-5, 1e-5)


def test_weights_may_change() -> None:
    graph = network()
    weights = weights_of(graph)
    executable = compile(graph, "CPU", precision="int8", recipe=Recipe.of_calibration(calibrated(graph, weights)))
    image = images(3, 1)[0]
    first = executable(image, *weights)[0].copy()
    found = executable(image, *weights[:-1], 3 * weights[-1])[0]
    np.testing.assert_allclose(found, 3 * first, 1e-4, 1e-4 * np.abs(found).max())
    np.testing.assert_array_equal(executable(image, *weights)[0], first)


@pytest.mark.parametrize("isa", supported(_core.cpu_features()))
def test_corrections_of_weights_that_may_change_are_the_bits_of_constant_ones(isa: str) -> None:
    graph = network()
    weights, rng = weights_of(graph), np.random.default_rng(6)
    recipe = Recipe.of_calibration(calibrated(graph, weights), "minmax").correcting({
        name: rng.uniform(-2, 3, node.inputs[0].shape[1]) for name, node in products(graph).items()})
    image, names = images(3, 1)[0], [p.name for p in graph.parameters[1:]]
    how = {"precision": "int8", "recipe": recipe, "isa": isa}
    found = compile(graph, "CPU", **how)(image, *weights)[0]
    known = compile(graph, "CPU", weights=dict(zip(names, weights, strict=True)), **how)(image)[0]
    np.testing.assert_array_equal(found, known)
    plain = compile(graph, "CPU", **{**how, "recipe": replace(recipe, corrections={})})(image, *weights)[0]
    assert np.abs(found - plain).max() > 1e-3 * np.abs(plain).max()


@given(st.sampled_from([8, 16, 24]), st.booleans(), st.integers(0, 99), st.sampled_from([0.1, 1.0, 30.0]))
def test_short_sums_hold_what_they_promise(inputs: int, transposed: bool, seed: int, spread: float) -> None:
    """Of any weights, also such as would exceed the bound by rounding."""
    rng = np.random.default_rng(seed)
    weights = (rng.standard_normal((5, inputs)) ** 3 * spread).astype(np.float32)
    weights[rng.integers(5)] = rng.choice([-1, 1])
    b = Builder()
    x = b.parameter("x", (3, inputs))
    w = b.constant(weights if transposed else np.ascontiguousarray(weights.T))
    graph = b.results(b.matmul(x, w, transpose_b=transposed))
    QuantizeProducts({"matmul": Scale(0.1, 3)}, short=True).run(graph)
    (node,) = [node for node in graph.nodes if node.op.multiplies_bytes]
    assert node.attrs["short_sums"]
    whole = node.inputs[1].node.attrs["value"]  # type: ignore[union-attr]
    eights = (whole if transposed else whole.T).astype(int).reshape(5, inputs // 8, 2, 2, 2)
    for sign in (1, -1):
        assert np.maximum(sign * eights, 0).sum(axis=(2, 4)).max() <= 128


def test_residuals_that_others_read_stay_in_float() -> None:
    b = Builder()
    x = b.relu(b.parameter("x", (1, 16, 4, 4)))
    w, bias = b.weight("w", (16, 16, 1, 1)), b.weight("b", (16,))
    y = b.convolution(x, w, bias, b.tanh(x))
    for read in (False, True):
        graph = b.results(y, *([b.sigmoid(y.node.inputs[3])] if read else []))  # type: ignore[union-attr]
        scales = {"convolution": Scale(0.1, 0), "convolution" + RESIDUAL: Scale(0.01, 128)}
        quantized = graph.clone()
        QuantizeProducts(scales).run(quantized)
        assert sum(node.op.name == "dequantize" for node in quantized.nodes) == (not read)


class TestRecipes:
    def test_text_and_file(self, tmp_path) -> None:
        recipe = Recipe({"a": Scale(0.5, 3)}, {"b": "too much damage"}, "minmax")
        assert Recipe.of_text(recipe.text()) == recipe
        recipe.save(tmp_path / "recipe.json")
        assert Recipe.load(tmp_path / "recipe.json") == recipe
        assert recipe.keeping({"a": "slow"}) == Recipe({}, {"b": "too much damage", "a": "slow"}, "minmax")

    def test_corrections_are_in_the_file(self, tmp_path) -> None:
        """Bit by bit, and they follow the products that they are for."""
        numbers = tuple(np.float32([0.1, 1e-30, 3e7]).tolist())
        corrections = {"smoothing": {"a": numbers}, "bias": {"a": numbers, "b": (-1.0,)}}
        recipe = Recipe({"a": Scale(0.5, 3), "b": Scale(1.0, 0), "b" + RESIDUAL: Scale(1.0, 0)}, {}, "mse", corrections)
        recipe.save(tmp_path / "recipe.json")
        assert Recipe.load(tmp_path / "recipe.json") == recipe
        assert recipe.factors == {"a": numbers} and recipe.means == corrections["bias"]
        assert recipe.keeping({"a": "slow"}).corrections == {"bias": {"b": (-1.0,)}}
        assert recipe.alone("a").corrections == {"smoothing": {"a": numbers}, "bias": {"a": numbers}}

    def test_recipes_of_version_1_have_no_corrections(self) -> None:
        text = """{"format": "ngraph_mxnet recipe", "version": 1, "method": "mse", "scales": {"a": [0.5, 3]},
                   "kept": {"b": "why"}}"""
        assert Recipe.of_text(text) == Recipe({"a": Scale(0.5, 3)}, {"b": "why"}, "mse")

    @pytest.mark.parametrize(("corrections", "message"), [
        ([], "scales, kept, method or corrections are none"),
        ({"smooth": {}}, "scales, kept, method or corrections are none"),
        ({"bias": []}, "correction bias for every product that are none"),
        ({"bias": {"b": "AACAPw=="}}, "correction bias for b that are none.* of a product that has a scale"),
        ({"bias": {"a": "AACAPw"}}, "correction bias for a that are none"),
        ({"bias": {"a": ""}}, "correction bias for a that are none"),
        ({"bias": {"a": "AADAfw=="}}, "correction bias for a that are none, expected finite ones"),
        ({"smoothing": {"a": "AACAvw=="}}, "correction smoothing for a that are none, .*positive to divide by"),
    ])  # fmt: skip
    def test_corrections_that_are_none(self, corrections, message) -> None:
        found = json.loads(Recipe({"a": Scale(0.5, 3)}, corrections={"bias": {"a": (1.0,)}}).text())
        assert found["corrections"] == {"bias": {"a": "AACAPw=="}}
        with pytest.raises(CalibrationError, match=message):
            Recipe.of_text(json.dumps({**found, "corrections": corrections}))

    def test_a_calibration_is_a_recipe_of_the_usual_method(self, tmp_path) -> None:
        calibration = Calibration()
        calibration.observe("a", np.linspace(-1, 3, 50, dtype=np.float32))
        calibration.observe("b", np.full(3, np.nan, np.float32))
        calibration.save(tmp_path / "calibration.npz")
        recipe = Recipe.load(tmp_path / "calibration.npz")
        assert recipe == Recipe.of_calibration(calibration)
        assert recipe.scales["a"].zero_point == round(1 / recipe.scales["a"].scale)
        assert list(recipe.kept) == ["b"]

    def test_files_that_tell_layers_by_names_alone_compile_nothing(self, tmp_path) -> None:
        graph = network()
        recipe = Recipe.of_calibration(calibrated(graph, weights_of(graph)), "minmax")
        recipe.save(tmp_path / "old.json")
        for given_recipe in (recipe.text(), str(tmp_path / "old.json")):
            with pytest.raises(CalibrationError, match=r"by their names alone.*write it anew"):
                compile(graph, "CPU", recipe=given_recipe)

    def test_int8_without_a_recipe_is_an_error(self) -> None:
        with pytest.raises(ConfigError, match=r"found int8 without a recipe.*quantize --recipe"):
            compile(network(), "CPU", precision="int8")

    @pytest.mark.parametrize("rows", [
        [], {"layers": [], "results": [["", 0]]}, {"layers": [["a", "product 2 3", [["", 0]]]], "results": []},
        {"layers": [["a", "product 2 3", [["", -2]]]], "results": []}, {"layers": [["a", 3, []]], "results": []},
        {"layers": [["b", "product 2 3", [["", -1]]]], "results": []},
    ])  # fmt: skip
    def test_outlines_that_are_none(self, rows: Any) -> None:
        found = json.loads(Recipe({"a": Scale(0.5, 3)}).text())
        with pytest.raises(CalibrationError, match="outline"):
            Recipe.of_text(json.dumps({**found, "outline": rows}))

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "ngraph_mxnet recipe", "version": 4}', *(
        '{"format": "ngraph_mxnet recipe", "version": 1, "method": "mse", "kept": {}, "scales": {"a": ' + pair + "}}"
        for pair in ("[0, 1]", "[-1, 1]", "[1, 256]", "[1, 1.5]", "[1]", "1", "[1e999, 1]"))])
    def test_what_is_none_is_refused(self, tmp_path, text: str) -> None:
        (tmp_path / "recipe.json").write_text(text)
        with pytest.raises(CalibrationError, match=r"recipe\.json"):
            Recipe.load(tmp_path / "recipe.json")

    def test_a_missing_file(self, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
        b = Builder()
        graph = b.results(b.relu(b.parameter("x", (1,))))
        with pytest.raises(CalibrationError, match="No such file"):
            compile(graph, "CPU", recipe=str(tmp_path / "none.json"))
        with pytest.raises(ConfigError, match="precision"):
            compile(graph, "CPU", precision="int4")
