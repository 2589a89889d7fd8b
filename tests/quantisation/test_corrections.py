"""What corrections promise, on layers computed here."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngraph_mxnet.base.errors import CalibrationError, ConfigError
from ngraph_mxnet.ir.graph import Builder, Node, constant_of
from ngraph_mxnet.quantisation.calibration import weight_scales
from ngraph_mxnet.quantisation.layers import Maker, bias_correction, equalisation_scales, smoothing_factors

MAGNITUDES = st.lists(st.one_of(st.just(0.0), st.floats(0, 2.0**127, width=32), st.floats(0.125, 100, width=32)))


def product(weights: np.ndarray, groups: int | None = None, transposed: bool = False) -> tuple[Node, list[Node]]:
    """A convolution or matrix product of these weights, and room for nodes."""
    b = Builder()
    if groups is None:
        depth = weights.shape[1 if transposed else 0]
        b.matmul(b.parameter("x", (3, depth)), b.constant(weights), transpose_b=transposed)
    else:
        x = b.parameter("x", (1, weights.shape[1] * groups, 9, 9))
        b.convolution(x, b.constant(weights), groups=groups)
    return b.graph.nodes[-1], []


def corrected(node: Node, nodes: list[Node], whole: np.ndarray, steps: np.ndarray, means: np.ndarray) -> np.ndarray:
    """What `bias_correction` gives for constants is one."""
    made = Maker(node, nodes)
    found = constant_of(bias_correction(made, node, made.constant(whole), made.constant(steps), means))
    assert found is not None and found.dtype == np.float32
    return found


@settings(deadline=None)
@given(st.integers(0, 99), st.sampled_from([1, 2, 4]), st.sampled_from([1e-3, 1.0, 1e4]))
def test_what_rounded_weights_do_to_the_mean_is_taken_off(seed: int, groups: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(8, 4 // groups, 3, 3)).astype(np.float32)
    steps = weight_scales(weights, 0, 7)
    whole = np.rint(weights / steps.reshape(-1, 1, 1, 1)).astype(np.int8)
    means = rng.normal(1, 1, 4) * size
    errors = (whole * steps.reshape(-1, 1, 1, 1).astype(np.float64) - weights).sum(axis=(2, 3))
    each = means.reshape(groups, 1, -1).repeat(8 // groups, axis=1).reshape(8, -1)
    found = corrected(*product(weights, groups), whole, steps, means)
    wanted = -(errors * each).sum(axis=1)
    np.testing.assert_allclose(found, wanted, atol=2e-3 * np.abs(wanted).max())


@pytest.mark.parametrize("transposed", [False, True])
def test_corrections_of_matrix_products(transposed: bool) -> None:
    rng = np.random.default_rng(0)
    weights, means = rng.normal(size=(5, 700)).astype(np.float32), rng.normal(2, 1, 700)
    steps = weight_scales(weights, 0, 7)
    whole = np.rint(weights / steps[:, None]).astype(np.int8)
    wanted = -((whole * steps[:, None].astype(np.float64) - weights) @ means)
    given_weights, given_whole = (array if transposed else array.T.copy() for array in (weights, whole))
    found = corrected(*product(given_weights, transposed=transposed), given_whole, steps, means)
    np.testing.assert_allclose(found, wanted, atol=2e-3 * np.abs(wanted).max())
    assert not corrected(*product(given_weights, transposed=transposed), given_whole, steps, np.zeros(700)).any()


def test_means_of_another_model() -> None:
    node, nodes = product(np.ones((4, 2, 1, 1), np.float32), 2)
    with pytest.raises(CalibrationError, match="found 3 means of the data of convolution, expected 4: it is"):
        corrected(node, nodes, np.ones((4, 2, 1, 1), np.int8), np.ones(4, np.float32), np.zeros(3))


@settings(deadline=None)
@given(st.integers(0, 99))
def test_equalised_layers_have_equal_ranges_and_the_same_results(seed) -> None:
    rng = np.random.default_rng(seed)
    spread = 10.0 ** rng.integers(-3, 3, 6)
    w1, b1, w2 = rng.normal(size=(6, 4)) * spread[:, None], rng.normal(size=6) * spread, rng.normal(size=(3, 6))
    w1[2], b1[2] = 0, 0
    w2[:, 4] = 0
    scales = equalisation_scales(np.abs(w1).max(axis=1), np.abs(w2).max(axis=0))
    assert scales.dtype == np.float32 and scales[2] == scales[4] == 1
    even1, even2 = w1 / scales[:, None], w2 * scales
    alive = [0, 1, 3, 5]
    np.testing.assert_allclose(np.abs(even1).max(axis=1)[alive], np.abs(even2).max(axis=0)[alive], rtol=1e-6)
    x = rng.normal(size=(10, 4))
    expected = np.maximum(x @ w1.T + b1, 0) @ w2.T
    np.testing.assert_allclose(np.maximum(x @ even1.T + b1 / scales, 0) @ even2.T, expected, rtol=1e-6, atol=1e-9)


@settings(deadline=None)
@given(st.integers(0, 99), st.sampled_from([0, 0.25, 0.5, 0.75, 1]))
def test_smoothed_products_are_the_same(seed, alpha) -> None:
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(20, 6)), rng.normal(size=(6, 3))
    x[:, 1] *= 100
    x[:, 3], w[4] = 0, 0
    tops = np.abs(x).max(axis=0), np.abs(w).max(axis=1)
    factors = smoothing_factors(*tops, alpha)
    assert factors.dtype == np.float32 and factors[3] == factors[4] == 1
    np.testing.assert_allclose((x / factors) @ (w * factors[:, None]), x @ w, rtol=1e-6, atol=1e-9)
    alive = [0, 1, 2, 5]
    smooth = np.abs(x / factors).max(axis=0)[alive], np.abs(w * factors[:, None]).max(axis=1)[alive]
    if alpha == 0.5:  # as hard for both
        np.testing.assert_allclose(*smooth, rtol=1e-6)
    elif alpha in (0, 1):
        np.testing.assert_allclose(smooth[int(alpha == 0)], 1, rtol=1e-6)


def test_known_factors() -> None:
    np.testing.assert_allclose(smoothing_factors(np.float32([16, 4]), np.float32([1, 4])), [4, 1])
    np.testing.assert_allclose(smoothing_factors(np.float32([16]), np.float32([0.0625]), 0.75), [16], rtol=1e-6)
    np.testing.assert_allclose(equalisation_scales(np.float32([4, 1]), np.float32([1, 16])), [2, 0.25])


@given(MAGNITUDES, st.randoms(), st.floats(0, 1))
def test_one_can_divide_by_every_scale(first, random, alpha) -> None:
    second = list(first)
    random.shuffle(second)
    one, other = np.float32(first), np.float32(second)
    for scales in (equalisation_scales(one, other), smoothing_factors(one, other, alpha)):
        assert scales.dtype == np.float32 and scales.shape == one.shape
        assert (scales >= np.finfo(np.float32).tiny).all() and np.isfinite(scales).all()
        assert (scales[(one == 0) | (other == 0)] == 1).all()


@pytest.mark.parametrize("function", [equalisation_scales, smoothing_factors])
def test_ranges_that_are_none(function) -> None:
    with pytest.raises(ConfigError, match=r"of shapes \[2\] and \[3\], expected one number for each channel in both"):
        function(np.zeros(2), np.zeros(3))
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ConfigError, match=rf"of {bad} in channel 1, expected finite ones from 0 on"):
            function(np.ones(2), np.array([1.0, bad]))


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_alphas_that_are_none(alpha) -> None:
    with pytest.raises(ConfigError, match="to smooth with, expected one from 0 to 1"):
        smoothing_factors(np.ones(2), np.ones(2), alpha)
