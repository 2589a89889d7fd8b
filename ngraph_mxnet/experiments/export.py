"""Runs for other programs: JSON, CSV, and the folders in which MLflow's file store keeps them."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ngraph_mxnet.errors import ConfigError
from ngraph_mxnet.experiments.store import Run
from ngraph_mxnet.figures import make_figure, save_figure

_NOT_A_NAME = re.compile(r"[^\w\-. /]", re.ASCII)
_LONGEST = 6000
"""Characters of a parameter, that MLflow takes."""
_FINISHED, _FAILED = 3, 4
"""MLflow's numbers of a run's status."""
_LOCAL = 4
"""MLflow's number of a run's source: a local one."""


def to_json(runs: Sequence[Run]) -> str:
    """All of the runs; what is not finite is null."""
    return json.dumps([_finite(run.to_dict()) for run in runs], indent=1) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
            _write(place / "metrics" / _named(name), "".join(
                f"{moment} {value!r} {step}\n" for step, value in lines))
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
        boxes.boxplot([list(block) for block in blocks])
        in_order.set_title(f"{run.id[:8]} {run.kind}: {run.name}", fontsize=8)
        in_order.set_ylabel(series)
        boxes.set_xlabel(run.blocks)
    save_figure(figure, path)
