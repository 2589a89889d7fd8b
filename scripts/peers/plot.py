"""A chart of the latency ratios: one panel for each batch size and number of threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peers.report import COMPARED, groups, ratios
from peers.stats import geometric_mean

MEAN = "geometric mean"


def write_plot(report: dict[str, Any], path: Path) -> None:
    """Write the chart in the format that the file's suffix names.

    Raises:
        ValueError: no case has ours and another peer.
    """
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "peers", "svg.fonttype": "none", "font.size": 9})
    import matplotlib.pyplot as plt

    panels = [(batch, threads, ratios(cases, COMPARED["median latency"]))
              for batch, threads, cases in groups(report["cases"])]
    panels = [panel for panel in panels if any(panel[2].values())]
    if not panels:
        raise ValueError("found no case with ours and another peer, expected one at least")
    rows = max(len(table) for _, _, table in panels) + 1
    peers = max(len(row) for _, _, table in panels for row in table.values())
    height = 1.6 + (0.12 * peers + 0.16) * rows
    size = (6.5 * len(panels), height)
    figure, axes = plt.subplots(1, len(panels), figsize=size, squeeze=False, layout="constrained")
    for axis, (batch, threads, table) in zip(axes[0], panels, strict=True):
        _panel(axis, table)
        axis.set_title(f"batch {batch}, {threads} thread{'s' * (threads > 1)}")
    figure.suptitle("Latency of NGRAPH over theirs: below 1, NGRAPH is faster")
    handles, labels = max((axis.get_legend_handles_labels() for axis in axes[0]), key=lambda pair: len(pair[1]))
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def _panel(axis: Any, table: dict[str, dict[str, float]]) -> None:
    """Horizontal bars, a group for each model, the mean last."""
    labels = list(dict.fromkeys(label for row in table.values() for label in row))
    means = {label: geometric_mean([row[label] for row in table.values() if label in row]) for label in labels}
    rows = {**table, MEAN: means} if len(table) > 1 else table
    width = 0.8 / len(labels)
    for place, label in enumerate(labels):
        bars = [(index, row[label]) for index, row in enumerate(rows.values()) if label in row]
        positions = [index + (place - (len(labels) - 1) / 2) * width for index, _ in bars]
        axis.barh(positions, [value for _, value in bars], width, label=label)
    axis.axvline(1.0, color="black", linewidth=0.8)
    axis.set_yticks(range(len(rows)), list(rows))
    axis.invert_yaxis()
    axis.set_xlabel("ratio of medians")
