"""A report as a picture."""

from __future__ import annotations

from pathlib import Path

from ngraph_mxnet.figures import make_figure, save_figure
from ngraph_mxnet.quantizing.report import Report


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
    damage.barh(places, [row.damage or 0 for row in rows], color=colours)
    if any(row.damage for row in rows):
        damage.set_xscale("log")
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
