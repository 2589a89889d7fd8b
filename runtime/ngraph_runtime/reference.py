"""Inputs and expected outputs that a file holds to be verified with: its sections REFERENCE (docs/artefact.md)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ngraph_runtime.model import Model

TOLERANCES = {"f32": 1e-3, "bf16": 5e-2, "int8": 1e-1}
"""By a model's precision: the largest difference of an output's elements, as a part of the largest expected one. CPUs
round differently, and in int8 those without VNNI have weights of coarser steps; what a wrong kernel computes is
far away."""


class Reference(NamedTuple):
    """Inputs of one set of shapes, and what they must give."""

    shape_set: int
    inputs: list[np.ndarray[Any, Any]]
    outputs: list[np.ndarray[Any, Any]]


class Comparison(NamedTuple):
    """One output against what was expected; the difference is a part of the largest expected element."""

    shape_set: int
    output: str
    difference: float
    matches: bool


def references(model: Model) -> list[Reference]:
    """What the model's file holds, which may be nothing.

    Raises:
        ModelError: a reference is damaged.
    """
    found = ((number, model.reference(number)) for number in range(len(model.shape_sets)))
    return [Reference(number, *arrays) for number, arrays in found if arrays is not None]


def verify(model: Model, tolerance: float | None = None, threads: int | None = None) -> list[Comparison]:
    """Runs every reference and compares each output: integers must be equal, floats within the tolerance."""
    allowed = TOLERANCES.get(model.precision, TOLERANCES["f32"]) if tolerance is None else tolerance
    found = []
    for reference in references(model):
        model.seed(0)  # which the compiler had
        outputs = model.run(reference.inputs, threads=threads)
        for port, output, expected in zip(model.outputs, outputs, reference.outputs):
            if port.element == "bf16":
                output, expected = _widened(output), _widened(expected)
            difference = _difference(output, expected)
            equal = np.array_equal(output, expected)  # the difference of large integers may be lost in rounding
            matches = equal or (expected.dtype.kind == "f" and difference <= allowed)
            found.append(Comparison(reference.shape_set, port.name, difference, bool(matches)))
    return found


def _widened(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _difference(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """The largest; infinite where one of both is NaN or infinite and the other is not the same."""
    if expected.size == 0 or np.array_equal(found, expected):
        return 0.0
    a, b = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if not np.all(finite | same):
        return float("inf")
    scale = np.abs(b[finite]).max(initial=0.0)
    largest = np.abs(a[finite] - b[finite]).max(initial=0.0)
    return float(largest / (scale or 1.0))
