"""How near results must be to those that they are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Items = Sequence[Any]
"""Results of a call: arrays, or lists of them where a result is a sequence."""


class WrongError(Exception):
    """Results that differ. `against`: what ours, or the interpreter's, were compared with."""

    def __init__(self, against: str, detail: str) -> None:
        super().__init__(f"against {against}: {detail}")
        self.against, self.detail = against, detail


@dataclass(frozen=True)
class Closeness:
    """Floats may be off by `relative` of an element, `largest` of the largest one and `floor`, integers by `steps`, and
    a share of the elements by more: those that were rounded to the other side, and what that led to."""

    relative: float = 2e-4
    largest: float = 1e-4
    steps: int = 0
    share: float = 0.0
    floor: float = 1e-37

    def of_bf16(self) -> Closeness:
        """What is left of it where floats are multiplied in bf16, and what is rounded behind goes to another side."""
        return replace(self, relative=max(self.relative, 0.03), largest=max(self.largest, 0.03),
                       share=max(self.share, 0.1))

    def check(self, against: str, found: Items, expected: Items, moved: Sequence[Items] = ()) -> None:
        """Compare results. `moved` are what they are where operands are off by a rounding: by as much as an element
        moves among these it may be off, too, on both sides.

        Raises:
            WrongError: number, types, shapes or values differ.
        """
        if len(found) != len(expected):
            raise WrongError(against, f"{len(found)} results, expected {len(expected)}")
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            others = [each[number] for each in moved if len(each) == len(expected)]
            if isinstance(other, (list, tuple)) and isinstance(one, (list, tuple)):
                self.check(against, one, other, others)
            else:
                self._check_one(against, f"result {number}", one, other, others)

    def _check_one(self, against: str, what: str, found: Any, expected: Any, moved: Items) -> None:
        if found is None or expected is None:
            if found is not expected:
                raise WrongError(against, f"{what}: {found} is not {expected}")
            return
        one, other = np.asarray(found), np.asarray(expected)
        kinds = [f"{array.dtype}{list(array.shape)}" for array in (one, other)]
        if kinds[0] != kinds[1]:
            raise WrongError(against, f"{what}: found {kinds[0]}, expected {kinds[1]}")
        off = self._off(one, other, _spread(other, moved))
        count = int(off.sum())
        if count > self.share * off.size:
            at = tuple(int(place) for place in np.argwhere(off)[0])
            raise WrongError(against, f"{what}, {kinds[0]}: {count} of {off.size} elements differ, the first at {at}: "
                             f"found {one[at]!r}, expected {other[at]!r}")

    def _off(self, found: np.ndarray, expected: np.ndarray, spread: np.ndarray | None) -> np.ndarray:
        """Which elements are too far from each other. `spread`: how far apart they may be besides."""
        if expected.dtype.kind not in "fiu":
            return (found != expected) & (True if spread is None else spread == 0)
        if expected.dtype.kind in "iu":
            if not self.steps and spread is None:
                return found != expected
            one, other = (array.astype(np.float64) for array in (found, expected))
            return np.abs(one - other) > self.steps + (0 if spread is None else spread)
        half = expected.dtype == np.float16
        one, other = (array.astype(np.float64) for array in (found, expected))
        finite = np.isfinite(other) & np.isfinite(one)
        largest = np.abs(other[finite]).max(initial=0.0)
        with np.errstate(invalid="ignore"):
            bound = max(self.relative, 4e-3 * half) * np.abs(other) + max(self.largest, 2e-3 * half) * largest
            bound += self.floor + (0 if spread is None else spread)
            near = np.abs(one - other) <= bound
        alike = np.where(finite, near, (one == other) | (np.isnan(one) & np.isnan(other)))
        return ~(alike if spread is None else alike | np.isinf(spread))


def _spread(expected: np.ndarray, moved: Items) -> np.ndarray | None:
    """Twice the distance between the least and the greatest of what an element is in `moved`; infinite where it is
    sometimes no number. None where there is nothing to see, or other shapes."""
    arrays = [np.asarray(each, np.float64) for each in moved]
    if not arrays or any(each.shape != expected.shape for each in arrays):
        return None
    with np.errstate(invalid="ignore"):
        apart = 2 * (np.max(arrays, axis=0) - np.min(arrays, axis=0))
    same = np.all([(each == arrays[0]) | (np.isnan(each) & np.isnan(arrays[0])) for each in arrays], axis=0)
    return np.asarray(np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart)))


EXACT = Closeness(relative=0.0, largest=0.0, floor=0.0)
