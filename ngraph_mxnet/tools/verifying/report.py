"""How two arrays differ, and the findings of a model's verification: as text for people, as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar

import numpy as np

from ngraph_mxnet.base.errors import listed
from ngraph_mxnet.base.rendered import Facts
from ngraph_mxnet.tools.debug import Statistics, statistics

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
            str(figure) if isinstance(figure, float) and not isfinite(figure) else figure
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


@dataclass(frozen=True)
class Operand:
    """A value that the node which is named reads, at once or through others that the reference does not know."""

    name: str
    origin: str
    difference: Difference


@dataclass(frozen=True, repr=False)
class Diverging(Facts):
    """The first value that differs.

    Attributes:
        name, origin: the framework's, of the value and of the node that computes it.
        text: the IR that computes it of the operands, marked with `>`, and what computes these.
        difference: of the model that is cut behind the value.
        alone: of the IR that computes it, run on the reference's arrays of the operands.
        whole: of the whole model with the value as a further output.
        parameters: weights and inputs that it reads beside the operands; `differing`: the weights whose content is not
            the reference's.
        parts: of the model that were compiled to find it.
    """

    name: str
    origin: str
    text: str
    difference: Difference
    alone: Difference
    whole: Difference
    operands: Sequence[Operand]
    parameters: Sequence[str]
    parts: int
    differing: Sequence[str] = ()

    @property
    def computes_wrong(self) -> bool:
        """True if the node computes a wrong value of the reference's operands. Else it only carries an earlier
        difference."""
        return not self.alone.agrees

    def verdict(self) -> str:
        if not self.computes_wrong:
            return ("of the reference's operands it computes the right value: it carries an earlier difference, which "
                    "is within the tolerance before it and beyond it behind")
        if self.differing:
            return ("of the reference's operands it computes another value, with other weights: "
                    f"{listed(self.differing)}")
        return "of the reference's operands it computes another value: the difference begins here"

    renamed: ClassVar[Mapping[str, str | None]] = {"text": None, "differing": "differing_weights"}
    derived = ("ir", "computes_wrong", "verdict")
    layout = "diverging"

    @property
    def ir(self) -> list[str]:
        return self.text.splitlines()


@dataclass(frozen=True, repr=False)
class Verification(Facts):
    """Prints as tables; `to_dict` is for programs.

    Attributes:
        inputs, weights: where they are from, as text.
        note: what else there is to tell of how the model runs.
        tolerance: how differences are measured, and how large they may be.
        outputs: of the model by name, as ours differ from the reference's.
        diverging: where they diverge; None if they agree, or if no node could be named, `unnamed` being the reason.
    """

    model: str
    backend: str
    precision: str
    reference: str
    inputs: Sequence[str]
    weights: str
    tolerance: str
    outputs: Sequence[tuple[str, Difference]]
    note: str | None = None
    diverging: Diverging | None = None
    unnamed: str | None = None

    layout = "verification"

    @property
    def agrees(self) -> bool:
        return all(difference.agrees for _, difference in self.outputs)

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "agrees": self.agrees,
                "outputs": [{"name": name, **difference.to_dict()} for name, difference in self.outputs]}
