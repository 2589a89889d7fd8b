"""A summary of a tensor in one line: its dtype, its range and its odd elements."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np


class Statistics(NamedTuple):
    """The statistics of a tensor; `str` gives a line of text.

    Attributes:
        min, max, mean, norm: figures of the finite elements; None if there are none. `norm` is Euclidean.
        nan, infinite, zeros, denormals: how many elements are such. A denormal is no zero, and smaller than the
            smallest normal number of its dtype.
    """

    shape: tuple[int, ...]
    dtype: str
    min: float | int | None
    max: float | int | None
    mean: float | None
    norm: float | None
    nan: int
    infinite: int
    zeros: int
    denormals: int

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics as a dict for JSON, with the shape as a list."""
        return {**self._asdict(), "shape": list(self.shape)}

    def __str__(self) -> str:
        figures = [f"{name} {_shown(getattr(self, name))}" for name in ("min", "max", "mean", "norm")]
        counts = [f"{what} {count}" for what, count in (("NaN", self.nan), ("infinite", self.infinite),
                                                        ("zeros", self.zeros), ("denormals", self.denormals)) if count]
        return ", ".join([f"{self.dtype} {list(self.shape)}", *figures, *counts])


def _shown(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.6g}"


def statistics(array: np.ndarray) -> Statistics:
    """Return the statistics of an array of bool, integers or floats. The array may have any shape, and no elements.

    Raises:
        TypeError: its elements are none of these.
    """
    array = np.asarray(array)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"found an array of {array.dtype}, expected bool, integers or floats")
    nan = infinite = denormals = 0
    finite = array
    if array.dtype.kind == "f":
        is_finite = np.isfinite(array)
        if not is_finite.all():
            finite = array[is_finite]
            nan = int(np.isnan(array).sum())
            infinite = array.size - finite.size - nan
        denormals = int(((finite != 0) & (np.abs(finite) < np.finfo(array.dtype).smallest_normal)).sum())
    zeros = finite.size - int(np.count_nonzero(finite))
    counts = (nan, infinite, zeros, denormals)
    if finite.size == 0:
        return Statistics(array.shape, str(array.dtype), None, None, None, None, *counts)
    numbers = finite.astype(np.uint8) if array.dtype.kind == "b" else finite
    low, high = numbers.min().item(), numbers.max().item()
    largest = float(max(-low, high, 0))
    # Of numbers within [-1, 1] neither sums nor squares overflow.
    scaled = np.divide(numbers, largest or 1.0, dtype=np.float64)
    mean, norm = largest * float(scaled.mean()), largest * math.sqrt(float(np.vdot(scaled, scaled)))
    return Statistics(array.shape, str(array.dtype), low, high, mean, norm, *counts)
