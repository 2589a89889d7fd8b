"""`ngraph_mxnet.quantize`: the way from samples to a recipe and its report.

Samples are dealt: three quarters are calibrated on, errors and damages are measured on the others, and the metric on
all. A range or a correction is taken by what it does to the error of the model's outputs with all layers in 8 bits. A
layer's damage is what it does to the outputs when it alone is in 8 bits: so it counts what later layers make of its
error, and one at the model's ends is judged as any other.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import ConfigError, listed, only_params, require_forms
from ngraph_mxnet.base.forks import ForkSafeLock
from ngraph_mxnet.base.rendered import progress
from ngraph_mxnet.frontends.model import Model, Sizes, model_of
from ngraph_mxnet.program.artefact import Summary
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.program.executable import Executable
from ngraph_mxnet.program.export import compile_to_file
from ngraph_mxnet.quantisation.apply import Numbers, Recipe, calibrate
from ngraph_mxnet.quantisation.calibration import METHODS, Calibration, Channels
from ngraph_mxnet.quantisation.layers import BIAS, CORRECTIONS
from ngraph_mxnet.quantisation.session.report import (
    MOST_EVALUATIONS,
    CorrectionRow,
    Decision,
    Layer,
    LayerRow,
    Report,
    Totals,
    control,
    plot,
)
from ngraph_mxnet.quantisation.session.samples import (
    BACKEND,
    Batches,
    Item,
    Measure,
    Metric,
    Stopwatch,
    Subject,
    holds_all,
    in_batches,
    items,
    iterated,
    measure_of,
    names_of,
    relative_error,
    shapes_at_hand,
    usages_of,
)

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


_DEALT = 4
_MOST_BATCHES, _MOST_ROWS = 16, 64
"""The most batches, and the most rows, on which damages are measured."""
_MOST_DAMAGE = 1e30
"""The damage of a layer whose error is not finite."""


@dataclass(frozen=True)
class _Judged:
    damages: Mapping[str, float]
    float_seconds: Mapping[str, float]
    int8_seconds: Mapping[str, float]


def plan(subject: Subject, batches: Batches, wishes: Wishes) -> tuple[Recipe, Report]:
    """The recipe, and how it came about. Raises ConfigError: a layer to keep is none, or labels, outputs or the metric
    do not fit each other."""
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


class Quantized:
    """A model with a recipe. It is called as what `compile` gives: with arrays in the order of the inputs, or a dict.

    Attributes:
        recipe: which layers are in 8 bits, with which scales, and why others are not.
        report: prints as tables; `to_dict()` is for programs.
        shapes: of the inputs, for which it was measured, and is compiled.
    """

    def __init__(self, recipe: Recipe, report: Report, subject: Subject, model: Model, sizes: Sizes,
                 shapes: Mapping[str, tuple[int, ...]]) -> None:
        """`sizes`: those of `shapes`, or ranges of them, for which `save` compiles."""
        self.recipe, self.report, self.shapes = recipe, report, dict(shapes)
        self._subject, self._graph, self._prepares = subject, model.graph(sizes, BACKEND), model.prepares
        self._compiled: Executable | None = None
        self._lock = ForkSafeLock()

    def __repr__(self) -> str:
        return str(self.report)

    def _repr_html_(self) -> str:
        """For notebooks: the report."""
        return self.report._repr_html_()

    def compile(self, **options: Any) -> Executable:
        """For the CPU, with the weights as constants; `options` are the backend's own. Raises ConfigError: as
        `ngraph_mxnet.compile`."""
        given = {"threads": self._subject.threads, "precision": "int8", "recipe": self.recipe, **options}
        return compile(self._subject.graph, BACKEND, **given)

    def __call__(self, /, *arrays: Any, **named: Any) -> list[Any]:
        """Run the model, which the first call compiles. Calls from several threads at once are safe. Raises InputError:
        as of `Executable`."""
        with self._lock:
            if self._compiled is None:
                self._compiled = self.compile()
        return self._compiled(*arrays, **named)

    def save(self, path: str | Path, *, isas: Sequence[str] = (), metadata: Mapping[str, str] | None = None,
             with_references: bool = False) -> Summary:
        """Write the compiled file, which runs without MXNet, ONNX and this package, for the shapes, or the ranges of
        sizes, that `quantize` was told.

        Args:
            isas, metadata, with_references: as of `ngraph_mxnet.export`.

        Raises:
            ConfigError, PackageError, OSError, UnsupportedError: as `ngraph_mxnet.export`.
        """
        return compile_to_file(path, [self._graph], BACKEND, isas=isas, options={
            "precision": "int8", "recipe": self.recipe}, metadata=metadata, with_references=with_references,
            prepares=self._prepares)

    def save_recipe(self, path: str | Path) -> None:
        """Write the recipe as JSON, for NGRAPH_CALIBRATION and `recipe=`. Raises OSError where it can't be written."""
        self.recipe.save(path)

    def plot(self, path: str | Path) -> None:
        """Draw damages and times of the layers.

        Raises:
            ConfigError: matplotlib is not installed, or knows no format of that ending.
            OSError: it can't be written.
        """
        plot(self.report, path)


