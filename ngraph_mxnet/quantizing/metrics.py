"""Metrics that accuracy control holds on to: a number for the outputs on all samples, of which more is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngraph_mxnet.errors import ConfigError

_MOST_ERROR = 1e30
"""The error of outputs that are not finite where those wanted are."""
Outputs = Sequence[np.ndarray]
Metric = Callable[[list[np.ndarray], Any], float]
"""From the outputs, each for all samples along its first axis, and the labels, or None."""


@dataclass(frozen=True)
class Measure:
    """A metric with its labels."""

    name: str
    of: Callable[[list[np.ndarray]], float]


def measure_of(metric: str | Metric | None, labels: np.ndarray | None, wanted: list[np.ndarray],
               samples: int) -> Measure:
    """Return the measure of outputs; `wanted` are the outputs in float, of so many samples.

    Where nobody says, and there are no labels: the class of each sample where the one output has scores of classes for
    each, else how near all outputs are. Of boxes or images there is no class that argmax would tell.

    Raises:
        ConfigError: there is no such metric, or the labels or outputs are not such as it needs.
    """
    if callable(metric):
        return Measure(getattr(metric, "__name__", "metric"), lambda outputs: _number(metric(outputs, labels)))
    if metric not in (None, "top1"):
        raise ConfigError(f"metric: found {metric!r}, expected top1, or a function of outputs and labels")
    if labels is not None:
        return Measure("top1", lambda outputs: _share(classes(outputs), labels))
    if metric == "top1":
        raise ConfigError("metric: found top1 without labels, expected samples with labels")
    if len(wanted) == 1 and wanted[0].ndim == 2 and wanted[0].shape[0] == samples and wanted[0].shape[1] > 1:
        chosen = classes(wanted)
        return Measure("agreement with float", lambda outputs: _share(classes(outputs), chosen))
    return Measure("closeness to float", lambda outputs: closeness(outputs, wanted))


def closeness(outputs: Outputs, wanted: Outputs) -> float:
    """1 less the length of the difference as a part of that of the outputs wanted; if there are no floats among them,
    the share of elements that are the same."""
    if any(array.dtype.kind == "f" for array in wanted):
        return 1 - min(math.sqrt(relative_error([outputs], [wanted])), _MOST_ERROR)
    return float(np.mean([np.mean(one == other) for one, other in zip(outputs, wanted, strict=True)]))


def classes(outputs: Outputs) -> np.ndarray:
    """The index of the largest along axis 1 of the first output.

    Raises:
        ConfigError: there are no two classes along it.
    """
    first = outputs[0]
    if first.ndim < 2 or first.shape[1] < 2:
        raise ConfigError(f"metric: found a first output of shape {list(first.shape)}, expected scores of classes "
                          "along its second axis: give a function of outputs and labels")
    found: np.ndarray = first.argmax(axis=1)
    return found


def _share(found: np.ndarray, labels: np.ndarray) -> float:
    flat = labels.reshape(found.shape) if labels.size == found.size else labels
    if flat.shape != found.shape:
        raise ConfigError(f"labels: found shape {list(labels.shape)}, expected one class for each of "
                          f"{list(found.shape)}")
    return float(np.mean(found == flat))


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"metric: found {type(value).__name__} returned, expected a number") from None


def relative_error(outputs: Sequence[Outputs], wanted: Sequence[Outputs]) -> float:
    """The squared difference of all floats, as a part of the squares of those wanted: 0 where there is none, infinite
    where one is not finite that should be."""
    difference = total = 0.0
    for found, expected in zip(outputs, wanted, strict=True):
        for one, other in zip(found, expected, strict=True):
            if other.dtype.kind != "f":
                continue
            finite = np.isfinite(other)
            difference += float(np.sum((one[finite].astype(np.float64) - other[finite]) ** 2))
            total += float(np.sum(other[finite].astype(np.float64) ** 2))
    if not math.isfinite(difference):
        return math.inf
    return difference / total if total else difference
