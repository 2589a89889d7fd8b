"""The renderers: facts as JSON, tables and texts of a terminal, figures, progress bars, names cut into pieces."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache
from io import StringIO
from operator import itemgetter
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any, ClassVar

from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.base.registry import PARTS, loaded

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table
    from rich.text import Text


class Facts:
    """A part of the tree of facts about a model and its run: a dataclass, whose fields may be such parts again.

    It has three renderers: `to_dict` gives JSON, which the page of `report` holds, too; a terminal and a notebook print
    what `shown` gives, by the class's `layout` of `tools/layouts.py`. A dataclass that prints so has `repr=False`.
    """

    derived: ClassVar[Sequence[str]] = ()
    """Names of properties, and of methods without arguments, that JSON has beside the fields."""
    renamed: ClassVar[Mapping[str, str | None]] = {}
    """JSON's names of fields and of `derived`. None leaves one out; the facts of one whose name is empty stand among
    the others."""
    layout: ClassVar[str] = "plain"

    def to_dict(self) -> dict[str, Any]:
        """Return the facts by name, for JSON."""
        found: dict[str, Any] = {}
        own = [each.name for each in fields(self)] if is_dataclass(self) else list[str]()
        for name in (*own, *self.derived):
            if (called := self.renamed.get(name, name)) is not None:
                value = getattr(self, name)
                data = jsonable(value() if name in self.derived and callable(value) else value)
                found |= {called: data} if called else data or {}
        return found

    def shown(self) -> Iterable[RenderableType | None]:
        """Return what is printed, one below the other; None is left out."""
        parts: Iterable[RenderableType | None] = loaded(PARTS)(self)
        return parts

    def __rich__(self) -> RenderableType:
        from rich.console import Group

        return Group(*(part for part in self.shown() if part is not None))

    def __str__(self) -> str:
        from rich.console import Console

        text = StringIO()
        Console(file=text, force_jupyter=False, width=None if sys.stdout.isatty() else _NO_TERMINAL).print(self)
        return text.getvalue().rstrip()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """For notebooks: the same, in colour."""
        from rich.console import Console

        console = Console(file=StringIO(), record=True, width=_NOTEBOOK_WIDTH, color_system="truecolor",
                          force_jupyter=False)
        console.print(self)
        found: str = console.export_html(inline_styles=True, code_format=_HTML)
        return found


_NOTEBOOK_WIDTH, _NO_TERMINAL = 140, 160
_HTML = "<pre style='white-space:pre;overflow-x:auto;line-height:normal;font-family:monospace'>{code}</pre>"


def jsonable(value: Any) -> Any:
    """Replace facts, dataclasses and named tuples by dicts of their fields, other tuples by lists, and sets by sorted
    lists."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if hasattr(value, "_asdict"):
        return jsonable(value._asdict())
    if isinstance(value, Mapping):
        return {name: jsonable(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(each) for each in value]
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return {each.name: jsonable(getattr(value, each.name)) for each in fields(value)} if is_dataclass(value) else value


def finite(value: Any) -> Any:
    """Replace numbers that JSON does not know by None."""
    if isinstance(value, Mapping):
        return {str(name): finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def line(content: str, style: str = "") -> Text:
    """A text as it is, without markup."""
    from rich.text import Text

    return Text(content, style=style)


def bold(content: str) -> Text:
    return line(content, "bold")


def notice(content: str) -> Text:
    return line(content, "yellow")


_COLUMNS: dict[str, dict[str, Any]] = {">": {"justify": "right", "no_wrap": True}, "|": {"no_wrap": True}}


@cache
def _table_class() -> type[Table]:
    from rich.measure import Measurement
    from rich.padding import Padding
    from rich.table import Column, Table
    from rich.text import Text

    class Records(Table):
        """A table that tells each row as a list of names and cells where it is too wide for the console."""

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
            wide = options.update(max_width=_WIDEST)
            room, wanted = options.max_width - 1, list[tuple[int, int, Column]]()
            for column in self.columns:
                found = [Measurement.get(console, wide, cell) for cell in (column.header, *column.cells)]
                most = max(column.min_width or 0, *(one.maximum for one in found))
                least = most if column.no_wrap else max(min(one.minimum, _WORD) for one in found)
                room -= least + 3
                wanted.append((most - least, least, column))
            if room >= 0:
                for left, (more, least, column) in enumerate(sorted(wanted, key=itemgetter(0)), -len(wanted)):
                    column.width = least + min(more, room // -left)
                    room -= column.width - least
                yield from super().__rich_console__(console, options)
                return
            if self.title:
                yield Text(str(self.title), style="italic")
            for cells in zip(*(column.cells for column in self.columns), strict=True):
                told = [Text(f"{column.header} ".lstrip()).append(Text(", ").join(_as_text(cell).split("\n")))
                        for column, cell in zip(self.columns, cells, strict=True) if str(cell)]
                yield told[0]
                yield Padding(Text("; ").join(told[1:]), (0, 0, 0, 2))
            if self.caption:
                yield Text(str(self.caption))

    return Records


_WIDEST = 100_000
_WORD = 16
"""Characters of a longer word that are enough of it in a line."""


def _as_text(cell: Any) -> Text:
    from rich.text import Text

    return cell if isinstance(cell, Text) else Text.from_markup(str(cell))


def table(*columns: str, rows: Iterable[Iterable[Any]] = (), title: str = "", caption: str | None = None,
          header: bool = True) -> Table:
    """A table of these rows. None is shown as `-`, and texts as they are.

    Args:
        columns: names; `>` before one: at the right and never broken, `|`: never broken.
            A table that no console is wide enough for shows its rows below each other: nothing is cut off.
    """
    from rich.markup import escape
    from rich.text import Text

    found = _table_class()(title=escape(title) or None, title_justify="left", caption=caption, show_header=header)
    for column in columns:
        kind = column[:1] if column[:1] in _COLUMNS else ""
        found.add_column(column.removeprefix(kind), overflow="fold", **_COLUMNS.get(kind, {}))
    for row in rows:
        found.add_row(*(cell if isinstance(cell, Text) else "-" if cell is None else escape(str(cell))
                        for cell in row))
    return found


def view(rows: Iterable[Any], *columns: str, title: str = "", caption: str | None = None) -> Table | None:
    """A table with a row for each of these facts or mappings; None if there are none.

    Args:
        columns: a name as of `table`, and behind it the cell, a text to format with the row's facts, as
            `"weights MB {weights:MB}"`. `{#}` is the row's number, from 1 on. Beside Python's specifications there are
            those of `FORMS`. What is None is shown as `-`, in one of these forms as nothing.
    """
    divided = [(name.strip(), brace + cell) for name, brace, cell in (column.partition("{") for column in columns)]
    cells = [[_CELLS.vformat(cell, (number,), row) for _, cell in divided] for number, row in enumerate(rows, 1)]
    return table(*(name for name, _ in divided), rows=cells, title=title, caption=caption) if cells else None


class _Cells(Formatter):
    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Any) -> Any:
        if key == "#":
            return args[0]
        return kwargs[key] if isinstance(kwargs, Mapping) else getattr(kwargs, str(key))

    def format_field(self, value: Any, format_spec: str) -> str:
        form = FORMS.get(format_spec)
        if value is None:
            return "-" if form is None else ""
        return format(value, format_spec) if form is None else form(value)


_CELLS = _Cells()


def facts_table(facts: Iterable[tuple[Any, ...]], title: str = "") -> Table:
    """A table without a head; a row is a name and what is told of it."""
    return table(rows=facts, title=title, header=False)


def plainly(value: Any) -> str:
    """Plain data as text, for people."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {plainly(each)}" for name, each in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(plainly, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def short(number: float) -> str:
    """3 significant digits with a unit: 1.82 G."""
    for unit in ("", " k", " M", " G"):
        if number < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g} T"


def time_text(seconds: float) -> str:
    """3 significant digits with a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def mib(count: float) -> str:
    return f"{count / 2**20:.1f}"


def numbered(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)


MOST_OPS = 6
"""The kinds of operators that a row of a table names."""


def counted(counts: Mapping[str, int], most: int | None = None) -> str:
    """How often each of these occurs, the first few of them."""
    names = list(counts.items())
    more = len(names) - len(names[:most])
    return ", ".join([f"{name} x{count}" if count > 1 else name for name, count in names[:most]]
                     + ([f"and {more} more kinds"] if more else []))


def binary(count: float) -> str:
    """Bytes, of which 1024 are a KiB."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


FORMS: Mapping[str, Callable[[Any], str]] = {
    "binary": binary, "count": lambda found: str(len(found)), "lines": lambda found: "\n".join(map(str, found)),
    "MB": lambda count: f"{count / 1e6:.3f}", "mib": mib, "ops": lambda counts: counted(counts, MOST_OPS),
    "pairs": lambda found: "\n".join(f"{name}: {value}" for name, value in found.items()), "percent": percent,
    "plain": plainly, "rate": "{:.1f}".format, "short": short, "text": str, "time": time_text,
    "us": lambda seconds: f"{seconds * 1e6:.1f}",
}
"""The forms of a cell of `view`: how many there are, a line for each, megabytes, ..."""


def make_figure(width: float, height: float) -> Figure:
    """An empty one, of so many inches. Raises ConfigError: matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(f"figures are drawn with matplotlib, which can't be imported ({error}): "
                          "pip install matplotlib") from None
    return Figure(figsize=(width, height), layout="constrained")


def check_figure(path: str | Path) -> None:
    """Refuse what `make_figure` or `save_figure` would refuse, before there is anything to draw. Raises ConfigError:
    matplotlib is not installed, or there is no such format."""
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
