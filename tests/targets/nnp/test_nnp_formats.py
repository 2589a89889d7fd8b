"""Rounding, against a definition by search: the nearest of all numbers of the format, ties to the even one."""

from __future__ import annotations

import numpy as np
import pytest

from ngraph_mxnet.targets.nnp.quantization import FORMATS, dequantized, quantized

ALL_16 = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)


def _value(name: str, bits: np.ndarray) -> np.ndarray:
    """float64 value of 16-bit patterns, from sign, exponent and fraction."""
    fraction_bits, exponent_bits = {"bf16": (7, 8), "f16": (10, 5)}[name]
    bits = bits.astype(np.int64)
    sign = np.where(bits >> 15, -1.0, 1.0)
    exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1)
    fraction = (bits & ((1 << fraction_bits) - 1)) / (1 << fraction_bits)
    bias = (1 << (exponent_bits - 1)) - 1
    finite = np.where(
        exponent == 0, np.ldexp(fraction, 1 - bias), np.ldexp(1 + fraction, np.maximum(exponent, 1) - bias)
    )
    special = np.where(fraction == 0, np.inf, np.nan)
    return sign * np.where(exponent == (1 << exponent_bits) - 1, special, finite)


def _nearest(name: str, values: np.ndarray) -> np.ndarray:
    """Patterns of the numbers of the format nearest to float32 `values`, none of them NaN."""
    positive = _value(name, ALL_16[: 1 << 15])
    table = positive[np.isfinite(positive)]  # ascending, as the patterns are
    step = table[-1] - table[-2]
    table = np.append(table, table[-1] + step)  # what would follow the largest stands for infinity
    magnitude = np.minimum(np.abs(values.astype(np.float64)), table[-1])
    above = np.searchsorted(table, magnitude).clip(1, len(table) - 1)
    below = above - 1
    down, up = magnitude - table[below], table[above] - magnitude
    picked = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
    return (picked + np.where(np.signbit(values), 1 << 15, 0)).astype(np.uint16)


@pytest.mark.parametrize("name", ["bf16", "f16"])
def test_every_number_of_the_format_is_itself(name):
    stored = ALL_16.view(FORMATS[name].storage)
    wide = FORMATS[name].to_float32(stored)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        np.testing.assert_array_equal(wide.astype(np.float64), _value(name, ALL_16))
    with np.errstate(invalid="ignore"):  # signalling NaNs
        back = FORMATS[name].round_to(wide).view(np.uint16)
    known = ~np.isnan(wide)
    np.testing.assert_array_equal(back[known], ALL_16[known])
    assert np.isnan(FORMATS[name].to_float32(back[~known].view(FORMATS[name].storage))).all()


@pytest.mark.parametrize("name", ["bf16", "f16"])
def test_rounding_is_to_the_nearest_and_ties_to_even(name):
    """At each number of the format, half way to the next, and one float32 to either side of both."""
    finite = _value(name, ALL_16)
    finite = finite[np.isfinite(finite)]
    halves = np.concatenate([(finite[:-1] + finite[1:]) / 2, finite])
    points = halves.astype(np.float32)
    up, down = np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(-np.inf))
    rng = np.random.default_rng(0)
    anything = rng.integers(0, 1 << 32, 300_000, dtype=np.uint32).view(np.float32)
    values = np.concatenate([points, up, down, anything[~np.isnan(anything)], np.float32([np.inf, -np.inf])])
    np.testing.assert_array_equal(FORMATS[name].round_to(values).view(np.uint16), _nearest(name, values))


def test_a_nan_stays_one_whatever_its_bits():
    bits = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFC00000, 0x7FC00000], np.uint32)
    for name in ("bf16", "f16", "f32"):
        assert np.isnan(FORMATS[name].to_float32(FORMATS[name].round_to(bits.view(np.float32)))).all()


def test_integers_round_half_to_even_and_saturate():
    values = np.float32([-0.5, 0.5, 1.5, 2.5, -1.5, 126.5, 127.5, 1e9, -128.5, -1e9, np.inf, -np.inf, np.nan])
    assert FORMATS["i8"].round_to(values).tolist() == [0, 0, 2, 2, -2, 126, 127, 127, -128, -128, 127, -128, 0]
    assert FORMATS["i32"].round_to(np.float32([3e9, -3e9, 2.5, 2**31, np.nan])).tolist() == [
        2**31 - 1,
        -(2**31),
        2,
        2**31 - 1,
        0,
    ]


@pytest.mark.parametrize("scale", [1.0, 0.1, 3e-4, 7.3e5])
def test_i8_numbers_survive_their_scale(scale):
    every = np.arange(-128, 128).astype(np.int8)
    np.testing.assert_array_equal(quantized(dequantized(every, scale), scale), every)


def test_sizes():
    assert {name: FORMATS[name].size for name in ("i8", "f16", "bf16", "f32", "i32", "i64", "bool")} == {
        "i8": 1,
        "f16": 2,
        "bf16": 2,
        "f32": 4,
        "i32": 4,
        "i64": 8,
        "bool": 1,
    }


@pytest.mark.parametrize("name", ["bf16", "f16", "f32", "i8", "i32"])
def test_any_shape_and_strides(name):
    format = FORMATS[name]
    for values in (np.zeros(()), np.zeros((0, 3)), np.arange(24).reshape(4, 6)[::2, ::-1].T):
        values = values.astype(np.float32, order="K")
        stored = format.round_to(values)
        assert stored.dtype == format.storage and stored.shape == values.shape
        np.testing.assert_array_equal(format.to_float32(stored.T.copy().T), values)
