"""A test of whether one run is slower than another; and runs for other programs: JSON, CSV, MLflow's folders, pictures.

The test is of the ratio of their medians, and of how sure that is.
Latencies of one process depend on each other, and all of them on where its memory came to lie; so a process counts as
one observation, the logarithm of its median. Of runs recorded apart Welch's interval is taken (B. L. Welch, Biometrika
34, 1947, pages 28-35, with the degrees of freedom of F. E. Satterthwaite, Biometrics Bulletin 2, 1946, pages 110-114);
of runs recorded in turns Student's of the differences of pairs, in which what the machine did meanwhile cancels out; in
that of runs apart it does not, so they must differ by more than `DRIFT`.
T. Kalibera and R. Jones, "Rigorous benchmarking in reasonable time" (ISMM 2013), say why processes are to be repeated,
and not calls.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import math
import re
import statistics
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.base.rendered import finite, make_figure, save_figure
from ngraph_mxnet.tools.experiments.store import LATENCY, PROCESS, Blocks, Run

CONFIDENCE = 0.99
DRIFT = 0.015
"""By so much recordings that were made apart may differ though nothing has changed, which no interval of theirs knows:
what scripts/check_verdicts.py found within minutes, on a machine with other work."""
FEWEST = 3
"""Processes of each run, below which their variance is not known well enough."""
FASTER, SLOWER, UNKNOWN = "faster", "slower", "can't tell"


@dataclass(frozen=True)
class Comparison:
    """The comparison of a new run with a base.

    Attributes:
        ratio: the ratio of the medians, new over base: above 1 the new run is slower.
        low, high: the interval of confidence of the ratio; None where there are too few blocks.
        verdict: faster, slower, or can't tell.
        reason: why it can't be told; None where it can.
        paired: True if the runs were recorded in turns, and compared pair by pair.
    """

    ratio: float
    low: float | None
    high: float | None
    verdict: str
    reason: str | None
    paired: bool
    confidence: float


def compare(base: Blocks, new: Blocks, *, paired: bool = False, confidence: float = CONFIDENCE) -> Comparison:
    """Compare positive samples, each list of them from a process of its own.

    Args:
        paired: the processes had turns: the first of base belongs to the first of new, and so on.

    Raises:
        ValueError: a block is empty, a sample is not positive and finite, or pairs are not as many.
    """
    ours, theirs = _log_medians(base), _log_medians(new)
    if paired and len(ours) != len(theirs):
        raise ValueError(f"found {len(ours)} and {len(theirs)} blocks, expected pairs")
    centre = statistics.fmean(theirs) - statistics.fmean(ours)
    ratio = math.exp(centre)
    fewest = min(len(ours), len(theirs))
    if fewest < FEWEST:
        why = f"found {fewest} process{'es' * (fewest > 1)} of one, expected {FEWEST} or more of each"
        return Comparison(ratio, None, None, UNKNOWN, why, paired, confidence)
    error, freedom = _paired_error(ours, theirs) if paired else _welch_error(ours, theirs)
    reach = error * student_quantile(confidence, freedom) if error > 0 else 0.0
    low, high, margin = math.exp(centre - reach), math.exp(centre + reach), 1.0 if paired else 1.0 + DRIFT
    verdict, reason = UNKNOWN, None
    if low > margin:
        verdict = SLOWER
    elif high < 1 / margin:
        verdict = FASTER
    elif low <= 1 <= high:
        reason = f"a difference of {(high / low) ** 0.5 - 1:.1%} could hide in what processes vary by"
    else:
        reason = f"recordings made apart differ by {DRIFT:.1%} anyway"
    return Comparison(ratio, low, high, verdict, reason, paired, confidence)


def compare_runs(base: Run, new: Run, series: str = LATENCY, confidence: float = CONFIDENCE) -> Comparison:
    """Compare a series of two runs; those of one session that have equally many processes were recorded in turns.
    Raises ConfigError: one has no such series, or samples that are not positive and finite."""
    for run in (base, new):
        if not run.samples.get(series):
            raise ConfigError(f"run {run.id} has no samples of {series}, expected one of: "
                              f"{', '.join(run.samples) or 'it has none'}")
    ours, theirs = (_of_processes(run, series) for run in (base, new))
    try:
        return compare(ours, theirs, paired=base.session == new.session and len(ours) == len(theirs),
                       confidence=confidence)
    except ValueError as error:
        raise ConfigError(f"runs {base.id} and {new.id}, {series}: {error}") from None


def _of_processes(run: Run, series: str) -> Blocks:
    """The rounds of one process are one block."""
    blocks = run.samples[series]
    return blocks if run.blocks == PROCESS else [[sample for block in blocks for sample in block]]


def _log_medians(blocks: Blocks) -> list[float]:
    if not blocks or not all(len(block) for block in blocks):
        raise ValueError("found a run or block without samples")
    if not all(math.isfinite(sample) and sample > 0 for block in blocks for sample in block):
        raise ValueError("found a sample that is not positive and finite")
    return [math.log(statistics.median(block)) for block in blocks]


def _paired_error(base: Sequence[float], new: Sequence[float]) -> tuple[float, float]:
    """Standard error of the mean difference, and degrees of freedom."""
    pairs = [theirs - ours for ours, theirs in zip(base, new, strict=True)]
    return statistics.stdev(pairs) / math.sqrt(len(pairs)), len(pairs) - 1


def _welch_error(base: Sequence[float], new: Sequence[float]) -> tuple[float, float]:
    parts = [(statistics.variance(one) / len(one), len(one) - 1) for one in (base, new)]
    total = sum(part for part, _ in parts)
    below = sum(part * part / freedom for part, freedom in parts)
    return math.sqrt(total), total * total / below if below > 0 else 1.0


def student_quantile(confidence: float, freedom: float) -> float:
    """The t that |T| stays below with this probability, of Student's distribution.

    With t = sqrt(freedom) tan(angle) its density becomes cos(angle) ** (freedom - 1), whose integral is smooth.
    """
    nodes, weights = _quadrature()
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)

    def probability(angle: float) -> float:
        return float(scale * angle * (weights * np.cos(angle * (nodes + 1) / 2) ** (freedom - 1)).sum())

    low, high = 0.0, math.pi / 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if probability(middle) < confidence else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


@functools.cache
def _quadrature() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss and Legendre on [-1, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    return nodes, weights


_NOT_A_NAME = re.compile(r"[^\w\-. /]", re.ASCII)
_LONGEST = 6000
"""Characters of a parameter, that MLflow takes."""
_FINISHED, _FAILED = 3, 4
"""MLflow's numbers of a run's status."""
_LOCAL = 4
"""MLflow's number of a run's source: a local one."""


def to_json(runs: Sequence[Run]) -> str:
    """All of the runs; what is not finite is null."""
    return json.dumps([finite(run.to_dict()) for run in runs], indent=1) + "\n"


def to_csv(runs: Sequence[Run]) -> str:
    """A row for each sample and each step of a metric."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["run", "session", "kind", "name", "started", "what", "series", "block", "step", "value"])
    for run in runs:
        about = [run.id, run.session, run.kind, run.name, run.started]
        for name, steps in run.metrics.items():
            rows.writerows([*about, "metric", name, "", step, repr(value)] for step, value in steps)
        for series, blocks in run.samples.items():
            rows.writerows([*about, "sample", series, block, position, repr(value)]
                           for block, samples in enumerate(blocks) for position, value in enumerate(samples))
    return text.getvalue()


