"""Efficiency over nodes as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ngraph_mxnet.distributed.simulation.study import Study
from ngraph_mxnet.figures import make_figure, save_figure


def plot(studies: Sequence[Study], path: str | Path) -> None:
    """A panel for each study, a line for each bandwidth; the ending of `path` says in which format.

    Raises:
        ConfigError: matplotlib is not installed, or knows no such format.
        OSError: it can't be written.
    """
    figure = make_figure(3.2 * len(studies), 3.2)
    for axes, study in zip(figure.subplots(1, len(studies), sharey=True, squeeze=False)[0], studies, strict=True):
        for gbit, curve in study.curves.items():
            axes.plot(study.nodes, [found.efficiency for found in curve], "o-", markersize=3, label=f"{gbit:g} Gb/s")
        axes.set_xscale("log", base=2)
        axes.set_xticks(study.nodes, [str(nodes) for nodes in study.nodes])
        axes.set_ylim(0, 1.05)
        axes.grid(linewidth=0.4)
        axes.set_title(f"{study.trace.model}, batch {study.trace.batch}", fontsize=9)
        axes.set_xlabel("nodes")
        axes.legend(fontsize=8, loc="lower left")
    figure.supylabel("efficiency, t(1) / t(N)")
    save_figure(figure, path)
