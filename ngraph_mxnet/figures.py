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


def check_figure(path: str | Path) -> None:
    """Refuse what `make_figure` or `save_figure` would refuse, before there is anything to draw.

    Raises:
        ConfigError: matplotlib is not installed, or there is no such format.
    """
    formats = make_figure(1, 1).canvas.get_supported_filetypes()
    ending = Path(path).suffix.removeprefix(".").lower()
    if ending and ending not in formats:  # without one it is the format that matplotlib is set to
        raise ConfigError(f"{path}: found the format {ending}, expected one of {', '.join(sorted(formats))}")


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