def write_mlflow(runs: Sequence[Run], folder: Path) -> list[str]:
    """Write each run as MLflow's file store does, into an experiment for each kind; those that are there stay.

    Settings become parameters, facts tags, and samples a metric whose step is the sample's number, with their median as
    another one.

    Returns:
        The ids of the runs that are new there.

    Raises:
        OSError: it can't be written.
    """
    written = []
    for run in runs:
        number = str(zlib.crc32(f"ngraph_mxnet {run.kind}".encode()) + 1)  # the same at each export; 0 is MLflow's own
        experiment = folder / number
        moment = round(datetime.fromisoformat(run.started).timestamp() * 1e3)
        _write(experiment / "meta.yaml", _meta(experiment_id=number, name=f"ngraph_mxnet {run.kind}",
                                               artifact_location=experiment.absolute().as_uri(),
                                               creation_time=moment, last_update_time=moment))
        place = experiment / run.id
        if (place / "meta.yaml").exists():
            continue
        for name, value in run.settings.items():
            _write(place / "params" / _named(name), _text(value)[:_LONGEST])
        for name, lines in _metrics(run).items():
            _write(place / "metrics" / _named(name), "".join(f"{moment} {value!r} {step}\n" for step, value in lines))
        for name, value in (*run.facts.items(), ("session", run.session), ("mlflow.runName", run.name)):
            _write(place / "tags" / _named(name), _text(value))
        (place / "artifacts").mkdir(exist_ok=True)
        _write(place / "meta.yaml", _meta(  # the last: MLflow takes a folder for a run by it
            run_id=run.id, run_uuid=run.id, run_name=run.name, experiment_id=number, start_time=moment,
            end_time=moment + round(run.seconds * 1e3), status=_FINISHED if run.status == "finished" else _FAILED,
            artifact_uri=(place / "artifacts").absolute().as_uri(), source_type=_LOCAL, source_name="",
            source_version="", entry_point_name="", user_id="", tags=[]))
        written.append(run.id)
    return written


