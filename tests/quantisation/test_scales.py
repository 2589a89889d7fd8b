"""Scales are never zero, zero is exact, and what a range holds comes back within half a scale."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.quantisation.calibration import BOUNDS, LEAST_SCALE, affine, clipped, symmetric, weight_scales

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
ELEMENTS = st.sampled_from(sorted(BOUNDS))


@settings(deadline=None)
@given(FINITE, FINITE, ELEMENTS, st.floats(0, 1))
def test_affine(one, other, element, place) -> None:
    low, high = sorted((one, other))
    scale, zero_point = affine(low, high, element)
    least, most = BOUNDS[element]
    assert scale.dtype == np.float32 and scale >= LEAST_SCALE and np.isfinite(scale) and np.isfinite(1 / scale)
    assert isinstance(zero_point, int) and least <= zero_point <= most
    low, high = min(low, 0.0), max(high, 0.0)
    number = low + place * (high - low)
    integer = min(max(round(number / float(scale)) + zero_point, least), most)
    # Half a scale for the rounding, half a one for that of the zero point, and what float32 rounds the scale by.
    assert abs((integer - zero_point) * float(scale) - number) <= float(scale) * (1 + 1e-4)


@pytest.mark.parametrize(("low", "high", "element", "scale", "zero_point"), [
    (0.0, 255.0, "u8", 1.0, 0),
    (-1.0, 254.0, "u8", 1.0, 1),
    (-128.0, 127.0, "i8", 1.0, 0),
    (0.0, 255.0, "i8", 1.0, -128),
    (-255.0, -10.0, "u8", 1.0, 255),
    (10.0, 510.0, "u8", 2.0, 0),
    (0.0, 0.0, "u8", 1.0, 0),
    (0.0, 0.0, "i8", 1.0, -128),
    (0.0, 1e-45, "u8", LEAST_SCALE, 0),
])
def test_known_ranges(low, high, element, scale, zero_point) -> None:
    assert affine(low, high, element) == (scale, zero_point)


@pytest.mark.parametrize(("low", "high", "element", "text"), [
    (0.0, 1.0, "u4", r"found element 'u4' to quantise to, expected one of u8, i8"),
    (float("nan"), 1.0, "u8", r"found the range \[nan, 1.0\]"),
    (0.0, float("inf"), "u8", r"found the range \[0.0, inf\]"),
    (1.0, -1.0, "i8", r"found the range \[1.0, -1.0\] to quantise, expected two finite ends in order"),
])
def test_ranges_that_are_none(low, high, element, text) -> None:
    with pytest.raises(ConfigError, match=text):
        affine(low, high, element)


@given(st.floats(0, 2.0**127, width=32), st.integers(2, 16))
def test_symmetric(largest, bits) -> None:
    scale = symmetric(largest, bits)
    assert scale.dtype == np.float32 and scale >= LEAST_SCALE
    stored = round(largest / float(scale))
    most = 2 ** (bits - 1) - 1
    assert stored == most if scale > LEAST_SCALE and largest else 0 <= stored <= most


def test_symmetric_scales_that_are_none() -> None:
    assert symmetric(0.0) == 1 and symmetric(127.0) == 1 and symmetric(63.0, 7) == 1
    with pytest.raises(ConfigError, match=r"found the largest magnitude -1.0"):
        symmetric(-1.0)
    with pytest.raises(ConfigError, match="found 1 bits"):
        symmetric(1.0, 1)


@settings(deadline=None)
@given(st.integers(0, 99), st.integers(-3, 2), st.sampled_from([127, 63]))
def test_weight_scales(seed, axis, largest) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(3, 4, 5)).astype(np.float32) * np.float32(10.0 ** rng.integers(-9, 9))
    np.moveaxis(weights, axis, 0)[1] = 0
    scales = weight_scales(weights, axis, largest)
    assert scales.dtype == np.float32 and scales.shape == (weights.shape[axis],) and scales[1] == 1
    multiples = np.rint(np.moveaxis(weights, axis, 0).reshape(len(scales), -1) / scales[:, None])
    np.testing.assert_array_equal(np.delete(np.abs(multiples).max(axis=1), 1), largest)


def test_channels_too_small_for_float32_have_a_normal_scale() -> None:
    np.testing.assert_array_equal(weight_scales(np.float32([[1e-44], [0], [127]]), 0), np.float32([LEAST_SCALE, 1, 1]))


def test_weights_without_scales() -> None:
    with pytest.raises(ConfigError, match=r"not finite in channels \[1\]"):
        weight_scales(np.float32([[1, 2], [np.inf, 0]]), 0)
    with pytest.raises(ConfigError, match=r"found axis 2 of channels, expected one of weights of shape \[2, 3\]"):
        weight_scales(np.zeros((2, 3), np.float32), 2)
    np.testing.assert_array_equal(weight_scales(np.zeros((2, 0), np.float32), 0), [1, 1])


def test_clipped_multiples_are_counted() -> None:
    array = np.float32([[-200, -128, 0.4], [127.4, 127.6, np.nan]])
    assert clipped(array, np.float32(1), -128, 127) == 3
    assert clipped(array[:1], np.float32([1, 2, 0.001]), -128, 127) == 2
    assert clipped(np.zeros((0,), np.float32), np.float32(1), -128, 127) == 0
    assert clipped(np.float32([3e38]), np.float32(LEAST_SCALE), -128, 127) == 1


@given(st.lists(FINITE, min_size=1), st.sampled_from([8, 7]))
def test_the_scale_of_the_largest_clips_nothing(numbers, bits) -> None:
    array = np.float32(numbers)
    most = 2 ** (bits - 1) - 1
    assert clipped(array, symmetric(float(np.abs(array).max()), bits), -most, most) == 0
