"""The choice of the numbers that integers stand for: of a range from a histogram (METHODS, by name), and of scales and
zero points from ranges and from weights.

A range [low, high] holds 0, and is never wider than the numbers seen. What is outside is saturated to its ends. For a
symmetric range take the histogram's `magnitudes()`, with half the levels: low is 0 then, and the range [-high, high].

A number x is stored as the integer round(x / scale) + zero_point, ties to even, saturated to the element's range, and
stands for (integer - zero_point) * scale. So zero is always exact (Jacob et al. 2018, "Quantization and training of
neural networks for efficient integer-arithmetic-only inference", section 2.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import numpy as np

from ngraph_mxnet.errors import ConfigError, listed
from ngraph_mxnet.quantisation.observe import BINS, Histogram

Range = tuple[float, float]
Method = Callable[[Histogram, int], Range]
"""From a histogram and the number of integers (levels) that the range is divided for."""
_Loss = Callable[[float, float], float]

_FRACTIONS = np.geomspace(1 / BINS, 1, 60)
"""Candidates for a nearer end, as fractions of the end: from one bin on."""
_FINER = np.geomspace(_FRACTIONS[-2], 1 / _FRACTIONS[-2], 9)
"""Then of the best, as far as its neighbours."""
_ROUNDS = 3
_SMOOTHING = 1e-4


def minmax(histogram: Histogram, levels: int) -> Range:
    """From the least number to the greatest: nothing saturates."""
    return (min(histogram.least, 0.0), max(histogram.greatest, 0.0)) if histogram.is_finite else (0.0, 0.0)


def percentile(histogram: Histogram, levels: int, *, percent: float) -> Range:
    """At least `percent` of all numbers, zeros too: of what is left half is cut off at each end.

    Of numbers on one side of 0 all is cut off there. Ends are those of bins.

    Raises:
        ConfigError: `percent` is not above 0 and at most 100.
    """
    if not 0 < percent <= 100:
        raise ConfigError(f"found {percent} as the percentage of numbers to hold, expected one above 0 and at most 100")
    low, high = minmax(histogram, levels)
    surplus = histogram.total * (1 - percent / 100) / (2 if low < 0 < high else 1)

    def end(counts: np.ndarray) -> float:
        """The edge that so many numbers or fewer of one side, float64[2048], are beyond."""
        beyond = np.append(np.cumsum(counts[::-1])[::-1], 0.0)
        return float(np.argmax(beyond <= surplus)) * histogram.width

    return max(low, -end(histogram.negative)), min(high, end(histogram.positive))


def entropy(histogram: Histogram, levels: int) -> Range:
    """The range by which quantising loses the least information (S. Migacz, "8-bit inference with TensorRT", GTC 2017).

    For bins of the range, with the numbers outside added to its end bins, let P be their shares. Q has the numbers of
    the range without those outside: the bins are divided into `levels` groups, and each group's numbers are spread
    evenly over those of its bins where P is not 0. The range is the one with the least sum of P log(P / Q), the
    divergence of Kullback and Leibler, over ranges of at least `levels` bins. Here a ten-thousandth of Q is spread over
    all bins where P is not 0: else it is infinite where an end bin has numbers from outside only.

    Zeros are left out: they lose nothing.
    """
    counts, width = histogram.counts, histogram.width

    def bins_to(end: float) -> int:
        return int(end / width) + 1 if end else 0

    def loss(low: float, high: float) -> float:
        return _divergence(counts, BINS - bins_to(-low), BINS + bins_to(high), levels)

    return _least(loss, minmax(histogram, levels))


def _divergence(counts: np.ndarray, first: int, last: int, levels: int) -> float:
    """Return the divergence between bins `first` to `last` and what `levels` groups leave of them. It is infinite where
    there are too few bins."""
    inside = counts[first:last]
    if inside.size < levels:
        return np.inf
    clipped = inside.copy()
    clipped[0] += counts[:first].sum()
    clipped[-1] += counts[last:].sum()
    support = clipped > 0
    groups = np.arange(inside.size) * levels // inside.size
    bins = np.bincount(groups, support, levels)
    spread = (np.bincount(groups, inside, levels) / np.maximum(bins, 1))[groups][support]
    if not spread.any():
        return np.inf
    p = clipped[support] / clipped.sum()
    q = (1 - _SMOOTHING) * spread / spread.sum() + _SMOOTHING / p.size
    return float(np.sum(p * np.log(p / q)))


def mse(histogram: Histogram, levels: int) -> Range:
    """The range with the least squared error of rounding and saturation.

    The numbers of a bin are taken as spread evenly over it. With the scale s = (high - low) / (levels - 1) a number x
    becomes k s, where k is x / s rounded, saturated to `levels` integers of which 0 is one. The integral of
    (x - k s)**2 from 0 to x is k s**3 / 12 + (x - k s)**3 / 3, so its differences at the edges of bins are the exact
    errors, also of bins much wider or narrower than s.
    """
    if histogram.exponent is None:
        return 0.0, 0.0
    used = np.flatnonzero(histogram.counts)
    counts = histogram.counts[used[0] : used[-1] + 1]
    edges = (np.arange(counts.size + 1) + used[0] - BINS) * histogram.width
    unit = max(histogram.largest, float(np.finfo(np.float32).tiny))  # cubes of numbers from 0 to 1 don't overflow

    def loss(low: float, high: float) -> float:
        scale = (high - low) / (levels - 1) / unit
        least = round(low / unit / scale)
        multiples = np.clip(np.rint(edges / unit / scale), least, least + levels - 1)
        integral = multiples * scale**3 / 12 + (edges / unit - multiples * scale) ** 3 / 3
        return float(np.diff(integral) @ counts)

    return _least(loss, minmax(histogram, levels))


def _least(loss: _Loss, widest: Range) -> Range:
    """The range within `widest` with the least loss, among candidates: both ends nearer to 0 by a factor, then each
    end by itself, until that finds none that is better."""
    best, found = widest, np.inf
    if widest == (0.0, 0.0):
        return best
    axes = [(True, True), (True, False), (False, True)] if widest[0] < 0 < widest[1] else [(True, True)]
    for _ in range(_ROUNDS):
        before = found
        for moves in axes:
            for base, fractions in ((widest, _FRACTIONS), (None, _FINER)):
                for candidate in _candidates(base or best, best, widest, moves, fractions):
                    lost = loss(*candidate)
                    if lost < found:
                        best, found = candidate, lost
        if found == before or len(axes) == 1:
            break
    return best


def _candidates(
    base: Range, best: Range, widest: Range, moves: tuple[bool, bool], fractions: np.ndarray
) -> list[Range]:
    """Ranges whose ends are those of `base` times a fraction where they move, else those of `best`."""
    table = [(base[0] * f if moves[0] else best[0], base[1] * f if moves[1] else best[1]) for f in fractions.tolist()]
    return [(max(low, widest[0]), min(high, widest[1])) for low, high in table]


METHODS: Mapping[str, Method] = MappingProxyType({
    "minmax": minmax,
    "percentile_99.99": partial(percentile, percent=99.99),
    "percentile_99.999": partial(percentile, percent=99.999),
    "entropy": entropy,
    "mse": mse,
})


def choose(histogram: Histogram, method: str, levels: int) -> Range:
    """The range that a method of METHODS chooses; (0, 0) where there were no numbers but zeros.

    Raises:
        ConfigError: there is no such method, or there are fewer than 2 levels or more than 2048.
    """
    if method not in METHODS:
        raise ConfigError(f"found method {method!r} to choose a range, expected one of {listed(METHODS, method)}")
    if not 2 <= levels <= BINS:
        raise ConfigError(f"found {levels} levels to divide a range into, expected 2 to {BINS}")
    return METHODS[method](histogram, levels)


def choose_symmetric(histogram: Histogram, method: str, levels: int) -> float:
    """The end of the range [-end, end] that a method of METHODS chooses of magnitudes, divided for half of the levels.

    Raises:
        ConfigError: as of `choose`.
    """
    return choose(histogram.magnitudes(), method, levels // 2)[1]


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
