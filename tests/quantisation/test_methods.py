"""Ranges that the methods choose, held to what they promise on the numbers themselves."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.quantisation.calibration import (
    BINS,
    METHODS,
    Histogram,
    affine,
    choose,
    entropy,
    mse,
    percentile,
    symmetric,
)

KINDS = {
    "normal": lambda rng: rng.normal(size=20000),
    "laplace": lambda rng: rng.laplace(size=20000),
    "uniform": lambda rng: rng.uniform(-3, 3, 20000),
    "outlier": lambda rng: np.append(rng.normal(size=20000), 300.0),
    "shifted": lambda rng: rng.normal(2, 1, 20000),
    "relu": lambda rng: np.maximum(rng.normal(size=20000), 0),
    "negative": lambda rng: -rng.lognormal(size=20000),
}
NUMBERS = st.lists(st.one_of(st.floats(width=32), st.floats(-100, 100, width=32), st.just(0.0)), max_size=40)


def numbers_of(kind: str, seed: int) -> np.ndarray:
    return KINDS[kind](np.random.default_rng(seed)).astype(np.float32)


def histogram_of(numbers: np.ndarray) -> Histogram:
    histogram = Histogram()
    histogram.add(numbers)
    return histogram


def error_of(numbers: np.ndarray, low: float, high: float) -> float:
    """The mean squared error when they are stored as u8."""
    scale, zero_point = affine(low, high, "u8")
    stored = np.clip(np.rint(numbers / scale) + zero_point, 0, 255)
    return float(np.mean(((stored - zero_point) * scale - numbers) ** 2))


@settings(deadline=None)
@given(NUMBERS, st.sampled_from(sorted(METHODS)), st.sampled_from([2, 128, 256]))
def test_ranges_hold_zero_and_are_within_what_was_seen(numbers, method, levels) -> None:
    array = np.float32(numbers)
    low, high = choose(histogram_of(array), method, levels)
    finite = np.append(array[np.isfinite(array)], 0)
    assert finite.min() <= low <= 0 <= high <= finite.max()
    assert (low < high) == bool(finite.any())
    mirrored = choose(histogram_of(-array), method, levels)
    if method == "minmax" or low == 0 or high == 0:
        assert mirrored == pytest.approx((-high, -low))


def test_minmax_is_exact() -> None:
    assert choose(histogram_of(np.float32([-0.1, 3, np.inf, np.nan])), "minmax", 256) == (np.float32(-0.1), 3)
    assert choose(histogram_of(np.float32([2, 3])), "minmax", 256) == (0, 3)


@settings(deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.integers(0, 99), st.sampled_from([50.0, 99.0, 99.99, 100.0]))
def test_percentiles_hold_what_they_promise(kind, seed, percent) -> None:
    numbers = numbers_of(kind, seed)
    histogram = histogram_of(numbers)
    low, high = percentile(histogram, 256, percent=percent)
    assert np.mean((numbers >= low) & (numbers <= high)) >= percent / 100 - 1e-12
    # With a bin less at an end it is too much that is cut off there.
    surplus = numbers.size * (1 - percent / 100) / (2 if numbers.min() < 0 < numbers.max() else 1)
    assert high == 0 or np.count_nonzero(numbers >= high - histogram.width) > surplus
    assert low == 0 or np.count_nonzero(numbers <= low + histogram.width) > surplus


@pytest.mark.parametrize("percent", [0, -1, 100.1, float("nan")])
def test_percentages_that_are_none(percent) -> None:
    with pytest.raises(ConfigError, match="as the percentage of numbers to hold, expected one above 0 and at most 100"):
        percentile(Histogram(), 256, percent=percent)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.integers(0, 99))
def test_mse_has_less_error_than_minmax(kind, seed) -> None:
    numbers = numbers_of(kind, seed)
    histogram = histogram_of(numbers)
    assert error_of(numbers, *mse(histogram, 256)) <= error_of(numbers, *choose(histogram, "minmax", 256)) * 1.02


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_mse_is_near_the_least_error_of_a_grid(kind) -> None:
    numbers = numbers_of(kind, 1)
    low, high = choose(histogram_of(numbers), "minmax", 256)
    fractions = np.linspace(1 / 30, 1, 30)
    lows, highs = (fractions * end if end else [0.0] for end in (low, high))
    best = min(error_of(numbers, *each) for each in itertools.product(lows, highs))
    assert error_of(numbers, *mse(histogram_of(numbers), 256)) <= best * 1.03


def test_mse_saturates_outliers_of_many_numbers() -> None:
    numbers = np.append(np.random.default_rng(0).normal(size=1_000_000), 60.0).astype(np.float32)
    low, high = mse(histogram_of(numbers), 256)
    assert -6 < low < -3 and 5 < high < 40


def divergence(numbers: np.ndarray, bins: int, levels: int, width: float) -> float:
    """Of positive numbers clipped to so many bins, by loops: P has the outliers, Q the groups of the others."""
    of_bin = np.bincount((numbers / width).astype(int), minlength=BINS).tolist()
    p = [*of_bin[: bins - 1], sum(of_bin[bins - 1 :])]
    q = [0.0] * bins
    for group in range(levels):
        members = [i for i in range(bins) if i * levels // bins == group]
        some = [i for i in members if p[i]]
        for i in some:
            q[i] = sum(of_bin[j] for j in members) / len(some)
    some = [i for i in range(bins) if p[i]]
    q = [0.9999 * each / sum(q) + 1e-4 / len(some) for each in q]
    return sum(p[i] / sum(p) * np.log(p[i] / sum(p) / q[i]) for i in some)


@pytest.mark.parametrize("seed", range(3))
def test_entropy_has_less_divergence_than_other_ranges(seed) -> None:
    numbers = np.abs(numbers_of("laplace", seed))
    histogram = histogram_of(numbers)
    low, high = entropy(histogram, 128)
    assert low == 0
    found = divergence(numbers, int(high / histogram.width) + 1, 128, histogram.width)
    others = [divergence(numbers, bins, 128, histogram.width)
              for bins in range(128, int(histogram.greatest / histogram.width) + 2, 16)]
    assert found <= min(others) * 1.1 and found < others[-1] and found < others[0]


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.integers(0, 99))
def test_entropy_keeps_a_bin_for_each_level(kind, seed) -> None:
    histogram = histogram_of(numbers_of(kind, seed))
    low, high = entropy(histogram, 256)
    assert (high - low) / histogram.width >= 254 or (low, high) == choose(histogram, "minmax", 256)


def test_entropy_of_signed_numbers_moves_both_ends() -> None:
    rng = np.random.default_rng(0)
    numbers = np.concatenate([rng.normal(size=100000), [-40.0, 70.0]]).astype(np.float32)
    low, high = entropy(histogram_of(numbers), 256)
    assert -30 < low < -3 and 3 < high < 30


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 99), st.sampled_from(["normal", "laplace", "uniform", "outlier"]))
def test_symmetric_ranges_have_less_error(seed, kind) -> None:
    numbers = numbers_of(kind, seed)
    folded = histogram_of(numbers).magnitudes()

    def error(scale: float) -> float:
        stored = np.clip(np.rint(numbers / scale), -128, 127)
        return float(np.mean((stored * scale - numbers) ** 2))

    least, largest = (symmetric(choose(folded, method, 128)[1]) for method in ("mse", "minmax"))
    assert least <= largest * 1.0001
    assert error(least) <= error(largest) * 1.02


@pytest.mark.parametrize("method", sorted(METHODS))
def test_zeros_have_no_range(method) -> None:
    assert choose(Histogram(), method, 256) == choose(histogram_of(np.zeros(3, np.float32)), method, 256) == (0, 0)


def test_what_cannot_be_chosen() -> None:
    with pytest.raises(ConfigError, match="found method 'entrpy' to choose a range, expected one of entropy,"):
        choose(Histogram(), "entrpy", 256)
    for levels in (1, 1 << 20):
        with pytest.raises(ConfigError, match=f"found {levels} levels to divide a range into, expected 2 to 2048"):
            choose(Histogram(), "mse", levels)
