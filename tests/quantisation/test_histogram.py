"""What a histogram counts, whatever comes in whichever order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.quantisation.calibration import BINS, Histogram

NUMBERS = st.one_of(st.just(0.0), st.floats(width=32), st.floats(-100, 100, width=32))
ARRAYS = st.lists(st.lists(NUMBERS, max_size=30).map(np.float32), min_size=1, max_size=4)


def histogram_of(*arrays: np.ndarray) -> Histogram:
    histogram = Histogram()
    for array in arrays:
        histogram.add(array)
    return histogram


def is_same(one: Histogram, other: Histogram) -> bool:
    return (one.exponent == other.exponent and np.array_equal(one.counts, other.counts)
            and (one.zeros, one.nonfinite) == (other.zeros, other.nonfinite)
            and (one.least, one.greatest) == (other.least, other.greatest))


@settings(deadline=None)
@given(ARRAYS)
def test_counts_are_those_of_every_number(arrays) -> None:
    found, numbers = histogram_of(*arrays), np.concatenate(arrays).astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    assert found.nonfinite == numbers.size - finite.size
    assert found.zeros == np.count_nonzero(finite == 0) and found.total == finite.size
    if finite.size:
        assert (found.least, found.greatest) == (finite.min(), finite.max())
        assert found.largest == np.abs(finite).max()
    nonzero = finite[finite != 0]
    if not nonzero.size:
        assert found.exponent is None and found.width == 0
        return
    edges = np.arange(BINS + 1) * found.width
    np.testing.assert_array_equal(found.positive, np.histogram(nonzero[nonzero > 0], edges)[0])
    np.testing.assert_array_equal(found.negative, np.histogram(-nonzero[nonzero < 0], edges)[0])
    np.testing.assert_array_equal(found.counts, [*found.negative[::-1], *found.positive])


@settings(deadline=None)
@given(ARRAYS, st.randoms())
def test_parts_in_any_order_are_the_whole(arrays, random) -> None:
    whole, merged = histogram_of(*arrays), Histogram()
    parts = [histogram_of(each) for each in arrays]
    random.shuffle(parts)
    for part in parts:
        merged.merge(part)
    assert is_same(whole, merged) and is_same(whole, histogram_of(np.concatenate(arrays)))


@settings(deadline=None)
@given(ARRAYS)
def test_magnitudes_are_those_of_absolute_values(arrays) -> None:
    folded, expected = histogram_of(*arrays).magnitudes(), histogram_of(*map(np.abs, arrays))
    np.testing.assert_array_equal(folded.counts, expected.counts)
    assert folded.greatest == expected.greatest and not folded.negative.any()
    assert not folded.is_finite or folded.least == 0


def test_a_histogram_that_is_merged_stays_as_it_is() -> None:
    small, large = histogram_of(np.float32([0.5, -0.25])), histogram_of(np.float32([100.0]))
    large.merge(small)
    assert is_same(small, histogram_of(np.float32([0.5, -0.25]))) and large.total == 3


def test_of_large_arrays_a_part_is_counted_and_the_ends_are_exact() -> None:
    array = np.random.default_rng(0).normal(size=5 << 20).astype(np.float32)
    array[1], array[2], array[4], array[7] = -50, 60, np.nan, np.inf
    found = histogram_of(array)
    assert (found.least, found.greatest, found.nonfinite) == (-50, 60, 2)
    assert found.total == pytest.approx(array.size, rel=1e-4)
    within = np.count_nonzero(np.abs(array) < 1) / array.size
    middle = found.counts[BINS - round(1 / found.width) : BINS + round(1 / found.width)].sum()
    assert middle / found.total == pytest.approx(within, abs=2e-3)


def test_zeros_of_large_arrays_are_counted() -> None:
    array = np.zeros(4 << 20, np.float32)
    array[: 1 << 20] = 1
    found = histogram_of(array)
    assert found.zeros / found.total == pytest.approx(0.75, abs=1e-3)


def test_the_ends_of_large_arrays_are_counted() -> None:
    array = np.zeros(4 << 20, np.float32)
    array[1], array[2] = -1, 3
    found = histogram_of(array)
    assert (found.negative.sum(), found.positive.sum()) == (1, 1)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint8", "int64", "bool"])
def test_elements_of_any_real_type(dtype) -> None:
    found = histogram_of(np.array([0, 1, 1], dtype))
    assert (found.least, found.greatest, found.zeros, found.total) == (0, 1, 1, 3)


def test_what_is_no_real_number_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="found elements of complex64 to count, expected real numbers"):
        histogram_of(np.zeros(2, np.complex64))


def test_what_float32_cannot_hold_counts_as_infinite() -> None:
    found = histogram_of(np.array([1e300, 1.0]))
    assert (found.nonfinite, found.greatest) == (1, 1)


def test_an_empty_array_is_nothing() -> None:
    found = histogram_of(np.zeros((0, 3), np.float32))
    assert not found.is_finite and found.largest == 0 and found.total == 0
