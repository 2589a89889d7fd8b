"""Scales and zero points, from ranges of numbers and from weights.

A number x is stored as the integer round(x / scale) + zero_point, ties to even, saturated to the element's range, and
stands for (integer - zero_point) * scale. So zero is always exact (Jacob et al. 2018, "Quantization and training of
neural networks for efficient integer-arithmetic-only inference", section 2.1).
"""

from __future__ import annotations

import math

import numpy as np

from ngraph_mxnet.errors import ConfigError, listed

LEAST_SCALE = float(np.finfo(np.float32).tiny)
"""The least normal number of float32: its reciprocal is finite, and no CPU flushes it to zero."""
BOUNDS = {"u8": (0, 255), "i8": (-128, 127)}
"""The least and greatest integer of each element that numbers are stored as."""


def affine(low: float, high: float, element: str) -> tuple[np.float32, int]:
    """The scale and zero point by which [low, high], widened to hold 0, takes all integers of `element`.

    scale = (high - low) / (most - least), zero_point = least - round(low / scale), as in ONNX's DynamicQuantizeLinear.
    Where rounding the zero point moves the integers' range, up to half a scale of one end saturates. A range that is
    0 alone has scale 1.

    Args:
        element: "u8" or "i8".

    Raises:
        ConfigError: the element is another, an end is not finite, or low is above high.
    """
    if element not in BOUNDS:
        raise ConfigError(f"found element {element!r} to quantise to, expected one of {listed(BOUNDS)}")
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ConfigError(f"found the range [{low}, {high}] to quantise, expected two finite ends in order")
    least, most = BOUNDS[element]
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    if low == high:
        return np.float32(1), least
    scale = np.float32(max((high - low) / (most - least), LEAST_SCALE))
    zero_point = least - round(low / float(scale))
    return scale, min(max(zero_point, least), most)


def symmetric(largest: float, bits: int = 8) -> np.float32:
    """The scale by which the magnitude `largest` is stored as 2**(bits - 1) - 1; the zero point is 0.

    The least integer, which has no positive counterpart, is never used. Where there are zeros only the scale is 1.

    Raises:
        ConfigError: `largest` is negative or not finite, or there are fewer than 2 bits.
    """
    if not (math.isfinite(largest) and largest >= 0):
        raise ConfigError(f"found the largest magnitude {largest} to quantise, expected one that is finite, from 0 on")
    if bits < 2:
        raise ConfigError(f"found {bits} bits to quantise to, expected at least 2")
    return np.float32(max(largest / (2 ** (bits - 1) - 1), LEAST_SCALE) if largest else 1)


def weight_scales(weights: np.ndarray, axis: int, largest: int = 127) -> np.ndarray:
    """float32[C], for each of the C channels along `axis` the scale by which `largest` is its largest magnitude.

    A channel of zeros only has scale 1. 127 takes all of i8; with 63 two products of u8 and i8 add up in 16 bits
    without saturation, as CPUs without VNNI need it (255 * 63 * 2 < 2**15).

    Raises:
        ConfigError: a weight is not finite, or there is no such axis.
    """
    if not -weights.ndim <= axis < weights.ndim:
        raise ConfigError(f"found axis {axis} of channels, expected one of weights of shape {list(weights.shape)}")
    others = tuple(place for place in range(weights.ndim) if place != axis % weights.ndim)
    magnitudes = np.abs(weights.astype(np.float32)).max(axis=others, initial=0.0)
    bad = np.flatnonzero(~np.isfinite(magnitudes))
    if bad.size:
        raise ConfigError(f"found weights that are not finite in channels {bad[:8].tolist()}, expected finite ones")
    scales = np.maximum(magnitudes / np.float32(largest), np.float32(LEAST_SCALE))
    return np.where(magnitudes > 0, scales, np.float32(1)).astype(np.float32)


def clipped(array: np.ndarray, scale: np.ndarray | np.float32, least: int, most: int) -> int:
    """How many elements have a multiple of the scale, round(x / scale), beyond [least, most]: they saturate.

    With a zero point, take it from both bounds. NaN counts as beyond.

    Args:
        scale: float32, in a shape that broadcasts against the array.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is beyond the bounds
        multiples = np.rint(array.astype(np.float32, copy=False) / scale)
    return int(array.size - np.count_nonzero((multiples >= least) & (multiples <= most)))