def quantize(model: Any, inputs: Any, *, metric: str | Metric | None = None, max_drop: float | None = None,
             method: str | None = None, corrections: Sequence[str] | None = None, params: Any = None,
             shapes: Mapping[str, Sequence[int | str]] | None = None, dtypes: Mapping[str, str] | None = None,
             threads: int | None = None, keep: Sequence[str] = (), evaluations: int = MOST_EVALUATIONS,
             only_faster: bool = True, progress: bool = True, results: Sequence[str] = (),
             weights: Any = None) -> Quantized:
    """Choose which convolutions and matrix products of a model compute in 8 bits on this CPU, and with which scales.

    Args:
        model: what `compile` takes, but what is compiled already.
        inputs: samples, all of which are held in memory: a DataLoader, a DataIter or another iterator of arrays, of
            tuples of arrays in the order of the inputs, or of dicts by name; or one array, tuple or dict that holds
            them all along the first axes. One array more than there are inputs is the labels; a dict calls them
            `labels`.
        metric: `top1`, the share of samples whose first output is largest, along axis 1, at their label; or a function
            of the outputs, each for all samples along its first axis, and the labels, of whose number more is better.
            By default top1 if there are labels; else, of one output with scores for each sample, the share of samples
            with the same class as in float, and of others, as a detector's, 1 less the relative error of all outputs.
        max_drop: how much less than in float the metric may be, on these samples. Without it nothing stays in float
            for accuracy.
        method: of `quantisation.choose.METHODS`, by which ranges are chosen; by default the one of minmax, mse and
            percentile_99.99 by which the outputs' error is the least on samples that were not calibrated on.
        corrections: of `smoothing`, `equalisation` and `bias` (docs/quantisation.md) those that are made, wherever they
            can be; none where it is empty. By default each with which the outputs' error is less, measured so.
        params: a symbol's or graph's weights, by name, or a symbol's `.params` file; `weights` is another name of it.
        shapes: of the inputs, by name, to compile for; sizes may be ranges (docs/shapes.md), which `save` compiles for.
            By default those of the model, or of the first sample; a batch of 1 where one array holds all samples.
        dtypes: of a symbol's or block's inputs; float32 where not given.
        threads: by default as many as anything compiled runs on.
        keep: names of layers that stay in float.
        evaluations: how often the metric is computed at most, for `max_drop`.
        only_faster: layers that are not faster in 8 bits stay in float, and so does a model that is not faster as a
            whole. False for a small model, or one for another machine.
        progress: bars on a terminal.
        results: as for `compile`.

    Raises:
        ModelError, GraphError, InputError: the model is malformed, or samples, weights or shapes do not fit it.
        UnsupportedError: it can't be compiled as a whole, or nothing of it can be in 8 bits.
        ConfigError: an argument's value is not allowed, or the labels or outputs do not fit the metric.
    """
    require_forms(shapes=shapes, dtypes=dtypes, keep=keep, corrections=corrections, max_drop=max_drop, threads=threads,
                  evaluations=evaluations, results=results)
    wishes = Wishes(metric, max_drop, method, corrections, tuple(keep), evaluations, only_faster, progress)
    if threads is not None and threads < 1:
        raise ConfigError(f"threads: found {threads}, expected at least 1")
    source = model_of(model, only_params(params, weights), dtypes, results)
    source.require_source()
    source.require_weights()
    found = _read(source, inputs, shapes or {})
    at_hand = shapes_at_hand(found[0], shapes or {}, source.inputs(), holds_all(inputs))
    graph, weights = source.graph(at_hand, BACKEND)()  # type: ignore[operator]
    subject = Subject(graph, weights, threads or config.threads())
    batches = in_batches(found, at_hand, {name: type_.element.numpy for name, type_ in subject.inputs.items()})
    del found  # the batches may be copies
    recipe, report = plan(subject, batches, wishes)
    recipe = replace(recipe, outline=subject.outline())
    return Quantized(recipe, report, subject, source, {**at_hand, **(shapes or {})}, at_hand)


def _read(model: Model, inputs: Any, shapes: Mapping[str, Any]) -> list[Item]:
    """The samples, the first of which may tell how the model's inputs are called."""
    given = iterated(inputs)
    first = list(islice(given, 1))
    if not first:
        raise ConfigError("inputs: found no samples, expected at least one")
    return list(items(chain(first, given), list(model.inputs()) or list(shapes) or names_of(first[0])))
