"""Which layers stay in float, of models whose metric is known."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.quantisation.session.report import MOST_EVALUATIONS, Decision, Layer, control

LAYERS = st.lists(st.tuples(st.floats(0, 1), st.floats(-0.1, 1)), max_size=300).map(
    lambda table: [Layer(f"conv{at}", damage, seconds) for at, (damage, seconds) in enumerate(table)])


def sums(layers: list[Layer]) -> Callable[[frozenset[str]], float]:
    """A metric of 1 in float, less the damage of each layer that is quantised."""
    return lambda kept: 1 - math.fsum(layer.damage for layer in layers if layer.name not in kept)


def saved(layers: list[Layer], kept: frozenset[str]) -> float:
    return sum(layer.seconds for layer in layers if layer.name not in kept)


def is_sound(decision: Decision, layers: list[Layer], calls: list[frozenset[str]], max_drop: float, most: int) -> None:
    """What holds whatever the metric is."""
    assert len(calls) <= most and len(set(calls)) == len(calls) == len(decision.trace)
    assert [trial.kept for trial in decision.trace] == calls
    for trial in decision.trace:
        assert trial.holds == (trial.metric >= 1 - max_drop)
    if decision.holds:
        assert any((trial.kept, trial.metric, trial.holds) == (decision.kept, decision.metric, True)
                   for trial in decision.trace)
        assert f"{len(decision.kept)} of {len(layers)} layers stay in float" in decision.reason
    else:
        assert not any(trial.holds for trial in decision.trace)
        assert decision.kept == {layer.name for layer in layers} and decision.metric == 1
        assert f"all {len(layers)} layers stay in float" in decision.reason


@settings(deadline=None)
@given(LAYERS, st.floats(0, 2), st.integers(1, 20), st.randoms(use_true_random=False), st.booleans())
def test_decisions_are_sound_for_any_metric(layers, max_drop, most, random, monotone) -> None:
    calls: list[frozenset[str]] = []

    def evaluate(kept: frozenset[str]) -> float:
        calls.append(kept)
        return sums(layers)(kept) if monotone else random.choice([random.uniform(-1, 1), math.nan])

    is_sound(control(layers, evaluate, 1.0, max_drop, most), layers, calls, max_drop, most)


@settings(deadline=None)
@given(LAYERS.filter(lambda layers: 0 < len(layers) <= 128), st.floats(0.01, 2))
def test_no_fewer_of_the_most_damaging_layers_would_save_more(layers, max_drop) -> None:
    """With 128 layers bisection comes to its end."""
    evaluate = sums(layers)
    decision = control(layers, evaluate, 1.0, max_drop)
    ranked = sorted(layers, key=lambda layer: -layer.damage)
    kept = [frozenset(layer.name for layer in ranked[:count]) for count in range(len(layers) + 1)]
    fewest = next((each for each in kept[:-1] if evaluate(each) >= 1 - max_drop), None)
    if fewest is not None:
        assert decision.holds and saved(layers, decision.kept) >= saved(layers, fewest) - 1e-9


def test_nothing_is_kept_where_nothing_has_to_be() -> None:
    layers = [Layer("a", 0.001, 1), Layer("b", 0.002, 1)]
    decision = control(layers, sums(layers), 1.0, 0.01)
    assert (decision.kept, decision.holds, len(decision.trace)) == (frozenset(), True, 1)


def test_the_most_damaging_layers_are_put_back() -> None:
    layers = [Layer(f"conv{at}", 0.5 if at in (3, 70) else 1e-5, 1) for at in range(100)]
    decision = control(layers, sums(layers), 1.0, 0.01)
    assert decision.kept == {"conv3", "conv70"} and decision.holds
    assert len(decision.trace) <= MOST_EVALUATIONS


def test_layers_that_save_much_time_are_quantised() -> None:
    """Two layers would do by damage, one of which saves nearly all of the time: others are kept in its place."""
    layers = [Layer("slow", 0.010, 5.0), Layer("x", 0.0099, 0.1), Layer("y", 0.0098, 0.1), Layer("z", 0.0097, 0.1)]
    decision = control(layers, sums(layers), 1.0, 0.0195)
    assert frozenset({"slow", "x"}) in [trial.kept for trial in decision.trace if trial.holds]
    assert decision.kept == {"x", "y", "z"} and decision.holds


def test_layers_that_save_no_time_are_kept_before_others() -> None:
    layers = [Layer("a", 0.4, 1.0), Layer("useless", 0.3, 0.0), Layer("b", 0.01, 1.0), Layer("c", 0.01, 1.0)]
    decision = control(layers, sums(layers), 1.0, 0.5)
    assert decision.kept == {"useless"} and decision.metric == pytest.approx(0.58)


@pytest.mark.parametrize("metric", [0.2, math.nan])
def test_all_stay_in_float_where_nothing_meets_the_bound(metric) -> None:
    layers = [Layer(name, 0.1, 1) for name in "abcde"]
    decision = control(layers, lambda kept: metric, 0.9, 0.01)
    assert (decision.kept, decision.metric, decision.holds) == (frozenset("abcde"), 0.9, False)
    assert "all 5 layers stay in float" in decision.reason and f"the best was {metric:g}" in decision.reason


def test_a_metric_that_is_not_monotone() -> None:
    """Keeping more may be worse: what is taken was evaluated, and holds."""
    layers = [Layer(f"conv{at:02}", 1 - at / 100, 1) for at in range(40)]
    decision = control(layers, lambda kept: 0.99 if len(kept) % 3 == 2 else 0.5, 1.0, 0.02)
    assert decision.holds and decision.metric == 0.99 and len(decision.kept) % 3 == 2


def test_no_layers_are_one_evaluation() -> None:
    assert control([], lambda kept: 1.0, 1.0, 0.0).holds
    decision = control([], lambda kept: 0.0, 1.0, 0.0)
    assert not decision.holds and not decision.kept and len(decision.trace) == 1


def test_what_the_metric_raises_goes_through() -> None:
    def fail(kept: frozenset[str]) -> float:
        raise KeyError("labels")

    with pytest.raises(KeyError, match="labels"):
        control([Layer("a", 1, 1)], fail, 1.0, 0.1)


@pytest.mark.parametrize(("layers", "numbers", "text"), [
    ([Layer("a", 1, 1), Layer("a", 2, 1)], (1.0, 0.1, 12), "found several layers 'a' to control"),
    ([Layer("a", math.nan, 1)], (1.0, 0.1, 12), "found damage nan and seconds 1 of the layer 'a'"),
    ([Layer("a", 1, math.inf)], (1.0, 0.1, 12), "found damage 1 and seconds inf of the layer 'a'"),
    ([], (1.0, -0.1, 12), "found the metric 1.0, a drop of -0.1 and 12 evaluations"),
    ([], (math.nan, 0.1, 12), "found the metric nan"),
    ([], (1.0, 0.1, 0), "and 0 evaluations to control, expected"),
])
def test_numbers_that_are_none(layers, numbers, text) -> None:
    with pytest.raises(ConfigError, match=text):
        control(layers, lambda kept: 1.0, *numbers)
