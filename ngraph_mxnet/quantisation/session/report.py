"""Accuracy control, and the report of its decisions, layer by layer, with reasons: as tables, plain data, a picture.

Control says which layers stay in float, so that a model's metric drops by no more than was asked for. An evaluation is
a run over a data set, so there are few. Two steps search among the sets that two rankings give, and no set is taken
that was not evaluated:

1. By damage: the k layers of most damage are kept in float. Bisection over k finds a small one that holds.
2. By damage per second that quantising a layer saves, of the first 2 k layers: the m first are kept. So those that save
   much time for little damage are quantised, and others, which cost little time, are kept in their place. (Of the k
   layers alone none can be quantised where damage adds up: each has more than the last one, without which the bound
   did not hold.) Bisection over m.

Where the metric is not monotone in k or m, what is found is not the smallest, but holds all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.base.rendered import Facts, make_figure, save_figure

MOST_EVALUATIONS = 12
_FINER = 4
"""Evaluations that the first step leaves to the second, where there are more than twice as many."""


@dataclass(frozen=True)
class Layer:
    """A layer that can be quantised.

    Attributes:
        damage: how much worse results are when it alone is quantised, in any unit that all layers share.
        seconds: how much faster the model is when it is.
    """

    name: str
    damage: float
    seconds: float


@dataclass(frozen=True)
class Trial:
    """An evaluation: the layers that were kept in float, the metric, and whether the bound held."""

    kept: frozenset[str]
    metric: float
    holds: bool


@dataclass(frozen=True)
class Decision:
    """Which layers stay in float.

    Attributes:
        kept: their names.
        metric: of the model with these kept, as it was evaluated; float's own where `holds` is False.
        holds: whether an evaluation found the metric of `kept` within the bound. If not, none was, and all are kept.
        trace: all evaluations, in their order.
        reason: the same for a reader.
    """

    kept: frozenset[str]
    metric: float
    holds: bool
    trace: tuple[Trial, ...]
    reason: str


def control(layers: Iterable[Layer], evaluate: Callable[[frozenset[str]], float], float_metric: float, max_drop: float,
            most: int = MOST_EVALUATIONS) -> Decision:
    """The layers that stay in float, so that the metric is at least `float_metric - max_drop`.

    Of the evaluated sets that hold, the one whose layers would have saved the least time is taken.

    Args:
        layers: all that can be quantised.
        evaluate: the metric, of which more is better, with these layers in float and all others quantised. NaN does not
            hold. It is called at most `most` times, never twice for a set; what it raises goes through.
        float_metric: of the model in float.

    Raises:
        ConfigError: two layers have one name, or a number is none: NaN, a negative drop, no evaluations.
    """
    ranked = sorted(_checked(layers, float_metric, max_drop, most), key=lambda layer: -layer.damage)
    search = _Search(evaluate, float_metric - max_drop)
    count = search.smallest(ranked, most - (_FINER if most > 2 * _FINER else 0))
    search.smallest(sorted(ranked[: 2 * count], key=_by_second, reverse=True), most)
    return _decision(search.trace, ranked, float_metric, max_drop)


def _by_second(layer: Layer) -> float:
    """Damage per second saved; a layer that saves no time is kept before all others."""
    return layer.damage / layer.seconds if layer.seconds > 0 else math.inf


class _Search:
    def __init__(self, evaluate: Callable[[frozenset[str]], float], least: float) -> None:
        self.trace: list[Trial] = []
        self._evaluate, self._least = evaluate, least

    def smallest(self, ranked: Sequence[Layer], most: int) -> int:
        """How many of the first of `ranked` have to be kept, as far as bisection gets in `most` evaluations of all.

        Keeping all of them is taken to hold.
        """
        if self._holds(ranked[:0]):
            return 0
        fails, holds = 0, len(ranked)
        while holds - fails > 1 and len(self.trace) < most:
            middle = (fails + holds) // 2
            if self._holds(ranked[:middle]):
                holds = middle
            else:
                fails = middle
        return holds

    def _holds(self, layers: Sequence[Layer]) -> bool:
        kept = frozenset(layer.name for layer in layers)
        known = [trial.holds for trial in self.trace if trial.kept == kept]
        if known:
            return known[0]
        metric = float(self._evaluate(kept))
        self.trace.append(Trial(kept, metric, metric >= self._least))
        return self.trace[-1].holds


def _decision(trace: Sequence[Trial], layers: Sequence[Layer], float_metric: float, max_drop: float) -> Decision:
    seconds = {layer.name: layer.seconds for layer in layers}
    least = f"{float_metric:g} - {max_drop:g}"
    holding = [trial for trial in trace if trial.holds]
    if not holding:
        top = max((trial.metric for trial in trace if not math.isnan(trial.metric)), default=math.nan)
        return Decision(frozenset(seconds), float_metric, False, tuple(trace),
                        f"all {len(layers)} layers stay in float: of {len(trace)} evaluations none reached {least}, "
                        f"the best was {top:g}")
    # `fsum` does not depend on the order of a set.
    best = min(holding, key=lambda trial: (math.fsum(seconds[name] for name in trial.kept), len(trial.kept)))
    return Decision(best.kept, best.metric, True, tuple(trace),
                    f"{len(best.kept)} of {len(layers)} layers stay in float: the metric is {best.metric:g}, at least "
                    f"{least}, after {len(trace)} evaluations")


def _checked(layers: Iterable[Layer], float_metric: float, max_drop: float, most: int) -> list[Layer]:
    found = list(layers)
    names = [layer.name for layer in found]
    twice = sorted(name for name in set(names) if names.count(name) > 1)
    if twice:
        raise ConfigError(f"found several layers {twice[0]!r} to control, expected each name once")
    bad = [layer for layer in found if not (math.isfinite(layer.damage) and math.isfinite(layer.seconds))]
    if bad:
        raise ConfigError(f"found damage {bad[0].damage} and seconds {bad[0].seconds} of the layer {bad[0].name!r}, "
                          "expected finite numbers")
    if not (math.isfinite(float_metric) and math.isfinite(max_drop) and max_drop >= 0 and most >= 1):
        raise ConfigError(f"found the metric {float_metric}, a drop of {max_drop} and {most} evaluations to control, "
                          "expected finite numbers, a drop from 0 on and at least one evaluation")
    return found


@dataclass(frozen=True)
class LayerRow:
    """A layer that can be in 8 bits.

    Attributes:
        range: of its data, that 8 bits stand for; None where nothing finite was seen.
        scale, zero_point: of its data in 8 bits.
        method: by which the range was chosen.
        corrections: that change the layer when it is in 8 bits.
        damage: the squared error of the model's outputs, as a part of their squares, when this layer alone is in 8
            bits; None where it was not measured, as the layer stays in float anyway.
        float_ms, int8_ms: in its kernels, when the model is in float, and when all layers are in 8 bits.
        kept: why it stays in float; None where it is in 8 bits.
    """

    name: str
    range: tuple[float, float] | None
    scale: float | None
    zero_point: int | None
    method: str
    corrections: tuple[str, ...]
    damage: float | None
    float_ms: float
    int8_ms: float
    kept: str | None


@dataclass(frozen=True)
class CorrectionRow:
    """A correction that was tried, in the order in which they were.

    Attributes:
        layers: that it may change.
        used: how many of them it is used for; where it was not asked for, those with which the error is less.
        error_without, error_with: of the outputs, as of methods, with the corrections before it; the second one as it
            is used, or if it is not, for all layers.
    """

    name: str
    layers: int
    used: int
    error_without: float
    error_with: float


@dataclass(frozen=True)
class Totals:
    """Totals of a whole model, for one batch: milliseconds of a call, bytes of weights as kernels read them, and bytes
    of the arena of a call."""

    ms: float
    weight_bytes: int
    arena_bytes: int


@dataclass(frozen=True, repr=False)
class Report(Facts):
    """
    Attributes:
        layers: in the graph's order.
        errors: of the outputs on samples that were not calibrated on, by method, with all layers in 8 bits; empty where
            a method was asked for.
        corrections: what was tried of them.
        metric: what was measured; `float_metric` and `quantised_metric` are its values of both models on all samples.
        trace: the evaluations of accuracy control; none where no bound was asked for.
        decision: what became of the model, in a sentence.
        float_totals, quantised_totals: of both, measured by turns.
        doubt: why the times are not to be believed, None if they are.
    """

    layers: Sequence[LayerRow]
    errors: Mapping[str, float]
    corrections: Sequence[CorrectionRow]
    metric: str
    float_metric: float
    quantised_metric: float
    max_drop: float | None
    trace: Sequence[Trial]
    decision: str
    float_totals: Totals
    quantised_totals: Totals
    samples: int
    threads: int
    doubt: str | None = None

    renamed: ClassVar[Mapping[str, str | None]] = {"float_totals": "float", "quantised_totals": "quantised"}
    layout = "quantisation"


def plot(report: Report, path: str | Path) -> None:
    """The damage of each layer, and what it takes in float and in 8 bits; the ending of `path` says in which format.

    Raises:
        ConfigError: matplotlib is not installed, or knows no such format.
        OSError: it can't be written.
    """
    rows = list(report.layers)
    figure = make_figure(11, 1.5 + 0.22 * len(rows))
    damage, times = figure.subplots(1, 2, sharey=True)
    places = range(len(rows))
    colours = ["tab:blue" if row.kept is None else "tab:grey" for row in rows]
    measured = [(place, row.damage, colour) for place, row, colour in zip(places, rows, colours, strict=True)
                if row.damage]
    if measured:  # points: a logarithmic axis has no zero from which bars could start
        damage.scatter([share for _, share, _ in measured], [place for place, _, _ in measured],
                       c=[colour for _, _, colour in measured])
        damage.set_xscale("log")
        damage.grid(axis="x", alpha=0.3)
    damage.set_yticks(places, [row.name for row in rows], fontsize=7)
    damage.invert_yaxis()
    damage.set_xlabel("damage (blue: in 8 bits, grey: in float)")
    times.barh([place - 0.2 for place in places], [row.float_ms for row in rows], 0.4, label="float",
               color="tab:orange")
    times.barh([place + 0.2 for place in places], [row.int8_ms for row in rows], 0.4, label="int8", color="tab:blue")
    times.set_xlabel("ms in kernels")
    times.legend()
    figure.suptitle(report.decision, fontsize=8, wrap=True)
    save_figure(figure, path)
