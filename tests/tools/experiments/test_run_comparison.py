"""How often `compare` is right, on latencies that depend on each other, on their process, and on the time of day."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.tools.experiments.comparison import FASTER, SLOWER, UNKNOWN, compare, compare_runs, student_quantile
from ngraph_mxnet.tools.experiments.store import ROUND, Run

PROCESSES, CALLS, TRIALS = 10, 50, 300
CORRELATION = 0.7
Blocks = list[list[float]]


def processes(random: np.random.Generator, levels: np.ndarray, spread: float) -> Blocks:
    """Latencies around a level of each process's own, each alike to the one before, and some far too long."""
    noise = np.zeros((CALLS, len(levels)))
    for index in range(1, CALLS):
        noise[index] = CORRELATION * noise[index - 1] + random.standard_normal(len(levels))
    times = levels * np.exp(random.normal(0, spread, len(levels)) + 0.02 * noise)
    return (times * np.where(random.random(times.shape) < 0.05, 3.0, 1.0)).T.tolist()


def apart(random: np.random.Generator, ratio: float) -> tuple[Blocks, Blocks]:
    """The second one varies more from process to process than the first."""
    levels = np.full(PROCESSES, 5.0)
    return processes(random, levels, 0.006), processes(random, ratio * levels, 0.012)


def on_other_days(random: np.random.Generator, ratio: float) -> tuple[Blocks, Blocks]:
    """Each recording is a percent off, all of its processes alike."""
    base, new = apart(random, ratio)
    shift = math.exp(random.normal(0, 0.01))
    return base, [[sample * shift for sample in block] for block in new]


def in_turns(random: np.random.Generator, ratio: float) -> tuple[Blocks, Blocks]:
    """The machine becomes slower by a third, and wanders; who comes first changes with every turn."""
    turns = 2 * PROCESSES
    levels = 5.0 * np.exp(np.cumsum(random.normal(0, 0.01, turns)) + np.linspace(0, 0.3, turns))
    is_new = np.arange(turns) % 4 // 2 != np.arange(turns) % 2
    found = np.array(processes(random, np.where(is_new, ratio, 1.0) * levels, 0.01))
    return found[~is_new].tolist(), found[is_new].tolist()


def share(make: Callable[..., tuple[Blocks, Blocks]], ratio: float, verdict: str, paired: bool) -> float:
    random = np.random.default_rng(20)
    found = [compare(*make(random, ratio), paired=paired).verdict for _ in range(TRIALS)]
    return found.count(verdict) / TRIALS


@pytest.mark.parametrize(("make", "paired"), [(apart, False), (on_other_days, False), (in_turns, True)])
def test_equal_runs_are_seldom_told_apart(make: Callable[..., tuple[Blocks, Blocks]], paired: bool) -> None:
    assert share(make, 1.0, UNKNOWN, paired) >= 0.975


@pytest.mark.parametrize(("ratio", "verdict"), [(1.05, SLOWER), (1 / 1.05, FASTER)])
@pytest.mark.parametrize(("make", "paired"), [(apart, False), (in_turns, True)])
def test_five_percent_are_seen(make: Callable[..., tuple[Blocks, Blocks]], paired: bool, ratio: float,
                               verdict: str) -> None:
    assert share(make, ratio, verdict, paired) >= 0.9


def test_drift_needs_turns() -> None:
    """Without pairs the drift between turns is taken for what processes vary by, and hides the difference."""
    assert share(in_turns, 1.05, SLOWER, False) < 0.3


def test_calls_of_one_process_prove_nothing() -> None:
    """However many there are: a test on single calls would find a difference nearly always."""
    random = np.random.default_rng(3)
    base, new = apart(random, 1.0)
    found = compare(base[:1], new[:1])
    assert found.verdict == UNKNOWN and found.low is None and "expected 3 or more" in str(found.reason)
    assert compare(base[:3], new[:3]).low is not None


def test_the_interval_holds_the_ratio_as_often_as_it_says() -> None:
    random = np.random.default_rng(5)
    inside = 0
    for _ in range(TRIALS):
        found = compare(*apart(random, 1.2), confidence=0.9)
        assert found.low is not None and found.high is not None
        inside += found.low <= 1.2 <= found.high
    assert 0.86 <= inside / TRIALS <= 0.94


def test_by_hand() -> None:
    """Welch's interval of logarithms 0, 1, 2 and 1, 3, 5: a difference of 2, variances 1/3 and 4/3, 50/17 degrees."""
    found = compare([[1.0], [math.e], [math.e ** 2]], [[math.e], [math.e ** 3], [math.e ** 5]], confidence=0.95)
    reach = student_quantile(0.95, 50 / 17) * math.sqrt(5 / 3)
    assert found.ratio == pytest.approx(math.e ** 2) and found.high == pytest.approx(math.exp(2 + reach))
    paired = compare([[1.0], [2.0], [4.0]], [[2.0], [4.0], [8.0]], paired=True)
    assert (paired.low, paired.high) == (pytest.approx(2.0), pytest.approx(2.0)) and paired.verdict == SLOWER


@pytest.mark.parametrize(("confidence", "freedom", "expected"), [  # from tables of Student's distribution
    (0.95, 1, 12.7062), (0.99, 2, 9.9248), (0.99, 9, 3.2498), (0.99, 18, 2.8784),
    (0.95, 120, 1.9799), (0.9, 5, 2.0150)])
def test_quantiles(confidence: float, freedom: float, expected: float) -> None:
    assert student_quantile(confidence, freedom) == pytest.approx(expected, abs=6e-5)


def test_a_run_is_as_fast_as_itself() -> None:
    run = Run("bench", "net", session="s", samples={"latency_ms": [[1.0], [2.0], [3.0]]})
    found = compare_runs(run, run)
    assert (found.ratio, found.low, found.high, found.verdict) == (1.0, 1.0, 1.0, UNKNOWN)


def test_rounds_of_one_process_count_as_one() -> None:
    run = Run("bench_peers", "net", blocks=ROUND, session="s", samples={"latency_ms": [[1.0]] * 8})
    assert "found 1 process of one" in str(compare_runs(run, run).reason)


@pytest.mark.parametrize("samples", [{}, {"cpu_ms": [[1.0]]}, {"latency_ms": [[1.0], []]}, {"latency_ms": [[0.0]]},
                                     {"latency_ms": [[math.nan]]}])
def test_runs_without_samples_are_refused(samples: dict[str, Blocks]) -> None:
    run = Run("bench", "net", session="s", samples=samples)
    with pytest.raises(ConfigError, match="sample"):
        compare_runs(run, run)
