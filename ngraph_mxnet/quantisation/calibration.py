"""Statistics of a model's numbers, and the choice of the numbers that integers stand for.

A histogram of a tensor is what ranges are chosen from (METHODS, by name). The means and the largest magnitudes of
channels are what corrections are made of. Scales and zero points come from ranges and from weights.

A range [low, high] holds 0, and is never wider than the numbers seen. What is outside is saturated to its ends. For a
symmetric range take the histogram's `magnitudes()`, with half the levels: low is 0 then, and the range [-high, high].

A number x is stored as the integer round(x / scale) + zero_point, ties to even, saturated to the element's range, and
stands for (integer - zero_point) * scale. So zero is always exact (Jacob et al. 2018, "Quantization and training of
neural networks for efficient integer-arithmetic-only inference", section 2.1).

A file of a `Calibration` is NumPy's npz (a zip of arrays, read without pickle), of these arrays for n values:

* `meta`: uint8, JSON in UTF-8: `format`, `version`, `fingerprint` (null if not given), `samples`, `names` (n strings).
* `counts`: float64[n, 2, 2048], what `Histogram` has as `negative` and `positive`.
* `exponents`: int16[n], NONE where there is none yet.
* `ends`: float64[n, 2], `least` and `greatest`. `zeros`: float64[n]. `nonfinite`: int64[n].
"""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import CalibrationError, ConfigError, UnsupportedError, listed
from ngraph_mxnet.base.files import new_file
from ngraph_mxnet.base.forks import ForkSafeLock

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


def _candidates(base: Range, best: Range, widest: Range, moves: tuple[bool, bool],
                fractions: np.ndarray) -> list[Range]:
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
    """The range that a method of METHODS chooses; (0, 0) where there were no numbers but zeros. Raises ConfigError:
    there is no such method, or there are fewer than 2 levels or more than 2048."""
    if method not in METHODS:
        raise ConfigError(f"found method {method!r} to choose a range, expected one of {listed(METHODS, method)}")
    if not 2 <= levels <= BINS:
        raise ConfigError(f"found {levels} levels to divide a range into, expected 2 to {BINS}")
    return METHODS[method](histogram, levels)


def choose_symmetric(histogram: Histogram, method: str, levels: int) -> float:
    """The end of the range [-end, end] that a method of METHODS chooses of magnitudes, divided for half of the levels.
    Raises ConfigError: as of `choose`."""
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


FORMAT, VERSION = "ngraph_mxnet calibration", 1
NONE = -32768
_ARRAYS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "counts": ("float64", (2, BINS)), "exponents": ("int16", ()), "ends": ("float64", (2,)), "zeros": ("float64", ()),
    "nonfinite": ("int64", ()),
}
"""The dtype of each array beside `meta`, and its shape for one value."""


