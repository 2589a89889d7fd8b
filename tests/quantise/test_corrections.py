"""What corrections promise, on layers computed here."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngraph_mxnet.errors import ConfigError
from ngraph_mxnet.ir import all_ops
from ngraph_mxnet.ir.builder import Builder
from ngraph_mxnet.quantise.corrections import bias_correction, equalisation_scales, smoothing_factors
from ngraph_mxnet.quantise.scales import weight_scales

MAGNITUDES = st.lists(st.one_of(st.just(0.0), st.floats(0, 2.0**127, width=32), st.floats(0.125, 100, width=32)))


def rounded(weights: np.ndarray) -> np.ndarray:
    """What the integers of a coarse scale stand for."""
    scales = weight_scales(weights, 0, 7).reshape(-1, *[1] * (weights.ndim - 1))
    return np.rint(weights / scales) * scales


def convolved(x: np.ndarray, weights: np.ndarray, groups: int) -> np.ndarray:
    b = Builder()
    b.results(b.convolution(b.parameter("x", x.shape), b.parameter("w", weights.shape), groups=groups))
    (node,) = b.graph.nodes
    return all_ops()["convolution"].evaluate([x, weights], node.attrs)[0]


@settings(deadline=None)
@given(st.integers(0, 99), st.sampled_from([1, 2, 4]))
def test_corrected_convolutions_have_the_mean_of_float(seed, groups) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(8, 4 // groups, 3, 3)).astype(np.float32)
    pixels = rng.normal(1, 1, (16, 4, 1, 1)) + np.zeros((1, 1, 5, 5))  # so that each place has the mean
    x = pixels.astype(np.float32)
    addend = bias_correction(weights, rounded(weights), x.mean(axis=(0, 2, 3)), groups=groups)
    assert addend.dtype == np.float32 and addend.shape == (8,)
    exact, found = (convolved(x, w, groups).mean(axis=(0, 2, 3)) for w in (weights, rounded(weights)))
    np.testing.assert_allclose(found + addend, exact, atol=1e-4)
    assert np.abs(found - exact).max() > 0.01


def test_corrected_products_have_the_mean_of_float() -> None:
    rng = np.random.default_rng(0)
    weights, x = rng.normal(size=(5, 7)), rng.normal(2, 1, (100, 7))
    addend = bias_correction(weights, rounded(weights), x.mean(axis=0))
    np.testing.assert_allclose((x @ rounded(weights).T + addend).mean(axis=0), (x @ weights.T).mean(axis=0), atol=1e-5)


@pytest.mark.parametrize(("weights", "dequantised", "means", "groups", "text"), [
    ((4, 3), (4, 2), (3,), 1, r"found weights of shape \[4, 3\] and dequantised ones of shape \[4, 2\]"),
    ((4,), (4,), (3,), 1, "rank 2 or more"),
    ((4, 3), (4, 3), (4,), 1, r"found means of shape \[4\] for weights of shape \[4, 3\] in 1 groups, expected \[3\]"),
    ((4, 3), (4, 3), (9,), 3, "channels that the groups divide"),
    ((4, 3), (4, 3), (0,), 0, "in 0 groups"),
])
def test_shapes_that_do_not_fit(weights, dequantised, means, groups, text) -> None:
    with pytest.raises(ConfigError, match=text):
        bias_correction(np.zeros(weights), np.zeros(dequantised), np.zeros(means), groups=groups)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_corrections_of_what_is_not_finite(bad) -> None:
    with pytest.raises(ConfigError, match="found weights or means that are not finite"):
        bias_correction(np.ones((2, 2)), np.zeros((2, 2)), np.array([1, bad]))


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