def _metrics(run: Run) -> dict[str, list[tuple[int, float]]]:
    found = {name: list(steps) for name, steps in run.metrics.items()}
    for series, blocks in run.samples.items():
        found[series] = list(enumerate(sample for block in blocks for sample in block))
        median = run.median(series)
        if median is not None:
            found[f"{series}.median"] = [(0, median)]
    return found


def _meta(**fields: Any) -> str:
    """YAML, of which JSON is a part."""
    return json.dumps({**fields, "lifecycle_stage": "active"}, indent=1) + "\n"


def _named(name: str) -> str:
    """A name that MLflow takes, and that is one file's."""
    return _NOT_A_NAME.sub("_", name).replace("/", "_").lstrip(".") or "_"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def plot(runs: Sequence[Run], series: str, path: Path) -> None:
    """Each run's samples in their order, and as boxes, a box for each block; the ending of `path` says in which format.

    Raises:
        ConfigError: matplotlib is not installed, or knows no such format; or a run has no such samples.
        OSError: it can't be written.
    """
    figure = make_figure(11, 1 + 2.5 * len(runs))
    axes = figure.subplots(len(runs), 2, sharey="all", squeeze=False)
    for run, (in_order, boxes) in zip(runs, axes, strict=True):
        blocks = run.samples.get(series)
        if not blocks:
            raise ConfigError(f"run {run.id} has no samples of {series}; it has {', '.join(run.samples) or 'none'}")
        start = 0
        for block in blocks:
            in_order.plot(range(start, start + len(block)), block, ".", markersize=3)
            start += len(block)
        boxes.boxplot([list(block) for block in blocks], showfliers=False)
        in_order.set_title(f"{run.id[:8]} {run.kind}: {run.name}", fontsize=8)
        in_order.set_ylabel(series)
        boxes.set_xlabel(run.blocks)
    _limit(axes[0][0], [sample for run in runs for block in run.samples[series] for sample in block])
    save_figure(figure, path)


def _limit(axes: Any, samples: Sequence[float]) -> None:
    """Show the samples up to twice their 98th percentile's distance from the least: a few outliers would make a flat
    line of all others. Say how many lie above."""
    low, high = min(samples), float(np.percentile(samples, 98))
    top = high + max(high - low, 1e-3 * abs(high))
    above = sum(sample > top for sample in samples)
    if above:
        axes.set_ylim(low - 0.05 * (top - low), top)
        axes.figure.suptitle(f"{above} of {len(samples)} samples are above {top:.4g}, the largest is "
                             f"{max(samples):.4g}", fontsize=8)
