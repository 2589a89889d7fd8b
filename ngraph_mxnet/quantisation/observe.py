"""Statistics of a model's numbers: a histogram of a tensor, which ranges are chosen from, and the means and the largest
magnitudes of channels, which corrections are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ngraph_mxnet.errors import UnsupportedError

BINS = 2048
"""Bins on each side of zero."""
LEAST_EXPONENT = -100
"""Bins never cover less than [-2**-100, 2**-100): beneath it the number of bins over a range overflows in float32."""
MOST_EXPONENT = 128
"""All of float32 is in [-2**128, 2**128)."""
_MOST = 1 << 20


class Histogram:
    """Counts of numbers in 4096 equal bins over [-2**exponent, 2**exponent), which widens as larger numbers come.

    It widens by powers of two, by which bins fall together in pairs: in which order numbers came does not matter. Bins
    mirror each other: of a positive number and its negative the bins are equally far from zero. Zeros are counted
    apart: every scale represents them.

    Attributes:
        negative, positive: float64[2048], counts from zero outwards; bin i is from i to i + 1 `width`.
        exponent: None before a number comes that is not zero.
        zeros: how many zeros there were.
        least, greatest: of all finite numbers, as float32; inf and -inf while there were none.
        nonfinite: how many NaN and infinities there were, which are counted nowhere else.
    """

    def __init__(self) -> None:
        self.negative, self.positive = np.zeros(BINS), np.zeros(BINS)
        self.exponent: int | None = None
        self.zeros = 0.0
        self.least, self.greatest = math.inf, -math.inf
        self.nonfinite = 0

    def add(self, array: np.ndarray) -> None:
        """Count the elements of an array of any shape, as float32.

        Of a large array a part is counted, about a million, each element for as many as were passed over, and the least
        and the greatest. `least`, `greatest` and `nonfinite` are of all elements.

        Raises:
            UnsupportedError: its elements are not real numbers.
        """
        if array.dtype.kind not in "biuf":
            raise UnsupportedError(f"found elements of {array.dtype} to count, expected real numbers")
        with np.errstate(over="ignore"):  # what float32 can't hold counts as infinite
            flat = array.reshape(-1).astype(np.float32, copy=False)
        if not flat.size:
            return
        least, greatest = flat.min(), flat.max()
        if not (np.isfinite(least) and np.isfinite(greatest)):
            finite = flat[np.isfinite(flat)]
            self.nonfinite += flat.size - finite.size
            if not finite.size:
                return
            flat, least, greatest = finite, finite.min(), finite.max()
        self.least, self.greatest = min(self.least, float(least)), max(self.greatest, float(greatest))
        step = flat.size // _MOST | 1  # odd, so that it goes through all places of an image
        if step > 1:
            self._count(np.array([least, greatest]), 1.0)
        self._count(flat[::step], float(step))

    def merge(self, other: Histogram) -> None:
        """Count what `other` has counted; `other` stays as it is."""
        if other.exponent is not None:
            shift = self._widen(other.exponent) - other.exponent
            self.negative += _merged_bins(other.negative, shift)
            self.positive += _merged_bins(other.positive, shift)
        self.zeros += other.zeros
        self.nonfinite += other.nonfinite
        self.least, self.greatest = min(self.least, other.least), max(self.greatest, other.greatest)

    def magnitudes(self) -> Histogram:
        """The histogram of absolute values, which symmetric scales are chosen from; its `least` is 0."""
        folded = Histogram()
        folded.merge(self)
        folded.positive += folded.negative
        folded.negative = np.zeros(BINS)
        if self.is_finite:
            folded.least, folded.greatest = 0.0, self.largest
        return folded

    @property
    def largest(self) -> float:
        """The largest magnitude; 0 while there were no finite numbers."""
        return max(-self.least, self.greatest, 0.0)

    @property
    def is_finite(self) -> bool:
        """True if there was any finite number."""
        return self.least <= self.greatest

    @property
    def total(self) -> float:
        """How many numbers were counted, with zeros; of large arrays near to what it would be for all elements."""
        return float(self.negative.sum() + self.positive.sum()) + self.zeros

    @property
    def width(self) -> float:
        """The width of a bin; 0 before a number comes that is not zero."""
        return 0.0 if self.exponent is None else math.ldexp(1.0, self.exponent) / BINS

    @property
    def counts(self) -> np.ndarray:
        """float64[4096], from the least bin to the greatest; bin i is from i - 2048 to i - 2047 `width`."""
        return np.concatenate([self.negative[::-1], self.positive])

    def _count(self, sample: np.ndarray, weight: float) -> None:
        """Count each number of `sample`, float32[n] and finite, for `weight` of them."""
        nonzero = sample[sample != 0]
        self.zeros += weight * (sample.size - nonzero.size)
        if not nonzero.size:
            return
        magnitudes = np.abs(nonzero)
        exponent = self._widen(max(math.frexp(magnitudes.max())[1], LEAST_EXPONENT))
        bins = (magnitudes * np.float32(math.ldexp(BINS, -exponent))).astype(np.int64)
        bins[nonzero < 0] += BINS
        counts = np.bincount(bins, minlength=2 * BINS) * weight
        self.positive += counts[:BINS]
        self.negative += counts[BINS:]

    def _widen(self, exponent: int) -> int:
        """Cover at least [-2**exponent, 2**exponent); the exponent after it."""
        if self.exponent is None:
            self.exponent = exponent
        elif exponent > self.exponent:
            shift, self.exponent = exponent - self.exponent, exponent
            self.negative, self.positive = _merged_bins(self.negative, shift), _merged_bins(self.positive, shift)
        return self.exponent


def _merged_bins(counts: np.ndarray, shift: int) -> np.ndarray:
    """float64[2048], the counts of one side in bins of 2**shift the width."""
    step = 2 ** min(shift, int(math.log2(BINS)))
    wide = np.zeros(BINS)
    wide[: BINS // step] = counts.reshape(-1, step).sum(axis=1)
    return wide


class Channels:
    """Statistics of the data of products, by name. For one thread at a time.

    `axes`: of each product the axis of its data along which channels are.
    """

    def __init__(self, axes: Mapping[str, int]) -> None:
        self._axes = axes
        self._counts: dict[str, int] = {}
        self._sums: dict[str, np.ndarray] = {}
        self._largest: dict[str, np.ndarray] = {}

    def observe(self, names: Sequence[str], array: np.ndarray) -> None:
        """Count an array, of any real dtype, as data of those of these names that are products."""
        of_axis: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for name in names:
            if name not in self._axes:
                continue
            axis = self._axes[name]
            if axis not in of_axis:
                others = tuple(at for at in range(array.ndim) if at != axis)
                with np.errstate(invalid="ignore"):  # of infinities of both signs: `is_finite` tells of them
                    sums = array.sum(axis=others, dtype=np.float64)
                of_axis[axis] = sums, np.abs(array).max(axis=others, initial=0)
            sums, largest = of_axis[axis]
            self._counts[name] = self._counts.get(name, 0) + array.size // len(sums)
            self._sums[name] = self._sums.get(name, 0) + sums
            self._largest[name] = np.maximum(self._largest.get(name, 0), largest)

    def is_finite(self, name: str) -> bool:
        """True if data of this name was seen, and all of it was finite."""
        return name in self._sums and bool(np.isfinite(self._sums[name]).all())

    def means(self, name: str) -> np.ndarray:
        """float64[C]. Raises KeyError where nothing was seen of it."""
        return self._sums[name] / max(self._counts[name], 1)

    def largest(self, name: str) -> np.ndarray:
        """The largest magnitudes, [C]. Raises KeyError where nothing was seen of it."""
        return self._largest[name]
