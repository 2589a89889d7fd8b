"""What users are shown: objects that print as tables, figures, progress bars, and names cut into pieces."""

from __future__ import annotations

import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ngraph_mxnet.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType


class Rendered(ABC):
    """Says what it looks like by `__rich__`; as text it is the same. A dataclass of this kind has `repr=False`."""

    width: ClassVar[int | None] = None
    """The width of the text; None: the terminal's."""

    @abstractmethod
    def __rich__(self) -> RenderableType: ...

    def __str__(self) -> str:
        from rich.console import Console

        text = StringIO()
        Console(file=text, width=self.width).print(self)
        return text.getvalue().rstrip()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """For notebooks: the same, in colour."""
        from rich.console import Console

        console = Console(file=StringIO(), record=True, width=self.width or _NOTEBOOK_WIDTH, color_system="truecolor")
        console.print(self)
        found: str = console.export_html(inline_styles=True, code_format=_HTML)
        return found


_NOTEBOOK_WIDTH = 140
_HTML = "<pre style='white-space:pre;overflow-x:auto;line-height:normal'>{code}</pre>"


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


_QUIET_SECONDS = 2.0


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal, once the work has taken two seconds; what it gives is called after each of `total` steps."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    start = time.monotonic()
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total, visible=False)

        def advance() -> None:
            bar.update(task, advance=1, visible=time.monotonic() - start > _QUIET_SECONDS)

        yield advance


def pieces(name: str) -> list[str]:
    """Parts with the separator behind each, `/`, `.` or `_`; of paths, only `/` and `.` separate."""
    return re.findall(r"[^/.]*[/.]|[^/.]+$" if "/" in name else r"[^_.]*[_.]|[^_.]+$", name)


def common_prefix(names: Sequence[str]) -> str:
    """Return the prefix that all names share, up to a separator; it is never a whole name. The prefix of fewer than two
    names is empty."""
    if len(names) < 2:
        return ""
    found = []
    for same in zip(*(pieces(name)[:-1] for name in names), strict=False):
        if len(set(same)) > 1:
            break
        found.append(same[0])
    return "".join(found)
