"""From samples to the ranges of data, and to corrections: each is taken by what it does to the error of the model's
outputs with all layers in 8 bits, on samples that were not calibrated on."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from ngraph_mxnet.errors import ConfigError, listed
from ngraph_mxnet.progress import progress
from ngraph_mxnet.quantise.calibration import Calibration
from ngraph_mxnet.quantise.channels import Channels
from ngraph_mxnet.quantise.corrections import BIAS, CORRECTIONS
from ngraph_mxnet.quantise.methods import METHODS
from ngraph_mxnet.quantise.products import calibrate
from ngraph_mxnet.quantise.recipe import Numbers, Recipe
from ngraph_mxnet.quantizing.metrics import Metric, relative_error
from ngraph_mxnet.quantizing.report import CorrectionRow
from ngraph_mxnet.quantizing.subject import Subject

TRIED = ("minmax", "mse", "percentile_99.99")
"""The methods of which the best is taken where none is asked for."""
MOST_TRIALS = 8
"""The most trials of a correction: each costs a compilation and a run over the samples to measure with."""
Samples = Sequence[Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Wishes:
    """The wishes of the caller of `quantize`; see there."""

    metric: str | Metric | None
    max_drop: float | None
    method: str | None
    corrections: Sequence[str] | None
    keep: Sequence[str]
    evaluations: int
    only_faster: bool
    bars: bool

    def __post_init__(self) -> None:
        if self.method is not None and self.method not in METHODS:
            raise ConfigError(f"method: found {self.method!r}, expected one of {listed(METHODS, self.method)}")
        unknown = [name for name in self.corrections or () if name not in CORRECTIONS]
        if unknown:
            raise ConfigError(f"corrections: found {listed(unknown)}, expected some of "
                              f"{listed(CORRECTIONS, unknown[0])}, or none")
        if self.max_drop is not None and not (math.isfinite(self.max_drop) and self.max_drop >= 0):
            raise ConfigError(f"max_drop: found {self.max_drop}, expected a number from 0 on")
        if self.evaluations < 1:
            raise ConfigError(f"evaluations: found {self.evaluations}, expected at least 1")

    def bar(self, what: str, total: int) -> Any:
        return progress(what, total) if self.bars else nullcontext(lambda: None)


def with_ranges(subject: Subject, samples: Samples, wishes: Wishes, batches: Samples,
                wanted: Sequence[Any]) -> tuple[Recipe, dict[str, float], list[CorrectionRow]]:
    """The recipe with all layers in 8 bits but those that are kept; errors by the methods that were tried; what
    corrections do.

    Args:
        samples: to calibrate on.
        batches, wanted: to measure errors with, and the outputs in float.
    """
    channels = subject.channels()
    calibration = _calibrated(subject, samples, wishes, channels)

    def error_of(recipe: Recipe) -> float:
        found = subject.compiled(recipe)
        return relative_error([found(arrays) for arrays in batches], wanted)

    kept = dict.fromkeys(wishes.keep, "asked for")
    methods = [wishes.method] if wishes.method is not None else TRIED
    recipes = {method: Recipe.of_calibration(calibration, method, kept) for method in methods}
    errors = {}
    with wishes.bar("choosing the ranges", len(recipes)) as advance:
        for method, recipe in recipes.items():
            errors[method] = error_of(recipe)
            advance()
    best = min(errors, key=lambda method: errors[method])
    recipe, error, rows = recipes[best], errors[best], []
    corrections = _corrections(subject, samples, wishes, channels, recipe)
    with wishes.bar("choosing corrections", MOST_TRIALS * len(corrections)) as advance:
        def tried(recipe: Recipe) -> float:
            advance()
            return error_of(recipe)

        for correction in corrections:
            chosen = _everywhere if wishes.corrections is not None else where_less
            recipe, row = chosen(correction, recipe, error, tried)
            error = row.error_with if row.used else error
            rows.append(row)
    return recipe, errors if wishes.method is None else {}, rows


@dataclass(frozen=True)
class Correction:
    """The layers that it may change, in groups of which it changes all or none; what changing some of them makes of a
    recipe."""

    name: str
    groups: Sequence[Sequence[str]]
    of: Callable[[Recipe, Sequence[str]], Recipe]

    def row(self, used: int, error_without: float, error_with: float) -> CorrectionRow:
        return CorrectionRow(self.name, sum(map(len, self.groups)), used, error_without, error_with)


def _everywhere(correction: Correction, recipe: Recipe, error: float,
                error_of: Callable[[Recipe], float]) -> tuple[Recipe, CorrectionRow]:
    names = list(chain(*correction.groups))
    recipe = correction.of(recipe, names)
    return recipe, correction.row(len(names), error, error_of(recipe))


def where_less(correction: Correction, recipe: Recipe, error: float,
               error_of: Callable[[Recipe], float]) -> tuple[Recipe, CorrectionRow]:
    """The recipe with a correction where the error is less with it: tried for all layers, then for halves of what was
    not better, and so on, large parts first, as long as there are trials left. `error` is the recipe's own."""
    before, found, used = error, list[float](), 0
    parts = deque([correction.groups])
    while parts and len(found) < MOST_TRIALS:
        part = parts.popleft()
        names = list(chain(*part))
        candidate = correction.of(recipe, names)
        found.append(error_of(candidate))
        if found[-1] < error:
            recipe, error, used = candidate, found[-1], used + len(names)
        elif len(part) > 1:
            parts.extend((part[:len(part) // 2], part[len(part) // 2:]))
    return recipe, correction.row(used, before, error if used else found[0])


def _corrections(subject: Subject, samples: Samples, wishes: Wishes, channels: Channels,
                 recipe: Recipe) -> list[Correction]:
    """Return the corrections that were asked for, or else all, in the order in which they are tried. Corrections that
    correct nothing are left out."""
    wanted = [name for name in CORRECTIONS if wishes.corrections is None or name in wishes.corrections]
    factors = {kind: {name: numbers for name, numbers in found.items() if name in recipe.scales}
               for kind, found in subject.factors(channels).items() if kind in wanted}
    every = {name: numbers for found in factors.values() for name, numbers in found.items()}
    calibration = _calibrated(subject, samples, wishes, factors=every) if every else Calibration()
    means = {name: channels.means(name) for name in recipe.products if channels.is_finite(name)}

    def one(kind: str) -> Correction:
        if kind == BIAS:
            return Correction(kind, [[name] for name in means], lambda before, names: before.correcting(
                {name: means[name] for name in names}))
        alike: dict[Numbers, list[str]] = {}
        for name, numbers in factors[kind].items():
            alike.setdefault(numbers, []).append(name)
        return Correction(kind, list(alike.values()), lambda before, names: before.dividing(
            kind, {name: factors[kind][name] for name in names}, calibration))

    return [found for found in map(one, wanted) if found.groups]


def _calibrated(subject: Subject, samples: Samples, wishes: Wishes, channels: Channels | None = None,
                factors: Mapping[str, Numbers] | None = None) -> Calibration:
    observing, names = subject.observed(factors)
    calibration = Calibration()
    with wishes.bar("calibrating", len(samples)) as advance:
        for arrays in samples:
            calibrate(names, lambda found: observing(*found), [[arrays[one.name] for one in observing.inputs]],
                      calibration, channels)
            advance()
    return calibration
