"""A report for people: what is compiled for ranges of sizes, what that assumes, and what is not compiled so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ngraph_mxnet.errors import ConfigError, listed
from ngraph_mxnet.ir.sizes import Guard
from ngraph_mxnet.rendered import Rendered
from ngraph_mxnet.runtime.ranges import Attempt

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Assumption:
    """A guard: the condition, and what asked."""

    condition: str
    why: str

    @staticmethod
    def of(guard: Guard, named: Callable[[str], str] = str) -> Assumption:
        return Assumption(str(guard), named(guard.why))


@dataclass(frozen=True)
class RangeVerdict:
    """The verdict on a region or model: the inputs whose sizes change, and the assumptions about these sizes. Where
    each set of shapes is compiled for itself, `reason` says why."""

    name: str
    inputs: tuple[str, ...]
    assumptions: tuple[Assumption, ...] = ()
    reason: str | None = None

    @staticmethod
    def of(name: str, inputs: Iterable[str], made: Attempt, named: Callable[[str], str] = str) -> RangeVerdict:
        """`named` puts the names of nodes into a text."""
        template, inputs = made.template, tuple(dict.fromkeys(inputs))
        if template is None:
            return RangeVerdict(name, inputs, (), named(made.reason))
        narrow = next((named(f"{guard}: {guard.why}") for guard in template.guards if guard.is_narrow), None)
        return RangeVerdict(name, inputs, tuple(Assumption.of(guard, named) for guard in template.guards), narrow)


@dataclass(frozen=True, repr=False)
class RangeExplanation(Rendered):
    """Prints as a table; `to_dict` is for programs. `fixed`: how many regions see no size that changes."""

    verdicts: tuple[RangeVerdict, ...]
    fixed: int = 0

    @property
    def compiles(self) -> bool:
        """True if no set of shapes has to be compiled for itself."""
        return all(verdict.reason is None for verdict in self.verdicts)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __rich__(self) -> RenderableType:
        ours = sum(verdict.reason is None for verdict in self.verdicts)
        text = f"{ours} of {len(self.verdicts)} are compiled once for a range of sizes"
        if self.fixed:
            text += f"; sizes of {self.fixed} more do not change"
        return Group(Text(text, style="bold"), *([range_table(self.verdicts)] if self.verdicts else []))


def check_axes(axes: Mapping[str, Sequence[int]], shapes: Mapping[str, Sequence[int]]) -> None:
    """Raises ConfigError for axes that the inputs of these shapes lack."""
    for name, changing in axes.items():
        for axis in changing:
            if name not in shapes or not 0 <= axis < len(shapes[name]):
                raise ConfigError(f"axis {axis} of {name!r} is to change; there are: "
                                  f"{listed(f'{name}={tuple(shape)}' for name, shape in shapes.items())}")


def range_table(verdicts: Sequence[RangeVerdict]) -> Table:
    table = Table("output", "inputs that change", "assumed, and by what", "compiled for each set of shapes because",
                  title="Ranges of sizes", title_justify="left")
    for verdict in verdicts:
        assumed = "\n".join(f"{each.condition} ({each.why})" if each.why else each.condition
                            for each in verdict.assumptions)
        table.add_row(*map(Text, (verdict.name, "\n".join(verdict.inputs), assumed, verdict.reason or "")))
    return table
