"""A chart of the latency ratios: one panel for each batch size and number of threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peers.report import COMPARED, groups, ratios
from peers.stats import geometric_mean

MEAN = "geometric mean"
MARKERS = "osD^v"


def write_plot(report: dict[str, Any], path: Path) -> None:
    """Write the chart in the format that the file's suffix names.

    Raises:
        ValueError: no case has ours and another peer.
    """
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "peers", "svg.fonttype": "none", "font.size": 9})
    import matplotlib.pyplot as plt

    panels = [(name, ratios(cases, COMPARED["median latency"])) for name, cases in groups(report["cases"])]
    panels = [panel for panel in panels if any(panel[1].values())]
    if not panels:
        raise ValueError("found no case with ours and another peer, expected one at least")
    rows = max(len(table) for _, table in panels) + 2
    size = (7.5 * len(panels), 1.1 + 0.115 * rows)
    figure, axes = plt.subplots(1, len(panels), figsize=size, squeeze=False, layout="constrained")
    for axis, (name, table) in zip(axes[0], panels, strict=True):
        _panel(axis, table)
        axis.set_title(name)
    figure.suptitle("Latency of NGRAPH over theirs: below 1, NGRAPH is faster")
    handles, labels = max((axis.get_legend_handles_labels() for axis in axes[0]), key=lambda pair: len(pair[1]))
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def _panel(axis: Any, table: dict[str, dict[str, float]]) -> None:
    """A row of dots for each model, their values in columns beside it; the mean apart, below."""
    labels = list(dict.fromkeys(label for row in table.values() for label in row))
    means = {label: geometric_mean([row[label] for row in table.values() if label in row]) for label in labels}
    rows = [(index, name, row, "normal") for index, (name, row) in enumerate(table.items())]
    if len(table) > 1:
        rows.append((len(table) + 1, MEAN, means, "bold"))
        axis.axhline(len(table), color="black", linewidth=0.8)
    axis.axvline(1.0, color="black", linewidth=1.6)
    for column, label in enumerate(labels):
        color = f"C{column}"
        own = [(row[label], index) for index, _, row, _ in rows if label in row]
        axis.scatter(*zip(*own, strict=True), s=12, color=color, marker=MARKERS[column % len(MARKERS)], label=label,
                     zorder=3)
        for index, _, row, weight in rows:
            if label in row:
                axis.text(1.07 + 0.08 * column, index, f"{row[label]:.2f}", color=color, fontsize=6.5, weight=weight,
                          ha="right", va="center", transform=axis.get_yaxis_transform())
    axis.set_yticks([index for index, *_ in rows], [name for _, name, *_ in rows], fontsize=6.5)
    axis.set_ylim(rows[-1][0] + 0.8, -0.8)
    axis.set_xlim(left=0)
    axis.grid(axis="both", linewidth=0.4, color="0.85")
    axis.set_axisbelow(True)
    axis.set_xlabel("ratio of medians")
