"""Statistics of each channel of products' data: means, and the largest magnitudes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


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
