"""Objects that print as tables: in a terminal, as text, and in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from io import StringIO
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
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

