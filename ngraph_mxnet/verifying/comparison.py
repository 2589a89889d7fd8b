"""How two arrays of one value differ, and whether that is more than a tolerance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ngraph_mxnet.debug.statistics import Statistics, statistics

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
class Difference:
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
        found = {**asdict(self), "index": None if self.index is None else list(self.index)}
        return {**_plain(found), "ours": _plain(self.ours.to_dict()), "reference": _plain(self.reference.to_dict())}


def _plain(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(figure) if isinstance(figure, float) and not np.isfinite(figure) else figure
            for name, figure in figures.items()}


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
