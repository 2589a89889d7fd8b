"""Runs as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ngraph_mxnet.errors import ConfigError
from ngraph_mxnet.experiments.run import Run
from ngraph_mxnet.figures import make_figure, save_figure


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
