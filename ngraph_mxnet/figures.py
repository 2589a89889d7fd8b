"""Figures that matplotlib draws."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ngraph_mxnet.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def make_figure(width: float, height: float) -> Figure:
    """An empty one, of so many inches.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(f"figures are drawn with matplotlib, which can't be imported ({error}): "
                          "pip install matplotlib") from None
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, path: str | Path) -> None:
    """In the format that the ending of `path` says; SVG of the same content has the same bytes.

    Raises:
        ConfigError: there is no such format.
        OSError: it can't be written.
    """
    import matplotlib

    metadata = {"Date": None} if Path(path).suffix == ".svg" else None
    try:
        with matplotlib.rc_context({"svg.hashsalt": "ngraph_mxnet", "svg.fonttype": "none"}):
            figure.savefig(path, metadata=metadata)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
