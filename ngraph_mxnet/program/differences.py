"""How two arrays differ, and what an array holds, as figures: its range, and its odd elements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ngraph_mxnet.base.rendered import Facts


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

    def __str__(self) -> str:
        figures = [f"{name} {'-' if figure is None else f'{figure:.6g}'}" for name, figure in (
            ("min", self.min), ("max", self.max), ("mean", self.mean), ("norm", self.norm))]
        counts = [f"{what} {count}" for what, count in (("NaN", self.nan), ("infinite", self.infinite),
                                                        ("zeros", self.zeros), ("denormals", self.denormals)) if count]
        return ", ".join([f"{self.dtype} {list(self.shape)}", *figures, *counts])


def statistics(array: np.ndarray) -> Statistics:
    """Return the statistics of an array of bool, integers or floats. The array may have any shape, and no elements.
    Raises TypeError: its elements are none of these."""
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


DEFAULTS = {"f32": 1e-3, "f16": 1e-2, "bf16": 5e-2, "int8": 2e-1}
"""By the precision of convolutions and matrix products; f16 also where a model stores values so."""


@dataclass(frozen=True)
class Tolerance:
    """The difference allowed between two values of one element. Floats may differ by `share` of the largest magnitude
    of the reference's tensor. Integers of 8 bits, which are mostly quantised numbers, may differ by 1. Other integers
    and bool must be equal."""

    share: float

    def bound(self, reference: np.ndarray, scale: float) -> float:
        """How far an element may be from the reference's; `scale`: the largest magnitude of its tensor."""
        if reference.dtype.kind == "f":
            return scale * self.share
        return 1 if reference.dtype.kind != "b" and reference.dtype.itemsize == 1 else 0

    def __str__(self) -> str:
        return (f"{self.share:g} of the largest magnitude of the reference's tensor; of integers of 8 bits 1, of other "
                "integers and bool 0; NaN is like NaN, and infinite like infinite of the same sign")


@dataclass(frozen=True)
class Difference(Facts):
    """Between ours and the reference's array of one value.

    Attributes:
        agrees: whether no element differs by more than the tolerance allows, and the shapes are the same.
        share: the largest difference, over the largest magnitude of the reference's tensor; infinite where one of both
            is no number; None where the shapes differ.
        beyond: how many elements differ by more than the tolerance allows.
        index, element, expected, absolute, relative: of the element that differs most its place, both values, and the
            difference, also over the reference's value; None where none differs.
    """

    agrees: bool
    share: float | None
    beyond: int
    ours: Statistics
    reference: Statistics
    index: tuple[int, ...] | None = None
    element: float | None = None
    expected: float | None = None
    absolute: float | None = None
    relative: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as a dict for JSON. Floats that are not finite become texts: `nan`, `inf` or `-inf`."""
        return _finite_or_text(super().to_dict())

    def __str__(self) -> str:
        return "another shape" if self.share is None else f"{self.share:.3g}"


def _finite_or_text(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _finite_or_text(figure) if isinstance(figure, dict) else
            str(figure) if isinstance(figure, float) and not math.isfinite(figure) else figure
            for name, figure in figures.items()}


_MOST_MOVED = 20
"""One row in so many may be at another place, and one element in so many may be chosen otherwise."""


def in_order_of(ours: np.ndarray, reference: np.ndarray, tolerance: Tolerance) -> np.ndarray:
    """Put rows of `ours`, arrays along the last axis, where the reference has such rows, within each item of the first
    axis: what sorts numbers that are nearly equal may do so either way. Arrays of rank 0 and 1, and such as would have
    more than one row in 20 moved, stay as they are. Both arrays have one shape."""
    if ours.ndim < 2 or reference.dtype.kind != "f":
        return ours
    finite = np.abs(reference[np.isfinite(reference)])
    bound = tolerance.bound(reference, float(finite.max(initial=0)) or 1.0)
    found = ours.copy()
    for rows, wanted in zip(found.reshape(len(ours), -1, ours.shape[-1]),
                            reference.reshape(len(ours), -1, ours.shape[-1]), strict=True):
        with np.errstate(invalid="ignore"):
            places = np.flatnonzero(~(np.abs(rows - wanted) <= bound).all(axis=-1))
        if len(places) > max(4, len(rows) // _MOST_MOVED):
            return ours
        left = list(rows[places].copy())
        for place in places:
            near = [float(np.abs(row - wanted[place]).max()) for row in left]
            rows[place] = left.pop(int(np.argmin(near)))
    return found


def but_few(ours: np.ndarray, reference: np.ndarray, tolerance: Tolerance) -> np.ndarray:
    """Put the reference's elements in place of those that differ by more than the tolerance allows, if they are at most
    one in 20: what compares random numbers with sums may choose either way. Both arrays have one shape."""
    finite = np.abs(reference[np.isfinite(reference)])
    bound = tolerance.bound(reference, float(finite.max(initial=0)) or 1.0)
    with np.errstate(invalid="ignore"):
        near = np.abs(np.subtract(ours, reference, dtype=np.float64)) <= bound
    return np.where(near, ours, reference) if np.count_nonzero(~near) <= ours.size // _MOST_MOVED else ours


def compare(ours: np.ndarray, reference: np.ndarray, tolerance: Tolerance) -> Difference:
    """Compare two arrays of bool, integers or floats. Arrays of different dtypes are compared as numbers."""
    about = (statistics(ours), statistics(reference))
    if ours.shape != reference.shape:
        return Difference(False, None, max(ours.size, reference.size), *about)
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.asarray(np.abs(np.subtract(ours, reference, dtype=np.float64)))
    both_nan = np.isnan(ours) & np.isnan(reference) if ours.dtype.kind == reference.dtype.kind == "f" else False
    same = np.asarray((ours == reference) | both_nan)
    distance[same] = 0
    distance[np.isnan(distance)] = np.inf
    if distance.size == 0 or same.all():
        return Difference(True, 0.0, 0, *about)
    scale = max(abs(about[1].min or 0), abs(about[1].max or 0)) or 1
    bound = tolerance.bound(reference, scale)
    # Of large integers float64 tells some no longer apart.
    beyond = int((~same & (distance > bound) if bound else ~same).sum())
    index = np.unravel_index(int(np.argmax(np.where(same, -1, distance))), distance.shape)
    absolute, expected = float(distance[index]), float(reference[index])
    return Difference(beyond == 0, absolute / scale, beyond, *about, tuple(map(int, index)), float(ours[index]),
                      expected, absolute, absolute / abs(expected) if expected else np.inf)
