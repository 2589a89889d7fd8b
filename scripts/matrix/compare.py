"""How far outputs are from MXNet's own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: The largest errors that pass, as `errors` gives them by kind.
TOLERANCE = {"values": 1e-3, "boxes": 0.0, "samples": 0.1}
#: Boxes are the same whose scores, and corners relative to the image, differ by less.
SAME = 1e-3

#: Of `means_apart`: a thousand means of one distribution exceed it once in a thousand times.
MOST_APART = 5.0

Arrays = Sequence[np.ndarray]


def error(found: Arrays, expected: Arrays, kind: str) -> float:
    """One figure: for `values` the largest norm-wise relative difference of an output, for `boxes` the share of boxes
    without their like, for `samples` the same as for values between the samples' means."""
    if [array.shape for array in found] != [array.shape for array in expected]:
        return float("inf")
    if kind == "boxes":
        return unlike_boxes(found, expected)
    if kind == "samples":
        found, expected = [[array.mean(1) for array in arrays] for arrays in (found, expected)]
    return max(relative_difference(a, b) for a, b in zip(found, expected, strict=True))


def means_apart(found: Arrays, expected: Arrays) -> float:
    """The largest difference between the means of samples that were drawn apart, in its standard error."""
    if [array.shape for array in found] != [array.shape for array in expected]:
        return float("inf")
    errors = [np.abs(a.mean(1) - b.mean(1)) / np.sqrt(np.maximum((a.var(1) + b.var(1)) / a.shape[1], 1e-30))
              for a, b in zip(found, expected, strict=True)]
    return max(float(array.max()) for array in errors)


def relative_difference(found: np.ndarray, expected: np.ndarray) -> float:
    """|found - expected| / |expected| in the 2-norm; infinite where only one is finite."""
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(found)) or not np.array_equal(
            found[~finite], expected[~finite], equal_nan=True):
        return float("inf")
    difference = np.linalg.norm(found[finite] - expected[finite])
    scale = np.linalg.norm(expected[finite])
    return float(difference / scale) if scale else float(difference)


def unlike_boxes(found: Arrays, expected: Arrays) -> float:
    """The share of the expected boxes for which there is no found one of the same class, score, corners and mask.

    Both are (classes, scores, corners, ...) of shapes (batch, boxes, 1), (batch, boxes, 1), (batch, boxes, 4),
    (batch, boxes, ...) as GluonCV's detectors give them. Boxes of class -1 are none. Their order does not count: scores
    may tie.
    """
    count = unlike = 0
    for item in range(expected[0].shape[0]):
        theirs, ours = (_boxes(arrays, item) for arrays in (expected, found))
        scale = np.ones(theirs.shape[1])
        scale[2:6] = max(float(np.abs(theirs[:, 2:6]).max(initial=0)), 1.0)
        free = np.ones(len(ours), bool)
        for box in theirs:
            near = np.flatnonzero(free & (np.abs(ours - box) / scale < SAME).all(1))
            free[near[:1]] = False
            unlike += near.size == 0
        count += len(theirs)
        unlike += max(len(ours) - len(theirs), 0)
    return unlike / max(count, 1)


def box_count(outputs: Arrays) -> int:
    """How many boxes the outputs of a detector hold; with none, comparing them says nothing."""
    return sum(len(_boxes(outputs, item)) for item in range(outputs[0].shape[0]))


def _boxes(arrays: Arrays, item: int) -> np.ndarray:
    """(boxes, 6 or more): class, score, corners, and what else there is of each box."""
    rows = np.concatenate([array[item].reshape(array.shape[1], -1) for array in arrays], axis=1)
    return rows[rows[:, 0] >= 0].astype(np.float64)
