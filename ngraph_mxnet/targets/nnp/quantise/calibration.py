"""Which magnitudes each value takes: histograms over a calibration run in float32, and i8 scales chosen from them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from ngraph_mxnet.ir.graph import Graph, Value
from ngraph_mxnet.targets.nnp.quantise.quantization import uniform
from ngraph_mxnet.targets.nnp.simulate.reference import quantized_reference

LARGEST = 127
"""The i8 number of the largest magnitude that a scale is chosen for: scales are symmetric, -128 is spare."""
_BINS = 2048
_CANDIDATES = 80
_MOST = 1 << 20


class Histogram:
    """Counts of magnitudes in equal bins over [0, 2**exponent); it widens, by powers of two, as larger ones come."""

    def __init__(self) -> None:
        self.largest = 0.0
        self._exponent: int | None = None
        self._counts = np.zeros(_BINS)

    def add(self, array: np.ndarray) -> None:
        """Count the finite elements, at most a million or so, but zeros, which every scale represents."""
        magnitudes = np.abs(array, dtype=np.float32).reshape(-1)
        magnitudes = magnitudes[np.isfinite(magnitudes) & (magnitudes > 0)]
        if magnitudes.size:
            largest = float(magnitudes.max())
            self._widen(math.frexp(largest)[1])
            assert self._exponent is not None
            step = magnitudes.size // _MOST | 1  # odd, so that it goes through all places of an image
            bins = (magnitudes[::step] * np.float32(math.ldexp(_BINS, -self._exponent))).astype(np.int64)
            self._counts += np.bincount(bins, minlength=_BINS) * float(step)
            self.largest = max(self.largest, largest)

    def merge(self, other: Histogram) -> None:
        """Count what `other` has counted."""
        if other._exponent is None:
            return
        self._widen(other._exponent)
        assert self._exponent is not None
        self._counts += _halved(other._counts, self._exponent - other._exponent)
        self.largest = max(self.largest, other.largest)

    def _widen(self, exponent: int) -> None:
        if self._exponent is None:
            self._exponent = exponent
        elif exponent > self._exponent:
            self._counts = _halved(self._counts, exponent - self._exponent)
            self._exponent = exponent

    def scale_of_largest(self) -> float:
        """The largest magnitude is 127; 1 where there are zeros only."""
        return self.largest / LARGEST or 1.0

    def scale_of_least_error(self) -> float:
        """The scale with the least mean squared error of rounding and saturation, among 80 up to the largest's."""
        if self._exponent is None:
            return 1.0
        used = np.flatnonzero(self._counts)
        width = math.ldexp(1.0, self._exponent) / _BINS
        magnitudes, counts = (used + 0.5) * width, self._counts[used]
        scales = self.largest / LARGEST * np.arange(1, _CANDIDATES + 1)[:, None] / _CANDIDATES
        rounded = np.minimum(np.rint(magnitudes / scales), LARGEST) * scales
        # The middle of a bin stands for all of it; beneath a step's width that hides what rounding costs.
        hidden = np.where(magnitudes < scales * (LARGEST + 0.5), np.minimum(scales, width) ** 2 / 12, 0.0)
        errors = ((magnitudes - rounded) ** 2 + hidden) @ counts
        return float(scales[int(errors.argmin()), 0])


def _halved(counts: np.ndarray, times: int) -> np.ndarray:
    """The counts in bins of 2**times the width."""
    step = 2 ** min(times, int(math.log2(_BINS)))
    wide = np.zeros(_BINS)
    wide[: _BINS // step] = counts.reshape(-1, step).sum(axis=1)
    return wide


def observe(
    graph: Graph, samples: Sequence[Sequence[np.ndarray]], wanted: Collection[Value]
) -> tuple[dict[Value, Histogram], list[list[np.ndarray]]]:
    """Run `graph` in float32 for each sample, an array for each parameter.

    Returns:
        The histograms of the values in `wanted`, and each sample's results.
    """
    histograms = {value: Histogram() for value in wanted}
    plain = uniform(graph, {}, "f32")

    def visit(value: Value, stored: np.ndarray) -> None:
        if value in histograms:
            histograms[value].add(stored)

    return histograms, [quantized_reference(graph, plain, sample, visit) for sample in samples]
