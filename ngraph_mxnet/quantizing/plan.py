"""From samples to a recipe: ranges and corrections (`ranges.py`), which layers stay in float, and the report of it.

Samples are dealt: three quarters are calibrated on, errors and damages are measured on the others, and the metric on
all. A layer's damage is what it does to the model's outputs when it alone is in 8 bits: so it counts what later layers
make of its error, and one at the model's ends is judged as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ngraph_mxnet.quantise.control import Decision, Layer, control
from ngraph_mxnet.quantise.recipe import Recipe
from ngraph_mxnet.quantizing.metrics import Measure, measure_of, relative_error
from ngraph_mxnet.quantizing.ranges import Wishes, with_ranges
from ngraph_mxnet.quantizing.report import LayerRow, Report, Totals
from ngraph_mxnet.quantizing.samples import Batches
from ngraph_mxnet.quantizing.subject import Subject
from ngraph_mxnet.quantizing.timing import Stopwatch, usages_of
from ngraph_mxnet.runtime.executable import Executable

_DEALT = 4
_MOST_BATCHES, _MOST_ROWS = 16, 64
"""The most batches, and the most rows, on which damages are measured."""
_MOST_DAMAGE = 1e30
"""The damage of a layer whose error is not finite."""


@dataclass(frozen=True)
class _Judged:
    """Measurements of the layers."""

    damages: Mapping[str, float]
    float_seconds: Mapping[str, float]
    int8_seconds: Mapping[str, float]


def plan(subject: Subject, batches: Batches, wishes: Wishes) -> tuple[Recipe, Report]:
    """The recipe, and how it came about.

    Raises:
        ConfigError: a layer to keep is none, or labels, outputs or the metric do not fit each other.
    """
    subject.require_layers(wishes.keep)
    real = subject.compiled()
    wanted = [real(arrays) for arrays in batches.arrays]
    measure = measure_of(wishes.metric, batches.labels, batches.results(wanted), batches.count)
    float_metric = measure.of(batches.results(wanted))
    seen, held = dealt(len(batches.arrays))
    rated = [batches.arrays[at] for at in held], [wanted[at] for at in held]
    recipe, errors, trials = with_ranges(subject, [batches.arrays[at] for at in seen], wishes, *rated)

    every, first, watch = recipe, batches.arrays[0], Stopwatch(subject.threads)
    seconds = [subject.by_layer(usage.seconds) for usage in usages_of([real, subject.compiled(recipe)], first)]
    if wishes.only_faster:
        recipe = _fastest(subject, recipe, seconds[0], seconds[1], first, watch)
    judged = _Judged(_damages(subject, recipe, wishes, *_few(*rated)), *seconds)
    recipe, decision, metric = _controlled(subject, recipe, batches, measure, float_metric, judged, wishes)
    recipe, sentence, totals = _measured_whole(subject, recipe, real, first, wishes, watch)
    return recipe, Report(
        _rows(subject, every, recipe, judged), errors, trials, measure.name, float_metric,
        metric if recipe.products else float_metric, wishes.max_drop, decision.trace if decision else (),
        f"{decision.reason}; {sentence}" if decision else sentence, *totals,
        batches.count, subject.threads, watch.doubt)


def dealt(count: int) -> tuple[list[int], list[int]]:
    """The numbers of batches to calibrate on and to rate with; a single one is for both."""
    if count == 1:
        return [0], [0]
    held = [at for at in range(count) if at % _DEALT == _DEALT - 1] or [count - 1]
    return [at for at in range(count) if at not in set(held)], held


def _few(batches: Sequence[Mapping[str, np.ndarray]], wanted: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """The first, for what is done for each layer."""
    rows = max((array.shape[0] if array.ndim else 1 for array in batches[0].values()), default=1)
    count = max(1, min(_MOST_BATCHES, _MOST_ROWS // max(rows, 1)))
    return batches[:count], wanted[:count]


def _fastest(subject: Subject, recipe: Recipe, float_seconds: Mapping[str, float], int8_seconds: Mapping[str, float],
             arrays: Mapping[str, np.ndarray], watch: Stopwatch) -> Recipe:
    """Return the recipe with those layers in float that make the whole model the fastest. Candidates are the layers
    that lose time in 8 bits, those that lose most first. Each costs its neighbours, which then read or store float."""
    losing = sorted((name for name in recipe.products if int8_seconds[name] >= float_seconds[name]),
                    key=lambda name: float_seconds[name] - int8_seconds[name])
    if not losing:
        return recipe
    kept = {name: f"not faster: {int8_seconds[name] * 1e3:.3g} ms beside {float_seconds[name] * 1e3:.3g}"
            for name in losing}
    counts = [0, *(1 << power for power in range(len(losing).bit_length()) if 1 << power < len(losing)), len(losing)]
    recipes = [recipe.keeping({name: kept[name] for name in losing[:count]}) for count in counts]
    times = watch.seconds_of([subject.compiled(one) for one in recipes], arrays)
    return recipes[int(np.argmin(times))]


def _damages(subject: Subject, recipe: Recipe, wishes: Wishes, batches: Sequence[Any],
             wanted: Sequence[Any]) -> dict[str, float]:
    found = {}
    with wishes.bar("measuring layers", len(recipe.products)) as advance:
        for name in recipe.products:
            alone = subject.roughly(recipe.alone(name))
            found[name] = min(relative_error([alone(arrays) for arrays in batches], wanted), _MOST_DAMAGE)
            advance()
    return found


def _controlled(subject: Subject, recipe: Recipe, batches: Batches, measure: Measure, float_metric: float,
                judged: _Judged, wishes: Wishes) -> tuple[Recipe, Decision | None, float]:
    """Return the recipe within the bound, if there is one, how it was found, and its metric."""
    def metric_of(kept: frozenset[str], advance: Callable[[], None] = lambda: None) -> float:
        found = subject.compiled(recipe.keeping(dict.fromkeys(kept, "")))
        advance()
        return measure.of(batches.results([found(arrays) for arrays in batches.arrays]))

    if not recipe.products:
        return recipe, None, float_metric
    if wishes.max_drop is None:
        return recipe, None, metric_of(frozenset())
    layers = [Layer(name, judged.damages[name], judged.float_seconds[name] - judged.int8_seconds[name])
              for name in recipe.products]
    with wishes.bar("evaluating", wishes.evaluations) as advance:
        decision = control(layers, partial(metric_of, advance=advance), float_metric, wishes.max_drop,
                           wishes.evaluations)
    why = "accuracy" if decision.holds else "accuracy: nothing was within the bound"
    return recipe.keeping(dict.fromkeys(decision.kept, why)), decision, decision.metric


def _measured_whole(subject: Subject, recipe: Recipe, real: Executable, arrays: Mapping[str, np.ndarray],
                    wishes: Wishes, watch: Stopwatch) -> tuple[Recipe, str, tuple[Totals, Totals]]:
    """The recipe if the model is faster by it, else one by which all stays in float; the reason; what both models
    take."""
    found = subject.compiled(recipe) if recipe.products else real
    pair = [real, found]
    before, after = (Totals(seconds * 1e3, usage.weight_bytes, usage.arena_bytes) for seconds, usage in
                     zip(watch.seconds_of(pair, arrays), usages_of(pair, arrays), strict=True))
    count = f"{len(recipe.products)} of {len(subject.layers)} layers are in 8 bits"
    if not recipe.products:
        return recipe, f"{count}: the model stays in float", (before, before)
    beside = f"{after.ms:.4g} ms beside {before.ms:.4g} in float"
    if after.ms < before.ms or not wishes.only_faster:
        return recipe, f"{count}: {beside}", (before, after)
    why = f"the model is not faster: {beside}"
    return recipe.keeping(dict.fromkeys(recipe.products, why)), f"all stays in float: {why}", (before, before)


def _rows(subject: Subject, every: Recipe, chosen: Recipe, judged: _Judged) -> list[LayerRow]:
    rows = []
    for name in subject.layers:
        scale = every.scales.get(name)
        ends = (-scale.zero_point * scale.scale, (255 - scale.zero_point) * scale.scale) if scale else None
        rows.append(LayerRow(
            name, ends, scale.scale if scale else None, scale.zero_point if scale else None, every.method,
            tuple(kind for kind, table in every.corrections.items() if name in table), judged.damages.get(name),
            judged.float_seconds[name] * 1e3, judged.int8_seconds[name] * 1e3,
            chosen.kept.get(name)))
    return rows