class Calibration(Mapping[str, Histogram]):
    """Histograms by the names of values. Several threads may observe, merge and choose ranges at once; a histogram that
    is taken out by its name goes on counting what they observe.

    Attributes:
        fingerprint: of the graph whose values these are (`ir/graph.py`); None where it was not given.
        samples: how many the model ran on, as far as `count_samples` was told.
    """

    def __init__(self, fingerprint: str | None = None) -> None:
        self.fingerprint = fingerprint
        self.samples = 0
        self._histograms: dict[str, Histogram] = {}
        self._lock = ForkSafeLock()

    def __getitem__(self, name: str) -> Histogram:
        return self._histograms[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._histograms))

    def __len__(self) -> int:
        return len(self._histograms)

    def observe(self, names: str | Iterable[str], array: np.ndarray) -> None:
        """Count the elements of an array, of any shape and real dtype, as numbers of the value of that name, or of each
        of these names. Raises UnsupportedError: its elements are not real numbers."""
        part = Histogram()
        part.add(array)
        with self._lock:
            for name in [names] if isinstance(names, str) else names:
                self._histograms.setdefault(name, Histogram()).merge(part)

    def count_samples(self, samples: int = 1) -> None:
        """The model ran on so many more samples."""
        with self._lock:
            self.samples += samples

    def merge(self, other: Calibration) -> None:
        """Count what `other` has seen, which stays as it is: of the same model on other samples. Raises
        CalibrationError: both have a fingerprint, and not the same."""
        with other._lock:  # never both locks at once: two threads may merge two of them into each other
            samples, fingerprint = other.samples, other.fingerprint
            parts = {name: _copy(histogram) for name, histogram in other._histograms.items()}
        with self._lock:
            if fingerprint is not None and self.fingerprint not in (None, fingerprint):
                raise CalibrationError(
                    f"found calibrations of two models to merge: of the graph {fingerprint} and of {self.fingerprint}")
            self.fingerprint = fingerprint if self.fingerprint is None else self.fingerprint
            self.samples += samples
            for name, part in parts.items():
                self._histograms.setdefault(name, Histogram()).merge(part)

    def range(self, name: str, method: str, levels: int = 256, *, symmetric: bool = False) -> Range:
        """The range that a method of `METHODS` chooses for a value: (low, high), low <= 0 <= high.

        Args:
            levels: how many integers it is divided for: 256 for u8 and i8.
            symmetric: of magnitudes, divided for half the levels: the range is (-high, high).

        Raises:
            CalibrationError: nothing was seen of the value.
            ConfigError: there is no such method, or number of levels.
        """
        with self._lock:
            if name not in self._histograms:
                raise CalibrationError(f"found no value {name!r} to choose a range for; seen were "
                                       f"{listed(self._histograms, name) or 'none'}")
            histogram = _copy(self._histograms[name])
        if not symmetric:
            return choose(histogram, method, levels)
        high = choose_symmetric(histogram, method, levels)
        return -high, high

    def save(self, path: str | Path) -> None:
        """Write it as one file, which appears whole or not at all. Raises OSError where it can't be written."""
        with self._lock:
            meta = {"format": FORMAT, "version": VERSION, "fingerprint": self.fingerprint, "samples": self.samples,
                    "names": list(self._histograms)}
            arrays = _arrays([_copy(each) for each in self._histograms.values()])
        text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        with new_file(path) as file:
            np.savez_compressed(file, meta=text, **arrays)

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read a file that `save` wrote.

        Raises:
            CalibrationError: it is damaged, something else, or of a version that this package does not read.
            OSError: it can't be read.
        """
        content = Path(path).read_bytes()
        try:
            with zipfile.ZipFile(BytesIO(content)) as archive:
                meta = _read_meta(path, archive)
                arrays = {name: _read_array(path, archive, name, len(meta["names"])) for name in _ARRAYS}
        # What zipfile and NumPy raise for bytes that they can't take.
        except (ValueError, EOFError, KeyError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            raise CalibrationError(f"can't read {path} as a file of calibration, it is damaged or something else: "
                                   f"{error}") from None
        found = cls(meta["fingerprint"])
        found.samples = meta["samples"]
        for at, name in enumerate(meta["names"]):
            found._histograms[name] = _histogram(path, name, {key: array[at] for key, array in arrays.items()})
        return found


def _copy(histogram: Histogram) -> Histogram:
    copy = Histogram()
    copy.merge(histogram)
    return copy


def _arrays(histograms: list[Histogram]) -> dict[str, np.ndarray]:
    table = {"counts": [(each.negative, each.positive) for each in histograms],
             "exponents": [NONE if each.exponent is None else each.exponent for each in histograms],
             "ends": [(each.least, each.greatest) for each in histograms], "zeros": [each.zeros for each in histograms],
             "nonfinite": [each.nonfinite for each in histograms]}
    return {name: np.array(table[name], dtype).reshape(-1, *shape) for name, (dtype, shape) in _ARRAYS.items()}


def _read_meta(path: str | Path, archive: zipfile.ZipFile) -> dict[str, Any]:
    meta = json.loads(_read(archive, "meta").tobytes())
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise CalibrationError(f"found {path} to be something else than a file of calibration")
    if meta.get("version") != VERSION:
        raise CalibrationError(f"found version {meta.get('version')!r} of calibration in {path}, expected {VERSION}: "
                               "write it anew, or read it with the package that wrote it")
    names, samples, fingerprint = meta.get("names"), meta.get("samples"), meta.get("fingerprint")
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
            and isinstance(samples, int) and samples >= 0 and isinstance(fingerprint, str | None)):
        raise CalibrationError(f"found names, samples or fingerprint in {path} that are none: it is damaged")
    return meta


def _read_array(path: str | Path, archive: zipfile.ZipFile, name: str, values: int) -> np.ndarray:
    dtype, shape = _ARRAYS[name]
    array = _read(archive, name)
    if array.dtype != dtype or array.shape != (values, *shape):
        raise CalibrationError(f"found {name} to be {array.dtype}{list(array.shape)} in {path}, expected "
                               f"{dtype}{[values, *shape]}: it is damaged")
    return array


def _read(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """An array of a file. All of its bytes are read before any is looked at, so that the zip's checksum holds."""
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise zipfile.BadZipFile(f"{name} is compressed in a way that NumPy does not use")
    return np.lib.format.read_array(BytesIO(archive.read(info)), allow_pickle=False)


def _histogram(path: str | Path, name: str, arrays: Mapping[str, np.ndarray]) -> Histogram:
    """The histogram of the value `name`, of its rows of a file's arrays."""
    found = Histogram()
    found.negative, found.positive = arrays["counts"].copy()
    exponent = int(arrays["exponents"])
    found.exponent = None if exponent == NONE else exponent
    found.least, found.greatest = arrays["ends"].tolist()
    found.zeros, found.nonfinite = float(arrays["zeros"]), int(arrays["nonfinite"])
    counted, largest = bool(arrays["counts"].any()), found.largest
    is_consistent = (
        all(np.isfinite(each).all() and (each >= 0).all() for each in (arrays["counts"], arrays["zeros"]))
        and found.nonfinite >= 0
        and counted == (found.exponent is not None)
        and found.is_finite == (counted or found.zeros > 0)
        and (not counted or LEAST_EXPONENT <= exponent <= MOST_EXPONENT)
        and (largest < math.ldexp(1, exponent) if counted else largest == 0)
    )
    if not is_consistent:
        raise CalibrationError(f"found a histogram of the value {name!r} in {path} that is none: it is damaged")
    return found
